"""What the platform report: who, what happened, and words. How that looks is the command's affair (`sublet.cli.develop.dev`)."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple


class PlatformEvent(NamedTuple):
    """One line. `event` is a word for programs; `more` are facts for them."""

    who: str
    event: str
    words: str
    more: dict[str, Any]


Report = Callable[[PlatformEvent], None]


class Reporter:
    """Tells what happens to whoever listens."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, who: str, event: str, words: str = "", /, **more: Any) -> None:
        """Say something."""
        self._report(PlatformEvent(who, event, words, more))


def lines_on_loop(hear: Callable[[dict[str, Any]], None]) -> Callable[[bytes], None]:
    """A function that threads may give the lines which a process prints: each is heard on the loop that runs now.

    A line that is no JSON object (what a task prints, say) is heard as its `words`.
    """
    loop = asyncio.get_running_loop()

    def take(line: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(hear, _read(line))

    return take


def _read(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"words": line.decode(errors="replace").rstrip()}
