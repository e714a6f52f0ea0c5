"""What a whole run, which is spread over workers, tries by chance; they all draw the same. A file that is run alone tries all."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
"""Another one for each whole run, the same for its workers; empty where there are none."""


def one_in(n: int, items: Sequence[T]) -> Sequence[T]:
    """Every n-th of these, the first one by chance; all of them where a file is run alone."""
    return items[int(RUN[:8], 16) % n :: n] if RUN and items else items
