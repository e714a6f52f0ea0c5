"""`sublet schedules` at a terminal and in scripts, and the schedules of an app in `sublet work`."""

import importlib
import json
import re
import shutil
import sys

import pytest
import redis

from sublet.cli.main import run
from sublet.protocol import keys

pytest_plugins = ["tests.support.command_line", "tests.support.http_settings"]

APP = """
from sublet import App, Context

app = App()

@app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin", payload={"region": "eu"}, overlap="skip")
@app.task(queue="reports", max_attempts=5)
async def report(region: str = "all") -> str:
    return region

@app.schedule(every=1, name="beat")
@app.task
async def pulse(ctx: Context) -> str:
    return str(ctx.occurrence)
"""
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


class Here:
    """Runs commands in this process: start-up time is tested elsewhere."""

    def __init__(self, capsys, folder):
        self.capsys, self.folder = capsys, folder

    def run(self, *words):
        code, output = run(list(words)), self.capsys.readouterr()
        return code, output.out, output.err

    def ok(self, *words):
        code, out, err = self.run(*words)
        assert (code, err) == (0, "")
        return out.rstrip("\n")

    def json(self, *words):
        return json.loads(self.ok(*words, "--json"))

    def no(self, code, *words):
        found, out, err = self.run(*words)
        assert (found, out, err.count("\n")) == (code, "", 1)
        return err.removeprefix("sublet: ").rstrip("\n")


@pytest.fixture
def home(capsys, monkeypatch, settings, tmp_path):
    (tmp_path / "timed.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("SUBLET_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("SUBLET_NAMESPACE", settings.namespace)
    monkeypatch.delenv("SUBLET_APP", raising=False)
    yield Here(capsys, tmp_path)
    sys.modules.pop("timed", None)


def test_the_list_shows_next_runs_and_states(home):
    code, out, err = home.run("schedules")
    assert (code, "no schedules; " in out, "there is no namespace " in err) == (0, True, True)
    assert home.json("schedules") == {"schedules": [], "cursor": None}
    assert [line.split() for line in home.ok("schedules", "sync", "timed:app").splitlines()[1:]] == [
        ["report", "created"],
        ["beat", "created"],
    ]
    assert home.json("schedules", "sync", "--app", "timed") == [
        {"name": "report", "answer": "unchanged", "before": None},
        {"name": "beat", "answer": "unchanged", "before": None},
    ]
    home.ok("schedules", "pause", "beat")
    heads, beat, report = home.ok("schedules").splitlines()
    assert heads.split() == ["NAME", "STATE", "NEXT", "IN", "LAST", "FIRED", "WHEN"]
    assert re.fullmatch(r"beat +paused +never +Every second", beat)
    assert re.fullmatch(
        r"report +active +(Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 09:00:00 CES?T +\S+ \S+ +never +At 09:00 on .*",
        report,
    )
    assert home.run("schedules", "--limit", "1")[2].endswith("schedules --limit 1 --cursor beat\n")
    page = home.json("schedules", "--limit", "1")
    assert ([one["name"] for one in page["schedules"]], page["cursor"]) == (["beat"], "beat")
    assert "payload" not in page["schedules"][0]
    rest = home.json("schedules", "list", "--cursor", "beat", "--limit", "1")
    assert ([one["name"] for one in rest["schedules"]], rest["cursor"]) == (["report"], None)


def test_show_prints_all_of_a_schedule(home):
    home.ok("schedules", "sync", "timed:app")
    shown = home.ok("schedules", "show", "report")
    assert shown.startswith("report   active\n  when        ")
    assert len(re.findall(rf"(?:Mon|Tue|Wed|Thu|Fri) {MOMENT} CES?T  {MOMENT}Z  in ", shown)) == 5
    for words in (
        'task        report   {"region":"eu"}',
        "queue       reports",
        "occurrences 0 fired, 0 missed, 0 skipped",
        "if missed   the latest runs, however late",
        "overlap     while the previous job is unfinished, the new occurrence is skipped",
        "from        timed:app",
    ):
        assert words in shown
    found = home.json("schedules", "show", "report")
    assert (found["cron"], found["tz"], found["payload"], found["max_attempts"]) == (
        "0 9 * * MON-FRI", "Europe/Berlin", {"region": "eu"}, 5,
    )  # fmt: skip
    assert [re.search(r"T09:00:00\.000\+0[12]:00$", at) is not None for at in found["upcoming"]] == [True] * 5


def test_a_schedule_is_added_changed_and_removed_by_hand(home, monkeypatch):
    words = (
        "--cron",
        "30 2 * * *",
        "--tz",
        "America/New_York",
        "--jitter",
        "5m",
        "--missed",
        "skip",
        "--late",
        "10m",
    )
    shown = home.ok("schedules", "add", "nightly", "report", '{"region": "us"}', *words, "--app", "timed:app")
    assert shown.startswith("created\nnightly   active\n")
    for line in (
        "queue       reports",
        "if missed   the latest runs if it is at most 10 min late",
        "jitter      up to 5 min",
    ):
        assert line in shown
    monkeypatch.setenv("SUBLET_APP", "timed:app")
    again = home.json("schedules", "add", "nightly", "report", '{"region": "us"}', *words)
    assert (again["answer"], again["schedule"]["queue"], again["schedule"]["revision"]) == (
        "unchanged",
        "reports",
        1,
    )
    assert home.json("schedules", "add", "nightly", "report", "--every", "90s")["answer"] == "changed"
    assert home.json("schedules", "show", "nightly")["every"] == 90
    assert home.json("schedules", "remove", "nightly") == [{"schedule": "nightly", "answer": "removed"}]
    assert "refused: no schedule nightly: there are none" in home.run("schedules", "remove", "nightly")[1]


def test_a_queue_in_another_partition_is_refused(home, monkeypatch):
    monkeypatch.setenv("SUBLET_PARTITIONS", "4")
    for n in range(9):
        code, _, err = home.run("schedules", "add", "a", "report", "--every", "90s", "--queue", f"q{n}")
        if code:
            break
    assert code == 1
    assert "a schedule does not move between partitions; remove it and add it again" in err
    home.ok("schedules", "remove", "a")
    home.ok("schedules", "add", "a", "report", "--every", "90s", "--queue", f"q{n}")


def test_pause_resume_and_run_take_several(home):
    home.ok("schedules", "sync", "timed:app")
    assert [line.split()[1] for line in home.ok("schedules", "pause", "beat", "report").splitlines()[1:]] == [
        "paused"
    ] * 2
    assert home.json("schedules", "resume", "beat") == [{"schedule": "beat", "answer": "resumed"}]
    first, second = home.json("schedules", "run", "beat", "report")
    assert (first["answer"], second["answer"]) == ("submitted", "submitted")
    assert "schedule    report   run by hand" in home.ok("get", second["id"])
    assert home.json("schedules", "run", "beat", "--id", "mine")[0] == {
        "schedule": "beat",
        "answer": "submitted",
        "id": "0-mine",
    }
    assert home.json("schedules", "run", "beat", "--id", "mine")[0]["answer"] == "there already"
    code, out, _ = home.run("schedules", "pause", "beet", "report")
    assert (code, "refused: no schedule beet, did you mean beat?" in out) == (1, True)
    assert home.json("schedules", "show", "report")["state"] == "paused"


def test_schedules_that_code_no_longer_declares_are_removed_on_request(home):
    home.ok("schedules", "sync", "timed:app")
    home.ok("schedules", "add", "mine", "report", "--every", "1h")
    (home.folder / "timed.py").write_text(APP.replace('@app.schedule(every=1, name="beat")\n', ""))
    del sys.modules["timed"]
    importlib.invalidate_caches()
    shutil.rmtree(home.folder / "__pycache__", ignore_errors=True)
    assert [one["name"] for one in home.json("schedules", "sync", "timed:app")] == ["report"]
    assert [
        (one["name"], one["answer"]) for one in home.json("schedules", "sync", "timed:app", "--remove")
    ] == [
        ("report", "unchanged"),
        ("beat", "removed"),
    ]
    assert [one["name"] for one in home.json("schedules")["schedules"]] == ["mine", "report"]


def test_a_schedule_that_never_fires_is_refused_by_hand_and_reported_at_a_deploy(home):
    words = ("schedules", "add", "x", "report", "--every", "5s", "--end", "2020-01-01T00:00:00Z")
    assert (
        home.no(2, *words)
        == "end: there is no occurrence before its end, 2020-01-01 00:00:00Z: the end has passed"
    )
    (home.folder / "timed.py").write_text(APP.replace("every=1,", "every=1, end=datetime(2020, 1, 1, tzinfo=UTC),").replace(
        "from sublet", "from datetime import UTC, datetime\nfrom sublet"))  # fmt: skip
    assert "beat created; there is no occurrence before its end" in " ".join(
        home.ok("schedules", "sync", "timed:app").split()
    )
    assert "next runs   none: its end has passed" in home.ok("schedules", "show", "beat")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["add", "x", "t", "--cron", "61 * * * *"], "cron.*minute 61"),
        (["add", "x", "t", "--cron", "0 0 30 2 *"], "cron.*30"),
        (["add", "x", "t", "--cron", "0 9 * * *", "--tz", "Europe/Berlim"], "tz: .*Europe/Berlim"),
        (["add", "x", "t", "--cron", "0 9 * * *", "--every", "5s"], "every: .*not both"),
        (["add", "x", "t"], "write --cron LINE, .* or --every 30s"),
        (["add", "x", "t", "--every", "5"*12], "every: "),
        (["add", "x", "t", "--every", "5s", "--missed", "never"], "missed: .*'latest', 'skip' or 'all'"),
        (["add", "x", "t", "--every", "5s", "--overlap", "x"], "overlap: "),
        (["add", "x", "t", "--every", "5s", "--missed", "all", "--most", "101"], "most: "),
        (["add", "x", "t", "--every", "5s", "--most", "7"], "--most has an effect only with --missed all"),
        (["add", "x", "t", "--every", "5s", "--missed", "all", "--late", "5m"], "--late has .* --missed skip"),
        (["add", "x", "t", "--every", "0.1s"], "--every: '0.1s': use an interval of 1s or more, such as 30s"),
        (["add", "x", "t", "--every", "5s", "--jitter", "2d"], "jitter: "),
        (["add", "x", "t", "--every", "5s", "--start", "2030-01-01T00:00:00Z", "--end", "2029-01-01T00:00Z"], "end is bef"),
        (["add", "x", "t", "--every", "5s", "--start", "tomorrow"], "--start: 'tomorrow': use a time with a time zone, as RFC 3339 has it"),
        (["add", "x", "t", "{", "--every", "5s"], "payload is not JSON"),
        (["add", "x y", "t", "--every", "5s"], "schedule 'x y'"),
        (["add", "x"], "TASK is missing; see .* schedules add --help"),
        (["pause"], "NAME is missing"),
        (["pause", "x", "--cron", "* * * * *"], "--cron is an option of .*schedules add"),
        (["shwo", "x"], "did you mean show"),
        (["show", "x", "y"], "unexpected argument 'y'"),
        (["show", "x" * 41], "1 to 40"),
        (["sync"], "MODULE:APP is missing"),
        (["sync", "nowhere:app"], "there is no module nowhere"),
    ],
)  # fmt: skip
def test_invalid_input_is_reported_in_one_line_with_the_field(capsys, monkeypatch, words, why):
    """In this process: the error occurs before any call to Redis."""
    monkeypatch.delenv("SUBLET_APP", raising=False)
    monkeypatch.setenv("SUBLET_REDIS_URL", "redis://127.0.0.1:1")
    assert run(["schedules", *words]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert re.search(why, output.err)


def test_an_added_schedule_is_checked_by_its_app(home):
    words = "--every", "5s", "--app", "timed:app"
    assert re.match(
        "task report: regoin: .*", home.no(2, "schedules", "add", "x", "report", '{"regoin": 1}', *words)
    )
    assert "did you mean report" in home.no(2, "schedules", "add", "x", "reprot", *words)


def test_an_unknown_schedule_is_an_error_with_the_nearest_name(home):
    assert "no schedule report: there are none" in home.no(1, "schedules", "show", "report")
    home.ok("schedules", "sync", "timed:app")
    assert home.no(1, "schedules", "show", "reprot") == "no schedule reprot, did you mean report?"
    assert json.loads(home.no(1, "schedules", "show", "zzz", "--json"))["error"] == "NOT_FOUND"


def test_a_worker_stores_and_fires_the_schedules_of_its_app(shell):
    """The command reports that it takes over a schedule that was put by hand."""
    (shell.folder / "timed.py").write_text(APP)
    shell.ok("schedules", "add", "beat", "pulse", "--every", "1h")
    events = [json.loads(line) for line in shell.ok("work", "timed:app", "--max-jobs", "2").splitlines()]
    assert [one["detail"] for one in events if one["event"] == "warning"] == [
        "the app's code now owns schedules: beat (put by hand)"
    ]
    assert sum(one["event"] == "completed" for one in events) == 2
    occurrences = sorted(one["id"].rpartition(":")[2] for one in events if one["event"] == "completed")
    assert int(occurrences[1]) - int(occurrences[0]) == 1000
    found = shell.json("schedules", "show", "beat")
    assert (found["source"], found["fired"] >= 2) == ("timed:app", True)
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"]) as raw:
        raw.hset(keys.schedule(keys.base(shell.env["SUBLET_NAMESPACE"]), "beat"), "held", found["last_job"])
    shown = shell.ok("schedules", "show", "beat")
    assert shown.startswith("beat   held")
    assert f"waits: job {found['last_job']} is not over" in shown
    assert re.search(
        r"last occurrence +\w\w\w .* UTC  .* ago\n  submitted +.* late, by \S+\n  its job     0-beat:\d+\n"
        r"  last runs   \w\w\w .* UTC  completed  0-beat:\d+\n              \w\w\w .* UTC  completed  0-beat:\d+\n",
        shown,
    )


def test_a_narrow_terminal_shows_the_time_and_the_state(home, monkeypatch, settings):
    """An occurrence that is not fired yet is overdue; no omitted column may hide that."""
    when = ("--cron", "0 3 31 1,3,5 *", "--tz", "Europe/Berlin", "--missed", "skip")
    home.ok("schedules", "add", "nightly-report", "pulse", *when)
    home.ok("schedules", "add", "z" * 40, "pulse", *when)
    shown = home.ok("schedules", "show", "nightly-report").splitlines()
    assert max(map(len, shown)) <= 80
    assert sum(re.match(" {14}\\S", line) is not None for line in shown) >= 5, (
        "four more runs, and the rest of the text"
    )
    with redis.Redis.from_url(settings.redis_url) as raw:
        base, occurrence = keys.base(settings.namespace), (raw.time()[0] - 11) * 1000
        raw.hset(keys.schedule(base, "nightly-report"), "occurrence", occurrence)
        raw.zadd(keys.schedules(base), {"nightly-report": occurrence})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    heads, line, _ = home.ok("schedules").splitlines()
    assert (heads.split(), max(len(heads), len(line)) <= 80) == (["NAME", "STATE", "NEXT"], True)
    home.ok("schedules", "remove", "z" * 40)
    heads, line = home.ok("schedules").splitlines()
    assert (heads.split(), max(len(heads), len(line)) <= 80) == (["NAME", "STATE", "NEXT", "WHEN"], True)
    assert re.match(r"nightly-report  overdue \d\d s  ", line)
