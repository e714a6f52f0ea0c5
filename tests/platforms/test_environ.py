"""What a WSGI server hands over: paths, headers and bodies, and a look at the connection."""

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
        ),  # a middleware has taken something off, and says nothing
        ({"PATH_INFO": "/jobs/a/b", "SCRIPT_NAME": "/a b", "RAW_URI": "/a%20b/jobs/a%2Fb"}, "/jobs/a%2Fb"),
        ({"PATH_INFO": "", "SCRIPT_NAME": "/api", "RAW_URI": "/api"}, "/"),
        ({"PATH_INFO": "/queues/\xc3\xa4 ?%", "RAW_URI": "/elsewhere"}, "/queues/%C3%A4%20%3F%25"),
        ({"PATH_INFO": "/queues/\xff", "RAW_URI": "/queues/%FF"}, "/queues/%FF"),
        ({"PATH_INFO": "/x", "RAW_URI": "http://[/x"}, "/x"),
    ],
)
def test_the_path_is_the_one_that_was_sent_below_where_we_are_mounted(given, path):
    assert path_of(given) == path


def test_headers_go_by_their_names_on_the_wire():
    given = {
        "HTTP_X_REQUEST_ID": "1",
        "CONTENT_TYPE": "a/b",
        "CONTENT_LENGTH": "",
        "REMOTE_ADDR": "::1",
        "HTTP_ACCEPT": "*/*",
    }
    assert headers_of(given) == {"x-request-id": "1", "content-type": "a/b", "accept": "*/*"}


def test_a_header_means_what_its_bytes_mean_as_utf_8():
    given = {"HTTP_CE_ID": "gr\xc3\xbcn", "CONTENT_TYPE": "\xc3\xa4", "HTTP_X": "gr\xfcn"}
    assert headers_of(given) == {"ce-id": "grün", "content-type": "ä", "x": "grün"}


class Wire:
    """A body on its way in, that comes in small pieces and may break."""

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
def test_a_body_is_read_to_its_end_and_no_further_and_never_more_than_a_route_takes(given, pieces, outcome):
    wire = Wire(*pieces)
    given = given | {"wsgi.input": wire}
    if isinstance(outcome, bytes):
        assert read_body(given, 10, 5) == outcome
    else:
        with pytest.raises(Problem) as caught:
            read_body(given, 10, 5)
        assert caught.value.slug == outcome
    assert max(wire.asked, default=0) <= 11, "it asks for no more than there may be"


def test_a_body_that_drips_is_given_up():
    with pytest.raises(Problem, match="did not arrive within"):
        read_body({"CONTENT_LENGTH": "9", "wsgi.input": Wire(b"a", b"b")}, 10, 0)


@pytest.mark.parametrize("name", ["gunicorn.socket", "werkzeug.socket"])
def test_who_has_hung_up_is_seen_where_the_server_shows_the_connection(name):
    ours, theirs = socket.socketpair()
    with ours:
        assert not has_disconnected({name: ours})
        theirs.close()
        assert has_disconnected({name: ours})
    assert has_disconnected({name: ours})
    assert not has_disconnected({})
    assert has_disconnected({"waitress.client_disconnected": lambda: True})


@pytest.mark.parametrize("name", ["gunicorn.socket", "werkzeug.socket"])
def test_a_connection_can_be_ended_in_one_direction_or_in_both(name):
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
    """As gunicorn has it."""

    alive = True

    def handle_exit(self, number, frame):
        """Note it."""
        self.alive = False


@contextlib.contextmanager
def handled(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_that_the_server_has_been_told_to_stop_is_seen_where_its_worker_notes_it():
    worker = Worker()
    with handled(worker.handle_exit):
        assert not is_ending()
        signal.raise_signal(signal.SIGTERM)
        assert is_ending()
    for other in (signal.SIG_DFL, lambda number, frame: None, [].append):
        with handled(other):
            assert not is_ending()
