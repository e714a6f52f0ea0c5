"""Parts of the demo: the analysis, the files, the tally and the screen."""

import asyncio
import io
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from sublet.cli.develop import project
from sublet.devtools.bootstrap import missing
from sublet.devtools.demo import FOLDER, corpus, tally
from sublet.devtools.demo.audience import LINES_MAX, Audience
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.ledger import Ledger
from sublet.devtools.demo.screen import Progress, Screen, WorkerStatus
from sublet.devtools.demo.tasks import Report, analyse
from sublet.devtools.platform.reports import PlatformEvent
from sublet.errors import Invalid
from sublet.model import Attempt, Job, State
from tests.support.paths import ROOT

# ── the task ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SOURCE = '''\
"""A text
# which is no comment

over four lines."""

# a comment
class Thing:

    async def deed(self):
        if self:
            pass
        elif not self:  # one level deeper in the tree, not on the page
            for x in (
                1,
            ):
                print(f"""{x}

                """)

try:
    import a; import b
except ImportError:
    def deed(): ...
'''


@pytest.fixture
def report(tmp_path: Path) -> Callable[[bytes], Report]:
    """Analyse a file with this content."""

    def report(content: bytes) -> Report:
        (tmp_path / "it.py").write_bytes(content)
        found: Report = analyse(str(tmp_path / "it.py"))
        return found

    return report


def test_lines_blocks_functions_and_classes_are_counted(report: Callable[[bytes], Report]) -> None:
    found = report(SOURCE.encode())
    assert (found.lines, found.functions, found.classes, found.problem) == (3 + 10 + 4, 2, 1, None)
    assert (found.depth, found.deepest) == (4, 13)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"print 'two'", "SyntaxError"),
        (b"\xff = 1", "SyntaxError"),
        (b"# coding: nothing\n", "SyntaxError"),
        (b"# coding: utf-8\nx = '\xff'", "UnicodeDecodeError"),
        (b"x = '\x00'", "(ValueError|SyntaxError)"),
        (b"if 1:\nx", "IndentationError"),
        (b"(" * 5000, "(SyntaxError|MemoryError|RecursionError)"),
        (b"-" * 100_000 + b"1", "(SyntaxError|MemoryError|RecursionError)"),
    ],
)
def test_an_invalid_python_file_is_reported_without_a_failure(
    report: Callable[[bytes], Report], content: bytes, problem: str
) -> None:
    found = report(content)
    assert found.problem is not None
    assert re.match(problem, found.problem)
    assert found.lines == found.functions == 0


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        analyse(str(tmp_path / "none.py"))


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_large_standard_library_is_analysed_alone() -> None:
    found = Corpus.find(enough=100)
    assert len(found.files) == found.standard > 300
    assert not any({"site-packages", "dist-packages"} & set(path.parts) for path in found.files)
    assert found.name(json.__file__) == "json/__init__.py"
    assert "packages" not in found.words


def test_packages_are_added_to_a_small_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    standard = Corpus.find(enough=0).standard
    found = Corpus.find(enough=100_000, at_most=standard + 50)
    assert (found.standard, len(found.files)) == (standard, standard + 50)
    assert f"and {50} of installed packages" in found.words
    assert found.name(str(found.files[-1])).count("/") < len(found.files[-1].parts) - 2
    monkeypatch.setattr(corpus, "_packages", list)
    assert len(Corpus.find(enough=100_000).files) == standard


# ── the tally ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Redis:
    """The parts of a client that the tally uses."""

    def __init__(self, *jobs: Job) -> None:
        self.jobs = {job.id: job for job in jobs}

    async def get(self, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise tally.NotFound(job_id)
        return self.jobs[job_id]


def job(job_id: str, state: State, *codes: str) -> Job:
    moment = "2026-01-01T00:00:00Z"
    story = [
        Attempt(number=n, worker="w", claimed_at=moment, ended_at=moment, code=code)
        for n, code in enumerate(codes, 1)
    ]
    result = {"path": job_id} if state is State.COMPLETED else None
    return Job(
        id=job_id, task="t", queue="q", state=state, submitted_at=moment, attempts=story, result=result
    )


def worker_event(event: str, detail: str = "", pid: int = 7, **more: Any) -> PlatformEvent:
    return PlatformEvent("worker", event, detail, {"pid": pid, "name": f"w{pid}", **more})


def job_event(event: str, job_id: str, detail: str, pid: int = 7) -> PlatformEvent:
    return PlatformEvent("job", event, detail, {"id": job_id, "task": "t", "attempt": 1, "pid": pid})


def told(*events: tuple[str, str, str]) -> Ledger:
    ledger = Ledger()
    ledger.record(worker_event("ready"))
    for each in events:
        ledger.record(job_event(*each))
    return ledger


def counted(redis: Any, ids: str, ledger: Ledger) -> tally.Tally:
    return asyncio.run(tally.count(redis, ids.split(), ledger, 1.0))[0]


def test_the_tally_of_a_good_run() -> None:
    redis = Redis(
        job("a", State.COMPLETED, "completed"), job("b", State.COMPLETED, "lease_expired", "completed")
    )
    ledger = told(("started", "a", ""), ("completed", "a", "completed"), ("completed", "b", "completed"),
                  ("refused", "b", "LEASE_LOST"), ("refused", "b", "NOT_FOUND"), ("failed", "b", "Boom: queued"))  # fmt: skip
    found = counted(redis, "a b", ledger)
    assert found == tally.Tally(2, completed=2, recovered=1, refused=1, seconds=1.0)
    assert found.complaints() == []


def test_a_job_missing_in_redis_is_lost() -> None:
    found = counted(
        Redis(job("a", State.COMPLETED, "lease_expired", "completed")), "a b", told(("lost", "a", ""))
    )
    assert (found.lost, found.refused) == (1, 1)
    assert found.complaints() == ["1 jobs were lost", "1 jobs have not ended"]


def test_an_accepted_completion_missing_in_redis_is_lost() -> None:
    assert counted(Redis(job("a", State.QUEUED)), "a", told(("completed", "a", "completed"))).lost == 1


def test_two_accepted_completions_are_counted() -> None:
    ledger = told(("completed", "a", "completed"), ("completed", "a", "completed"))
    found = counted(Redis(job("a", State.COMPLETED, "completed")), "a", ledger)
    assert found.completed_twice == 1
    assert "1 jobs were completed twice" in found.complaints()


def test_an_accident_that_did_not_happen_is_reported() -> None:
    found = counted(Redis(job("a", State.DEAD, "Boom")), "a", told())
    assert found.dead == 1
    assert [words.partition(":")[0] for words in found.complaints()] == ["not shown", "not shown"]


def test_the_ledger_knows_the_workers_by_their_process_ids() -> None:
    ledger = Ledger()
    assert ledger.record(job_event("completed", "a", "", pid=7)) is None
    for pid in (7, 8):
        ledger.record(worker_event("ready", pid=pid))
    ledger.record(job_event("started", "a", "", pid=8))
    ledger.record(job_event("completed", "a", "", pid=8))
    ledger.record(worker_event("died", pid=7, exit=-9))
    ledger.record(PlatformEvent("server", "ready", "", {"pid": 8}))  # not a worker
    ledger.record(worker_event("gone", pid=8))
    ledger.record(worker_event("ready", pid=8))  # the system gives a process id again
    ledger.record(job_event("completed", "b", "", pid=8))
    assert [(str(each), each.fate, each.completed) for each in ledger.workers] == [
        ("worker 1", "died", 0),
        ("worker 2", "left", 1),
        ("worker 3", "", 1),
    ]
    assert ledger.active() == ledger.workers[2:]
    assert ledger.started == {(8, "a", 1)}
    assert (ledger.label("w7"), ledger.label("elsewhere")) == ("worker 1", "elsewhere")


# ── the audience ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_show_reports_workers_and_failures_and_the_time_afterwards_each_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FOLDER.mkdir(parents=True)
    stream = io.StringIO()
    audience = Audience(Screen(stream))
    show = [
        PlatformEvent("server", "ready", "valkey 9", {"pid": 1}),
        worker_event("ready"),
        worker_event("ready", pid=8),
        worker_event("log", "8 │ printed", pid=8),
        job_event("completed", "a", "completed  t  a"),
        worker_event("died", "8 died (exit 1)", pid=8, exit=1),
        worker_event("died", "9 died (exit 3)", pid=9, exit=3),
        PlatformEvent("api", "died", "died (SIGKILL); it is restarted", {}),
        PlatformEvent("pool", "load", "3 waiting", {}),
    ]
    for event in show:
        audience(event)
    told = [line[9:].strip() for line in stream.getvalue().splitlines()[2:]]
    assert told == [
        "valkey 9",
        "+ worker 1 started, because jobs wait",
        "+ worker 2 started, because jobs wait",
        "! worker 2 ended by itself (exit 1)",
        "! worker 9 died (exit 3)",
        "! api died (SIGKILL); it is restarted",
    ]
    assert "8 │ printed" in (tmp_path / FOLDER / "workers.log").read_text()
    assert "SIGKILL" in (tmp_path / FOLDER / "api.log").read_text()
    audience(PlatformEvent("dev", "stopping", "", {}))
    stream.truncate(0)
    for n in range(LINES_MAX + 2):
        audience(job_event("completed", f"{n}", f"completed  t  {n}"))
        audience(job_event("started", f"{n}", "started"))
    audience.print_lines()
    lines = stream.getvalue().strip("\0").splitlines()
    assert len(lines) == LINES_MAX + 1
    assert lines[0].endswith("job     completed  t  0")
    assert lines[-1].endswith("… and 2 more")


# ── the screen ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    screen = Screen(stream)
    screen.fact("data", "[kept] in a folder")
    screen.add_event(1.0, "✗", "killed [one]")
    screen.phrases(["submitted 1", "completed twice 0"])
    screen.table(("name", "lines"), [("[a].py", "1")])
    screen.draw(Progress(3, 3, 0, 9.0, 2.0), [WorkerStatus("worker 1", "●", "3 done")], last=True)
    return stream.getvalue()


def test_a_terminal_gets_colours_and_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words = shown(Terminal())
    assert "\x1b[" in words
    assert "━" in words
    assert words.endswith("\x1b[?25h")  # the cursor is visible again


@pytest.mark.parametrize("way", ["piped", "NO_COLOR", "dumb"])
def test_without_a_terminal_there_are_plain_lines(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb" if way == "dumb" else "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1" if way == "NO_COLOR" else "")
    words = shown(io.StringIO() if way == "piped" else Terminal())
    assert "\x1b" not in words
    assert "\r" not in words
    for expected in (
        "[kept] in a folder",
        "killed [one]",
        "submitted 1 · completed twice 0",
        "[a].py",
        "3 of 3 done",
    ):
        assert expected in words


def test_an_installed_package_without_the_demo_group_names_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr(project, "missing", lambda needed: missing(needed, path=[]))
    with pytest.raises(
        Invalid, match=r"the demo needs rich>=13 .*: pip install 'PATH/TO/THE/CHECKOUT\[demo\]'"
    ):
        project.demo(None)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(project.NEEDED) <= {*extras["demo"], *extras["http"]}
