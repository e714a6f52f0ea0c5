"""URLs and headers: every parameter with invalid values, and no value becomes a response header."""

import asyncio
import json
import urllib.parse

import pytest

from sublet.protocol import keys
from sublet_functions.api.routes import ROUTES
from sublet_functions.schemas.query import AnyQuery
from tests.support.http_server import ADMIN, SECRET, serving, wire
from tests.support.route_samples import NOWHERE, filled, named, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

PARAMETERS = [
    (route, field.alias or name) for route in ROUTES for name, field in route.query.model_fields.items()
]
NUMBERS = {"limit", "wait", "for", "every", "lease", "last"}
INVALID_NUMBERS = [
    "1000000000",
    "-1",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e400",
    "9" * 5_000,
    "0x10",
    "",
    "\u0661",
    "1;2",
    "null",
    "[1]",
]
INVALID_WORDS = [
    "a\r\nb",
    "\0",
    "a b",
    "\u202e",
    "'\"><img src=x onerror=alert(1)>",
    "x" * 5_000,
    "../..",
    "{}:job:x",
    "*",
    "%",
    "\ud7ff",
]


def address(route, more):
    path, _, query = filled(sample(route).path, NOWHERE).partition("?")
    query_fields = {**dict(urllib.parse.parse_qsl(query)), **more}
    return f"{path}?{urllib.parse.urlencode(query_fields)}"


def test_each_parameter_is_classified_as_a_number_or_a_word():
    """A new parameter must be classified here first, so that it is tested with invalid values."""
    words = {name for _, name in PARAMETERS} - NUMBERS
    assert words == {
        "task",
        "queue",
        "tag",
        "span",
        "code",
        "since",
        "until",
        "claim_id",
        "worker",
        "life",
        "jobs",
        "own",
        "state",
        "cursor",
        "after",
        "job",
        "group",
        "workflow",
    }
    assert {name for _, name in PARAMETERS} >= NUMBERS


@pytest.mark.parametrize(
    ("route", "name"), PARAMETERS, ids=lambda value: value if isinstance(value, str) else named(value)
)
async def test_an_invalid_parameter_is_refused_on_every_route(core, route, name):
    """…before any work is done: neither a page of a thousand million items nor an endless wait."""
    body = filled(sample(route).body, NOWHERE) if sample(route).body else None
    is_claim = named(route) == "GET /jobs/next"
    for value in INVALID_NUMBERS if name in NUMBERS else INVALID_WORDS:
        if is_claim and name == "queue" and keys.is_pattern(str(value)):
            continue
        if name == "group" and keys.is_key(value):  # any visible ASCII
            continue
        async with asyncio.timeout(20):
            answer = await core(route.method, address(route, {name: value}), body)
        assert (answer.status, answer.problem) == (422, "invalid"), (name, value)
        assert len(answer.body) < 2_000, "the error does not repeat megabytes"


@pytest.mark.parametrize("route", [r for r in ROUTES if r.query is not AnyQuery], ids=named)
async def test_an_unknown_or_repeated_parameter_is_refused(core, route):
    body = filled(sample(route).body, NOWHERE) if sample(route).body else None
    for more in ("__class__=1", "limit%00=1", "limit=1&limit=2"):
        path = filled(sample(route).path, NOWHERE)
        answer = await core(route.method, f"{path}{'&' if '?' in path else '?'}{more}", body)
        assert (answer.status, answer.problem) == (422, "invalid"), more


# on a socket, because only there one header could become two

EVIL = "%0d%0aX-Evil:%20yes%0d%0a%0d%0a<html>"


@pytest.fixture
async def url(settings):
    async with serving(settings, tokens=ADMIN) as url:
        yield url


async def raw_answer(url, first, *headers, body=b""):
    """All bytes of the response."""
    async with wire(url) as one:
        lines = [first, "Host: localhost", f"Authorization: Bearer {SECRET}", "Connection: close", *headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        one.write("\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body)
        return await one.rest()


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_a_line_break_in_a_url_does_not_become_a_header(url, route):
    parts = route.path.split("/")
    paths = ["/".join(EVIL if part.startswith("{") else part for part in parts), f"{route.path}{EVIL}"]
    paths += [f"{route.path}?{name}={EVIL}" for name in (*route.query.model_fields, EVIL)]
    for path in paths:
        response = await raw_answer(url, f"{route.method} {path.replace('{', '').replace('}', '')} HTTP/1.1")
        head, _, body = response.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2")), (path, head)
        assert b"evil" not in head.lower()
        if route.responses.get(200) != "text/html":
            assert b"text/html" not in head, "only the body may name the unknown field"
        assert b"\nX-Evil" not in body


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "Last-Event-ID", "X-Request-Id", "traceparent", "Origin", "Accept", "Cookie"]
)
@pytest.mark.parametrize(
    "value",
    ["a%0d%0aX-Evil: yes", "a\u0085X-Evil: yes", "a\x0bX-Evil: yes", "<script>evil</script>", "\udcff evil"],
)
async def test_a_request_header_is_not_reflected_in_a_response_header(url, name, value):
    for first, body in (
        ("POST /jobs HTTP/1.1", b'{"task": "t"}'),
        ("GET /events?after=0 HTTP/1.1", b""),
        ("GET / HTTP/1.1", b""),
    ):
        response = await raw_answer(url, first, f"{name}: {value}", body=body)
        head = response.partition(b"\r\n\r\n")[0]
        assert head.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4"))
        assert b"evil" not in head.lower(), first


@pytest.mark.parametrize("value", ["a\r\nX-Evil: yes", "a\nX-Evil: yes", "a\rX-Evil: yes", "a\0b"])
async def test_a_line_break_in_an_idempotency_key_adds_no_response_header(url, value):
    """A proxy with another parser might pass it on: at most it becomes another, unknown header."""
    response = await raw_answer(
        url, "POST /jobs HTTP/1.1", f"Idempotency-Key: {value}", body=b'{"task": "t"}'
    )
    assert response.startswith((b"HTTP/1.1 400", b"HTTP/1.1 201"))
    assert b"evil" not in response.lower()


async def test_the_html_page_contains_no_data_of_the_request(url):
    """The only HTML page contains no name, host or address from the request."""
    headers = [
        "Accept: text/html",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Prefix: /evil",
        "Referer: http://evil.example",
    ]
    response = await raw_answer(url, "GET http://evil.example/?# HTTP/1.1", *headers)
    assert b"Content-Type: text/html" in response
    assert b"evil" not in response
    assert b"default-src 'none'" in response
    assert b"<script" not in response


MARKUP = "<img src=x onerror=alert(1)>'\"&"


async def test_stored_markup_is_never_returned_as_html(url, settings):
    """A payload, error, log, result or worker description is returned as JSON, which no browser renders as
    a page.
    """
    body = json.dumps({"task": "t", "payload": {"x": MARKUP}}).encode()
    await raw_answer(url, "POST /jobs HTTP/1.1", body=body)
    claimed = await raw_answer(url, "GET /jobs/next HTTP/1.1")
    assert json.dumps(MARKUP).encode() in claimed, "it is stored unchanged"
    for path in ("/jobs", "/events?after=0", "/queues", "/workers", "/stats", "/metrics"):
        head = (await raw_answer(url, f"GET {path} HTTP/1.1", "Accept: text/html")).partition(b"\r\n\r\n")[0]
        assert b"text/html" not in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'" in head
