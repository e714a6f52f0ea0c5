"""Measure flow control beside BullMQ: limits, rates, tokens, fair turns, and what a group costs.

Needs what `run.py` needs (without node and npm Sublet is measured alone). Figures are medians of the
rounds; in each round the contestants take turns. It takes about ten minutes: run nothing else meanwhile. `--write` writes the tables of docs/measurements/flow-control.md.
"""

import sys
from collections.abc import Callable
from typing import Any

from contest import paged
from flow.cases import CONTESTANTS, PARTS, all_cases
from flow.page import TABLES


def _measure() -> Callable[..., Any]:
    from flow.measure import measure

    return measure


BENCH = paged.Bench("flow-control", __doc__ or "", CONTESTANTS, PARTS, all_cases, _measure, TABLES)

if __name__ == "__main__":
    sys.exit(paged.main(BENCH, "limits"))
