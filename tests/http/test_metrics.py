"""`/metrics`: the state of Redis in Prometheus's format, with a limited number of series, accepted by
promtool."""

import asyncio
import re
import shutil
import subprocess

import pytest

from sublet.connection.settings import Settings
from sublet.operations import statistics as counts
from sublet.protocol import keys
from sublet.store.store import Store
from sublet_functions.handlers import statistics
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.metrics import metrics
from sublet_functions.handlers.prometheus import MEDIA_TYPE, exposition
from sublet_functions.handlers.statistics import read_statistics
from sublet_functions.http.auth import Principal
from sublet_functions.http.request import Request
from tests.client.test_statistics import claimed_ago

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


async def populate(desk):
    """Jobs in each state, in the queues q and r."""
    await desk.submit("late", "later", rules="delay=60000")
    await desk.complete(await desk.running("done"))
    slow = await desk.running("slow")
    claimed_ago(desk, "slow", 90_000)
    await desk.complete(slow)
    await desk.fail(await desk.running("dead"), again=False)
    await desk.submit("off", queue="r")
    await desk.operate("cancel", "off")
    old = await desk.running("lost", lease=1)
    desk.elapse(2)
    await desk.reap()
    await desk.take("lost")
    await desk.complete(old)
    await desk.submit("waits", "waits-too", queue="r")
    await desk.operate_queue("configure", "full", 0, "jobs=0")
    await desk.submit("x", queue="full")
    await desk.enlist("w")
    await desk.enlist("gone")
    desk.raw.zadd(keys.workers(desk.base), {"gone": desk.now() - 61_000})


def samples(text):
    """Parse an exposition: (name, labels) → number."""
    found = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, labels, number = SAMPLE.match(line).groups()
            found[name, *sorted(re.findall(r'"([^"]*)"', labels or ""))] = float(number)
    return found


async def test_the_metrics_count_the_jobs(desk, store):
    await populate(desk)
    found = samples(await exposition(await read_statistics(store)))
    for queue, now in {"q": (2, 0, 1), "r": (0, 2, 0), "full": (0, 0, 0)}.items():
        assert (
            tuple(
                found["sublet_jobs", *sorted((queue, state))] for state in ("scheduled", "queued", "running")
            )
            == now
        )
    assert {state: found["sublet_jobs_kept", state] for state in ("completed", "dead", "cancelled")} == {
        "completed": 2,
        "dead": 1,
        "cancelled": 1,
    }
    assert found["sublet_jobs_finished_total", "completed", "q"] == 2
    assert (
        found["sublet_jobs_finished_total", "dead", "q"],
        found["sublet_jobs_finished_total", "cancelled", "r"],
    ) == (1, 1)
    assert found["sublet_jobs_submitted_total",] == 9
    assert found["sublet_leases_expired_total",] == 1
    assert (found["sublet_refused_total", "lease_lost"], found["sublet_refused_total", "queue_full"]) == (
        1,
        1,
    )
    assert found["sublet_workers",] == 1, "the other one had no heartbeat for a minute"
    assert 0 <= found["sublet_maintenance_age_seconds",] < 60
    assert found["sublet_queues_left_out",] == 0
    assert 0 <= found["sublet_oldest_queued_seconds", "r"] < 60
    assert found["sublet_oldest_queued_seconds", "q"] == 0


async def test_the_buckets_of_a_histogram_add_up(desk, store):
    await populate(desk)
    found = samples(await exposition(await read_statistics(store)))
    assert (
        found["sublet_job_wait_seconds_count", "q"]
        == found["sublet_job_wait_seconds_bucket", "+Inf", "q"]
        == 4
    )
    assert (
        found["sublet_job_run_seconds_count", "q"] == found["sublet_job_run_seconds_bucket", "+Inf", "q"] == 3
    )
    assert 90 <= found["sublet_job_run_seconds_sum", "q"] < 120
    assert (
        found["sublet_job_run_seconds_bucket", "60.0", "q"],
        found["sublet_job_run_seconds_bucket", "300.0", "q"],
    ) == (2, 3)
    upwards = [
        found["sublet_job_run_seconds_bucket", le, "q"]
        for le in (*(str(bound / 1000) for bound in counts.BOUNDS), "+Inf")
    ]
    assert upwards == sorted(upwards)
    assert ("sublet_job_wait_seconds_count", "r") not in found, "none of its jobs was claimed"


async def test_the_age_of_the_oldest_job_counts_from_its_due_time(desk, store):
    await desk.submit("a")
    spec = f"q t {desk.now() - 90_000}"
    desk.raw.hset(keys.job(desk.base, "a"), "spec", spec + "\n{}")
    assert (
        90
        <= samples(await exposition(await read_statistics(store)))["sublet_oldest_queued_seconds", "q"]
        < 95
    )
    desk.raw.hset(keys.job(desk.base, "a"), "spec", f"{spec} delay=60000\n{{}}")
    assert (
        30
        <= samples(await exposition(await read_statistics(store)))["sublet_oldest_queued_seconds", "q"]
        < 35
    )
    desk.raw.hset(keys.job(desk.base, "a"), "ended", f"fail scheduled {desk.now() - 5000}")
    assert (
        5 <= samples(await exposition(await read_statistics(store)))["sublet_oldest_queued_seconds", "q"] < 10
    ), "its backoff had ended then"


async def test_an_empty_namespace_has_metrics(desk, store):
    found = samples(await exposition(await read_statistics(store)))
    assert found["sublet_jobs_submitted_total",] == 0
    assert ("sublet_maintenance_age_seconds",) not in found


async def test_invalid_counters_do_not_break_the_metrics(desk, store):
    await populate(desk)
    for key in (keys.counts(desk.base), keys.backlog(desk.base)):
        for name in desk.raw.hkeys(key):
            desk.raw.hset(key, name, "invalid")
    desk.raw.hset(keys.job(desk.base, "waits"), "spec", "invalid")
    found = samples(await exposition(await read_statistics(store)))
    assert found["sublet_jobs", "q", "running"] == 0
    assert found["sublet_jobs", "queued", "r"] == 2


async def test_of_very_many_queues_only_the_busiest_are_reported(desk, store, monkeypatch):
    monkeypatch.setattr(counts, "MOST", 3)
    monkeypatch.setattr(statistics, "CHUNK", 2)
    for n, queue in enumerate(("five", "four", "three", "two", "one")):
        await desk.submit(*(f"{queue}{i}" for i in range(5 - n)), queue=queue)
    await desk.operate_queue("configure", "*", 0, "completed=5")
    found = samples(await exposition(await read_statistics(store)))
    assert {labels[0] for name, *labels in found if name == "sublet_oldest_queued_seconds"} == {
        "five",
        "four",
        "three",
    }
    assert found["sublet_queues_left_out",] == 2


async def test_queues_counted_together_are_reported_as_one(desk, store):
    desk.raw.hset(keys.counts(desk.base), mapping={"* dead jobs": 3, "* wait 5": 2, "* wait ms": 7})
    found = samples(await exposition(await read_statistics(store)))
    assert (found["sublet_jobs_finished_total", "*", "dead"], found["sublet_job_wait_seconds_sum", "*"]) == (
        3,
        0.007,
    )
    assert not [key for key in found if key[0] == "sublet_jobs"]


@pytest.mark.real_server
async def test_partitions_are_summed(place, raw):
    wide = Store(
        Settings(redis_url=place.settings.redis_url, namespace=place.settings.namespace, partitions=3)
    )
    await wide.submit([wide.operations.submission("t", b"{}", f"queue-{i}", "") for i in range(8)])
    found = samples(await exposition(await read_statistics(wide)))
    await wide.aclose()
    assert found["sublet_jobs_submitted_total",] == 8
    assert sum(found["sublet_jobs", *sorted((f"queue-{i}", "queued"))] for i in range(8)) == 8


async def test_the_handler_answers_in_the_text_format(store):
    call = Call(store, Principal("prometheus", frozenset()), Request("GET", "/metrics"), None, None, {})
    reply = await metrics(call)
    assert (reply.status, reply.headers["Content-Type"]) == (200, MEDIA_TYPE)
    assert b"# TYPE sublet_jobs gauge" in reply.body


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (apt-get install prometheus)"
)
@pytest.mark.real_server
async def test_promtool_accepts_the_metrics(desk, store):
    await populate(desk)
    text = await exposition(await read_statistics(store))
    command = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
