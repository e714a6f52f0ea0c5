"""Names in requests: pydantic checks them without a call of Python, and reports an error in our words."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from sublet.protocol.keys import NAME_MAX

CHARACTER = "[A-Za-z0-9_.:-]"
"""A pattern for one character of a name."""
DOTS = r"^(.*/)?\.\.?(/.*)?$"
"""A pattern for `.` and `..`, alone or as a part of a path, which the JSON Schema excludes."""


def pattern_of(most: int = NAME_MAX) -> str:
    """Return a pattern for names of 1 to `most` characters but `.` and `..`, without a look-ahead, which pydantic's
    regular expressions lack.
    """
    no_dot = CHARACTER.replace(".", "")
    return "|".join(
        f"{start}{CHARACTER}{{0,{most - length}}}"
        for length, start in ((1, no_dot), (2, rf"\.{no_dot}"), (3, rf"\.\.{no_dot}"), (3, r"\.\.\."))
    )


@dataclass(frozen=True)
class Checked:
    """Annotation of a text that must match `pattern` as a whole; the error for another text is `rule`.

    JSON Schema shows `published`, a pattern that is easier to read, and `excluded`, one that must not match.
    """

    pattern: str
    rule: str
    published: str = ""
    excluded: str = DOTS

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        matching = core_schema.str_schema(pattern=f"^({self.pattern})$")
        named = core_schema.custom_error_schema(
            matching, custom_error_type="name", custom_error_message=self.rule
        )
        return core_schema.chain_schema([handler(source), named])

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        shown = handler(schema) | {"pattern": f"^{self.published or self.pattern}$"}
        return shown | {"not": {"pattern": self.excluded}} if self.published else shown
