"""Finds the Lua scripts, reads their headers, and turns their refusals into errors.

The header above each script is its signature: arguments are bound here by the names it gives them. No I/O happens here
beyond reading the files; `sublet.connection.transport` sends what this module makes.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from sublet.errors import (
    REFUSALS,
    Demoted,
    Forbidden,
    Invalid,
    JobsError,
    Moved,
    OutOfMemory,
    QueueFull,
    Unavailable,
    Unfit,
)
from sublet.source_tree import data_folder

T = TypeVar("T")

LIBRARIES = (
    "lib/base",
    "lib/queue",
    "lib/lifecycle",
    "lib/prune",
    "lib/due",
    "lib/occurrence",
    "lib/integrity",
)
"""The libraries, in the order in which they stand in front of a script. The script's header names those that it needs."""

NAMES = (
    "init", "submit", "claim", "heartbeat", "complete", "fail", "release",
    "cancel", "retry", "promote", "reap", "prune", "watch", "pause", "resume", "configure",
    "note", "enlist", "drain", "reconcile",
    "schedule", "pick", "fire", "pool", "summon", "complain",
    "repair", "recount", "drop",
)  # fmt: skip
"""All verbs; each is one file in `lua/`."""

_LIBRARIES = re.compile(r"^-- LIBS  (.+)", re.MULTILINE)
_FIXED = re.compile(r"^-- ARGV  (\w+) ", re.MULTILINE)
_REPEATED = re.compile(r"^-- ARGV  ((?:\w+ )+)…", re.MULTILINE)
_CODES = re.compile(r"^-- CODE  ([A-Z_]+(?: [A-Z_]+)*)", re.MULTILINE)

_NOISE = re.compile(r"^([A-Z]+ )?Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
_QUOTED = re.compile(r"""^([A-Z]+ )?\((['"])(.*)\2,\)$""", re.DOTALL)
"""What redis-py puts before the words, and its async pipeline around them: it shows the error's arguments."""
_PLACE = re.compile(r" script: (?:[0-9a-f]{40}, )?on .*$", re.DOTALL)
"""What a server adds after a script's error."""
_NOT_LET = ("NOPERM ", "ACL failure in script: ", "The user executing the script ")
"""How a denial begins: of a command; within a script, where it has no code: of Valkey, of Redis 7.2 and later; of Redis 7.0."""

_AWAY = ("LOADING", "BUSY", "MISCONF", "NOREPLICAS")
_DEMOTED = ("MASTERDOWN", "CLUSTERDOWN", "READONLY", "TRYAGAIN", "UNBLOCKED")
_MOVED = ("MOVED", "ASK")
_DENIED = ("NOAUTH", "WRONGPASS")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, made and not yet sent: its commands, and how its reply is read. Sending it twice has one effect.

    A script is one command, with its text for a server that does not know it yet; several plain reads go in one
    round trip, but not in a MULTI: a full Redis refuses every command in one, reads too. With `waits`, all commands are that
    script's, the waits go behind them over the same connection, and `read` is given two lists: the scripts' replies, and what
    the server counted, or said instead (see `sublet.submission.durability`).
    """

    commands: tuple[tuple[Any, ...], ...]
    read: Callable[[Any], T]
    text: str = ""
    waits: tuple[tuple[Any, ...], ...] = ()

    @property
    def tag(self) -> str:
        """The hash tag of the partition it is about, `{sublet:0}`; empty for one about the server itself."""
        key = next((word for word in self.commands[0] if isinstance(word, str) and word.startswith("{")), "")
        return key[: key.find("}") + 1]

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


def source(name: str) -> str:
    """The text of one file of `lua/`, without the libraries in front."""
    return (data_folder("lua") / f"{name}.lua").read_text("utf-8")


@cache
def script(name: str) -> Script:
    """One verb's script, assembled: the libraries that its header names (`-- LIBS  lib/base.lua lib/queue.lua`), then its own file."""
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
    message = _PLACE.sub("", _QUOTED.sub(r"\1\3", _NOISE.sub(r"\1", message)))
    code, _, words = message.partition(" ")
    if code == "OOM":
        return OutOfMemory(
            "Redis is full (maxmemory) and takes nothing new; workers still empty it: add workers, or raise maxmemory"
        )
    if code == "QUEUE_FULL":
        return QueueFull(f"{words}: add workers, or raise the limit (sublet configure)")
    if code == "WRONGTYPE":
        return Unfit(
            "somebody else has written to this namespace: a key is of another type than it must be (WRONGTYPE); "
            "nothing was changed; sublet doctor names the key"
        )
    if code == "WRONG_LAYOUT" and "layout dropped" in words:
        return REFUSALS[code](
            f"{words.partition(' ')[0]} takes nothing: a drop was interrupted, or is under way: run sublet drop again"
        )
    if code == "INVALID":
        return Invalid(words)
    if code in REFUSALS:
        return REFUSALS[code](words or message)
    return _of_server(code, message)


def _of_server(code: str, message: str) -> JobsError | None:
    """The error for what Redis itself says, and none of our scripts; None for what is not known."""
    if code in _AWAY:
        return Unavailable(f"Redis cannot serve now ({message})")
    if code in _DEMOTED:
        return Demoted(f"Redis cannot serve now ({message}): another server may have taken over")
    if code in _MOVED:
        return Moved(f"this is a cluster: use redis+cluster://… in SUBLET_REDIS_URL ({message})")
    if message.startswith(_NOT_LET):
        return Forbidden(
            f"Redis does not let this user do that ({message}): see to its rights (`sublet acl` writes them for each role), "
            "or use another in SUBLET_REDIS_URL"
        )
    if code in _DENIED:
        return Unavailable(
            f"Redis refused this client ({message}): check user and password in SUBLET_REDIS_URL"
        )
    if "access a non local key" in message:
        return Demoted(
            f"a slot is being moved key by key, and scripts wait until it is whole again ({message})"
        )
    if "cluster support disabled" in message:
        return Unfit("this is no cluster: use redis://… in SUBLET_REDIS_URL")
    if "DB index" in message:
        return Unfit(
            f"this server has no such database ({message}): check the number at the end of SUBLET_REDIS_URL"
        )
    if "unknown command" in message.lower() or "unknown redis command" in message.lower():
        return Unfit(
            f"this server lacks a command that is needed ({message}): use Redis 7.0 or Valkey, or newer"
        )
    return None
