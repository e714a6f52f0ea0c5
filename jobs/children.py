"""Child processes for plain functions: spawned, spoken to over plain pipes, and killed when a task must end.

Weighed: `pebble` and `loky` bring process pools, but ours must hand each child one job at a time, kill that very child, hear
of its death at once, and work where there is no shared memory (Lambda). What is left to write is this page and `child.py`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import pipe
from jobs.attempt import Crashed, Ended
from jobs.model import Lease, News

if TYPE_CHECKING:
    from jobs.registry import Task

BOOT = (
    "import json, sys; sys.path[:0] = [sys.argv[3]]; from jobs.child import main; sys.path[:] = json.loads(sys.argv[2]); main()"
)
"""The child imports from where its parent does, but this package from its own home, whatever lies in the user's folder. Its
arguments: the parent's pid, that path, that home."""
HOME = str(Path(__file__).parent.parent)


class Children:
    """As many children as are needed at one time; an idle one is used again."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    async def run(self, task: "Task[..., Any]", lease: Lease, tell: Callable[[News, bytes], None]) -> bytes:
        """Run a task in a child and give its result as JSON.

        Raises Crashed when the child died, and Ended with whatever else the task came to. If the caller is
        cancelled, the child is killed.
        """
        child = self._idle.pop() if self._idle else await Child.spawn()
        try:
            return await child.run(task, lease, tell)
        except (asyncio.CancelledError, Crashed):
            await child.kill()
            raise
        finally:
            if child.alive:
                self._idle.append(child)

    async def aclose(self) -> None:
        """End the idle children; a busy one is killed when its caller is cancelled."""
        while self._idle:
            await self._idle.pop().kill()


class Child:
    """One child process, which runs one job at a time."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._to, self._from = process, process.stdin, process.stdout
        self.alive = True

    @classmethod
    async def spawn(cls) -> "Child":
        """Start a child. It ends by itself when this process does, however that dies."""
        command = [sys.executable, "-c", BOOT, str(os.getpid()), json.dumps(sys.path), HOME]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    async def run(self, task: "Task[..., Any]", lease: Lease, tell: Callable[[News, bytes], None]) -> bytes:
        """Hand over one job and wait for its end."""
        try:
            self._to.write(pipe.job(task, lease))
            await self._to.drain()
            while True:
                size, kind = pipe.HEAD.unpack(await self._from.readexactly(pipe.HEAD.size))
                body = await self._from.readexactly(size)
                if kind == pipe.RESULT:
                    return body
                if kind not in b"GKL":
                    raise Ended(pipe.ending(kind, body, lease))
                tell(News(kind.decode()), body)
        except (asyncio.IncompleteReadError, OSError):
            raise Crashed(await self._last_words()) from None

    async def _last_words(self) -> str:
        code = await self._process.wait()
        if code >= 0:
            return f"the child process exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"the child process died of {signal.Signals(-code).name}"
        return f"the child process died of signal {-code}"

    async def kill(self) -> None:
        """End the child now, whatever it does, and see it gone."""
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._to.close()
