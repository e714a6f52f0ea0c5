"""Follow the quotes of a shell script, to find out whether a template's field is inside of them.

It follows comments, backslashes, quotes, `$(…)` and `${…}`. It refuses syntax that may hide where quotes
end, such as here-documents: a field's value might be split into words.
"""

import re

_STARTS = " \t\n;&|()<>"
_UNQUOTED = {
    "<<": "a here-document: use printf and a pipe",
    "`": "backquotes: use $(…)",
    "$'": "$'…': use '…', or printf",
}
_SIMPLE = re.compile(
    r"""\$\{[A-Za-z_0-9#]*\} | \$\((?!\(|[^)]*\bcase\b) [^()'"\\`{}#]* \) | \$\(\( [^()'"\\`{}#]* \)\)""",
    re.VERBOSE,
)
"""`${…}`, `$(…)` and `$((…))` whose end is certain, also within double quotes."""


class QuoteScanner:
    """Follows the quotes of a script that is read in pieces. Raises ValueError for syntax that it cannot follow."""

    def __init__(self) -> None:
        self._quote = ""
        self._at_start, self._in_comment = True, False
        self._braces = 0

    @property
    def quoted(self) -> bool:
        """Whether the text so far ends inside of quotes or after a backslash."""
        return bool(self._quote)

    def read(self, text: str) -> None:
        """Follow the next piece of the script."""
        at = 0
        while at < len(text):
            at += self._step(text, at)

    def field(self) -> None:
        """Continue behind a field of the template, which the script has as a quoted variable."""
        self._at_start = False

    def _step(self, text: str, at: int) -> int:
        char, pair = text[at], text[at : at + 2]
        if self._in_comment:
            self._in_comment = char != "\n"
            return 1
        if self._quote.endswith("\\"):
            self._quote = self._quote[:-1]
            self._at_start = self._at_start and char == "\n"
        elif self._quote == "'":
            self._quote = "" if char == "'" else "'"
        elif char == "\\":
            self._quote += "\\"
        elif self._quote:
            return self._step_in_double(text, at)
        else:
            return self._step_unquoted(char, pair)
        return 1

    def _step_in_double(self, text: str, at: int) -> int:
        if text.startswith(("${", "$(", "`"), at):
            simple = _SIMPLE.match(text, at)
            if not simple:
                raise ValueError(
                    "backquotes, or a $(…) or ${…} of more than plain words, in double quotes: "
                    'write v=$(…) before, and "$v" there'
                )
            return simple.end() - at
        self._quote = "" if text[at] == '"' else '"'
        return 1

    def _step_unquoted(self, char: str, pair: str) -> int:
        for what in (char, pair):
            if what in _UNQUOTED:
                raise ValueError(_UNQUOTED[what])
        if self._braces and pair == "$(":
            raise ValueError("$(…) within ${…}: write v=$(…) before, and ${…$v…} there")
        if pair == "${":
            self._braces += 1
            self._at_start = False
            return 2
        if char == "}" and self._braces:
            self._braces -= 1
        self._in_comment = char == "#" and self._at_start and not self._braces
        self._quote = char if char in "'\"" else ""
        self._at_start = char in _STARTS
        return 1
