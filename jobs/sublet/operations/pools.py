"""Operations on pools. Pools are stored in partition 0."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sublet.errors import Changed, NotFound
from sublet.operations import groups, statistics
from sublet.operations.pool import Pool, check, pool_from, sum_from
from sublet.protocol import keys, reads
from sublet.protocol.keys import check_name, partition_of_queue
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, script

LOOKS = 5
MOST = 100
COUNTED = ("summoned", "arrived", "lost", "failed", "failed_at", "reason")


class Summoning(NamedTuple):
    """The reply of the script `summon`, with the pool's settings and target."""

    given: int
    """How many workers to invoke now; their summonses have the ids `<summons>.1`, `<summons>.2`, …."""
    word: str
    """`leave` or `stay`: whether the worker `leaver` may leave; empty if none was named."""
    settings: str
    target: str
    sum: Mapping[str, int]
    """The numbers of a `Sum`; `rate`, `run` and `need` in thousandths. Empty if the pool is gone."""


class Elsewhere(NamedTuple):
    """Numbers of a pool's queue in another partition: jobs `ready` and `running` now; since its first use, jobs
    `finished`, attempts `ended`, and the ms that these `took`.
    """

    queue: str
    ready: int
    running: int
    finished: int
    ended: int
    took: int


def pool(base: str, name: str, revision: int, settings: str, target: str, by: str = "") -> Call[str]:
    """Store a pool (`created` or `changed`) or, without settings, remove it (`removed`). Raises Changed if it
    has another revision.
    """
    return script("pool").call(
        base, bytes.decode, pool=name, revision=revision, settings=settings, target=target, by=by
    )


def summon(
    base: str, name: str, *, summons: str, n: int, leaver: str = "", elsewhere: Sequence[Elsewhere] = ()
) -> Call[Summoning]:
    """Record summonses for up to `n` (≤ 100) owed workers, which the caller invokes; let the worker `leaver`
    leave if the pool can spare it. With `n=0` and no `leaver`, only read. Raises NotFound for an
    unknown pool, unless there is a `leaver`.
    """

    def read(reply: list[Any]) -> Summoning:
        given, word, settings, target, *rest = reply
        numbers = {rest[i].decode(): int(rest[i + 1]) for i in range(0, len(rest), 2)}
        return Summoning(int(given), word.decode(), reads.shown(settings), reads.shown(target), numbers)

    rest = [field for queue in elsewhere for field in queue]
    return script("summon").call(base, read, rest, pool=name, summons=summons, n=n, leaver=leaver)


def complain(base: str, name: str, *, summons: str, n: int, reason: str) -> Call[str]:
    """Record that `n` summoned workers could not be invoked, and why; the reply is `noted`. Raises NotFound."""
    return script("complain").call(base, bytes.decode, pool=name, summons=summons, n=n, reason=reason)


def known(bases: Sequence[str]) -> Plan[list[Pool]]:
    """Return all pools with valid settings, sorted by name, without their `sum`."""
    stored: dict[str, str] = yield _stored(bases[0])
    counted: list[dict[str, str]] = (yield _counted(bases[0], list(stored))) if stored else []
    found = [
        _pool(name, text, numbers) for (name, text), numbers in zip(stored.items(), counted, strict=True)
    ]
    return sorted((pool for pool in found if pool), key=lambda pool: pool.name)


def names(bases: Sequence[str]) -> Plan[list[str]]:
    """Return the names of all pools, even of those with invalid settings."""
    stored: dict[str, str] = yield _stored(bases[0])
    return [*stored]


def get(bases: Sequence[str], name: str) -> Plan[Pool]:
    """Return one pool without its `sum`. Raises NotFound, also if its settings are invalid."""
    found = next((pool for pool in (yield from known(bases)) if pool.name == name), None)
    if found is None:
        raise NotFound(f"no pool {name[:130]}")
    return found


def put(bases: Sequence[str], wanted: Pool, revision: int | None = None) -> Plan[str]:
    """Store a pool; the result is `created`, `changed` or, without `revision`, `unchanged`. Raises Invalid;
    Changed if it has another revision than `revision`. The caller has checked the target.
    """
    check(wanted)
    for looks in range(1 if revision is not None else LOOKS, 0, -1):
        seen = revision
        if seen is None:
            there: dict[str, str] = yield _stored(bases[0])
            before = _pool(wanted.name, there.get(wanted.name, ""), {})
            if before and (before.settings, before.target) == (wanted.settings, wanted.target):
                return "unchanged"
            seen = _revision(there.get(wanted.name, ""))
        try:
            answer: str = yield pool(bases[0], wanted.name, seen, wanted.settings, wanted.target, person())
            return answer
        except Changed:
            if looks == 1:
                raise
    raise AssertionError("unreachable")


def remove(bases: Sequence[str], name: str, revision: int | None = None) -> Plan[str]:
    """Remove a pool; the result is `removed`, also if there is none. Raises Invalid; Changed if it has
    another revision.
    """
    check_name("pool", name)
    for looks in range(1 if revision is not None else LOOKS, 0, -1):
        there: dict[str, str] = yield _stored(bases[0])
        if name not in there:
            return "removed"
        try:
            answer: str = yield pool(
                bases[0], name, _revision(there[name]) if revision is None else revision, "", "", person()
            )
            return answer
        except Changed:
            if looks == 1:
                raise
    raise AssertionError("unreachable")


def look(bases: Sequence[str], pool: Pool) -> Plan[Pool]:
    """Return a pool with its present `sum`: how many workers it has and needs. Raises NotFound."""
    found = yield from ask(bases, pool.name, pool.queues, summons=new_summons(), n=0)
    return pool.model_copy(update={"sum": sum_from(found.sum)})


def look_at_all(bases: Sequence[str], name: str = "") -> Plan[list[Pool]]:
    """Return all pools, or only `name`; the first hundred by name with their `sum`. Raises NotFound for `name`."""
    found = [(yield from get(bases, name))] if name else (yield from known(bases))
    looked: list[Pool] = []
    for one in found:
        try:
            looked.append((yield from look(bases, one)) if len(looked) < MOST else one)
        except NotFound:  # removed meanwhile
            if name:
                raise
    return looked


def ask(
    bases: Sequence[str], name: str, queues: Sequence[str], *, summons: str, n: int, leaver: str = ""
) -> Plan[Summoning]:
    """Call `summon` with the numbers of those queues of the pool that are in other partitions; return its
    reply.
    """
    elsewhere: list[Elsewhere] = []
    for base in bases[1:]:
        own = [queue for queue in queues if bases[partition_of_queue(queue, len(bases))] == base]
        numbers: list[statistics.QueueNumbers] = (yield from statistics.queues(base, own)) if own else []
        elsewhere += [_elsewhere(each) for each in (yield from groups.with_held(base, numbers))]
    found: Summoning = yield summon(bases[0], name, summons=summons, n=n, leaver=leaver, elsewhere=elsewhere)
    return found


def sample(bases: Sequence[str], name: str, queues: Sequence[str]) -> Plan[None]:
    """Update the averages of a pool whose workers another system starts."""
    yield from ask(
        bases, name, queues, summons=new_summons(), n=0, leaver=new_summons()
    )  # a worker that does not exist


def may_leave(bases: Sequence[str], name: str, worker: str) -> Plan[bool]:
    """Return whether an idle worker may leave its pool; the pool then no longer counts the worker. True if the
    pool is unknown.
    """
    stored: dict[str, str] = yield _stored(bases[0])
    there = _pool(name, stored.get(name, ""), {})
    if there is None:
        return True
    found = yield from ask(bases, name, there.queues, summons=new_summons(), n=0, leaver=worker)
    return found.word != "stay"


def new_summons() -> str:
    """Make a random id for one call of `summon`."""
    return secrets.token_hex(12)


def _elsewhere(queue: statistics.QueueNumbers) -> Elsewhere:
    ended = queue.completed.count + queue.failed.count
    finished = queue.completed.count + queue.dead + queue.cancelled
    took = queue.completed.total_ms + queue.failed.total_ms
    return Elsewhere(queue.name, queue.ready, queue.running, finished, ended, took)


def _pool(name: str, stored: str, counted: Mapping[str, str]) -> Pool | None:
    try:
        return pool_from(name, stored, counted)
    except (*reads.MALFORMED, OSError):  # OSError: a time out of range
        return None


def _revision(stored: str) -> int:
    head = stored.partition(" ")[0]
    return int(head) if head.isascii() and head.isdigit() else 0


def _stored(base: str) -> Call[dict[str, str]]:

    def read(reply: Any) -> dict[str, str]:
        return {name: reads.shown(text) for name, text in reads.pairs(reply).items()} if reply else {}

    return Call((("HGETALL", keys.pools(base)),), read)


def _counted(base: str, names: Sequence[str]) -> Call[list[dict[str, str]]]:

    def read(reply: Sequence[Any]) -> list[dict[str, str]]:
        texts = [[reads.shown(value) if value else "" for value in values] for values in reply]
        return [dict(zip(COUNTED, values, strict=True)) for values in texts]

    return reads.together([("HMGET", keys.pool(base, name), *COUNTED) for name in names], read)
