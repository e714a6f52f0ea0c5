"""Load the Lua scripts, parse their headers (the signatures), and map error replies to exceptions."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

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
    "lib/rules",
    "lib/queue",
    "lib/flow",
    "lib/turns",
    "lib/places",
    "lib/tags",
    "lib/steps",
    "lib/conflict",
    "lib/intake",
    "lib/calls",
    "lib/members",
    "lib/edges",
    "lib/links",
    "lib/deaths",
    "lib/surplus",
    "lib/lifecycle",
    "lib/prune",
    "lib/completion",
    "lib/due",
    "lib/claim",
    "lib/occurrence",
    "lib/integrity",
    "lib/outstanding",
    "lib/audit",
)

NAMES = (
    "init", "submit", "workflow", "claim", "heartbeat", "complete", "proceed", "fail", "release",
    "cancel", "retry", "promote", "reschedule", "erase", "reap", "prune", "watch", "pause", "resume", "configure", "group", "spend", "audit",
    "note", "emit", "step", "call", "suspend", "signal", "enlist", "drain", "reconcile", "publish", "sample",
    "schedule", "pick", "fire", "pool", "summon", "complain",
    "repair", "recount", "drop",
)  # fmt: skip

_LIBRARIES = re.compile(r"^-- LIBS  (.+)", re.MULTILINE)
_FIXED = re.compile(r"^-- ARGV  (\w+) ", re.MULTILINE)
_REPEATED = re.compile(r"^-- ARGV  ((?:\w+ )+)…", re.MULTILINE)
_CODES = re.compile(r"^-- CODE  ([A-Z_]+(?: [A-Z_]+)*)", re.MULTILINE)

_NOISE = re.compile(r"^([A-Z]+ )?Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
_QUOTED = re.compile(r"""^([A-Z]+ )?\((['"])(.*)\2,\)$""", re.DOTALL)
_PLACE = re.compile(r" script: (?:[0-9a-f]{40}, )?on .*$", re.DOTALL)
_NOT_ALLOWED = ("NOPERM ", "ACL failure in script: ", "The user executing the script ")
"""Starts of denials; the last one is Redis 7.0's."""

_AWAY = ("LOADING", "BUSY", "MISCONF", "NOREPLICAS")
_DEMOTED = ("MASTERDOWN", "CLUSTERDOWN", "READONLY", "TRYAGAIN", "UNBLOCKED")
_MOVED = ("MOVED", "ASK")
_DENIED = ("NOAUTH", "WRONGPASS")
_TOO_LARGE = "Protocol error: unauthenticated "
"""Redis's error instead of NOAUTH for commands of more than 10 words, or with a word above 16 KiB."""


class Call(NamedTuple, Generic[T]):
    """An unsent request to Redis: commands, and `read`, which parses their reply. It is safe to send twice.

    With `text` it is one script; without, plain commands, sent in one round trip; `read` gets several replies
    as a list. With `waits` (commands such as WAIT), all commands are scripts, the waits follow on the same
    connection, and `read` gets two lists: the replies of both.
    """

    commands: tuple[tuple[Any, ...], ...]
    read: Callable[[Any], T]
    text: str = ""
    waits: tuple[tuple[Any, ...], ...] = ()
    raw: bool = False
    """Whether `read` takes the reply as Redis sends it, instead of as redis-py converts it."""

    @property
    def tag(self) -> str:
        """The hash tag of the call's partition: `{sublet:0}`; empty for a call to the server itself."""
        key = next((word for word in self.commands[0] if isinstance(word, str) and word.startswith("{")), "")
        return key[: key.find("}") + 1]

    def with_text(self) -> tuple[Any, ...]:
        """Return the command as EVAL with the script's text, for a server without the script."""
        _, _, *rest = self.commands[0]
        return ("EVAL", self.text, *rest)


@dataclass(frozen=True, slots=True)
class Script:
    """The script of one verb. Its header names the arguments, `fixed` or in `repeated` groups, and the
    refusal codes.
    """

    name: str
    text: str
    sha: str
    libraries: tuple[str, ...]
    fixed: tuple[str, ...]
    repeated: tuple[str, ...]
    codes: tuple[str, ...]

    def call(self, base: str, read: Callable[[Any], T], rest: Sequence[Any] = (), **fixed: Any) -> Call[T]:
        """Make a call of the script, whose reply `read` converts: `fixed` are the arguments by name, `rest` the
        repeated groups in one flat list.
        """
        if len(fixed) != len(self.fixed) or (len(rest) % len(self.repeated) if self.repeated else rest):
            raise TypeError(
                f"the script {self.name} takes {self.fixed} and groups of {self.repeated}, not {tuple(fixed)} and {len(rest)} more"
            )
        args = [fixed[name] for name in self.fixed]
        return Call((("EVALSHA", self.sha, 1, base, *args, *rest),), read, self.text)


def source(name: str) -> str:
    """Return the text of the file lua/<name>.lua."""
    return (data_folder("lua") / f"{name}.lua").read_text("utf-8")


@cache
def script(name: str) -> Script:
    """Load the script of a verb: the text of the libraries that its header names, then its own. Cached."""
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
    """Return the exception for an error reply of Redis or a script; None for an unknown error."""
    message = _PLACE.sub("", _QUOTED.sub(r"\1\3", _NOISE.sub(r"\1", message)))
    code, _, words = message.partition(" ")
    if code == "OOM":
        return OutOfMemory(
            "Redis is full (maxmemory) and stores no new jobs, schedules, checkpoints or chunks; claims and completions still work: add workers, or raise maxmemory"
        )
    if code == "QUEUE_FULL":
        advice = "use fewer queues" if " is new, and there are " in words else "add workers"
        return QueueFull(f"{words}: {advice}, or raise the limit (sublet configure)")
    if code == "WRONGTYPE":
        return Unfit(
            "a key of this namespace has a wrong type, so another program wrote it (WRONGTYPE); nothing was changed: "
            "sublet doctor names the key: rename or delete it"
        )
    if code == "WRONG_LAYOUT" and "layout dropped" in words:
        return REFUSALS[code](
            f"{words.partition(' ')[0]} accepts no calls: a drop was interrupted, or is under way: run sublet drop again"
        )
    if code == "INVALID":
        return Invalid(words)
    if code in REFUSALS:
        return REFUSALS[code](words or message)
    return _of_server(code, message)


def _of_server(code: str, message: str) -> JobsError | None:
    if code in _AWAY:
        return Unavailable(f"Redis cannot serve now ({message}): repeat the call later")
    if code in _DEMOTED:
        return Demoted(
            f"Redis cannot serve now ({message}): another server may have taken over: repeat the call later"
        )
    if code in _MOVED:
        return Moved(f"this is a cluster: use redis+cluster://… in SUBLET_REDIS_URL ({message})")
    if message.startswith("NOPERM ") and "'eval'" in message:  # sent because EVALSHA was answered NOSCRIPT
        return Unavailable(
            "Redis does not have this script (after a restart, a failover, SCRIPT FLUSH or an upgrade), and this user may not send it: "
            "run `sublet scripts --load` as a user with the role admin, and repeat the call. Nothing has changed"
        )
    if message.startswith(_NOT_ALLOWED):
        return Forbidden(
            f"Redis does not allow this user the command ({message}): change its rights (`sublet acl` writes them for each role), "
            "or use another user in SUBLET_REDIS_URL"
        )
    if code in _DENIED or _TOO_LARGE in message:
        return Unavailable(
            f"Redis refused this client ({message}): check user and password in SUBLET_REDIS_URL",
            lasting=True,
        )
    if "access a non local key" in message:
        return Demoted(
            f"the partition's hash slot is being migrated key by key: repeat the call when that has ended ({message})"
        )
    if "cluster support disabled" in message:
        return Unfit("this server is not part of a cluster: use redis://… in SUBLET_REDIS_URL")
    if "DB index" in message:
        return Unfit(
            f"this server has no such database ({message}): check the number at the end of SUBLET_REDIS_URL"
        )
    if "unknown command" in message.lower() or "unknown redis command" in message.lower():
        return Unfit(
            f"this server lacks a command that is needed ({message}): use Redis 7.0 or newer, or Valkey"
        )
    return None
