"""The simulation: it finds nothing in many runs, replays exactly, and finds and shrinks planted defects.

`SUBLET_TEST_SIMULATE=600` runs for ten minutes. `python3 -m jobs simulate --seed N` runs a seed that failed.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sublet.cli.commands import COMMANDS
from sublet.model import State, Submission
from sublet.protocol import verbs
from sublet.protocol.scripts import script
from tests.faults.simulation.campaign import campaign
from tests.faults.simulation.choices import Choices
from tests.faults.simulation.history import LEGAL, Life, Move, follow
from tests.faults.simulation.run import run
from tests.faults.simulation.server import START, Chunks, Clock, Redis
from tests.faults.simulation.shrink import shrink
from tests.support.draws import few, one_in
from tests.support.paths import ROOT

SECONDS = float(os.environ.get("SUBLET_TEST_SIMULATE") or few(20))
OLD = (0, 11, 13, 34, 92, 1007)
"""Seeds that once found a defect of the scripts or of the simulation."""
TRACE = """
import hashlib, sys
from tests.faults.simulation.choices import Choices
from tests.faults.simulation.run import run
print(hashlib.sha256("\\n".join(run(Choices(int(sys.argv[1])), with_story=True).story).encode()).hexdigest())
"""
DEFECTS = {
    "no token is checked": ("lib/base.lua", "if job.token ~= token then return 'LEASE_LOST' end", "", 1),
    "a claim is not remembered": ("claim.lua", "if memo then", "if false then", 11),
    "no wake-up is left for further jobs": ("claim.lua", "for _, name in ipairs(names) do wake_next(name, left or #taken > 0) end", "", 1),
    "a lost lease returns the try": ("lib/lifecycle.lua", "local n = in_a_row(", "job.tries_left = 9 local n = in_a_row(", 1),
    "edges that a call does not settle are forgotten": ("lib/edges.lua", "    mark_unsettled(from.id, stamp)\n", "", 1),
    "a caller is not queued at the end of the job that it called": ("lib/calls.lua", "if awaited ~= name then return", "if true then return", 1),
    "a retry of a called job does not open the step again": ("lib/calls.lua", "return keep_step(job, name, 'call', from.id)", "return", 1),
    "a job is completed without those that follow": ("proceed.lua", "store_workflow(workflow, 'seal', place)", "", 1),
    "a repeated emit adds its chunks again": ("emit.lua", "before and math.min(n, math.max(0, emitted - before)) or 0", "0", 76),
    "a stream has no mark of a new attempt": ("emit.lua", "if of ~= token then append('') end", "", 1),
    "a stream does not expire with its job": ("lib/lifecycle.lua", "if job.logged == '2' then peek('PEXPIREAT', key('stream:', job.id), digits(until_)) end", "", 1),
    "a death is not reported": ("lib/lifecycle.lua", "if state == 'dead' then report_death(", "if state == 'none' then report_death(", 1),
}  # fmt: skip
"""Script, text, replacement, and first seed."""


def python(*words, cwd=ROOT, **env):
    env = {**os.environ, "PYTHONPATH": f"{Path(cwd) / 'jobs'}{os.pathsep}{cwd}", **env}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=600
    )


@pytest.mark.timeout(SECONDS + 600)
def test_many_runs_keep_every_promise():
    for seed in OLD:
        old = run(Choices(seed))
        assert not old.wrong, f"seed {seed}: {old.wrong}"
    found = campaign(int(time.time()), SECONDS)
    print(found.summary())
    assert found.failed is None, found.summary()
    assert found.runs
    assert found.ends


def test_a_seed_gives_the_same_run_in_every_process():
    traces = {python("-c", TRACE, "7", PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    here = hashlib.sha256("\n".join(run(Choices(7), with_story=True).story).encode()).hexdigest()
    assert traces == {here + "\n"}


def test_a_run_is_fully_described_by_its_deviations():
    first = run(Choices(5), with_story=True)
    again = run(Choices(replay=first.deviations), with_story=True)
    assert again.story == first.story
    assert again.deviations == first.deviations
    assert any(first.faults.values())


def test_a_run_without_deviations_has_no_faults():
    outcome = run(Choices(replay={}))
    assert not outcome.wrong
    assert not outcome.faults
    assert not outcome.deviations


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", one_in(4, [*DEFECTS]))
def test_a_planted_defect_is_found_and_shrunk(defect, tmp_path):
    name, right, wrong, seed = DEFECTS[defect]
    for folder in ("lua", "jobs", "tests/faults/simulation"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tmp_path / "lua" / name).read_text()
    assert right in text, "the script has changed: plant the defect elsewhere"
    (tmp_path / "lua" / name).write_text(text.replace(right, wrong))
    done = python(
        "-m",
        "tests.faults.simulation",
        "--seed",
        str(seed),
        "--runs",
        "200",
        "--seconds",
        "500",
        "--json",
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["failed"]["wrong"]
    assert len(found["shrunk"]["deviations"]) <= 10 < found["failed"]["deviations"]
    assert len(found["shrunk"]["story"]) <= 60


def test_a_ghost_that_emits_is_found(monkeypatch):
    """Not shrunk: the race is tight."""
    right, wrong, execute = (
        "job.state ~= 'running' or job.token ~= token",
        "job.state ~= 'running'",
        Chunks.execute,
    )
    assert right in script("emit").text, "the script has changed: plant the defect elsewhere"

    def planted(self, text):
        whole = text.decode() if isinstance(text, bytes) else text
        return execute(self, whole.replace(right, wrong))

    monkeypatch.setattr(Chunks, "execute", planted)
    found = (run(Choices(seed)).wrong for seed in (3, 24, 16, 6))
    assert any("emit(" in wrong for wrong in found)


def test_shrinking_keeps_only_the_necessary_deviations(monkeypatch):
    def fails_with_two(choices, with_story=False):
        outcome = run_nothing(choices)
        outcome.deviations = dict(choices.replay)
        outcome.wrong = "wrong" if choices.replay.get("d7") and choices.replay.get("d31", 0) >= 2 else ""
        return outcome

    run_nothing = lambda choices: type(outcome)(None, {})  # noqa: E731  # a run without a world
    outcome = run(Choices(replay={}))
    outcome.deviations, outcome.wrong = {f"d{n}": 3 for n in range(40)}, "wrong"
    monkeypatch.setattr("tests.faults.simulation.shrink.run", fails_with_two)
    assert shrink(outcome).deviations == {"d7": 1, "d31": 2}


def test_the_server_and_its_keys_use_the_simulated_clock():
    clock, real = Clock(), time.time
    with clock.rules():
        redis = Redis(clock, "{clock:0}")
        redis.ask(verbs.init("{clock:0}"))
        redis.command("SET", "{clock:0}:key:q|k", "job", "PX", 1000)
        assert redis.command("TIME") == [b"1900000000", b"0"]
        assert redis.look().locks == {"q|k": ("job", START + 1000)}
        clock.now += 1500
        assert redis.command("TIME") == [b"1900000001", b"500000"]
        assert redis.look().locks == {}
        redis.ask(verbs.submit("{clock:0}", [Submission("j", "q", "t", "delay=5", b"{}")]))
        assert redis.look().shelves["scheduled"] == {"j": START + 1505}
    assert time.time is real


def test_a_saved_server_is_restored_exactly():
    clock = Clock()
    with clock.rules():
        redis = Redis(clock, "{saved:0}")
        redis.ask(verbs.init("{saved:0}"))
        redis.ask(verbs.submit("{saved:0}", [Submission("j", "q", "t", "key=K window=9000", b"{}")]))
        redis.events()
        saved, look = redis.save(), redis.look()
        redis.ask(verbs.claim("{saved:0}", claim_id="c" * 22, worker="w", lease=30, n=1, queues=["q"]))
        redis.events()
        assert redis.look() != look
        redis.restore(saved)
        assert redis.look() == look
        assert redis.save() == saved


def test_the_table_of_moves_contains_every_state():
    states = {state for moves in LEGAL.values() for state in moves if state}
    assert (
        states
        == {state for moves in LEGAL.values() for ends in moves.values() for state in ends if state}
        == set(State)
    )


def test_a_history_that_breaks_the_rules_is_rejected():
    job = Life("j", "q", tries=1)
    assert follow(job, Move("submit", "queued")) == ""
    assert follow(job, Move("claim", "running", "1.a")) == ""
    assert "token" in follow(job, Move("complete", "completed", "1.b"))
    assert "tries left" in follow(job, Move("fail", "scheduled", "1.a"))
    job.left = 0
    assert follow(job, Move("fail", "dead", "1.a")) == ""
    assert "must not lead" in follow(job, Move("complete", "completed", "1.a"))


def test_an_interrupted_simulation_prints_its_results():
    words = ["-m", "tests.faults.simulation", "--seed", "3", "--seconds", "300"]
    child = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert "seeds from 3" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        shown, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130
    assert "stopped before the time was over" in shown


@pytest.mark.skipif("simulate" not in COMMANDS, reason="the command is not in the table yet")
class TestTheCommand:
    def test_it_runs_for_the_given_time(self):
        done = python("-m", "sublet", "simulate", "--for", "2s", "--seed", "1795331103", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["first_seed"] == 1795331103, "the time of day, as it is printed"
        assert found["runs"] >= 1
        assert found["failed"] is None

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--for", "soon"], "is not a duration"),
            (["--seed", "x"], "use a whole number from 0"),
            (["--exhaustive", "--seed", "1"], "leave --seed and --for out"),
        ],
    )
    def test_invalid_options_are_refused_with_the_reason(self, words, said):
        done = python("-m", "sublet", "simulate", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
