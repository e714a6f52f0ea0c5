"""The figures of a run."""

from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]
MORE_IS_BETTER = ("enqueue_", "drain_", "backlog_", "sweep_")


class Run:
    """The figures of a run, by contestant and workload."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.rows: list[Row] = found["results"]

    def row(self, contestant: str, workload: str, persistence: str = "off") -> Row | None:
        wanted = (contestant, workload, persistence)
        return next(
            (row for row in self.rows if (row["contestant"], row["workload"], row["persistence"]) == wanted),
            None,
        )

    def value(self, contestant: str, workload: str, persistence: str = "off") -> float | None:
        """Return the median of the rounds; None if not measured, or without the event."""
        if workload == "backlog_ratio":
            return self._ratio(contestant)
        row = self.row(contestant, workload, persistence)
        return None if row is None or row["median"] is None else float(row["median"])

    def _ratio(self, contestant: str) -> float | None:
        few, many = self.row(contestant, "backlog_1k"), self.row(contestant, "backlog_1m")
        return max(many["values"]) / max(few["values"]) if few and many else None

    def spread(self, contestant: str, workload: str, persistence: str = "off") -> tuple[float, float] | None:
        """Return the lowest and the highest round; None for fewer than two."""
        values = [
            value
            for value in (self.row(contestant, workload, persistence) or {"values": []})["values"]
            if value is not None
        ]
        return (min(values), max(values)) if len(values) > 1 else None

    def contestants(self, workloads: Iterable[str], persistence: str = "off") -> list[str]:
        """Return the contestants with any of these workloads, the best at the first one first."""
        names = dict.fromkeys(row["contestant"] for row in self.rows if row["persistence"] == persistence)
        wanted = tuple(workloads)

        def place(name: str) -> float:
            value = self.value(name, wanted[0], persistence)
            return float("inf") if value is None else -value if more_is_better(wanted[0]) else value

        return sorted(
            (name for name in names if any(self.row(name, w, persistence) for w in wanted)), key=place
        )

    def best(
        self, workload: str, among: Callable[[str], bool], persistence: str = "off"
    ) -> tuple[str, float] | None:
        for name in self.contestants([workload], persistence):
            value = self.value(name, workload, persistence)
            if among(name) and value is not None:
                return name, value
        return None

    def best_peer(self, workload: str, persistence: str = "off") -> tuple[str, float] | None:
        """Return the best of the contestants that are compared with `sublet`, and its figure."""
        return self.best(workload, lambda name: is_peer(name, workload), persistence)


def is_peer(name: str, workload: str = "drain_1") -> bool:
    """Is it compared with `sublet`: not one of ours, and in drains one worker process?"""
    several = name.endswith(" processes") and workload.startswith(("drain_", "backlog_"))
    return not name.startswith("sublet") and not several


def more_is_better(workload: str) -> bool:
    return workload.startswith(MORE_IS_BETTER)


def times_better(workload: str, ours: float, theirs: float) -> float:
    """Return how many times better ours is; below 1, it is worse."""
    above, below = (ours, theirs) if more_is_better(workload) else (theirs, ours)
    return above / below if below else float("inf")


def number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
