"""The part of the suite that a whole run tries, drawn by chance.

A whole run is spread over workers, which all draw the same. A file that is run alone, and a run with
`--all`, try everything.
"""

import os
import sys
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
if "--all" in sys.argv:
    os.environ["SUBLET_TEST_ALL"] = "1"  # inherited by the workers
ALL = os.environ.get("SUBLET_TEST_ALL") == "1"
RUN = "" if ALL else os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
"""Identifies a whole run, the same in all its workers; empty where everything is tried."""


def one_in(n: int, items: Sequence[T]) -> Sequence[T]:
    """Every n-th item, the first one by chance."""
    return items[int(RUN[:8], 16) % n :: n] if RUN else items


def few(n: int) -> int:
    """A quarter of n examples. For tests whose examples are drawn anew in each run."""
    return max(n // 4, 1) if RUN else n


def one_for(test: str, items: Sequence[T]) -> Sequence[T]:
    """One item, drawn anew for each test. For repetitions of a test that seldom fail alone."""
    return [items[zlib.crc32(f"{RUN} {test}".encode()) % len(items)]] if RUN else items
