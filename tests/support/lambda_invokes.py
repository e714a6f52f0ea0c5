"""Lambda's Invoke API on loopback, as an asynchronous caller sees it: it accepts an event and confirms that."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Taken = tuple[str, str, Any]
"""The path of an invocation (it names the function), the invocation type, and the event."""


class _Api(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Invoke)
        self.taken: queue.Queue[Taken] = queue.Queue()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Invoke(BaseHTTPRequestHandler):
    server: _Api

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.put((unquote(self.path), self.headers["x-amz-invocation-type"], json.loads(body)))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write no access log."""


@contextmanager
def invoke_api() -> Iterator[tuple["queue.Queue[Taken]", dict[str, str]]]:
    """Start it; gives the invocations it received, and the variables that direct boto3 to it."""
    api = _Api()
    try:
        yield (
            api.taken,
            {
                "AWS_ENDPOINT_URL_LAMBDA": f"http://127.0.0.1:{api.server_port}",
                "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
                "AWS_SECRET_ACCESS_KEY": "dummy-dummy-dummy",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            },
        )
    finally:
        api.shutdown()
        api.server_close()
