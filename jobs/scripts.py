"""Finds the Lua scripts, reads their headers, and turns their refusals into errors.

The header above each script is its signature: arguments are bound here by the names it gives them. No I/O happens here
beyond reading the files; `jobs.transport` sends what this module makes.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, TypeVar

from jobs.errors import REFUSALS, Invalid, JobsError, OutOfMemory, QueueFull, Unavailable, Unfit

T = TypeVar("T")

LIBRARIES = ("lib", "queue", "life", "due", "slot")
"""The files that may stand in front of a script, in this order. Its header names those that do."""

NAMES = (
    "init", "submit", "claim", "heartbeat", "complete", "fail", "release",
    "cancel", "retry", "promote", "reap", "prune", "watch", "pause", "resume", "configure",
    "note", "enlist", "drain", "reconcile",
    "schedule", "pick", "fire", "pool", "summon", "complain",
)  # fmt: skip
"""All verbs; each is one file in `lua/`."""

_LIBRARIES = re.compile(r"^-- LIBS  (.+)", re.MULTILINE)
_FIXED = re.compile(r"^-- ARGV  (\w+) ", re.MULTILINE)
_REPEATED = re.compile(r"^-- ARGV  ((?:\w+ )+)…", re.MULTILINE)
_CODES = re.compile(r"^-- CODE  ([A-Z_]+(?: [A-Z_]+)*)", re.MULTILINE)

_AWAY = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "MISCONF", "NOREPLICAS")
_DENIED = ("NOAUTH", "WRONGPASS", "NOPERM")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, made and not yet sent: its commands, and how its reply is read. Sending it twice has one effect.

    A script is one command, with its text for a server that does not know it yet; several plain reads go in one
    round trip, but not in a MULTI: a full Redis refuses every command in one, reads too.
    """

    commands: tuple[tuple[Any, ...], ...]
    read: Callable[[Any], T]
    text: str = ""

    def with_text(self) -> tuple[Any, ...]:
        """The script's command again, for a server that answered NOSCRIPT."""
        _, _, *rest = self.commands[0]
        return ("EVAL", self.text, *rest)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb: the text that Redis runs, its SHA-1, and what its header says."""

    name: str
    text: str
    sha: str
    libraries: tuple[str, ...]
    fixed: tuple[str, ...]
    repeated: tuple[str, ...]
    codes: tuple[str, ...]

    def call(self, base: str, read: Callable[[Any], T], rest: Sequence[Any] = (), **fixed: Any) -> Call[T]:
        """Bind arguments by the header's names: the single ones by keyword, the repeated groups flat in `rest`."""
        if len(fixed) != len(self.fixed) or (len(rest) % len(self.repeated) if self.repeated else rest):
            raise TypeError(
                f"{self.name} takes {self.fixed} and groups of {self.repeated}, not {tuple(fixed)} and {len(rest)} more"
            )
        args = [fixed[name] for name in self.fixed]
        return Call((("EVALSHA", self.sha, 1, base, *args, *rest),), read, self.text)


def _folder() -> Traversable:
    inside = files("jobs") / "lua"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "lua"


def source(name: str) -> str:
    """The text of one file of `lua/`, without the libraries in front."""
    return (_folder() / f"{name}.lua").read_text("utf-8")


@cache
def script(name: str) -> Script:
    """One verb's script, assembled: the libraries that its header names (`-- LIBS  lib.lua queue.lua`), then its own file."""
    own = source(name)
    named = _LIBRARIES.search(own)
    libraries = tuple(file.removesuffix(".lua") for file in named[1].split()) if named else ()
    text = "".join(source(library) for library in libraries) + own
    repeated = _REPEATED.search(own)
    return Script(
        name=name,
        text=text,
        sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
        libraries=libraries,
        fixed=tuple(n for n in _FIXED.findall(own) if not (repeated and n == repeated[1].split()[0])),
        repeated=tuple(repeated[1].split()) if repeated else (),
        codes=tuple(code for line in _CODES.findall(own) for code in line.split()),
    )


def refusal(message: str) -> JobsError | None:
    """The error for a reply that begins with a known code; None for an unknown one, which is a bug of ours."""
    message = re.sub(
        r"^Command # \d+ \(.*\) of pipeline caused error: | script: [0-9a-f]{40}, on .*$", "", message, flags=re.DOTALL
    )
    message = re.sub(r"^\('(.*)',\)$", r"\1", message, flags=re.DOTALL)  # redis-py's async pipeline shows the error's arguments
    code, _, words = message.partition(" ")
    if code == "OOM":
        return OutOfMemory(
            "Redis is full (maxmemory) and takes no new job; workers still empty it: add workers, or raise maxmemory"
        )
    if code == "QUEUE_FULL":
        return QueueFull(f"{words}: add workers, or raise the limit (sublet configure)")
    if code == "WRONGTYPE":
        return Unfit(
            "somebody else has written to this namespace: a key is of another type than it must be (WRONGTYPE); "
            "nothing was changed; sublet doctor names the key"
        )
    if code == "INVALID":
        return Invalid(words)
    if code in REFUSALS:
        return REFUSALS[code](words or message)
    if code in _AWAY:
        return Unavailable(f"Redis cannot serve now ({message})")
    if code in _DENIED:
        return Unavailable(f"Redis refused this client ({message}): check user and password in SUBLET_REDIS_URL")
    if "DB index" in message:
        return Unfit(f"this server has no such database ({message}): check the number at the end of SUBLET_REDIS_URL")
    if "unknown command" in message.lower() or "unknown redis command" in message.lower():
        return Unfit(f"this server lacks a command that is needed ({message}): use Redis 7.0 or Valkey, or newer")
    return None
