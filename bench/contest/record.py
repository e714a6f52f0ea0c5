"""The results of a run, saved as they are measured, and its progress."""

import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from contest.workloads import Figure

Row = dict[str, Any]


class Record:
    """The results of a run: `found` is the content of its JSON."""

    def __init__(self, about: Mapping[str, Any], path: Path | None = None) -> None:
        self.found: dict[str, Any] = {
            **about,
            "seconds": 0.0,
            "versions": {},
            "settings": {},
            "left_out": {},
            "results": [],
        }
        self._path, self._began = path, time.monotonic()
        self._rows: dict[tuple[str, str, str], Row] = {}

    def introduce(self, name: str, versions: Mapping[str, str], settings: str) -> None:
        self.found["versions"][name], self.found["settings"][name] = dict(versions), settings

    def leave_out(self, name: str, why: str) -> None:
        self.found["left_out"][name] = why
        self.save()

    def add(self, name: str, persistence: str, figures: Sequence[Figure]) -> None:
        for figure in figures:
            row = self._row(name, persistence, figure)
            if figure.samples:
                row["values"].extend(figure.samples)
            else:
                row["values"].append(figure.value)
            known = [value for value in row["values"] if value is not None]
            row["median"] = statistics.median(known) if known else None
            row["lost"] += figure.lost
            row["twice"] += figure.twice
            if figure.note and figure.note not in row["note"]:
                row["note"] = "; ".join(filter(None, [row["note"], figure.note]))
        self.save()

    def add_rows(self, rows: Sequence[Row]) -> None:
        self.found["results"].extend(rows)
        self.save()

    def _row(self, name: str, persistence: str, figure: Figure) -> Row:
        key = (name, persistence, figure.workload)
        if key not in self._rows:
            row: Row = {
                "contestant": name,
                "persistence": persistence,
                "workload": figure.workload,
                "unit": figure.unit,
            }
            self._rows[key] = row | {"values": [], "median": None, "note": "", "lost": 0, "twice": 0}
            self.found["results"].append(self._rows[key])
        return self._rows[key]

    def save(self) -> None:
        self.found["seconds"] = round(time.monotonic() - self._began, 1)
        if self._path:
            beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            beside.write_text(self.text())
            beside.replace(self._path)

    def text(self) -> str:
        head = json.dumps(
            {key: value for key, value in self.found.items() if key != "results"},
            indent=1,
            ensure_ascii=False,
        )
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in self.found["results"])
        return f'{head[:-2]},\n "results": [\n  {rows}\n ]\n}}\n'


class Progress:
    """Prints the progress on stderr: a bar on a terminal, otherwise a line per step."""

    WIDTH = 24

    def __init__(self, steps: int, out: TextIO = sys.stderr) -> None:
        self.steps, self.done = steps, 0
        self._out, self._began, self._what = out, time.monotonic(), ""
        self._live = out.isatty()

    def begin(self, what: str) -> None:
        self._what = what
        if self._live:
            share = min(1.0, self.done / self.steps)
            bar = "█" * round(self.WIDTH * share) + "░" * (self.WIDTH - round(self.WIDTH * share))
            self._write(f"\r\x1b[K{bar} {share:4.0%} {self._clock()}  {what}")

    def end(self, words: str) -> None:
        self.done += 1
        clear = "\r\x1b[K" if self._live else ""
        self._write(f"{clear}{self._clock()} {self.done}/{self.steps}  {self._what}: {words}\n")

    def say(self, words: str) -> None:
        self._write(f"{chr(13) + chr(27) + '[K' if self._live else ''}{words}\n")

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02}"

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
