"""Selects long tests: a whole run tries a sixtieth of them, `--long SECONDS` all of them for that time.

A plugin for pytest.
"""

import time
from pathlib import Path

import pytest

from tests.support.draws import ALL, LONG, PART, RUN, by_chance, long_name, one_in


class LongTests:
    """`seconds` is the time for the long tests; None in an ordinary run."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.until = seconds, float("inf")
        self.left_out = (
            frozenset() if ALL or not RUN or seconds is not None else {*LONG} - {*one_in(PART, LONG)}
        )

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """A file of which nothing is tried is not read at all."""
        return collection_path.stem.removeprefix("test_") in self.left_out or None

    @pytest.hookimpl(trylast=True)  # after the order of the files
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        names = {item: long_name(item.path.stem, getattr(item, "originalname", item.name)) for item in items}
        if self.seconds is not None:
            self.until = time.monotonic() + self.seconds
            chosen = [item for item in items if names[item]]
            chosen.sort(key=lambda item: by_chance(item.path.stem))
        else:
            chosen = [item for item in items if names[item] not in self.left_out]
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self.until:
            pytest.skip("no time left (--long)")
