"""How long a request holds Redis: its longest command, by SLOWLOG."""

import itertools
import time
from typing import Any

import aiohttp

ROUNDS = 5
LOG_US = 100
READS = (
    "stats",
    "metrics",
    "jobs?limit=50",
    "jobs?state=queued&limit=200",
    "jobs?state=dead&limit=200",
    "jobs?tag=tenant:1&limit=200",
    "jobs?task=other&limit=50",
    "jobs?worker=worker-7&limit=50",
    "jobs?code=ValueError&limit=200",
    "queues?limit=200",
    "schedules?limit=200",
    "workers",
    "pools",
    "tasks?limit=200",
    "history?span=day",
    "history?span=month",
    "audit?limit=200",
    "events?after=0&limit=500",
)
TAGS = 5
ORDERS = ("promote", "cancel", "retry", "erase")


def _orders() -> list[tuple[str, str, Any]]:
    serial = f"{time.time():.6f}"
    plain = [{"task": "noop", "queue": f"queue-{n}", "payload": {"text": "x" * 150}} for n in range(200)]
    tagged = [{**job, "tags": [f"n{serial}-{n}-{i}" for i in range(TAGS)]} for n, job in enumerate(plain)]
    later = [{**job, "delay": 3600} for job in plain]
    found: list[tuple[str, str, Any]] = [
        ("submit 200 jobs", "jobs/batch", {"jobs": plain}),
        (f"submit 200 jobs with {TAGS} new tags each", "jobs/batch", {"jobs": tagged}),
        ("submit 200 scheduled jobs", "jobs/batch", {"jobs": later}),
    ]
    return found + [(f"{order} 200 jobs", f"jobs/{order}", {"filter": {}}) for order in ORDERS]


async def longest(raw: Any, url: str) -> dict[str, tuple[float, str]]:
    """Return each request's longest command, in ms: the least of five rounds."""
    before = raw.config_get("slowlog-*")
    raw.config_set("slowlog-log-slower-than", LOG_US)
    raw.config_set("slowlog-max-len", 4096)
    found: dict[str, tuple[float, str]] = {}
    async with aiohttp.ClientSession() as session:
        for _ in range(ROUNDS):
            reads = [(path, path, None) for path in READS]
            for name, path, body in itertools.chain(reads, _orders()):
                raw.slowlog_reset()
                method = "GET" if body is None else "POST"
                async with session.request(method, f"{url}/{path}", json=body) as answer:
                    assert answer.status == 200, f"{path}: {await answer.text()}"
                    await answer.read()
                found[name] = min(_slowest(raw), found.get(name, (float("inf"), "")))
    for name, value in before.items():
        raw.config_set(name, value)
    return found


def _slowest(raw: Any) -> tuple[float, str]:
    logged = [
        (one["duration"] / 1000, one["command"].decode(errors="replace")) for one in raw.slowlog_get(4096)
    ]
    return max(((ms, command[:40]) for ms, command in logged if "SLOWLOG" not in command), default=(0.0, ""))
