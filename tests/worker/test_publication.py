"""A worker publishes its tasks at its start and renews them, over Redis and over HTTP."""

import asyncio
import json
import logging

import pytest

from sublet import App
from sublet.errors import Unavailable
from sublet.protocol import keys
from sublet.store.store import Store
from sublet.tasks import catalogue
from sublet.tasks.catalogue import Publication, TaskInfo, describe, description
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

pytest_plugins = ["tests.support.job_sources"]

app = App()
UNSET = object()


@app.task(queue="mail", timeout=None, backoff=5, durability="replicated")
async def send(to: str, copies: tuple[str, ...] = ()) -> bool:
    """Send a mail."""
    return bool(to and copies)


@app.task
async def plain(x, y=UNSET):
    return x, y


async def published(store):
    return await store.follow(catalogue.published(store.operations.bases[0]))


@pytest.mark.real_server
async def test_a_worker_publishes_its_tasks_when_it_starts(source, store):
    await Worker(app, source, WorkerConfig(slots=1, commands=True)).run(drain=True)
    found = await published(store)
    assert sorted(found) == ["command", "plain", "send"]
    assert found["send"].summary == "Send a mail."
    assert found["send"].options.queue == "mail"
    assert (found["send"].options.timeout, found["send"].options.durability) == (None, "replicated")
    assert found["send"].options.backoff == {"first": 5, "factor": 1, "cap": 5}
    assert found["send"].arguments["properties"]["copies"]["default"] == []
    assert found["send"].result == {"type": "boolean"}
    assert found["plain"].arguments["required"] == ["x"]
    assert found["send"] == describe("send", app.tasks["send"])


@pytest.mark.real_server
async def test_workers_over_redis_and_over_http_publish_the_same(source, store):
    await Worker(app, store, WorkerConfig(slots=1)).run(drain=True)
    changes = await store.run(catalogue.revision(store.operations.bases[0]))
    await Worker(app, source, WorkerConfig(slots=1)).run(drain=True)
    assert await store.run(catalogue.revision(store.operations.bases[0])) == changes == 2


async def test_a_worker_that_starts_again_writes_nothing(store, raw, base):
    await Worker(app, store, WorkerConfig(slots=1)).run(drain=True)
    before = raw.hgetall(keys.tasks(base)), raw.zrange(keys.catalogue(base), 0, -1, withscores=True)
    await Worker(app, store, WorkerConfig(slots=1)).run(drain=True)
    assert (raw.hgetall(keys.tasks(base)), raw.zrange(keys.catalogue(base), 0, -1, withscores=True)) == before


class Sent(list):
    """Collects what is sent: the names, and whether the worker is starting."""

    failure = None

    async def __call__(self, tasks, starting):
        if self.failure:
            raise self.failure
        self.append(([task.task for task in tasks], starting))


async def finished(publication):
    await publication.aclose()


async def test_tasks_are_sent_again_when_an_hour_has_passed(monkeypatch):
    sent, now = Sent(), [100.0]
    monkeypatch.setattr(catalogue.time, "monotonic", lambda: now[0])
    publication = Publication(sent, app.tasks)
    for _ in range(3):
        publication.renew()
        await finished(publication)
    now[0] += catalogue.RENEWAL * 1.1
    publication.renew()
    await finished(publication)
    assert sent == [(["send", "plain"], True), (["send", "plain"], False)]


async def test_a_failed_publication_is_tried_again_and_logged_once(monkeypatch, caplog):
    sent, now = Sent(), [100.0]
    sent.failure = Unavailable("no answer")
    monkeypatch.setattr(catalogue.time, "monotonic", lambda: now[0])
    publication = Publication(sent, app.tasks)
    for failure in (Unavailable("no answer"), Unavailable("no answer"), None):
        sent.failure = failure
        publication.renew()
        await finished(publication)
        now[0] += catalogue.RETRY
    assert sent == [(["send", "plain"], True)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_publication_delays_the_end_of_a_worker_by_a_second_at_most(monkeypatch):
    started = asyncio.Event()

    async def hang(tasks, starting):
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(catalogue, "PATIENCE", 0.01)
    publication = Publication(hang, app.tasks)
    publication.renew()
    await started.wait()
    await publication.aclose()


async def test_a_worker_without_the_right_to_publish_works(store, monkeypatch, caplog):
    async def refuse(self, tasks, starting):
        raise Unavailable("not allowed")

    monkeypatch.setattr(Store, "publish", refuse)
    await store.submit([app.tasks["plain"].job(1, 2)])
    summary = await Worker(app, store, WorkerConfig(slots=1)).run(drain=True)
    assert summary.completed == 1
    assert "could not be published" in caplog.text


def test_a_description_that_is_too_long_loses_its_schemas():
    long = {"description": "x" * 5000}
    info = TaskInfo(name="t", summary="s", arguments=long, result=long)
    assert json.loads(description(info).text)["result"] is None
    assert json.loads(description(info).text)["arguments"] == long
    longer = info.model_copy(update={"arguments": {"description": "x" * 9000}})
    assert json.loads(description(longer).text)["arguments"] is None
    assert json.loads(description(longer).text)["summary"] == "s"


def test_equal_descriptions_have_equal_digests():
    one, other = TaskInfo(name="a", summary="s"), TaskInfo(name="b", summary="s")
    assert description(one).digest == description(other).digest
    assert description(one).digest != description(TaskInfo(name="a", summary="t")).digest


def test_options_survive_the_catalogue():
    for task in app.tasks.values():
        info = describe("t", task)
        again = TaskInfo.model_validate_json(info.model_dump_json()).options.options()
        assert again.rules() == task.defaults.rules()
        assert (again.queue, again.durability) == (task.defaults.queue, task.defaults.durability)
