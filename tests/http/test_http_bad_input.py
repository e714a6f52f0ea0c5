"""Malformed, oversized, slow and unusual requests: the server answers with a problem document or closes the
connection, and keeps running."""

import asyncio
import gzip

import pytest

from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response
from tests.support.http_server import ADMIN, SECRET, ask, fronting, serving, wire

pytest_plugins = ["tests.support.http_settings"]

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
BRIEF = Limits(linger_seconds=0.1)
QUICK = Limits(
    3,
    head_seconds=0.2,
    body_seconds=0.3,
    idle_seconds=1.0,
    send_seconds=0.5,
    linger_seconds=0.1,
    held=1_000_000,
)


class Mirror:
    """A core that records each request and echoes its body."""

    def __init__(self, most=2_000_000):
        self.asked, self.most = [], most

    async def answer(self, request):
        try:
            body = await request.read(self.most) if request.read else b""
        except Problem as problem:
            return problem.response()
        self.asked.append((request.method, request.path, request.query, len(body)))
        return Response(200, body, {"Content-Type": "text/plain"})


@pytest.fixture
async def api(settings):
    async with serving(settings, limits=BRIEF) as url:
        yield url


@pytest.fixture
async def mirror():
    core = Mirror()
    async with fronting(core, BRIEF) as (_, url):
        yield core, url


@pytest.fixture
async def quick():
    async with fronting(Mirror(), QUICK) as (front, url):
        yield front, url


@pytest.fixture
async def patient():
    """A server with a long idle timeout and a short timeout for incomplete requests."""
    async with fronting(Mirror(), Limits(head_seconds=0.2, idle_seconds=60, linger_seconds=0.1)) as (_, url):
        yield url


async def only_answer(url, data):
    """Send bytes and return the only answer, after which the server closes. Every answer has the security
    headers.
    """
    async with wire(url) as one:
        one.write(data)
        answer = await one.answer()
        assert SECURITY_HEADERS.items() <= answer.headers.items()
        assert "server" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert await one.is_closed()
        return answer


async def is_healthy(url):
    return (await ask(url, "GET", "/healthz")).status == 200


# malformed HTTP


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
        b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n",
        b"BREW /jobs HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /jobs\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /jobs /queues HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://[ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET ftp://localhost/jobs HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET jobs HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: a\x00b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A : b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: b\r\n folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b": nameless\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: -1\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: +2\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: gzip\r\n\r\n{}",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 1000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)  # fmt: skip
async def test_malformed_http_gets_a_problem(api, data):
    answer = await only_answer(api, data)
    assert (answer.status, answer.problem) == (400, "bad-request")
    assert b"Traceback" not in answer.body
    assert b"<html" not in answer.body
    assert await is_healthy(api)


@pytest.mark.parametrize(
    ("data", "status", "problem"),
    [
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri-too-long"),
        (b"GET /jobs?cursor=" + b"x" * 3_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri-too-long"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-A: " + b"x" * 9_000 + b"\r\n\r\n", 431, "too-many-headers"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-" + b"x" * 9_000 + b": a\r\n\r\n", 431, "too-many-headers"),
        (
            b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: a\r\n" % i for i in range(10_000)) + b"\r\n",
            431,
            "too-many-headers",
        ),
    ],
    ids=["long path", "very long query", "long header", "long name", "10,000 headers"],
)
async def test_too_large_headers_get_a_problem(api, data, status, problem):
    answer = await only_answer(api, data)
    assert (answer.status, answer.problem) == (status, problem)
    assert await is_healthy(api)


async def test_a_client_that_sends_too_much_can_read_the_problem():
    async with fronting(Mirror()) as (_, url), wire(url) as one:
        one.write(b"GET /" + b"x" * 20_000_000)
        await asyncio.wait_for(one.writer.drain(), 30)
        assert (await one.answer()).problem == "uri-too-long"


# paths


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "//", "//jobs", "/jobs/", "/jobs//", "/../jobs", "/jobs/../queues", "/jobs/%2e%2e/%2e%2e/etc/passwd",
        "/%6aobs", "/jobs%00", "/jobs%0d%0aX-A:%20b", "/jobs/%c0%ae%c0%ae", "/jobs/a%2fb", "/jobs/%ff", "/jobs/%", "/jobs/%zz",
        "/jobs/%ud800", "/jobs;a=b", "/" + "a/" * 2000, "/jobs/" + "x" * 5000, "/jobs/x%0d%0aSet-Cookie:%20a=b", "/jobs/x%00",
        "/queues/%00", "/jobs/%2a",
    ],
)  # fmt: skip
async def test_an_unknown_path_gets_a_problem(api, path):
    answer = await ask(api, "GET", path)
    assert answer.status in (404, 422)
    assert answer.problem in ("not-found", "no-namespace", "invalid")
    assert "set-cookie" not in answer.headers
    assert await is_healthy(api)


@pytest.mark.parametrize(
    "path", [b"/jobs/\xff\xfe", b"/jobs?queue=\xff", b"/\xc3\xa4", b"/jobs/\xed\xa0\x80"]
)
async def test_invalid_bytes_in_a_path_are_refused(api, path):
    async with wire(api) as one:
        one.write(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        answer = await one.answer()
        assert answer.status in (400, 404, 422)
        assert answer.problem
    assert await is_healthy(api)


async def test_absolute_urls_and_fragments_are_parsed(mirror):
    core, url = mirror
    for target in (
        "http://other.example/a/b?c=d",
        "/a/b?c=d#e",
        "/a/b?c=d",
        "http://other.example",
        "/?",
        "/a#b?c",
    ):
        await ask(url, "GET", target)
    asked = [(path, query) for _, path, query, _ in core.asked]
    assert asked == [("/a/b", "c=d"), ("/a/b", "c=d"), ("/a/b", "c=d"), ("/", ""), ("/", ""), ("/a", "")]


@pytest.mark.parametrize(
    "first", [b"CONNECT localhost:80 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"TRACE /jobs HTTP/1.1"]
)
async def test_unsupported_methods_are_refused(api, first):
    async with wire(api) as one:
        one.write(first + b"\r\n" + HOST + b"\r\n")
        assert (await one.answer()).problem in ("bad-request", "method-not-allowed")
    assert await is_healthy(api)


# bodies


async def test_a_body_with_a_too_large_content_length_is_refused_before_it_arrives(api):
    answer = await only_answer(
        api, b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 1048577\r\n\r\n"
    )
    assert (answer.status, answer.problem) == (413, "too-large")


async def test_a_chunked_body_that_grows_too_large_is_refused(api):
    data = (
        b"POST /jobs HTTP/1.1\r\n"
        + HOST
        + JSON
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"10000\r\n%b\r\n" % (b" " * 0x10000) * 32
    )
    answer = await only_answer(api, data + b"0\r\n\r\n")
    assert (answer.status, answer.problem) == (413, "too-large")
    assert await is_healthy(api)


async def test_a_received_body_above_the_limit_of_its_route_is_refused():
    async with fronting(Mirror(most=4)) as (_, url):
        assert (await ask(url, "POST", "/", b"four")).status == 200
        assert (await ask(url, "POST", "/", b"fives")).problem == "too-large"


async def test_a_batch_may_be_larger_than_a_job(api):
    padding = b" " * 2_000_000
    assert (await ask(api, "POST", "/jobs/batch", b'{"jobs": [{"task": "t"}]}' + padding)).status == 200
    assert (await ask(api, "POST", "/jobs", b'{"task": "t"}' + padding)).problem == "too-large"
    assert (await ask(api, "POST", "/jobs/batch", padding * 5)).problem == "too-large"


async def test_tiny_chunks_are_read_like_others(mirror):
    core, url = mirror
    async with wire(url) as one:
        one.write(
            b"POST /a HTTP/1.1\r\n"
            + HOST
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 50_000
            + b"0\r\nTrailer: a\r\n\r\n"
        )
        assert len((await one.answer()).body) == 50_000
    assert core.asked == [("POST", "/a", "", 50_000)]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "GZIP", "gzip, gzip", "x-unknown"])
async def test_a_compressed_body_is_refused_and_not_unpacked(api, coding):
    bomb = gzip.compress(b" " * 10_000_000)
    answer = await ask(api, "POST", "/jobs", bomb, content_encoding=coding)
    assert (answer.status, answer.problem) == (415, "unsupported-media-type")
    assert await is_healthy(api)


async def test_an_unauthorized_body_is_not_read(settings):
    async with serving(settings, tokens=ADMIN, limits=BRIEF) as url:
        answer = await only_answer(
            url,
            b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 1000000\r\n\r\n" + b" " * 100_000,
        )
        assert (answer.status, answer.problem, answer.headers["www-authenticate"]) == (
            401,
            "unauthorized",
            "Bearer",
        )
        assert (await ask(url, "POST", "/jobs", {"task": "t"}, token=SECRET)).status == 201


async def test_expect_100_continue_is_answered_with_100(mirror):
    _, url = mirror
    async with wire(url) as one:
        one.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert (await one.answer()).status == 100
        one.write(b"hello")
        assert (await one.answer()).body == b"hello"


async def test_expect_100_continue_with_a_too_large_body_is_refused(mirror):
    _, url = mirror
    async with wire(url) as one:
        one.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 5000000\r\n\r\n")
        answer = await one.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")


# timeouts


async def test_a_body_that_arrives_slowly_times_out(quick):
    _, url = quick
    async with wire(url) as one:
        one.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhel")
        answer = await one.answer()
        assert (answer.status, answer.problem, answer.headers["connection"]) == (408, "timeout", "close")
        assert await one.is_closed()


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + HOST + b"X-A: "])
async def test_headers_that_arrive_slowly_time_out(quick, start):
    _, url = quick
    async with wire(url) as one:
        one.write(start)
        slow_writes = asyncio.create_task(write_slowly(one))
        answer = await one.answer()
        assert (answer.status, answer.problem) == (408, "timeout")
        slow_writes.cancel()
        assert await one.is_closed()


async def write_slowly(one):
    for _ in range(1000):
        await asyncio.sleep(0.05)
        one.write(b"x")


async def test_a_second_request_that_arrives_slowly_times_out(quick):
    _, url = quick
    async with wire(url) as one:
        one.write(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await one.answer()).status == 200
        one.write(b"GET /b HTTP/1.1\r\n")
        slow_writes = asyncio.create_task(write_slowly(one))
        assert (await one.answer()).status == 408
        slow_writes.cancel()


@pytest.mark.parametrize(
    "begun", [b"G", b"GET /b", b"GET /b HTTP/1.1\r\nHo", b"GET /b HTTP/1.1\r\nHost: a\r\n", b"\r\nPOST"]
)
async def test_an_incomplete_second_request_times_out(patient, begun):
    """…long before the idle timeout."""
    whole = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nok"
    async with wire(patient) as one:
        one.write(whole + whole + begun)
        assert [(await one.answer()).status for _ in range(3)] == [200, 200, 408]
        assert await one.is_closed()


async def test_a_connection_stays_open_after_answered_requests(patient):
    whole = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nok"
    async with wire(patient) as one, wire(patient) as other:
        one.write(whole + whole)
        assert [(await one.answer()).status for _ in range(2)] == [200, 200]
        other.write(whole + b"GET")
        assert [(await other.answer()).status for _ in range(2)] == [
            200,
            408,
        ]  # so the server has checked `one` as well
        one.write(whole)
        assert (await one.answer()).status == 200


async def test_an_idle_connection_is_closed(quick):
    front, url = quick
    async with wire(url) as unused, wire(url) as used:
        used.write(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await used.answer()).headers["connection"] == "keep-alive"
        assert await unused.is_closed()
        assert await used.is_closed()
    assert not front.state.open


async def test_a_client_that_does_not_read_is_disconnected():
    gone = asyncio.Event()

    class Endless:
        async def answer(self, request):
            return Response(200, self.pieces())

        async def pieces(self):
            try:
                while True:
                    yield b"x" * 1_000_000
            finally:
                gone.set()

    async with fronting(Endless(), QUICK) as (front, url), wire(url) as one:
        one.write(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
        async with asyncio.timeout(30):
            await gone.wait()
            while front.state.open:
                await asyncio.sleep(0.01)


# limits


async def test_connections_beyond_the_limit_are_answered_503(quick):
    front, url = quick
    async with wire(url) as one, wire(url) as two, wire(url) as three:
        for each in (one, two, three):
            each.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\n")
        while len(front.state.open) < 3:
            await asyncio.sleep(0.01)
        answer = await only_answer(url, b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "busy", "1")
        for each in (one, two, three):
            each.write(b"hello")
            assert (await each.answer()).body == b"hello"
    async with asyncio.timeout(30):
        while front.state.open:
            await asyncio.sleep(0.01)
    assert (await ask(url, "GET", "/a")).status == 200


async def test_the_sum_of_all_unfinished_bodies_has_a_limit(quick):
    _, url = quick
    start = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 900000\r\n\r\n" + b"x" * 600_000
    async with wire(url) as one, wire(url) as two:
        one.write(start)
        two.write(start)
        answers = [await one.answer(), await two.answer()]
        assert sorted(answer.problem for answer in answers) == ["busy", "timeout"]
    assert len((await ask(url, "POST", "/a", b"x" * 900_000)).body) == 900_000


# unusual but valid


async def test_an_http_1_0_request_is_answered_and_its_connection_closed(mirror):
    _, url = mirror
    async with wire(url) as one:
        one.write(b"GET /a HTTP/1.0\r\n\r\n")
        answer = await one.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await one.is_closed()


async def test_pipelined_requests_are_answered_in_their_order(mirror):
    core, url = mirror
    async with wire(url) as one:
        one.write(
            b"".join(
                b"POST /%d HTTP/1.1\r\n%bContent-Length: 3\r\n\r\n%03d" % (i, HOST, i) for i in range(200)
            )
        )
        assert [(await one.answer()).body for _ in range(200)] == [b"%03d" % i for i in range(200)]
    assert [path for _, path, _, _ in core.asked] == [f"/{i}" for i in range(200)]


async def test_malformed_bytes_in_the_same_packet_discard_the_request_before_them(mirror):
    core, url = mirror
    async with wire(url) as one:
        one.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nokno HTTP at all\r\n\r\n")
        assert (await one.answer()).problem == "bad-request"
        assert await one.is_closed()
    assert core.asked == []


async def test_an_upgrade_request_is_ignored(mirror):
    _, url = mirror
    for protocol in (b"h2c", b"websocket", b"TLS/1.0"):
        async with wire(url) as one:
            one.write(
                b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n"
            )
            assert (await one.answer()).status == 200
            one.write(b"GET /b HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (await one.answer()).status == 200


async def test_an_unread_body_does_not_become_the_next_request(api):
    inner = b"GET /queues HTTP/1.1\r\n" + HOST + b"\r\n"
    async with wire(api) as one:
        one.write(b"GET /healthz HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
        assert (await one.answer()).json() == {"status": "ok"}
        one.write(b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await one.answer()).status == 404


async def test_a_head_response_has_no_body_and_the_connection_stays_usable(api):
    async with wire(api) as one:
        one.write(b"HEAD /healthz HTTP/1.1\r\n" + HOST + b"\r\nHEAD /nothing HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await one.answer("HEAD")).status == 200
        assert (await one.answer("HEAD")).status == 404
        one.write(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await one.answer()).json() == {"status": "ok"}
