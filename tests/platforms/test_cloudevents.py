"""CloudEvents: what its own SDK writes is read, through real HTTP; what cannot be is told by the attribute's name."""

import asyncio
import base64
import json
from datetime import UTC, datetime

import pytest
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.cloudevents import EXAMPLE, SCHEMA, STRUCTURED, read_event
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request, fold_headers
from tests.support.http_server import ask, serving, wire
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

ORDER = {"type": "com.example.order", "source": "/shop/eu", "id": "A-1"}
BILL = {"task": "bill", "payload": {"order": 7}, "queue": "money"}
MODES = {"binary": to_binary, "structured": to_structured}


async def send(asked, path, attributes, data, mode="binary", **more):
    """Send an event as the SDK writes it."""
    headers, body = MODES[mode](CloudEvent(attributes, data))
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    return await asked("POST", path, body, **({"content_type": "application/json"} | named | more))


def read(headers, body=b""):
    return asyncio.run(read_event(Request("POST", "/jobs", "", headers, body), 10_000)).form


def headers(**attributes):
    said = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | attributes
    return {f"ce-{name}": value for name, value in said.items() if value is not None}


@pytest.mark.parametrize("mode", MODES)
async def test_the_data_of_an_event_is_a_job(asked, mode):
    answer = await send(asked, "/jobs", ORDER, BILL, mode)
    assert (answer.status, answer.body) == (202, b"")
    job = (await asked("GET", answer.headers["location"])).json()
    assert {name: job[name] for name in BILL} == BILL


@pytest.mark.parametrize("mode", MODES)
async def test_a_task_may_be_given_the_whole_event(asked, mode):
    sent = ORDER | {"time": "2026-01-31T12:00:00+00:00", "subject": "cat.png", "traceid": "00ab"}
    answer = await send(asked, "/jobs?task=audit&queue=log", sent, {"n": 1}, mode)
    job = (await asked("GET", answer.headers["location"])).json()
    event = job["payload"]["event"]
    event.pop("datacontenttype", None)
    assert event == {**sent, "specversion": "1.0", "data": {"n": 1}}
    assert (job["task"], job["queue"]) == ("audit", "log")


@pytest.mark.parametrize("mode", MODES)
async def test_an_event_that_comes_twice_is_one_job(asked, mode):
    other = next(name for name in MODES if name != mode)
    for path, data in (("/jobs", BILL), ("/jobs?task=audit", {"n": 1})):
        first, second, third = [await send(asked, path, ORDER, data, how) for how in (mode, mode, other)]
        assert [one.status for one in (first, second, third)] == [202, 202, 202]
        assert first.headers["location"] == second.headers["location"] == third.headers["location"]
    assert {job["task"] for job in (await asked("GET", "/jobs")).json()["jobs"]} == {"bill", "audit"}


async def test_what_differs_is_another_job(asked):
    """Another id, another source, another task that hears of the same event, another queue."""
    others = [ORDER | {"id": "A-2"}, ORDER | {"source": "/shop/us"}]
    answers = [await send(asked, "/jobs?task=a", one, {}) for one in (ORDER, *others)]
    answers += [await send(asked, path, ORDER, {}) for path in ("/jobs?task=b", "/jobs?task=a&queue=q")]
    assert [one.status for one in answers] == [202] * 5
    assert len({one.headers["location"] for one in answers}) == 5


async def test_each_name_has_events_of_its_own(settings):
    api = Api(Store(settings), Tokens("a:submit:secret-of-a-0123456 b:submit:secret-of-b-0123456"))
    places = {
        (await send(asker(api), "/jobs", ORDER, BILL, token=f"secret-of-{who}-0123456")).headers["location"]
        for who in "aab"
    }
    assert len(places) == 2
    await api.aclose()


async def test_an_id_or_key_of_the_datas_own_stands(asked):
    mine = await send(asked, "/jobs", ORDER, BILL | {"id": "mine"})
    assert mine.headers["location"] == "/jobs/0-mine"
    first, second = [
        await send(asked, "/jobs", ORDER | {"id": i}, BILL | {"key": "k"}) for i in ("K-1", "K-2")
    ]
    assert first.headers["location"] == second.headers["location"]
    keyed = await send(asked, "/jobs", ORDER, BILL, idempotency_key='"a"')
    assert keyed.headers["location"].startswith("/jobs/0-i.")
    again = await send(asked, "/jobs", ORDER, BILL, idempotency_key='"a"')
    assert again.headers["location"] == keyed.headers["location"]


@pytest.mark.parametrize("mode", MODES)
async def test_any_event_may_stand_for_a_tick(asked, mode):
    await asked("POST", "/jobs", {"task": "t", "delay": 0.01})
    answer = await send(asked, "/tick?for=0.3&every=0.1", ORDER, {"whatever": "it says"}, mode)
    assert (answer.status, answer.body) == (202, b"")
    assert (await asked("GET", "/jobs?state=queued")).json()["jobs"], (
        "the round promoted the job that was due"
    )
    assert (await asked("POST", "/tick")).json()["rounds"] == 1


@pytest.mark.parametrize("attribute", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("path", ["/jobs?task=t", "/tick"])
async def test_an_attribute_that_is_missing_is_named(core, path, attribute):
    for one in (None, ""):
        said = {name.replace("-", "_"): value for name, value in headers(**{attribute: one}).items()}
        answer = await core("POST", path, b"{}", **said)
        assert answer.problem == "invalid"
        assert answer.json()["errors"][0]["loc"] == ["event", attribute]
    event = {name: value for name, value in EXAMPLE.items() if name != attribute}
    answer = await core("POST", path, event, content_type=STRUCTURED)
    assert (answer.problem, answer.json()["errors"][0]["loc"]) == ("invalid", ["event", attribute])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"specversion": "0.3"}, "specversion"), ({"specversion": 1.0}, "specversion"), ({"id": 7}, "id"),
        ({"type": " " * 2049}, "type"),
        ({"a_b": "x"}, "a_b"), ({"A": "x"}, "A"), ({"a" * 65: "x"}, "a" * 64),
        ({"x": 2**31}, "x"), ({"x": 1.5}, "x"), ({"x": []}, "x"),
        ({"x": "\x1b[2J"}, "x"), ({"datacontenttype": "json"}, "datacontenttype"), ({"data_base64": "e30="}, "data_base64"),
        ({f"x{n}": "" for n in range(64)}, "attributes"),
    ],
    ids=str,
)  # fmt: skip
async def test_an_attribute_that_cannot_be_is_named_and_not_said(core, change, named):
    answer = await core("POST", "/tick", EXAMPLE | change, content_type=STRUCTURED)
    assert answer.problem == "invalid"
    assert answer.json()["errors"][0]["loc"] == ["event", named]
    assert "\\u001b" not in answer.body.decode()


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        ("application/cloudevents-batch+json", b"[]", "unsupported-media-type"),
        ("application/cloudevents+xml", b"<a/>", "unsupported-media-type"),
        ("application/cloudevents", b"{}", "unsupported-media-type"),
        (STRUCTURED, b"", "not-json"),
        (STRUCTURED, b"[" * 100_000, "not-json"),
        (STRUCTURED, b'{"id": NaN}', "not-json"),
        (STRUCTURED, b"[]", "invalid"),
        (STRUCTURED, b'"\xff"', "not-json"),
        (STRUCTURED, b" " * (1024 * 1024 + 1), "too-large"),
    ],
    ids=lambda one: str(one)[:40],
)
@pytest.mark.parametrize("path", ["/jobs", "/tick"])
async def test_what_is_no_event_is_refused(core, path, kind, body, problem):
    assert (await core("POST", path, body, content_type=kind)).problem == problem


@pytest.mark.parametrize(
    "change",
    [
        {"data": None},
        {"data": [1]},
        {"data": "text"},
        {"data": {"tusk": "t"}},
        {"datacontenttype": "text/plain", "data": "t"},
    ],
    ids=str,
)
async def test_data_that_is_no_job_is_refused(core, change):
    answer = await core("POST", "/jobs", EXAMPLE | change, content_type=STRUCTURED)
    assert answer.problem == "invalid"
    assert answer.json()["errors"][0]["loc"][:2] == ["event", "data"]
    without = {name: value for name, value in EXAMPLE.items() if name != "data"}
    assert (await core("POST", "/jobs", without, content_type=STRUCTURED)).json()["errors"][0]["loc"] == [
        "event",
        "data",
    ]


async def test_data_may_come_as_base64(asked):
    event = {name: value for name, value in EXAMPLE.items() if name != "data"}
    event["data_base64"] = base64.b64encode(json.dumps(BILL).encode()).decode()
    assert (await asked("POST", "/jobs", event, content_type=STRUCTURED)).status == 202
    event["data_base64"] = "no base64!"
    assert (await asked("POST", "/jobs", event, content_type=STRUCTURED)).json()["errors"][0]["loc"] == [
        "event",
        "data_base64",
    ]


async def test_a_payload_that_is_too_large_is_refused(core):
    answer = await send(core, "/jobs?task=t", ORDER, {"x": "x" * 300_000})
    assert (answer.status, answer.problem) == (422, "invalid")


async def test_the_words_for_an_event_are_for_events_alone(core):
    answer = await core("POST", "/jobs?task=audit", {"task": "t"})
    assert (answer.problem, answer.json()["errors"][0]["loc"]) == ("invalid", ["query", "task"])
    assert (await core("POST", "/jobs?queue=log", {"task": "t"})).problem == "invalid"
    assert (await send(core, "/jobs?queue=log", ORDER, BILL)).problem == "invalid"
    assert (await send(core, "/jobs?task=no%20name", ORDER, BILL)).problem == "invalid"


def test_the_values_of_headers_are_taken_out_of_their_quotes_and_percent_signs():
    form = read(
        headers(subject="Euro%20%E2%82%AC%20%F0%9F%98%80", a='"q \\"uoted\\" 100%25"', b="50% off", c=" x ")
    )
    assert (form["subject"], form["a"], form["b"], form["c"]) == (
        "Euro € 😀",
        'q "uoted" 100%',
        "50% off",
        "x",
    )


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        ("application/json", b'{"a": 1}', {"data": {"a": 1}}),
        ("application/vnd.x+json; charset=utf-8", b"[1]", {"data": [1]}),
        (None, b"null", {"data": None}),
        ("text/plain", "ä".encode(), {"data": "ä"}),
        ("text/plain; charset=latin-1", "ä".encode("latin-1"), {"data_base64": "5A=="}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
        ("application/json", b"", {}),
    ],
    ids=str,
)
def test_data_keeps_its_kind(kind, body, data):
    form = read(headers() | ({"content-type": kind} if kind else {}), body)
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | (
        {"datacontenttype": kind} if kind else {}
    )
    assert form == attributes | data


def test_no_attribute_can_pass_for_the_data():
    for name in ("data", "data_base64"):
        with pytest.raises(Problem, match="attribute name"):
            read(headers(**{name: "x"}))


def test_data_that_is_said_to_be_json_must_be():
    with pytest.raises(Problem, match="not-json"):
        read(headers() | {"content-type": "application/json"}, b"{")


def test_no_value_is_in_a_repr():
    event = asyncio.run(read_event(Request("POST", "/", "", headers(secret="s3cret")), 100))
    assert "s3cret" not in repr(event)


async def test_without_a_token_no_event_is_read(settings):
    async with serving(settings, tokens="clock:tick:secret-of-clock-0123456") as url:
        said = {name.replace("-", "_"): value for name, value in headers().items()}
        assert (await ask(url, "POST", "/tick", b"{", content_type=STRUCTURED)).problem == "unauthorized"
        assert (await ask(url, "POST", "/tick", b"{}", token="secret-of-clock-0123456", **said)).status == 202
        assert (
            await ask(url, "POST", "/jobs?task=t", b"{}", token="secret-of-clock-0123456", **said)
        ).problem == "forbidden"


def test_its_description_is_of_what_the_sdk_writes():
    from jsonschema import Draft202012Validator

    event = CloudEvent(ORDER | {"time": datetime(2026, 1, 31, tzinfo=UTC).isoformat()}, BILL)
    for one in (json.loads(to_structured(event)[1]), EXAMPLE):
        assert list(Draft202012Validator(SCHEMA).iter_errors(one)) == []


@pytest.mark.parametrize("own", ["e." + "0" * 40, "0-e." + "a1" * 20, "i." + "f" * 40])
async def test_a_client_cannot_choose_the_id_made_from_an_event(asked, own):
    """It can be worked out, so whoever may submit could have the event's job be another one."""
    assert (await asked("POST", "/jobs", BILL | {"id": own})).problem == "invalid"
    assert (await asked("POST", "/jobs/batch", {"jobs": [BILL | {"id": own}]})).problem == "invalid"
    assert (await send(asked, "/jobs", ORDER, BILL | {"id": own})).problem == "invalid"
    assert (await asked("POST", "/jobs", BILL | {"id": own[:-1]})).status == 201


@pytest.mark.parametrize("raw", [b"\xc3\x9cber", b"\xff", b"%C3%9Cber"])
async def test_an_event_has_the_same_id_on_every_server(settings, raw):
    """aiohttp reads them as UTF-8, and keeps other bytes in its own way; the other servers hand over Latin-1."""
    async with serving(settings) as url, wire(url) as one:
        lines = [
            b"POST /jobs?task=t HTTP/1.1",
            b"Host: localhost",
            b"Content-Length: 0",
            b"ce-specversion: 1.0",
            b"ce-source: /s",
        ]
        one.write(b"\r\n".join([*lines, b"ce-type: t", b"ce-id: " + raw]) + b"\r\n\r\n")
        first = (await one.answer("POST")).headers["location"]
    api = Api(Store(settings), Tokens())
    sent = fold_headers([("host", "localhost"), *headers(id=raw.decode("latin-1")).items()])
    second = (await api.answer(Request("POST", "/jobs", "task=t", sent))).headers["Location"]
    await api.aclose()
    assert first == second


async def test_headers_that_come_twice_are_one_for_every_server(settings):
    async with serving(settings, tokens="me:admin:the-secret-of-everybody") as url, wire(url) as one:
        one.write(
            b"GET /jobs HTTP/1.1\r\nHost: h\r\n"
            + b"Authorization: Bearer the-secret-of-everybody\r\n" * 2
            + b"\r\n"
        )
        assert (await one.answer()).status == 401


def test_percent_signs_that_are_no_text_are_told():
    """Otherwise two events would be one."""
    with pytest.raises(Problem, match="not valid UTF-8"):
        read(headers(id="%FF"))
