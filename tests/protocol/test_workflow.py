"""workflow: jobs that wait for others, and the workflows of which they are members."""

import pytest

from sublet.errors import WrongState
from sublet.model import Completion, Submission
from sublet.protocol import keys, verbs
from sublet.workflows import storing
from sublet.workflows.storing import Linked

HOUR = 3600
DAY = 24 * HOUR
NEVER = 99999999999999


def job(job_id, *after, rules="", into=(), queue="q"):
    return Linked(Submission(job_id, queue, "t", rules, b"{}"), after, into)


async def store(desk, *jobs, flow="f", how="seal"):
    return await desk.run(storing.workflow(desk.base, flow, how, jobs))


async def end(desk, job_id, how="complete"):
    lease = await desk.take(job_id)
    await (desk.complete(lease) if how == "complete" else desk.fail(lease, again=False))


async def reap(desk, most=50):
    """Tick until nothing is left."""
    for _ in range(most):
        if not (await desk.reap())[2]:
            return
    raise AssertionError("edges are left")


def states(desk, *ids):
    return [desk.state(job_id) for job_id in ids]


def flow_of(desk, flow="f"):
    return desk.raw.hgetall(keys.workflow(desk.base, flow))


def members(desk, flow="f"):
    return dict(desk.raw.zrange(keys.members(desk.base, flow), 0, -1, withscores=True))


# order


async def test_a_job_runs_when_all_its_upstreams_have_completed(desk):
    answer = await store(desk, job("a"), job("b"), job("c", "a", "b"), job("d", "c"))
    assert [(one.id, one.created) for one in answer] == [("a", True), ("b", True), ("c", True), ("d", True)]
    assert (desk.score("scheduled", "c"), desk.job("c")["needs"]) == (NEVER, "2")
    await end(desk, "a")
    assert states(desk, "a", "b", "c", "d") == ["completed", "queued", "scheduled", "scheduled"]
    await end(desk, "b")
    assert states(desk, "c", "d") == ["queued", "scheduled"]
    assert desk.wake_ups() == 1
    await end(desk, "c")
    await end(desk, "d")
    assert members(desk) == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert desk.backlog() == (0, 0)
    assert not desk.raw.keys(f"{desk.base}:downstream:*")
    assert desk.raw.lrange(keys.upstream(desk.base, "c"), 0, -1) == ["a", "b"]


async def test_one_completion_of_all_upstreams_queues_a_job_once(desk):
    await store(desk, *(job(f"u{i}") for i in range(5)), job("d", *(f"u{i}" for i in range(5))))
    leases = await desk.claim(5)
    await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in leases]))
    assert states(desk, "d") == ["queued"]
    assert [event for event in desk.events() if event[0] == "d"] == [
        ("d", "scheduled", "submitted"),
        ("d", "queued", "upstream"),
    ]


@pytest.mark.parametrize("stage", ["scheduled", "queued", "running"])
async def test_a_job_waits_for_one_outside_of_its_workflow(desk, stage):
    await desk.submit("a", rules="delay=1000" if stage == "scheduled" else "")
    lease = await desk.take("a") if stage == "running" else None
    await store(desk, job("b", "a"))
    if stage == "scheduled":
        await desk.operate("promote", "a")
    await desk.complete(lease or await desk.take("a"))
    assert states(desk, "b") == ["queued"]


async def test_a_job_with_edges_needs_no_workflow(desk):
    await desk.submit("a")
    await store(desk, job("b", "a"), flow="")
    await end(desk, "a")
    assert states(desk, "b") == ["queued"]
    assert not desk.raw.keys(f"{desk.base}:workflow:*")


async def test_a_lost_lease_ends_a_job_for_those_that_wait(desk):
    await store(desk, job("a", rules="tries=1"), job("b", "a"))
    await desk.take("a", lease=1)
    desk.elapse(2)
    await desk.reap()
    assert states(desk, "a", "b") == ["dead", "cancelled"]


async def test_a_delay_begins_when_the_job_is_due(desk):
    await store(desk, job("a"), job("b", "a", rules="delay=60000"), job("c", "a"))
    desk.elapse(100)
    await end(desk, "a")
    assert 59_000 < desk.score("scheduled", "b") - desk.now() <= 60_000
    desk.elapse(61)
    assert {lease.id for lease in await desk.claim(2)} == {"b", "c"}


async def test_the_wait_for_upstreams_is_not_a_wait_in_the_queue(desk):
    """What `wait` counts begins at the moment in `at`."""
    await store(desk, job("a"), job("b", "a"))
    before = desk.now()
    await end(desk, "a")
    (at,) = [word for word in desk.job("b")["spec"].split("\n")[0].split() if word.startswith("at=")]
    assert before <= int(at[3:]) <= desk.now()


# failures


async def test_a_failure_cancels_what_follows_and_names_the_cause(desk):
    await store(desk, job("a"), job("b", "a"), job("c", "b"))
    await end(desk, "a", "fail")
    assert (desk.state("b"), desk.job("b")["cause"], desk.job("b")["error"]) == (
        "cancelled",
        "a",
        "upstream job a is dead",
    )
    await reap(desk)
    assert (desk.state("c"), desk.job("c")["cause"], desk.job("c")["error"]) == (
        "cancelled",
        "b",
        "upstream job b is cancelled",
    )
    assert members(desk) == {"a": 2, "b": 3, "c": 3}
    assert "ended_at" in flow_of(desk)


async def test_with_run_a_job_runs_on_any_end(desk):
    await store(desk, job("a"), job("b"), job("c"), job("d", "a", "b", "c", rules="on_failure=run"))
    await end(desk, "a", "fail")
    await desk.operate("cancel", "b")
    assert states(desk, "d") == ["scheduled"]
    await end(desk, "c")
    assert states(desk, "d") == ["queued"]


async def test_with_hold_a_job_waits_for_the_retry_of_its_upstream(desk):
    await store(desk, job("a"), job("b", "a", rules="on_failure=hold"))
    await end(desk, "a", "fail")
    assert (desk.state("b"), desk.job("b")["cause"]) == ("scheduled", "a")
    assert desk.score("scheduled", "b") == desk.score("dead", "a")
    await desk.operate("retry", "a")
    assert (desk.state("b"), desk.job("b").get("cause"), desk.score("scheduled", "b")) == (
        "scheduled",
        None,
        NEVER,
    )
    await end(desk, "a")
    assert states(desk, "b") == ["queued"]


async def test_a_held_job_is_cancelled_when_its_upstream_cannot_be_retried_any_more(desk):
    await store(desk, job("a"), job("b", "a", rules="on_failure=hold"))
    await end(desk, "a", "fail")
    desk.elapse(15 * DAY)
    await desk.reap()
    assert (desk.state("b"), desk.job("b")["error"]) == (
        "cancelled",
        "upstream job a cannot be retried any more",
    )


async def test_a_retry_of_the_cause_brings_back_what_it_cancelled(desk):
    await store(desk, job("a"), job("b", "a"), job("c", "b"), job("x"), job("d", "a", "x"))
    await end(desk, "a", "fail")
    await reap(desk)
    assert states(desk, "b", "c", "d") == ["cancelled"] * 3
    assert desk.backlog()[0] == 1
    assert await desk.operate("retry", "a") == "queued"
    await reap(desk)
    assert states(desk, "a", "b", "c", "d") == ["queued", "scheduled", "scheduled", "scheduled"]
    assert desk.backlog()[0] == 5
    assert (members(desk)["c"], desk.job("c").get("error")) == (0, None)
    assert "ended_at" not in flow_of(desk)
    for name in ("x", "a", "b", "d", "c"):
        await end(desk, name)
    assert set(members(desk).values()) == {1}


async def test_a_job_with_two_failed_upstreams_waits_until_both_are_retried(desk):
    await store(desk, job("a"), job("b"), job("c", "a", "b"))
    await end(desk, "a", "fail")
    await end(desk, "b", "fail")
    assert await desk.operate("retry", "a") == "queued"
    assert (desk.state("c"), desk.job("c")["cause"]) == ("cancelled", "b")
    assert await desk.operate("retry", "b") == "queued"
    assert (states(desk, "c"), desk.job("c")["needs"]) == (["scheduled"], "2")


async def test_a_job_that_two_upstreams_hold_names_the_one_that_was_not_retried(desk):
    await store(desk, job("a"), job("b"), job("c", "a", "b", rules="on_failure=hold"))
    await end(desk, "a", "fail")
    await end(desk, "b", "fail")
    assert desk.job("c")["cause"] == "b"
    await desk.operate("retry", "b")
    assert desk.job("c")["cause"] == "a"
    await end(desk, "b")
    await desk.operate("retry", "a")
    assert "cause" not in desk.job("c")
    await end(desk, "a")
    assert states(desk, "c") == ["queued"]


async def test_a_job_that_a_person_cancelled_is_not_brought_back(desk):
    await store(desk, job("a"), job("b", "a"))
    await desk.operate("cancel", "b")
    await end(desk, "a", "fail")
    await desk.operate("retry", "a")
    assert states(desk, "b") == ["cancelled"]


async def test_a_retry_of_a_cancelled_job_waits_for_what_it_still_needs(desk):
    await store(desk, job("a"), job("b"), job("c", "a", "b"))
    await desk.operate("cancel", "c")
    await end(desk, "a")
    assert await desk.operate("retry", "c") == "scheduled"
    await end(desk, "b")
    assert states(desk, "c") == ["queued"]


async def test_a_retry_after_all_upstreams_have_ended_queues_the_job(desk):
    await store(desk, job("a"), job("b", "a"))
    await desk.operate("cancel", "b")
    await end(desk, "a")
    assert await desk.operate("retry", "b") == "queued"


async def test_a_person_may_run_a_job_in_spite_of_a_failed_upstream(desk):
    await store(desk, job("a"), job("b", "a"))
    await end(desk, "a", "fail")
    assert await desk.operate("retry", "b") == "queued"
    await desk.operate("retry", "a")
    lease = await desk.take("b")
    await desk.fail(lease)
    await end(desk, "a")
    assert states(desk, "b") == ["scheduled"], "it waits for its own backoff"


async def test_a_promoted_job_runs_once(desk):
    await store(desk, job("a"), job("b", "a"))
    await desk.operate("promote", "b")
    (a, b) = await desk.claim(2)
    await desk.complete(b)
    await desk.complete(a)
    assert states(desk, "a", "b") == ["completed", "completed"]


async def test_a_promoted_job_keeps_its_backoff(desk):
    await store(desk, job("a"), job("b", "a"))
    await desk.operate("promote", "b")
    (a, b) = await desk.claim(2)
    await desk.fail(b)
    await desk.complete(a)
    assert states(desk, "b") == ["scheduled"]


async def test_a_waiting_job_gets_no_moment_but_another_priority(desk):
    await store(desk, job("a"), job("b", "a"))
    with pytest.raises(WrongState, match="job b waits for other jobs: promote it"):
        await desk.operate("reschedule", "b", None, "delay=0")
    assert await desk.operate("reschedule", "b", None, "priority=5") == f"scheduled {NEVER}"
    await end(desk, "a")
    assert states(desk, "b") == ["queued"]


async def test_a_job_gives_up_when_it_has_waited_for_too_long(desk):
    await store(desk, job("a"), job("b", "a", rules="give_up=60000"), job("c", "b", rules="on_failure=run"))
    desk.elapse(61)
    await desk.reap()
    await reap(desk)
    assert (desk.state("b"), desk.job("b")["error"]) == (
        "cancelled",
        "upstream_timeout it waited for too long",
    )
    assert "cause" not in desk.job("b")
    assert states(desk, "c") == ["queued"]


# many edges


async def test_a_call_settles_50_edges_and_the_next_ones_the_rest(desk):
    await desk.submit("a")
    for i in range(0, 125, 25):
        await store(desk, *(job(f"d{j}", "a") for j in range(i, i + 25)), flow="")
    await end(desk, "a")
    assert len(desk.members("queue:q")) == 50
    assert desk.raw.zscore(keys.structure(desk.base, "scheduled"), ">a")
    assert (await desk.reap())[2]
    assert len(desk.members("queue:q")) == 100
    assert not (await desk.reap())[2]
    assert len(desk.members("queue:q")) == 125
    assert desk.members("scheduled") == []


async def test_a_job_is_not_erased_before_its_end_has_reached_all_that_wait(desk):
    ids = [f"c{i}" for i in range(60)]
    await store(desk, job("a"), *(job(job_id, "a") for job_id in ids))
    await end(desk, "a")
    with pytest.raises(WrongState, match="has downstream jobs that its end has not reached yet"):
        await desk.operate("erase", "a", 1)
    await reap(desk)
    assert await desk.operate("erase", "a", 1) == "erased"
    assert {*states(desk, *ids)} == {"queued"}


async def test_what_waits_for_the_retry_of_an_erased_job_is_cancelled(desk):
    ids = [f"c{i}" for i in range(60)]
    await store(desk, job("a"), *(job(i, "a", rules="on_failure=hold") for i in ids), job("d", *ids))
    await end(desk, "a", "fail")
    await reap(desk)
    assert {*states(desk, *ids, "d")} == {"scheduled"}
    assert await desk.operate("erase", "a", 1) == "erased"
    await reap(desk)
    assert {*states(desk, *ids, "d")} == {"cancelled"}
    assert desk.job("c0")["error"] == "upstream job a is gone"
    assert not desk.raw.exists(keys.downstream(desk.base, "a"))


async def test_a_retry_while_edges_are_left_to_be_broken_brings_all_back(desk):
    await desk.submit("a")
    for i in range(0, 75, 25):
        await store(desk, *(job(f"d{j}", "a") for j in range(i, i + 25)), flow="")
    await end(desk, "a", "fail")
    assert len(desk.members("cancelled")) == 50
    await desk.operate("retry", "a")
    await reap(desk)
    assert len(desk.members("cancelled")) == 0
    await end(desk, "a")
    await reap(desk)
    assert len(desk.members("queue:q")) == 75


# open workflows


async def test_the_jobs_of_an_open_workflow_wait_until_it_is_sealed(desk):
    await store(desk, job("a"), job("b", "a"), how="open")
    await desk.submit("outside")
    await store(desk, job("c", "outside"), how="open")
    await end(desk, "outside")
    assert await desk.claim(5) == []
    assert states(desk, "a", "b", "c") == ["scheduled"] * 3
    await store(desk, job("d"))
    assert {lease.id for lease in await desk.claim(5)} == {"a", "c", "d"}
    assert desk.members("scheduled") == ["b"]


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_workflow_that_is_not_sealed_is_cancelled(desk, how):
    await store(desk, job("a", rules="on_failure=run"), job("b", "a", rules="on_failure=hold"), how="open")
    if how == "timeout":
        desk.elapse(HOUR - 1)
        await desk.reap()
        assert states(desk, "a") == ["scheduled"]
        desk.elapse(2)
        await desk.reap()
    else:
        await store(desk, how="cancel")
        assert await store(desk, how="cancel") == []
    assert (desk.state("a"), desk.job("a")["error"]) == (
        "cancelled",
        "unsealed the workflow f was not sealed",
    )
    assert (desk.state("b"), flow_of(desk)["state"]) == ("scheduled", "cancelled")
    assert desk.raw.hget(keys.counts(desk.base), "q cancelled jobs") == "1"
    assert await store(desk) == "WRONG_STATE workflow f was cancelled, or not sealed within an hour"
    await desk.operate("cancel", "b")
    assert "ended_at" in flow_of(desk)


async def test_a_sealed_workflow_is_not_cancelled_after_an_hour(desk):
    await store(desk, job("a"), how="open")
    await store(desk)
    assert desk.members("scheduled") == []
    desk.elapse(HOUR + 1)
    await desk.reap()
    assert (flow_of(desk)["state"], states(desk, "a")) == ("sealed", ["queued"])


async def test_an_open_workflow_does_not_end(desk):
    await store(desk, how="open")
    await store(desk, job("a"), how="open")
    await desk.operate("promote", "a")
    await end(desk, "a")
    assert "ended_at" not in flow_of(desk)
    await store(desk)
    assert "ended_at" in flow_of(desk)


async def test_an_empty_workflow_ends_when_it_is_sealed_or_given_up(desk):
    await store(desk)
    await store(desk, flow="g", how="open")
    desk.elapse(HOUR + 1)
    await desk.reap()
    assert ("ended_at" in flow_of(desk), "ended_at" in flow_of(desk, "g")) == (True, True)
    desk.elapse(15 * DAY)
    assert not desk.raw.keys(f"{desk.base}:workflow:*")


async def test_the_end_of_a_workflow_is_published_and_expires(desk):
    subscriber = desk.raw.pubsub()
    subscriber.subscribe(keys.ended(desk.base))
    assert subscriber.get_message(timeout=5)["type"] == "subscribe"
    await store(desk, job("a"), job("b", "a"))
    await end(desk, "a")
    assert desk.raw.pttl(keys.members(desk.base, "f")) == -1
    await end(desk, "b")
    assert [subscriber.get_message(timeout=5)["data"] for _ in "ab"] == ["a", "f"]
    subscriber.close()
    names = [keys.workflow(desk.base, "f"), keys.members(desk.base, "f"), keys.upstream(desk.base, "b")]
    assert all(0 < desk.raw.pttl(name) <= 14 * DAY * 1000 for name in names)


async def test_a_retry_makes_an_ended_workflow_go_on(desk):
    await store(desk, job("a"), job("b", "a"))
    await end(desk, "a", "fail")
    await desk.operate("retry", "a")
    names = [keys.workflow(desk.base, "f"), keys.members(desk.base, "f"), keys.upstream(desk.base, "b")]
    assert [desk.raw.pttl(name) for name in names] == [-1, -1, -1]
    assert (members(desk), "ended_at" in flow_of(desk)) == ({"a": 0, "b": 0}, False)


# what grows


async def test_a_running_job_adds_jobs_that_a_waiting_one_waits_for(desk):
    await store(desk, job("a"), job("merge", "a"), job("last", "merge"))
    lease = await desk.take("a")
    await store(desk, job("part1", into=["merge"]), job("part2", "a", into=["merge"]))
    await desk.complete(lease)
    assert states(desk, "part1", "part2", "merge") == ["queued", "queued", "scheduled"]
    await end(desk, "part1")
    await end(desk, "part2")
    assert states(desk, "merge") == ["queued"]
    assert desk.raw.lrange(keys.upstream(desk.base, "merge"), 0, -1) == ["a", "part1", "part2"]


async def test_an_ended_workflow_takes_no_more_jobs(desk):
    await store(desk, job("a"))
    await end(desk, "a")
    assert await store(desk, job("b")) == "WRONG_STATE workflow f has ended"


# what is kept


async def test_a_result_that_others_waited_for_is_kept_for_7_days(desk):
    await store(desk, job("a", rules="retention=60000"), job("b", "a"), job("c", rules="retention=60000"))
    await end(desk, "a")
    await end(desk, "c")
    kept = [desk.score("completed", name) - desk.now() for name in "ac"]
    assert (kept[0] > 6.99 * DAY * 1000, kept[1] <= 60_000) == (True, True)


async def test_a_watch_does_not_hide_that_others_wait(desk):
    await store(desk, job("a"), job("b", "a"))
    await desk.watch("a")
    await end(desk, "a")
    assert states(desk, "b") == ["queued"]


async def test_a_repair_keeps_what_settles_edges_and_lets_jobs_wait(desk):
    await store(desk, job("a"), job("b", "a"), how="open")
    before = desk.members("scheduled")
    seen = [("scheduled", name) for name in before]
    assert await desk.run(verbs.repair(desk.base, "mend", seen)) == ["sound"] * 3
    assert desk.members("scheduled") == before
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), "b")
    (fault,) = await desk.run(verbs.repair(desk.base, "mend", [("job", "b")]))
    assert fault.startswith("placed scheduled ")
    assert desk.score("scheduled", "b") == NEVER


# refusals


async def refused(desk, *jobs, **how):
    """The refusal of a call, which stores nothing."""
    before = desk.everything()
    answer = await store(desk, *jobs, **how)
    assert desk.everything() == before
    assert isinstance(answer, str), answer
    return answer


async def test_an_edge_that_cannot_be_stored_is_named(desk):
    await end_of(desk, "done")
    await desk.submit("x")
    await store(desk, job("w", "x"), job("v", "w"))
    assert (
        await refused(desk, job("a"), job("b", "none"))
        == "NOT_FOUND edge none to b: none is neither above it nor stored"
    )
    assert (
        await refused(desk, job("b", "c"), job("c", "b"))
        == "NOT_FOUND edge c to b: c is neither above it nor stored"
    )
    assert await refused(desk, job("b", "done")) == "WRONG_STATE edge done to b: done is completed"
    assert await refused(desk, job("b", into=["none"])) == "NOT_FOUND edge b to none: none is not stored"
    assert await refused(desk, job("b", into=["x"])) == "WRONG_STATE edge b to x: x does not wait for jobs"
    cycle = "INVALID edge b to w: b waits for jobs that wait, and w has a downstream, so that it could close a cycle"
    assert await refused(desk, job("b", "v", into=["w"])) == cycle
    assert await refused(desk, job("c", "w"), job("b", "c", into=["w"])) == cycle
    assert isinstance(await store(desk, job("b", "v"), job("c", "x", into=["w"])), list)


async def end_of(desk, job_id):
    await desk.submit(job_id)
    await end(desk, job_id)


async def test_a_job_above_its_own_upstream_closes_no_cycle_by_an_edge_into_it(desk):
    await desk.submit("x")
    await store(desk, job("w", "x"))
    assert "could close a cycle" in await refused(desk, job("b", "w", into=["w"]))


@pytest.mark.parametrize(("text", "rules"), [
    ("INVALID rule on_failure=skip: use cancel, run or hold", "on_failure=skip"),
    ("INVALID rules of job b: its id is unique, so leave out key", "key=k"),
    ("INVALID rules of job b: its id is unique, so leave out key; workflow", "workflow=other"),
    ("INVALID job b: rule tries=0: use a number from 1", "tries=0"),
])  # fmt: skip
async def test_invalid_rules_are_refused(desk, text, rules):
    assert (await refused(desk, job("a"), job("b", "a", rules=rules))).startswith(text)


async def test_a_full_queue_refuses_the_whole_call(desk):
    await desk.operate_queue("configure", "q", None, "jobs=2")
    answer = await refused(desk, job("a"), job("b", "a"), job("c", "b"))
    assert answer == "QUEUE_FULL job c: queue q may hold 2 jobs and has 2"


async def test_too_many_edges_are_refused(desk):
    ids = [f"u{i}" for i in range(199)]
    jobs = [*(job(one) for one in ids), job("d", *ids)]
    assert isinstance(await store(desk, *jobs), list)
    many = [job(f"e{i}", *ids[:101]) for i in range(5)]
    assert await refused(desk, *many) == "INVALID edges: a call takes up to 500, not 505"


async def test_a_repeated_call_stores_nothing_more(desk):
    jobs = [job("a"), job("b", "a"), job("c", into=["b"])]
    await store(desk, *jobs[:2], how="open")
    await store(desk, jobs[2], how="open")
    before = desk.everything()
    assert [one.created for one in await store(desk, *jobs, how="open")] == [False] * 3
    assert desk.everything() == before
    await store(desk)
    assert [one.created for one in await store(desk, *jobs, how="open")] == [False] * 3


async def test_an_id_of_another_job_is_refused(desk):
    await desk.submit("a")
    assert await refused(desk, job("a")) == "INVALID job a exists, and is not a member"
    assert await refused(desk, job("b"), job("b")) == "INVALID job b is given twice"


@pytest.mark.parametrize(
    ("flow", "how"),
    [("", "open"), ("", "cancel"), ("a b", "seal"), ("x" * 65, "seal"), ("f", "close"), ("f", "")],
)
async def test_an_invalid_workflow_or_word_is_refused(desk, flow, how):
    assert (await refused(desk, flow=flow, how=how)).startswith("INVALID workflow: use an id of 1 to 64 of ")


async def test_states_that_do_not_allow_a_call_are_refused(desk):
    assert await refused(desk, how="cancel") == "NOT_FOUND no workflow f"
    await store(desk, job("a"))
    assert await refused(desk, how="cancel") == "WRONG_STATE workflow f is sealed"
    assert await refused(desk, job("b"), how="open") == "WRONG_STATE workflow f is sealed"
