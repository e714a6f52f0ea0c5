"""Measure workflows beside BullMQ's flows and Celery's chords and chains, on the same graphs.

Needs what `run.py` needs (without node and npm the others are measured alone). Figures are medians of the
rounds; in each round the contestants take turns. It takes about ten minutes: run nothing else meanwhile. `--write` writes the tables of docs/measurements/workflows.md.
"""

import sys
from collections.abc import Callable
from typing import Any

from contest import paged
from graphs.cases import CONTESTANTS, PARTS, all_cases
from graphs.page import TABLES


def _measure() -> Callable[..., Any]:
    from graphs.measure import measure

    return measure


BENCH = paged.Bench("workflows", __doc__ or "", CONTESTANTS, PARTS, all_cases, _measure, TABLES)

if __name__ == "__main__":
    sys.exit(paged.main(BENCH, "workflows"))
