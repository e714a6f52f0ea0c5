"""Waiting jobs that no worker runs."""

import json
import re
from types import SimpleNamespace

import pytest
import yaml

from sublet.cli.jobs.unserved import note_unserved
from sublet.operations import coverage
from sublet.protocol import keys
from sublet_functions.handlers.prometheus import exposition
from sublet_functions.handlers.statistics import read_statistics
from sublet_functions.handlers.stats import stats_of
from tests.http.test_metrics import samples
from tests.support.pages import blocks
from tests.support.paths import ROOT


@pytest.fixture
def find(store):
    """Read the gaps of the namespace."""

    async def found():
        return await store.follow(coverage.gaps(store.operations.bases))

    return found


def serving(*queues):
    return json.dumps({"queues": queues}).encode()


async def test_a_queue_without_a_worker_is_found(desk, find):
    await desk.enlist("w", about=serving("q"))
    await desk.submit("a", "b", queue="vip")
    await desk.submit("c", queue="mail")
    await desk.submit("d", queue="q")
    assert (await find()).queues == {"vip": 2, "mail": 1}
    await desk.enlist("v", about=serving("vip", "tenant-*"))
    await desk.submit("e", queue="tenant-7")
    assert (await find()).queues == {"mail": 1}


async def test_silent_and_draining_workers_serve_nothing(desk, find):
    await desk.submit("a", queue="vip")
    for name in ("gone", "drains"):
        await desk.enlist(name, about=serving("vip"))
    assert (await find()).queues == {}
    desk.raw.zadd(keys.workers(desk.base), {"gone": desk.now() - 61_000})
    assert (await find()).queues == {}
    await desk.drain("drains")
    assert (await find()).queues == {"vip": 1}


async def test_a_worker_that_lists_no_queues_may_serve_any(desk, find):
    await desk.submit("a", queue="vip")
    assert (await find()).queues == {"vip": 1}
    await desk.enlist("foreign")
    assert (await find()).queues == {}


async def test_a_pool_serves_its_queues_if_it_has_an_invoker(desk, find):
    await desk.submit("a")
    await desk.pool()
    assert (await find()).queues == {"q": 1}
    await desk.pool("called", 0, "queues=q invoker=http", "https://example.com/work")
    assert (await find()).queues == {}


async def test_paused_queues_later_jobs_and_queues_with_running_jobs_are_no_gaps(desk, find):
    await desk.submit("a", queue="paused")
    await desk.operate_queue("pause", "paused")
    await desk.submit("b", queue="later", rules="delay=60000")
    await desk.submit("c", "d", queue="curl")
    await desk.claim(1, queues=("curl",))
    assert (await find()).queues == {}


async def test_jobs_with_an_unknown_task_are_found_until_they_are_due(desk, find):
    await desk.submit("a", "b", task="welcome")
    await desk.submit("c", task="known")
    for lease in await desk.claim(3):
        await desk.release(lease, 60, "no task", "unknown_task" if lease.task == "welcome" else "released")
    assert (await find()).tasks == {"welcome": 2}
    assert desk.counter("unknown_task") == 2
    desk.elapse(5)
    await desk.reap()
    await desk.complete(await desk.take("a"))
    assert (await find()).tasks == {}, "all are queued again"


async def test_dead_jobs_do_not_wait_for_a_task(desk, find):
    await desk.submit("a", task="welcome")
    for _ in range(20):
        answer = await desk.release(await desk.take("a"), code="unknown_task")
        desk.elapse(60)
    assert (answer, (await find()).tasks) == ("dead", {})


async def test_statistics_and_metrics_name_queues_without_a_worker(desk, store):
    await desk.enlist("w", about=serving("q"))
    await desk.submit("a", "b", queue="vip")
    await desk.submit("c", queue="q")
    found = await read_statistics(store)
    numbers = stats_of(found, whole=True)
    assert (numbers.unserved_jobs, numbers.unserved_queues, numbers.unserved_example) == (2, 1, "vip")
    assert stats_of(await read_statistics(store, ["q"]), whole=False).unserved_jobs == 0
    shown = samples(await exposition(await read_statistics(store)))
    assert (shown["sublet_queues_unserved",], shown["sublet_jobs_unserved", "vip"]) == (1, 2)
    assert ("sublet_jobs_unserved", "q") not in shown


async def test_at_most_a_hundred_queues_have_their_own_metric(desk, store):
    for n in range(101):
        await desk.submit(f"j{n}", queue=f"q{n}")
    shown = samples(await exposition(await read_statistics(store)))
    assert shown["sublet_queues_unserved",] == 101
    assert len([each for each in shown if each[0] == "sublet_jobs_unserved"]) == 100


async def test_the_alerts_of_the_documentation_use_metrics_that_exist(desk, store):
    await desk.submit("a", queue="vip")
    shown = {each[0] for each in samples(await exposition(await read_statistics(store)))}
    (rules,) = (
        text for _, text in blocks("yaml", (ROOT / "docs/reference/http.md").read_text()) if "alert:" in text
    )
    named = [
        set(re.findall(r"sublet_\w+", rule["expr"])) for rule in yaml.safe_load(rules)["groups"][0]["rules"]
    ]
    assert len(named) == 2
    assert set().union(*named) <= shown


@pytest.mark.parametrize("terminal", [True, False])
async def test_only_a_terminal_reads_the_registrations_for_a_note(desk, store, monkeypatch, capsys, terminal):
    await desk.submit("a", queue="vip")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    followed = []
    client = SimpleNamespace(
        store=SimpleNamespace(
            operations=store.operations, follow_existing=lambda plan: followed.append(plan) or {"vip": 1}
        )
    )
    note_unserved(client, "vip")
    assert len(followed) == terminal
    assert ("no registered worker serves queue vip" in capsys.readouterr().err) is terminal


async def test_the_registrations_are_read_only_if_jobs_wait(desk, store, monkeypatch):
    await desk.submit("a")
    await desk.claim()
    read = []
    monkeypatch.setattr(coverage, "_live", lambda base: read.append(base))
    await read_statistics(store)
    assert not read
