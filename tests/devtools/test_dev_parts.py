"""Parts of `sublet dev`: the description of an app, its output, supervision and floods."""

import argparse
import asyncio
import contextlib
import fcntl
import io
import json
import math
import os
import sys
import tomllib
import types
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from sublet import App, Context
from sublet.cli.develop import dev
from sublet.cli.workers.worker_events import as_json
from sublet.connection.settings import Settings
from sublet.devtools.bootstrap import missing
from sublet.devtools.platform import app_info, app_source, reload, supervisor
from sublet.devtools.platform.app_info import describe
from sublet.devtools.platform.app_runner import AppRunner
from sublet.devtools.platform.app_source import AppInfo
from sublet.devtools.platform.platform import PlatformConfig
from sublet.devtools.platform.pool import LocalPool, pool_name
from sublet.devtools.platform.reload import Reload
from sublet.devtools.platform.reports import PlatformEvent, Reporter
from sublet.devtools.platform.supervisor import Supervisor
from sublet.devtools.platform.worker_output import LINES_MAX, WorkerOutput, _retry_delay
from sublet.devtools.temporary_folder import LOCKS, PREFIX, sweep
from sublet.errors import JobsError
from sublet.operations.pool import Pool
from sublet.protocol.keys import is_name
from sublet.store.store import Store
from tests.support.paths import ROOT


class Recorder:
    """Records all reports."""

    def __init__(self) -> None:
        self.lines: list[PlatformEvent] = []
        self.says = Reporter(self.lines.append)

    def events(self) -> list[tuple[str, str]]:
        return [(line.source, line.event) for line in self.lines]


def test_an_app_is_described_with_a_simple_task_as_example() -> None:
    app = App()

    @app.task
    async def strange(what: Path) -> None: ...

    @app.task(queue="mail")
    async def send(ctx: Context, to: str, times: int, tags: list[str], loud: bool = False) -> None: ...

    found = describe("tasks:app", app)
    assert (found.queues, found.tasks) == (["default", "mail"], ["send", "strange"])
    assert found.example == {
        "task": "send",
        "queue": "mail",
        "payload": {"to": "hello", "times": 1, "tags": []},
    }
    assert str(Path(__file__).parent) in found.folders  # a module of the user
    assert not any(
        "site-packages" in folder or folder.startswith(str(ROOT / "jobs")) for folder in found.folders
    )


def test_a_linked_module_of_the_standard_library_is_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, elsewhere = tmp_path / "lib", tmp_path / "etc"
    for folder in (library, elsewhere):
        folder.mkdir()
    (elsewhere / "sitecustomize.py").touch()
    (library / "sitecustomize.py").symlink_to(elsewhere / "sitecustomize.py")
    monkeypatch.setattr(app_info.sysconfig, "get_paths", lambda: {"stdlib": str(library)})
    custom = types.ModuleType("sitecustomize")
    custom.__file__ = str(library / "sitecustomize.py")
    monkeypatch.setitem(sys.modules, "sitecustomize", custom)
    assert str(elsewhere) not in describe("tasks:app", App()).folders


def test_each_app_and_folder_has_a_pool(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    names = [
        pool_name("tasks:app", tmp_path),
        pool_name("tasks:app", tmp_path / "other"),
        pool_name("täsks:app" * 30, tmp_path),
    ]
    assert len(set(names)) == 3
    assert all(map(is_name, names))
    assert names[0] == pool_name("tasks:app", tmp_path / "other" / "..")


def test_only_folders_of_killed_platforms_are_removed(tmp_path: Path) -> None:
    folders = {name: tmp_path / f"{PREFIX}{name}" for name in ("dead", "alive", "restarts", "fresh", "odd")}
    for name, folder in folders.items():
        folder.mkdir()
        for lock in LOCKS if name != "odd" else ():
            (folder / lock).touch()
            os.utime(folder / lock, (1, 1) if name != "fresh" else None)
    with contextlib.ExitStack() as files:
        for name, lock in (
            ("alive", LOCKS[0]),
            ("alive", LOCKS[1]),
            ("restarts", LOCKS[0]),
        ):  # the server of the latter has ended
            fcntl.flock(files.enter_context(open(folders[name] / lock, "rb")), fcntl.LOCK_EX)
        sweep(tmp_path)
    assert {name for name, folder in folders.items() if folder.exists()} == {
        "alive",
        "restarts",
        "fresh",
        "odd",
    }


def test_a_platform_starts_no_workers_for_the_pool_of_another(tmp_path: Path) -> None:
    own = Pool(name=pool_name("tasks:app", tmp_path), queues=("q",), invoker="process")
    calls = LocalPool(cast(Store, None), own).is_served
    assert [
        calls(own.model_copy(update={"name": name})) for name in (own.name, "dev:other:app:1", "by-hand")
    ] == [
        True,
        False,
        True,
    ]


def test_a_check_lists_the_schedules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()

    @app.schedule(every=3600)
    @app.task
    async def beat() -> None: ...

    monkeypatch.setattr(dev, "load_app", lambda place: app)
    assert dev.dev(argparse.Namespace(app="tasks:app", check=True, json=False)) == 0
    assert capsys.readouterr().out == "tasks:app: tasks beat · queues default · schedules beat\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_only_terminals_get_colours_and_commands_have_lines_of_their_own(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = stream()
    monkeypatch.setattr(sys, "stdout", out)
    lines = dev.EventPrinter(as_json=False)
    lines(PlatformEvent("server", "died", "it \x1b[31mdied", {"pid": 3}))
    lines(PlatformEvent("job", "started", "for programs alone", {}))
    lines(PlatformEvent("dev", "try", "curl -s http://127.0.0.1", {}))
    died, again = out.getvalue().splitlines()
    assert ("\x1b[31m" in died) is out.isatty()
    assert again.replace("\x1b[1m", "").replace("\x1b[0m", "").strip() == "curl -s http://127.0.0.1"


def test_json_output_has_one_object_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    dev.EventPrinter(as_json=True)(PlatformEvent("job", "started", "started  add", {"id": "0-1"}))
    output = json.loads(out.getvalue())
    assert (output["source"], output["event"], output["id"], output["at"][-1]) == (
        "job",
        "started",
        "0-1",
        "Z",
    )


class Sleeper:
    """A service that ends on demand, and fails to start a given number of times."""

    name, pid = "piece", 1

    def __init__(self, failures: int) -> None:
        self.failures, self.starts, self.code, self.deaf = failures, 0, None, False

    def start(self) -> str:
        self.starts += 1
        if self.starts > 1 and self.failures > 0:
            self.failures -= 1
            raise JobsError("no room")
        self.code, self.deaf = None, False
        return "here"

    @property
    def exit(self) -> int | None:
        return self.code

    async def is_healthy(self) -> bool:
        return not self.deaf

    def stop(self, at_once: bool = False) -> None:
        self.code = -9 if at_once else 0

    def close(self) -> None: ...


async def test_a_dead_or_frozen_service_is_restarted_with_growing_delays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "HEALTH_SECONDS", 0.0)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def short(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(supervisor.asyncio, "sleep", short)
    recorder, piece = Recorder(), Sleeper(failures=3)
    keeper = Supervisor(piece, recorder.says)
    await keeper.start()
    task = asyncio.ensure_future(keeper.run())
    async with asyncio.timeout(30):
        piece.code = 1
        while piece.starts < 5:
            await sleep(0.001)
        piece.deaf = True
        while piece.starts < 6:
            await sleep(0.001)
    task.cancel()
    assert [pause for pause in pauses if pause >= supervisor.DELAY] == [0.2, 0.4, 0.8, 1.6]
    words = [line.detail for line in recorder.lines if line.event == "died"]
    assert words == [
        "died (exit 1); it is restarted",
        "did not answer and was killed; it is restarted",
    ]
    assert [event for _, event in recorder.events()] == [
        "ready",
        "died",
        "failed",
        "failed",
        "failed",
        "ready",
        "died",
        "ready",
    ]


class Someone:
    pid = 7


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "again within 1 s"), (0.4, "again within 1 s"), (30, "again in 30 s"), (300, "again in 5 min")],
)
def test_a_retry_is_never_due_in_no_time(seconds: float, shown: str) -> None:
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    assert _retry_delay(due.isoformat()) == shown


def test_a_flood_of_lines_is_counted_and_failures_are_printed() -> None:
    recorder = Recorder()
    output: Any = WorkerOutput(recorder.says)
    for i in range(1000):
        for event in ("started", "completed"):
            text = {
                "event": event,
                "at": "",
                "id": f"0-{i}",
                "task": "t",
                "queue": "q",
                "attempt": 1,
                "detail": "",
            }
            output.read_line(Someone, as_json(text))
    assert [line.event for line in recorder.lines].count("completed") == LINES_MAX
    assert len(recorder.lines) <= 2 * LINES_MAX + 1
    output = WorkerOutput(recorder.says)
    output.read_line(
        Someone,
        as_json(
            {
                "event": "failed",
                "id": "0-1",
                "task": "t",
                "queue": "q",
                "attempt": 2,
                "detail": "Boom: x",
                "state": "dead",
            }
        ),
    )
    again = {
        "event": "failed",
        "id": "0-2",
        "task": "t",
        "queue": "q",
        "attempt": 1,
        "detail": "Boom",
        "state": "scheduled",
    }
    output.read_line(
        Someone, as_json(again | {"due_at": (datetime.now(UTC) + timedelta(minutes=5)).isoformat()})
    )
    output.read_line(Someone, "what a task prints")
    output.read_line(Someone, '{"event":"completed"} or so it says')
    failed, hint, second, printed, odd = recorder.lines[-5:]
    assert (hint.event, hint.detail) == ("hint", "  → sublet get 0-1 --detail shows where")
    assert second.detail == "failed  t  0-2  Boom · again in 5 min"
    assert failed.detail == "failed  t  0-1  attempt 2  Boom: x · dead"
    assert (printed.source, printed.detail) == ("worker", "7 │ what a task prints")
    assert odd.event == "log"


async def test_each_event_is_reported_on_request() -> None:
    recorder, ids = Recorder(), [f"0-{i}" for i in range(3 * LINES_MAX)]
    config = PlatformConfig(app="tasks:app", settings=Settings(), lines_max=math.inf)
    seen = AppInfo(app="tasks:app", queues=["q"], tasks=[], folders=[])
    runner = AppRunner(config, Settings(), seen, recorder.says, {})
    output: Any = runner._output
    for job_id in ids:
        event = {"event": "completed", "id": job_id, "task": "t", "queue": "q", "attempt": 1, "detail": ""}
        output.read_line(Someone, as_json(event))
    assert [line.more["id"] for line in recorder.lines] == ids
    await runner.workers.store.aclose()


async def test_without_watchfiles_reload_is_reported_as_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_source, "missing", lambda needed: missing(needed, path=[]))
    monkeypatch.setattr(reload, "can_watch", app_source.can_watch)
    recorder, over = Recorder(), asyncio.Event()
    seen = AppInfo(app="tasks:app", queues=["q"], tasks=[], folders=[])
    task = asyncio.ensure_future(Reload("tasks:app", {}, seen, recorder.says, on_change=None).run(over))  # type: ignore[arg-type]  # unused
    async with asyncio.timeout(30):
        while not recorder.lines:
            await asyncio.sleep(0.001)
    over.set()
    await task
    assert "pip install 'PATH/TO/THE/CHECKOUT[dev]'" in recorder.lines[0].detail


def test_an_installed_package_without_the_dev_group_names_the_command_to_install_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(dev.NEEDED) <= set(extras["http"])
    assert set(app_source.NEEDED) <= set(extras["dev"])
