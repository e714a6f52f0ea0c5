"""The demo: its results, its measurements, and its clean-up after each kind of end."""

import ast
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT

pytest.importorskip("rich")

MARK = "DEMO_TEST_MARK"
"""An environment variable that marks all processes of a demo."""
SMALL = """
import sys
from sublet.devtools.demo import run
from sublet.devtools.platform import api_service
from sublet.devtools.demo.corpus import Corpus
found = Corpus.find()
run.Corpus.find = lambda: Corpus(found.files[:400], 400, found.roots)
api_service.FIRST_PORT = PORT
sys.exit(run.run(once=False, json=False, call="python3 -m jobs"))
"""


class Demo:
    """A demo process and its children."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.mark = uuid.uuid4().hex
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "PYTHON"))
        }
        self.env = {**env, "PYTHONPATH": str(ROOT), MARK: self.mark}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def until(self, words: str) -> str:
        """Read the output up to a line with these words."""
        assert self.process.stdout is not None
        read = ""
        for line in self.process.stdout:
            read += line
            if words in line:
                return read
        raise AssertionError(
            f"it ended before it said {words!r}:\n{read}{self.process.stderr and self.process.stderr.read()}"
        )

    def family(self) -> list[int]:
        """The live processes of this demo."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def services(self) -> list[int]:
        """Its HTTP APIs: one, or none with `--once`."""
        return [pid for pid in self.family() if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def is_gone(self) -> bool:
        """Whether all have ended within a few seconds."""
        deadline = time.monotonic() + 5
        while self.family() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.family()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    if not sys.platform.startswith("linux"):
        pytest.skip("only on Linux the processes of a demo can be identified")
    demos: list[Demo] = []

    def start(*words: str) -> Demo:
        demos.append(Demo(tmp_path, *words))
        return demos[-1]

    yield start
    for each in demos:
        for pid in each.family():
            os.kill(pid, signal.SIGKILL)
        each.process.communicate()


def test_a_worker_is_killed_a_late_result_is_refused_and_no_job_is_lost(demo: Callable[..., Demo]) -> None:
    run = demo("-m", "jobs", "demo", "--once", "--json")
    out, story = run.process.communicate(timeout=100)
    assert (run.process.returncode, run.is_gone()) == (0, True), story
    found = json.loads(out)
    assert list(found) == [
        "submitted",
        "completed",
        "dead",
        "lost",
        "recovered",
        "refused",
        "completed_twice",
        "seconds",
    ]
    assert found["submitted"] == found["completed"] + found["dead"] >= 600
    assert (found["lost"], found["completed_twice"]) == (0, 0)
    assert min(found["recovered"], found["refused"]) >= 1
    assert "\x1b" not in story
    assert "worker 4 started, because jobs wait" in story  # in place of the killed one
    for words in (
        "SIGKILL",
        "SIGSTOP",
        "attempt 2",
        "SIGCONT",
        "LEASE_LOST",
        "rm -r .sublet/demo",
        "lines of code",
    ):
        assert words in story


def lines_to_paste(story: str, after: str, before: str) -> str:
    """The commands that the demo prints between two of its lines, indented by four spaces."""
    part = story.partition(after)[2].partition(before)[0]
    return "".join(line[4:] + "\n" for line in part.splitlines() if line.startswith("    "))


def paste(run: Demo, lines: str) -> str:
    """The output of a shell that runs them."""
    script = f"set -e\n{lines}".replace("python3 ", f"{shlex.quote(sys.executable)} ")
    env = {name: value for name, value in run.env.items() if name != MARK}
    pasted = subprocess.run(
        ["bash", "-c", script], cwd=run.folder, env=env, capture_output=True, text=True, timeout=60
    )
    assert pasted.returncode == 0, pasted.stderr
    return pasted.stdout


def test_the_demo_runs_until_ctrl_c(demo: Callable[..., Demo]) -> None:
    with socket.create_server(("", 0)) as taken:
        run = demo("-c", SMALL.replace("PORT", str(taken.getsockname()[1])))
        story = run.until("Ctrl-C stops everything")
    by_http = lines_to_paste(story, "Try, in another terminal", "The same with the command")
    by_command = lines_to_paste(story, "The same with the command", "Ctrl-C")
    assert len(by_command.splitlines()) == 5
    assert '"classes":' in paste(run, by_command).replace(" ", "")
    run.until("completed  analyse")
    if shutil.which("curl"):
        job, stats, listed = map(json.loads, paste(run, by_http).splitlines())
        assert (job["state"], job["result"]["path"], job["worker"]) == ("completed", ast.__file__, None)
        assert (stats["ready"], stats["running"]) == (0, 0)
        assert {one["state"] for one in listed["jobs"]} == {"completed"}
        run.until("completed  analyse")
    (api,) = run.services()
    os.kill(api, signal.SIGKILL)
    assert "api     died (SIGKILL)" in run.until("it is restarted")
    run.process.send_signal(signal.SIGINT)
    out, err = run.process.communicate(timeout=20)
    assert (run.process.returncode, err, run.is_gone()) == (0, "", True)
    assert "the data are kept" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_stops_the_demo_in_order_and_a_second_one_at_once(
    demo: Callable[..., Demo], number: signal.Signals, times: int
) -> None:
    run = demo("-m", "jobs", "demo", "--once")
    run.until("worker 3 started")
    assert run.services() == []
    for _ in range(times):
        run.process.send_signal(number)
        time.sleep(0.05)
    out, err = run.process.communicate(timeout=20)
    assert (run.process.returncode, err, run.is_gone()) == (128 + number, "", True)
    assert "ended by itself" not in out
    assert (run.folder / ".sublet" / "demo" / "workers.log").read_text().count("ready") == 3


def test_a_kill_leaves_no_process_and_a_second_demo_in_a_folder_is_refused(demo: Callable[..., Demo]) -> None:
    run = demo("-m", "jobs", "demo")
    run.until("killed worker")
    assert len(run.family()) >= 1 + 1 + 2 + 2  # the demo, the server, workers, their children
    second = demo("-m", "jobs", "demo", "--once")
    _, err = second.process.communicate(timeout=20)
    assert (second.process.returncode, len(err.splitlines())) == (3, 1)
    assert "already runs" in err
    run.process.kill()
    assert run.process.wait() == -signal.SIGKILL
    assert run.is_gone()
    third = demo("-m", "jobs", "demo", "--once")
    story = third.until("worker 1 started")
    assert "jobs of interrupted demos are still in their queues; they are not touched" in story
    assert "to queue demo-2" in story


def test_the_picture_of_the_demo_is_drawn_by_a_script(demo: Callable[..., Demo], tmp_path: Path) -> None:
    drawing = tmp_path / "demo.svg"
    run = demo(str(ROOT / "bench" / "demo_picture.py"), "--to", str(drawing))
    out, err = run.process.communicate(timeout=110)
    assert (run.process.returncode, run.is_gone()) == (0, True), out + err
    published = ROOT / "docs" / "pictures" / "demo.svg"
    for picture in (drawing, published):
        words = " ".join("".join(ElementTree.parse(picture).getroot().itertext()).split())
        for expected in ("python3 -m jobs demo --once", "100%", "SIGKILL", "SIGSTOP", "LEASE_LOST", "lost 0"):
            assert expected in words, picture
        assert "url(http" not in picture.read_text(), "a picture loads nothing from the network"
