"""OpenTelemetry where a plain function runs: each child process traces with a provider of its own."""

import json
import os

import pytest

from tests.support import traced_tasks
from tests.support.workers_beside import ended

pytestmark = pytest.mark.real_server


@pytest.fixture
def child_spans(tmp_path, monkeypatch, place):
    """The spans that were written to a file, with the process that wrote each."""
    path = tmp_path / "spans"
    monkeypatch.setenv("SUBLET_TEST_SPANS", str(path))
    for app in (traced_tasks.app, traced_tasks.batched):
        app.settings = place.settings
        app._operations = None

    def read():
        lines = [line.partition(" ") for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(pid), json.loads(text)) for pid, _, text in lines]

    return read


@pytest.fixture
async def run(store, raw):
    """Have a worker run some handles' jobs to their end, and give them as they are then."""
    yield lambda app, *handles: ended(app, store, *handles)
    for app in (traced_tasks.app, traced_tasks.batched):
        await app.aclose()
        app._client = None


async def test_a_task_in_a_child_is_traced_there(child_spans, run, place):
    handle = await traced_tasks.submits_from_a_child.submit(
        place.settings.redis_url, place.settings.namespace
    )
    (job,) = await run(traced_tasks.app, handle)
    spans = [(pid, span) for pid, span in child_spans() if "messaging.system" in span["attributes"]]
    found = {(span["name"], span["attributes"]["messaging.message.id"]): (pid, span) for pid, span in spans}
    own, send = found["send default", handle.id]
    pid, process = found["process default", handle.id]
    again, nested = found["send default", job.result]
    assert (own, pid == again, pid != own) == (os.getpid(), True, True)
    assert [link["context"]["span_id"] for link in process["links"]] == [send["context"]["span_id"]]
    assert nested["context"]["trace_id"] == process["context"]["trace_id"]


async def test_a_failure_in_a_child_is_recorded_and_a_killed_child_records_nothing(child_spans, run):
    failing, stuck = (
        await traced_tasks.fails_in_a_child.submit(),
        await traced_tasks.stuck_in_a_child.submit(),
    )
    await run(traced_tasks.app, failing, stuck)
    ends = {
        span["attributes"]["messaging.message.id"]: span
        for _, span in child_spans()
        if span["name"] == "process default"
    }
    assert list(ends) == [failing.id]
    assert ends[failing.id]["attributes"]["error.type"] == "LookupError"
    assert ends[failing.id]["events"][0]["attributes"]["exception.message"] == "not there"


async def test_an_idle_child_sends_its_last_spans_when_the_worker_stops(child_spans, run):
    (job,) = await run(traced_tasks.batched, await traced_tasks.in_a_batch.submit())
    assert [pid for pid, span in child_spans() if span["name"] == "process default"] == [job.result]
