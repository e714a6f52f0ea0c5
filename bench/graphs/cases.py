"""The cases of `bench/workflows.py`."""

from collections.abc import Callable
from dataclasses import dataclass

from contest.contestants import Contestant
from graphs.loads import Load

CONTESTANTS = (
    Contestant("sublet", "workflows_sublet.py", "sublet", ours=True),
    Contestant("bullmq", "workflows_bullmq.mjs", "bullmq"),
    Contestant("celery", "workflows_celery.py", "celery"),
    Contestant("celery threads", "workflows_celery.py", "celery", {"BENCH_VARIANT": "threads"}),
)
PARTS = ("fan", "chain", "fan_paced", "chain_paced", "wide")


@dataclass(frozen=True)
class Case:
    """A contestant under a load: a row of the part's table."""

    part: str
    row: str
    contestant: str
    load: Load


def all_cases(scale: float = 1.0) -> list[Case]:

    def of(n: int) -> int:
        return max(2, round(n * scale))

    return [
        Case(part, f"{each.name}{row}", each.name, load)
        for part in PARTS
        for row, load in _loads(part, of)
        for each in CONTESTANTS
        if load.size <= of(10_000) or each.ours
    ]


def _loads(part: str, of: Callable[[int], int]) -> list[tuple[str, Load]]:
    if part == "wide":
        wide = [Load("fan", of(size)) for size in (10_000, 100_000)]
        return [(f", {load.size:,}", load) for load in wide]
    return {
        "fan": [("", Load("fan", 100, of(100)))],
        "chain": [("", Load("chain", 10, of(500)))],
        "fan_paced": [("", Load("fan", 100, of(50), paced=True))],
        "chain_paced": [("", Load("chain", 10, of(50), paced=True))],
    }[part]
