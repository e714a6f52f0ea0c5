"""Profile one request through the code: which files and functions of ours run, and in which order.

    python3 -m tests.support.walk [--write]     # print both walks; with --write, update docs/explanation/a-jobs-way.md

A walk is the sequence of our Python frames in one thread, from a call to its return. A coroutine that resumes counts as another
step, because a reader has to go back to its file. Comprehensions and lambdas belong to the function around them.
"""

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from sublet import App
from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from tests.support.http_server import serving
from tests.support.paths import ROOT, SOURCE_FOLDERS

PAGE = ROOT / "docs" / "explanation" / "a-jobs-way.md"
ROUNDS = 5
"""Each walk is taken this many times, and the shortest is kept: a timer of the event loop may fire during the others."""
REQUEST = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
BODY = b'{"task":"add","payload":{"a":1,"b":2}}'


@dataclass(frozen=True)
class Step:
    """One function that was entered, or a coroutine that resumed."""

    file: str
    function: str
    resumed: bool


@dataclass(frozen=True)
class Walk:
    """The steps of one request."""

    steps: tuple[Step, ...]

    @property
    def files(self) -> list[str]:
        """The files in the order in which they are first entered."""
        return list(dict.fromkeys(step.file for step in self.steps))

    @property
    def moves(self) -> int:
        """How often the next step is in another file."""
        return sum(1 for a, b in zip(self.steps, self.steps[1:], strict=False) if a.file != b.file)

    @property
    def functions(self) -> int:
        """How many different functions run."""
        return len({(step.file, step.function) for step in self.steps})

    def __str__(self) -> str:
        counts = f"{len(self.files)} files, {self.moves} moves between files, {self.functions} functions"
        return "\n".join([counts, *(f"  {file}: {', '.join(names)}" for file, names in self.visits())])

    def visits(self) -> Iterator[tuple[str, list[str]]]:
        """Each stay in a file, with the functions that ran there, in order."""
        for file, steps in groupby(self.steps, lambda step: step.file):
            yield file, list(dict.fromkeys(f"{s.function}{' (resumes)' if s.resumed else ''}" for s in steps))


class Recorder:
    """Collects the steps of the calling thread between `start` and `stop`."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._frames: set[FrameType] = set()  # kept alive: the address of a dead frame may be used again

    def start(self) -> None:
        """Begin to record."""
        self._steps, self._frames = [], set()
        sys.setprofile(self._record)

    def stop(self) -> Walk:
        """Stop, and return what was recorded."""
        sys.setprofile(None)
        return Walk(tuple(self._steps))

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        folder = next((f"{one}/" for one in SOURCE_FOLDERS if path.startswith(f"{one}/")), None)
        if folder and not re.search(r"<(listcomp|setcomp|dictcomp|genexpr|lambda)>$", name):
            name = name.replace(".<locals>", "")
            self._steps.append(Step(path.removeprefix(folder), name, frame in self._frames))
            self._frames.add(frame)


async def _shortest(act: Callable[[], Awaitable[Any]]) -> Walk:
    for _ in range(3):  # connections are opened and caches filled
        await act()
    recorder, walks = Recorder(), []
    for _ in range(ROUNDS):
        recorder.start()
        try:
            await act()
        finally:
            walks.append(recorder.stop())
    return min(walks, key=lambda walk: len(walk.steps))


async def submit_walk(settings: Settings) -> Walk:
    """One warm `await task.submit(…)`."""
    app = App(settings=settings)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    try:
        return await _shortest(lambda: add.submit(1, 2))
    finally:
        await app.aclose()


async def http_walk(settings: Settings) -> Walk:
    """One warm `POST /jobs` on a kept-alive connection to `sublet serve`."""
    async with serving(settings) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def act() -> None:
            writer.write(REQUEST % (len(BODY), BODY))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 201 " in head, head
            await reader.readexactly(int(re.findall(rb"(?i)content-length: (\d+)", head)[0]))
            await asyncio.sleep(0.01)  # the server finishes with the connection

        try:
            return await _shortest(act)
        finally:
            writer.close()


@contextlib.contextmanager
def server_settings() -> Iterator[Settings]:
    """Settings for a private server without persistence."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), persistent=False) as server,
    ):
        yield Settings(redis_url=server.url)


def plain(settings: Settings) -> Settings:
    """The same without the memory guard: a submit that asks for nothing beyond the job itself."""
    return replace(settings, memory=1.0)


async def both(settings: Settings) -> dict[str, Walk]:
    """Both walks, by the name that the page gives them."""
    return {
        "await task.submit(…)": await submit_walk(plain(settings)),
        "POST /jobs": await http_walk(plain(settings)),
    }


if __name__ == "__main__":
    with server_settings() as where:
        for name, walk in asyncio.run(both(where)).items():
            print(name, walk, sep="\n")
        print("submit with memory guard", asyncio.run(submit_walk(where)), sep="\n")
