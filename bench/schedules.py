"""Measure schedules: how late their jobs are, the cost of a tick with nothing due, and of many ticks at once.

- late_idle, late_busy, late_full, late_ticks: ms from each occurrence until its job is queued (`fired`) and claimed
  (`started`): with an idle worker; one that is half busy; one with all slots taken; `sublet tick` alone.
- late_new: schedules put within a second of their first occurrence, while a worker waits.
- tick: one with 10,000 schedules of which none is due (ms). all_due: all are due, and fired by one tick.
- ticks: a hundred ticks at once on 5,000 expired leases: each must be reaped once.

`longest` is the longest call in Redis's slow log.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from lateness import PATIENCE, Site, lateness, lateness_of_the_new

from sublet.devtools.embedded_server import EmbeddedServer
from sublet.model import Beat
from sublet.protocol import keys, reads, verbs
from sublet.protocol.scripts import Call
from sublet.schedules.recurrence import Recurrence
from sublet.store.store import Store
from sublet_functions.tick import TickSummary, one_round

MANY, ENDED, TICKS, ROUNDS = 10_000, 5000, 100, 5

TARGETS = {
    "late_idle_fired_ms_p99": 300.0,
    "late_idle_started_ms_p99": 300.0,
    "late_busy_fired_ms_p99": 300.0,
    "late_full_fired_ms_p99": 300.0,
    "late_new_fired_ms_p99": 300.0,
    "late_ticks_fired_ms_p99": 1200.0,
    "tick_redis_ms": 2.0,
    "ticks_longest_ms": 5.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--seconds",
        type=int,
        default=30,
        help="how long each kind of lateness is watched (30); 0 leaves them out",
    )
    parser.add_argument("--server", choices=("redis", "valkey"), help="one of them alone (both)")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for name, binary in (("redis", "redis-server"), ("valkey", None)):
        if asked.server in (None, name) and (binary is None or shutil.which(binary)):
            with (
                tempfile.TemporaryDirectory() as folder,
                EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
            ):
                found[server.version or name] = asyncio.run(_all(server.url, asked.seconds))
    print(json.dumps(found, indent=2) if asked.json else _table(found))


async def _all(url: str, seconds: int) -> dict[str, float]:
    row: dict[str, float] = {}
    for kind in ("idle", "busy", "full", "ticks") if seconds else ():
        async with Site(url, kind) as site:
            print(f"{kind}: {seconds} s …", file=sys.stderr)
            row |= await lateness(site, kind, seconds)
    if seconds:
        async with Site(url, "new") as site:
            row |= await lateness_of_the_new(site)
    for name, measured in (("tick", _none_due), ("all_due", _all_due), ("ticks", _many_ticks)):
        rounds = []
        for _ in range(ROUNDS):
            async with Site(url, "many") as site:
                rounds.append(await measured(site))
        row |= min(rounds, key=lambda one: one[f"{name}_longest_ms"])
    return row | {"load": os.getloadavg()[0]}


async def _none_due(site: Site) -> dict[str, float]:
    await site.put([f"many-{i}" for i in range(MANY)], Recurrence(cron="0 0 1 1 *"), None)
    site.measure()
    done, rounds = TickSummary(), 50
    for _ in range(rounds):
        await site.store.follow(one_round(site.store.operations, "bench", done))
    assert done.fired == 0
    return {"tick_redis_ms": site.spent() / rounds, **site.longest("tick")}


async def _all_due(site: Site) -> dict[str, float]:
    await site.put([f"many-{i}" for i in range(MANY)], Recurrence(every=3600), site.now() - 1000)
    site.measure()
    done, began = TickSummary(), time.perf_counter()
    for _ in range(10):  # a round fires due schedules up to a limit
        await site.store.follow(one_round(site.store.operations, "bench", done))
    seconds = time.perf_counter() - began
    assert done.fired == MANY, done
    return {
        "all_due_s": seconds,
        "all_due_redis_us_per_job": site.spent() * 1000 / MANY,
        **site.longest("all_due"),
    }


async def _many_ticks(site: Site) -> dict[str, float]:
    await site.store.submit(
        [site.store.operations.submission("noop", b"{}", "slots", "") for _ in range(ENDED)]
    )
    claim: dict[str, Any] = dict(worker="gone", lease=PATIENCE, n=verbs.CLAIM_MAX, queues=["slots"])
    claims = [
        verbs.claim(site.base, claim_id=secrets.token_urlsafe(16), **claim)
        for _ in range(ENDED // verbs.CLAIM_MAX)
    ]
    leases = [lease for claimed in await site.run_all(claims) for lease in claimed.leases]
    batches = [leases[i : i + verbs.BATCH] for i in range(0, len(leases), verbs.BATCH)]
    await site.run_all(
        [verbs.heartbeat(site.base, [Beat(lease) for lease in batch], lease=0) for batch in batches]
    )
    stores = [Store(site.settings) for _ in range(TICKS)]
    await asyncio.gather(*(store.prepare() for store in stores))
    site.measure()
    began, done = time.perf_counter(), [TickSummary() for _ in stores]
    rounds = (
        store.follow(one_round(store.operations, "bench", one))
        for store, one in zip(stores, done, strict=True)
    )
    await asyncio.gather(*rounds)
    seconds = time.perf_counter() - began
    longest, spent = site.longest("ticks"), site.spent()
    jobs = await site.run_all([reads.get(site.base, name) for name in await site.store.run(_ids(site.base))])
    assert sum(one.reaped for one in done) == len(jobs) == ENDED
    assert all(len(job.attempts) == 1 for job in jobs), "one was reaped twice"
    await asyncio.gather(*(store.aclose() for store in stores))
    return {"ticks_s": seconds, "ticks_redis_us_per_lease": spent * 1000 / ENDED, **longest}


def _ids(base: str) -> Call[list[str]]:
    return Call(
        (("ZRANGE", keys.queue(base, "slots"), 0, -1),), lambda reply: [one.decode() for one in reply]
    )


def _table(found: dict[str, dict[str, float]]) -> str:
    lines = ["".ljust(34) + "".join(version.rjust(20) for version in found)]
    for name in dict.fromkeys(name for row in found.values() for name in row):
        missed = any(row[name] > TARGETS.get(name, float("inf")) for row in found.values())
        lines.append(
            name.ljust(34)
            + "".join(f"{row[name]:,.2f}".rjust(20) for row in found.values())
            + "   missed" * missed
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
