"""Validation of bodies and queries, and responses for bytes that other clients have stored."""

import base64
import json
import uuid

import pytest
import redis
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from sublet import model
from sublet.protocol import verbs
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.auth import Tokens
from sublet_functions.http.body import BATCH_BODY_MAX, BODY_MAX
from sublet_functions.schemas.fields import OwnId
from sublet_functions.schemas.query import Empty
from tests.support.route_samples import NOWHERE, asker, filled, named, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

BODIES = [route for route in ROUTES if route.body is not Empty]


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense", b"{", b'{"task": "t",}', b"{'task': 't'}", b" ", b"\xff\xfe{", b'{"task": "t"} {}', b"\xef\xbb\xbf{}",
        b'{"payload": ' + b"[" * 200_000, b'{"a":' * 50_000, b'{"task": "\\ud800"}', b'{"task": "\xed\xa0\x80"}',
        b'{"task": "\x00"}', b'{"payload": {"x": 0x10}}', b'{"payload": {"x": 01}}', b'{"payload": {"x": .5}}',
    ],
    ids=lambda body: repr(body[:20]),
)  # fmt: skip
async def test_a_body_that_is_not_json_is_400(asked, body):
    for path in ("/jobs", "/jobs/batch", "/jobs/complete"):
        answer = await asked("POST", path, body)
        assert (answer.status, answer.problem) == (400, "not-json"), path
        assert "send one JSON object" in answer.json()["detail"]


@pytest.mark.parametrize(
    "number", [b"NaN", b"Infinity", b"1e400", b"-1e999999", b"9" * 5000], ids=lambda n: repr(n[:10])
)
async def test_a_number_outside_json_is_refused(asked, number):
    answer = await asked("POST", "/jobs", b'{"task": "t", "payload": {"n": %s}}' % number)
    assert answer.status == 422, answer.body
    beaten = await asked("POST", "/jobs", b'{"task": "t", "delay": %s}' % number)
    assert beaten.status in (400, 422)


async def test_extreme_numbers_and_deep_nesting_are_preserved(asked):
    payload = {
        "big": 10**300,
        "small": 1e-300,
        "nul": "\u0000",
        "far": "\U0001f600",
        "deep": json.loads("[" * 100 + "]" * 100),
    }
    path = (await asked("POST", "/jobs", {"task": "t", "payload": payload})).headers["location"]
    assert (await asked("GET", path)).json()["payload"] == payload
    assert (await asked("GET", "/jobs/next")).json()["payload"] == payload


@pytest.mark.parametrize("own", ["nightly:1700000000000", "0-nightly.99:1700000000000", "x:17000000000000"])
async def test_a_client_cannot_use_the_id_of_an_occurrence(asked, own):
    """The id is predictable: if all ids of an occurrence are taken, neither it nor any later one is fired."""
    assert not Draft202012Validator(TypeAdapter(OwnId).json_schema()).is_valid(own)
    bodies = (("/jobs", {"task": "t", "id": own}), ("/jobs/batch", {"jobs": [{"task": "t", "id": own}]}))
    for path, body in (*bodies, ("/schedules/nightly/run", {"id": own})):
        answer = await asked("POST", path, body)
        assert (answer.status, answer.problem) == (422, "invalid"), path
        assert "reserved for the jobs of schedules: choose another" in answer.json()["errors"][0]["detail"]
    for other in (own.replace(":", "-"), own[:-2], f"{own}x"):
        assert (await asked("POST", "/jobs", {"task": "t", "id": other})).status == 201


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("POST", "/jobs", {}, "#/task"),
        ("POST", "/jobs", {"task": 5}, "#/task"),
        ("POST", "/jobs", {"task": "a b"}, "#/task"),
        ("POST", "/jobs", {"task": "t", "nonsense": 1}, "#/nonsense"),
        ("POST", "/jobs", {"task": "t", "payload": [1]}, "#/payload"),
        ("POST", "/jobs", {"task": "t", "payload": {"x": "y" * 262_144}}, "#/payload"),
        ("POST", "/jobs", {"task": "t", "id": "a\r\nb"}, "#/id"),
        ("POST", "/jobs", {"task": "t", "key": "\ud83d"}, None),
        ("POST", "/jobs", {"task": "t", "run_at": "tomorrow"}, "#/run_at"),
        ("POST", "/jobs", {"task": "t", "run_at": 1_700_000_000}, "#/run_at"),
        ("POST", "/jobs", {"task": "t", "run_at": "9999-12-31T00:00:00Z"}, "#/run_at"),
        ("POST", "/jobs", {"task": "t", "delay": 1, "run_at": "2026-01-31T12:00:00Z"}, "#/run_at"),
        ("POST", "/jobs", {"task": "t", "window": 1}, "#/window"),
        ("POST", "/jobs", [], "#"),
        ("POST", "/jobs/batch", {"jobs": []}, "#/jobs"),
        ("POST", "/jobs/batch", {"jobs": [{"task": "t"}, {"task": ""}]}, "#/jobs/1/task"),
        ("POST", "/jobs/batch", {"jobs": [{"task": "t"}] * 1001}, "#/jobs"),
        ("POST", "/jobs/batch", {"jobs": [{"task": "t"}, {"task": "t", "window": 1}]}, "#/jobs/1/window"),
        ("POST", "/jobs/claim", {"n": 101}, "#/n"),
        ("POST", "/jobs/claim", {"queues": ["q"] * 1001}, "#/queues"),
        ("POST", "/jobs/claim", {"wait": 20.1}, "#/wait"),
        ("POST", "/jobs/claim", {"lease": 1e9}, "#/lease"),
        ("POST", "/jobs/claim", {"claim_id": "short"}, "#/claim_id"),
        ("POST", "/jobs/0-a/heartbeat", {}, "#/token"),
        ("POST", "/jobs/0-a/heartbeat", {"token": "x", "progress": "y" * 1024}, "#/progress"),
        ("POST", "/jobs/0-a/complete", {"token": "x", "result": "y" * 262_144}, "#/result"),
        ("POST", "/jobs/0-a/fail", {"token": "x", "message": "y" * 1025}, "#/message"),
        ("POST", "/jobs/0-a/note", {"token": "x", "checkpoint": "y" * 65_536}, "#/checkpoint"),
        ("POST", "/jobs/note", {"jobs": [{"id": "0-a", "token": "x", "log": 5}]}, "#/jobs/0/log"),
        ("POST", "/jobs/a%0d%0ab/cancel", None, "id"),
        ("GET", "/jobs/a%0d%0aSet-Cookie:%20x", None, "id"),
        ("GET", "/jobs/" + "a" * 65, None, "id"),
        ("GET", "/queues/a%20b", None, "queue"),
        ("PATCH", "/queues/q", {"limits": {"completed": 1}}, "#/limits"),
        ("PATCH", "/queues/*", {"limits": {"jobs": 1}}, "#/limits"),
        ("PATCH", "/queues/*", {"limits": {"completed": 1}, "paused": True}, "#/paused"),
        ("PATCH", "/queues/q", {"limits": {"jobs": -1}}, "#/limits/jobs"),
        ("PATCH", "/queues/q", {"on_dead": "a/b/c"}, "#/on_dead"),
        ("PUT", "/workers/a%0ab", {"life": "1"}, "name"),
        ("PUT", "/workers/w", {"life": "1", "about": {"x": "y" * 4096}}, "#/about"),
        ("DELETE", "/workers/w", None, "life"),
        ("GET", "/jobs?limit=1000000000", None, "limit"),
        ("GET", "/jobs?limit=" + "9" * 5000, None, "limit"),
        ("GET", "/jobs?limit=0", None, "limit"),
        ("GET", "/jobs?limit=nan", None, "limit"),
        ("GET", "/jobs?limit=5&limit=6", None, "limit"),
        ("GET", "/jobs?state=lost", None, "state"),
        ("GET", "/jobs?tag=a,b", None, "tag"),
        ("GET", "/jobs?code=a%20b", None, "code"),
        ("GET", "/jobs?since=2026-01-31", None, "since"),
        ("GET", "/jobs?since=2026-01-31T12:00:00Z&until=2026-01-31T12:00:00Z", None, None),
        ("GET", "/jobs?nonsense=1", None, "nonsense"),
        ("GET", "/jobs?cursor=from-elsewhere", None, "cursor"),
        ("POST", "/jobs/retry", {"filter": {}, "cursor": "é"}, "#/cursor"),
        ("GET", "/jobs?cursor=%00%01", None, "cursor"),
        ("GET", "/jobs?queue=%FF", None, None),
        ("GET", "/jobs?" + "&".join(f"a{n}=" for n in range(65)), None, None),
        ("GET", "/queues?cursor=%C3%A9", None, "cursor"),
        ("GET", "/jobs/0-a?wait=inf", None, "wait"),
        ("GET", "/jobs/0-a?wait=21", None, "wait"),
        ("GET", "/jobs/next?queue=", None, "queue"),
        ("GET", "/tick?for=56", None, "for"),
        ("GET", "/healthz?x=1", None, "x"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_an_invalid_value_is_422_with_its_place(core, method, path, body, where):
    answer = await core(method, path, body)
    if body and body.get("key") == "\ud83d":  # an unpaired surrogate is not JSON
        assert answer.problem == "not-json"
        return
    assert (answer.status, answer.problem) == (422, "invalid")
    if where:
        assert where in answer.places


async def test_at_most_twenty_errors_are_listed(core):
    answer = await core("POST", "/jobs/batch", {"jobs": [{"task": ""}] * 1000})
    assert len(answer.json()["errors"]) == 20
    assert "999 more" in answer.json()["detail"]


async def test_very_many_errors_are_counted_and_not_listed(core):
    body = {"jobs": [{"task": "t", **{f"x{n}": 1 for n in range(20)}} for _ in range(100)]}
    answer = await core("POST", "/jobs/batch", body)
    assert (answer.status, answer.problem, answer.json()["detail"]) == (
        422,
        "invalid",
        "the body has 2,000 validation errors, too many to list: check one item first",
    )


@pytest.mark.parametrize("route", BODIES, ids=named)
async def test_a_body_needs_the_content_type_json(core, route):
    one = sample(route)
    body = json.dumps(filled(one.body or {}, NOWHERE)).encode()
    path = filled(one.path, NOWHERE)
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json; charset=latin-1",
        "",
    ):
        assert (await core(route.method, path, body, content_type=kind)).problem == "unsupported-media-type"
    for coding in ("gzip", "deflate", "br", "gzip, identity"):
        assert (
            await core(route.method, path, body, content_encoding=coding)
        ).problem == "unsupported-media-type"
    for kind in ("application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'):
        assert (await core(route.method, path, body, content_type=kind)).status not in (400, 415, 422)


@pytest.mark.parametrize("route", BODIES, ids=named)
async def test_a_too_large_body_is_413(core, route):
    body = sample(route).body
    holds_many = isinstance(body, dict) and bool({"jobs", "steps", "chunks"} & {*body})
    assert route.most == (BATCH_BODY_MAX if holds_many else BODY_MAX)
    answer = await core(route.method, filled(sample(route).path, NOWHERE), b" " * (route.most + 1))
    assert (answer.status, answer.problem) == (413, "too-large")


async def test_a_body_without_required_fields_may_be_missing(asked):
    assert (await asked("POST", "/jobs/claim")).status == 204
    assert (await asked("POST", "/jobs/0-a/cancel")).status == 404
    assert (await asked("PATCH", "/queues/q")).status == 200
    assert (await asked("POST", "/jobs")).places == ["#/task"]


# lists


@pytest.mark.parametrize(
    ("path", "many"),
    [
        ("/jobs?state=queued&limit=3", 8),
        ("/jobs?state=queued&state=dead&limit=3", 8),
        ("/jobs?limit=200", 8),
        ("/queues?limit=3", 8),
    ],
)
async def test_each_page_links_to_the_next(asked, path, many):
    kind = path[1:].partition("?")[0]
    made = [{"task": "t", "queue": f"q{n}", "id": f"{n}"} for n in range(many)]
    await asked("POST", "/jobs/batch", {"jobs": made})
    found = []
    for _ in range(20):
        page = await asked("GET", path)
        found += [one.get("id") or one["name"] for one in page.json()[kind]]
        assert ("link" in page.headers) == (page.json()["cursor"] is not None)
        if "link" not in page.headers:
            break
        assert page.headers["link"].endswith('>; rel="next"')
        path = page.headers["link"][1:].partition(">")[0]
    assert sorted(found) == sorted([f"0-{n}" if kind == "jobs" else f"q{n}" for n in range(many)])


async def test_the_filters_of_a_list_are_its_query(asked):
    made = [
        {"task": "t", "queue": f"q{n}", "id": f"{n}", "tags": ["odd" if n % 2 else "even"]} for n in range(6)
    ]
    await asked("POST", "/jobs/batch", {"jobs": made})
    for n in (1, 2):
        await asked("POST", f"/jobs/0-{n}/cancel")

    async def found(query):
        return sorted(job["id"] for job in (await asked("GET", f"/jobs?{query}")).json()["jobs"])

    assert await found("tag=odd") == ["0-1", "0-3", "0-5"]
    assert await found("tag=odd&state=queued") == ["0-3", "0-5"]
    assert await found("state=queued&state=cancelled&tag=even&task=t") == ["0-0", "0-2", "0-4"]
    assert await found("since=2020-01-31T12:00:00Z&until=2100-01-31T12:00:00%2B01:00") == [
        f"0-{n}" for n in range(6)
    ]
    assert (
        await found("until=2020-01-31T12:00:00Z")
        == await found("code=ValueError")
        == await found("worker=w")
        == []
    )
    following = (await asked("GET", "/jobs?state=queued&state=cancelled&tag=odd&limit=2")).headers["link"]
    assert following.startswith("</jobs?state=queued&state=cancelled&tag=odd&limit=2&cursor=")


async def test_a_cursor_of_another_list_is_refused(core):
    await core("POST", "/jobs/batch", {"jobs": [{"task": "t", "queue": "a"}] * 3})
    cursor = (await core("GET", "/jobs?queue=a&limit=1&state=queued")).json()["cursor"]
    place = base64.urlsafe_b64decode(cursor + "==").decode().rpartition("/")[0]
    for offset in ("\u00b2", "9" * 300, "-1", ""):
        forged = base64.urlsafe_b64encode(f"{place}/{offset}".encode()).decode().rstrip("=")
        assert (await core("GET", f"/jobs?queue=a&state=queued&cursor={forged}")).problem == "invalid", offset
    for path in (
        f"/jobs?queue=b&cursor={cursor}",
        f"/jobs?state=dead&cursor={cursor}",
        f"/jobs?cursor={cursor}x",
    ):
        assert (await core("GET", path)).problem == "invalid"


# data of other clients

STRANGE = [
    b"not json",
    b"\xff\xfe\x00",
    b"NaN",
    b'{"a": Infinity}',
    b'"\\ud800"',
    b'{"\\udfff": [1e999]}',
    b"9" * 5000,
    b"\xed\xa0\x80",
]
STRANGE += [b"[" * depth + b"]" * depth for depth in (150, 250, 400, 900, 5000)]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda raw: repr(raw[:12]) + str(len(raw)))
async def test_any_bytes_stored_by_another_client_are_served(settings, strange):
    """A Redis client may store any bytes; the HTTP API must return JSON."""
    store = Store(settings)
    core, base = asker(Api(store, Tokens())), store.operations.bases[0]
    job_id = f"0-{uuid.uuid4().hex}"
    assert (await core("GET", "/jobs")).status == 200
    await store.run(verbs.submit(base, [model.Submission(job_id, "default", "t", "", strange)]))
    lease = (await core("GET", "/jobs/next?worker=w")).json()
    assert lease["id"] == job_id
    held = model.Lease(job_id, lease["token"], 1, 0, "default", "t", None, b"", "")
    await store.run(verbs.heartbeat(base, [model.Beat(held, strange[:1024])], lease=30))
    await store.run(verbs.note(base, [model.Note(held, strange, strange)]))
    await store.run(verbs.enlist(base, model.Card("w", "1", "", strange[:4096])))
    for path in (f"/jobs/{job_id}", "/jobs", "/workers"):
        assert (await core("GET", path)).json()
    await store.run(verbs.fail(base, [model.Failure(held, "Boom", "m", "d")]))
    await store.run(verbs.promote(base, job_id, 1))
    again = (await core("POST", "/jobs/claim", {})).json()["jobs"][0]
    await store.run(verbs.complete(base, [model.Completion(held._replace(token=again["token"]), strange)]))
    assert (await core("GET", f"/jobs/{job_id}?wait=1")).json()["state"] == "completed"
    assert (await core("GET", "/jobs?state=completed")).status == 200
    await store.aclose()


@pytest.mark.parametrize(
    ("field", "value"), [("attempt", "NaN"), ("attempt", b"\xff"), ("spec", b"\xff\xff"), ("state", "odd")]
)
async def test_a_corrupt_job_does_not_hide_others(core, settings, field, value):
    ids = [(await core("POST", "/jobs", {"task": "t"})).json()["id"] for _ in range(3)]
    with redis.Redis.from_url(settings.redis_url) as raw:
        raw.hset(f"{{{settings.namespace}:0}}:job:{ids[1]}", field, value)
    listed = await core("GET", "/jobs")
    assert [job["id"] for job in listed.json()["jobs"]] == [ids[0], ids[2]]
    assert (await core("GET", f"/jobs/{ids[1]}")).problem == "unavailable"


async def test_a_corrupt_attempt_history_does_not_break_a_claim(core, settings):
    ids = [(await core("POST", "/jobs", {"task": "t"})).json()["id"] for _ in range(2)]
    with redis.Redis.from_url(settings.redis_url) as raw:
        raw.hset(
            f"{{{settings.namespace}:0}}:job:{ids[0]}",
            mapping={"attempt": 7, "attempt:7": b"\xff \xff \xff \xff"},
        )
    claimed = (await core("POST", "/jobs/claim", {"n": 2})).json()["jobs"]
    assert [job["id"] for job in claimed] == ids
