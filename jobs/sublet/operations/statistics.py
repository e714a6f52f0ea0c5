"""Read statistics of queues, which the scripts count."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import TOTALS, number, pairs, shown, together
from sublet.protocol.scripts import Call

BOUNDS = (5, 20, 100, 500, 1000, 2000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000)
"""Upper limits in ms of the classes in which durations are counted. A further class has longer ones."""
MOST = 1000
SEEN = 60_000
"""A worker counts if its last heartbeat is at most so many ms old."""
OTHERS = "*"
"""The name under which all further queues are counted, if there are very many."""

_FINISHED = ("completed", "dead", "cancelled")
_CLASSES = (*map(str, BOUNDS), "inf")
_TIMED = ("wait", "completed", "failed")
_FIELDS = (
    *(f"{what} {last}" for what in _TIMED for last in (*_CLASSES, "ms")),
    "dead jobs",
    "cancelled jobs",
)


@dataclass(frozen=True, slots=True)
class Times:
    """How many durations are in each class of `BOUNDS`, and their sum in ms."""

    classes: tuple[int, ...] = (0,) * len(_CLASSES)
    total_ms: int = 0

    def __add__(self, other: "Times") -> "Times":
        return Times(
            tuple(map(sum, zip(self.classes, other.classes, strict=True))), self.total_ms + other.total_ms
        )

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.classes)


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """The numbers of one queue: its jobs now; `wait` to `cancelled` since its first use."""

    name: str
    scheduled: int
    queued: int
    running: int
    paused: bool
    head: str | None
    """Id of the first queued job, those without a group being first; None: none is queued."""
    wait: Times
    """How long jobs waited from when they were due to their first claim."""
    completed: Times
    """How long attempts ran that had a result."""
    failed: Times
    """How long attempts ran that failed."""
    dead: int
    cancelled: int
    by_turns: bool = False
    """Whether the queue has groups, or limits of running jobs."""
    held: int = 0
    """About how many queued jobs a limit holds back; 0 unless `groups.with_held` made this."""

    @property
    def ready(self) -> int:
        """Queued jobs that may start now; 0 in a paused queue."""
        return 0 if self.paused else self.queued - self.held


@dataclass(frozen=True, slots=True)
class Survey:
    """The numbers of one partition at `now` (ms; `known`: how many queues), and the names of its queues."""

    now: int
    sizes: dict[str, int]
    totals: dict[str, int]
    maintenance_at: int | None
    maintenance_by: str
    """The worker or tick that did maintenance last; empty: none yet."""
    known: int
    busy: dict[str, int]
    """Number of unfinished jobs by queue; if there are very many queues, of some."""
    others: frozenset[str]
    """Names of the known queues; if there are very many, of some."""


def survey(base: str) -> Call[Survey]:
    """Read the numbers of a partition, and the names of about a thousand of its queues."""

    def read(reply: Sequence[Any]) -> Survey:
        time, fields, lines, known, backlog, queues, *sizes = reply
        totals, (_, scanned), (_, names) = pairs(fields) if fields else {}, backlog, queues
        jobs = {name[:-5]: _whole(value) for name, value in pairs(scanned).items() if name.endswith(" jobs")}
        maintenance, _, by = totals.get("maintenance", b"").partition(b" ")
        return Survey(
            now=int(time[0]) * 1000 + int(time[1]) // 1000,
            sizes=keys.sizes(sizes),
            totals={name: _whole(totals.get(name)) for name in TOTALS},
            maintenance_at=max(0, number(maintenance)) or None,
            maintenance_by=shown(by),
            known=int(lines) - int(known),
            busy={name: count for name, count in jobs.items() if count > 0},
            others=frozenset(pairs(names)) - {OTHERS},
        )

    queues, backlog = keys.queues(base), keys.backlog(base)
    commands: list[tuple[Any, ...]] = [
        ("TIME",),
        ("HGETALL", base),
        ("HLEN", queues),
        ("HEXISTS", queues, "*"),
    ]
    commands += [("HSCAN", backlog, 0, "COUNT", 3 * MOST), ("HSCAN", queues, 0, "COUNT", MOST)]
    return together([*commands, *keys.size_commands(base)], read)


def busiest(found: Mapping[str, Survey]) -> dict[str, list[str]]:
    """Return the names of the 1,000 queues with the most unfinished jobs, by partition (key prefix)."""
    places = [
        (-survey.busy.get(name, 0), name, base)
        for base, survey in found.items()
        for name in survey.others | set(survey.busy)
    ]
    chosen: dict[str, list[str]] = {base: [] for base in found}
    for _, name, base in sorted(places)[:MOST]:
        chosen[base].append(name)
    return chosen


def queues(base: str, names: Sequence[str]) -> Plan[list[QueueNumbers]]:
    """Return the numbers of these queues, known or not, without `held`. `*`: durations, dead and cancelled jobs of
    all queues that are not counted one by one.
    """
    settings = yield Call((("HMGET", keys.queues(base), *names),), list)
    sets = [keys.queued_by(base, name, text) for name, text in zip(names, settings, strict=True)]

    def read(reply: Sequence[Any]) -> list[QueueNumbers]:
        backlog, counted, *rest = reply
        sizes, heads = iter(rest[::2]), iter(rest[1::2])
        return [
            _queue(
                name,
                settings[i],
                backlog[2 * i : 2 * i + 2],
                counted[i * len(_FIELDS) : (i + 1) * len(_FIELDS)],
                sum(int(next(sizes)) for _ in sets[i]),
                next(filter(None, [next(heads) for _ in sets[i]]), None),
            )
            for i, name in enumerate(names)
        ]

    commands: list[tuple[Any, ...]] = [
        ("HMGET", keys.backlog(base), *(f"{name} {what}" for name in names for what in ("jobs", "running"))),
        ("HMGET", keys.counts(base), *(f"{name} {field}" for name in names for field in _FIELDS)),
    ]
    for key in (key for own in sets for key in own):
        commands += [("ZCARD", key), ("ZRANGE", key, 0, 0)]
    found: list[QueueNumbers] = yield together(commands, read)
    return found


def _queue(
    name: str, settings: bytes | None, backlog: Sequence[Any], counted: Sequence[Any], queued: Any, head: Any
) -> QueueNumbers:
    # The reads are not atomic
    jobs, running = max(0, _whole(backlog[0])), max(0, _whole(backlog[1]))
    numbers = dict(zip(_FIELDS, map(_whole, counted), strict=True))
    wait, completed, failed = _times(numbers)
    return QueueNumbers(
        name=name,
        scheduled=max(0, jobs - int(queued) - running),
        queued=int(queued),
        running=running,
        paused=name != OTHERS and b" paused=" in (settings or b""),
        head=shown(head[0]) if head else None,
        wait=wait,
        completed=completed,
        failed=failed,
        dead=numbers["dead jobs"],
        cancelled=numbers["cancelled jobs"],
        by_turns=b" flow=1" in (settings or b""),
    )


def _times(numbers: Mapping[str, int]) -> Iterator[Times]:
    for what in _TIMED:
        yield Times(tuple(numbers[f"{what} {last}"] for last in _CLASSES), numbers[f"{what} ms"])


def _whole(value: bytes | None) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0


def due(base: str, job_ids: Sequence[str]) -> Call[list[int | None]]:
    """Read since when (ms since 1970) each job has been due; None for a missing or malformed one."""

    def read(reply: Sequence[Any]) -> list[int | None]:
        return [
            _due(spec, ended or b"", ready_at or b"") if spec else None for spec, ended, ready_at in reply
        ]

    fields = ("spec", "ended", "ready_at")
    return together([("HMGET", keys.job(base, job_id), *fields) for job_id in job_ids], read)


def _due(spec: bytes, ended: bytes, ready_at: bytes) -> int | None:
    again = ready_at or ended.partition(b" scheduled ")[2]
    if again.isdigit():
        return int(again)
    words = shown(spec.partition(b"\n")[0]).split(" ")
    if len(words) < 3 or not words[2].isdigit():
        return None
    rules = dict(word.partition("=")[::2] for word in words[3:])
    at, delay, submitted_at = rules.get("at", ""), rules.get("delay", ""), int(words[2])
    return max(
        submitted_at, int(at) if at.isdigit() else submitted_at + (int(delay) if delay.isdigit() else 0)
    )


def here(base: str, now: int) -> Call[int]:
    """Count the workers with a heartbeat in the minute before `now` (ms since 1970)."""
    return Call((("ZCOUNT", keys.workers(base), now - SEEN, "+inf"),), int)
