"""Workflows for tests and pictures of the dashboard, stored over HTTP."""

from typing import Any

from tests.support.dashboard_jobs import Stock


def diamond(stock: Stock, queue: str) -> dict[str, str]:
    """Store one that starts, goes two ways and joins; returns the id of each job by its task, and its own as `flow`."""
    after = {"start": [], "left": ["start"], "right": ["start"], "join": ["left", "right"]}
    return stored(
        stock, [{"name": task, "task": task, "queue": queue, "after": names} for task, names in after.items()]
    )


def fan_out(stock: Stock, queue: str, n: int, **more: Any) -> dict[str, str]:
    """Store one of `n` jobs of the task `fetch`, an `index` that waits for them, and a `publish`."""
    pages = [
        {"name": f"fetch{number}", "task": "fetch", "queue": queue, "max_attempts": 1} for number in range(n)
    ]
    index = {"name": "index", "task": "index", "queue": queue, "after": [page["name"] for page in pages]}
    publish = {"name": "publish", "task": "publish", "queue": queue, "after": ["index"]}
    return stored(stock, [*pages, index | more, publish])


def stored(stock: Stock, jobs: list[dict[str, Any]]) -> dict[str, str]:
    """Store a workflow; returns the id of each job by its name, and its own as `flow`."""
    made = stock.ask("POST", "/workflows", {"jobs": jobs})
    return {one["name"]: one["id"] for one in made["jobs"]} | {"flow": made["id"]}


def work(stock: Stock, queue: str, n: int, failing: int = 0) -> None:
    """Claim `n` jobs of a queue, and complete them; the first ones fail."""
    done = 0
    while done < n:
        claim = {"queues": [queue], "worker": "mill-7", "lease": 600, "n": min(100, n - done)}
        held = stock.ask("POST", "/jobs/claim", claim)["jobs"]
        leases = [{"id": one["id"], "token": one["token"]} for one in held]
        bad, good = leases[: max(0, failing - done)], leases[max(0, failing - done) :]
        if bad:
            error = {"code": "TimeoutError", "message": "no answer", "again": False}
            stock.ask("POST", "/jobs/fail", {"jobs": [one | error for one in bad]})
        if good:
            stock.ask("POST", "/jobs/complete", {"jobs": [one | {"result": None} for one in good]})
        done += len(held)
