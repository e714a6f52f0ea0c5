"""Measure the cost of durability: a submit that waits for Redis alone, for a replica, for the disk.

- one: a submit at a time, its p50 and p99 in ms;
- hundred: a hundred callers: jobs a second, p50 in ms, and jobs that shared a wait;
- bulk: 20,000 jobs in one call: jobs a second.

`always`: the primary has `appendfsync always`; otherwise `everysec`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Last, so that PYTHONPATH may name another checkout.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

import redis

from sublet import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.model import Submission
from sublet.store.store import Store

CALLERS = 100
BULK = 20_000
PATIENCE = 20.0
MODES = {"redis": ["none", "replicated"], "valkey": ["none", "replicated", "none always", "fsync always"]}


@contextlib.contextmanager
def pair(binary: str | None) -> Iterator[tuple[EmbeddedServer, Any]]:
    """Start a primary and its replica. Yields the primary, and a client of it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        primary, replica = (
            ends.enter_context(EmbeddedServer.start(Path(folder) / name, binary=binary))
            for name in ("primary", "replica")
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        client, other = (
            ends.enter_context(redis.Redis.from_url(one.url, protocol=2)) for one in (primary, replica)
        )
        client.config_set("repl-diskless-sync-delay", "0")
        client.config_set("port", port)
        other.execute_command("REPLICAOF", "127.0.0.1", port)
        until = time.monotonic() + PATIENCE
        while other.info("replication")["master_link_status"] != "up":
            if time.monotonic() > until:
                sys.exit(
                    f"the replica did not connect to its primary within {PATIENCE:g} s: look at the servers' logs"
                )
            time.sleep(0.02)
        yield primary, client


def waits(client: Any) -> int:
    """Return how many WAIT and WAITAOF commands the server has executed."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("wait", "waitaof"))


async def one(store: Store, seconds: float, took: list[float]) -> None:
    """Submit one job after another for `seconds`; append to `took` the ms of each."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begin = time.monotonic()
        await store.submit([store.operations.submission("t", b'{"a": 1}', "q", "")])
        took.append(1000 * (time.monotonic() - begin))


async def measure(settings: Settings, client: Any, seconds: float) -> dict[str, float]:
    """Measure one mode, that of the settings and the server. Return figures by name."""
    store, alone, crowd = Store(settings), list[float](), list[float]()
    await one(store, 0.2, [])
    await one(store, seconds, alone)
    before, begin = waits(client), time.monotonic()
    await asyncio.gather(*(one(store, seconds, crowd) for _ in range(CALLERS)))
    lasted, asked = time.monotonic() - begin, waits(client) - before
    jobs = [Submission(f"0-bulk{number}", "q", "t", "", b'{"a": 1}') for number in range(BULK)]
    begin = time.monotonic()
    await store.submit(jobs)
    bulk = BULK / (time.monotonic() - begin)
    await store.aclose()
    return {
        "one_ms_p50": statistics.median(alone),
        "one_ms_p99": statistics.quantiles(alone, n=100)[98] if len(alone) > 1 else alone[0],
        "hundred_per_s": len(crowd) / lasted,
        "hundred_ms_p50": statistics.median(crowd),
        "jobs_a_wait": len(crowd) / asked if asked else 0.0,
        "bulk_per_s": bulk,
    }


def bench(name: str, seconds: float) -> dict[str, dict[str, float]]:
    found = {}
    with pair(shutil.which("redis-server") if name == "redis" else None) as (primary, client):
        for mode in MODES[name]:
            durability, _, appendfsync = mode.partition(" ")
            client.config_set("appendfsync", appendfsync or "everysec")
            client.flushall()
            settings = Settings(redis_url=primary.url, namespace="bench", durability=durability)
            found[mode] = asyncio.run(measure(settings, client, seconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--server", choices=sorted(MODES))
    args = parser.parse_args()
    names = (
        [args.server]
        if args.server
        else [name for name in MODES if name == "valkey" or shutil.which("redis-server")]
    )
    found = {name: bench(name, args.seconds) for name in names}
    if args.json:
        print(json.dumps(found | {"load": os.getloadavg()[0]}, indent=1))
        return
    print(
        "| server, mode | one: p50, p99 | a hundred at once | p50 | jobs a wait | bulk |\n|---|---|---|---|---|---|"
    )
    for name, modes in found.items():
        for mode, seen in modes.items():
            print(
                f"| {name}, {mode} | {seen['one_ms_p50']:.2f}, {seen['one_ms_p99']:.2f} ms | {seen['hundred_per_s']:,.0f}/s "
                f"| {seen['hundred_ms_p50']:.1f} ms | {seen['jobs_a_wait']:.0f} | {seen['bulk_per_s']:,.0f}/s |"
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
