"""Kill a worker, and measure how soon its jobs run again, how many are lost, and how many finish twice.

Another worker starts at once on the same machine. In the row "sublet" it must wait for the leases (30 s),
as on another host; in "sublet restarted" it sees that its predecessor is dead.
"""

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from contest import servers
from contest.arena import Arena, Failed, Worker, members
from contest.backlog import Row, row
from contest.contestants import Contestant

CAP = 75.0
JOBS = 100
EACH = 10
"""Jobs per slot of a contestant, if that is fewer than JOBS."""
START_SECONDS = 30.0
ARRIVE_SECONDS = 6.0
SETTLE_SECONDS = 2.0
"""For a job to finish a second time, at the end."""
POLL = 0.02

Succeed = Callable[[Arena, Contestant, Worker, ExitStack], int]
"""Ends the first worker and starts the second. Returns when the first one died, in ns of the monotonic clock.
"""
UNITS = {"crash_first": "s", "crash_last": "s", "crash_lost": "jobs", "crash_twice": "jobs"}


def run(arena: Arena, contestants: Sequence[Contestant], *, cap: float = CAP) -> list[Row]:
    """Return the rows `crash_first`, `crash_last` (s), `crash_lost` and `crash_twice` (jobs); none for a cap
    of 0.
    """
    if not cap:
        return []
    kind, alone = servers.version_of(arena.url).split()[0], threading.Lock()

    def scene(contestant: Contestant, succeed: Succeed) -> dict[str, float | None] | str:
        with (
            tempfile.TemporaryDirectory(dir=arena.folder) as folder,
            servers.serving(Path(folder), kind) as url,
        ):
            try:
                return _scene(Arena(url, Path(folder), arena.programs), contestant, succeed, alone, cap)
            except Failed as failed:
                return str(failed).splitlines()[0]

    with ThreadPoolExecutor(len(contestants)) as pool:
        found = list(pool.map(lambda each: scene(each, _elsewhere if each.ours else _restarted), contestants))
    rows = [one for each, figures in zip(contestants, found, strict=True) for one in _rows(each, figures)]
    for contestant in contestants:
        if contestant.name == "sublet":  # on a quiet machine, because this one takes tenths of a second
            rows += _rows(replace(contestant, name="sublet restarted"), scene(contestant, _restarted))
    return rows


def _scene(
    arena: Arena, contestant: Contestant, succeed: Succeed, alone: threading.Lock, cap: float
) -> dict[str, float | None]:
    jobs = min(JOBS, EACH * contestant.running)
    with ExitStack() as stack:
        with alone:
            arena.submit(contestant, "slow", jobs)
            first = stack.enter_context(arena.worker(contestant))
            arena.wait(min(jobs, contestant.running), [first], START_SECONDS)
            killed = succeed(arena, contestant, first, stack)
        until, last = time.monotonic() + cap, 0.0
        while time.monotonic() < until and not (last and time.monotonic() > last + SETTLE_SECONDS):
            time.sleep(POLL)
            if not last and len({n for n, _ in arena.finished()}) == jobs:
                last = time.monotonic()
        return _figures(arena, jobs, killed)


def _restarted(arena: Arena, contestant: Contestant, first: Worker, stack: ExitStack) -> int:
    all_of_it = _family(first)
    killed = time.monotonic_ns()
    _signal(all_of_it, signal.SIGKILL)
    first.kill()
    stack.enter_context(arena.worker(contestant))
    return killed


def _elsewhere(arena: Arena, contestant: Contestant, first: Worker, stack: ExitStack) -> int:
    all_of_it = _family(first)
    stopped = time.monotonic_ns()
    _signal(all_of_it, signal.SIGSTOP)
    stack.enter_context(arena.worker(contestant))
    time.sleep(ARRIVE_SECONDS)
    _signal(all_of_it, signal.SIGKILL)
    first.kill()
    return stopped


def _family(worker: Worker) -> list[int]:
    found = list(dict.fromkeys([worker.process.pid, *members(worker.process.pid)]))
    for pid in found:
        for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in tasks.read_text().split() if int(child) not in found]
    return found


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _figures(arena: Arena, jobs: int, killed: int) -> dict[str, float | None]:
    ended = {n for n, at in arena.finished() if at < killed}
    interrupted = {n for n, at in arena.tally() if at < killed} - ended
    again: dict[int, float] = {}
    for n, at in arena.tally():
        if n in interrupted and at > killed:
            again.setdefault(n, (at - killed) / 1e9)
    ends = Counter(n for n, _ in arena.finished())
    return {
        "interrupted": len(interrupted),
        "crash_first": min(again.values(), default=None),
        "crash_last": max(again.values()) if again and len(again) == len(interrupted) else None,
        "crash_lost": jobs - len(ends),
        "crash_twice": sum(times > 1 for times in ends.values()),
    }


def _rows(contestant: Contestant, found: dict[str, float | None] | str) -> list[Row]:
    if isinstance(found, str):
        return [row(contestant, workload, unit, [None], found) for workload, unit in UNITS.items()]
    note = f"{found['interrupted']} interrupted"
    return [row(contestant, workload, unit, [found[workload]], note) for workload, unit in UNITS.items()]
