"""`sublet dev` as a process, with everything that it starts: its output, its processes, its leftovers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from tests.support.paths import PYTHONPATH
from tests.support.processes import SECONDS, is_alive, plain_environment, until

MARK = "DEV_TEST_MARK"
"""An environment variable that marks everything that a platform starts."""
TASKS = """
import asyncio, os, time
from sublet import App

app = App()

@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b

@app.task
async def hold(path: str) -> str:
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return VERSION

VERSION = "one"
"""
PATCHED = """
import sys
from sublet.devtools.platform import api_service, local_workers, redis_service, supervisor, worker_monitor
{patch}
from sublet.__main__ import main
sys.exit(main())
"""
"""The same platform, with other constants."""
IMPATIENT = "worker_monitor.FROZEN_SECONDS = 7.0; supervisor.HEALTH_SECONDS, supervisor.FAILURES_MAX = 0.3, 2"
"""Workers send a heartbeat every 5 s."""
NO_TICK = "local_workers.TICK_SECONDS = 1000.0"


class Dev:
    """A platform in a process of its own, on a folder with an app in it."""

    def __init__(self, folder: Path, *words: str, patch: str = "", tasks: str = TASKS) -> None:
        self.mark, self.folder = uuid.uuid4().hex, folder
        (folder / "tasks.py").write_text(tasks)
        kept = plain_environment("PYTHON", "NO_COLOR")
        self.env = {**kept, "PYTHONPATH": PYTHONPATH, MARK: self.mark}
        how = ["-c", PATCHED.format(patch=patch)] if patch else ["-m", "sublet"]
        command = [sys.executable, *how, "dev", "tasks:app", "--json", *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=folder, env=self.env, text=True, stdout=pipe, stderr=pipe
        )
        self.lines: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors += self.process.stderr

    def events_of(self, source: str, event: str, **facts: Any) -> list[dict[str, Any]]:
        """The events so far of a source and kind, with these fields."""
        return [
            line for line in list(self.lines)
            if (line["source"], line["event"]) == (source, event) and all(line.get(k) == v for k, v in facts.items())
        ]  # fmt: skip

    def until(self, source: str, event: str, nth: int = 1, **facts: Any) -> dict[str, Any]:
        """Wait for the `nth` such event; returns it."""
        until(
            lambda: len(self.events_of(source, event, **facts)) >= nth or self.process.poll() is not None,
            self.story,
        )
        assert len(self.events_of(source, event, **facts)) >= nth, self.story()
        return self.events_of(source, event, **facts)[nth - 1]

    def up(self) -> dict[str, Any]:
        """Wait until it is ready; returns that event, with `url` and `redis_url`."""
        return self.until("dev", "ready")

    def story(self) -> str:
        """All output so far."""
        return "\n".join(
            [*(f"{x['at'][11:]} {x['source']} {x['event']}: {x['detail']}" for x in self.lines), *self.errors]
        )

    def family(self) -> list[int]:
        """The living processes that it has started, itself included."""
        mark = f"{MARK}={self.mark}".encode()
        found = [
            line["pid"] for line in self.events_of("server", "ready") if is_alive(line["pid"])
        ]  # it overwrites its environment
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes() and is_alive(int(path.parent.name)):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def pid_of(self, source: str) -> int:
        """The current process of the server, or the API."""
        return int(self.events_of(source, "ready")[-1]["pid"])

    def outside(self) -> dict[str, str]:
        """The environment of another terminal."""
        return {name: value for name, value in self.env.items() if name != MARK}

    def sublet(self, *words: str, url: str = "") -> str:
        """Run `sublet …` as in another terminal; returns its output."""
        env = self.outside() | {"SUBLET_REDIS_URL": url or self.up()["redis_url"]}
        done = subprocess.run(
            [sys.executable, "-m", "sublet", *words],
            cwd=self.folder,
            env=env,
            text=True,
            capture_output=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def end(self, number: int = signal.SIGINT) -> int:
        """Send it a signal and wait for its end; returns its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        code = self.process.wait(SECONDS)
        for thread in self._threads:
            thread.join(SECONDS)
        return code

    def is_gone(self) -> bool:
        """Whether all its processes end in time."""
        deadline = time.monotonic() + 25
        while self.family() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.family()

    def close(self) -> None:
        """End all that is left."""
        for pid in self.family():
            os.kill(pid, signal.SIGKILL)
        self.wait()
