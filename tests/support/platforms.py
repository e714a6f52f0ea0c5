"""The real server of each platform, as a process: the API must be the same in each of them.

with PLATFORMS["asgi"](settings, folder) as asked: ...     # a server, and a function that sends admin's requests
with asgi(settings, folder, "--root-path", "/api") as server: ...    # more arguments: server.url, server.output()
"""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sublet.connection.settings import Settings
from tests.support.http_server import ADMIN, SECONDS, SECRET, Served, ask, serve_process
from tests.support.lambda_runtime import asking, runtime
from tests.support.paths import PYTHONPATH
from tests.support.processes import plain_environment, until
from tests.support.route_samples import Ask

UP = re.compile(r"(?:running on|Listening at:) (http://[\d.]+:\d+)")
"""The line that a server prints when it listens."""
GOOGLE = "from sublet_functions.google import event, http\n"
"""The whole of a user's main.py."""


def environment(settings: Settings | None, folder: Path, tokens: str = ADMIN, **env: str) -> dict[str, str]:
    """This process's environment with the settings of a namespace, tokens and `env`, and no other variable of
    Sublet.
    """
    clean = plain_environment()
    clean |= {"PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{folder}", "PYTHONUNBUFFERED": "1", "HOME": str(folder)}
    clean |= (
        {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace} if settings else {}
    )
    return clean | ({"SUBLET_TOKENS": tokens} if tokens else {}) | env


@contextlib.contextmanager
def spawned(words: Sequence[str], folder: Path, env: dict[str, str]) -> Iterator[Served]:
    """Start a server (`python -m …`) until the block's end; it may not listen yet."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, env=env, stdout=out, stderr=err
        )
    server = Served(process, folder)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS / 2)
        if process.poll() is None:
            process.kill()
            process.wait(SECONDS)


@contextlib.contextmanager
def up(words: Sequence[str], folder: Path, env: dict[str, str]) -> Iterator[Served]:
    """The same, once it listens."""
    with spawned(words, folder, env) as server:
        until(lambda: UP.search(server.output()) or server.process.poll() is not None, server.output)
        found = UP.search(server.output())
        assert found, server.output()
        server.url = found[1]
        yield server


def asgi(
    settings: Settings, folder: Path, *words: str, **env: str
) -> contextlib.AbstractContextManager[Served]:
    """`uvicorn sublet_functions.asgi:app`."""
    command = ["uvicorn", "sublet_functions.asgi:app", "--port", "0", *words]
    return up(command, folder, environment(settings, folder, **env))


def wsgi(
    settings: Settings, folder: Path, *words: str, **env: str
) -> contextlib.AbstractContextManager[Served]:
    """`gunicorn sublet_functions.wsgi:app`, with threads for several callers."""
    command = [
        "gunicorn",
        "sublet_functions.wsgi:app",
        "--bind",
        "127.0.0.1:0",
        "--threads",
        "8",
        "--limit-request-line",
        "8190",
        *words,
    ]
    return up(command, folder, environment(settings, folder, **env))


def google(
    settings: Settings, folder: Path, *words: str, **env: str
) -> contextlib.AbstractContextManager[Served]:
    """`functions-framework`, as Cloud Run functions use it."""
    (folder / "main.py").write_text(GOOGLE)
    command = ["functions_framework", "--target", "http", "--host", "127.0.0.1", "--port", "0", *words]
    return up(command, folder, environment(settings, folder, GUNICORN_LOG_LEVEL="info", **env))


def asking_for(method: str, path: str, body: Any = None, *lines: bytes) -> bytes:
    """A request of an admin, as bytes; `lines` are further headers."""
    data = b"" if body is None else json.dumps(body).encode()
    head = [
        f"{method} {path} HTTP/1.1".encode(),
        b"Host: localhost",
        b"Authorization: Bearer " + SECRET.encode(),
        *lines,
    ]
    head += [] if body is None else [b"Content-Type: application/json", b"Content-Length: %d" % len(data)]
    return b"\r\n".join(head) + b"\r\n\r\n" + data


def asked_at(url: str, token: str = SECRET) -> Ask:
    """A function that sends requests to the server at a URL, with an admin's token unless another is given."""

    async def asked(method: str, path: str, body: Any = None, **how: str) -> Any:
        return await ask(url, method, path, body, **({"token": token} | how))

    return asked


@contextlib.contextmanager
def _served(
    start: Callable[..., contextlib.AbstractContextManager[Served]], settings: Settings, folder: Path
) -> Iterator[Ask]:
    with start(settings, folder) as server:
        yield asked_at(server.url)


@contextlib.contextmanager
def _aiohttp(settings: Settings, folder: Path) -> Iterator[Ask]:
    with serve_process(settings, tokens=ADMIN) as server:
        yield asked_at(server.url)


@contextlib.contextmanager
def _lambda(settings: Settings, folder: Path) -> Iterator[Ask]:
    with runtime(settings, ADMIN) as invoke:
        asked = asking(invoke)
        yield lambda method, path, body=None, **how: asked(method, path, body, **({"token": SECRET} | how))


PLATFORMS: dict[str, Callable[[Settings, Path], contextlib.AbstractContextManager[Ask]]] = {
    "aiohttp": _aiohttp,
    "asgi": functools.partial(_served, asgi),
    "wsgi": functools.partial(_served, wsgi),
    "functions-framework": functools.partial(_served, google),
    "lambda": _lambda,
}
"""The platforms on which the API must be the same."""
