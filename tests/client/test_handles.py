"""Results of many jobs: in order, as they end, without waiting; and handles of earlier jobs."""

import asyncio
import subprocess
import sys
import threading
from datetime import datetime, timedelta

import pytest

from sublet import (
    App,
    Changed,
    Context,
    Invalid,
    JobFailed,
    NotFound,
    Settings,
    State,
    SyncClient,
    WrongState,
)
from sublet.context import current
from sublet.model import Lease, News
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.pages import blocks, page_environment
from tests.support.paths import ROOT

pytestmark = pytest.mark.real_server


@pytest.fixture
async def app(place, store):
    await store.prepare()
    app = App(settings=place.settings)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task(max_attempts=1)
    async def fail(secret: str) -> None:
        raise ValueError("no")

    yield app
    await app.aclose()


async def work(app, store, *queues):
    await Worker(app, store, WorkerConfig(queues=queues or None)).run(drain=True)


async def submitted(app, count):
    double = app.tasks["double"]
    ids = [each.id for each in await app.client.submit_all([double.job(n) for n in range(count)])]
    return [double.handle(job_id) for job_id in ids]


def counted(store, monkeypatch):
    calls, run = [], store.run

    async def counting(call):
        calls.append(call)
        return await run(call)

    monkeypatch.setattr(store, "run", counting)
    return calls


async def test_results_of_many_jobs_are_in_order_and_take_few_calls(app, store, monkeypatch):
    handles = await submitted(app, 120)
    waiting = asyncio.create_task(app.gather(handles, 60))
    await work(app, store)
    assert await waiting == [2 * n for n in range(120)]
    await app.aclose()
    app._client = None
    calls = counted(app.client.store, monkeypatch)
    again = [app.tasks["double"].handle(handle.id) for handle in handles]
    assert await app.gather(again, 60) == [2 * n for n in range(120)]
    assert [outcome.value for outcome in await app.results(handles)] == [2 * n for n in range(120)]
    assert [handle.id async for handle in app.as_completed(handles, 60)] == [handle.id for handle in handles]
    assert len(calls) <= 9 * len(app.operations.bases)


async def test_handles_come_as_their_jobs_end(app, store):
    first, second = [await app.tasks["double"].options(queue=queue).submit(1) for queue in ("a", "b")]
    found = app.as_completed([first, second, second], 60)
    next_one = asyncio.create_task(anext(found))
    await work(app, store, "b")
    async with asyncio.timeout(30):
        assert await next_one is second
    assert await second.result() == 2
    await work(app, store, "a")
    assert [handle async for handle in found] == [first]


async def test_an_error_is_raised_or_returned(app, store):
    good, bad = await app.tasks["double"].submit(1), await app.tasks["fail"].submit("x")
    late = await app.tasks["double"].options(delay=3600).submit(1)
    gone = app.tasks["double"].handle("0-gone")
    await work(app, store)
    with pytest.raises(JobFailed):
        await app.gather([good, bad, late], 60)
    with pytest.raises(TimeoutError, match="1 of 2 jobs have not ended after 0 s; they go on: wait again"):
        await app.gather([good, late], 0)
    with pytest.raises(TimeoutError, match="1 of 2 jobs"):
        _ = [handle async for handle in app.as_completed([good, late], 0)]
    values = await app.gather([good, bad, late, gone, good], 0, return_exceptions=True)
    kinds = [type(value) for value in values]
    assert kinds == [int, JobFailed, TimeoutError, NotFound, int]
    assert await app.gather([]) == []
    outcomes = await app.results([good, bad.id, late.id, "0-gone"])
    assert [outcome.state for outcome in outcomes] == [State.COMPLETED, State.DEAD, State.SCHEDULED, None]
    assert [type(outcome.error) for outcome in outcomes] == [type(None), JobFailed, type(None), NotFound]
    with pytest.raises(Invalid, match="id 'no id': use 1 to 64"):
        await app.results(["no id"])


async def test_a_handle_reschedules_its_job(app, store):
    handle = await app.tasks["double"].submit(4)
    assert await handle.reschedule(delay=timedelta(hours=1), priority=7) == "scheduled"
    job = await handle.get()
    assert (job.priority, job.due_at > job.submitted_at + timedelta(minutes=59)) == (7, True)
    assert await handle.reschedule(run_at=job.submitted_at) == "queued"
    for wrong, words in (
        ({}, "give run_at, delay or priority"),
        ({"run_at": job.submitted_at, "delay": 1}, "run_at and delay: use one of them"),
        ({"run_at": datetime(2030, 1, 31)}, "use a datetime with a time zone"),
        ({"run_at": "2030-01-31T09:00:00Z"}, "use a datetime with a time zone"),
        ({"delay": -1}, "delay -1 s: use 0 s or more"),
        ({"priority": 101}, "priority 101: use a whole number from -100 to 100"),
        ({"priority": True}, "priority True"),
    ):
        with pytest.raises(Invalid, match=words):
            await handle.reschedule(**wrong)
    assert (await handle.get()).revision == 2
    await work(app, store)
    with pytest.raises(WrongState):
        await handle.reschedule(priority=1)


async def test_a_client_reschedules_what_it_saw(app, client):
    handle = await app.tasks["double"].submit(4)
    assert await client.reschedule(handle.id, priority=5, revision=0) == "queued"
    with pytest.raises(Changed):
        await client.reschedule(handle.id, priority=6, revision=0)
    with SyncClient(client.store.settings) as sync:
        assert sync.reschedule(handle.id, delay=60) == "scheduled"
    assert (await client.get(handle.id)).priority == 5


async def test_the_sync_client_gathers_too(app, store):
    double = app.tasks["double"]
    handles = [await asyncio.to_thread(double.submit_sync, n) for n in range(60)]
    found = []
    thread = threading.Thread(target=lambda: found.extend(app.sync.gather(handles, 60)))
    thread.start()
    await work(app, store)
    await asyncio.to_thread(thread.join)
    assert found == [2 * n for n in range(60)]
    assert [outcome.value for outcome in app.sync.results([handles[1].id, "0-gone"])] == [2, None]
    again = double.handle_sync(handles[2].id)
    assert [handle.result() for handle in app.sync.as_completed([again], 60)] == [4]


@pytest.fixture
def waits(app):
    """The reports of waits of a task that runs here."""
    found = []
    lease = Lease("0-1", "1.", 1, 0, "q", "t", None, b"{}", "")
    token = current.set(Context(lease, lambda news, body: found.append((news, body))))
    yield found
    current.reset(token)


async def each_of(app, handle):
    async for _ in app.as_completed([handle], 0.05):
        pass


async def here(call, *args):
    call(*args)


WAYS = {
    ("async", "result"): lambda app, handle: handle.result(0.05),
    ("async", "gather"): lambda app, handle: app.gather([handle], 0.05),
    ("async", "as_completed"): each_of,
    ("sync", "result"): lambda app, handle: here(handle.result, 0.05),
    ("sync", "gather"): lambda app, handle: here(app.sync.gather, [handle], 0.05),
    ("sync", "as_completed"): lambda app, handle: here(list, app.sync.as_completed([handle], 0.05)),
}


@pytest.mark.parametrize("way", ["result", "gather", "as_completed"])
@pytest.mark.parametrize("client", ["async", "sync"])
async def test_a_wait_in_a_task_is_reported_until_it_ends(app, store, waits, way, client):
    (handle,) = await submitted(app, 1)
    if client == "sync":
        handle = app.tasks["double"].handle_sync(handle.id)
    with pytest.raises(TimeoutError):
        await WAYS[client, way](app, handle)
    assert waits == [(News.WAITING, b"1"), (News.WAITING, b"0")]
    await work(app, store)
    waits.clear()
    results = app.gather([handle]) if client == "async" else asyncio.to_thread(app.sync.gather, [handle])
    assert await results == [0]
    assert waits == [], "of a job that has ended"


async def test_handles_of_ids_and_reprs_show_no_payload_and_no_password():
    app = App("redis://:hidden@127.0.0.1:1")

    @app.task(queue="mail")
    async def send(text: str) -> str:
        return text

    assert repr(app) == "<App: 1 tasks>"
    assert repr(send) == "<Task send: queue=mail, run=loop>"
    assert repr(send.handle("0-abc")) == "Handle(id='0-abc', created=False, replaced=False)"
    assert repr(send.handle_sync("0-abc")) == "SyncHandle(id='0-abc', created=False, replaced=False)"
    assert "hidden" not in repr(app)
    assert "namespace sublet at redis://" in repr(app)
    for handle in (send.handle, send.handle_sync):
        with pytest.raises(Invalid, match="id 'a b': use 1 to 64"):
            handle("a b")
    await app.aclose()


def test_the_page_of_results_works_as_written(tmp_path, place, raw):
    for page in ("tutorial/first-task", "guides/results"):
        for name, text in blocks("python", (ROOT / "docs" / f"{page}.md").read_text()):
            (tmp_path / name).write_text(text)
    env = page_environment(tmp_path, place)
    how = {"cwd": tmp_path, "env": env, "text": True, "stdout": subprocess.PIPE}
    worker = subprocess.Popen(["sublet", "work", "tasks:app", "--quiet"], **how)
    try:
        done = subprocess.run([sys.executable, "many.py"], timeout=60, check=True, **how)
        assert done.stdout.split("\n") == ["[1, 2, 3]", "completed 1 NoneType", "None None NotFound", "3", ""]
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


async def test_ids_are_refused_where_handles_are_needed(app, store):
    with pytest.raises(
        Invalid, match=r"'0-abc' is not a Handle: use task.handle\(job_id\), or results\(ids\)"
    ):
        await app.gather(["0-abc"])
    with pytest.raises(Invalid, match=r"'0-abc' is not a SyncHandle: use task.handle_sync\(job_id\)"):
        await asyncio.to_thread(app.sync.gather, ["0-abc"])
    with pytest.raises(Invalid, match="is not a Handle"):
        _ = [handle async for handle in app.as_completed(["0-abc"])]


async def test_a_job_has_its_own_id_and_is_stored_once(app):
    double = app.tasks["double"]
    own = double.options(job_id="order-7", priority=5)
    first, again = await own.submit(7), await own.submit(8)
    behind = await asyncio.to_thread(own.submit_sync, 9)
    assert [(one.id, one.created) for one in (first, again, behind)] == [
        ("0-order-7", True),
        ("0-order-7", False),
        ("0-order-7", False),
    ]
    assert (await app.client.get("0-order-7")).payload == {"n": 7}
    assert own.options(priority=1).job(1).id == "0-order-7", "a copy of the copy keeps it"
    assert own.options(job_id="order-8").job(1).id == "0-order-8"
    assert len({double.job(1).id, double.job(1).id, "0-order-7"}) == 3, "the task itself has none"
    (stored,) = await app.client.submit_all([double.options(job_id="0-order-9").job(1)])
    assert (stored.id, stored.created) == ("0-order-9", True)


@pytest.mark.parametrize("job_id", ["", ".", "a b", "ä", "x" * 63, 7], ids=str)
async def test_an_invalid_id_of_a_job_is_refused(app, job_id):
    own = app.tasks["double"].options(job_id=job_id)
    with pytest.raises(Invalid, match=r"^id "):
        await own.submit(7)
    with pytest.raises(Invalid, match=r"^id "):
        own.job(7)
    with pytest.raises(Invalid, match="unknown option job_id"):
        app.task(job_id="x")(test_an_invalid_id_of_a_job_is_refused)


def test_new_settings_of_an_app_hold_for_all_that_follows(app):
    app.settings = Settings(namespace="one", partitions=1)
    before = app.operations.bases
    app.settings = Settings(namespace="two", partitions=2)
    assert (before, app.operations.bases) == (["{one:0}"], ["{two:0}", "{two:1}"])
