"""`pools` and `scale`: the queues of a pool, its computed size, and `work --pool`."""

import json
import re
import signal
import sys

import pytest
import redis

from sublet.cli import main
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.model import Card
from sublet.operations import pools
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.protocol.verbs import enlist

pytest_plugins = ["tests.support.command_line"]


@pytest.fixture
def client(shell):
    with SyncClient(
        Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    ) as client:
        yield client


@pytest.fixture
def run(client):
    """Run one command."""
    return lambda call: client.store.follow(only(call))


def only(call):
    return (yield call)


SET = ("pools", "set", "images", "--queues", "images,thumbs")
HTTP = ("--invoker", "http", "--target", "https://example.com/work?code=secret")


def test_a_pool_is_set_shown_changed_and_removed(shell):
    assert shell.ok("pools", said=shell.none_yet).startswith(
        "no pools: workers are not summoned here; sublet pools set NAME "
    )
    assert shell.json("pools") == []
    assert shell.ok(*SET, "--min", "1", "--max", "20", "--wait", "2s", "--slots", "4") == (
        "images: created: queues images,thumbs, invoker none, 1 to 20 workers of 4 slots, wait 2.0 s, linger 5.0 s, arrive 15 s"
    )
    assert shell.json("pools", "set", "images", "--max", "5") == {"pool": "images", "answer": "changed"}
    assert shell.json("pools", "set", "images", "--max", "5") == {"pool": "images", "answer": "unchanged"}
    (found,) = shell.json("pools")
    assert (found["queues"], found["min"], found["max"], found["wait"]) == (["images", "thumbs"], 1, 5, 2.0)
    assert (found["revision"], found["sum"]["wanted"], found["sum"]["owed"]) == (2, 1, 1)
    heads, line = shell.ok("pools").splitlines()
    assert heads.split() == [
        "POOL",
        "QUEUES",
        "INVOKER",
        "TARGET",
        "READY",
        "HERE",
        "WANTED",
        "SUMMONED",
        "LAST",
        "FAILURE",
    ]
    assert re.match(r"images  images,thumbs  none +0 +0 +1 +0$", line)
    removed = shell.ok("pools", "remove", "images").splitlines()[1]
    assert (
        removed == "images  removed: no more workers are summoned; those that run finish their jobs and stop"
    )
    assert shell.json("pools") == []


def test_possible_secrets_in_a_target_are_not_shown(shell):
    done = shell.run(*SET, *HTTP)
    assert (done.returncode, "secret" in done.stdout + done.stderr) == (0, False)
    assert "invoker http https://example.com/work?…, 0 to 10 workers" in done.stdout
    assert "SUBLET_SIGNING_SECRETS must be set where jobs are submitted" in done.stderr
    for words in (("pools",), ("pools", "--json"), ("scale",), ("scale", "--json")):
        assert "secret" not in shell.ok(*words)
    assert shell.ok("pools", "set", "images", "--max", "3").count("?…") == 1, "the target is kept"
    (found,) = shell.json("pools")
    assert found["target"] == "https://example.com/work?…"


def test_a_narrow_terminal_shows_queues_and_waiting_jobs(shell, monkeypatch, capsys):
    """The long address is omitted first; a value as long as the line is cut."""
    shell.run(*SET, *HTTP)
    shell.run("pools", "set", "many", "--queues", ",".join(f"queue-{i}" for i in range(32)))
    for name in ("SUBLET_REDIS_URL", "SUBLET_NAMESPACE"):
        monkeypatch.setenv(name, shell.env[name])
    for name, value in (("COLUMNS", "80"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main.run(["pools"]) == 0
    heads, images, many = capsys.readouterr().out.splitlines()
    assert heads.split()[:2] == ["POOL", "QUEUES"]
    assert ("READY" in heads, "TARGET" in heads, max(map(len, (heads, images, many))) <= 80) == (
        True,
        False,
        True,
    )
    assert "images,thumbs" in images
    assert "queue-0,queue-1,queue-2…" in many.replace(",…", "…").replace("queue-2,…", "queue-2…")


def test_a_change_of_the_invoker_removes_the_target(shell):
    shell.run(*SET, *HTTP)
    assert "invoker none, " in shell.ok("pools", "set", "images", "--invoker", "none")


def test_the_last_failure_is_shown_with_its_age(shell, run, client):
    shell.ok(*SET)
    run(
        pools.complain(
            client.store.operations.bases[0],
            "images",
            summons="s" * 22,
            n=3,
            reason="it answered\x1b[31m 500",
        )
    )
    assert re.search(r"\d+ (ms|s) ago \(3 in all\): it answered \[31m 500$", shell.ok("pools"))
    (found,) = shell.json("pools")
    assert (found["failures"], found["failure"]) == (3, "it answered\x1b[31m 500")


def test_the_computation_of_a_size_is_shown_as_text(shell, client, run):
    shell.ok(*SET, "--wait", "2500ms", "--slots", "4")
    for _ in range(3):
        shell.ok("submit", "add", '{"a": 1}', "--queue", "images")
    run(enlist(client.store.operations.bases[0], Card("w", "1", "", b"{}", "images")))
    assert shell.ok("scale", "images").splitlines() == [
        "images: queues images, thumbs; invoker none",
        "  ready: 3; running: 0; arrive per second: 0; mean run time: 1.0 s; target wait: 2.5 s; slots: 4",
        "  jobs at a time: 0/s x 1.0 s + 3 x 1.0 s / 2.5 s = 1.2",
        "  workers wanted: 1.2 / 4 slots: 1 (from 0 to 10); here: 1; summoned: 0; owed: 0",
    ]
    lines = shell.ok("pools", "show", "images").splitlines()
    assert lines[0].startswith(
        "images: queues images,thumbs, invoker none, 0 to 10 workers of 4 slots, wait 2.5 s"
    )
    assert lines[1:4] == shell.ok("scale", "images").splitlines()[1:]
    assert lines[4] == "  summoned in all: 0; registered: 0; not registered in time: 0; not invoked: 0"
    (found,) = shell.json("scale")
    assert found["sum"]["need"] == 1.2
    shell.ok("pools", "set", "images", "--wait", "1ms")
    assert "= 3e+03, but no more than there are: 3" in shell.ok("scale")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("pools make x", "pools has no verb 'make'; use list, show, set, remove; see sublet pools --help"),
        ("pools set", "NAME is missing; see sublet pools set --help"),
        ("pools set a b --queues q", "unexpected argument 'b'; see sublet pools set --help"),
        ("pools list a", "unexpected argument 'a'; see sublet pools list --help"),
        ("pools show a b", "unexpected argument 'b'; see sublet pools show --help"),
        ("pools set a --queues q --invoker http", "--target is missing: give the URL of a function"),
        (
            "pools set a --queues q --invoker lambda",
            "--target is missing: give a function's name, or its ARN",
        ),
        (
            "pools set a",
            "--queues is missing: pool a is new, or its settings cannot be read: name its queues",
        ),
        (
            "pools set a/b --queues q",
            "pool 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone",
        ),
        ("pools set a --queues q,q", "queues: give 1 to 32 names, each once"),
        ("pools set a --queues q --max 1001", "min=0 max=1001: use 0 ≤ min ≤ max ≤ 1,000"),
        ("pools set a --queues q --invoker ftp", "invoker 'ftp': use one of process, http, lambda, none"),
        ("pools set a --queues q --wait 0s", "--wait: '0s': use a duration of 1ms or more"),
        ("pools --max 3", "--max is an option of sublet pools set"),
        ("work tasks:app --summons x", "--summons needs --pool: name the pool"),
        (
            "work tasks:app --linger 5s",
            "--linger needs --drain",
        ),
        (
            "work tasks:app --pool a/b",
            "name 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone",
        ),
    ],
)
def test_a_mistake_is_one_line(shell, words, line):
    assert shell.no(2, *words.split()).removeprefix("argument ").startswith(line.removeprefix("argument "))


def test_a_private_address_is_refused_as_a_target(shell):
    assert "is not public" in shell.no(2, *SET, "--invoker", "http", "--target", "https://10.0.0.7/work")


@pytest.mark.parametrize("stored", ["7 queues=+ invoker=none\n", "7", "nonsense", ""])
def test_a_pool_with_invalid_settings_is_set_again_or_removed(shell, run, client, stored):
    def spoil():
        run(Call((("HSET", keys.pools(client.store.operations.bases[0]), "images", stored),), int))

    shell.ok(*SET)
    spoil()
    assert shell.ok(*SET).partition("d: ")[2].startswith("queues images,thumbs"), "created or changed"
    assert [pool["name"] for pool in shell.json("pools")] == ["images"]
    spoil()
    assert "images  removed" in shell.ok("pools", "remove", "images")
    assert shell.json("pools") == []


def test_a_missing_pool_is_reported(shell):
    shell.ok(*SET)
    for words in (("scale",), ("pools", "show")):
        assert shell.no(1, *words, "imags") == "no pool imags, did you mean images?"
        assert shell.no(1, *words, "nope") == "no pool nope; sublet pools lists them"
    assert "refused: no pool nope; sublet pools lists them" in shell.run("pools", "remove", "nope").stdout
    done = shell.run("pools", "remove", "imags", "images")
    assert done.returncode == 1
    assert "imags   refused: no pool imags, did you mean images?\n" in done.stdout
    assert "images  removed" in done.stdout
    assert shell.ok("scale").startswith("no pools: ")


def test_a_worker_of_a_pool_counts_while_it_is_registered(shell):
    shell.ok(*SET)
    worker = shell.start("work", "tasks:app", "--pool", "images", "--queues", "images,thumbs")
    try:
        assert json.loads(worker.stdout.readline())["event"] == "ready"
        while not shell.json("pools")[0]["sum"]["crew"]:
            assert worker.poll() is None
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert shell.json("pools")[0]["sum"]["crew"] == 0


def test_a_worker_that_starts_too_late_exits_with_a_message(shell):
    shell.ok("submit", "add", '{"a": 1}')
    shell.ok("pools", "set", "images", "--queues", "default")
    events = shell.work("--pool", "images", "--summons", "s" * 22 + ".1", "--linger", "5s")
    assert [event["event"] for event in events] == ["ready", "unwanted", "draining", "summary"]
    assert events[-1]["completed"] == 0


def test_submit_summons_workers_if_the_environment_enables_it(shell, client):
    """With the invokers of the environment: none is usable here, and the submit succeeds."""
    shell.ok("pools", "set", "images", "--queues", "default")
    done = shell.run("submit", "add", '{"a": 1}', SUBLET_SUMMON="1")
    assert (done.returncode, done.stderr) == (0, "")
    odd = shell.run("submit", "add", '{"a": 1}', SUBLET_SUMMON="1", SUBLET_SIGNING_SECRETS="x")
    assert (odd.returncode, "cannot summon workers: " in odd.stderr) == (0, True)
    assert len(client.store.follow_existing(client.store.operations.list_jobs()).jobs) == 2


def test_reading_creates_no_namespace(shell):
    assert shell.json("pools") == []
    assert shell.json("scale") == []
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"]) as raw:
        assert not raw.exists(keys.base(shell.env["SUBLET_NAMESPACE"]))
