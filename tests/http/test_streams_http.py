"""`POST /jobs/{id}/emit` and `GET /jobs/{id}/stream`: chunks over HTTP, as events and as pages."""

import asyncio
import json

import aiohttp

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers import stream as module
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request
from tests.support.http_server import ask, serving
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]
EVENTS = {"Accept": "text/event-stream"}


async def running(asked, **how):
    """A claimed job: its id and token."""
    job_id = (await asked("POST", "/jobs", {"task": "t", **how})).json()["id"]
    (job,) = (await asked("POST", "/jobs/claim", {"queues": [how.get("queue", "default")]})).json()["jobs"]
    assert job["id"] == job_id
    return job_id, job["token"]


async def emitted(asked, job_id, token, *chunks, **how):
    answer = await asked("POST", f"/jobs/{job_id}/emit", {"token": token, "chunks": chunks, **how})
    assert answer.status == 200, answer.json()
    return answer.json()


def parsed(text):
    """The events of a stream: id, name, data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


async def body_of(response):
    """The whole text of a streamed response."""
    return b"".join([piece async for piece in response.body]).decode()


async def read(url, job_id, enough=lambda events: False, **headers):
    """Read a stream until it ends, or has enough."""
    text = ""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/jobs/{job_id}/stream", headers=EVENTS | headers) as answer,
    ):
        if answer.status != 200:
            return answer.status
        assert answer.content_type == "text/event-stream"
        async for piece in answer.content.iter_any():
            text += piece.decode()
            if text.endswith("\n\n") and enough(parsed(text)):
                break
    return parsed(text)


async def test_chunks_are_read_in_pages(asked):
    job_id, token = await running(asked)
    assert await emitted(asked, job_id, token, "Hel", {"n": 1}) == {"id": job_id, "state": "running"}
    page = (await asked("GET", f"/jobs/{job_id}/stream")).json()
    assert page == {
        "id": job_id,
        "state": "running",
        "chunks": [{"id": "2", "attempt": 1, "value": "Hel"}, {"id": "3", "attempt": 1, "value": {"n": 1}}],
        "cursor": "3",
        "missed": False,
    }
    assert (await asked("GET", f"/jobs/{job_id}/stream?after=3")).json()["chunks"] == []
    page = (await asked("GET", f"/jobs/{job_id}/stream?limit=1&after=2")).json()
    assert ([chunk["value"] for chunk in page["chunks"]], page["cursor"]) == ([{"n": 1}], "3")


async def test_a_repeated_emit_adds_its_chunks_once(asked):
    job_id, token = await running(asked)
    for _ in range(2):
        await emitted(asked, job_id, token, "a", "b", before=0)
    page = (await asked("GET", f"/jobs/{job_id}/stream")).json()
    assert [chunk["value"] for chunk in page["chunks"]] == ["a", "b"]


async def test_a_page_waits_for_a_chunk_or_the_end(asked):
    job_id, token = await running(asked)
    path = f"/jobs/{job_id}/stream?wait=20&after="
    async with asyncio.timeout(15):
        waiting = asyncio.create_task(asked("GET", f"{path}0"))
        await asyncio.sleep(0.1)
        await emitted(asked, job_id, token, "a")
        assert [chunk["value"] for chunk in (await waiting).json()["chunks"]] == ["a"]
        waiting = asyncio.create_task(asked("GET", f"{path}2"))
        await asyncio.sleep(0.1)
        await asked("POST", f"/jobs/{job_id}/complete", {"token": token, "result": 1})
        last = (await waiting).json()
        assert (last["state"], last["chunks"], last["cursor"]) == ("completed", [], "2")


async def test_a_ghost_a_missing_job_and_invalid_chunks_are_refused(asked):
    job_id, token = await running(asked)
    body = {"token": "1.of-a-ghost", "chunks": ["a"]}
    ghost = await asked("POST", f"/jobs/{job_id}/emit", body)
    assert (ghost.status, ghost.problem) == (409, "lease-lost")
    assert (await asked("POST", "/jobs/0-none/emit", body)).problem == "not-found"
    assert (await asked("GET", "/jobs/0-none/stream")).problem == "not-found"
    large = await asked("POST", f"/jobs/{job_id}/emit", {"token": token, "chunks": ["a", "x" * 70_000]})
    assert (large.status, large.json()["errors"][0]["pointer"]) == (422, "#/chunks/1")
    for chunks in ([], ["a"] * 101):
        assert (await asked("POST", f"/jobs/{job_id}/emit", {"token": token, "chunks": chunks})).status == 422
    invalid = await asked("GET", f"/jobs/{job_id}/stream?after=yesterday")
    assert (invalid.status, "use the id of an event" in invalid.json()["errors"][0]["detail"]) == (422, True)


async def test_a_browser_reads_along_to_the_end(settings):
    async with serving(settings) as url, asyncio.timeout(30):

        async def asked(method, path, body=None, **how):
            return await ask(url, method, path, body, **how)

        job_id, token = await running(asked)
        reading = asyncio.create_task(read(url, job_id))
        for word in ("Hel", "lo\n", " wörld"):
            await emitted(asked, job_id, token, word)
        await asked("POST", f"/jobs/{job_id}/complete", {"token": token, "result": 1})
        events = await reading
        assert events == [
            ("1", "attempt", {"attempt": 1}),
            ("2", "chunk", "Hel"),
            ("3", "chunk", "lo\n"),
            ("4", "chunk", " wörld"),
            ("4-end", "end", {"id": job_id, "state": "completed", "job": f"/jobs/{job_id}"}),
        ]
        assert await read(url, job_id, **{"Last-Event-ID": "2"}) == events[2:]
        assert await read(url, job_id, **{"Last-Event-ID": "4"}) == events[4:]
        assert await read(url, job_id, **{"Last-Event-ID": "4-end"}) == 204


async def test_a_stream_marks_the_next_attempt(settings):
    async with serving(settings) as url, asyncio.timeout(30):

        async def asked(method, path, body=None, **how):
            return await ask(url, method, path, body, **how)

        job_id, token = await running(asked)
        await emitted(asked, job_id, token, "a")
        await asked("POST", f"/jobs/{job_id}/release", {"token": token})
        (again,) = (await asked("POST", "/jobs/claim", {})).json()["jobs"]
        await emitted(asked, job_id, again["token"], "b")
        await asked("POST", f"/jobs/{job_id}/complete", {"token": again["token"]})
        names = [(name, data) for _, name, data in await read(url, job_id)]
        assert names[:4] == [
            ("attempt", {"attempt": 1}),
            ("chunk", "a"),
            ("attempt", {"attempt": 2}),
            ("chunk", "b"),
        ]


async def test_a_reader_that_comes_back_too_late_is_told_so(settings):
    async with serving(settings) as url, asyncio.timeout(60):

        async def asked(method, path, body=None, **how):
            return await ask(url, method, path, body, **how)

        job_id, token = await running(asked)
        for _ in range(101):
            await emitted(asked, job_id, token, *["x"] * 100)
        await asked("POST", f"/jobs/{job_id}/complete", {"token": token})
        events = await read(url, job_id, **{"Last-Event-ID": "5"})
        assert events[0] == ("", "trimmed", {"attempt": 1})
        assert int(events[1][0]) > 6
        assert events[-2][0] == "10101"


async def test_a_page_begins_with_the_last_entries_if_asked(settings):
    asked = asker(Api(Store(settings), Tokens()))
    job_id, token = await running(asked)
    path = f"/jobs/{job_id}/stream"
    empty = (await asked("GET", f"{path}?last=2")).json()
    assert (empty["chunks"], empty["cursor"]) == ([], "0")
    await emitted(asked, job_id, token, *"abcdef")
    page = (await asked("GET", f"{path}?last=2")).json()
    assert ([one["value"] for one in page["chunks"]], page["missed"]) == (["e", "f"], False)
    after = (await asked("GET", f"{path}?last=2&after=3")).json()
    assert [one["value"] for one in after["chunks"]] == ["c", "d", "e", "f"]
    whole = (await asked("GET", f"{path}?last=100")).json()
    assert [one["value"] for one in whole["chunks"]] == list("abcdef")
    assert (await asked("GET", f"{path}?last=0")).status == 422


async def test_keep_alives_are_comments(settings, monkeypatch):
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.0)
    monkeypatch.setattr("sublet.store.waiting.streams.REREAD", 0.01)
    api = Api(Store(settings), Tokens())
    job_id, _ = await running(asker(api))
    request = Request(
        "GET", f"/jobs/{job_id}/stream", headers={"host": "localhost", "accept": "text/event-stream"}
    )
    async with asyncio.timeout(20):
        response = await api.answer(request)
        pieces = [await anext(response.body) for _ in range(3)]
        await response.body.aclose()
    assert pieces == [b"retry: 2000\n\n", b":\n\n", b":\n\n"]
    await api.aclose()


async def test_open_streams_are_limited(settings, monkeypatch):
    monkeypatch.setattr(module, "STREAMS_MAX", 1)
    api = Api(Store(settings), Tokens())
    job_id, _ = await running(asker(api))
    request = Request(
        "GET", f"/jobs/{job_id}/stream", headers={"host": "localhost", "accept": "text/event-stream"}
    )
    first = await api.answer(request)
    second = await asker(api)("GET", f"/jobs/{job_id}/stream", accept="text/event-stream")
    assert (second.status, second.problem, second.headers["retry-after"]) == (503, "busy", "1")
    assert (await asker(api)("GET", f"/jobs/{job_id}/stream")).status == 200
    await first.body.aclose()
    await api.aclose()


async def test_values_are_hidden_from_the_role_read_alone_and_jobs_outside_the_queues(settings):
    boss, eye, seer, out = (f"the-secret-of-{name}-0123456789" for name in ("boss", "eye", "seer", "out"))
    api = Api(
        Store(settings),
        Tokens(f"boss:admin:{boss} e:read:{eye} s:read,payloads:{seer} o:read,payloads@other:{out}"),
    )
    core = asker(api)

    async def asked(method, path, body=None):
        return await core(method, path, body, token=boss)

    job_id, token = await running(asked)
    await emitted(asked, job_id, token, "secret")
    path = f"/jobs/{job_id}/stream"
    for reader, value in ((eye, None), (seer, "secret"), (boss, "secret")):
        (chunk,) = (await core("GET", path, token=reader)).json()["chunks"]
        assert chunk["value"] == value
    await asked("POST", f"/jobs/{job_id}/complete", {"token": token})
    events = {}
    for reader in (eye, seer):
        headers = {"host": "localhost", "accept": "text/event-stream", "authorization": f"Bearer {reader}"}
        events[reader] = parsed(await body_of(await api.answer(Request("GET", path, headers=headers))))
    assert [data for _, name, data in events[eye] if name == "chunk"] == [None]
    assert [data for _, name, data in events[seer] if name == "chunk"] == ["secret"]
    assert (await core("GET", path, token=out)).problem == "not-found"
    await api.aclose()


async def test_a_stopping_server_ends_its_streams_and_the_next_continues_them(settings):
    async with asyncio.timeout(60):
        async with serving(settings) as url:

            async def asked(method, path, body=None, **how):
                return await ask(url, method, path, body, **how)

            job_id, token = await running(asked)
            await emitted(asked, job_id, token, "a")
            got = asyncio.Event()
            reading = asyncio.create_task(
                read(url, job_id, lambda events: got.set() if len(events) == 2 else False)
            )
            await got.wait()
        events = await reading
        assert [name for _, name, _ in events] == ["attempt", "chunk"]
        async with serving(settings) as url:
            await emitted(lambda *words: ask(url, *words), job_id, token, "b")
            rest = await read(url, job_id, lambda events: True, **{"Last-Event-ID": events[-1][0]})
            assert rest == [("3", "chunk", "b")]


async def test_a_platform_that_cannot_stream_answers_with_the_present_chunks(settings):
    api = Api(Store(settings), Tokens())
    job_id, token = await running(asker(api))
    await emitted(asker(api), job_id, token, "a")
    request = Request(
        "GET",
        f"/jobs/{job_id}/stream",
        headers={"host": "localhost", "accept": "text/event-stream"},
        streams=False,
    )
    async with asyncio.timeout(10):
        text = await body_of(await api.answer(request))
    assert [name for _, name, _ in parsed(text)] == ["attempt", "chunk"]
    await api.aclose()
