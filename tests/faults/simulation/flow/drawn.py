"""What a run with flow control draws: groups and costs of jobs, limits of queues and groups, and corrected costs."""

from typing import Any

GROUPS = ("group=x", "", "group=x", "group=y", "group=x cost=3", "group=z cost=2", "cost=2")
NONE = dict.fromkeys(
    ("concurrency", "group_concurrency", "rate", "per", "burst", "group_rate", "group_per", "group_burst")
)
LIMITS: tuple[dict[str, Any], ...] = tuple(
    NONE | limits
    for limits in (
        {"group_concurrency": 1}, {}, {"concurrency": 1}, {"concurrency": 2}, {"concurrency": 3, "group_concurrency": 1},
        {"rate": 2, "per": 1}, {"rate": 5, "per": 1, "burst": 3}, {"group_rate": 1, "group_per": 1},
        {"group_concurrency": 2, "group_rate": 2, "group_per": 3, "group_burst": 2},
        {"concurrency": 2, "group_concurrency": 1, "rate": 9, "per": 3, "burst": 4, "group_rate": 4, "group_per": 3},
    )
)  # fmt: skip
"""Limits of a queue; `per` in seconds."""
OWN = ("concurrency", "rate", "per", "burst", "share")
TUNED: tuple[dict[str, Any], ...] = tuple(
    dict.fromkeys(OWN) | limits
    for limits in ({"concurrency": 2}, {}, {"concurrency": 1}, {"share": 3}, {"rate": 1, "per": 0.5}, {"rate": 3, "per": 5, "burst": 3})
)  # fmt: skip
"""Settings of a group."""
TENANTS = ("x", "y", "z")
SPENT = (None, 0, 1, 4, 9)
"""Real costs that a task reports; None: it reports none."""
