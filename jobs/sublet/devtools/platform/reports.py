"""Events of the platform, printed by `sublet.cli.develop.dev`."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple


class PlatformEvent(NamedTuple):
    """An event: its source, its name, a text, and fields for programs (`more`)."""

    source: str
    event: str
    detail: str
    more: dict[str, Any]


Report = Callable[[PlatformEvent], None]


class Reporter:
    """Passes events on to a function."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def __call__(self, source: str, event: str, detail: str = "", /, **more: Any) -> None:
        """Report an event."""
        self._report(PlatformEvent(source, event, detail, more))


def lines_on_loop(on_event: Callable[[dict[str, Any]], None]) -> Callable[[bytes], None]:
    """Return a function for any thread: it passes each line of a process to `on_event`, parsed, on the
    current loop. A line that is not a JSON object becomes `{"message": line}`.
    """
    loop = asyncio.get_running_loop()

    def take(line: bytes) -> None:
        # RuntimeError: the loop is already closed
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(on_event, _parse(line))

    return take


def _parse(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"message": line.decode(errors="replace").rstrip()}
