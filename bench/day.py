"""A day of traffic at speed, on a server whose clock runs ahead: does its memory stay flat?

Starts its own Valkey under libfaketime (Debian's package `faketime`). Except with `--fresh`, the namespace
starts as if it had run for days, without the jobs.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

import redis

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Refused
from sublet.model import Card, Completion, Ending, Failure, Lease, Release, Submission
from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.protocol import keys, verbs
from sublet.schedules import firing
from sublet.store.store import Store
from tests.faults.chaos.clock import Offset

FIXED = ("mail", "images", "reports", "default")
NAMES, COUNTS, EVENTS = 10_000, 20_000, 10_000
"""Maximum number of queue names, fields of counts, and events that the scripts keep, about."""
POOL = Pool(name="fleet", queues=FIXED, invoker="none", max=5)
KINDS = ("job", "queue", "key", "claim", "wake", "worker", "schedule", "pool", "crew", "summons")
SEEN = (
    "completed",
    "dead",
    "cancelled",
    "scheduled",
    "running",
    "queues",
    "backlog",
    "counts",
    "events",
    "workers",
    "schedules",
)


@dataclass(frozen=True)
class Scale:
    """The amount of traffic of a simulated day."""

    rate: int = 1000
    kept: int = 100_000
    hours: int = 24
    step: int = 1
    tenants: int = 30
    seed: int = 1


@contextmanager
def ahead(folder: Path) -> Iterator[tuple[str, Offset]]:
    """Start a Valkey whose clock runs ahead by `Offset`. Yields its URL and the offset. Raises Missing."""
    offset = Offset(folder)
    with patch.dict("os.environ", offset.environment):
        server = EmbeddedServer.start(folder / "data", persistent=False)
    with server:
        yield server.url, offset


class Day:
    """A namespace on a server whose clock runs ahead, and the traffic of a day."""

    def __init__(self, url: str, offset: Offset, scale: Scale) -> None:
        self.scale, self.offset, self.dice = scale, offset, random.Random(scale.seed)
        self.store = Store(Settings(redis_url=url, namespace="day"))
        self.base = self.store.operations.bases[0]
        self.raw: Any = redis.Redis.from_url(url, decode_responses=True)
        self.told: Counter[str] = Counter()
        self.dead: list[str] = []

    async def begin(self, fresh: bool = False) -> None:
        """Create the namespace. Unless `fresh`, fill the structures that take days to fill."""
        await self.store.prepare()
        if self.scale.kept != Scale.kept:
            kept = dict.fromkeys(("completed", "dead", "cancelled"), self.scale.kept)
            await self.store.follow(self.store.operations.configure("*", **kept))
        await self.store.follow(pools.put(self.store.operations.bases, POOL))
        now = round(self.raw.time()[0] * 1000)
        for i in range(20):
            every = 60 * (1 + i % 5)
            plan = b'{"when":{"every":%d}}' % every
            await self.store.run(firing.schedule(
                self.base, f"every-{i}", 0, plan=plan, queue=FIXED[i % 4], task="t", rules="", overlap="allow", paused=False,
                occurrence=now + every * 1000, due=now + every * 1000, payload=b"{}",
            ))  # fmt: skip
        if fresh:
            return
        pipe = self.raw.pipeline(transaction=False)
        pipe.hset(keys.queues(self.base), mapping={f"ghosts-{i:012}": "" for i in range(NAMES)})
        pipe.hset(
            keys.counts(self.base),
            mapping={f"ghosts-{i // 2:012} wait {'ms' if i % 2 else 5}": 1 for i in range(COUNTS)},
        )
        for i in range(EVENTS):
            ids = " ".join(f"0-{i:023}-{n:02}" for n in range(3))
            pipe.xadd(keys.events(self.base), {"jobs": ids, "state": "completed", "code": "completed"})
        pipe.execute()

    def jobs(self) -> list[Submission]:
        dice, found = self.dice, []
        for i in range(self.scale.rate):
            queue = dice.choice(FIXED) if i >= self.scale.tenants else f"tenant-{uuid.uuid4().hex[:12]}"
            rules = dice.choice(("", "", "", "priority=5", "tries=1", "delay=90000", f"key=k{dice.randrange(5000)}",
                                 f"key=w{uuid.uuid4().hex[:9]} window=600000")) if i >= self.scale.tenants else ""  # fmt: skip
            payload = b"x" * dice.choice((10, 100, 200, 300, 1500))
            found.append(self.store.operations.submission("t", payload, queue, rules))
        return found

    async def minute(self, number: int) -> None:
        jobs = self.jobs()
        made = [one.id for one in await self.store.submit(jobs) if one.created]
        await asyncio.gather(*(self.cancel(job_id) for job_id in made if self.dice.random() < 0.29))
        self.told["fired"] += await self.store.follow(self.store.operations.fire("tick"))
        for job_id in self.dead[:5]:
            await self.order(self.store.operations.retry(job_id), "retried")
        self.dead.clear()
        names = [*FIXED, *(job.queue for job in jobs[: self.scale.tenants])]
        worker = f"w-{number // 30}-{number % 3}"
        await self.store.run(verbs.enlist(self.base, Card(worker, "1", "", b'{"queues":["mail"]}')))
        for i in range(0, len(names), 32):
            await self.work(worker, tuple(names[i : i + 32]))
        if number % 3:  # the others die; their registration is deleted after a day
            await self.store.run(verbs.reconcile(self.base, worker, "1", []))
        await self.store.run(pools.summon(self.base, POOL.name, summons=uuid.uuid4().hex, n=2))
        await self.tick()

    async def cancel(self, job_id: str) -> None:
        await self.order(self.store.operations.cancel(job_id), "cancelled")

    async def order(self, plan: Any, word: str) -> None:
        """Send an operator's command, and count `word` if it is accepted."""
        try:
            await self.store.follow(plan)
            self.told[word] += 1
        except Refused:
            self.told["too late"] += 1

    async def work(self, worker: str, queues: Sequence[str]) -> None:
        """Claim and settle jobs of these queues until they are empty."""
        for _ in range(10_000):
            claim_id = uuid.uuid4().hex
            claimed = await self.store.run(
                verbs.claim(self.base, claim_id=claim_id, worker=worker, lease=30, n=100, queues=queues)
            )
            if not claimed.leases:
                return
            endings = [ending for lease in claimed.leases if (ending := self.end(lease))]
            self.told["lost"] += len(claimed.leases) - len(endings)
            for word in await self.store.settle(endings):
                self.told[word.partition(" ")[0]] += 1
        raise AssertionError(f"queues {', '.join(queues[:3])} … are not empty after 10,000 claims")

    def end(self, lease: Lease) -> Ending | None:
        """Return a random outcome of an attempt; None if its worker dies."""
        chance = self.dice.random()
        if chance < 0.55 or not any(lease.queue == name for name in FIXED):
            return Completion(lease, b"r" * self.dice.choice((4, 50, 500)))
        if chance < 0.93:
            self.dead.append(lease.id)
            return Failure(lease, "Boom", "it did not work", "Traceback, line by line\n" * 10, again=False)
        if chance < 0.96:
            return Failure(lease, "Again", "not this time", "", again=True)
        return Release(lease, 5.0, "not now") if chance < 0.98 else None

    async def tick(self) -> None:
        await self.store.follow(self.store.operations.reap("tick"))
        for _ in range(100):
            if not (await self.store.follow(self.store.operations.prune()))[1]:
                return

    def look(self) -> dict[str, int]:
        """Return the number of entries of each structure, of keys of each kind, and the used bytes."""
        found = {"used": int(self.raw.info("memory")["used_memory"]), "keys": self.raw.dbsize()}
        sizes = {"hash": self.raw.hlen, "zset": self.raw.zcard, "stream": self.raw.xlen, "none": lambda _: 0}
        for name in SEEN:
            key = f"{self.base}:{name}"
            found[name] = sizes[self.raw.type(key)](key)
        found["queued"] = sum(self.raw.zcard(keys.queue(self.base, name)) for name in FIXED)
        kinds = Counter(key[len(self.base) + 1 :].partition(":")[0] for key in self.raw.scan_iter(count=5000))
        return found | {f"{kind}:*": kinds[kind] for kind in KINDS}

    async def play(self) -> list[dict[str, int]]:
        found = []
        for number in range(self.scale.hours * 60 // self.scale.step):
            passed = (number + 1) * self.scale.step
            self.offset.set(passed * 60)
            await self.minute(number)
            if passed % 60 == 0:
                found.append(self.look())
                print(
                    "  ".join(
                        [f"{passed // 60:>2} h", f"{found[-1]['used'] / 1e6:7.1f} MB", *_shown(found[-1])]
                    ),
                    flush=True,
                )
        return found

    async def aclose(self) -> None:
        await self.store.aclose()
        self.raw.close()


def _shown(seen: dict[str, int]) -> list[str]:
    return [f"{name} {seen[name]:,}" for name in seen if name != "used"]


def steady(hours: Sequence[dict[str, int]], since: int, more: float = 0.05) -> list[str]:
    """Return a line for each size that grew by over the share `more` from hour `since` to the end."""
    before, after = hours[since - 1], hours[-1]
    return [
        f"{name}: {before[name]:,} after {since} hours, {after[name]:,} in the end"
        for name in before
        if after[name] > before[name] * (1 + more) + (0 if name in ("used", "job:*") else 100)
    ]


async def main(words: Sequence[str] | None = None) -> int:
    """Run a day. Returns 1 if a size has grown since the sixth hour, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("rate", "kept", "hours", "step", "seed", "tenants"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Scale, name))
    parser.add_argument("--fresh", action="store_true")
    args = vars(parser.parse_args(words))
    fresh = args.pop("fresh")
    with tempfile.TemporaryDirectory() as folder, ahead(Path(folder)) as (url, offset):
        day, start = Day(url, offset, Scale(**args)), time.monotonic()
        await day.begin(fresh)
        grown = steady(await day.play(), max(1, args["hours"] // 4))
        print(
            f"{time.monotonic() - start:.0f} s;",
            ", ".join(f"{count:,} {word}" for word, count in day.told.most_common()),
        )
        await day.aclose()
    print("\n".join(grown) or "flat")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
