"""A Context without a job, for direct calls of a task's function."""

import json
from datetime import timedelta
from typing import Any

from sublet.context import Context
from sublet.model import Lease, News
from sublet.options import Seconds


class StandIn(Context):
    """A Context for `task(StandIn(), …)`, without Redis. It records progress, checkpoints and logs.

    `recovered` is the previous attempt's outcome, `restored` its checkpoint. `timeout` (seconds; None for no
    limit) sets `remaining` and `deadline`, in real time.
    """

    def __init__(
        self, *, attempt: int = 1, recovered: str = "", restored: Any = None, timeout: Seconds | None = 300,
        max_attempts: int = 3, tags: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        left = b"" if restored is None else json.dumps(restored).encode()
        timeout_ms = None if seconds is None else round(seconds * 1000)
        self.progresses: list[tuple[float, str, str]] = []
        """Each progress: fraction, stage, message."""
        self.checkpoints: list[Any] = []
        """Checkpoints, the latest last."""
        self.lines: list[str] = []
        """Each text given to `log`."""
        lease = Lease(
            "0-standin",
            f"{attempt}.standin",
            attempt,
            0,
            "default",
            "standin",
            timeout_ms,
            b"{}",
            recovered,
            "",
            left,
            max_attempts=max_attempts,
            tries_left=max(0, max_attempts - attempt),
            tags=tags,
        )
        super().__init__(lease, self._keep)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Report progress, and record it in `progresses`."""
        super().progress(fraction, stage=stage, message=message)
        self.progresses.append((fraction, stage, message))

    def log(self, text: str) -> None:
        """Log a text, and record it in `lines`."""
        super().log(text)
        self.lines.append(text)

    def end(self, reason: str = "cancelled") -> None:
        """Make `cancelled` true, as when the attempt is being ended for this reason."""
        self.ending = reason

    def _keep(self, news: News, body: bytes) -> None:
        if news is News.CHECKPOINT:
            self.checkpoints.append(json.loads(body))
