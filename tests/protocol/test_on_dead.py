"""on_dead: each dead job is reported by one job."""

import json

import pytest

from sublet.errors import Invalid
from sublet.protocol import verbs
from tests.faults.simulation.hook_ids import hook_id


async def report(desk, value, queue="q", others=""):
    return await desk.operate_queue("configure", queue, None, f"{others} on_dead={value}".strip())


def reports(desk):
    """Dead job → the report's queue, task, payload, id."""
    found = {}
    for name in desk.raw.scan_iter(f"{desk.base}:job:*", count=1000):
        spec = desk.raw.hget(name, "spec")
        header, _, payload = spec.partition("\n")
        queue, task, _, *rules = header.split(" ")
        dead = dict(rule.split("=") for rule in rules).get("death")
        if dead:
            assert dead not in found
            found[dead] = (queue, task, json.loads(payload), name.rpartition("}:job:")[2])
    return found


async def test_a_discarded_job_is_reported_with_its_facts(desk):
    await report(desk, "alerts/died")
    lease = await desk.running("a")
    await desk.fail(lease, again=False, code="ValueError")
    queue, task, payload, job_id = reports(desk)["a"]
    assert (queue, task) == ("alerts", "died")
    assert payload == {"id": "a", "queue": "q", "task": "t", "code": "ValueError", "attempts": 1}
    assert job_id == hook_id("a", lease.token)
    assert desk.members("queue:alerts") == [job_id]
    assert desk.events()[-1] == (job_id, "queued", "on_dead")
    assert desk.raw.hget(f"{desk.base}:queues", "alerts") == ""
    assert desk.counter("submitted") == 2


async def test_a_report_runs_in_the_dead_jobs_queue_unless_one_is_named(desk):
    await report(desk, "died")
    await desk.fail(await desk.running("a"), again=False)
    assert reports(desk)["a"][:2] == ("q", "died")


async def test_a_queues_own_setting_is_used_before_the_partitions(desk):
    await report(desk, "all/died", "*")
    await desk.fail(await desk.running("a"), again=False)
    await report(desk, "own/died")
    await desk.fail(await desk.running("b"), again=False)
    assert {i: found[0] for i, found in reports(desk).items()} == {"a": "all", "b": "own"}


async def test_without_the_setting_no_death_is_reported(desk):
    await desk.fail(await desk.running("a"), again=False)
    assert (desk.state("a"), reports(desk)) == ("dead", {})


async def fails(desk):
    await desk.fail(await desk.running("a", rules="tries=1"))


async def expires(desk):
    await desk.running("a", rules="tries=1")
    desk.elapse(31)
    await desk.reap()


async def expires_before_a_claim(desk):
    await desk.running("a", rules="tries=1")
    desk.elapse(31)
    await desk.claim(worker="other", queues=["other"])


async def is_unknown(desk):
    await desk.submit("a")
    for _ in range(20):
        desk.elapse(61)
        await desk.reap()
        await desk.release((await desk.claim())[0], code="unknown_task")


async def is_released_too_often(desk):
    await desk.submit("a", rules="tries=1")
    for _ in range(101):
        await desk.release((await desk.claim())[0])


async def loses_its_worker(desk):
    lease = await desk.running("a", rules="tries=1", worker="gone")
    await desk.run(verbs.reconcile(desk.base, "gone", "life", [(lease.id, lease.attempt)]))


@pytest.mark.parametrize(
    ("death", "code"),
    [
        (fails, "Boom"),
        (expires, "lease_expired"),
        (expires_before_a_claim, "lease_expired"),
        (is_unknown, "unknown_task"),
        (is_released_too_often, "released"),
        (loses_its_worker, "crashed"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_death_in_any_way_is_reported_once(desk, death, code):
    await report(desk, "alerts/died")
    await death(desk)
    assert desk.state("a") == "dead"
    assert {i: found[2]["code"] for i, found in reports(desk).items()} == {"a": code}


async def test_a_cancelled_job_is_not_reported(desk):
    await report(desk, "alerts/died")
    lease = await desk.running("a", rules="tries=1")
    await desk.operate("cancel", "a")
    await desk.fail(lease)
    assert (desk.state("a"), reports(desk)) == ("cancelled", {})


async def test_a_repeated_failure_is_reported_once(desk):
    await report(desk, "alerts/died")
    lease = await desk.running("a")
    assert [await desk.fail(lease, again=False) for _ in range(2)] == ["dead", "dead"]
    assert len(desk.members("queue:alerts")) == 1
    assert desk.counter("submitted") == 2


async def test_each_death_of_a_revived_job_is_reported(desk):
    await report(desk, "alerts/died")
    await desk.fail(await desk.running("a"), again=False)
    (first,) = desk.members("queue:alerts")
    await desk.operate("retry", "a")
    await desk.fail((await desk.claim(queues=["q"]))[0], again=False)
    assert len(set(desk.members("queue:alerts")) - {first}) == 1


@pytest.mark.parametrize("setting", ["died", "alerts/died"])
async def test_the_death_of_a_report_is_not_reported(desk, setting):
    await report(desk, setting)
    await report(desk, "died", "*")
    await desk.fail(await desk.running("a"), again=False)
    (job_id,) = [found[3] for found in reports(desk).values()]
    (lease,) = await desk.claim(queues=["q", "alerts"])
    assert lease.id == job_id
    assert await desk.fail(lease, again=False) == "dead"
    assert (sorted(desk.members("dead")), list(reports(desk))) == (sorted(["a", job_id]), ["a"])


async def test_a_report_is_stored_above_the_limits_of_its_queue(desk):
    lease = await desk.running("a")
    await report(desk, "died", others="jobs=0 bytes=0")
    await desk.fail(lease, again=False)
    assert list(reports(desk)) == ["a"]
    assert desk.backlog()[0] == 1
    await desk.complete((await desk.claim())[0])
    assert desk.backlog() == (0, 0)


async def test_a_report_is_tried_twenty_times(desk):
    await report(desk, "died")
    await desk.fail(await desk.running("a"), again=False)
    (lease,) = await desk.claim()
    assert await desk.fail(lease) != "dead"
    assert desk.job(lease.id)["tries_left"] == "19"


async def test_a_report_wakes_a_worker_of_its_queue(desk):
    await report(desk, "alerts/died")
    await desk.fail(await desk.running("a"), again=False)
    assert desk.raw.llen(f"{desk.base}:wake:alerts") == 1


async def test_an_own_job_with_the_id_of_a_report_is_not_replaced(desk):
    await report(desk, "alerts/died")
    lease = await desk.running("a")
    job_id = hook_id("a", lease.token)
    await desk.submit(job_id)
    assert await desk.fail(lease, again=False) == "dead"
    assert (desk.members("queue:alerts"), desk.job(job_id)["spec"].split()[1]) == ([], "t")


@pytest.mark.parametrize("value", ["a/b/c", "/t", "q/", "no good", "", "a%b", "t" * 129])
async def test_an_invalid_setting_is_refused(desk, value):
    with pytest.raises(Invalid, match=r"on_dead=TASK or on_dead=QUEUE/TASK"):
        await report(desk, value)
    with pytest.raises(Invalid, match=r"each once"):
        await report(desk, "t", others="on_dead=t")


# clients


async def test_a_client_sets_and_removes_the_setting_and_keeps_limits(store, raw):
    operations = store.operations
    await store.follow(operations.configure("q", jobs=5))
    assert (
        await store.follow(operations.configure("q", on_dead="alerts/died")) == "jobs=5 on_dead=alerts/died"
    )
    queue = await store.follow(operations.queue("q"))
    assert (queue.limits, queue.on_dead) == ({"jobs": 5}, "alerts/died")
    assert await store.follow(operations.configure("q", jobs=None)) == "on_dead=alerts/died"
    await store.follow(operations.pause("q"))
    assert (await store.follow(operations.queue("q"))).on_dead == "alerts/died"
    assert await store.follow(operations.configure("q", on_dead=None)) == ""
    for wrong in ("a/b/c", "no good", ""):
        with pytest.raises(Invalid, match=r"use TASK or QUEUE/TASK"):
            await store.follow(operations.configure("q", on_dead=wrong))
