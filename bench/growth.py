"""Measure the cost of a job as the data grows: waiting jobs, finished jobs, queues, payload.

Each point of an axis is a database with its standing load; all have the same additional work. Compare
figures of one run. It needs 3 GB and twenty minutes.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

import pictures
from crowds import crowds
from standing import DAY, KEPT, Load, Site

from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol import keys

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """Sizes of the measurement: of the measured work, and of the standing loads."""

    jobs: int
    rounds: int
    warm: int
    """Jobs completed first, to fill the event stream and the finished jobs."""
    largest: int
    """The largest standing load; others are a tenth, a hundredth … of it."""
    crowd: int

    def up_to(self, largest: int, least: int) -> list[int]:
        """Return `least`, ten times as much, and so on, up to `largest`."""
        return [point for point in (least * 10**i for i in range(10)) if point <= largest]


FULL, QUICK = Scale(10_000, 11, 36_000, 1_000_000, 200_000), Scale(400, 2, 400, 2_000, 2_000)


@dataclass(frozen=True)
class Point:
    """One point of an axis: a database with a standing load, and the work measured on it."""

    series: str
    x: float
    site: Site
    load: Load


class Sites:
    """The databases of one server. Each axis begins with empty ones."""

    def __init__(self, url: str, scale: Scale) -> None:
        self.url, self.scale = url, scale
        self._sites: list[Site] = []

    async def new(self, kept: int = KEPT) -> Site:
        """Return the next database, with a namespace in a steady state."""
        site = Site(self.url, len(self._sites))
        self._sites.append(site)
        await site.store.prepare()
        await site.keep(kept)
        await site.work(Load(self.scale.warm))
        return site

    async def clear(self) -> None:
        for site in self._sites:
            site.raw.flushdb()
            await site.aclose()
        self._sites.clear()


async def backlog(sites: Sites) -> list[Point]:
    """The axis of waiting jobs: in the measured queue; or scheduled, as the measured jobs then are."""
    points, scale = [], sites.scale
    for waiting in scale.up_to(scale.largest, scale.largest // 1000):
        site = await sites.new()
        await site.fill(waiting)
        points.append(Point("queued", waiting, site, Load(scale.jobs)))
    for waiting in (scale.largest // 1000, scale.largest // 30, scale.largest):
        site = await sites.new()
        await site.fill(waiting, lambda: f"delay={random.randint(DAY, 2 * DAY)}")
        points.append(Point("scheduled", waiting, site, Load(scale.jobs, rules=lambda: "delay=1")))
    return points


async def finished(sites: Sites) -> list[Point]:
    """The axis of finished jobs: below the limit; and at it, where each completion deletes one."""
    points, scale = [], sites.scale
    for there in [0, *scale.up_to(scale.largest, scale.largest // 1000)]:
        site = await sites.new(kept=0)
        await site.keep(10 * scale.largest)
        await site.finish(there)
        points.append(Point("at the limit", there, site, Load(scale.jobs, kept=there)))
        points.append(
            Point("below the limit", there, site, Load(scale.jobs, kept=there, spare=10 * scale.largest))
        )
    return points


async def queues(sites: Sites) -> list[Point]:
    """The axis of queues: with 100,000 jobs spread over them, and empty."""
    points, scale = [], sites.scale
    numbers = scale.up_to(scale.largest // 100, 1)
    for number in numbers:
        site = await sites.new()
        await site.fill(max(number, scale.largest // 10), queues=number)
        points.append(Point("calls about one queue", number, site, Load(scale.jobs, queues=number)))
        points.append(
            Point("calls about many queues", number, site, Load(scale.jobs, queues=number, mixed=True))
        )
        if number in (numbers[0], numbers[-1]):
            empty = await sites.new()
            await empty.open(number)
            points.append(
                Point("one queue, nothing else waits", number, empty, Load(scale.jobs, queues=number))
            )
    return points


async def payload(sites: Sites) -> list[Point]:
    site, points = await sites.new(), []
    for size in (102, 256, 512, 1024, 1536, 2048, 4096, 16384, 65536, 262144):
        jobs = min(sites.scale.jobs, max(64, sites.scale.jobs * 6400 // size))
        points.append(Point("payload", round(size / 1024, 2), site, Load(jobs, size=size)))
    return points


async def names(sites: Sites) -> list[Point]:
    """The axis of deduplication keys, of finished jobs with a window of a day. Measured jobs have keys, too."""
    points, scale = [], sites.scale
    for held in [0, *scale.up_to(scale.largest // 10, scale.largest // 1000)]:
        site = await sites.new()
        await site.finish(held, lambda: f"key={random.getrandbits(64):x} window={DAY}")
        points.append(
            Point(
                "keys",
                held,
                site,
                Load(scale.jobs, rules=lambda: f"key={random.getrandbits(64):x} window=5000"),
            )
        )
    return points


async def events(sites: Sites) -> list[Point]:
    """The axis of the event stream's entries: none, and the maximum."""
    site = await sites.new()
    full = float(site.raw.xlen(keys.events(site.base)))
    return [
        Point("events", 0, site, Load(sites.scale.jobs, fresh=True)),
        Point("events", full, site, Load(sites.scale.jobs)),
    ]


AXES: dict[str, Callable[[Sites], Awaitable[list[Point]]]] = {
    "backlog": backlog, "finished": finished, "queues": queues, "payload": payload, "keys": names, "events": events,
}  # fmt: skip
TABLES = ("holds", "reading", *crowds)
"""Measurements whose figures are not the cost of a job: each has a table without a picture."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--pictures", type=Path, metavar="DIR", help="draw the pictures there (SVG; needs matplotlib)"
    )
    parser.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="FILE",
        help="show and draw an earlier run's figures instead",
    )
    parser.add_argument(
        "--server", choices=("redis", "valkey"), default="redis" if shutil.which("redis-server") else "valkey"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=(*AXES, *TABLES),
        metavar="AXIS",
        help=f"of {', '.join((*AXES, *TABLES))}",
    )
    asked = parser.parse_args()
    if asked.given and not asked.given.is_file():
        parser.error(f"there is no file {asked.given}: give the one that an earlier run wrote with --json")
    found = json.loads(asked.given.read_text()) if asked.given else _run(asked)
    _keep(found, asked.json)
    print(pictures.tables(found))
    if asked.pictures:
        for path in pictures.draw(found, asked.pictures):
            print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


def _run(asked: argparse.Namespace) -> dict[str, Any]:
    binary = "redis-server" if asked.server == "redis" else None
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        return asyncio.run(
            _measure(server, QUICK if asked.quick else FULL, asked.only or (*AXES, *TABLES), asked.json)
        )


def _keep(found: dict[str, Any], path: Path | None) -> None:
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


async def _measure(
    server: EmbeddedServer, scale: Scale, wanted: Sequence[str], path: Path | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "server": server.version,
        "jobs": scale.jobs,
        "rounds": scale.rounds,
        "axes": {},
        "tables": {},
    }
    sites = Sites(server.url, scale)
    for name, axis in AXES.items():
        table = {"backlog": "holds", "queues": "reading"}.get(name)
        if name in wanted or table in wanted:
            _say(f"{name}: making what stands there …")
            points = await axis(sites)
            if name in wanted:
                found["axes"][name] = await _rounds(name, points, scale.rounds)
            if table in wanted:
                _say(f"{table} …")
                rows = (
                    _holds(points, scale.rounds, server.pid)
                    if table == "holds"
                    else _reading(points, scale.rounds)
                )
                found["tables"][table] = await rows
            await sites.clear()
            _keep(found, path)
    for name, crowd in crowds.items():
        if name in wanted:
            _say(f"{name} …")
            found["tables"][name] = await crowd(await sites.new(), scale.crowd)
            await sites.clear()
            _keep(found, path)
    return found


async def _rounds(name: str, points: list[Point], rounds: int) -> list[Row]:
    rows: list[list[dict[str, float]]] = [[] for _ in points]
    _say(f"{name}: {rounds} rounds …")
    for number in range(rounds):
        order = list(enumerate(points))
        for i, point in order if number % 2 else reversed(order):
            rows[i].append(await point.site.measure(point.load))
    costs, times = (
        _shares(rows, "redis_us"),
        [min(one["wall_drain_us"] for one in measured) for measured in rows],
    )
    found: list[Row] = []
    for i, (point, measured) in enumerate(zip(points, rows, strict=True)):
        first = next(j for j, other in enumerate(points) if other.series == point.series)
        row: Row = {key: statistics.median(one[key] for one in measured) for key in measured[0]}
        row |= {
            "fastest_drain_us": times[i],
            "worst_hold_ms": max(one["hold_ms"] for one in measured),
            "bytes": point.site.bytes_per_job,
        }
        row |= {"relative": costs[i] / costs[first], "drain_rate": times[first] / times[i]}
        found.append({"series": point.series, "x": point.x, **row})
    return found


def _shares(rows: list[list[dict[str, float]]], name: str) -> list[float]:
    sums = [sum(one[name] for one in together) for together in zip(*rows, strict=True)]
    return [
        statistics.median(one[name] / whole for one, whole in zip(measured, sums, strict=True))
        for measured in rows
    ]


async def _holds(points: list[Point], rounds: int, pid: int) -> list[Row]:
    queued = [point for point in points if point.series == "queued"]
    held: dict[float, list[dict[str, list[float]]]] = {}
    for _ in range(rounds):
        for point in (queued[0], queued[-1]):
            held.setdefault(point.x, []).append(await point.site.hold(20, pid))
    found: list[Row] = []
    for x, parts in held.items():
        for name in parts[0]:
            calls = sorted(ms for part in parts for ms in part[name])
            row: Row = {
                "script": name,
                "jobs waiting": x,
                "calls": len(calls),
                "median ms": statistics.median(calls),
            }
            found.append(row | {"p99 ms": calls[len(calls) * 99 // 100], "longest ms": calls[-1]})
    return found


async def _reading(points: list[Point], rounds: int) -> list[Row]:
    found = []
    for point in points:
        if point.series == "calls about one queue":
            found.append({"queues": point.x, **await point.site.read(rounds)})
    return found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
