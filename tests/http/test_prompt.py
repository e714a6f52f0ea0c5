"""Platforms that may freeze a process between requests: a submit is answered after the workers were invoked."""

import asyncio

import pytest

from sublet_functions.adapters import summon_first as module
from sublet_functions.adapters.summon_first import SummonFirst, summon_first
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from tests.support.http_server import SECONDS, Held, ask, fronting, serving

pytest_plugins = ["tests.support.http_settings"]


@pytest.mark.parametrize("prompt", [True, False], ids=["after the invocation", "at once"])
async def test_a_submit_is_answered_after_the_invocation_if_configured(settings, monkeypatch, prompt):
    monkeypatch.setenv("SUBLET_INVOKE_PRIVATE", "local")
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
            assert (await ask(url, "GET", "/healthz")).status == 200, "other requests are answered meanwhile"
            assert not submitting.done()
        held.go.set()
        assert (await submitting).status == 201


async def test_a_hanging_invocation_delays_a_response_by_a_few_seconds_at_most(monkeypatch, caplog):
    monkeypatch.setattr(module, "SUMMON_SECONDS", 0.05)

    class Never:
        prompt, nudged = False, 0

        async def finish(self):
            await asyncio.Event().wait()

    class Core:
        async def answer(self, request):
            never.nudged += request.path == "/jobs"
            return Response(200, b"!")

    never = Never()
    core = SummonFirst(Core(), never)
    assert (await core.answer(Request("GET", "/"))).body == b"!"
    assert not caplog.text, "it invokes no worker"
    assert (await core.answer(Request("POST", "/jobs"))).body == b"!"
    assert "could not be summoned" in caplog.text


async def test_a_delayed_response_is_undone_when_its_client_disconnects():
    begun, notes = asyncio.Event(), []

    class Slow:
        nudged = 0

        async def finish(self):
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
