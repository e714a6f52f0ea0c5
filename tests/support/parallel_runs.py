"""A whole run is spread over workers (pytest-xdist): whole files, the longest first, since tests wait more
than they compute.

A plugin for pytest. `python3 -m jobs test` enables it by `-n auto`; without that, or with `-n 0`, all tests
run in one process.
"""

import os
from pathlib import Path
from typing import Any

import pytest

LONG = (  # noqa: SIM905  # short words read better on a few lines
    "dev deploy_compose scaling durability schemathesis http_worker deploy_google deploy_aws growth wheel conformance "
    "mutants simulation interleavings chaos demo cli cli_work own_packages worker_death restart leftovers asgi "
    "error_messages names cluster foreign_clients lint deploy_kubernetes worker_shutdown worker_frozen aws security_canaries "
    "lost_replies docs acl children bench_run asgi_ends deploy invariants worker bootstrap clock_storm long_polls tutorial "
    "security_floods repair command_worker sentinel examples wrong_types"
).split()
"""The files that take longest, the longest first: a long file that started last would run alone."""
MORE, MOST = 2, 8
"""Workers beyond the number of cores, since many tests wait; and at most. Each worker has servers of its own.
"""
RAN = pytest.StashKey[dict[str, str]]()
"""The backends that tests ran on, and their versions."""


def workers(config: pytest.Config) -> int:
    """How many workers to start. One file, or one of its tests, needs none; a given server cannot be shared."""
    asked = {Path(word.partition("::")[0]) for word in config.args}
    is_one = len(asked) == 1 and not any(path.is_dir() for path in asked)
    return 0 if is_one or os.environ.get("SUBLET_TEST_REDIS_URL") else min(MOST, (os.cpu_count() or 1) + MORE)


class Spread:
    """Orders the files, and collects the backends that the workers used."""

    @pytest.hookimpl(trylast=True)  # after pytest's own order
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if hasattr(config, "workerinput"):
            places = {f"test_{name}": place for place, name in enumerate(LONG)}
            items.sort(key=lambda item: places.get(item.path.stem, len(places)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["ran"] = session.config.stash[RAN]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        node.config.stash[RAN].update(getattr(node, "workeroutput", {}).get("ran", {}))
