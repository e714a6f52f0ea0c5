"""Read a stored workflow, cancel it, and retry it."""

import pytest

from sublet import App, Invalid, Options, State
from sublet.client.sync_client import SyncClient
from sublet.errors import Changed, NotFound, WrongState
from sublet.operations.orders.bulk import Selection
from sublet.protocol import keys, verbs
from sublet.protocol.person import acting_for
from sublet.workflows import reading, storing
from sublet.workflows.storing import Linked, WorkflowResult


@pytest.fixture
def work(app: App):
    """An app with one task."""

    @app.task(queue="q")
    async def page(number: int) -> int:
        return number

    return page


async def finish(desk, *failing, most=100):
    """Work until no job can start: those with a number in `failing` die."""
    for _ in range(most):
        leases = await desk.claim(50)
        for lease in leases:
            if any(f'"number":{number}}}' in lease.payload.decode() for number in failing):
                await desk.fail(lease, again=False)
            else:
                await desk.complete(lease, lease.payload)
        if not leases and not (await desk.reap())[2]:
            return


async def every_member(flow, limit, meanwhile=None, **how):
    found, cursor = [], None
    while True:
        page = await flow.get(limit, cursor, **how)
        assert len(page.members) <= limit
        found += [one.id for one in page.members]
        if not page.cursor:
            return found
        cursor = page.cursor
        if meanwhile:
            await meanwhile(found)


async def test_a_workflow_shows_its_counts_and_what_its_jobs_wait_for(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(25)]
        index = flow.add(work.job(100), after=pages)
        after = flow.add(work.job(101), after=index, on_failure="run")
    seen = await client.workflow(flow.id).get()
    assert (seen.id, seen.state, seen.ended_at) == (flow.id, "sealed", None)
    assert (seen.unfinished, seen.completed, seen.dead, seen.cancelled) == (27, 0, 0, 0)
    (waiting,) = (one for one in seen.members if one.id == index.id)
    assert (waiting.state, waiting.task, waiting.queue) == (State.SCHEDULED, "page", "q")
    assert (waiting.after, waiting.after_count) == (tuple(one.id for one in pages[:20]), 25)
    assert {one.id: one.awaits for one in seen.members} == {
        **{one.id: None for one in pages},
        index.id: "upstream 25",
        after.id: "upstream 1",
    }
    await finish(desk, 3)
    seen = await flow.get(state="cancelled")
    assert (seen.unfinished, seen.completed, seen.dead, seen.cancelled) == (0, 25, 1, 1)
    assert seen.ended_at is not None
    ((member),) = seen.members
    assert (member.id, member.last_error.code) == (index.id, "upstream")
    assert member.last_error.message == f"job {pages[3].id} is dead"
    assert [one.id for one in (await flow.get(state=["dead"])).members] == [pages[3].id]


async def test_pages_show_each_member_once_while_jobs_end(client, work, desk):
    async with client.workflow() as flow:
        jobs = [flow.add(work.job(number)).id for number in range(130)]
    assert sorted(await every_member(flow, 7)) == sorted(jobs)

    async def one_ends(found):
        # the last one that was shown, so that the place is gone, and one that was not
        for job_id in (
            found[-1],
            next((one for one in sorted(jobs, reverse=True) if one not in found), found[0]),
        ):
            if desk.state(job_id) == "queued":
                await client.cancel(job_id)

    for limit in (1, 7, 100):
        found = await every_member(flow, limit, one_ends)
        assert {*found} == {*jobs}
        assert len(found) <= len(jobs) * 2
    assert sorted(await every_member(flow, 50, state="cancelled")) == sorted(
        one for one in jobs if desk.state(one) == "cancelled"
    )


async def test_deleted_members_are_counted_but_not_shown(client, work, desk):
    async with client.workflow() as flow:
        one, two = flow.add(work.job(1)), flow.add(work.job(2))
    await finish(desk)
    await client.erase(one.id)
    seen = await flow.get()
    assert (seen.completed, [member.id for member in seen.members]) == (2, [two.id])


async def test_a_list_of_jobs_takes_a_workflow_as_a_filter(client, work, desk):
    async with client.workflow() as flow:
        some = [flow.add(work.job(number)).id for number in range(3)]
    await client.submit("page", {"number": 9})
    page = await client.list_jobs(workflow=flow.id)
    assert (sorted(job.id for job in page.jobs), page.cursor) == (sorted(some), None)
    assert {job.workflow for job in page.jobs} == {flow.id}
    await desk.complete(await desk.take(some[0]))
    assert [job.id for job in (await client.list_jobs(state="completed", workflow=flow.id)).jobs] == [some[0]]
    assert len((await client.list_jobs(state="queued", workflow=flow.id)).jobs) == 2
    assert (await client.list_jobs(state="running", workflow=flow.id)).jobs == ()
    assert (await client.list_jobs(workflow="0-none")).jobs == ()
    with pytest.raises(Invalid, match="workflow 'a b': use"):
        await client.list_jobs(workflow="a b")


async def test_an_unknown_workflow_and_a_job_are_told_apart(client, work, desk):
    flow = client.workflow("0-none")
    for call in (flow.get, flow.result, flow.cancel, flow.retry):
        with pytest.raises(NotFound, match="no workflow 0-none: it never existed, or ended over 14 days ago"):
            await call()
    done = await client.submit("page", {"number": 1}, Options(queue="q"))
    for end in (False, True):
        if end:
            await desk.complete(await desk.take(done.id))
        with pytest.raises(Invalid, match=f"{done.id} is a job, not a workflow"):
            await client.workflow(done.id).result(timeout=0)
    for limit in (0, 201):
        with pytest.raises(Invalid, match=f"limit {limit}: use 1 to 200"):
            await flow.get(limit)
    async with client.workflow() as real:
        real.add(work.job(1))
    with pytest.raises(Invalid, match="cursor 'x': use the cursor of the page before"):
        await real.get(cursor="x")


async def test_upstreams_come_in_pages_with_results_and_errors(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(5)]
        index = flow.add(work.job(100), after=pages, on_failure="run")
    await finish(desk, 1)
    await client.erase(pages[2].id)
    operations, store = client.store.operations, client.store
    first = await store.follow(reading.upstream(operations, index.id, 3))
    assert (first.count, [one.id for one in first.upstream]) == (5, [one.id for one in pages[:3]])
    done, dead, gone = first.upstream
    assert (done.state, done.task, done.queue, done.result, done.error) == (
        State.COMPLETED,
        "page",
        "q",
        {"number": 0},
        None,
    )
    assert (dead.state, dead.result, dead.error.code) == (State.DEAD, None, "Boom")
    assert (gone.state, gone.task, gone.result) == ("deleted", None, None)
    rest = await store.follow(reading.upstream(operations, index.id, 3, first.cursor))
    assert ([one.result for one in rest.upstream], rest.cursor) == ([{"number": 3}, {"number": 4}], None)
    hidden = await store.follow(reading.upstream(operations, index.id, results=False))
    assert [one.result for one in hidden.upstream] == [None] * 5
    none = await store.follow(reading.upstream(operations, index.id, within=["other"]))
    assert (none.upstream, none.count) == ((), 5)
    for cursor in ("x", "-1"):
        with pytest.raises(Invalid, match="use the cursor of the page before"):
            await store.follow(reading.upstream(operations, index.id, cursor=cursor))


async def test_a_page_of_upstreams_ends_after_1_mib_of_results(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(8)]
        index = flow.add(work.job(100), after=pages)
    for page in pages:
        await desk.complete(await desk.take(page.id), b'"' + b"x" * 250_000 + b'"')
    plan = reading.upstream(client.store.operations, index.id, 50)
    first = await client.store.follow(plan)
    assert (len(first.upstream), first.cursor) == (4, "4")
    rest = await client.store.follow(reading.upstream(client.store.operations, index.id, 50, first.cursor))
    assert (len(rest.upstream), rest.cursor) == (4, None)


# orders


async def test_a_cancel_ends_all_jobs_of_a_workflow_and_may_be_repeated(client, work, desk):
    async with client.workflow() as flow:
        first = [flow.add(work.job(number)) for number in range(230)]
        second = flow.add(work.job(300), after=first[:3])
        flow.add(work.job(301), after=second, on_failure="run")
    (lease,) = await desk.claim(1)
    counts = await flow.cancel()
    assert (counts["requested"], counts.keys() <= {"requested", "cancelled", "cascaded", "unchanged"}) == (
        1,
        True,
    )
    others = [one.id for one in (*first, second) if one.id != lease.id]
    assert {desk.state(job_id) for job_id in others} == {"cancelled"}
    assert await flow.cancel() == {"requested": 1}
    await desk.fail(lease)
    assert await flow.result(timeout=1) == WorkflowResult(0, 0, 232)
    assert await flow.cancel() == {}


async def test_a_job_that_is_claimed_meanwhile_is_cancelled_all_the_same(client, work, desk):
    async with client.workflow() as flow:
        flow.add(work.job(1))
    operations, wanted = client.store.operations, Selection(workflow=flow.id)
    plan, reply, claimed = operations.order_page("cancel", wanted), None, False
    with pytest.raises(StopIteration) as ended:  # noqa: PT012  # a plan is run by hand
        call = next(plan)
        while True:
            if "requested" in call.text and not claimed:
                claimed = bool(await desk.claim(1))
            try:
                reply = await client.store.run(call)
            except Changed as error:
                call = plan.throw(error)
            else:
                call = plan.send(reply)
    assert claimed
    assert [one.answer for one in ended.value.value.outcomes] == ["requested"]


async def test_a_retry_of_a_workflow_retries_the_causes_only(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(3)]
        index = flow.add(work.job(100), after=pages)
        last = flow.add(work.job(101), after=index)
    await finish(desk, 1)
    assert desk.state(last.id) == "cancelled"
    assert await flow.retry() == {"queued": 1}
    await desk.reap()
    assert [desk.state(one.id) for one in (*pages, index, last)] == [
        "completed",
        "queued",
        "completed",
        "scheduled",
        "scheduled",
    ]
    await finish(desk)
    assert await flow.result() == WorkflowResult(5, 0, 0)
    assert await flow.retry() == {}


async def test_a_cancel_starts_no_callback_and_a_retry_waits_for_all_again(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)._replace(id=f"0--{number}")) for number in range(3)]
        callbacks = [flow.add(work.job(100), after=pages, on_failure="run") for _ in range(20)]
        last = flow.add(work.job(101), after=callbacks[0], on_failure="run")
    (dead,) = await desk.claim(1)
    await desk.fail(dead, again=False)
    assert (await flow.cancel()).keys() <= {"cancelled", "cascaded", "unchanged"}
    waiting = (*callbacks, last)
    assert all("needs" in desk.job(job.id) for job in waiting), "none was started meanwhile"
    await flow.retry()
    await desk.reap()
    assert [(await client.get(job.id)).awaits for job in waiting] == ["upstream 3"] * 20 + ["upstream 1"]
    await finish(desk)
    assert await flow.result() == WorkflowResult(24, 0, 0)


async def test_an_order_for_jobs_of_one_state_leaves_the_others(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(3)]
        index = flow.add(work.job(100), after=pages)
    await client.order_page("cancel", Selection(workflow=flow.id, state="scheduled"))
    assert [desk.state(job.id) for job in (*pages, index)] == ["queued"] * 3 + ["cancelled"]


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_cancel_a_retry_runs_all_jobs_in_their_order(client, work, desk, seed):
    """Whatever order the ids have: a job that was cancelled by itself waits for the upstreams that were, too."""
    numbers = [*range(6)]
    async with client.workflow() as flow:
        jobs = [work.job(number)._replace(id=f"0-{(number * 5 + seed) % 6}") for number in numbers]
        for number, job in enumerate(jobs):
            flow.add(job, after=[each.id for each in jobs[max(0, number - 2) : number]])
    assert (await flow.cancel()).keys() <= {"cancelled", "cascaded", "unchanged"}
    await flow.retry()
    await desk.reap()
    ran = []
    for _ in numbers:
        (lease,) = await desk.claim(5)
        ran.append(lease.id)
        await desk.complete(lease)
    assert ran == [job.id for job in jobs]
    assert await flow.result() == WorkflowResult(6, 0, 0)


async def test_a_job_whose_cause_is_deleted_is_retried_itself(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        second = flow.add(work.job(2), after=first)
    await finish(desk, 1)
    await client.erase(first.id)
    assert await flow.retry() == {"queued": 1}
    assert desk.state(second.id) == "queued"


async def test_a_job_that_another_workflow_holds_back_stays_until_that_is_retried(client, work, desk):
    async with client.workflow() as other:
        cause = other.add(work.job(1))
    async with client.workflow() as flow:
        job = flow.add(work.job(2), after=cause)
    await finish(desk, 1)
    assert await flow.retry() == {}
    assert desk.state(job.id) == "cancelled"
    assert await other.retry() == {"queued": 1}
    assert desk.state(job.id) == "scheduled"


async def test_an_open_workflow_is_closed_by_a_cancel_and_not_retried(client, work, desk):
    one = [Linked(work.job(1))]
    await desk.run(storing.workflow(desk.base, "0-open", "open", one))
    flow = client.workflow("0-open")
    assert (await flow.get()).state == "open"
    await flow.cancel()
    assert (await flow.get()).state == "cancelled"
    assert desk.state(one[0].job.id) == "cancelled"
    with pytest.raises(WrongState, match="workflow 0-open was cancelled before all its jobs were stored"):
        await flow.retry()


async def test_an_open_workflow_with_more_jobs_than_were_counted_is_not_closed(client, work, desk):
    jobs = [Linked(work.job(number)) for number in range(3)]
    await desk.run(storing.workflow(desk.base, "0-open", "open", jobs))
    with pytest.raises(Changed, match="3 jobs were found, and 1 expected: nothing was done"):
        await client.order_page("cancel", Selection(workflow="0-open"), expected=1)
    assert (await client.workflow("0-open").get()).state == "open"
    assert {desk.state(one.job.id) for one in jobs} == {"scheduled"}
    await client.order_page("cancel", Selection(workflow="0-open"), expected=3)
    assert {desk.state(one.job.id) for one in jobs} == {"cancelled"}


async def test_an_order_for_a_workflow_is_one_entry_of_the_audit(client, work, desk):
    async with client.workflow() as flow:
        for number in range(250):
            flow.add(work.job(number))
    with acting_for("ada"):
        await flow.cancel()
    (entry,) = (await client.audit()).entries
    assert (entry.by, entry.verb, entry.what, entry.outcome) == (
        "ada",
        "cancel",
        f"workflow={flow.id}",
        "cancelled 250 of 250",
    )


async def test_an_order_by_filter_takes_a_workflow_and_a_state(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        flow.add(work.job(2))
    await desk.complete(await desk.take(first.id))
    page = await client.order_page("erase", Selection(workflow=flow.id))
    assert [one.answer for one in page.outcomes] == ["erased"]
    page = await client.order_page("cancel", Selection(workflow=flow.id, state=State.QUEUED), dry_run=True)
    assert page.found == 1
    assert (await flow.get()).unfinished == 1


@pytest.mark.real_server
def test_the_sync_client_reads_and_orders_too(place, work, raw, base):
    with SyncClient(place.settings) as client:
        with client.workflow() as flow:
            flow.add(work.job(2), after=flow.add(work.job(1)))
        again = client.workflow(flow.id)
        assert again.get().unfinished == 2
        assert sum(again.cancel().values()) >= 1
        assert again.get().cancelled == 2
        assert again.retry() == {"queued": 1, "scheduled": 1} or again.get().unfinished == 2


async def test_a_malformed_workflow_is_named(client, work, desk):
    async with client.workflow() as flow:
        flow.add(work.job(1))
    desk.raw.hset(keys.workflow(desk.base, flow.id), "created_at", "soon")
    with pytest.raises(Exception, match=f"the data of workflow {flow.id} are inconsistent"):
        await flow.get()


async def test_a_retry_waits_for_an_upstream_whose_edges_are_not_restored_yet(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        others = [flow.add(work.job(number), after=first) for number in range(2, 62)]
    for job in others:
        await client.cancel(job.id)
    await finish(desk, 1)
    await client.retry(first.id)  # this call restores 50 of 60 edges
    for job in others:
        assert await desk.run(verbs.retry(desk.base, job.id, 1, "", "all")) in ("scheduled", "cancelled")
    await desk.reap()
    assert {desk.state(job.id) for job in others} == {"scheduled"}


async def test_a_retry_of_all_leaves_a_job_to_the_upstream_that_failed(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        second = flow.add(work.job(2), after=first)
    await client.cancel(second.id)
    await finish(desk, 1)
    assert await desk.run(verbs.retry(desk.base, second.id, 1, "", "all")) == "cancelled"
    assert desk.job(second.id)["cause"] == first.id
    await client.retry(first.id)
    assert desk.state(second.id) == "scheduled"


@pytest.mark.parametrize("width", [120])
async def test_a_retried_job_that_is_completed_at_once_brings_back_all_that_it_cancelled(
    client, work, desk, width
):
    """More edges than a call settles; without any claim between the retry and the end but those of the workers."""
    async with client.workflow() as flow:
        root = flow.add(work.job(0))
        pages = [flow.add(work.job(number + 1), after=root) for number in range(width)]
        flow.add(work.job(999), after=pages)
    await finish(desk, 0)
    assert await flow.result(timeout=1) == WorkflowResult(0, 1, width + 1)
    await client.retry(root.id)
    (lease,) = await desk.claim(1)
    await desk.complete(lease, b"0")
    await finish(desk)
    await finish(desk)  # the last reap may have queued the last job
    assert await flow.result(timeout=1) == WorkflowResult(width + 2, 0, 0)


async def test_a_long_chain_comes_back_whole(client, work, desk):
    async with client.workflow() as flow:
        last = None
        for number in range(130):
            last = flow.add(work.job(number), after=[] if last is None else [last])
    await flow.cancel()
    await flow.retry()
    await finish(desk, most=1000)
    assert await flow.result(timeout=1) == WorkflowResult(130, 0, 0)


async def test_a_workflow_has_not_ended_while_cancelled_jobs_are_still_to_come_back(client, work, desk):
    async with client.workflow() as flow:
        root = flow.add(work.job(0))
        pages = [flow.add(work.job(number + 1), after=root) for number in range(120)]
    await finish(desk, 0)
    await client.retry(root.id)
    (lease,) = await desk.claim(1)
    await desk.complete(lease, b"0")
    back = [page.id for page in pages if desk.state(page.id) in ("scheduled", "queued")]
    assert 0 < len(back) < 120
    for job_id in back:
        await desk.operate("cancel", job_id)
    assert (await flow.get(1)).ended_at is None
    await finish(desk)
    await finish(desk)
    assert await flow.result(timeout=1) == WorkflowResult(121 - len(back), 0, len(back))
