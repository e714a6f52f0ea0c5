"""Answers that clients share: `Sublet-Shared`."""

import asyncio

import pytest

from sublet.connection.settings import connect
from sublet.errors import Unavailable
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.response import Response
from sublet_functions.http.shared_reads import (
    ANSWERS_MAX,
    BODY_MAX,
    BYTES_MAX,
    PAYLOAD_SECONDS,
    READS_A_SECOND,
    SECONDS_MAX,
    Patience,
    SharedReads,
)
from tests.support.http_server import SECRET
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

A, B, C = (f"{name}-{SECRET}" for name in ("mail", "bill", "boss"))
TOKENS = f"ada:read@mail:{A} bob:read@bill:{B} boss:admin:{C}"


class Redis:
    """A clock, and reads that end when they are told to."""

    def __init__(self, body=b"1", cost=0):
        self.now = 0.0
        self.cost = cost
        self.body = body
        self.reads = 0
        self.error = None
        self.go = asyncio.Event()
        self.go.set()
        self.shared = SharedReads(lambda: self.now)

    async def read(self):
        self.reads += 1
        await self.go.wait()
        if self.error:
            raise self.error
        return Response(200, self.body, reads=self.cost)

    async def ask(self, key="key", wish="1"):
        return await self.shared.answer(key, Patience.parse(wish), self.read)


async def test_two_callers_share_one_read_at_the_same_time_and_soon_after():
    redis = Redis()
    redis.go.clear()
    callers = [asyncio.create_task(redis.ask()) for _ in range(50)]
    await asyncio.sleep(0)
    redis.go.set()
    assert {answer.body for answer in await asyncio.gather(*callers)} == {b"1"}
    redis.now = 1.0
    again = await redis.ask()
    assert (redis.reads, again.headers["Age"]) == (1, "1")
    redis.now = 1.01
    assert (await redis.ask()).headers["Age"] == "0"
    assert redis.reads == 2


async def test_an_answer_read_before_what_the_caller_knows_is_not_for_it():
    redis = Redis()
    redis.go.clear()
    old = asyncio.create_task(redis.ask())
    await asyncio.sleep(0)
    redis.now = 0.5
    new = asyncio.create_task(redis.ask(wish="0.4"))
    for _ in range(2):
        await asyncio.sleep(0)
    assert redis.reads == 2, "a read that began too early is not joined either"
    redis.go.set()
    await asyncio.gather(old, new)


async def test_an_expensive_answer_is_kept_longer_by_those_who_accept_it():
    redis = Redis(cost=240)
    await redis.ask(wish="1, 15")
    redis.now = 240 / READS_A_SECOND
    await redis.ask(wish="1, 15")
    assert redis.reads == 1
    redis.now += 0.1
    await redis.ask(wish="1, 15")
    assert redis.reads == 2
    redis.now = 12
    await redis.ask(wish="1")
    assert redis.reads == 3


async def test_expensive_answers_share_the_commands_that_they_may_cost():
    redis = Redis(cost=400)
    for key in ("stats", "workers"):
        await redis.ask(key, "1, 60")
    redis.now = 2 * 400 / READS_A_SECOND
    await redis.ask("stats", "1, 60")
    assert redis.reads == 2
    redis.now += 0.1
    await redis.ask("stats", "1, 60")
    assert redis.reads == 3


async def test_an_answer_that_is_made_of_an_older_read_is_as_old():
    redis = Redis()
    redis.now = 20.0
    made = asyncio.Event()

    async def make():
        await made.wait()
        return Response(200, b"made", read_at=5.0)

    patient = asyncio.create_task(redis.shared.answer("key", Patience(30, 30), make))
    await asyncio.sleep(0)
    strict = asyncio.create_task(redis.ask())
    await asyncio.sleep(0)
    made.set()
    assert (await patient).headers["Age"] == "15"
    assert (await strict).body == b"1", "it has waited for an answer that is too old for it"
    assert redis.reads == 1


async def test_an_error_is_told_to_all_who_wait_and_not_kept():
    redis = Redis()
    redis.error = Unavailable("Redis did not answer")
    redis.go.clear()
    callers = [asyncio.create_task(redis.ask()) for _ in range(3)]
    await asyncio.sleep(0)
    redis.go.set()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable] * 3
    redis.error = None
    assert (await redis.ask()).status == 200
    assert redis.reads == 2


async def test_a_caller_that_leaves_does_not_end_the_read_of_the_others():
    redis = Redis()
    redis.go.clear()
    first, second = asyncio.create_task(redis.ask()), asyncio.create_task(redis.ask())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    redis.go.set()
    assert (await second).body == b"1"
    assert redis.reads == 1


@pytest.mark.parametrize("kind", ["large", "many", "old"])
async def test_what_is_kept_is_bounded(kind):
    redis = Redis(b"x" * (BODY_MAX + 1) if kind == "large" else b"x" * 100_000)
    await redis.ask()
    if kind == "many":
        for n in range(ANSWERS_MAX):
            await redis.ask(f"other {n}")
            assert sum(one.size for one in redis.shared._reads.values()) <= BYTES_MAX
    redis.now = SECONDS_MAX + 1 if kind == "old" else 0
    redis.shared._forget()
    before = redis.reads
    await redis.ask()
    assert redis.reads == before + 1
    assert len(redis.shared._reads) <= ANSWERS_MAX


@pytest.mark.parametrize("wish", ["", "soon", "-1", "61", "1, 0.5", "1,2,3", "1.2345"])
async def test_a_malformed_wish_is_refused_with_the_rule(core, wish):
    answer = await core("GET", "/stats", sublet_shared=wish)
    assert (answer.status, answer.problem, answer.places) == (422, "invalid", ["Sublet-Shared"])
    assert "use seconds from 0 to 60" in answer.json()["detail"]


async def submit(ask, queue, **how):
    return (
        await ask(
            "POST", "/jobs", {"task": "t", "queue": queue, "payload": {"text": "in-the-payload"}}, **how
        )
    ).json()["id"]


def ids(answer):
    assert answer.status == 200, answer.body
    return [job["id"] for job in answer.json()["jobs"]]


async def test_only_who_asks_for_it_gets_a_shared_answer(asked):
    first = await submit(asked, "q")
    assert ids(await asked("GET", "/jobs", sublet_shared="15")) == [first]
    second = await submit(asked, "q")
    assert ids(await asked("GET", "/jobs", sublet_shared="15")) == [first]
    assert ids(await asked("GET", "/jobs")) == [first, second]
    head = await asked("HEAD", "/jobs", sublet_shared="15")
    assert (head.status, head.body) == (200, b"")
    assert ids(await asked("GET", "/jobs", sublet_shared="15")) == [first], "HEAD leaves the body to others"


async def test_an_order_is_visible_at_once_to_who_gave_it(asked):
    job = await submit(asked, "q")
    assert (await asked("GET", f"/jobs/{job}", sublet_shared="15")).json()["state"] == "queued"
    await asked("POST", f"/jobs/{job}/cancel")
    assert (await asked("GET", f"/jobs/{job}", sublet_shared="0")).json()["state"] == "cancelled"
    assert (await asked("GET", f"/jobs/{job}", sublet_shared="15")).json()["state"] == "cancelled"


@pytest.mark.parametrize("path", ["/jobs/{id}/erase", "/jobs/erase"])
async def test_an_erased_job_is_in_no_shared_answer(asked, path):
    job = await submit(asked, "q")
    await asked("POST", f"/jobs/{job}/cancel")
    for shown in ("/jobs", f"/jobs/{job}"):
        assert b"in-the-payload" in (await asked("GET", shown, sublet_shared="60")).body
    body = {"filter": {"queue": "q"}} if path == "/jobs/erase" else None
    assert (await asked("POST", path.format(id=job), body)).status == 200
    assert ids(await asked("GET", "/jobs", sublet_shared="60")) == []
    assert (await asked("GET", f"/jobs/{job}", sublet_shared="60")).status == 404


async def test_an_answer_that_is_read_while_a_job_is_erased_is_not_kept():
    redis = Redis(b"old")
    redis.go.clear()
    asking = asyncio.create_task(redis.ask())
    await asyncio.sleep(0)
    redis.shared.clear()
    redis.body = b"new"
    redis.go.set()
    await asking
    assert redis.shared._reads == {}


async def test_answers_with_payloads_are_kept_for_seconds_only(settings):
    api, now = Api(Store(settings), Tokens()), 0.0
    api._shared.clock = lambda: now
    ask = asker(api)
    job = await submit(ask, "q")
    paths = ("/jobs", f"/jobs/{job}", "/queues")
    first = {path: (await ask("GET", path, sublet_shared="60")).body for path in paths}
    await submit(ask, "other")
    await ask("POST", f"/jobs/{job}/cancel")
    now = PAYLOAD_SECONDS
    assert {path: (await ask("GET", path, sublet_shared="60")).body for path in paths} == first
    now = PAYLOAD_SECONDS + 0.1
    assert (await ask("GET", "/queues", sublet_shared="60")).body == first["/queues"]
    api._shared._forget()
    assert [key[0] for key in api._shared._reads] == ["/queues"], "nor are their bytes"
    for path in paths[:2]:
        assert (await ask("GET", path, sublet_shared="60")).body != first[path]
    await api.aclose()


async def test_stats_and_metrics_share_the_reads_of_the_queues(settings):
    api, now = Api(Store(settings), Tokens()), 0.0
    for shared in (api._shared, api._shared_statistics):
        shared.clock = lambda: now
    ask, redis = asker(api), connect(settings)
    await api.store.submit([api.store.operations.submission("t", b"{}", f"q{n}", "") for n in range(100)])

    async def lengths():
        return (await redis.info("commandstats"))["cmdstat_zcard"]["calls"]

    assert (await ask("GET", "/stats", sublet_shared="1, 60")).json()["ready"] == 100
    before, now = await lengths(), 3.0
    metrics = await ask("GET", "/metrics", sublet_shared="1, 60")
    assert metrics.headers["age"] == "3"
    assert b'queue="q7"' in metrics.body
    assert await lengths() == before
    await submit(ask, "q0")
    now = 5.0
    assert (await ask("GET", "/stats", sublet_shared="1")).json()["ready"] == 101
    assert await lengths() >= before + 100, "it is read for those who do not accept an older one"
    before = await lengths()
    assert (await ask("GET", "/stats")).json()["ready"] == 101
    assert await lengths() >= before + 100, "and for programs"
    await redis.aclose()
    await api.aclose()


async def test_a_token_never_gets_the_answer_of_another_ones_queues(settings):
    api = Api(Store(settings), Tokens(TOKENS))
    ask = asker(api)
    mail, bill = [await submit(ask, queue, token=C) for queue in ("mail", "bill")]
    seen = {token: ids(await ask("GET", "/jobs", token=token, sublet_shared="15")) for token in (A, B, C)}
    assert seen[A] == [mail]
    assert seen[B] == [bill]
    assert set(seen[C]) == {mail, bill}
    assert (await ask("GET", f"/jobs/{bill}", token=C, sublet_shared="15")).status == 200
    assert (await ask("GET", f"/jobs/{bill}", token=A, sublet_shared="15")).status == 404
    await api.aclose()


async def test_the_document_says_which_answers_are_shared(core):
    paths = (await core("GET", "/openapi.json")).json()["paths"]
    shared = {
        (method, path)
        for path, methods in paths.items()
        for method, one in methods.items()
        if any(parameter["name"] == "Sublet-Shared" for parameter in one.get("parameters", ()))
    }
    assert ("get", "/jobs") in shared
    assert {method for method, _ in shared} == {"get"}
    assert not shared & {("get", "/jobs/next"), ("get", "/tick"), ("get", "/readyz")}
