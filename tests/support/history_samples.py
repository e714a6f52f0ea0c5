"""Samples of the history, written as the script `sample` writes them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sublet.operations.history import HOUR, MINUTE, WIDTH
from sublet.protocol import keys


def line(at: int, totals: Sequence[int] = (0,) * 6, sizes: Sequence[int | None] = (0,) * 4) -> str:
    """One sample."""
    cells = [f"{number:13d}" for number in (at, *totals)]
    return "".join(cells) + "".join(" " * 9 if one is None else f"{one:9d}" for one in sizes) + "\n"


def write(raw: Any, key: str, samples: Iterable[str]) -> None:
    """Write a ring from its first place on."""
    for i, one in enumerate(samples):
        raw.setrange(key, i * WIDTH, one)


def month(raw: Any, base: str, now: int, gap: range = range(200, 260)) -> None:
    """Write a day by minutes and 30 days by hours: waves, with a gap of some minutes (hours) before the present."""
    for key, step, steps in ((keys.minutes(base), MINUTE, 1440), (keys.hours(base), HOUR, 720)):
        samples, total, failed = [], 0.0, 0.0
        for ago in range(steps - 1, 0, -1):
            wave = 1 + math.sin(ago / 45) + 0.3 * math.sin(ago / 7)
            total += step / MINUTE * max(0.0, 40 * wave)
            failed += step / MINUTE * (2.5 if ago % 120 < 12 else 0.1)
            totals = (round(total * 1.02), round(total), round(failed), round(failed / 10), 0, 0)
            sizes = (30, round(60 * wave), round(12 * wave), 20)
            if ago not in gap:
                samples.append(line(now - ago * step, totals, tuple(max(0, one) for one in sizes)))
        write(raw, key, samples)
