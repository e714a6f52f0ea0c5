"""The crontab lines: parsed by cron's rules, run as cron runs them, with their expected effect."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from cronsim import CronSim

from sublet.cli.commands import COMMANDS
from sublet.client.sync_client import SyncClient
from sublet.options import Options
from sublet.protocol import keys
from sublet.scaling.invokers.process import SECONDS as SECONDS_OF_A_WORKER
from sublet.store.store import Store
from tests.support.http_server import serve_process
from tests.support.pages import blocks, check, command_on_path, run, steps
from tests.support.paths import ROOT
from tests.support.processes import until
from tests.support.program_runs import bearing

pytest_plugins = ["tests.support.http_settings"]

CRON = ROOT / "deploy" / "crontab"
PAGE = (ROOT / "docs" / "platforms" / "systemd.md").read_text().split("## cron: from nothing", 1)[1]
SECONDS = 60.0


class Line(NamedTuple):
    """A line of a crontab: fields, command, and the variables set above it."""

    fields: str
    command: str
    env: dict[str, str]


def lines(name: str, folder: Path = CRON) -> list[Line]:
    """Parse a file as cron does. A % without a backslash would end the command."""
    env, found = {}, []
    for line in (folder / name).read_text().splitlines():
        setting = re.fullmatch(r"(\w+)\s*=\s*(.*)", line)
        if setting:
            env[setting[1]] = setting[2].strip("\"'")
        elif line and not line.startswith("#"):
            *fields, command = line.split(None, 5)
            assert not re.search(r"(?<!\\)%", command)
            found.append(Line(" ".join(fields), command.replace("\\%", "%"), dict(env)))
    return found


(TICK,) = lines("crontab")
(OVER_HTTP,) = lines("crontab-http")


@contextlib.contextmanager
def started(line: Line, home: Path, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a command, as `init` has written it, as cron does: with its shell, from the home folder, with few
    variables. It is killed after the block.
    """
    project = home / "sublet"
    written = [*lines("crontab", project), *lines("crontab-http", project)]
    line = written[[TICK, OVER_HTTP].index(line)]
    bare = {
        "HOME": "/",
        "LOGNAME": "me",
        "RUN_OF_THE_TESTS": os.environ["RUN_OF_THE_TESTS"],
        **line.env,
        **env,
    }
    process = subprocess.Popen([line.env["SHELL"], "-c", line.command], cwd=home, env=bare, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Stop it with SIGTERM; returns the exit code, and the output that cron would mail."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out + err


@pytest.fixture
def home(tmp_path, settings):
    """A home folder in which the page's commands have run, with the Redis of this test."""
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PATH": command_on_path(tmp_path)}
    typed = [step for _, text in blocks("console", PAGE) for step in steps(text)]
    here = [
        step._replace(command=step.command.replace("redis://127.0.0.1:6379", settings.redis_url))
        for step in typed
    ]
    for step, answer in zip(typed, run(here, tmp_path, env), strict=True):
        check(step, *answer)
    project = tmp_path / "sublet"
    with (project / ".env").open("a") as file:
        file.write(f"SUBLET_NAMESPACE={settings.namespace}\n")
    program = project / ".venv" / "bin" / "sublet"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m jobs "$@"\n')
    program.chmod(0o700)
    return tmp_path


@pytest.fixture
async def overdue(settings):
    """Two overdue jobs: one with a passed delay, one with an expired lease. Yields a function that reads their states."""
    store, base = Store(settings), keys.base(settings.namespace)
    with (
        SyncClient(settings) as client,
        redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw,
    ):
        held = client.submit("report").id
        assert [
            lease.id for lease in (await store.claim(worker="w", queues=["default"], n=1, lease=30)).leases
        ] == [held]
        delayed = client.submit("report", None, Options(delay=30)).id
        await store.aclose()
        raw.eval((ROOT / "tests" / "support" / "elapse.lua").read_text(), 1, base, 60_000)
        assert [raw.hget(keys.job(base, one), "state") for one in (held, delayed)] == ["running", "scheduled"]
        yield lambda: [raw.hget(keys.job(base, one), "state") for one in (held, delayed)]


@pytest.mark.parametrize("line", [TICK, OVER_HTTP], ids=["tick", "http"])
def test_a_line_runs_each_minute_and_ends_within_one(line):
    clock = CronSim(line.fields, datetime(2030, 1, 1, 23, 58))
    times = [next(clock) for _ in range(3)]
    assert {b - a for a, b in itertools.pairwise(times)} == {timedelta(minutes=1)}
    (goes_on,) = re.findall(r"(?:--for |[?&]for=)(\d+)", line.command)
    assert 45 <= int(goes_on) < 60


def test_no_command_contains_a_secret():
    for name in ("crontab", "crontab-http"):
        assert not re.search(r"Bearer|whsec_|[0-9a-f]{16}|:[^\s:@/]+@", (CRON / name).read_text())


async def test_the_tick_does_the_maintenance(home, overdue):
    with started(TICK, home) as process:
        until(lambda: overdue() == ["queued", "queued"] or process.poll() is not None)
        assert overdue() == ["queued", "queued"]
        assert ended(process) == (-signal.SIGTERM, "")


async def test_the_tick_prints_only_errors(home):
    """The shell returns the exit code, so that cron sees it."""
    (home / "sublet" / ".env").write_text("SUBLET_REDIS_URL='redis://127.0.0.1:1'\n")
    with started(TICK, home) as process:
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, err.count("\n")) == (3, "", 1)
    (home / "sublet" / ".env").unlink()
    with started(TICK, home) as process:
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode != 0
        assert ".env" in err


def make_pool(home):
    """Run the command of the page."""
    (command,) = [line for line in typed() if " pools set " in line]
    subprocess.run(["/bin/sh", "-c", f"set -a; . ./.env; {command} --linger 1s"], cwd=home / "sublet", check=True, timeout=SECONDS)  # fmt: skip


def test_the_tick_starts_a_worker_that_outlives_it(home, settings):
    make_pool(home)
    with SyncClient(settings) as client:
        job_id = client.submit("hello", {"name": "Ada"}).id
        with started(TICK, home) as process:
            until(lambda: client.store.follow(client.store.operations.workers()))
            process.send_signal(signal.SIGTERM)
            until(lambda: client.get(job_id).state == "completed")
            assert client.get(job_id).result == "hello, Ada"
            until(lambda: not bearing(settings.namespace))
            out, err = process.communicate(timeout=SECONDS)
            assert (process.returncode, out + err) == (-signal.SIGTERM, "")


@pytest.fixture
def served_at(home, settings):
    """The API with the token from the page; yields its URL."""
    if not shutil.which("curl"):
        pytest.skip("no curl on PATH")
    secret = (home / "sublet" / "tick.header").read_text().split()[-1]
    with serve_process(settings, tokens=f"cron:tick:{secret} other:submit:{secret[::-1]}") as server:
        yield server.url


async def test_the_tick_over_http_does_the_maintenance(home, overdue, served_at):
    assert (home / "sublet" / "tick.header").stat().st_mode & 0o077 == 0
    with started(OVER_HTTP, home, SUBLET=served_at) as process:
        until(lambda: overdue() == ["queued", "queued"] or process.poll() is not None)
        assert overdue() == ["queued", "queued"]
        assert process.poll() is None


def test_a_refused_tick_fails_with_an_error(home, served_at):
    """A wrong token, one of another role, no token, and no server."""
    header = home / "sublet" / "tick.header"
    secret = header.read_text().split()[-1]
    wrong = [
        (f"Authorization: Bearer {token}\n", status)
        for token, status in (("x" * 32, "401"), (secret[::-1], "403"))
    ]
    for words, status in [*wrong, ("", "401")]:
        header.write_text(words) if words else header.unlink()
        with started(OVER_HTTP, home, SUBLET=served_at) as process:
            out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, out, status in err) == (22, "", True), err
    header.write_text(f"Authorization: Bearer {secret}\n")
    with started(OVER_HTTP, home, SUBLET="http://127.0.0.1:1") as process:
        assert process.wait(SECONDS) == 7


def typed() -> list[str]:
    """The page's lines without output: the crontab and a job."""
    return [line for _, text in blocks("sh", PAGE) for line in text.splitlines()]


def test_repeated_commands_add_the_lines_once_and_keep_the_others(tmp_path):
    program = tmp_path / "bin" / "crontab"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase "$1" in -l) cat table ;; -) cat > new && mv new table ;; esac\n')
    program.chmod(0o700)
    for name in ("crontab", "crontab-http"):
        shutil.copy(CRON / name, tmp_path)
    (tmp_path / "table").write_text("5 4 * * * backup sublet\n")
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    put = [line for line in typed() if line.endswith("| crontab -")]
    for line in [*put, *put]:
        subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env=env, check=True, timeout=SECONDS)
    texts = [(CRON / name).read_text() for name in ("crontab", "crontab-http")]
    assert (tmp_path / "table").read_text() == "5 4 * * * backup sublet\n" + "".join(texts)


def test_the_documented_job_reaches_the_redis_of_the_workers(home, settings):
    lines = [line for line in typed() if "set -a" in line or "pools set" in line or "submit" in line]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    with started(TICK, home):
        done = subprocess.run(["/bin/sh", "-c", "\n".join(lines)], cwd=home / "sublet", env=env, capture_output=True,
                              text=True, timeout=SECONDS)  # fmt: skip
        assert done.stdout.splitlines()[-1:] == ['"hello, Ada"'], done
        until(lambda: len(bearing(settings.namespace)) <= 2)  # the tick and its shell


def test_the_page_states_how_long_a_worker_lives():
    """The client of a tick over HTTP waits until the tick is over."""
    assert f"--for {SECONDS_OF_A_WORKER:g}s" in PAGE
    options = COMMANDS["tick"].read(TICK.command.partition(" tick ")[2].partition(" >")[0].split())
    assert (options.app, options.every) == ("tasks:app", 5)
    (goes_on,) = re.findall(r"[?&]for=(\d+)", OVER_HTTP.command)
    assert int(goes_on) + 5 <= int(re.search(r" -m (\d+) ", OVER_HTTP.command)[1]) < 60


def test_the_readme_has_the_commands_of_the_page():
    """The commands add to a crontab and never replace it."""
    ((_, there),) = blocks("sh", (CRON / "README.md").read_text())
    known = [
        line.removeprefix("$ ").partition("    #")[0]
        for line in (ROOT / "docs" / "platforms" / "systemd.md").read_text().splitlines()
    ]
    assert [line for line in there.splitlines() if line not in known] == []
    assert len(re.findall(r"^\(crontab -l .* \| crontab -$", PAGE, re.MULTILINE)) == 2
