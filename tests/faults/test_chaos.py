"""The chaos suite itself: its counters, its failures, and its clean-up."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import redis

from sublet.errors import Unavailable
from sublet.model import State
from sublet.protocol.scripts import script
from tests.faults.chaos.ledger import Entry, Ledger
from tests.faults.chaos.report import document_of, show
from tests.faults.chaos.run import Run
from tests.faults.chaos.scenario import PROMISES, RAN_FOR, Finding, Scenario, failures_of, scenarios
from tests.faults.chaos.script_time import ScriptTime, longest_script
from tests.faults.chaos.servers import Server
from tests.faults.chaos.verdict import evaluate, percentile
from tests.support.draws import one_in
from tests.support.paths import ROOT
from tests.support.processes import children_of, is_alive, plain_environment, until

PAGE = (ROOT / "docs" / "explanation" / "chaos.md").read_text()
SECONDS = 120.0


def job(attempt=1, state=State.COMPLETED, result=None):
    return SimpleNamespace(attempt=attempt, state=state, result=attempt if result is None else result)


def entries(*recorded):
    """Entries from tuples: time, event, id, attempt."""
    return sorted(Entry(at, event, "p", job_id, attempt) for at, event, job_id, attempt in recorded)


def test_a_verdict_without_losses_has_zero_counters():
    verdict = evaluate(
        entries((1, "acked", "a", 0), (2, "started", "a", 1), (3, "completed", "a", 1)), {"a": job()}
    )
    assert verdict._replace(acked=0) == (0,) * 11 + ((),)
    assert verdict.acked == 1


@pytest.mark.parametrize(
    ("recorded", "jobs", "field"),
    [
        (((1, "acked", "a", 0),), {}, "lost"),
        (((1, "acked", "a", 0),), {"a": job(0, State.QUEUED)}, "unfinished"),
        (((1, "completed", "a", 1), (2, "completed", "a", 2)), {"a": job(2)}, "twice"),
        (((1, "completed", "a", 1),), {"a": job(2)}, "stale"),
        (((1, "acked", "a", 0),), {"a": job(3, State.DEAD)}, "unfinished"),
        (((1, "sent", "a", 0), (2, "unknown", "a", 0)), {}, "unanswered"),
        (((1, "unknown", "a", 0), (2, "unknown", "a", 0), (3, "acked", "a", 0)), {"a": job()}, "unconfirmed"),
        (((1, "sent", "a", 0), (2, "rejected", "a", 0)), {"a": job()}, "rejected_but_stored"),
        (((1, "completed", "a", 2),), {"a": job(2, result=1)}, "stale"),
        (((1, "started", "a", 1), (2, "started", "a", 2)), {"a": job(2)}, "rerun"),
        (((1, "refused", "a", 1),), {"a": job(2)}, "late_refused"),
        (((1, "lost", "a", 1),), {"a": job(2)}, "late_refused"),
        (
            ((1, "fault", "", 0), (2, "healed", "", 0), (3, "sent", "a", 0), (4, "acked", "a", 0)),
            {},
            "lost_after",
        ),
    ],
)
def test_each_broken_promise_is_counted(recorded, jobs, field):
    assert getattr(evaluate(entries(*recorded), jobs), field) == 1


def test_a_job_sent_before_the_last_fault_ended_is_not_lost_after_it():
    recorded = entries((1, "fault", "", 0), (2, "sent", "a", 0), (3, "healed", "", 0), (4, "acked", "a", 0))
    assert evaluate(recorded, {}).lost_after == 0


def test_a_retry_after_a_failure_is_not_a_rerun():
    recorded = entries(
        (1, "started", "a", 1), (2, "failed", "a", 1), (3, "started", "a", 2), (4, "completed", "a", 2)
    )
    assert evaluate(recorded, {"a": job(2)}).rerun == 0


def test_the_servers_counter_must_match_the_completed_jobs():
    recorded = entries((1, "acked", "a", 0), (2, "completed", "a", 1))
    assert [evaluate(recorded, {"a": job()}, counted).twice for counted in (None, 1, 2)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("recorded", "waits"),
    [
        (((1, "fault", "a", 1), (3, "started", "a", 2)), (2,)),
        (((1, "fault", "a", 1), (3, "started", "b", 2)), ()),  # another job
        (
            ((1, "fault", "a", 1), (3, "started", "a", 3)),
            (),
        ),  # a worker died before it could record the start
        (
            ((1, "fault", "a", 1), (3, "started", "a", 2), (4, "fault", "a", 2), (9, "started", "a", 3)),
            (2,),
        ),  # delayed on purpose
        (((1, "fault", "", 0), (2, "healed", "", 0), (2.5, "completed", "b", 1)), (0.5,)),
        (
            ((1, "healed", "", 0), (2, "fault", "", 0), (3, "completed", "b", 1)),
            (),
        ),  # another fault before
    ],
)
def test_recovery_is_the_time_from_a_fault_until_work_continues(recorded, waits):
    assert evaluate(entries(*recorded), {}).recovery == waits


def test_percentiles():
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99, 1)] == [51, 100, 100]
    assert percentile((), 0.5) == 0


def a_scenario(**more):
    return Scenario("s", "words", lambda harness: None, 3.0, (1, 1), **more)


@pytest.mark.parametrize("field", ["lost", "twice", "stale"])
def test_a_scenario_fails_only_by_its_own_promises(field):
    verdict = evaluate([], {})._replace(acked=1, recovery=(0.1,), **{field: 1})
    assert len(failures_of(a_scenario(), verdict, ScriptTime())) == 1
    assert failures_of(a_scenario(promises=tuple(set(PROMISES) - {field})), verdict, ScriptTime()) == ()


def test_a_scenario_fails_by_its_bounds_or_if_it_shows_nothing():
    good = evaluate([], {})._replace(acked=1, recovery=(0.1,))
    assert (
        failures_of(a_scenario(), good, ScriptTime(0.005, "claim"))
        == failures_of(a_scenario(), good, None)
        == ()
    )
    assert "no recovery" in failures_of(a_scenario(), good._replace(recovery=()), ScriptTime())[0]
    assert "claim ran for 5.10 ms" in failures_of(a_scenario(), good, ScriptTime(0.0051, "claim"))[0]
    assert "recovery" in failures_of(a_scenario(), good._replace(recovery=(3.1,)), ScriptTime())[0]
    assert "not completed" in failures_of(a_scenario(), good._replace(unfinished=1), ScriptTime())[0]
    assert (
        "after the last fault"
        in failures_of(a_scenario(promises=()), good._replace(lost_after=1), ScriptTime())[0]
    )
    assert "shows nothing" in failures_of(a_scenario(), good._replace(acked=0), ScriptTime())[0]
    assert "rerun: none" in failures_of(a_scenario(shows=("rerun",)), good, ScriptTime())[0]


def test_a_ledger_skips_incomplete_lines(tmp_path):
    ledger = Ledger(tmp_path)
    writer = ledger.writer("p")
    writer.write("acked", "a")
    writer.close()
    with ledger.path("p").open("a") as file:
        file.write('{"event": "acked", "at": 1, "id": "b"')  # its writer was killed
    ledger.path("w").write_text(
        '{"event":"completed","at":"2026-01-01T00:00:00.000Z","id":"a","attempt":2,"state":"x","detail":""}\n'
    )
    assert [(entry.event, entry.id, entry.attempt, entry.process) for entry in ledger.entries()] == [
        ("completed", "a", 2, "w"),
        ("acked", "a", 0, "p"),
    ]


def test_the_page_describes_every_scenario_and_names_existing_tests():
    recorded = re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", PAGE, re.MULTILINE)
    assert recorded == [(each.name, each.fault) for each in scenarios().values()]
    assert [each.name for each in scenarios().values() if each.loses or each.repeats] == re.findall(
        r"^- `([a-z-]+)`:", PAGE, re.MULTILINE
    )
    for path in set(re.findall(r"`(tests/\w+\.py)`", PAGE)):
        assert (ROOT / path).exists(), path
    rows = PAGE.partition("## Which failure")[2]
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", rows)) <= {*scenarios(), "everything"}


def test_only_scenarios_that_may_lose_jobs_are_reported_as_such(capsys):
    for each in scenarios().values():
        assert not each.loses or "lost" not in each.promises
        assert bool(each.repeats) == ("lost" in each.promises and "twice" not in each.promises)
    verdict = evaluate([], {})._replace(acked=9, twice=2, stale=1)
    show(
        [
            Finding(scenarios()[name], verdict, None, 1, ())
            for name in ("primary-lost-replicated", "primary-lost")
        ]
    )
    output = capsys.readouterr().out
    assert re.findall("^may lose +([a-z-]+):.* lost here: 0$", output, re.MULTILINE) == ["primary-lost"]
    assert re.findall(
        r"^may repeat +([a-z-]+): no job may be lost; .*\(here twice: 2, stale: 1\)$", output, re.MULTILINE
    ) == ["primary-lost-replicated"]


@pytest.mark.parametrize(
    ("ran", "fell", "words"),
    [
        (1, 0, "the scenario passed"),
        (1, 1, "the scenario failed"),
        (2, 0, "all 2 scenarios passed"),
        (2, 1, "1 of 2 scenarios failed"),
        (0, 0, "nothing was run"),
    ],
)
def test_the_last_line_has_correct_singular_and_plural(ran, fell, words, capsys):
    skipped = Finding(a_scenario(), None, None, 0, (), "not available here")
    show([Finding(a_scenario(), None, None, 0, ("it broke",) * (n < fell)) for n in range(ran)] or [skipped])
    assert capsys.readouterr().out.splitlines()[-1] == f"{words}: 0 jobs acknowledged"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_row_fits_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    verdict = evaluate([], {})._replace(acked=12_345, recovery=(1.0,))
    show([Finding(each, verdict, ScriptTime(0.001, "claim"), 1, ()) for each in scenarios().values()])
    head, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert len(rows) == len(scenarios())
    assert max(map(len, rows)) <= columns
    assert [word in head for word in ("lost", "verdict", "script")] == [True, True, columns == 200]


def test_the_document_has_all_findings():
    found = [Finding(each, None, None, 1, ("it broke",)) for each in scenarios().values()]
    output = document_of(found, 7)
    assert (output["ok"], output["seed"], len(output["scenarios"])) == (False, 7, len(found))


def chaos(*words, cwd=ROOT, seconds=SECONDS, **env):
    clean = plain_environment()
    return subprocess.run(
        [sys.executable, "-m", "sublet", "chaos", *words],
        cwd=cwd, env=clean | {"PYTHONPATH": f"{cwd / 'jobs'}{os.pathsep}{cwd / 'functions'}"} | env, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


def test_chaos_runs_from_a_project_with_its_own_tests_package(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    done = chaos("--list", cwd=tmp_path, PYTHONPATH="")
    assert "workers-killed" in done.stdout, done.stderr


def test_an_unknown_scenario_is_refused_with_a_suggestion():
    done = chaos("--only", "worker-killed")
    assert done.returncode == 2
    assert "workers-killed" in done.stderr


@pytest.mark.parametrize(
    ("holds", "runs", "ok"), [([9], 2, True), ([9, 9], 3, True), ([9, 9, 9], 3, False), ([], 1, True)]
)
def test_a_long_script_is_a_failure_only_if_it_occurs_in_all_three_runs(monkeypatch, holds, runs, ok):
    found = [Finding(a_scenario(), None, None, 0, (f"complete {RAN_FOR} {ms} ms",)) for ms in holds]
    seen = []

    def run_one(_, scenario):
        seen.append(scenario)
        return found.pop(0) if found else Finding(scenario, None, None, 0, ())

    monkeypatch.setattr(Run, "run_one", run_one)
    assert [finding.ok for finding in Run(quick=True, seed=1).run_all([a_scenario()])] == [ok]
    assert len(seen) == runs


def test_frozen_time_is_not_script_time(tmp_path):
    """The slow log of a frozen server counts the frozen time of its script: it is read before, or reset."""
    server = Server(tmp_path / "server", **{"slowlog-log-slower-than": 0})
    try:
        server.client.eval(script("init").text, 1, "{x:0}", "1")
        assert longest_script(server.client) == ScriptTime(), "compiling it may take longer"
        server.client.evalsha(script("init").sha, 1, "{x:0}", "1")
        server.freeze()
        held = server.longest_script()
        server.thaw()
        assert held.seconds > 0
        assert held.script
        assert longest_script(server.client) == ScriptTime()
        assert server.longest_script() == held
    finally:
        server.close()


def test_a_printed_seed_is_accepted():
    assert chaos("--list", "--seed", "1795331103").returncode == 0
    assert chaos("--list", "--seed", "many").returncode == 2


def test_scenarios_that_kill_servers_do_not_run_with_a_redis_url():
    for names in ("server-killed", "workers-killed,server-killed"):
        done = chaos("--only", names, "--redis-url", "redis://127.0.0.1:1")
        assert done.returncode == 2
        assert "server-killed cannot run with --redis-url" in done.stderr


def test_a_missing_server_exits_3():
    assert chaos("--redis-url", "redis://127.0.0.1:1").returncode == 3
    assert chaos("--binary", "/nonexistent").returncode == 3


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "ended with exit code 0 without output: is it a Redis or Valkey?"),
        ("echo one; echo no such option; exit 4", "ended with exit code 4: no such option"),
        ("kill -9 $$", "ended by signal 9 without output: is it a Redis or Valkey?"),
    ],
)
def test_a_binary_that_is_not_a_server_is_reported_with_its_exit(script, words, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(Unavailable) as recorded:
        Server(tmp_path / "server", binary=str(program))
    assert str(recorded.value).endswith(f"{program} {words}")


@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs a server other than Valkey 9")
def test_a_named_scenario_that_cannot_run_is_refused_before_any_start():
    done = chaos("--binary", "redis-server", "--only", "workers-killed,cluster-slot-moved")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "sublet: cluster-slot-moved cannot be run here: it needs Valkey 9.0 or newer"
    )
    assert len(done.stderr.splitlines()) == 1


def test_a_scenario_for_any_server_is_always_available(monkeypatch):
    monkeypatch.setattr(
        Run,
        "_harness",
        lambda *_: pytest.fail("no server is started for a scenario that runs on any"),
    )
    assert Run(quick=True, seed=1).unavailable(scenarios()["workers-killed"]) == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(tmp_path, number):
    env = plain_environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "sublet", "chaos", "--only", "server-killed,workers-killed"],
        cwd=ROOT, env=env | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: len(list(tmp_path.glob("chaos-*/ledger/worker-*.jsonl"))) >= 3, "workers are running")
    pids = [child for child in children_of(process.pid)]
    process.send_signal(number)
    assert process.wait(SECONDS) == 130
    assert not [pid for pid in pids if is_alive(pid)]
    assert list(tmp_path.glob("chaos-*")) == []


def test_real_workers_are_killed_and_the_promises_are_kept():
    done = chaos("--quick", "--only", "workers-killed,requests-lost-and-doubled", "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 0, output
    for each in output["scenarios"]:
        assert (each["lost"], each["accepted_twice"], each["stale_accepted"], each["unfinished"]) == (
            0,
            0,
            0,
            0,
        )
        assert each["acknowledged"] > 100
    assert output["scenarios"][1]["rerun"] > 0


UNHELD = "local answer = lease_answer(job, ARGV[i + 1], 'complete')"
DONE = "complete_job(job, ARGV[i + 2])"
AGAIN = " if answer == 'completed' then answer, job.claimed_at, job.worker = nil, job.claimed_at or stamp, job.worker or 'w' end"
FAILED = "  if delay == 0 then\n    return conclude(job, ending, 'queued', job.rank or "
GONE = "  if ending.verb == 'fail' then call('DEL', job.hash) call('ZREM', key('running'), job.id) return 'scheduled 0' end\n"
SEEN = "  local where = get_queue(queue)\n"
BROKEN = {
    "outcomes of lost leases are accepted": (
        "lua/lib/base.lua",
        "if job.token ~= token then return 'LEASE_LOST' end",
        "",
        "server-frozen,half-open",
        "accepted from a lost lease",
    ),
    "a job is stored twice": (
        "lua/lib/intake.lua",
        "or call('EXISTS', key('job:', id)) == 1 then",
        "then",
        "requests-lost-and-doubled",
        "accepted twice",
    ),
    "an acknowledged job is not stored": (
        "lua/lib/intake.lua",
        SEEN,
        "  if string.find(id, '7$') then return 'created' end\n" + SEEN,
        "slow-connections",
        "lost",
    ),
    "an outcome counts twice": (
        "lua/complete.lua",
        f"{UNHELD} or {DONE}",
        f"{UNHELD}{AGAIN} answer = answer or {DONE}",
        "requests-lost-and-doubled",
        "accepted twice",
    ),
    "the place of a lost lease is kept": (
        "lua/lib/lifecycle.lua",
        "  return_place(job)\n",
        "",
        "limits",
        "moments with places that are not the leases",
    ),
    "edges that a call does not settle are forgotten": (
        "lua/lib/edges.lua",
        "    mark_unsettled(from.id, stamp)\n",
        "",
        "workflows",
        "not completed in time",
    ),
    "a failed job is deleted": ("lua/lib/lifecycle.lua", FAILED, GONE + FAILED, "slow-connections", "lost"),
    "the number of replicas is not checked": (
        "jobs/sublet/submission/durability.py",
        "    if got < wait[1]:",
        "    if got < 0:",
        "primary-lost-replicated",
        "lost",
    ),
}
"""Defects: the file, its text, the replacement, the scenarios that must fail, and the reason."""


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("defect", one_in(7, [*BROKEN]))
def test_a_defect_makes_its_scenario_fail(defect, tmp_path):
    file, whole, broken, names, word = BROKEN[defect]
    for folder in ("jobs", "functions", "lua", "tests/faults/chaos", "tests/support"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    text = (tmp_path / file).read_text()
    assert text.count(whole) == 1
    (tmp_path / file).write_text(text.replace(whole, broken))
    done = chaos("--quick", "--only", names, cwd=tmp_path, seconds=2 * SECONDS)
    assert done.returncode == 1, done.stdout
    assert re.search(rf"^failed .*\d+ {word}", done.stdout, re.MULTILINE), done.stdout


def test_no_key_or_setting_remains_on_the_users_server(server_url):
    url = server_url("redis")
    client = redis.Redis.from_url(url, decode_responses=True)
    client.set("yours", "1")
    before = set(client.scan_iter()), client.config_get("slowlog*")
    done = chaos("--quick", "--redis-url", url)
    assert "all 5 scenarios passed" in done.stdout, done.stdout + done.stderr
    until = time.monotonic() + 10
    while (
        left := {key for key in client.scan_iter() if key.startswith("{chaos-")}
    ) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == set()
    assert client.config_get("slowlog*") == before[1]
    assert client.get("yours") == "1"
