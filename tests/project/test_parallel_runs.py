"""How a whole run is spread over workers. The search for leftover processes is tested in test_leftovers.py."""

from types import SimpleNamespace

import pytest

from tests.support.parallel_runs import LONG, RAN, Spread, workers
from tests.support.paths import ROOT

HERE = ROOT / "tests"


@pytest.mark.parametrize(
    ("words", "many"),
    [
        ([str(HERE)], True),
        ([str(HERE / "project" / "test_parallel_runs.py"), str(HERE / "client" / "test_options.py")], True),
        ([str(HERE / "project" / "test_parallel_runs.py")], False),
        (
            [
                f"{HERE / 'project' / 'test_parallel_runs.py'}::a",
                f"{HERE / 'project' / 'test_parallel_runs.py'}::b[1]",
            ],
            False,
        ),
    ],
)
def test_one_file_needs_no_workers(words, many, monkeypatch):
    monkeypatch.delenv("SUBLET_TEST_REDIS_URL", raising=False)
    assert bool(workers(SimpleNamespace(args=words))) is many


def test_a_given_server_is_used_without_parallel_workers(monkeypatch):
    monkeypatch.setenv("SUBLET_TEST_REDIS_URL", "redis://127.0.0.1:1")
    assert workers(SimpleNamespace(args=[str(HERE)])) == 0


def ordered(*names, **config):
    items = [
        SimpleNamespace(path=HERE / f"test_{name}.py", number=number) for number, name in enumerate(names)
    ]
    Spread().pytest_collection_modifyitems(SimpleNamespace(**config), items)
    return [item.number for item in items]


def test_workers_begin_with_the_long_files_and_keep_the_order_otherwise():
    names = ("b", LONG[1], "a", LONG[0], "b", LONG[1])
    assert ordered(*names, workerinput={}) == [3, 1, 5, 0, 2, 4]
    assert ordered(*names) == [0, 1, 2, 3, 4, 5]


def test_the_long_files_exist():
    assert [name for name in LONG if not [*HERE.rglob(f"test_{name}.py")]] == []


def test_the_workers_backends_are_reported_once():
    config = SimpleNamespace(stash={RAN: {"redis": "7"}})
    worker = SimpleNamespace(stash={RAN: {"valkey": "9"}}, workeroutput={})
    Spread().pytest_sessionfinish(SimpleNamespace(config=worker))
    Spread().pytest_testnodedown(SimpleNamespace(config=config, workeroutput=worker.workeroutput))
    Spread().pytest_testnodedown(SimpleNamespace(config=config))  # a killed worker reports nothing
    assert config.stash[RAN] == {"redis": "7", "valkey": "9"}
