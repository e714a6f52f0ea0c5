"""List and drain workers; end leases of those that are gone."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sublet.errors import NotFound
from sublet.model import WorkerInfo
from sublet.protocol import keys, verbs
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.reads import DIGITS, LAST, json_of, number, pairs, shown, together
from sublet.protocol.scripts import Call

MOST = 1000
ALL = 100_000
SHOWN = 100
PAGE = 500
YEAR = 31_622_400


def workers(bases: Sequence[str], *, jobs: bool = True) -> Plan[list[WorkerInfo]]:
    """Return up to 1,000 registered workers, the one with the latest heartbeat first; with `jobs`, also their
    leases.
    """
    seen = yield _seen(bases[0])
    found: list[WorkerInfo] = (yield _cards(bases[0], seen)) if seen else []
    return (yield from with_leases(bases, found)) if jobs and found else found


def with_leases(bases: Sequence[str], found: Sequence[WorkerInfo]) -> Plan[list[WorkerInfo]]:
    """Return these workers with `leases` (their number), and `jobs`: ids of at most 100."""
    held = yield from _held(bases, {worker.name for worker in found})
    return [
        worker.model_copy(
            update={
                "leases": len(held.get(worker.name, ())),
                "jobs": tuple(id for _, id, _ in held.get(worker.name, ())[:SHOWN]),
            }
        )
        for worker in found
    ]


def everyone(bases: Sequence[str]) -> Plan[list[WorkerInfo]]:
    """Return all registered workers (about 100,000 at most) without leases, the latest heartbeat first."""
    cursor, first = yield _scan(bases[0], 0)
    seen = dict(first)
    while cursor and len(seen) < ALL:
        cursor, found = yield _scan(bases[0], cursor)
        seen.update(found)
    named, workers = list(seen.items()), list[WorkerInfo]()
    for i in range(0, len(named), MOST):
        workers += yield _cards(bases[0], named[i : i + MOST])
    return sorted(workers, key=lambda worker: (worker.seen_at, worker.name), reverse=True)


def drain(bases: Sequence[str], name: str) -> Plan[str]:
    """Ask a worker to drain; the result is `drain`. Raises Invalid, NotFound, Changed."""
    found = yield from worker(bases, name)
    answer: str = yield verbs.drain(bases[0], name, found.life, person())
    return answer


def worker(bases: Sequence[str], name: str) -> Plan[WorkerInfo]:
    """Return a registered worker; its leases are not read, and `seen_at` is now. Raises Invalid, NotFound."""
    keys.check_name("worker", name)
    found: list[WorkerInfo] = yield _cards(bases[0], [(name, datetime.now(UTC))])
    if not found:
        raise NotFound(f"no worker {name}; sublet workers lists them")
    return found[0]


def reconcile(bases: Sequence[str], gone: Mapping[str, str]) -> Plan[int]:
    """End the leases of workers (name → life) that are certainly gone, and delete their registrations. Workers
    without a registration of this life are skipped. Returns how many leases ended.
    """
    if not gone:
        return 0
    ended, now = 0, datetime.now(UTC)
    # A worker registers before it claims: leases read first are of a registered life
    held = yield from _held(bases, set(gone))
    there: list[WorkerInfo] = yield _cards(bases[0], [(name, now) for name in gone])
    same = (worker for worker in there if gone[worker.name] == worker.life)
    for name, life, has_id in ((worker.name, worker.life, bool(worker.worker_id)) for worker in same):
        for base in bases:
            own = [(job_id, attempt) for of, job_id, attempt in held.get(name, ()) if of == base]
            if has_id and not own and base != bases[0]:  # this life may claim no more
                yield verbs.reconcile(base, name, life, [])
            for i in range(0, len(own), verbs.SETTLE_MAX):
                answers = yield verbs.reconcile(base, name, life, own[i : i + verbs.SETTLE_MAX])
                ended += sum(answer not in ("LEASE_LOST", "NOT_FOUND") for answer in answers)
        yield verbs.reconcile(bases[0], name, life, [])
    return ended


def _held(bases: Sequence[str], names: set[str]) -> Plan[dict[str, list[tuple[str, str, int]]]]:
    held: dict[str, list[tuple[str, str, int]]] = {}
    for base in bases:
        cursor, more = 0, True
        while more:
            cursor, ids = yield _running(base, cursor)
            for job_id, worker, attempt in (yield _holders(base, ids)) if ids else ():
                if worker in names:
                    held.setdefault(worker, []).append((base, job_id, attempt))
            more = cursor != 0
    return held


def _seen(base: str) -> Call[list[tuple[str, datetime]]]:

    return Call(
        (("ZRANGE", keys.workers(base), LAST, 0, "BYSCORE", "REV", "LIMIT", 0, MOST, "WITHSCORES"),), _times
    )


def _scan(base: str, cursor: int) -> Call[tuple[int, list[tuple[str, datetime]]]]:
    return Call(
        (("ZSCAN", keys.workers(base), cursor, "COUNT", MOST),),
        lambda reply: (int(reply[0]), _times(reply[1])),
    )


def _times(reply: Sequence[Any]) -> list[tuple[str, datetime]]:
    flat = (
        [part for pair in reply for part in pair] if reply and isinstance(reply[0], list | tuple) else reply
    )
    named = zip(map(shown, flat[::2]), map(float, flat[1::2]), strict=True)
    return [
        (name, datetime.fromtimestamp(at / 1000, UTC))
        for name, at in named
        if keys.is_name(name) and 0 <= at <= LAST
    ]


def _cards(base: str, seen: Sequence[tuple[str, datetime]]) -> Call[list[WorkerInfo]]:

    def read(reply: Sequence[Any]) -> list[WorkerInfo]:
        found = zip(seen, (pairs(fields) if fields else {} for fields in reply), strict=True)
        return [_worker(name, at, fields) for (name, at), fields in found if _is_whole(fields)]

    return together([("HGETALL", keys.worker(base, name)) for name, _ in seen], read)


def _is_whole(fields: dict[str, bytes]) -> bool:
    since = fields.get("enlisted_at", b"")
    return fields.get("life", b"").isascii() and "life" in fields and since.isdigit() and len(since) <= DIGITS


def _worker(name: str, seen_at: datetime, fields: dict[str, bytes]) -> WorkerInfo:
    about = json_of(fields.get("about"))
    about = about if isinstance(about, dict) else {}
    return WorkerInfo(
        name=name,
        life=fields["life"].decode(),
        worker_id=fields.get("worker_id", b"").decode(errors="replace"),
        enlisted_at=datetime.fromtimestamp(int(fields["enlisted_at"]) / 1000, UTC),
        seen_at=seen_at,
        draining="drain" in fields,
        about=about,
        last_job_at=_last_job_at(seen_at, about.get("last_job")),
    )


def _last_job_at(seen_at: datetime, idle: Any) -> datetime | None:
    is_number = isinstance(idle, int | float) and not isinstance(idle, bool)
    return seen_at - timedelta(seconds=idle) if is_number and 0 <= idle < YEAR else None


def _running(base: str, cursor: int) -> Call[tuple[int, list[str]]]:

    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        ids = reply[1][::2] if reply[1] and isinstance(reply[1][0], bytes) else [pair[0] for pair in reply[1]]
        return int(reply[0]), [shown(job_id) for job_id in ids]

    return Call((("ZSCAN", keys.structure(base, "running"), cursor, "COUNT", PAGE),), read)


def _holders(base: str, job_ids: Sequence[str]) -> Call[list[tuple[str, str, int]]]:

    def read(reply: Sequence[Any]) -> list[tuple[str, str, int]]:
        found = (
            (job_id, worker, number(attempt))
            for job_id, (worker, attempt) in zip(job_ids, reply, strict=True)
        )
        return [(job_id, shown(worker), attempt) for job_id, worker, attempt in found if worker and attempt]

    return together([("HMGET", keys.job(base, job_id), "worker", "attempt") for job_id in job_ids], read)
