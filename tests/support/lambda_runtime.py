"""AWS Lambda on loopback: a small fake of the Runtime API, and AWS's own client (`awslambdaric`) in a process
behind it.

    with runtime(settings, "ci:submit:<secret>", SUBLET_APP="tasks:app") as invoke:
        result, error = invoke(http_event("GET", "/jobs/one", {"authorization": "Bearer …"}))
        answer = await asking(invoke)("POST", "/jobs", {"task": "t"}, token="…")

It behaves as the platform does, as far as the process can see: one invocation at a time, a deadline at which
the process is killed (the next invocation starts a new one), answers of 6 MB at most, and a process that is
frozen between two invocations.
"""

import asyncio
import base64
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.tasks.programs.bound_process import spawn_bound
from tests.support.http_server import Answer
from tests.support.paths import PYTHONPATH
from tests.support.processes import plain_environment
from tests.support.route_samples import Ask

HANDLER = "sublet_functions.aws.handler"
API = "/2018-06-01/runtime"
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:sublet"
ANSWER_MAX = 6_291_556
"""The largest answer, in bytes of JSON."""
SECONDS = 30.0
"""How long a process may take to request its first invocation."""
LATE = 1.0
"""Seconds after the deadline at which a process is killed: the platform is strict, a busy machine slow."""


class Runtime:
    """A function: call it with an event. Its process starts with the first call, or with `start()`."""

    def __init__(self, handler: str, root: Path, place: Path, env: Mapping[str, str]) -> None:
        self.seconds = 0.0
        """Duration of the last invocation, from handing out its event to its answer."""
        self.started_in = 0.0
        """Seconds from the last start of a process to its first request for an event."""
        self.init_error: Any = None
        """The error of a process that could not import its handler."""
        self._handler, self._root, self._log, self._env = handler, root, place / "log", dict(env)
        self._events: queue.Queue[tuple[str, bytes, float]] = queue.Queue()
        self._answers: queue.Queue[tuple[str, str, bytes]] = queue.Queue()
        self._asks = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._server = _Server(self)

    @property
    def pid(self) -> int:
        """The id of the current process."""
        assert self._process
        return self._process.pid

    def output(self) -> str:
        """The function's log: the output of all its processes."""
        return self._log.read_text()

    def start(self) -> None:
        """Start a process that waits for an event, unless one is running."""
        if not self._process or self._process.poll() is not None:
            self._asks.clear()
            self._events = queue.Queue()  # requests of the old process wait on the old queue
            began = time.perf_counter()
            words = [sys.executable, "-m", "awslambdaric", self._handler]
            env = self._env | {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}"}
            with self._log.open("ab") as log:
                self._process = spawn_bound(words, cwd=self._root, env=env, stdout=log, stderr=log)
            self._wait()
            self.started_in = time.perf_counter() - began
        self._wait()

    def _wait(self) -> None:
        """Wait until the process requests an event, or ends."""
        deadline = time.monotonic() + SECONDS
        while (
            not self._asks.wait(0.005)
            and self._process
            and self._process.poll() is None
            and time.monotonic() < deadline
        ):
            pass

    def __call__(self, event: Any, deadline_seconds: float = 30.0) -> tuple[Any, dict[str, Any] | None]:
        """Invoke it; returns (the handler's result, None), or (None, the error as the platform reports it)."""
        with self._one_at_a_time:
            self.start()
            if not self._asks.is_set():
                return None, self.init_error or self._over(
                    "Runtime.ExitError", "the process ended before it asked for an event"
                )
            request, began, self._answers = uuid.uuid4().hex, time.perf_counter(), queue.Queue()
            self._asks.clear()
            self._signal(signal.SIGCONT)
            self._events.put((request, json.dumps(event).encode(), time.time() + deadline_seconds))
            kind, body = self._answer(request, deadline_seconds)
            self.seconds = time.perf_counter() - began
            if kind == "response" and len(body) > ANSWER_MAX:
                return None, self._over("Function.ResponseSizeTooLarge", f"{len(body)} bytes", kill=False)
            return (json.loads(body), None) if kind == "response" else (None, json.loads(body))

    def _answer(self, request: str, deadline_seconds: float) -> tuple[str, bytes]:
        deadline = time.monotonic() + deadline_seconds + LATE
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                own, kind, body = self._answers.get(timeout=0.05)
                if own == request:
                    return kind, body
            if self._process and self._process.poll() is not None and self._answers.empty():
                return "error", json.dumps(
                    self._over("Runtime.ExitError", f"exit {self._process.returncode}")
                ).encode()
        return "error", json.dumps(
            self._over("Sandbox.Timedout", f"timed out after {deadline_seconds:g} s")
        ).encode()

    def _over(self, kind: str, words: str, *, kill: bool = True) -> dict[str, Any]:
        if kill:
            self.kill()
        return {"errorType": kind, "errorMessage": words}

    def freeze(self) -> None:
        """Stop the process, as the platform does with one that waits for an event; one that serves several at
        once stays awake.
        """
        if "AWS_LAMBDA_MAX_CONCURRENCY" not in self._env:
            self._signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the process and its children, as the platform does when it reclaims resources."""
        if self._process:
            self._signal(signal.SIGKILL)
            self._process.wait(SECONDS)
            self._asks.clear()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process and self._process.returncode is None:
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End everything."""
        self.kill()
        self._server.over.set()
        self._server.shutdown()
        self._server.server_close()

    # requests of the process to the Runtime API, on the server's threads

    def next(self) -> tuple[str, bytes, float] | None:
        """The next event; the process is frozen until there is one. None at the end."""
        events = self._events
        self.freeze()
        self._asks.set()
        while events is self._events and not self._server.over.is_set():
            with contextlib.suppress(queue.Empty):
                return events.get(timeout=0.2)
        return None

    def take(self, path: str, body: bytes) -> None:
        """Receive an answer to an event, or an error."""
        words = path.removeprefix(f"{API}/").split("/")
        if words == ["init", "error"]:
            self.init_error = json.loads(body)
        else:
            self._answers.put((words[1], words[2], body))


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.runtime, self.over = runtime, threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A killed process closes its connection."""


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        found = self.server.runtime.next() if self.path == f"{API}/invocation/next" else None
        if found is None:
            self._reply(404, b"{}")
            return
        request, body, deadline = found
        headers = {
            "Aws-Request-Id": request,
            "Deadline-Ms": str(int(deadline * 1000)),
            "Invoked-Function-Arn": ARN,
        }
        self._reply(200, body, {f"Lambda-Runtime-{name}": value for name, value in headers.items()})

    def do_POST(self) -> None:
        body = self._body()
        self._reply(202 if len(body) <= ANSWER_MAX else 413, b'{"status":"OK"}')
        self.server.runtime.take(self.path, body)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no access log."""


@contextlib.contextmanager
def runtime(
    settings: Settings | None,
    tokens: str = "",
    *,
    handler: str = HANDLER,
    folder: Path | None = None,
    **env: str,
) -> Iterator[Runtime]:
    """A function with the settings of a namespace and some tokens in its environment; `env` has further
    variables.

    `folder` holds its code, beside this checkout: the place of a `tasks.py`. Without settings it has no
    variables of Sublet but those that are given.
    """
    clean = plain_environment("AWS_")
    clean |= (
        {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace} if settings else {}
    )
    clean |= {"SUBLET_TOKENS": tokens} if tokens else {}
    with tempfile.TemporaryDirectory() as place:
        root = folder or Path(place)
        clean |= {
            "PYTHONPATH": f"{root}:{PYTHONPATH}",
            "LAMBDA_TASK_ROOT": str(root),
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        clean |= {
            "AWS_LAMBDA_FUNCTION_NAME": "sublet",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "AWS_REGION": "eu-central-1",
        }
        own = Runtime(handler, root, Path(place), clean | env)
        try:
            yield own
        finally:
            own.close()


def http_event(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    stage: str = "$default",
) -> dict[str, Any]:
    """A request as API Gateway's HTTP API and a Function URL send it (payload 2.0). `target` is a path with
    its query.
    """
    path, _, query = target.partition("?")
    sent = {
        name.lower(): value
        for name, value in {"host": "abc.execute-api.eu-central-1.amazonaws.com", **(headers or {})}.items()
    }
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path if stage == "$default" else f"/{stage}{path}",
        "rawQueryString": query,
        "cookies": [one for one in sent.pop("cookie", "").split("; ") if one],
        "headers": sent,
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "abc",
            "domainName": sent["host"],
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.7",
                "userAgent": "tests",
            },
            "requestId": uuid.uuid4().hex,
            "routeKey": "$default",
            "stage": stage,
            "timeEpoch": round(time.time() * 1000),
        },
        "isBase64Encoded": False,
    }
    if body:
        try:
            event["body"] = body.decode()
        except UnicodeDecodeError:
            event |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    return event if event["cookies"] else {name: value for name, value in event.items() if name != "cookies"}


def http_answer(result: Any) -> Answer:
    """The response that a caller of API Gateway receives for a handler's result."""
    assert set(result) <= {"statusCode", "headers", "body", "isBase64Encoded", "cookies"}, result
    body = (
        base64.b64decode(result["body"], validate=True)
        if result.get("isBase64Encoded")
        else result.get("body", "").encode()
    )
    return Answer(
        result["statusCode"], {name.lower(): value for name, value in result.get("headers", {}).items()}, body
    )


def asking(invoke: Runtime, deadline_seconds: float = 30.0) -> Ask:
    """`await asked(method, path, body, token=…, **headers)` over HTTP events; a body that is not bytes is
    sent as JSON.

    Fails when the invocation fails. Concurrent calls wait for their turn.
    """

    async def asked(method: str, path: str, body: Any = None, *, token: str = "", **headers: str) -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"authorization": f"Bearer {token}"} if token else {}
        sent |= (
            {"content-type": "application/json"} if body is not None and "content-type" not in sent else {}
        )
        assert not urlsplit(path).netloc
        result, error = await asyncio.to_thread(
            invoke, http_event(method, path, sent, data), deadline_seconds
        )
        assert error is None, (error, invoke.output())
        return http_answer(result)

    return asked
