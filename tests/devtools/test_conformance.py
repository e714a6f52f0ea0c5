"""The conformance run: a conforming client passes, and a client with a defect breaks exactly its rules."""

import asyncio
import json
import shutil
import sys
import uuid
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublet.cli.develop.conformance import _names as names_of
from sublet.cli.develop.conformance import conformance
from sublet.connection.settings import Settings
from sublet.devtools.conformance import context
from sublet.devtools.conformance.command_rules import _claim_ids
from sublet.devtools.conformance.proxy import Seen
from sublet.devtools.conformance.resp import ErrorReply, read_command, read_reply
from sublet.devtools.conformance.rules import BY_NAME, CORE, GROUPS
from sublet.devtools.conformance.run import TRIALS, examine
from sublet.errors import Invalid, JobsError
from tests.support.draws import one_in
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]

CARELESS = [sys.executable, str(ROOT / "tests" / "support" / "rule_breaking_worker.py")]
AT_ONCE = 10
BREAKS = {
    "prints-no-id": {"prints-id"},
    "prints-ids-of-the-refused": {"prints-id"},
    "mangles-payload": {"keeps-payload"},
    "forgets-its-id": {"repeats-submit"},
    "makes-no-namespace": {"makes-namespace"},
    "repeats-claim-ids": {"claim-ids"},
    "counts-claims": {"claim-ids"},
    "forgets-its-claim": {"repeats-claim"},
    "changes-its-name": {"own-name"},
    "turns-queues-round": {"names-queues"},
    "takes-too-many": {"free-slots"},
    "sends-its-clock": {"durations"},
    "mangles-result": {"keeps-result"},
    "makes-codes-of-words": {"tells-failure"},
    "hides-failures": {"tells-failure"},
    "completes-the-unknown": {"unknown-task"},
    "knows-no-timeout": {"timeout"},
    "no-heartbeat": {"heartbeat"},
    "beats-for-one-job": {"heartbeat"},
    "waits-for-ever": {"lost-heartbeat"},
    "waits-for-ever-for-a-claim": {"repeats-claim"},
    "gives-up-heartbeat": {"lost-heartbeat"},
    "ignores-cancel": {"hears-cancel"},
    "ignores-loss": {"hears-loss"},
    "stops-all-on-a-loss": {"hears-loss"},
    "keeps-the-slot-of-the-lost": {"hears-loss"},
    "completes-after-loss": {"hears-loss"},
    "dies-on-noscript": {"reloads-scripts"},
    "gives-up-complete": {"repeats-ending"},
    "dies-without-server": {"server-away"},
    "dies-when-refused": {"server-away"},
    "drops-endings": {"server-away"},
    "hammers-when-full": {"idle-rate"},
    "hammers-on-errors": {"idle-rate"},
    "polls": {"idle-rate", "wakes"},
    "ignores-wake-ups": {"wakes"},
    "keeps-no-appointment": {"appointment"},
    "writes-keys": {"scripts-only"},
    "ignores-sigterm": {"sigterm"},
    "leaves-a-child": {"sigterm"},
    "forgets-checkpoints": {"keeps-checkpoint"},
    "does-steps-again": {"keeps-steps"},
    "waits-in-its-slot": {"suspends"},
    "enlists-once": {"enlists"},
    "describes-itself-in-words": {"enlists"},
    "takes-over-the-living": {"spares-the-living"},
    "stays-registered": {"leaves"},
    "ignores-drain": {"drains"},
    "knows-no-jitter": {"fires"},
    "fires-the-unreadable": {"leaves-unread"},
    "forgets-the-unreadable": {"leaves-unread"},
    "prints-no-result": {"waits"},
    "waits-for-the-dead": {"waits"},
}
"""The defects of the rule-breaking client, and the rules that each breaks."""

TRIED = one_in(3, [*BREAKS])
"""All defects take a minute."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def settings(new_server):
    return Settings(redis_url=new_server("valkey").url)


@pytest.fixture(scope="module")
def found(settings):
    """The verdicts on each defect in the trial of its rules. Several run at a time, because they mostly wait."""

    async def look(turn, defect, rules):
        shown = set(next(trial.rules for trial in reversed(TRIALS) if rules <= set(trial.rules)))
        async with turn:
            return await examine(["env", f"DEFECT={defect}", *CARELESS], settings, shown)

    async def look_at_all():
        turn = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(look(turn, defect, BREAKS[defect]) for defect in TRIED))

    return dict(zip(TRIED, asyncio.run(look_at_all()), strict=True))


@pytest.mark.parametrize("defect", TRIED)
def test_a_client_with_a_defect_breaks_only_its_rules(found, defect):
    assert {
        verdict.rule.name: verdict.seen for verdict in found[defect] if not verdict.kept
    }.keys() == BREAKS[defect]


def test_the_python_worker_keeps_every_rule(settings, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    verdicts = asyncio.run(
        examine(
            [sys.executable, str(ROOT / "tests" / "support" / "conforming_worker.py")], settings, set(BY_NAME)
        )
    )
    assert {verdict.rule.name: verdict.seen for verdict in verdicts if not verdict.kept} == {}
    assert len(verdicts) == len(BY_NAME)


def test_every_rule_has_a_trial_and_a_client_that_breaks_it():
    assert {name for trial in TRIALS for name in trial.rules} == set(BY_NAME)
    assert {name for rules in BREAKS.values() for name in rules} == set(BY_NAME)


@pytest.mark.parametrize(("n", "seen"), [("0", ""), ("1", "was used again for another claim")])
def test_a_claim_may_be_repeated_with_0_jobs_after_its_reply_to_give_the_jobs_back(n, seen):
    def claim(jobs, at):
        args = ["Vq3xJ0bTnY7wLd2sKf9aRg", "w", "3000", jobs, "first"]
        return Seen(at, "EVALSHA", "claim", args, reply=[b"", 2000, 0], replied_at=at)

    trial = SimpleNamespace(
        seen=lambda verb: [claim("1", 1.0), claim(n, 2.0)], proxy=SimpleNamespace(broken=set())
    )
    assert seen in _claim_ids(trial)
    assert bool(seen) == bool(_claim_ids(trial))


def test_a_missing_client_is_refused(settings):
    with pytest.raises(Invalid, match="no executable program 'no-such-client' on PATH"):
        asyncio.run(examine(["no-such-client"], settings))


def test_a_client_that_ends_at_once_is_reported_with_its_output(settings):
    with pytest.raises(JobsError, match="ended by itself with exit code 1: no luck today"):
        asyncio.run(examine([sys.executable, "-c", "import sys; sys.exit('no luck today')"], settings))


def test_a_client_that_never_claims_is_killed_with_its_children(settings, monkeypatch):
    monkeypatch.setattr(context, "PATIENCE", 1.0)
    mark = uuid.uuid4().hex
    with pytest.raises(JobsError, match="has sent no claim within 1 s; it did not connect to redis://"):
        asyncio.run(examine(["bash", "-c", f"exec -a {mark} sleep 300 & exec -a {mark} sleep 300"], settings))
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes())
        except OSError:
            continue
    assert not any(line.startswith(mark.encode()) for line in lines)


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (
            "has-no-sleep",
            "the worker has no task `sleep`, or refuses its arguments. The client is run as `CMD submit",
        ),
        ("sleeps-no-time", "its task `sleep` ended"),
    ],
)
def test_a_client_without_the_three_tasks_is_refused(settings, defect, words):
    with pytest.raises(JobsError, match=words):
        asyncio.run(examine(["env", f"DEFECT={defect}", *CARELESS], settings, {"sigterm", "heartbeat"}))


def test_a_client_with_other_scripts_is_refused(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(context, "PATIENCE", 3.0)
    (tmp_path / "tests" / "support").mkdir(parents=True)
    shutil.copytree(ROOT / "lua", tmp_path / "lua")
    for path in (tmp_path / "lua").rglob("*.lua"):
        path.write_text(path.read_text() + "-- another version\n")
    (tmp_path / "tests" / "support" / "rule_breaking_worker.py").write_text(
        (ROOT / "tests" / "support" / "rule_breaking_worker.py").read_text()
    )
    with pytest.raises(JobsError, match="not those of this version's lua/"):
        asyncio.run(
            examine(
                [sys.executable, str(tmp_path / "tests" / "support" / "rule_breaking_worker.py")], settings
            )
        )


def test_the_verdict_is_printed_and_sets_the_exit_code(settings, capsys, monkeypatch):
    def run(defect, rule, as_json=False):
        monkeypatch.setenv("DEFECT", defect)
        args = Namespace(
            only=[rule], groups=None, command=CARELESS, json=as_json, redis_url=settings.redis_url
        )
        return conformance(args), capsys.readouterr().out

    code, out = run("", "own-name")
    assert code == 0
    assert out.splitlines()[-1] == "1 of 1 rules kept"
    code, out = run("changes-its-name", "own-name")
    assert code == 1
    assert "seen: one process used" in out
    assert "→ make a name of host" in out
    assert out.splitlines()[-1] == "0 of 1 rules kept: 1 MUST broken"
    code, out = run("changes-its-name", "own-name", as_json=True)
    (row,) = json.loads(out)["rules"]
    assert (code, row["name"], row["level"], row["kept"]) == (1, "own-name", "MUST", False)
    with pytest.raises(Invalid, match="there is no rule 'own-names', did you mean own-name"):
        run("", "own-names")
    args = Namespace(only=None, groups=["notess"], command=CARELESS, json=False, redis_url=None)
    with pytest.raises(Invalid, match="there is no group of rules 'notess', did you mean notes"):
        conformance(args)


def test_optional_groups_are_examined_only_if_they_are_named():
    assert names_of(None, None) == CORE == set(BY_NAME) - set().union(*GROUPS.values())
    assert names_of(None, ["notes", "waiters"]) == CORE | {"keeps-checkpoint", "waits"}
    assert names_of(["wakes"], ["notes"]) == {"wakes", "keeps-checkpoint"}


def test_the_command_tests_a_client_on_an_embedded_server(shell):
    words = ("--only", "durations,tells-failure", "--json", "--", *CARELESS)
    done = shell.run("conformance", *words, SUBLET_REDIS_URL="redis://nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["kept"] for row in json.loads(done.stdout)["rules"]] == [True, True]
    assert shell.run("conformance").stderr.startswith("sublet: CMD is missing; see")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"+OK\r\n", b"OK"),
        (b"-LEASE_LOST gone\r\n", ErrorReply("LEASE_LOST gone")),
        (b"!4\r\nERR!\r\n", ErrorReply("ERR!")),
        (b":7\r\n", 7),
        (b"_\r\n", None),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
        (b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", [b"a", [1]]),
        (b"%1\r\n+a\r\n:1\r\n", [b"a", 1]),
        (b"|1\r\n+ttl\r\n:1\r\n~1\r\n#t\r\n", [b"t"]),
    ],
)
async def test_replies_are_read_frame_by_frame(raw, value):
    reader = asyncio.StreamReader()
    reader.feed_data(raw + b"+next\r\n")
    assert await read_reply(reader) == (raw, value)
    assert await read_reply(reader) == (b"+next\r\n", b"next")


async def test_commands_are_read_as_arrays_and_as_lines():
    reader = asyncio.StreamReader()
    reader.feed_data(b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\r\n\r\nPING now\r\n")
    assert (await read_command(reader))[1] == [b"ECHO", b"\r\n\r\n"]
    assert (await read_command(reader))[1] == [b"PING", b"now"]
