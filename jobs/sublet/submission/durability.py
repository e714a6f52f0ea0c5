"""Durability: wait until replicas, or the disk, have the jobs."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from sublet.connection.settings import Settings
from sublet.connection.transport import refused
from sublet.errors import Forbidden, Invalid, NotDurable, Unavailable, Unconfirmed, Unfit
from sublet.model import Submission, Submitted
from sublet.options import check_durability
from sublet.protocol import server_info, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.submission.batches import batches

T = TypeVar("T")

Waits = tuple[tuple[Any, ...], ...]
"""The commands that wait for a durability: none, WAIT, WAITAOF (after a check), or all of them."""
Stored = Sequence[tuple[str, str]]
"""Of each job its id as sent and as stored: they differ if another job has the deduplication key."""

NONE = {"none"}
WAIT_SHARE = 0.75
"""How much of a call's timeout the server may spend waiting for replicas or the disk (0 to 1)."""
NEEDS = "durability fsync needs "
TOO_OLD = "durability fsync needs Redis 7.2 or Valkey (WAITAOF): on this server use appendfsync always, and durability none"
FSYNC_SETTINGS = {"appendonly": "yes", "appendfsync": "always"}
APPENDFSYNC = ("CONFIG", "GET", "appendfsync")
"""Sent before WAITAOF, which Redis from 7.4 and Valkey may answer before the disk has the data, with `everysec`."""
REPORT_SECONDS = 10.0
"""For how many seconds the answer that a server supports `fsync` is cached."""
SCRIPTS_MAX = 32
"""Most scripts that share one wait: up to 6,400 jobs."""


def waits(settings: Settings, asked: set[str]) -> Waits:
    """Return the commands that wait for the durabilities `asked` (`replicated`, `fsync`); none for `none`, or with a
    `client_factory`. Raises Invalid for another word, or `replicated` of 0 replicas.
    """
    if asked <= NONE or settings.client_factory:
        return ()
    for word in asked:
        check_durability(word)
    if "replicated" in asked and settings.replicas < 1:  # WAIT 0 would return at once
        raise Invalid(
            f"replicas={settings.replicas}: durability replicated needs at least 1: set SUBLET_REPLICAS"
        )
    ms = max(1, round(WAIT_SHARE * settings.timeout * 1000))  # 0 would wait for ever
    commands: dict[str, Waits] = {
        "replicated": (("WAIT", settings.replicas, ms),),
        "fsync": (APPENDFSYNC, ("WAITAOF", 1, 0, ms)),
    }
    return tuple(command for word, some in commands.items() if word in asked for command in some)


def submit(base: str, jobs: Sequence[Submission], waits: Waits) -> Call[list[Submitted | str]]:
    """Return the call that stores jobs, of up to 32 scripts, and waits for their durability. It returns per
    job `Submitted` or the refusal as text, or raises Unconfirmed or NotDurable.
    """
    scripts = [*batches(jobs)]
    calls = [verbs.submit(base, batch) for batch in scripts]

    def read(replies: tuple[list[Any], list[Any]]) -> list[Submitted | str]:
        words = [word for i, reply in enumerate(replies[0]) for word in _words(calls[i], scripts[i], reply)]
        taken = [
            (job.id, word.id) for job, word in zip(jobs, words, strict=True) if isinstance(word, Submitted)
        ]
        if taken:
            _check_all(waits, replies[1], taken)
        return words

    return Call(tuple(call.commands[0] for call in calls), read, calls[0].text, waits)


def raise_with_ids(error: Unavailable, jobs: Sequence[Submission]) -> NoReturn:
    """Raise the error again: Unconfirmed, Forbidden and Unfit unchanged, others with the first job's id in the
    message, for a repetition.
    """
    if isinstance(error, Unconfirmed | Forbidden | Unfit):
        raise error
    words = str(error)
    again = _again([(job.id, job.id) for job in jobs])
    raise type(error)(
        f"{words}{'' if words.endswith('?') else '.'} If in doubt whether the job is stored, {again}"
    ) from error


def _words(
    call: Call[list[Submitted | str]], batch: Sequence[Submission], reply: Any
) -> list[Submitted | str]:
    return [f"OOM {reply}"] * len(batch) if isinstance(reply, Exception) else call.read(reply)


def _check_all(waits: Waits, counts: Sequence[Any], taken: Stored) -> None:
    try:
        for wait, counted in zip(waits, counts, strict=True):
            _check(wait, counted, taken)
    except (Unconfirmed, NotDurable) as error:
        if len(taken) == 1:
            error.job_id = taken[0][1]
        raise


def _check(wait: tuple[Any, ...], counted: Any, taken: Stored) -> None:
    if isinstance(counted, Exception):
        raise _unable(wait, counted, taken)
    if wait is APPENDFSYNC:
        if "always" not in str(counted):
            raise _unfit(
                f"{NEEDS}appendfsync always: with everysec, WAITAOF may answer before the disk has the job",
                taken,
            )
        return
    got, seconds = counted if wait[0] == "WAIT" else counted[0], wait[-1] / 1000
    if got < wait[1]:
        without = (
            f"only {got} of {wait[1]} replicas have it" if wait[0] == "WAIT" else "its disk does not have it"
        )
        todo = "connect a replica (sublet doctor counts them), then " if wait[0] == "WAIT" and not got else ""
        raise Unconfirmed(
            f"Redis has stored the submit, but {without} after {seconds:g} s: it may still be lost; {todo}{_again(taken)}"
        )


def _again(taken: Stored) -> str:
    there = [
        *dict.fromkeys([found for sent, found in taken if sent == found] + [found for _, found in taken])
    ]
    own = any(sent == there[0] for sent, _ in taken)
    ids = f"id {there[0]}" if len(there) == 1 else f"ids: {there[0]} and {len(there) - 1:,} more"
    whose = "the same" if own else "its deduplication key's"
    return f"send the same submit again, under {whose} {ids}"


def _unfit(words: str, taken: Stored) -> NotDurable:
    return NotDurable(
        f"{words}. Redis has stored the submit all the same: after that change, {_again(taken)}"
    )


def _unable(wait: tuple[Any, ...], error: Any, taken: Stored) -> Exception:
    words = str(error).lower()
    if "unknown command" in words:
        return _unfit(TOO_OLD, taken)
    if "appendonly" in words:
        return _unfit(f"{NEEDS}the append-only file: run CONFIG SET appendonly yes", taken)
    found = refused(error)
    if isinstance(found, Forbidden):  # the wait was denied, not the script
        mode = "replicated" if wait[0] == "WAIT" else "fsync"
        command = " ".join(wait[:2]) if wait is APPENDFSYNC else wait[0]
        lacks = f"but this Redis user may not wait for other copies (NOPERM: {command})"
        todo = f"give the user the rights that `sublet acl` writes with SUBLET_DURABILITY={mode}, or use durability none"
        return Unconfirmed(f"Redis has stored the submit, {lacks}: {todo}; to be sure, {_again(taken)}")
    if isinstance(found, Unavailable | Invalid):
        return found
    return Unconfirmed(
        f"Redis has stored the submit, but cannot confirm other copies ({error}): {_again(taken)}"
    )


class FsyncSupport:
    """Checks, before jobs are stored, that the servers can confirm `fsync`; caches a yes for 10 s."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def check(self, bases: Iterable[str], waits: Waits) -> Plan[None]:
        """Raise NotDurable if `waits` needs `fsync` and a partition's server cannot confirm it."""
        for base in bases if APPENDFSYNC in waits else ():
            if time.monotonic() >= self._until.get(base, -math.inf):
                yield from _check_server(base)
                self._until[base] = time.monotonic() + REPORT_SECONDS

    def forget(self, base: str) -> None:
        """Drop the cached answer of this partition's server."""
        self._until.pop(base, None)


def _check_server(base: str) -> Plan[None]:
    try:
        old = not (yield server_info.has_command(base, "waitaof"))
    except (Forbidden, Unfit):  # not reported: the reply to WAITAOF decides
        old = False
    try:
        said: dict[str, str] = yield server_info.settings(base, "append[of]*")
    except Unfit as error:
        if "lacks a command" not in str(error):
            raise
        raise NotDurable(
            f"{NEEDS}appendfsync always, which this server cannot show without CONFIG GET: use durability none"
        ) from None
    lacks = [f"{name} {value}" for name, value in FSYNC_SETTINGS.items() if said.get(name) != value]
    todo = f"; run CONFIG SET {', CONFIG SET '.join(lacks)}" if lacks else ""
    if old:
        raise NotDurable(TOO_OLD + todo)
    if lacks:
        raise NotDurable(
            f"{NEEDS}{' and '.join(lacks)}: with other settings, WAITAOF may answer before the disk has the job, or not at all{todo}"
        )


def confirmed(call: Call[T], waits: Waits, job_ids: Sequence[str]) -> Call[T]:
    """Add the waits to the call of one script. Unless its answer is a refusal (text), it may raise
    Unconfirmed or NotDurable, about `job_ids`.
    """

    def read(replies: tuple[list[Any], list[Any]]) -> T:
        answer = call.read(replies[0][0])
        if not isinstance(answer, str):
            _check_all(waits, replies[1], [(job_id, job_id) for job_id in job_ids])
        return answer

    return Call(call.commands, read, call.text, waits)
