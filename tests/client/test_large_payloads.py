"""Large payloads and results: kept outside Redis, read back by workers and clients, deleted with their jobs."""

import asyncio
import json
import logging
import os
import re
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import redis

from sublet import App, Invalid, JobFailed, Options, Settings, SyncClient
from sublet.errors import PayloadLost, Unavailable
from sublet.execution.large import described
from sublet.large_payloads import Files
from sublet.large_payloads.storage import HOLDERS, ORPHAN_SECONDS, Storage, is_reference
from sublet.model import State
from sublet.protocol import keys
from sublet.store import orphans
from sublet.store.orphans import sweep, sweep_once
from sublet.store.store import Store
from sublet.testing import Sandbox
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from sublet_functions.tick import run_tick
from tests.support import large_tasks as tasks

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures", "tests.support.command_line"]

LIMIT = 256 * 1024
BIG = "ü" * LIMIT
KINDS = [tasks.loop_task, tasks.thread_task, tasks.process_task]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "large")


@pytest.fixture
def large(settings, files):
    """Settings with a files."""
    return replace(settings, large_payloads=files)


@pytest.fixture
def raw(settings):
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
async def store(large):
    store = Store(large)
    yield store
    await store.aclose()


@asynccontextmanager
async def app_in(settings):
    """The app of the tasks with these settings."""
    with tasks.app.using(settings):
        yield tasks.app
        await tasks.app.aclose()


async def drain(settings, app=tasks.app):
    """Run the app's jobs until there are none."""
    store = Store(settings)
    try:
        return await Worker(app, store, WorkerConfig(slots=2, processes=1, name="w")).run(drain=True)
    finally:
        await store.aclose()


@asynccontextmanager
async def working(settings):
    """A worker of the app, while the block runs."""
    store = Store(settings)
    worker = Worker(tasks.app, store, WorkerConfig(slots=2, processes=1, name="w"))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running
        await store.aclose()


def objects(files):
    """The files of a files."""
    return sorted(path for path in files.directory.rglob("*") if path.is_file())


def age(files, seconds):
    """Make all objects that much older."""
    for path in objects(files):
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))


# ── the limit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_error_for_large_arguments_names_task_size_limit_and_both_ways_out():
    words = r"task counts: arguments of 300,011 bytes \(JSON\): at most 262,144 are allowed: store the data elsewhere "
    words += r"and pass a path or a URL, or set large_payloads \(docs/guides/large-payloads.md\)"
    with pytest.raises(Invalid, match=words):
        tasks.counts.job("x" * 300_000)


def test_the_error_for_a_large_result_does_too():
    words = r"task loop_task returned 300,002 bytes \(JSON\): at most 262,144 are allowed: .* or set large_payloads"
    with Sandbox(tasks.app) as sandbox:
        job = tasks.loop_task.submit_sync("x", 300_000)
        sandbox.drain_sync()
        last = sandbox.job(job).attempts[-1]
        assert last.code == "invalid_result"
        assert re.match(words, last.message)


# ── through Redis and workers ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_large_arguments_and_results_pass_every_kind_of_task(large, raw, files, task):
    async with app_in(large):
        handle = await task.submit(BIG)
        key = keys.job(keys.base(large.namespace), handle.id)
        assert len(raw.hget(key, "spec")) < 300
        await drain(large)
        assert await handle.result() == BIG
        assert app_sync_result(large, handle.id) == BIG
        assert len(raw.hget(key, "result")) < 200
        assert raw.hexists(key, "payload") is False
    assert len(objects(files)) == 2


def app_sync_result(settings, job_id):
    with SyncClient(settings) as client:
        return client.result(job_id)


async def test_small_ones_stay_in_redis(large, files):
    async with app_in(large):
        handle = await tasks.loop_task.submit("x" * (LIMIT - 50))
        await drain(large)
        assert await handle.result() == "x" * (LIMIT - 50)
    assert objects(files) == []


async def test_the_threshold_can_be_lower(large, files):
    async with app_in(replace(large, large_above=100)):
        handle = await tasks.loop_task.submit("x" * 101)
        await drain(tasks.app.settings)
        assert await handle.result() == "x" * 101
    assert len(objects(files)) == 2


async def test_many_jobs_and_those_of_sync_clients(large, files):
    async with app_in(large):
        jobs = [tasks.counts.job(BIG + str(i)) for i in range(3)] + [tasks.counts.job("small")]
        submitted = await tasks.app.client.submit_all(jobs)
        one = tasks.counts.submit_sync(BIG)
        assert len(objects(files)) == 4
        await drain(large)
        sizes = [await tasks.app.client.result(each.id) for each in submitted]
        assert sizes == [LIMIT + 1, LIMIT + 1, LIMIT + 1, 5]
        assert one.result() == LIMIT


async def test_a_task_submits_large_jobs_and_reads_large_results(large):
    async with app_in(large):
        handle = await tasks.asks.submit(LIMIT + 7)
        async with working(large):
            assert await handle.result() == LIMIT + 7


async def test_a_result_that_looks_like_a_reference_arrives(large, files):
    async with app_in(large):
        handle = await tasks.like_a_reference.submit()
        await drain(large)
        assert await handle.result() == {"sublet:large": {"bytes": 1, "sha256": "00"}}


@pytest.mark.parametrize("plain", ["thread", "inline", "process"])
def test_a_sandbox_has_a_backend_of_its_own(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(tasks.app, "_large", {"large_payloads": Files(tmp_path / "real")})
    with Sandbox(tasks.app, plain=plain) as sandbox:
        handles = [task.submit_sync(BIG) for task in KINDS]
        sandbox.drain_sync()
        assert [handle.result() for handle in handles] == [BIG] * 3
        assert is_reference(json.dumps(sandbox.job(handles[0]).result, separators=(",", ":")).encode())
    assert not (tmp_path / "real").exists()


async def test_over_http_and_in_commands_the_reference_is_shown(large, raw, shell):
    async with app_in(large):
        handle = await tasks.loop_task.submit(BIG)
        await drain(large)
        job = await handle.get()
        assert job.payload is None
        assert job.result["sublet:large"]["bytes"] == 2 * LIMIT + 2
    shell.env |= {"SUBLET_NAMESPACE": large.namespace, "SUBLET_REDIS_URL": large.redis_url}
    assert shell.json("get", handle.id)["result"] == job.result
    assert "stored outside Redis, 524,290 bytes" in shell.ok("get", handle.id)


async def test_the_http_api_shows_the_reference(asked, large, settings):
    async with app_in(large):
        handle = await tasks.counts.submit(BIG)
        found = (await asked("GET", f"/jobs/{handle.id}")).json()
        assert found["payload"]["sublet:large"]["bytes"] == 2 * LIMIT + 11


# ── lost and damaged objects ─────────────────────────────────────────────────────────────────────────────────────────


def lose(files):
    for path in objects(files):
        path.unlink()


def damage(files):
    for path in objects(files):
        path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
@pytest.mark.parametrize("harm", [lose, damage])
async def test_a_lost_payload_ends_the_job_at_once(large, files, task, harm):
    async with app_in(large):
        handle = await task.submit(BIG)
        harm(files)
        await drain(large)
        with pytest.raises(JobFailed) as caught:
            await handle.result()
        assert caught.value.code == "payload_lost"
        assert handle.id in caught.value.message
        job = await handle.get()
        assert (job.state, job.attempt) == (State.DEAD, 1)


async def test_a_lost_result_is_an_error_of_the_reader(large, files):
    async with app_in(large):
        handle = await tasks.loop_task.submit("x", LIMIT)
        await drain(large)
        damage(files)
        with pytest.raises(PayloadLost, match=f"job {handle.id}: object .* is damaged"):
            await handle.result()
        lose(files)
        with pytest.raises(
            PayloadLost,
            match=f"job {handle.id}: its large .* is missing: Files.* has no object {large.namespace}/",
        ):
            app_sync_result(large, handle.id)


async def values_of(client, ids, handles):
    """The values of jobs, each gathered in every way that reads many."""
    late = [handle async for handle in client.as_completed(handles)]
    return (
        await client.gather(handles),
        [await handle.result() for handle in sorted(late, key=handles.index)],
        [outcome.value for outcome in await client.results(ids)],
        [outcome.value for outcome in await client.results(handles)],
    )


async def test_large_results_of_many_jobs_are_read(large, files):
    async with app_in(large):
        handles = [await tasks.loop_task.submit("x", times) for times in (1, LIMIT + 1)]
        ids, client = [handle.id for handle in handles], tasks.app.client
        await drain(large)
        whole = ["x", "x" * (LIMIT + 1)]
        assert await values_of(client, ids, handles) == (whole,) * 4
        with SyncClient(large) as sync:
            twins = [tasks.loop_task.handle_sync(job_id) for job_id in ids]
            assert sync.gather(twins) == whole
            assert [outcome.value for outcome in sync.results(ids)] == whole
            assert {twin.id: twin.result() for twin in sync.as_completed(twins)} == dict(
                zip(ids, whole, strict=True)
            )


async def test_one_lost_result_among_many_is_the_error_of_its_job(large, files):
    async with app_in(large):
        handles = [await tasks.loop_task.submit("x", times) for times in (1, LIMIT)]
        await drain(large)
        lose(files)
        small, lost = await tasks.app.client.results(handles)
        assert (small.value, lost.state, type(lost.error)) == ("x", State.COMPLETED, PayloadLost)
        small, lost = await tasks.app.gather(handles, return_exceptions=True)
        assert (small, type(lost)) == ("x", PayloadLost)


async def test_a_backend_that_is_away_is_tried_again(large, files):
    async with app_in(large):
        handle = await tasks.counts.options(backoff=2).submit(BIG)
        away = files.directory.with_name("away")
        files.directory.rename(away)
        await drain(large)
        job = await handle.get()
        assert (job.state, job.last_error.code) == (State.SCHEDULED, "Unavailable")
        away.rename(files.directory)
        while (await handle.get()).state is not State.COMPLETED:
            await drain(large)
        assert await handle.result() == LIMIT


async def test_a_worker_without_the_backend_releases_the_job(large, settings):
    async with app_in(large):
        handle = await tasks.counts.submit(BIG)
    async with app_in(settings):
        await drain(settings)
        job = await tasks.app.client.get(handle.id)
        assert (job.state, job.tries_left) == (State.SCHEDULED, 3)
        assert job.attempts[-1].code == "unknown_task"
        assert "this worker has no large_payloads" in job.attempts[-1].message


async def test_a_client_without_the_backend_says_what_it_lacks(large, settings):
    async with app_in(large):
        handle = await tasks.loop_task.submit("x", LIMIT)
        await drain(large)
    with pytest.raises(
        Invalid, match=f"job {handle.id}: its payload or result is stored outside Redis: give"
    ):
        app_sync_result(settings, handle.id)


@pytest.mark.parametrize(
    "forged", ["{}", '{"bytes":1,"sha256":"../../../etc"}', '{"bytes":"x"}', '{"bytes":1,"sha256":7}', "7"]
)
async def test_a_forged_reference_reads_nothing_else(large, settings, forged):
    async with app_in(large):
        with SyncClient(settings) as client:
            job = client.submit("counts", f'{{"sublet:large":{forged}}}')
        await drain(large)
        with pytest.raises(JobFailed, match="payload_lost"):
            app_sync_result(large, job.id)


async def test_a_reference_of_another_job_reads_nothing(large, settings, raw):
    async with app_in(large):
        first = await tasks.counts.submit(BIG)
        reference = raw.hget(keys.job(keys.base(large.namespace), first.id), "spec").partition("\n")[2]
        with SyncClient(settings) as client:
            copied = client.submit("counts", reference)
        await drain(large)
        assert await first.result() == LIMIT
        with pytest.raises(JobFailed, match="payload_lost"):
            app_sync_result(large, copied.id)


async def test_a_submit_that_cannot_store_its_payload_stores_no_job(large, tmp_path):
    (tmp_path / "large").write_text("a file, no directory")
    async with app_in(large):
        with pytest.raises(
            Unavailable,
            match=r"its large payload or result could not be stored in Files.* this user must be able to create",
        ):
            await tasks.counts.submit(BIG)
        assert (await tasks.app.client.list_jobs()).jobs == ()


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_objects_of_jobs_that_exist_stay_however_old(large, files, store):
    async with app_in(large):
        await tasks.counts.submit(BIG)
        age(files, 10 * ORPHAN_SECONDS)
        assert await sweep(store, large.storage) == 0
    assert len(objects(files)) == 1


async def test_objects_go_after_their_job(large, files, store, raw):
    async with app_in(large):
        handle = await tasks.loop_task.submit(BIG)
        await drain(large)
        await handle.result()
        raw.delete(keys.job(keys.base(large.namespace), handle.id))
        assert await sweep(store, large.storage) == 0  # a submit may be on its way
        age(files, ORPHAN_SECONDS + 1)
        assert await sweep(store, large.storage) == 2
    assert objects(files) == []


async def test_the_tick_sweeps_and_so_does_that_of_the_api(large, files, asked):
    large.storage.put("0-gone", b"x")
    large.storage.put("0-fresh", b"x")
    age(files, ORPHAN_SECONDS + 1)
    large.storage.put("0-fresh", b"x")  # a repeated submit makes it new
    with SyncClient(large) as client:
        client.submit("t")
        run_tick(client, by="tick")
    assert [path.name.partition(".")[2] for path in objects(files)] == ["0-fresh"]


async def test_a_worker_sweeps(large, files, monkeypatch):
    monkeypatch.setattr(orphans, "SWEEP_SECONDS", 0.01)
    large.storage.put("0-gone", b"x")
    age(files, ORPHAN_SECONDS + 1)
    async with app_in(large):
        await tasks.counts.submit("x")
        async with working(large), asyncio.timeout(30):
            while objects(files):
                await asyncio.sleep(0.01)


def test_without_a_namespace_nothing_is_deleted(large, files):
    large.storage.put("0-a", b"x")
    age(files, ORPHAN_SECONDS + 1)
    with SyncClient(large) as client:
        assert sweep_once(client.store) == 0
    assert len(objects(files)) == 1


def test_a_sweep_leaves_other_namespaces_alone(large, files):
    other = replace(large, namespace=f"{large.namespace}x")
    other.storage.put("0-a", b"x")
    age(files, ORPHAN_SECONDS + 1)
    with SyncClient(large) as client:
        client.submit("t")
        assert sweep_once(client.store) == 0
    assert len(objects(files)) == 1


def test_a_backend_that_is_away_does_not_end_the_tick(large, files, monkeypatch, caplog):
    def away(*_):
        raise OSError("not mounted")

    monkeypatch.setattr(Files, "scan", away)
    with SyncClient(large) as client, caplog.at_level(logging.WARNING):
        client.submit("t")
        assert run_tick(client, by="tick").rounds == 1
    assert "could not be listed in Files" in caplog.text


async def test_the_payload_of_a_job_whose_key_is_held_is_deleted_at_once(large, files):
    async with app_in(large):
        first = await tasks.counts.options(key="k").submit(BIG)
        again = await tasks.counts.options(key="k").submit(BIG + "2")
        assert (again.id, again.created) == (first.id, False)
        assert [path.name.partition(".")[2] for path in objects(files)] == [first.id]
        assert tasks.counts.options(key="k").submit_sync(BIG).id == first.id
        assert len(objects(files)) == 1


@pytest.mark.parametrize("options", [{"debounce": 0.001}, {"on_conflict": "replace"}], ids=str)
async def test_a_large_payload_replaces_that_of_the_waiting_job(large, files, options):
    async with app_in(large):
        task = tasks.counts.options(key="k", **options)
        first = await task.submit(BIG)
        for text in (BIG + "2", "small", BIG + "33"):
            again = await task.submit(text)
            assert (again.id, again.created, again.replaced) == (first.id, False, True)
        assert {path.name.partition(".")[2] for path in objects(files)} == {first.id}
        last = task.submit_sync(BIG + "444")
        assert (last.id, last.replaced) == (first.id, True)
        await drain(large)
        assert await first.result() == len(BIG) + 3


async def test_a_large_payload_is_never_lost_while_the_holder_of_its_key_changes(large, files, monkeypatch):
    """Between the answer that another job waits and the second try, that job is claimed and ends."""
    async with app_in(large):
        task = tasks.counts.options(key="k", on_conflict="replace")
        first = await task.submit(BIG)
        put, ended = Storage.put, []

        def put_late(storage, job_id, text):
            if job_id == first.id and not ended:
                ended.append(job_id)
                with SyncClient(large) as client:
                    client.cancel(first.id)
            return put(storage, job_id, text)

        monkeypatch.setattr(Storage, "put", put_late)
        again = await task.submit(BIG + "2")
        assert (ended, again.created) == ([first.id], True)
        await drain(large)
        assert await again.result() == len(BIG) + 1


async def test_a_submit_gives_up_when_the_holder_of_its_key_changes_each_time(large, monkeypatch):
    async with app_in(large):
        task = tasks.counts.options(key="k", on_conflict="replace")
        holders = [await task.submit("1")]
        put = Storage.put

        def put_late(storage, job_id, text):
            if job_id == holders[-1].id:
                with SyncClient(replace(large, large_payloads=None)) as client:
                    client.cancel(job_id)
                    options = Options(key="k", on_conflict="replace")
                    holders.append(client.submit(task.name, {"text": "1"}, options))
            return put(storage, job_id, text)

        monkeypatch.setattr(Storage, "put", put_late)
        with pytest.raises(Unavailable, match="its key passed to other jobs"):
            await task.submit(BIG)
        assert len(holders) == HOLDERS + 1


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_environment_names_a_directory_or_a_bucket(monkeypatch, tmp_path):
    monkeypatch.setenv("SUBLET_LARGE_PAYLOADS", str(tmp_path))
    monkeypatch.setenv("SUBLET_LARGE_ABOVE", "1000")
    settings = Settings.read()
    assert (settings.large_payloads.directory, settings.large_above) == (tmp_path, 1000)
    assert App().storage().backend.directory == tmp_path
    given = Files(tmp_path / "own")
    assert App(large_payloads=given).settings.large_payloads is given


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "SUBLET_LARGE_PAYLOADS",
            "relative/dir",
            "SUBLET_LARGE_PAYLOADS='relative/dir': .*use an absolute path",
        ),
        ("SUBLET_LARGE_PAYLOADS", "s3://", "use the bucket's name alone"),
        (
            "SUBLET_LARGE_ABOVE",
            "300000",
            "SUBLET_LARGE_ABOVE 300000: use a whole number of bytes from 1 to 262,144",
        ),
    ],
)
def test_bad_settings_are_refused(monkeypatch, name, value, words):
    monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match=words):
        Settings.read()


def test_bad_arguments_of_an_app_are_refused():
    with pytest.raises(
        Invalid, match="large_payloads='/tmp': it has no put, get, delete, scan: use Files, S3, or an"
    ):
        App(large_payloads="/tmp")
    with pytest.raises(Invalid, match="large_above 0: use a whole number"):
        App(large_above=0)


def test_where_nobody_uses_it_nothing_is_read(monkeypatch):
    monkeypatch.setattr(Settings, "read", None)
    assert App().storage() is None
    assert Settings().storage is None


class OneSided:
    """A backend without objects, which fails to store, and notes the numbers of names that it is to delete."""

    def __init__(self):
        self.deleted = []

    def put(self, name, text):
        raise KeyError("bucket")

    def get(self, name):
        raise KeyError(name)

    def delete(self, names):
        self.deleted.append(len(names))

    def scan(self, prefix, after, limit):
        return []


def test_a_deletion_has_at_most_1000_objects():
    storage = Storage(OneSided(), "ns")
    storage.delete([f"ns/{i}" for i in range(2500)])
    storage.delete([])
    assert storage.backend.deleted == [1000, 1000, 500]


def test_a_key_error_means_a_missing_object_only_when_one_is_read():
    storage = Storage(OneSided(), "ns")
    with pytest.raises(
        Unavailable, match=r"job 0-a: its large payload or result could not be stored in .*KeyError"
    ):
        storage.put("0-a", b"text")
    with pytest.raises(PayloadLost, match="has no object ns/"):
        storage.get("0-a", b'{"sublet:large":{"bytes":4,"sha256":"%s"}}' % (b"a" * 64))


def test_a_backend_in_the_given_settings_is_the_apps_own(tmp_path):
    """Child processes and sandboxes look for it there."""
    own = Files(tmp_path)
    app = App(settings=Settings(large_payloads=own))
    assert app.large_payloads is own
    assert described(app.storage(), [app]) == {"namespace": "sublet", "above": 262_144, "address": None}
    with Sandbox(app):
        assert isinstance(app.settings.large_payloads, Files)
    app.settings = Settings()
    assert app.large_payloads is None
    later = App()
    later.settings = Settings(large_payloads=own)
    assert later.large_payloads is own
