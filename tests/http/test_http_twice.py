"""Each request is sent twice, as after a lost response: the second one changes nothing, and its response shows
that it is a repeat."""

import asyncio
import os
import re
import signal
import uuid

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Unavailable
from sublet.model import Submission
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.auth import Tokens
from tests.support.http_server import serving, wire
from tests.support.route_samples import SAMPLES, asker, filled, named, prepared, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

MOMENT = re.compile(r"\b1[6-9]\d{11}\b")
"""Timestamps in milliseconds, for example of a heartbeat: they may change."""
READS = {
    "string": lambda raw, key: raw.get(key),
    "hash": lambda raw, key: raw.hgetall(key),
    "zset": lambda raw, key: [
        (member, MOMENT.sub("then", f"{score:.0f}"))
        for member, score in raw.zrange(key, 0, -1, withscores=True)
    ],
    "list": lambda raw, key: raw.lrange(key, 0, -1),
    "stream": lambda raw, key: [fields for _, fields in raw.xrange(key)],
}


@pytest.fixture
def stored(settings):
    """All persistent data of a namespace, without timestamps."""
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:

        def read():
            kept = [
                key
                for key in raw.scan_iter(match=f"{{{settings.namespace}:*", count=1000)
                if raw.pttl(key) == -1 and not key.endswith((":minutes", ":hours"))
            ]
            found = {key: READS[raw.type(key)](raw, key) for key in sorted(kept)}
            for value in found.values():
                if isinstance(value, dict):
                    value.pop("sampled", None)  # a sample of the history, at any moment
            return {key: MOMENT.sub("then", str(value)) for key, value in found.items()}

        yield read


async def test_a_problem_names_the_generated_id_when_redis_does_not_answer(tmp_path):
    """The same job under this id is not stored twice; without the id it becomes another job."""
    with EmbeddedServer.start(tmp_path, persistent=False) as server:
        store = Store(Settings(redis_url=server.url, timeout=0.3))
        ask, job = asker(Api(store, Tokens())), {"task": "t", "payload": {}}
        assert (await ask("POST", "/jobs", job)).status == 201
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(
                Unavailable, match=r"If in doubt whether the job is stored, .* under the same id 0-lib$"
            ):
                await store.submit([Submission("0-lib", "q", "t", "", b"{}")])
            none, named, keyed, many, all_named = await asyncio.gather(
                ask("POST", "/jobs", job),
                ask("POST", "/jobs", job | {"id": "mine"}),
                ask("POST", "/jobs", job, idempotency_key="k"),
                ask("POST", "/jobs/batch", {"jobs": [job, job | {"id": "b"}]}),
                ask("POST", "/jobs/batch", {"jobs": [job | {"id": "c"}]}),
            )
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert {answer.problem for answer in (none, named, keyed, many, all_named)} == {"unavailable"}
        (made,) = re.findall(
            r"the same request again could store its jobs twice: send it with the id (0-\w+)$",
            none.json()["detail"],
        )
        assert many.json()["detail"].endswith("give each job an id, or send an Idempotency-Key")
        assert all(
            a.json()["detail"].endswith("it is safe to send the request again")
            for a in (named, keyed, all_named)
        )
        for body in (job | {"id": made}, job | {"id": made}):
            last = await ask("POST", "/jobs", body)
        assert (last.status, last.json()) == (200, {"id": made})
        await store.aclose()


def test_each_route_has_a_sample():
    assert {(route.method, route.path) for route in ROUTES} <= set(SAMPLES)


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_a_repeated_request_changes_nothing_more(core, stored, route):
    words, one = await prepared(core), sample(route)
    path, body = filled(one.path, words), filled(one.body, words)
    before = stored()
    first = await core(route.method, path, body)
    after = stored()
    second = await core(route.method, path, body)
    assert (first.status, second.status) == (one.first, one.second), (first.body, second.body)
    assert stored() == after
    if route.method == "GET" and "next" not in path and path != "/tick":
        assert after == before
    if route.path.endswith(("/claim", "/next")):
        assert second.json() == first.json()


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release", "note"])
async def test_each_item_of_a_batch_gets_the_status_of_the_single_route(core, verb):
    words = await prepared(core)
    body = filled(SAMPLES["POST", f"/jobs/{verb}"].body, words)
    body["jobs"] += [{"id": "0-no", "token": "1.no"}, {"id": words["SCHEDULED"], "token": "1.no"}]
    for _ in range(2):
        items = (await core("POST", f"/jobs/{verb}", body)).json()["jobs"]
        assert [one["status"] for one in items] == [200, 404, 409]
        problems = [one.get("type", "").rpartition(":")[2] for one in items]
        assert problems == ["", "not-found", "lease-lost"]


@pytest.mark.parametrize("verb", ["cancel", "retry", "promote"])
async def test_an_operator_call_without_a_revision_applies_to_the_current_state(core, verb):
    """A repeat may find another state and is refused then; with the revision that the caller saw it is
    idempotent.
    """
    words = await prepared(core)
    path = filled(SAMPLES["POST", f"/jobs/{{id}}/{verb}"].path, words)
    assert (await core("POST", path)).status == 200
    assert (await core("POST", path)).problem == "wrong-state"


async def test_a_submit_with_a_lost_response_can_be_repeated(settings):
    """The connection breaks after the request was sent; the repeat returns the stored job."""
    body = b'{"task": "t"}'
    lines = [
        b"POST /jobs HTTP/1.1",
        b"Host: localhost",
        b'Idempotency-Key: "k"',
        b"Content-Type: application/json",
    ]
    data = b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])
    async with serving(settings) as url:
        async with wire(url) as one:
            one.write(data)
            await one.writer.drain()
            one.close()
        async with wire(url) as other:
            other.write(data)
            answer = await other.answer()
            other.write(b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert [job["id"] for job in (await other.answer()).json()["jobs"]] == [answer.json()["id"]]


# debounce and on_conflict


async def test_a_submit_that_replaces_arguments_says_so_and_has_no_second_effect(asked):
    job = {"task": "t", "payload": {"n": 1}, "key": "k", "debounce": 30, "at_most": 300}
    first = await asked("POST", "/jobs", job, idempotency_key='"one"')
    assert (first.status, "replaced" in first.json()) == (201, False)
    for _ in range(2):
        second = await asked("POST", "/jobs", job | {"payload": {"n": 2}}, idempotency_key='"two"')
        assert (second.status, second.json()) == (200, {"id": first.json()["id"], "replaced": True})
    again = await asked("POST", "/jobs", job, idempotency_key='"one"')
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    stored = (await asked("GET", f"/jobs/{first.json()['id']}")).json()
    assert (stored["payload"], stored["replaced"], stored["state"]) == ({"n": 2}, 1, "scheduled")


async def test_a_batch_of_jobs_with_one_key_is_one_job(asked):
    jobs = [{"task": "t", "payload": {"n": n}, "key": "k", "on_conflict": "replace"} for n in (1, 2)]
    first, second = (await asked("POST", "/jobs/batch", {"jobs": jobs})).json()["jobs"]
    assert (first["status"], second) == (201, {"id": first["id"], "status": 200, "replaced": True})
    assert (await asked("GET", f"/jobs/{first['id']}")).json()["payload"] == {"n": 2}


# Idempotency-Key


async def test_the_same_key_and_body_return_the_first_response_marked_as_replayed(asked):
    key = f'"{uuid.uuid4()}"'
    first = await asked("POST", "/jobs", b'{"task": "t", "payload": {"a": 1, "b": 2}}', idempotency_key=key)
    again = await asked("POST", "/jobs", b'{"payload": {"b": 2, "a": 1},  "task": "t"}', idempotency_key=key)
    assert (first.status, "idempotent-replayed" in first.headers) == (201, False)
    assert (again.status, again.headers["idempotent-replayed"], again.body) == (200, "true", first.body)
    assert first.headers["location"] == again.headers["location"]


@pytest.mark.parametrize(
    "change", [{"payload": {"a": 2}}, {"task": "other"}, {"delay": 5}, {"priority": 1}, {"queue": "q"}]
)
async def test_the_same_key_with_another_body_is_422(core, change):
    """A queue of another partition would give another id; with one partition the body is compared."""
    first = await core("POST", "/jobs", {"task": "t", "payload": {"a": 1}}, idempotency_key='"k"')
    other = await core("POST", "/jobs", {"task": "t", "payload": {"a": 1}} | change, idempotency_key='"k"')
    assert (other.status, other.problem) == (422, "idempotency-mismatch")
    assert (await core("GET", first.headers["location"])).json()["payload"] == {"a": 1}
    assert len((await core("GET", "/jobs")).json()["jobs"]) == 1


async def test_an_idempotency_key_belongs_to_its_token(settings):
    api = Api(
        Store(settings),
        Tokens("a:submit:secret-of-a-0123456 b:submit:secret-of-b-0123456 a:submit:secret-of-a-second"),
    )
    ids = []
    for secret in ("secret-of-a-0123456", "secret-of-b-0123456", "secret-of-a-second"):
        answer = await asker(api)("POST", "/jobs", {"task": "t"}, token=secret, idempotency_key='"k"')
        ids.append(answer.json()["id"])
    assert ids[0] == ids[2] != ids[1]
    await api.aclose()


async def test_a_batch_may_have_an_idempotency_key(core):
    jobs = [{"task": "t", "payload": {"n": n}} for n in range(3)]
    first, again = [
        await core("POST", "/jobs/batch", {"jobs": jobs}, idempotency_key='"k"') for _ in range(2)
    ]
    assert [one["status"] for one in first.json()["jobs"]] == [201] * 3
    assert [one["status"] for one in again.json()["jobs"]] == [200] * 3
    assert [one["id"] for one in first.json()["jobs"]] == [one["id"] for one in again.json()["jobs"]]
    other = await core("POST", "/jobs/batch", {"jobs": [*jobs[::-1], {"task": "new"}]}, idempotency_key='"k"')
    assert [one["status"] for one in other.json()["jobs"]] == [422, 200, 422, 201], (
        "a new job is stored and reported"
    )
    assert other.json()["jobs"][0]["type"].endswith(":idempotency-mismatch")


async def test_concurrent_requests_with_one_key_make_one_job(asked):
    answers = await asyncio.gather(
        *[asked("POST", "/jobs", {"task": "t"}, idempotency_key="bare-word") for _ in range(20)]
    )
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize("key", ["", '""', '"', "a b", '"a"b"', '"a\\b"', "ü", f'"{"a" * 256}"'])
async def test_an_invalid_key_is_400(core, key):
    answer = await core("POST", "/jobs", {"task": "t"}, idempotency_key=key)
    assert (answer.status, answer.problem) == (400, "bad-request")


async def test_an_id_with_a_key_is_refused_with_its_place(core):
    answer = await core("POST", "/jobs", {"task": "t", "id": "mine"}, idempotency_key='"k"')
    assert (answer.status, answer.places[0]) == (422, "#/id")


async def test_a_key_returns_its_job_after_the_job_has_ended(core):
    first = await core("POST", "/jobs", {"task": "t"}, idempotency_key='"k"')
    lease = (await core("GET", "/jobs/next")).json()
    await core("POST", f"/jobs/{lease['id']}/done", {"token": lease["token"]})
    again = await core("POST", "/jobs", {"task": "t"}, idempotency_key='"k"')
    assert (again.status, again.body, again.headers["idempotent-replayed"]) == (200, first.body, "true")
