"""A database with a standing load of jobs, and the measurement of additional work, for `growth.py`."""

import asyncio
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from sublet.connection.settings import Settings, connect_sync
from sublet.model import Claimed, Completion, Submission
from sublet.protocol import verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, script
from sublet.store.store import Store

T = TypeVar("T")

CHUNK, LOOPS, NAMED = 1000, 2, 32
"""Jobs submitted and drained at a time; claims in flight; most queues of a claim."""
CHUNK_BYTES = 8 * 1024 * 1024
KEPT = 10_000
"""Finished jobs that are kept if they are not measured."""
PATIENCE = 60.0
NOTED = 50
"""Threshold of the slow log in µs."""
DAY = 86_400_000


@dataclass(frozen=True)
class Load:
    """The measured work: jobs submitted and drained in chunks."""

    jobs: int
    size: int = 200
    rules: Callable[[], str] = str
    queues: int = 1
    mixed: bool = False
    """Whether a call submits to 200 of the queues and a claim names 32; else each chunk uses one random queue.
    """
    kept: int = KEPT
    """Finished jobs before the work, and during it unless there are some to `spare`: each completion deletes
    one.
    """
    spare: int = 0
    fresh: bool = False

    @property
    def chunk(self) -> int:
        return max(2, min(CHUNK, self.jobs, CHUNK_BYTES // self.size))


class Site:
    """A measured database of the server, with its standing load."""

    def __init__(self, url: str, number: int) -> None:
        settings = Settings(redis_url=f"{url}?db={number}", timeout=30)
        self.raw, self.store = connect_sync(settings), Store(settings)
        self.base = self.store.operations.bases[0]
        self.kept, self._revision = -1, 0
        self.bytes_per_job = 0.0
        """Bytes of memory per job of the standing load."""

    def new(self, size: int = 200, queue: str = "default", rules: str = "") -> Submission:
        """Return a submission whose payload is a JSON string of `size` bytes."""
        return self.store.operations.submission("noop", b'"' + b"x" * (size - 2) + b'"', queue, rules)

    async def limit(self, kept: int) -> None:
        if kept != self.kept:
            verb, settings = script("configure"), f"completed={kept}"
            await self.store.run(
                verb.call(
                    self.base, bytes.decode, queue="*", revision=self._revision, settings=settings, by=""
                )
            )
            self.kept, self._revision = kept, self._revision + 1

    async def keep(self, kept: int) -> None:
        """Set how many finished jobs are kept, and delete those above the limit."""
        await self.limit(kept)
        while (await self.store.run(verbs.prune(self.base, limit=verbs.BATCH)))[1]:
            pass

    async def fill(self, jobs: int, rules: Callable[[], str] = str, queues: int = 1) -> None:
        before = self._memory()
        for start in range(0, jobs, CHUNK):
            names = range(start, min(start + CHUNK, jobs))
            await self.store.submit([self.new(200, _queue(i % queues, queues), rules()) for i in names])
        self.bytes_per_job = (self._memory() - before) / jobs if jobs else 0.0

    async def open(self, queues: int) -> None:
        names = [_queue(i, queues) for i in range(queues)]
        await self.store.submit([self.new(queue=name) for name in names])
        await self.drain(queues, cycle([names[i : i + NAMED] for i in range(0, queues, NAMED)]))

    async def finish(self, jobs: int, rules: Callable[[], str] = str) -> None:
        before = self._memory()
        for start in range(0, jobs, CHUNK):
            await self.work(Load(min(CHUNK, jobs - start), rules=rules))
        self.bytes_per_job = (self._memory() - before) / jobs if jobs else 0.0

    def _memory(self) -> int:
        return int(self.raw.info("memory")["used_memory"]) - int(
            self.raw.memory_usage(f"{self.base}:events", samples=0) or 0
        )

    def bytes_of_jobs(self, jobs: int) -> float:
        ids = [
            *self.raw.zrange(f"{self.base}:scheduled", 0, jobs - 1),
            *self.raw.zrange(f"{self.base}:queue:default", 0, jobs - 1),
        ]
        return statistics.fmean(
            float(self.raw.memory_usage(f"{self.base}:job:{one.decode()}", samples=0) or 0) for one in ids
        )

    async def work(self, load: Load) -> tuple[float, float]:
        """Do the work. Return the seconds of its submits and of its drain."""
        submitting = draining = 0.0
        for _ in range(max(1, load.jobs // load.chunk)):
            names, windows = _names(load)
            jobs = [self.new(load.size, names[i % len(names)], load.rules()) for i in range(load.chunk)]
            if load.fresh:
                self.raw.delete(f"{self.base}:events")
            began = time.perf_counter()
            await self.store.submit(jobs)
            submitted = time.perf_counter()
            await self.drain(load.chunk, windows)
            submitting, draining = submitting + submitted - began, draining + time.perf_counter() - submitted
        return submitting, draining

    async def drain(self, jobs: int, windows: Iterator[list[str]]) -> None:
        """Claim and complete so many jobs: each completion in the round trip of the next claim."""
        left = [jobs]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(self._loop(left, windows) for _ in range(LOOPS)))

    async def _loop(self, left: list[int], windows: Iterator[list[str]]) -> None:
        done: list[Completion] = []
        while left[0] or done:
            n = min(verbs.CLAIM_MAX, left[0])
            left[0] -= n
            claiming = self.claim(n, next(windows)) if n else _nothing()
            completing = asyncio.gather(
                *(self.store.run(verbs.complete(self.base, some)) for some in _batches(done))
            )
            claimed, _ = await asyncio.gather(claiming, completing)
            left[0] += n - len(claimed.leases)
            done = [Completion(lease, b'"a result"') for lease in claimed.leases]

    async def claim(self, n: int, queues: list[str], lease: float = 60) -> Claimed:
        return await self.store.run(self._claiming(n, queues, lease))

    def _claiming(self, n: int, queues: list[str], lease: float = 60) -> Call[Claimed]:
        claim_id = secrets.token_urlsafe(16)
        return verbs.claim(self.base, claim_id=claim_id, worker="bench", lease=lease, n=n, queues=queues)

    async def measure(self, load: Load) -> dict[str, float]:
        """Do the work. Return µs per job: by script, in total, by the caller's clock; and the longest holds, ms."""
        await self.keep(load.kept)
        if load.spare:
            await self.limit(load.kept + load.spare)
        jobs = max(1, load.jobs // load.chunk) * load.chunk
        with Watch(self) as watch:
            submitting, draining = await self.work(load)
        found = {
            f"{name}_us": sum(watch.calls.get(name, ())) / jobs for name in ("submit", "claim", "complete")
        }
        found |= {
            f"{name}_hold_ms": max(watch.calls.get(name, [0])) / 1000
            for name in ("submit", "claim", "complete")
        }
        return found | {
            "scripts_us": watch.scripts / jobs,
            "redis_us": watch.cpu * 1e6 / jobs,
            "hold_ms": max(found[f"{name}_hold_ms"] for name in ("submit", "claim", "complete")),
            "wall_submit_us": submitting * 1e6 / jobs,
            "wall_drain_us": draining * 1e6 / jobs,
        }

    async def hold(self, rounds: int, pid: int) -> dict[str, list[float]]:
        """Return the ms of Redis's CPU per call of each script with full batches, without other load."""
        held: dict[str, list[float]] = {}

        async def timed(name: str, call: Call[T]) -> T:
            began = _on_cpu(pid)
            answer = await self.store.run(call)
            held.setdefault(name, []).append((_on_cpu(pid) - began) / 1e6)
            return answer

        for _ in range(rounds):
            await timed("submit", verbs.submit(self.base, [self.new() for _ in range(verbs.BATCH)]))
            done: list[Completion] = []
            while len(done) < verbs.COMPLETE_MAX:
                claimed = await timed("claim", self._claiming(verbs.CLAIM_MAX, ["default"]))
                done += [Completion(lease, b'"a result"') for lease in claimed.leases]
            await timed("complete", verbs.complete(self.base, done[: verbs.COMPLETE_MAX]))
            await self.store.settle(done[verbs.COMPLETE_MAX :])
        return held

    async def read(self, rounds: int) -> dict[str, float]:
        """Return the times of an operator's reads: ms on Redis, and ms until the answer arrives."""
        found: dict[str, list[float]] = {}
        plans: dict[str, Callable[[], Plan[Any]]] = {
            "stats": self.store.operations.stats,
            "queues": self.store.operations.queues,
        }
        for _ in range(rounds):
            for name, plan in plans.items():
                with Watch(self) as watch:
                    began = time.perf_counter()
                    await self.store.follow(plan())
                    wall = time.perf_counter() - began
                found.setdefault(f"{name}_redis_ms", []).append(watch.cpu * 1000)
                found.setdefault(f"{name}_wall_ms", []).append(wall * 1000)
                found.setdefault(f"{name}_hold_ms", []).append(watch.longest / 1000)
        return {name: statistics.median(times) for name, times in found.items()}

    async def aclose(self) -> None:
        await self.store.aclose()
        self.raw.close()


class Watch:
    """Measures, in its block, the server's CPU time, and the µs of each script call."""

    def __init__(self, site: Site) -> None:
        self.raw = site.raw
        self.cpu, self.scripts = 0.0, 0
        self.calls: dict[str, list[int]] = {}
        self.longest = 0

    def __enter__(self) -> "Watch":
        self.raw.config_set("slowlog-log-slower-than", NOTED)
        self.raw.config_set("slowlog-max-len", 100_000)
        self.raw.slowlog_reset()
        self.raw.config_resetstat()
        self.cpu = -self._seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu += self._seconds()
        stats: dict[str, Any] = self.raw.info("commandstats")
        self.scripts = sum(
            int(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"]) for name in ("eval", "evalsha")
        )
        self.raw.config_set("slowlog-log-slower-than", -1)
        names = {script(name).sha: name for name in ("submit", "claim", "complete", "fail", "reap", "prune")}
        for entry in self.raw.slowlog_get(100_000):
            words = entry["command"].split(b" ", 2)
            if words[0] not in (b"CONFIG", b"SLOWLOG", b"INFO"):
                self.longest = max(self.longest, entry["duration"])
            if words[0] == b"EVALSHA":
                self.calls.setdefault(names.get(words[1].decode(), "other"), []).append(entry["duration"])

    def _seconds(self) -> float:
        cpu: dict[str, Any] = self.raw.info("cpu")
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def _on_cpu(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except OSError:
        return time.perf_counter_ns()


def _queue(number: int, queues: int) -> str:
    return "default" if queues == 1 else f"queue-{number}"


def _names(load: Load) -> tuple[list[str], Iterator[list[str]]]:
    names = [
        _queue(i, load.queues)
        for i in random.sample(range(load.queues), min(load.queues, 200 if load.mixed else 1))
    ]

    def windows() -> Iterator[list[str]]:
        while True:
            yield random.sample(names, min(len(names), NAMED))

    return names, windows()


def _batches(done: list[Completion]) -> Iterator[list[Completion]]:
    return verbs.batches(done, verbs.weight, verbs.COMPLETE_MAX)


async def _nothing() -> Claimed:
    return Claimed([], 0)
