"""Processes that may be frozen between two requests: who asks for workers is answered when they have been called."""

import asyncio

import pytest

from sublet_functions.adapters import summon_first as module
from sublet_functions.adapters.summon_first import SummonFirst, summon_first
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from tests.support.http_server import SECONDS, Held, ask, fronting, serving

pytest_plugins = ["tests.support.http_settings"]


@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "not"])
async def test_a_submit_is_answered_after_its_workers_are_called_where_that_is_asked_for(
    settings, monkeypatch, prompt
):
    monkeypatch.setenv("SUBLET_INVOKE_PRIVATE", "1")
    monkeypatch.setenv("SUBLET_SIGNING_SECRETS", "a-secret-of-the-tests")
    held = Held()
    async with (
        fronting(held) as (_, target),
        serving(settings, summon_first=prompt) as url,
        asyncio.timeout(SECONDS),
    ):
        pool = {"queues": ["q"], "invoker": "http", "target": f"{target}/work"}
        assert (await ask(url, "PUT", "/pools/p", pool)).status == 201
        submitting = asyncio.create_task(ask(url, "POST", "/jobs", {"task": "t", "queue": "q"}))
        await held.asked.wait()
        if not prompt:
            assert (await submitting).status == 201
        else:
            assert (await ask(url, "GET", "/healthz")).status == 200, "others are answered meanwhile"
            assert not submitting.done()
        held.go.set()
        assert (await submitting).status == 201


async def test_what_cannot_be_called_holds_an_answer_back_for_some_seconds_only(monkeypatch, caplog):
    monkeypatch.setattr(module, "SUMMON_SECONDS", 0.05)

    class Never:
        prompt, nudged = False, 0

        async def settle(self):
            await asyncio.Event().wait()

    class Core:
        async def answer(self, request):
            never.nudged += request.path == "/jobs"
            return Response(200, b"!")

    never = Never()
    core = SummonFirst(Core(), never)
    assert (await core.answer(Request("GET", "/"))).body == b"!"
    assert not caplog.text, "it calls nobody"
    assert (await core.answer(Request("POST", "/jobs"))).body == b"!"
    assert "could not be summoned" in caplog.text


async def test_an_answer_that_is_kept_back_is_undone_when_its_caller_leaves():
    begun, notes = asyncio.Event(), []

    class Slow:
        nudged = 0

        async def settle(self):
            begun.set()
            await asyncio.Event().wait()

    async def undo():
        notes.append("undone")

    async def claimed():
        slow.nudged += 1
        return Response(200, b"!", on_unsent=undo)

    slow = Slow()
    answering = asyncio.create_task(summon_first(slow, claimed()))
    async with asyncio.timeout(SECONDS):
        await begun.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert notes == ["undone"]
