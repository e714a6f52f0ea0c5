"""What stands in addresses and headers: every parameter with values that cannot be, and nothing becomes a header."""

import asyncio
import json
import urllib.parse

import pytest

from sublet_functions.api.routes import ROUTES
from tests.support.http_server import ADMIN, SECRET, serving, wire
from tests.support.route_samples import NOWHERE, filled, named, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

PARAMETERS = [
    (route, field.alias or name) for route in ROUTES for name, field in route.query.model_fields.items()
]
NUMBERS = {"limit", "wait", "for", "every", "lease"}
NO_NUMBERS = [
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
NO_WORDS = [
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
    said = {**dict(urllib.parse.parse_qsl(query)), **more}
    return f"{path}?{urllib.parse.urlencode(said)}"


def test_each_parameter_is_a_number_or_a_word_here():
    """A new one is told apart here first, so that it is tried with what cannot be."""
    words = {name for _, name in PARAMETERS} - NUMBERS
    assert words == {"task", "queue", "claim_id", "worker", "life", "jobs", "state", "cursor", "after", "job"}
    assert {name for _, name in PARAMETERS} >= NUMBERS


@pytest.mark.parametrize(
    ("route", "name"), PARAMETERS, ids=lambda value: value if isinstance(value, str) else named(value)
)
async def test_a_parameter_that_cannot_be_is_refused_wherever_it_stands(core, route, name):
    """…before anything is done for it: no page of a thousand million, no wait without end."""
    body = filled(sample(route).body, NOWHERE) if sample(route).body else None
    for value in NO_NUMBERS if name in NUMBERS else NO_WORDS:
        async with asyncio.timeout(20):
            answer = await core(route.method, address(route, {name: value}), body)
        assert (answer.status, answer.problem) == (422, "invalid"), (name, value)
        assert len(answer.body) < 2_000, "and megabytes are not said again"


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_an_unknown_or_repeated_parameter_is_refused(core, route):
    body = filled(sample(route).body, NOWHERE) if sample(route).body else None
    for more in ("__class__=1", "limit%00=1", "limit=1&limit=2"):
        path = filled(sample(route).path, NOWHERE)
        answer = await core(route.method, f"{path}{'&' if '?' in path else '?'}{more}", body)
        assert (answer.status, answer.problem) == (422, "invalid"), more


# over the wire, for only there a header could become two

EVIL = "%0d%0aX-Evil:%20yes%0d%0a%0d%0a<html>"


@pytest.fixture
async def url(settings):
    async with serving(settings, tokens=ADMIN) as url:
        yield url


async def raw_answer(url, first, *headers, body=b""):
    """All the bytes that come back."""
    async with wire(url) as one:
        lines = [first, "Host: localhost", f"Authorization: Bearer {SECRET}", "Connection: close", *headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        one.write("\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body)
        return await one.rest()


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_no_line_break_in_an_address_becomes_a_header(url, route):
    parts = route.path.split("/")
    paths = ["/".join(EVIL if part.startswith("{") else part for part in parts), f"{route.path}{EVIL}"]
    paths += [f"{route.path}?{name}={EVIL}" for name in (*route.query.model_fields, EVIL)]
    for path in paths:
        said = await raw_answer(url, f"{route.method} {path.replace('{', '').replace('}', '')} HTTP/1.1")
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2")), (path, head)
        assert b"evil" not in head.lower()
        assert b"text/html" not in head, "the body may name a field that nobody knows"
        assert b"\nX-Evil" not in body


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "Last-Event-ID", "X-Request-Id", "traceparent", "Origin", "Accept", "Cookie"]
)
@pytest.mark.parametrize(
    "value",
    ["a%0d%0aX-Evil: yes", "a\u0085X-Evil: yes", "a\x0bX-Evil: yes", "<script>evil</script>", "\udcff evil"],
)
async def test_no_header_of_a_request_comes_back_as_one_of_the_answer(url, name, value):
    for first, body in (
        ("POST /jobs HTTP/1.1", b'{"task": "t"}'),
        ("GET /events?after=0 HTTP/1.1", b""),
        ("GET / HTTP/1.1", b""),
    ):
        said = await raw_answer(url, first, f"{name}: {value}", body=body)
        head = said.partition(b"\r\n\r\n")[0]
        assert head.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4"))
        assert b"evil" not in head.lower(), first


@pytest.mark.parametrize("value", ["a\r\nX-Evil: yes", "a\nX-Evil: yes", "a\rX-Evil: yes", "a\0b"])
async def test_an_idempotency_key_with_a_real_line_break_is_only_what_it_is(url, value):
    """What a proxy of another opinion might let through: another header at most, which nobody here knows."""
    said = await raw_answer(url, "POST /jobs HTTP/1.1", f"Idempotency-Key: {value}", body=b'{"task": "t"}')
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 201"))
    assert b"evil" not in said.lower()


async def test_the_page_for_people_shows_nothing_that_somebody_sent(url):
    """The only HTML there is: no name, no host, no address of the caller's stands in it."""
    headers = [
        "Accept: text/html",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Prefix: /evil",
        "Referer: http://evil.example",
    ]
    said = await raw_answer(url, "GET http://evil.example/?# HTTP/1.1", *headers)
    assert b"Content-Type: text/html" in said
    assert b"evil" not in said
    assert b"default-src 'none'" in said
    assert b"<script" not in said


MARKUP = "<img src=x onerror=alert(1)>'\"&"


async def test_markup_that_somebody_stores_is_never_told_as_html(url, settings):
    """In a payload, an error, a log, a result, a worker's own words: it comes back as JSON, which no browser takes for a page."""
    body = json.dumps({"task": "t", "payload": {"x": MARKUP}}).encode()
    await raw_answer(url, "POST /jobs HTTP/1.1", body=body)
    claimed = await raw_answer(url, "GET /jobs/next HTTP/1.1")
    assert json.dumps(MARKUP).encode() in claimed, "it is kept as it is"
    for path in ("/jobs", "/events?after=0", "/queues", "/workers", "/stats", "/metrics"):
        head = (await raw_answer(url, f"GET {path} HTTP/1.1", "Accept: text/html")).partition(b"\r\n\r\n")[0]
        assert b"text/html" not in head
        assert b"X-Content-Type-Options: nosniff" in head
        assert b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'" in head
