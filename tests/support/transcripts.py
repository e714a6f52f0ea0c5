"""Replays the transcripts of `docs/reference/protocol/`: sends their lines to a server and compares the
replies.

A block begins with its predecessor (`# an empty database`, or `# after <another transcript>`); `# 31 s later`
lets time pass; `# the waiter receives` introduces a message of a subscription. A word in angle brackets stands
for a value that changes: its first value is kept, and must be the same wherever the word occurs again.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from sublet.protocol.scripts import NAMES, script

DELIVERY = 5.0
"""Seconds in which a subscription must deliver its message."""


class Step(NamedTuple):
    """One line of a transcript, its sender, and the lines of its reply."""

    who: str
    line: str
    reply: list[str]


class Transcript(NamedTuple):
    """A block: its name, the transcript that it continues ("" for an empty database), and its steps."""

    name: str
    after: str
    steps: list[Step]


def transcripts(page: str) -> dict[str, Transcript]:
    """All transcripts of a page, by name."""
    found = {}
    for name, text in re.findall(r"^```transcript (\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        first, *lines = text.splitlines()
        before = re.fullmatch(r"# (?:an empty database|after (\w+))", first)
        assert before, f"{name} does not name its predecessor"
        steps: list[Step] = []
        for line in lines:
            match = re.fullmatch(r"(#|\w*>) (.+)", line)
            if match:
                steps.append(Step(match[1], match[2], []))
            elif line:
                steps[-1].reply.append(line)
        assert name not in found, f"there are two transcripts called {name}"
        found[name] = Transcript(name, before[1] or "", steps)
    return found


def lineage(all_of_them: dict[str, Transcript], name: str) -> list[Transcript]:
    """A transcript and its predecessors, in the order of their replay."""
    chain = [all_of_them[name]]
    while chain[0].after:
        chain.insert(0, all_of_them[chain[0].after])
        assert len(chain) <= len(all_of_them), f"{name} is its own predecessor"
    return chain


def shown(reply: Any, indent: str = "") -> list[str]:
    """A reply as redis-cli prints it."""
    if isinstance(reply, list):
        if not reply:
            return ["(empty array)"]
        width, lines = len(str(len(reply))), []
        for i, item in enumerate(reply, 1):
            first, *rest = shown(item, indent + " " * (width + 2))
            lines += [f"{'' if i == 1 else indent}{i:>{width}}) {first}", *rest]
        return lines
    if reply is None:
        return ["(nil)"]
    if reply == "OK":  # a status, which no script replies
        return ["OK"]
    if isinstance(reply, int):
        return [f"(integer) {reply}"]
    if isinstance(reply, NoScriptError):
        return ["(error) NOSCRIPT " + str(reply).removeprefix("NOSCRIPT ")]
    if isinstance(reply, ResponseError):
        return [f"(error) {reply}"]
    return ['"' + str(reply).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"']


class Replay:
    """Sends the lines of transcripts to a server, in a namespace of its own, and compares the replies."""

    def __init__(self, clients: Sequence[Any], base: str, elapse: Callable[[float], None]) -> None:
        self.client, waiter = clients
        self.client.response_callbacks.clear()
        self.base, self.elapse, self.known = base, elapse, dict[str, str]()
        self.subscription = waiter.pubsub()
        for name in NAMES:
            self.client.execute_command("SCRIPT", "LOAD", script(name).text)

    def play(self, transcript: Transcript) -> None:
        """Replay one transcript. Raises AssertionError with the first line whose reply differs."""
        for step in transcript.steps:
            reply = self._send(step)
            lines = [] if reply is None else [line.replace(self.base, "{sublet:0}") for line in reply]
            where = f"{transcript.name}: {step.who} {step.line}"
            assert len(lines) == len(step.reply), f"{where}\nreply:\n" + "\n".join(lines)
            for line, expected in zip(lines, step.reply, strict=True):
                assert self._fits(line, expected), f"{where}\nreply:\n{line}\nexpected:\n{expected}"

    def _send(self, step: Step) -> list[str] | None:
        later = re.fullmatch(r"(\d+) s later", step.line)
        if step.who == "#" and later:
            self.elapse(int(later[1]))
        if step.who == "#":
            return self._next_message() if step.line == "the waiter receives" else None
        words = [self._meant(word) for word in shlex.split(step.line)]
        if step.who == "waiter>":
            assert words.pop(0) == "SUBSCRIBE", step.line
            self.subscription.subscribe(*words)
            return self._next_message()
        try:
            return shown(self.client.execute_command(*words))
        except ResponseError as error:
            return shown(error)

    def _next_message(self) -> list[str]:
        message = self.subscription.get_message(timeout=DELIVERY)
        assert message, "no message arrived"
        return shown([message["type"], message["channel"], message["data"]])

    def _meant(self, word: str) -> str:
        """A word as it is sent: $claim is a SHA-1, {sublet:0} the test's base, <token> the value seen before."""
        if word.startswith("$"):
            return script(word[1:]).sha
        return re.sub(r"<(\w+)>", lambda found: self.known[found[1]], word.replace("{sublet:0}", self.base))

    def _fits(self, line: str, expected: str) -> bool:
        """Whether a line of a reply matches the page. Keeps the values of its words in angle brackets."""
        pattern, new = "", set[str]()
        for part in re.split(r"(<\w+>)", expected):
            name = part[1:-1]
            if not re.fullmatch(r"<\w+>", part):
                pattern += re.escape(part)
            elif name in self.known:
                pattern += re.escape(self.known[name])
            else:
                pattern += f"(?P={name})" if name in new else rf'(?P<{name}>[^\s"\\]+)'
                new.add(name)
        found = re.fullmatch(pattern, line)
        self.known.update(found.groupdict() if found else {})
        return found is not None
