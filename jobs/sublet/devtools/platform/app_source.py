"""The app's source: what the app has, asked in a process of its own each time, and when its files change."""

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
from sublet.tasks.bound_process import spawn_bound

LOOK_SECONDS = 60.0
"""How long the app's modules may take to be imported."""
OUTPUT_MAX = 1 << 20
"""Bytes of it that are read at most."""
NEEDED = ("watchfiles>=1",)
"""What reload takes."""
NOT_SOURCE = ("site-packages", "dist-packages", "__pycache__")


class AppInfo(BaseModel):
    """What an app has, as `sublet dev MODULE:APP --check --json` report it."""

    app: str
    queues: list[str]
    tasks: list[str]
    schedules: list[str] = []
    folders: list[str]
    """Where its source is."""
    example: dict[str, Any] | None = None
    """A job to try: task, queue and payload. None when no task is simple enough."""


class AppBroken(JobsError):
    """The app cannot be loaded; the message report why, in one line."""


async def look(app: str, env: Mapping[str, str]) -> AppInfo:
    """What the app has now. Raises AppBroken."""
    done, words = await _run(["dev", app, "--check", "--json"], env)
    try:
        return AppInfo.model_validate_json(done)
    except ValueError:
        raise AppBroken(_complaint(words) or f"{app} ended without a word") from None


async def sync(app: str, env: Mapping[str, str]) -> list[str]:
    """Have the schedules in Redis be as the app has them; what has changed, in words. Raises AppBroken."""
    flags = where(env["SUBLET_REDIS_URL"], env["SUBLET_NAMESPACE"])
    done, words = await _run(["schedules", "sync", app, "--remove", "--json", *flags], env)
    try:
        return [f"{one['name']} {one['answer']}" for one in json.loads(done) if one["answer"] != "unchanged"]
    except (ValueError, TypeError, KeyError):
        raise AppBroken(_complaint(words) or "their synchronization ended without a word") from None


async def _run(words: Sequence[str], env: Mapping[str, str]) -> tuple[bytes, bytes]:
    """What a command of ours prints, on stdout and stderr. Cancelled, it kills it. Raises AppBroken when it takes too long.

    It prints to files: a process that the app's import leaves behind would keep a pipe open.
    """
    command = [sys.executable, "-P", "-m", "sublet", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.to_thread(spawn_bound, command, stdout=out, stderr=err, env=environment(env))
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await run_in_thread(process.wait)
        except TimeoutError:
            raise AppBroken(f"its import takes more than {LOOK_SECONDS:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # it leads a group; what it has started is no longer needed
        return _all(out), _all(err)


def _all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_MAX)


def _complaint(stderr: bytes) -> str:
    """The last line of what a command has to say, which is its own; others may be the app's."""
    last = (stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    try:
        return str(json.loads(last)["message"]).removesuffix("; --debug shows the whole trace")
    except (ValueError, KeyError, TypeError):
        return last[:300]


def can_watch() -> bool:
    """Is there what tells of changes?"""
    return not missing(NEEDED)


async def changes(folders: Sequence[str], over: asyncio.Event) -> AsyncGenerator[list[str], None]:
    """The files of each change of the source in these folders, until `over`. What changes together is one change."""
    from watchfiles import PythonFilter, awatch

    if not folders:
        await over.wait()
        return
    async for found in awatch(*folders, watch_filter=PythonFilter(), stop_event=over, recursive=False):
        yield sorted({path for _, path in found})
