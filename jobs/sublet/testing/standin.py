"""A Context without a job, for a test that calls its task's function itself."""

import json
from datetime import timedelta
from typing import Any

from sublet.context import Context
from sublet.model import Lease, News
from sublet.options import Seconds


class StandIn(Context):
    """A Context for `task(StandIn(), …)`: no job, no Redis. It keeps what the task says, and may look like a later attempt.

    `recovered` is how the attempt before ended, `restored` what it has left as a checkpoint; `timeout` (seconds; None for no
    limit) is what `remaining` and `deadline` count down from, in real time.
    """

    def __init__(
        self, *, attempt: int = 1, recovered: str = "", restored: Any = None, timeout: Seconds | None = 300
    ) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        left = b"" if restored is None else json.dumps(restored).encode()
        timeout_ms = None if seconds is None else round(seconds * 1000)
        self.progresses: list[tuple[float, str, str]] = []
        """What was said of the progress: fraction, stage, message."""
        self.checkpoints: list[Any] = []
        """What was left for the next attempt, the latest last."""
        self.lines: list[str] = []
        """What was logged with `log`."""
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
        )
        super().__init__(lease, self._keep)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Keep it in `progresses`."""
        super().progress(fraction, stage=stage, message=message)
        self.progresses.append((fraction, stage, message))

    def log(self, text: str) -> None:
        """Keep it in `lines`."""
        super().log(text)
        self.lines.append(text)

    def end(self, why: str = "cancelled") -> None:
        """Let `cancelled` be true from now on: the attempt is being ended, for this reason."""
        self.ending = why

    def _keep(self, news: News, body: bytes) -> None:
        if news is News.CHECKPOINT:
            self.checkpoints.append(json.loads(body))
