"""Inspect an app and synchronize its schedules in child processes; watch its source."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import IO, Any

from pydantic import BaseModel

from sublet.devtools.bootstrap import missing
from sublet.devtools.platform.api_service import environment, where
from sublet.errors import JobsError
from sublet.scaling.invokers.thread_call import run_in_thread
from sublet.tasks.programs.bound_process import spawn_bound

IMPORT_SECONDS = 60.0
OUTPUT_MAX = 1 << 20
NEEDED = ("watchfiles>=1",)
NOT_SOURCE = ("site-packages", "dist-packages", "__pycache__")


class AppInfo(BaseModel):
    """A description of an app, as `sublet dev MODULE:APP --check --json` prints it."""

    app: str
    queues: list[str]
    tasks: list[str]
    schedules: list[str] = []
    folders: list[str]
    example: dict[str, Any] | None = None
    """An example job: task, queue and payload; None without a Python task whose parameters are simple."""
    descriptions: dict[str, str] = {}
    """Catalogue entries (JSON) by task name; those beyond 256 KiB in all are missing."""


class AppBroken(JobsError):
    """The app's import fails or takes over 60 s, or its schedules cannot be stored; the message is one line."""


async def inspect_app(app: str, env: Mapping[str, str]) -> AppInfo:
    """Import the app in a child process; return its description. Raises AppBroken."""
    stdout, stderr = await _run(["dev", app, "--check", "--json"], env)
    try:
        return AppInfo.model_validate_json(stdout)
    except ValueError:
        raise AppBroken(
            _error_message(stderr)
            or f"{app} cannot be described: its import ended the process, or wrote to file descriptor 1. Keep os._exit() and such output out of the module's top level"
        ) from None


async def sync_schedules(app: str, env: Mapping[str, str]) -> list[str]:
    """Store the app's schedules; remove those it no longer declares. Return a text for each change. Raises
    AppBroken.
    """
    flags = where(env["SUBLET_REDIS_URL"], env["SUBLET_NAMESPACE"])
    stdout, stderr = await _run(["schedules", "sync", app, "--remove", "--json", *flags], env)
    try:
        return [
            f"{one['name']} {one['answer']}" for one in json.loads(stdout) if one["answer"] != "unchanged"
        ]
    except (ValueError, TypeError, KeyError):
        raise AppBroken(
            _error_message(stderr)
            or f"`sublet schedules sync {app}` printed no result. Keep os._exit(), and output to file descriptor 1, out of the module's top level"
        ) from None


async def _run(words: Sequence[str], env: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Run `sublet` with `words`; return stdout and stderr. Output goes to files: a process left behind would
    keep a pipe open.
    """
    command = [sys.executable, "-P", "-m", "sublet", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.to_thread(spawn_bound, command, stdout=out, stderr=err, env=environment(env))
        try:
            async with asyncio.timeout(IMPORT_SECONDS):
                await run_in_thread(process.wait)
        except TimeoutError:
            raise AppBroken(
                f"the import takes longer than {IMPORT_SECONDS:g} s: move slow work out of the module's top level"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                # the app may have started processes
                os.killpg(process.pid, signal.SIGKILL)
        return _read_all(out), _read_all(err)


def _read_all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_MAX)


def _error_message(stderr: bytes) -> str:
    last = (stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    try:
        return str(json.loads(last)["message"]).removesuffix("; --debug shows the whole trace")
    except (ValueError, KeyError, TypeError):
        return last[:300]


def can_watch() -> bool:
    """Whether watchfiles, which `changes` needs, is installed."""
    return not missing(NEEDED)


async def changes(folders: Sequence[str], over: asyncio.Event) -> AsyncGenerator[list[str], None]:
    """Yield each batch of changed Python files in these folders, not in inner ones, as sorted paths, until
    `over` is set.
    """
    from watchfiles import PythonFilter, awatch

    if not folders:
        await over.wait()
        return
    async for found in awatch(*folders, watch_filter=PythonFilter(), stop_event=over, recursive=False):
        yield sorted({path for _, path in found})
