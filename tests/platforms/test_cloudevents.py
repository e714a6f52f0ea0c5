"""CloudEvents written by the official SDK are read over real HTTP; an error names the invalid attribute."""

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
    """Send an event in the SDK's format."""
    headers, body = MODES[mode](CloudEvent(attributes, data))
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    return await asked("POST", path, body, **({"content_type": "application/json"} | named | more))


def read(headers, body=b""):
    return asyncio.run(read_event(Request("POST", "/jobs", "", headers, body), 10_000)).form


def headers(**attributes):
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | attributes
    return {f"ce-{name}": value for name, value in attributes.items() if value is not None}


@pytest.mark.parametrize("mode", MODES)
async def test_the_data_of_an_event_becomes_a_job(asked, mode):
    answer = await send(asked, "/jobs", ORDER, BILL, mode)
    assert (answer.status, answer.body) == (202, b"")
    job = (await asked("GET", answer.headers["location"])).json()
    assert {name: job[name] for name in BILL} == BILL


@pytest.mark.parametrize("mode", MODES)
async def test_a_whole_event_may_become_the_payload(asked, mode):
    sent = ORDER | {"time": "2026-01-31T12:00:00+00:00", "subject": "cat.png", "traceid": "00ab"}
    answer = await send(asked, "/jobs?task=audit&queue=log", sent, {"n": 1}, mode)
    job = (await asked("GET", answer.headers["location"])).json()
    event = job["payload"]["event"]
    event.pop("datacontenttype", None)
    assert event == {**sent, "specversion": "1.0", "data": {"n": 1}}
    assert (job["task"], job["queue"]) == ("audit", "log")


@pytest.mark.parametrize("mode", MODES)
async def test_a_repeated_event_is_one_job(asked, mode):
    other = next(name for name in MODES if name != mode)
    for path, data in (("/jobs", BILL), ("/jobs?task=audit", {"n": 1})):
        first, second, third = [await send(asked, path, ORDER, data, how) for how in (mode, mode, other)]
        assert [one.status for one in (first, second, third)] == [202, 202, 202]
        assert first.headers["location"] == second.headers["location"] == third.headers["location"]
    assert {job["task"] for job in (await asked("GET", "/jobs")).json()["jobs"]} == {"bill", "audit"}


async def test_different_events_are_different_jobs(asked):
    """Another id, source, task or queue."""
    others = [ORDER | {"id": "A-2"}, ORDER | {"source": "/shop/us"}]
    answers = [await send(asked, "/jobs?task=a", one, {}) for one in (ORDER, *others)]
    answers += [await send(asked, path, ORDER, {}) for path in ("/jobs?task=b", "/jobs?task=a&queue=q")]
    assert [one.status for one in answers] == [202] * 5
    assert len({one.headers["location"] for one in answers}) == 5


async def test_each_token_name_has_its_own_events(settings):
    api = Api(Store(settings), Tokens("a:submit:secret-of-a-0123456 b:submit:secret-of-b-0123456"))
    places = {
        (await send(asker(api), "/jobs", ORDER, BILL, token=f"secret-of-{who}-0123456")).headers["location"]
        for who in "aab"
    }
    assert len(places) == 2
    await api.aclose()


async def test_an_id_or_key_in_the_data_takes_precedence(asked):
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
async def test_any_event_may_trigger_a_tick(asked, mode):
    await asked("POST", "/jobs", {"task": "t", "delay": 0.01})
    answer = await send(asked, "/tick?for=0.3&every=0.1", ORDER, {"whatever": "it says"}, mode)
    assert (answer.status, answer.body) == (202, b"")
    assert (await asked("GET", "/jobs?state=queued")).json()["jobs"], (
        "the round promoted the job that was due"
    )
    assert (await asked("POST", "/tick")).json()["rounds"] == 1


@pytest.mark.parametrize("attribute", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("path", ["/jobs?task=t", "/tick"])
async def test_a_missing_attribute_is_named(core, path, attribute):
    for one in (None, ""):
        named = {name.replace("-", "_"): value for name, value in headers(**{attribute: one}).items()}
        answer = await core("POST", path, b"{}", **named)
        assert answer.problem == "invalid"
        assert answer.places[0] == f"#/{attribute}"
    event = {name: value for name, value in EXAMPLE.items() if name != attribute}
    answer = await core("POST", path, event, content_type=STRUCTURED)
    assert (answer.problem, answer.places[0]) == ("invalid", f"#/{attribute}")


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
async def test_an_invalid_attribute_is_named_and_its_value_not_shown(core, change, named):
    answer = await core("POST", "/tick", EXAMPLE | change, content_type=STRUCTURED)
    assert answer.problem == "invalid"
    assert answer.places[0] == f"#/{named}"
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
async def test_a_body_that_is_not_an_event_is_refused(core, path, kind, body, problem):
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
async def test_data_that_is_not_a_job_is_refused(core, change):
    answer = await core("POST", "/jobs", EXAMPLE | change, content_type=STRUCTURED)
    assert answer.problem == "invalid"
    assert answer.places[0].startswith("#/data")
    without = {name: value for name, value in EXAMPLE.items() if name != "data"}
    assert (await core("POST", "/jobs", without, content_type=STRUCTURED)).places[0] == "#/data"


async def test_data_may_be_base64(asked):
    event = {name: value for name, value in EXAMPLE.items() if name != "data"}
    event["data_base64"] = base64.b64encode(json.dumps(BILL).encode()).decode()
    assert (await asked("POST", "/jobs", event, content_type=STRUCTURED)).status == 202
    event["data_base64"] = "no base64!"
    assert (await asked("POST", "/jobs", event, content_type=STRUCTURED)).places[0] == "#/data_base64"


async def test_a_too_large_payload_of_an_event_is_refused(core):
    answer = await send(core, "/jobs?task=t", ORDER, {"x": "x" * 300_000})
    assert (answer.status, answer.problem) == (422, "invalid")


async def test_the_query_parameters_of_events_are_refused_for_other_requests(core):
    answer = await core("POST", "/jobs?task=audit", {"task": "t"})
    assert (answer.problem, answer.places[0]) == ("invalid", "task")
    assert (await core("POST", "/jobs?queue=log", {"task": "t"})).problem == "invalid"
    assert (await send(core, "/jobs?queue=log", ORDER, BILL)).problem == "invalid"
    assert (await send(core, "/jobs?task=no%20name", ORDER, BILL)).problem == "invalid"


def test_header_values_are_unquoted_and_percent_decoded():
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
def test_data_keeps_its_content_type(kind, body, data):
    form = read(headers() | ({"content-type": kind} if kind else {}), body)
    attributes = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"} | (
        {"datacontenttype": kind} if kind else {}
    )
    assert form == attributes | data


def test_an_attribute_cannot_be_named_data():
    for name in ("data", "data_base64"):
        with pytest.raises(Problem, match="attribute name"):
            read(headers(**{name: "x"}))


def test_data_with_a_json_content_type_must_be_json():
    with pytest.raises(Problem, match="not-json"):
        read(headers() | {"content-type": "application/json"}, b"{")


def test_the_repr_of_an_event_contains_no_values():
    event = asyncio.run(read_event(Request("POST", "/", "", headers(secret="s3cret")), 100))
    assert "s3cret" not in repr(event)


async def test_without_a_token_no_event_is_read(settings):
    async with serving(settings, tokens="clock:tick:secret-of-clock-0123456") as url:
        named = {name.replace("-", "_"): value for name, value in headers().items()}
        assert (await ask(url, "POST", "/tick", b"{", content_type=STRUCTURED)).problem == "unauthorized"
        assert (
            await ask(url, "POST", "/tick", b"{}", token="secret-of-clock-0123456", **named)
        ).status == 202
        assert (
            await ask(url, "POST", "/jobs?task=t", b"{}", token="secret-of-clock-0123456", **named)
        ).problem == "forbidden"


def test_the_schema_accepts_the_events_of_the_sdk():
    from jsonschema import Draft202012Validator

    event = CloudEvent(ORDER | {"time": datetime(2026, 1, 31, tzinfo=UTC).isoformat()}, BILL)
    for one in (json.loads(to_structured(event)[1]), EXAMPLE):
        assert list(Draft202012Validator(SCHEMA).iter_errors(one)) == []


@pytest.mark.parametrize("own", ["e." + "0" * 40, "0-e." + "a1" * 20, "i." + "f" * 40])
async def test_a_client_cannot_choose_the_id_made_from_an_event(asked, own):
    """The id is predictable: a client with the role submit could replace the event's job."""
    assert (await asked("POST", "/jobs", BILL | {"id": own})).problem == "invalid"
    assert (await asked("POST", "/jobs/batch", {"jobs": [BILL | {"id": own}]})).problem == "invalid"
    assert (await send(asked, "/jobs", ORDER, BILL | {"id": own})).problem == "invalid"
    assert (await asked("POST", "/jobs", BILL | {"id": own[:-1]})).status == 201


@pytest.mark.parametrize("raw", [b"\xc3\x9cber", b"\xff", b"%C3%9Cber"])
async def test_an_event_has_the_same_id_on_every_server(settings, raw):
    """aiohttp decodes header values as UTF-8 and keeps other bytes as surrogates; the other servers pass
    Latin-1.
    """
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


async def test_a_repeated_authorization_header_is_refused(settings):
    async with serving(settings, tokens="me:admin:the-secret-of-everybody") as url, wire(url) as one:
        one.write(
            b"GET /jobs HTTP/1.1\r\nHost: h\r\n"
            + b"Authorization: Bearer the-secret-of-everybody\r\n" * 2
            + b"\r\n"
        )
        assert (await one.answer()).status == 401


def test_invalid_percent_encoding_is_reported():
    """Otherwise two events would get one id."""
    with pytest.raises(Problem, match="id: its percent-encoded bytes are not valid UTF-8"):
        read(headers(id="%FF"))
