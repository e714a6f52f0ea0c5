"""Every example runs as its first lines describe."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.paths import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if not path.stem.startswith("test_"))


@pytest.fixture
def run(place, raw):
    """Run a module of the examples in the test's namespace; returns its output."""

    def run(*words):
        env = {
            **os.environ,
            "SUBLET_REDIS_URL": place.settings.redis_url,
            "SUBLET_NAMESPACE": place.settings.namespace,
        }
        done = subprocess.run(
            [sys.executable, *words], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


pytestmark = pytest.mark.real_server


def test_greet(place, raw):
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "sublet", "work", "examples.greet:app"], env=env, cwd=ROOT
    )
    try:
        words = [sys.executable, "-m", "examples.greet", "Ada"]
        out = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
        assert out.splitlines()[-1] == "Hello, Ada!"
    finally:
        worker.terminate()
        assert worker.wait(20) == 0


def test_greet_without_a_worker_asks_to_start_one(place, raw):
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    code = "import asyncio; from examples.greet import main; asyncio.run(main('Ada', 0.2))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    words = "no result after 0.2 s: does a worker run? In another terminal: python3 -m jobs work examples.greet:app\n"
    assert (done.returncode, done.stderr) == (1, words)


def test_checksums(run, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    out = run("-m", "examples.checksums", str(tmp_path)).splitlines()
    assert [line.split()[1] for line in out] == ["a", "b", "c"]
    assert out[0].startswith("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")


def test_steering(run):
    assert run("-m", "examples.steering").splitlines() == [
        "result: order 7 is paid",
        "   1. released not paid yet",
        "   2. released not paid yet",
        "   3. completed",
        STORY_OF_DISCARD,
        "   1. discarded 'nowhere' is not an address",
        "result: worked at attempt 3, after ConnectionError",
        "   1. ConnectionError connection reset",
        "   2. ConnectionError connection reset",
        "   3. completed",
    ]


class _Like(str):
    def __eq__(self, other):
        return other.startswith("failed: job ") and other.endswith(
            " is dead (discarded): 'nowhere' is not an address"
        )

    __hash__ = str.__hash__


STORY_OF_DISCARD = _Like("failed: …")


def test_fencing(run):
    assert run("-m", "examples.fencing") == "the late write was refused\n"


def test_without_async(run):
    assert run("-m", "examples.without_async").splitlines() == [
        "the same job: True - created: True False",
        "now: queued",
        "report is queued, priority 0, arguments {'year': 2026}",
        "called off: cancelled",
        "twice is refused: True",
    ]


def test_middleware(run):
    assert run("-m", "examples.middleware").splitlines() == [
        "left: 70",
        "undone: bob is 470 cents short",
        "accounts: {'ann': 70, 'bob': 30}",
        "attempts: {'transfer done': 1, 'transfer failed': 1} - all of them timed: True",
    ]


def test_convert(run, tmp_path):
    """Tested in full in test_command_worker.py."""
    (tmp_path / "a.txt").write_text("b b a")
    assert (
        run("-m", "examples.convert", str(tmp_path / "a.txt"))
        == f"{tmp_path / 'a.txt'} ['2', 'b', '1', 'a']\n"
    )


def test_on_time(run):
    report, probe, *probes = run("-m", "examples.on_time").splitlines()
    assert (
        report
        == "report: created, At 09:00 on Monday through Friday (Europe/Berlin), not if more than 1 hour late"
    )
    assert probe == "probe: created, Every second, skipped while the previous job runs"
    assert len(probes) == len(set(probes)) == 3
    assert [line.rpartition(" ")[0] for line in probes] == ["probe of"] * 3


def test_agent(place, raw, tmp_path):
    """Its worker is killed in the second tool call; another one carries on, and repeats no model request, and no tool call
    that had ended.
    """
    log = tmp_path / "log"
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
        "AGENT_LOG": str(log),
    }
    work = [sys.executable, "-m", "sublet", "work", "examples.agent:app", "--lease", "2", "--quiet"]
    words = [sys.executable, "-m", "examples.agent", "Is it warmer in Oslo or in Rome?"]
    done = ["model 1", "tool Oslo", "model 3", "tool Rome"]
    with ExitStack() as stack:
        first = stack.enter_context(
            _ended(subprocess.Popen(work, env=env | {"AGENT_WAITS_IN_ROME": "600"}, cwd=ROOT))
        )
        asked = stack.enter_context(
            _ended(subprocess.Popen(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        )
        until = time.monotonic() + 40
        while log.read_text().splitlines() != done if log.exists() else True:
            assert time.monotonic() < until, log.read_text() if log.exists() else "nothing was done"
            time.sleep(0.05)
        first.kill()
        stack.enter_context(_ended(subprocess.Popen(work, env=env, cwd=ROOT)))
        assert asked.communicate(timeout=60)[0] == "Rome is warmer.\n"
    assert log.read_text().splitlines() == [*done, "tool Rome", "model 5"], (
        "only the call that was interrupted is repeated"
    )


@contextmanager
def _ended(process):
    """Kill the process in the end."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def test_the_examples_own_tests_pass():
    command = [sys.executable, "-m", "pytest", "examples", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "SUBLET_REDIS_URL": "redis://127.0.0.1:1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("....."), done.stdout


def test_every_example_has_its_test():
    assert [name for name in EXAMPLES if f"test_{name}" not in globals()] == []
