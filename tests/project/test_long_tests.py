"""How a whole run draws its long tests (tests/support/draws.py, tests/support/long_tests.py)."""

import ast
from types import SimpleNamespace

import pytest

from tests.support import long_tests
from tests.support.draws import LONG, PART
from tests.support.long_tests import LongTests
from tests.support.paths import ROOT

FILES = {path.stem.removeprefix("test_"): path for path in (ROOT / "tests").rglob("test_*.py")}
RUNS = [f"{number:08x}" for number in range(PART)]
"""Runs in a row, with consecutive numbers."""


class Item:
    """A collected test."""

    def __init__(self, path, name):
        self.path, self.name = path, name


def chosen(seconds=None):
    """The names of LONG, and "", whose items a run keeps."""
    named = (name.partition("::") for name in [*LONG, "options::test_a"])
    items = [Item(FILES[file], test) for file, _, test in named]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    LongTests(seconds).pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    return {long_tests.long_name(item.path.stem, item.name) for item in items}


def test_every_long_test_exists():
    for name in LONG:
        file, _, test = name.partition("::")
        assert file in FILES, name
        defined = {
            node.name
            for node in ast.walk(ast.parse(FILES[file].read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not test or test in defined, name


def test_whole_runs_in_a_row_try_every_long_test_once(monkeypatch):
    monkeypatch.setattr(long_tests, "ALL", False)
    tried = []
    for run in RUNS:
        monkeypatch.setattr(long_tests, "RUN", run)
        monkeypatch.setattr("tests.support.draws.RUN", run)
        tried.append(chosen())
    assert all("" in names for names in tried)
    assert sorted(name for names in tried for name in names if name) == sorted(LONG)


def test_a_file_that_is_run_alone_is_tried_whole(monkeypatch):
    monkeypatch.setattr(long_tests, "RUN", "")
    assert chosen() == {"", *LONG}


def test_a_long_run_tries_all_long_tests_and_no_others():
    assert chosen(60.0) == set(LONG)


def test_a_long_run_skips_the_rest_when_its_time_is_over():
    run = LongTests(0.0)
    run.until = 0.0
    with pytest.raises(pytest.skip.Exception, match="no time left"):
        run.pytest_runtest_setup(None)


def test_a_whole_run_does_not_read_files_of_which_it_tries_nothing(monkeypatch):
    monkeypatch.setattr(long_tests, "ALL", False)
    monkeypatch.setattr(long_tests, "RUN", RUNS[0])
    monkeypatch.setattr("tests.support.draws.RUN", RUNS[0])
    run = LongTests(None)
    ignored = {name for name, path in FILES.items() if run.pytest_ignore_collect(path)}
    assert ignored == {name for name in LONG if "::" not in name} - chosen()
    assert not any(LongTests(60.0).pytest_ignore_collect(path) for path in FILES.values())
