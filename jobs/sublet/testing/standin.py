"""A stand-in for `Context`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NoReturn

from sublet.context import Context
from sublet.errors import Invalid
from sublet.model import Lease, News
from sublet.options import Seconds


class _NotGiven(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()

    def __repr__(self) -> str:
        return "<not given>"

    def _refuse(self) -> NoReturn:
        raise Invalid("the task reads ctx.arguments: give them to its stand-in: StandIn(arguments={…})")


class StandIn(Context):
    """A Context for `task(StandIn(), …)`, a direct call without a job. It records progress, checkpoints and
    logs. Steps, sleeps, waits, calls, chunks and `upstream` raise Invalid.

    `recovered`: how the previous attempt ended; `restored`: the last checkpoint. `timeout` (seconds; None: no
    limit) sets `remaining` and `deadline`, by the real clock. Without `arguments`, a task that reads them
    gets Invalid.
    """

    def __init__(
        self, *, attempt: int = 1, recovered: str = "", restored: Any = None, timeout: Seconds | None = 300,
        max_attempts: int = 3, tries_left: int | None = None, tags: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None, id: str = "0-standin", task: str = "standin",
        queue: str = "default", fence: int | None = None, trace: str = "", occurrence: datetime | None = None,
    ) -> None:  # fmt: skip
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        left = b"" if restored is None else json.dumps(restored).encode()
        self.arguments = _NotGiven() if arguments is None else MappingProxyType({**arguments})
        tries_left = max(0, max_attempts - attempt) if tries_left is None else tries_left
        _check(attempt, max_attempts, tries_left, occurrence)
        self.progresses: list[tuple[float, str, str]] = []
        """Arguments of each progress report: fraction, stage, message."""
        self.checkpoints: list[Any] = []
        """Each checkpoint's data, the latest last."""
        self.lines: list[str] = []
        """Each text given to `log`."""
        lease = Lease(
            id=id,
            token=f"{attempt if fence is None else fence}.standin",
            attempt=attempt,
            expires_ms=0,
            queue=queue,
            task=task,
            timeout_ms=None if seconds is None else round(seconds * 1000),
            payload=b"{}",
            recovered=recovered,
            trace=trace,
            checkpoint=left,
            occurrence_ms=None if occurrence is None else round(occurrence.timestamp() * 1000),
            max_attempts=max_attempts,
            tries_left=tries_left,
            tags=tuple(tags),
        )
        super().__init__(lease, self._keep)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Append the arguments to `progresses`. Raises Invalid unless `fraction` is a number."""
        super().progress(fraction, stage=stage, message=message)
        self.progresses.append((fraction, stage, message))

    def log(self, text: str) -> None:
        """Append the text to `lines`."""
        super().log(text)
        self.lines.append(text)

    def end(self, reason: str = "cancelled") -> None:
        """Set `ending` to this reason, as when an attempt must end: `cancelled` is then True."""
        self.ending = reason

    def _keep(self, news: News, body: bytes) -> None:
        if news is News.CHECKPOINT:
            self.checkpoints.append(json.loads(body))


def _check(attempt: int, max_attempts: int, tries_left: int, occurrence: datetime | None) -> None:
    if attempt < 1 or max_attempts < 1:
        raise Invalid(f"attempt {attempt} of max_attempts {max_attempts}: use 1 or more for both")
    if not 0 <= tries_left < max_attempts:
        raise Invalid(f"tries_left {tries_left}: use 0 to {max_attempts - 1}, below max_attempts")
    if occurrence is not None and occurrence.tzinfo is None:
        raise Invalid(f"occurrence {occurrence}: use a time with a time zone")
