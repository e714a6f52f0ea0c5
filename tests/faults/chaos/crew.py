"""Workers of both kinds, an HTTP handler, and the faults of all of them and of the server."""

import time
from collections.abc import Mapping, Sequence

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.processes import Process

FROZEN = 1.5 * LEASE
"""Seconds for which a worker is frozen: its leases end."""


class Crew:
    """Workers, some of them over HTTP, and what happens to them. `down`: when the server was, in ms since 1970."""

    def __init__(self, harness: Harness, direct: int = 3, over_http: int = 2) -> None:
        self.harness, self.down = harness, list[tuple[int, int]]()
        self.handler, self.port = harness.processes.start_api()
        self.over_http = {"SUBLET_SOURCE": f"http://127.0.0.1:{self.port}"}
        ways: Sequence[Mapping[str, str]] = [*[{}] * direct, *[self.over_http] * over_http]
        self.workers: dict[str, Mapping[str, str]] = {
            harness.processes.start_worker(lease=LEASE, env=env).name: env for env in ways
        }

    def hire(self, env: Mapping[str, str]) -> None:
        """Add a worker."""
        self.workers[self.harness.add_worker(env=env).name] = env

    def kill_worker(self) -> None:
        """Kill a worker and start another one."""
        worker = self._one()
        self.harness.kill_worker(worker)
        self.hire(self.workers[worker.name])

    def freeze_worker(self) -> None:
        """Freeze a worker for longer than its leases."""
        worker = self._one()
        self.harness.freeze_worker(worker)
        self.harness.wait(FROZEN)
        worker.thaw()

    def kill_handler(self) -> None:
        """Kill the HTTP handler; another one takes its port."""
        with self.harness.fault("SIGKILL of the handler"):
            self.handler.kill()
            self.handler, _ = self.harness.processes.start_api(self.port)

    def restart_server(self) -> None:
        """Kill Redis; it restarts on its append-only file."""
        began = now_ms()
        with self.harness.fault("SIGKILL of the server"):
            self.harness.server_.kill()
            self.harness.wait(0.3)
            self.harness.server_.start()
        self.down.append((began, now_ms()))

    def _one(self) -> Process:
        return self.harness.random.choice(self.harness.processes.running)


def now_ms() -> int:
    """The ms since 1970, by this machine's clock."""
    return round(time.time() * 1000)
