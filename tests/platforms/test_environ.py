"""The WSGI environ: paths, headers, bodies, and the state of the connection."""

import contextlib
import signal
import socket

import pytest

from sublet_functions.adapters.wsgi_environ import (
    cut,
    has_disconnected,
    headers_of,
    is_ending,
    path_of,
    prefix_of,
    read_body,
)
from sublet_functions.http.problems import Problem


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"PATH_INFO": "/jobs/0-a"}, "/jobs/0-a"),
        ({"PATH_INFO": ""}, "/"),
        ({"PATH_INFO": "/jobs/a/b", "RAW_URI": "/jobs/a%2Fb?x=%41"}, "/jobs/a%2Fb"),
        ({"PATH_INFO": "/jobs/a/b", "REQUEST_URI": "/jobs/a%2fb#x"}, "/jobs/a%2fb"),
        ({"PATH_INFO": "/jobs/a/b", "RAW_URI": "http://a.example/jobs/a%2Fb"}, "/jobs/a%2Fb"),
        (
            {"PATH_INFO": "/jobs", "RAW_URI": "/api/jobs"},
            "/jobs",
        ),  # a middleware has removed a prefix without setting SCRIPT_NAME
        ({"PATH_INFO": "/jobs/a/b", "SCRIPT_NAME": "/a b", "RAW_URI": "/a%20b/jobs/a%2Fb"}, "/jobs/a%2Fb"),
        ({"PATH_INFO": "", "SCRIPT_NAME": "/api", "RAW_URI": "/api"}, "/"),
        ({"PATH_INFO": "/queues/\xc3\xa4 ?%", "RAW_URI": "/elsewhere"}, "/queues/%C3%A4%20%3F%25"),
        ({"PATH_INFO": "/queues/\xff", "RAW_URI": "/queues/%FF"}, "/queues/%FF"),
        ({"PATH_INFO": "/x", "RAW_URI": "http://[/x"}, "/x"),
    ],
)
def test_the_path_is_read_below_the_mount_point_as_it_was_sent(given, path):
    assert path_of(given) == path


@pytest.mark.parametrize(
    ("script", "prefix"), [("", ""), ("/", ""), ("/api", "/api"), ("/b\xc3\xa4ck/a b", "/b%C3%A4ck/a%20b")]
)
def test_the_prefix_of_links_is_the_mount_point(script, prefix):
    assert prefix_of({"SCRIPT_NAME": script, "PATH_INFO": "/jobs"}) == prefix


def test_headers_have_their_http_names():
    given = {
        "HTTP_X_REQUEST_ID": "1",
        "CONTENT_TYPE": "a/b",
        "CONTENT_LENGTH": "",
        "REMOTE_ADDR": "::1",
        "HTTP_ACCEPT": "*/*",
    }
    assert headers_of(given) == {"x-request-id": "1", "content-type": "a/b", "accept": "*/*"}


def test_header_values_are_decoded_as_utf_8():
    given = {"HTTP_CE_ID": "gr\xc3\xbcn", "CONTENT_TYPE": "\xc3\xa4", "HTTP_X": "gr\xfcn"}
    assert headers_of(given) == {"ce-id": "grün", "content-type": "ä", "x": "grün"}


class Wire:
    """A request body in small pieces that may break off."""

    def __init__(self, *pieces):
        self.pieces, self.asked = list(pieces), []

    def read(self, size):
        self.asked.append(size)
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece


CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


@pytest.mark.parametrize(
    ("given", "pieces", "outcome"),
    [
        ({"CONTENT_LENGTH": "4"}, [b"ab", b"cd", b"rest"], b"abcd"),
        ({"CONTENT_LENGTH": ""}, [b"rest"], b""),
        ({"CONTENT_LENGTH": "0"}, [b"rest"], b""),
        ({"CONTENT_LENGTH": "5"}, [b"ab"], "bad-request"),
        ({"CONTENT_LENGTH": "5"}, [b"ab", OSError("reset")], "bad-request"),
        ({"CONTENT_LENGTH": "11"}, [b"ab"], "too-large"),
        ({"CONTENT_LENGTH": "-1"}, [b"ab"], "bad-request"),
        ({"CONTENT_LENGTH": "\u0663"}, [b"ab"], "bad-request"),
        (CHUNKED, [b"ab", b"cd"], b"abcd"),
        (CHUNKED, [b"ab", ValueError("no chunk")], "bad-request"),
        (CHUNKED, [b"abcd"] * 5, "too-large"),
        ({"wsgi.input_terminated": True}, [b"ab"], b"ab"),
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, [b"ab"], "bad-request"),
    ],
)
def test_a_body_is_read_exactly_to_its_end_and_up_to_the_limit(given, pieces, outcome):
    wire = Wire(*pieces)
    given = given | {"wsgi.input": wire}
    if isinstance(outcome, bytes):
        assert read_body(given, 10, 5) == outcome
    else:
        with pytest.raises(Problem) as caught:
            read_body(given, 10, 5)
        assert caught.value.slug == outcome
    assert max(wire.asked, default=0) <= 11, "it reads at most one byte above the limit"


def test_a_slow_body_times_out():
    with pytest.raises(Problem, match="did not arrive within"):
        read_body({"CONTENT_LENGTH": "9", "wsgi.input": Wire(b"a", b"b")}, 10, 0)


@pytest.mark.parametrize("name", ["gunicorn.socket", "werkzeug.socket"])
def test_a_disconnect_is_detected_if_the_server_exposes_the_socket(name):
    ours, theirs = socket.socketpair()
    with ours:
        assert not has_disconnected({name: ours})
        theirs.close()
        assert has_disconnected({name: ours})
    assert has_disconnected({name: ours})
    assert not has_disconnected({})
    assert has_disconnected({"waitress.client_disconnected": lambda: True})


@pytest.mark.parametrize("name", ["gunicorn.socket", "werkzeug.socket"])
def test_a_connection_can_be_shut_down_in_one_or_both_directions(name):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        cut({name: ours}, socket.SHUT_RD)
        assert ours.recv(1) == b""
        ours.sendall(b"still")
        assert theirs.recv(9) == b"still"
        cut({name: ours})
        assert theirs.recv(9) == b""
        with pytest.raises(BrokenPipeError):
            ours.sendall(b"no more")
    cut({name: ours})
    cut({})


class Worker:
    """Like gunicorn's worker."""

    alive = True

    def handle_exit(self, number, frame):
        """Record the signal."""
        self.alive = False


@contextlib.contextmanager
def handled(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_stop_of_the_server_is_detected_from_its_worker():
    worker = Worker()
    with handled(worker.handle_exit):
        assert not is_ending()
        signal.raise_signal(signal.SIGTERM)
        assert is_ending()
    for other in (signal.SIG_DFL, lambda number, frame: None, [].append):
        with handled(other):
            assert not is_ending()
