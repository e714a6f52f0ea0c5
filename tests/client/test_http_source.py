"""`HttpSource` under failures: lost answers, other programs that answer, refused tokens, timeouts."""

import asyncio
import json
import logging

import pytest

from sublet.errors import REFUSALS, Denied, Invalid, Unavailable, Unconfirmed, Unfit
from sublet.model import Beat, Card, Completion, Lease, Note, Submission
from sublet.store.http import HttpSource
from sublet.store.http_endpoint import Endpoint
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.problems import PROBLEMS, Problem
from sublet_functions.http.response import Response
from sublet_functions.schemas.requests import NewJob
from tests.support.http_server import fronting, serving

pytest_plugins = ["tests.support.job_sources"]
ONE_BACKEND = True
SECRET = "s3cret-s3cret-s3cret"
LEASE = Lease("0-a", "1.t", 1, 0, "q", "t", None, b"", "")


class ScriptedServer:
    """A server with given answers, then, if it has one, those of the real core."""

    def __init__(self, *replies, core=None, before=False):
        self.replies, self.core, self.before = list(replies), core, before
        self.seen, self.bodies = [], []

    async def answer(self, request):
        self.seen.append(request)
        if not self.core and request.read:
            self.bodies.append(json.loads(await request.read(2**20)))
        real = await self.core.answer(request) if self.core and self.before else None
        if self.replies:
            return self.replies.pop(0) if len(self.replies) > 1 or self.core else self.replies[0]
        return real or await self.core.answer(request)


def of(status, kind="text/html", body=b"<html>hello</html>", **headers):
    return Response(
        status,
        body,
        {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}},
    )


@pytest.fixture
def api(store):
    return Api(store, Tokens())


def submission(store, **how):
    return store.operations.submission("t", b"{}", how.get("queue", "q"), "")


async def claim(source, n=1, wait=0.0):
    return (await source.claim(worker="w", queues=["q"], n=n, lease=60, wait=wait)).leases


# ── answers that were lost ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spoiled", [b"<html>hello</html>", b'{"jobs":[{"id":"0-a"', b'{"jobs":[{}]}'])
async def test_a_claim_with_a_broken_answer_is_repeated(store, api, spoiled):
    await store.submit([submission(store)])
    async with fronting(ScriptedServer(of(200, "application/json", spoiled), core=api, before=True)) as (
        _,
        url,
    ):
        source = HttpSource(url)
        (lease,) = await claim(source)
        assert await source.settle([Completion(lease, b"1")]) == ["completed"]
        await source.aclose()


async def test_jobs_of_a_claim_without_an_answer_are_released(store, api):
    await store.submit([submission(store)])
    async with fronting(ScriptedServer(*[of(502)] * 3, core=api, before=True)) as (_, url):
        source = HttpSource(url)
        with pytest.raises(Unavailable):
            await claim(source)
        await source.aclose()
    (stats,) = await store.follow(store.operations.stats())
    assert (stats.states["running"], stats.states["queued"]) == (0, 1)


@pytest.mark.parametrize("status", [502, 504])
async def test_a_claim_with_a_lost_answer_is_repeated_as_the_same_claim(store, api, status):
    """The server took a job, and the gateway in front of it gave up: the repeated request returns that job."""
    await store.submit([submission(store) for _ in range(3)])
    async with fronting(ScriptedServer(of(status), core=api, before=True)) as (_, url):
        source = HttpSource(url)
        (lease,) = await claim(source)
        assert lease.attempt == 1
        assert await source.settle([Completion(lease, b"1")]) == ["completed"]
        await source.aclose()
    (stats,) = await store.follow(store.operations.stats())
    assert (stats.states["running"], stats.states["queued"]) == (0, 2)


async def test_outcomes_with_a_lost_answer_count_once(store, api):
    await store.submit([submission(store)])
    (lease,) = await claim(store)
    async with fronting(ScriptedServer(of(502), core=api, before=True)) as (_, url):
        source = HttpSource(url)
        assert await source.settle([Completion(lease, b"1")]) == ["completed"]
        await source.aclose()


async def test_a_connection_closed_by_the_server_causes_no_outage(store, place):
    from sublet_functions.http.limits import Limits

    async with serving(place.settings, limits=Limits(idle_seconds=0.05)) as url:
        source = HttpSource(url)
        for _ in range(3):
            await source.submit([submission(store)])
            await asyncio.sleep(0.15)  # longer than the server keeps it
        await source.aclose()


async def test_jobs_of_a_cancelled_claim_are_released(store, api):
    """Cancelled after the server has taken a job, and before the answer arrives."""
    taken, go = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedServer):
        async def answer(self, request):
            reply = await self.core.answer(request)
            if not taken.is_set() and request.path == "/jobs/claim":
                taken.set()
                await asyncio.wait([asyncio.ensure_future(go.wait())], timeout=20)
            return reply

    await store.submit([submission(store)])
    async with fronting(Slow(core=api)) as (_, url):
        source = HttpSource(url)
        claiming = asyncio.create_task(claim(source))
        async with asyncio.timeout(20):
            await taken.wait()
        claiming.cancel()
        await asyncio.wait([claiming])
        assert claiming.cancelled()
        await source.aclose()
        go.set()
    (lease,) = await claim(store)
    assert (lease.attempt, lease.recovered) == (2, "released")


async def test_a_shortened_long_poll_does_not_cause_a_burst_of_requests(store):
    scripted = ScriptedServer(Response(204, headers={"Sublet-Next-In": "2.000"}))
    async with fronting(scripted) as (_, url):
        source = HttpSource(url)
        assert await claim(source, wait=0.3) == []
        assert 2 <= len(scripted.seen) <= 8
        await source.aclose()


async def test_a_longer_wait_is_several_requests(store, monkeypatch):
    monkeypatch.setattr("sublet.store.http.WAIT_MAX", 0.1)
    scripted = ScriptedServer(Response(204, headers={"Sublet-Next-In": "2.000"}))
    async with fronting(scripted) as (_, url):
        source = HttpSource(url)
        await claim(source, wait=0.25)
        await source.aclose()
    assert len(scripted.bodies) >= 2
    assert all(0 <= body.get("wait", 0) <= 0.1 for body in scripted.bodies)
    assert len({body["claim_id"] for body in scripted.bodies}) == len(scripted.bodies)


# ── no server, and another program ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def peer():
    """The URL of a server that answers any request with these bytes."""
    servers = []

    async def listen(answer, close=True):
        async def greet(reader, writer):
            await reader.read(1000)
            writer.write(answer)
            if close:
                writer.close()

        servers.append(await asyncio.start_server(greet, "127.0.0.1", 0))
        return f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"

    yield listen
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "Server disconnected"),
        (b"-ERR unknown command 'POST'\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", "payload is not completed"),
    ],
    ids=["nothing", "Redis", "half an answer"],
)
async def test_a_server_without_http_is_reported_as_another_program(peer, answer, words):
    url = await peer(answer)
    source = HttpSource(url, SECRET)
    with pytest.raises(Unavailable, match=words) as away:
        await source.workers()
    assert url in str(away.value)
    assert "is the address (--source, SUBLET_SOURCE) right?" in str(away.value)
    assert not isinstance(away.value, Unfit)
    await source.aclose()


async def test_a_server_that_never_answers_raises_unavailable(peer):
    source = HttpSource(await peer(b"", close=False), timeout=0.1)
    with pytest.raises(Unavailable, match=r"nothing for 0\.1 s"):
        await source.heartbeat([Beat(LEASE)], lease=30)
    await source.aclose()


async def test_a_refused_connection_raises_at_once():
    source = HttpSource("http://127.0.0.1:1/below")
    with pytest.raises(
        Unavailable, match=r"no answer from the API at http://127\.0\.0\.1:1/below .*Connect call failed"
    ):
        await source.workers()
    await source.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        of(200),
        of(404),
        of(503),
        of(200, "application/json", b'{"jobs": 5}'),
        of(200, "application/json", b"[]"),
        of(200, "application/json", b"{}"),
        of(418),
        of(422, "application/json", b'{"detail": "no"}'),
        of(500, "application/problem+json", b"no json"),
        of(500, "application/problem+json", b'{"type": "about:blank"}'),
    ],
    ids=[
        "a page",
        "404",
        "503",
        "a number",
        "a list",
        "an object",
        "418",
        "422",
        "no problem",
        "a stranger's problem",
    ],
)
async def test_another_http_server_is_reported_as_another_program(reply):
    async with fronting(ScriptedServer(reply)) as (_, url):
        source = HttpSource(url)
        card = Card("w", "1", "", b"{}")
        for call in (
            source.workers(),
            source.enlist(card),
            claim(source),
            source.settle([Completion(LEASE, b"1")]),
        ):
            with pytest.raises(Unavailable, match="did not answer as the API of Sublet") as away:
                await call
            assert url in str(away.value)
        await source.aclose()


async def test_a_wrong_path_is_reported_as_a_wrong_url(place):
    async with serving(place.settings) as url:
        source = HttpSource(f"{url}/elsewhere")
        with pytest.raises(Unavailable, match="404"):
            await claim(source)
        await source.aclose()


async def test_a_redirect_is_not_followed():
    """The token would be sent along."""
    scripted = ScriptedServer(of(307, Location="http://user:pass@other.example/x?key=1"))
    async with fronting(scripted) as (_, url):
        source = HttpSource(url, SECRET)
        with pytest.raises(Unavailable, match=r"redirects \(307, to http://other\.example/x\)"):
            await source.workers()
        await source.aclose()
    assert len(scripted.seen) == 1


async def test_the_api_may_have_a_path_prefix(api, store):
    class Below(ScriptedServer):
        async def answer(self, request):
            assert request.path.startswith("/deep/down/")
            request = type(request)(request.method, request.path.removeprefix("/deep/down"), request.query, request.headers,
                                    request.body, request.read)  # fmt: skip
            return await self.core.answer(request)

    async with fronting(Below(core=api)) as (_, url):
        source = HttpSource(f"{url}/deep/down/")
        assert (await source.submit([submission(store)]))[0].created
        assert len(await claim(source)) == 1
        await source.aclose()


# ── answers of the API ───────────────────────────────────────────────────────────────────────────────────────────────

MEANS = {
    **{slug: Unavailable for slug in ("timeout", "method-not-allowed", "internal", "unavailable", "busy", "at-work",
                                      "not-set-up", "out-of-time", "unsupported-version")},
    **{slug: Invalid for slug in ("bad-request", "not-json", "too-large", "uri-too-long", "unsupported-media-type", "invalid",
                                  "idempotency-mismatch", "too-many-headers", "unknown-task", "precondition-failed")},
    **{slug: Denied for slug in ("unauthorized", "forbidden")},
    "unconfirmed": Unconfirmed,
}  # fmt: skip


@pytest.mark.parametrize("slug", PROBLEMS)
async def test_each_problem_is_the_error_that_the_store_would_raise(slug):
    async with fronting(ScriptedServer(Problem(slug, "these words").response())) as (_, url):
        source = HttpSource(url, SECRET)
        means = MEANS.get(slug) or REFUSALS[slug.replace("-", "_").upper()]
        words = "refuses this token: check SUBLET_TOKEN" if slug == "unauthorized" else "these words"
        with pytest.raises(means, match=words) as error:
            await source.submit([]) or await source._ask("GET", "/jobs/0-a", lambda answer: None)
        assert SECRET not in str(error.value)
        assert type(error.value) is means
        if means is Unavailable:  # a worker waits for another answer, unless there can be none
            assert error.value.lasting == (slug in ("method-not-allowed", "unsupported-version"))
        await source.aclose()


async def test_a_server_without_its_redis_is_unavailable(store):
    from sublet.connection.settings import Settings

    async with serving(Settings(redis_url="redis://127.0.0.1:1")) as url:
        source = HttpSource(url)
        with pytest.raises(Unavailable, match="did not serve the request: Redis does not answer"):
            await claim(source)
        await source.aclose()


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def guarded(place, store):
    async with serving(
        place.settings, tokens=f"w:work:{SECRET} other:work:0{SECRET} boss:admin:1{SECRET} r:read:2{SECRET}"
    ) as url:
        yield url


async def test_a_token_is_accepted_and_a_refusal_names_the_variable(guarded, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"2{SECRET}\n")
    for token, words in (
        (None, "requires a token: set SUBLET_TOKEN, or SUBLET_TOKEN_FILE"),
        ("wrong", "refuses this token: check SUBLET_TOKEN$"),
        (file, "refuses this token for this request .*role `work`; check SUBLET_TOKEN_FILE$"),
    ):
        source = HttpSource(guarded, token)
        with pytest.raises(Denied, match=words) as denied:
            await claim(source)
        assert not source._unclaimed, "no lease was received, so none is to be released"
        assert SECRET not in str(denied.value)
        assert SECRET not in repr(source) + repr(source._at)
        await source.aclose()
    source = HttpSource(guarded, SECRET)
    assert await claim(source) == []
    await source.aclose()


async def test_all_refused_requests_use_a_replaced_token(guarded, tmp_path):
    """Two requests use the old one; the first refusal reads the file, so the second finds no change there."""
    file = tmp_path / "token"
    file.write_text("an-old-token\n")
    source = HttpSource(guarded, file)
    file.write_text(f"{SECRET}\n")
    assert await asyncio.gather(*(claim(source) for _ in range(5))) == [[]] * 5
    await source.aclose()


async def test_a_token_that_was_replaced_in_its_file_is_read_again(guarded, tmp_path):
    file = tmp_path / "token"
    file.write_text("an-old-token\n")
    source = HttpSource(guarded, file)
    with pytest.raises(Denied):
        await claim(source)
    file.write_text(f"\n  {SECRET}\n")
    assert await claim(source) == []
    file.unlink()
    assert await claim(source) == []
    await source.aclose()


async def test_workers_of_another_token_are_left_to_their_leases(guarded, store):
    one, other = HttpSource(guarded, SECRET), HttpSource(guarded, f"0{SECRET}")
    await store.submit([submission(store)])
    await one.enlist(Card("dead", "1", "", b"{}"))
    await one.claim(worker="dead", queues=["q"], n=1, lease=60)
    await other.enlist(Card("dead", "1", "", b"{}"))
    assert [[worker.name for worker in await each.workers()] for each in (one, other)] == [["dead"], ["dead"]]
    assert await other.reconcile({"dead": "1"}) == 0
    assert await one.reconcile({"dead": "1"}) == 1
    await one.aclose()
    await other.aclose()


@pytest.mark.parametrize(
    ("url", "token", "warns"),
    [
        ("http://api.example", SECRET, True),
        ("http://10.0.0.7:8377", SECRET, True),
        ("https://api.example", SECRET, False),
        ("http://localhost:8377", SECRET, False),
        ("http://127.3.2.1", SECRET, False),
        ("http://[::1]:80", SECRET, False),
        ("http://api.example", None, False),
    ],
)
def test_an_unencrypted_token_causes_a_warning(url, token, warns, caplog):
    caplog.set_level(logging.WARNING)
    HttpSource(url, token)
    assert ("unencrypted" in caplog.text) is warns
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "use the API's address"),
        ("api.example", "use the API's address"),
        ("ftp://api.example", "use the API's address"),
        ("http://", "use the API's address"),
        ("http://host:99999", "use the API's address"),
        ("http://host:0", "use the API's address"),
        ("http://ho st", "use the API's address"),
        ("http://host/\x00", "use the API's address"),
        ("http://host/\r\nX: y", "use the API's address"),
        ("http://user:hidden@host", "put the token into SUBLET_TOKEN"),
        ("https://host/?key=hidden", r"remove the \? or # and what follows it"),
        ("https://host/#hidden", r"remove the \? or # and what follows it"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason(url, words):
    with pytest.raises(Invalid, match=words) as error:
        HttpSource(url)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("token", ["two words", f"ci:work:{SECRET}", "line\r\nX-Admin: 1", "é" * 20])
def test_an_invalid_token_is_refused_and_not_shown(token):
    with pytest.raises(Invalid, match="use the secret alone") as error:
        Endpoint("http://host", token)
    assert token not in str(error.value)


def test_url_and_token_come_from_the_environment(monkeypatch, tmp_path):
    for name in ("SUBLET_SOURCE", "SUBLET_TOKEN", "SUBLET_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Invalid, match="SUBLET_SOURCE or --source: ''"):
        HttpSource.read()
    monkeypatch.setenv("SUBLET_SOURCE", " https://api.example/x/ ")
    assert HttpSource.read()._at.url == "https://api.example/x"
    assert HttpSource.read("http://other")._at.headers == {}
    monkeypatch.setenv("SUBLET_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(Invalid, match=r"SUBLET_TOKEN_FILE '.*none' cannot be read \(No such file"):
        HttpSource.read()
    monkeypatch.setenv("SUBLET_TOKEN", SECRET)
    assert HttpSource.read()._at.headers == {"Authorization": f"Bearer {SECRET}"}


# ── values that cannot be sent ───────────────────────────────────────────────────────────────────────────────────────

UNSENDABLE = {
    "no JSON": b"no json",
    "deep": b"[" * 300 + b"]" * 300,
    "too deep for a batch": b"[" * 199 + b"]" * 199,
    "NaN": b"NaN",
    "half a pair": b'"\\ud800"',
    "bytes": b"\xff",
    "large": b'"' + b"x" * 300_000 + b'"',
}


@pytest.mark.parametrize("result", UNSENDABLE.values(), ids=UNSENDABLE)
async def test_a_result_that_cannot_be_sent_is_a_failure_and_the_others_are_kept(store, place, result):
    """It must neither block the others, nor end the worker again and again."""
    await store.submit([submission(store) for _ in range(5)])
    leases = await claim(store, 5)
    async with serving(place.settings) as url:
        source = HttpSource(url)
        results = [b"1", result, b"3", b"4", b"5"]
        answers = await source.settle(
            [Completion(lease, one) for lease, one in zip(leases, results, strict=True)]
        )
        answers[1], _, reason = answers[1].partition(" ")
        assert answers == ["completed", "dead", "completed", "completed", "completed"]
        await source.aclose()
    (attempt,) = (await store.follow(store.operations.get(leases[1].id))).attempts
    assert (attempt.code, attempt.message) == ("invalid_result", reason)
    assert "result" in attempt.message or "not-json" in attempt.message or "JSON" in attempt.message


async def test_an_unsendable_checkpoint_loses_no_other_and_no_log(store, place, caplog):
    await store.submit([submission(store) for _ in range(3)])
    leases = await claim(store, 3)
    async with serving(place.settings) as url:
        source = HttpSource(url)
        notes = [
            Note(lease, one, b"a line")
            for lease, one in zip(leases, [b"1", b"[" * 199 + b"]" * 199, b"3"], strict=True)
        ]
        assert await source.note(notes) == ["noted"] * 3
        assert await source.heartbeat([Beat(lease, b"no json") for lease in leases], lease=60) != []
        await source.aclose()
    jobs = [await store.follow(store.operations.get(lease.id)) for lease in leases]
    assert [job.checkpoint for job in jobs] == [1, None, 3]
    assert [job.log for job in jobs] == [("a line",)] * 3
    assert leases[1].id in caplog.text


async def test_an_unsendable_payload_is_invalid(store, place):
    async with serving(place.settings) as url:
        source = HttpSource(url)
        for payload in (b"no json", b"[]", b"5"):
            job = submission(store)._replace(payload=payload)
            with pytest.raises(Invalid, match="payload"):
                await source.submit([submission(store), job])
        await source.aclose()


async def test_options_that_are_not_named_are_sent():
    """The server would take those of the task, which may differ from the client's choice."""
    server = ScriptedServer(of(200, "application/json", b'{"jobs": [{"id": "0-a", "status": 201}]}'))
    async with fronting(server) as (_, url):
        source = HttpSource(url)
        await source.submit([Submission("0-a", "q", "t", "tries=5", b"{}")])
        await source.aclose()
    (job,) = server.bodies[0]["jobs"]
    assert NewJob.model_validate(job).model_fields_set >= {
        "queue",
        "priority",
        "timeout",
        "retention",
        "backoff",
    }
    assert (job["max_attempts"], job["timeout"]) == (5, 300)
