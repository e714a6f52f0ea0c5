"""What a submit waits for beyond Redis's own word, without I/O: that replicas have it, or its disk."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from sublet.connection.settings import Settings
from sublet.connection.transport import refused
from sublet.errors import Forbidden, Invalid, NotDurable, Unavailable, Unconfirmed, Unfit
from sublet.model import Submission, Submitted
from sublet.options import check_durability
from sublet.protocol import server_info, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call

Waits = tuple[tuple[Any, ...], ...]
"""The commands that wait: none, one, or both."""
Taken = Sequence[tuple[str, str]]
"""Jobs that were taken in: the id that was sent, and the id of the job that is there, another one where that has the key."""

NONE = {"none"}
SHARE = 0.75
"""Of the time that one call may take: how long the server may wait."""
LACKS = "durability fsync needs "
OLD = "durability fsync needs Redis 7.2 or Valkey (WAITAOF): here, have Redis write its file before it answers, and ask for none"
NEEDS = {"appendonly": "yes", "appendfsync": "always"}
"""What a server must be set to for `fsync`."""
HOW = ("CONFIG", "GET", "appendfsync")
"""With `everysec`, WAITAOF cannot be believed: from Redis 7.4 on, and in Valkey, it may count before the disk has it."""
BELIEVED = 10.0
"""Seconds for which a server is believed that has said that it can do `fsync`; each wait hears it again."""
ROUND = 32
"""Scripts that one wait is for, if a submit needs many: 6,400 jobs, 16 MiB."""


def waits(settings: Settings, jobs: Sequence[Submission]) -> Waits:
    """How the server is asked to wait for these: for all that any of them asks for."""
    asked = {job.durability or settings.durability for job in jobs}
    if asked == NONE or settings.door:  # a sandbox has neither replicas nor a disk
        return ()
    for word in asked:
        check_durability(word)
    if "replicated" in asked and settings.replicas < 1:  # nobody need have it then, and WAIT 0 says yes
        raise Invalid(f"replicas={settings.replicas}: durability replicated takes at least one")
    ms = max(1, round(SHARE * settings.timeout * 1000))  # 0 would have no end
    commands: dict[str, Waits] = {
        "replicated": (("WAIT", settings.replicas, ms),),
        "fsync": (HOW, ("WAITAOF", 1, 0, ms)),
    }
    return tuple(command for word, some in commands.items() if word in asked for command in some)


def submit(base: str, jobs: Sequence[Submission], waits: Waits) -> Call[list[Submitted | str]]:
    """Store jobs, up to ROUND scripts of them, and wait. The call's `read` raises Unconfirmed where it was in vain."""
    batches = [*verbs.batches(jobs, lambda job: len(job.payload))]
    calls = [verbs.submit(base, batch) for batch in batches]

    def read(replies: tuple[list[Any], list[Any]]) -> list[Submitted | str]:
        words = [word for i, reply in enumerate(replies[0]) for word in _words(calls[i], batches[i], reply)]
        taken = [
            (job.id, word.id) for job, word in zip(jobs, words, strict=True) if isinstance(word, Submitted)
        ]
        if taken:  # of what was all refused, nothing can be lost
            _check_all(waits, replies[1], taken)
        return words

    return Call(tuple(call.commands[0] for call in calls), read, calls[0].text, waits)


def doubt(error: Unavailable, jobs: Sequence[Submission]) -> Unavailable:
    """The same for who submitted these, some of whose ids were made for the call: under which they may be sent again."""
    if isinstance(error, Unconfirmed | Forbidden | Unfit):  # it says so, or nothing is stored
        return error
    words = str(error)
    again = _again([(job.id, job.id) for job in jobs])
    return type(error)(
        f"{words}{'' if words.endswith('?') else '.'} If in doubt whether Redis has it, {again}"
    )


def _words(
    call: Call[list[Submitted | str]], batch: Sequence[Submission], reply: Any
) -> list[Submitted | str]:
    """What became of one script's jobs. One that a full server refused is no trouble of the others'."""
    return [f"OOM {reply}"] * len(batch) if isinstance(reply, Exception) else call.read(reply)


def _check_all(waits: Waits, counts: Sequence[Any], taken: Taken) -> None:
    try:
        for wait, counted in zip(waits, counts, strict=True):
            _check(wait, counted, taken)
    except (Unconfirmed, NotDurable) as error:
        if len(taken) == 1:  # for who tells it on
            error.job_id = taken[0][1]
        raise


def _check(wait: tuple[Any, ...], counted: Any, taken: Taken) -> None:
    if isinstance(counted, Exception):
        raise _unable(wait, counted, taken)
    if wait is HOW:
        if "always" not in str(counted):
            raise _unfit(
                f"{LACKS}appendfsync always: with everysec, WAITAOF may say yes before the disk has it", taken
            )
        return
    got, seconds = counted if wait[0] == "WAIT" else counted[0], wait[-1] / 1000
    if got < wait[1]:
        without = (
            f"only {got} of {wait[1]} replicas have it" if wait[0] == "WAIT" else "its disk does not have it"
        )
        raise Unconfirmed(
            f"Redis has taken it in, but {without} after {seconds:g} s: it may still be lost; {_again(taken)}"
        )


def _again(taken: Taken) -> str:
    """How to send it again: whoever lets a new id be made makes another job. An id that is not there is not named."""
    there = [
        *dict.fromkeys([found for sent, found in taken if sent == found] + [found for _, found in taken])
    ]
    own = any(sent == there[0] for sent, _ in taken)
    ids = f"id {there[0]}" if len(there) == 1 else f"ids: {there[0]} and {len(there) - 1:,} more"
    whose = "the same" if own else "its key's"
    return f"send the same again, under {whose} {ids}"


def _unfit(words: str, taken: Taken) -> NotDurable:
    return NotDurable(f"{words}. Redis has taken it in all the same: once that is mended, {_again(taken)}")


def _unable(wait: tuple[Any, ...], error: Any, taken: Taken) -> Exception:
    """The error for a server that cannot wait. It was not known before: the jobs are there, as with durability none."""
    words = str(error).lower()
    if "unknown command" in words:
        return _unfit(OLD, taken)
    if "appendonly" in words:
        return _unfit(f"{LACKS}the append-only file: run CONFIG SET appendonly yes", taken)
    found = refused(error)
    if isinstance(found, Forbidden):  # of the wait: the script itself was let through
        mode, command = (
            ("replicated" if wait[0] == "WAIT" else "fsync"),
            " ".join(wait[:2]) if wait is HOW else wait[0],
        )
        lacks = f"but this user may not wait for who else has it (NOPERM: {command})"
        todo = f"give it the rights that `sublet acl` writes with SUBLET_DURABILITY={mode}, or ask for none"
        return Unconfirmed(f"Redis has taken it in, {lacks}: {todo}; to be sure of it, {_again(taken)}")
    if isinstance(found, Unavailable | Invalid):
        return found
    return Unconfirmed(f"Redis has taken it in, but cannot say who else has it ({error}): {_again(taken)}")


class Abilities:
    """Which servers have said that they can do what is waited for, by partition. They are asked before anything is stored."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def check(self, bases: Iterable[str], waits: Waits) -> Plan[None]:
        """Raise NotDurable for a server that cannot do `fsync`, in words that say all that it lacks; nothing is stored then."""
        for base in bases if HOW in waits else ():
            if time.monotonic() >= self._until.get(base, -math.inf):
                yield from _look(base)
                self._until[base] = time.monotonic() + BELIEVED

    def forget(self, base: str) -> None:
        """A server did not do what it could before: it is asked again."""
        self._until.pop(base, None)


def _look(base: str) -> Plan[None]:
    try:
        old = not (yield server_info.has_command(base, "waitaof"))
    except (Forbidden, Unfit):  # it need not say: WAITAOF itself will
        old = False
    try:
        said: dict[str, str] = yield server_info.settings(base, "append[of]*")
    except Unfit as error:
        if "lacks a command" not in str(error):
            raise
        raise NotDurable(
            f"{LACKS}appendfsync always, and this server has no CONFIG GET that says so: ask for none"
        ) from None
    lacks = [f"{name} {value}" for name, value in NEEDS.items() if said.get(name) != value]
    todo = f"; run CONFIG SET {', CONFIG SET '.join(lacks)}" if lacks else ""
    if old:
        raise NotDurable(OLD + todo)
    if lacks:
        raise NotDurable(
            f"{LACKS}{' and '.join(lacks)}: with less, WAITAOF may say yes before the disk has it{todo}"
        )
