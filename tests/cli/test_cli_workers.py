"""`workers`: the registered workers, as text and as JSON, and `workers drain`."""

import json
import re
import signal
import time

import pytest
import redis

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.model import Card
from sublet.protocol import keys
from sublet.protocol.verbs import claim, enlist
from tests.cli.test_cli import on_a_terminal

pytest_plugins = ["tests.support.command_line"]

DEEP = json.loads("[" * 400 + "]" * 400)


@pytest.fixture
def register(shell):
    """Register a worker of any language, with its last heartbeat `ago` seconds in the past."""
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    base = keys.base(settings.namespace)

    def put(name, about=None, ago=0.0):
        report = about if isinstance(about, bytes) else json.dumps(about or {}).encode()
        client.store.follow(plan(enlist(base, Card(name, "life-1", "", report))))
        if ago:
            raw.zincrby(keys.workers(base), -1000 * ago, name)

    with SyncClient(settings) as client, redis.Redis.from_url(settings.redis_url) as raw:
        yield put


def plan(call):
    return (yield call)


def until(look):
    """Return the value once it is present."""
    end = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < end
    return found


def events_until(worker, event):
    """The events of a worker, up to one of a kind."""
    for line in worker.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(worker.stderr.read())


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_is_shown_while_it_is_registered(shell):
    assert (
        shell.ok("workers", said=shell.none_yet)
        == "no workers: none is registered; sublet work MODULE:APP starts one"
    )
    assert shell.json("workers") == []
    job_id = shell.ok("submit", "forever")
    worker = shell.start("work", "tasks:app", "--name", "w1", "--slots", "12", "--processes", "3")
    try:
        events_until(worker, "started")
        (found,) = shell.json("workers")
        assert (found["name"], found["leases"], found["jobs"], found["draining"]) == (
            "w1",
            1,
            [job_id],
            False,
        )
        assert (found["about"]["pid"], found["about"]["slots"], found["about"]["processes"]) == (
            worker.pid,
            12,
            3,
        )
        heads, line = shell.ok("workers").splitlines()
        assert heads.split()[:5] == ["NAME", "HOST", "PID", "PLATFORM", "SLOTS"]
        assert re.match(
            rf"w1 +\S+ +{worker.pid} +\S.+ +12 \+ 3 proc\. +1 +0 +.+ ago +default,mail +…{job_id[-11:]}$",
            line,
        )
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        assert worker.wait(20) == 0
    assert shell.json("workers") == []


def test_the_time_of_a_workers_last_job_is_shown(shell, register):
    register("idle", {"last_job": 7200}, ago=3600)
    register("new")
    heads, *lines = shell.ok("workers").splitlines()
    at = slice(heads.index("LAST JOB"), heads.index("LAST SEEN"))
    assert {line.split()[0]: line[at].strip() for line in lines} == {"idle": "3 h ago", "new": ""}
    found = {worker["name"]: worker["last_job_at"] for worker in shell.json("workers")}
    assert (bool(found["idle"]), found["new"]) == (True, None)


def test_the_queues_of_a_worker_are_shown(shell, register):
    register("few", {"queues": ["mail", "images"], "queue_count": 2})
    register("many", {"queues": [f"q{n}" for n in range(9)], "queue_count": 1200})
    register("none")
    heads, *lines = shell.ok("workers").splitlines()
    at = slice(heads.index("QUEUES"), heads.index("JOBS"))
    shown = {line.split()[0]: line[at].strip() for line in lines}
    assert shown == {"few": "mail,images", "many": "q0,q1,q2 and 1,197 more", "none": ""}


def test_a_silent_worker_is_marked(shell, register):
    register("fresh")
    register("late", ago=30)
    register("gone", ago=600)
    shown = on_a_terminal(shell, "workers").splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["fresh", "late", "gone"]
    assert "\x1b[33m" not in shown[1]
    assert re.search(r"\x1b\[33msilent for [34]\d s\x1b\[0m", shown[2])
    assert "\x1b[33msilent for 10 min\x1b[0m" in shown[3]


def test_a_worker_in_another_language_may_report_anything(shell, register):
    reports = [["a list"], "words", 7, {"host": {"a": [1]}, "pid": -1, "platform": None, "slots": "many", "completed": [1]},
            {"host": "a\x1b[31m\nb" * 20, "pid": 10**3000, "slots": True, "processes": 1e308, "completed": float("nan")},
            {"host": DEEP, "x": "\ud800"}, b"\xff{", b"[" * 2000 + b"]" * 2000]  # fmt: skip
    for n, about in enumerate(reports):
        register(f"odd-{n}", about)
    lines = shell.ok("workers").splitlines()
    assert len(lines) == 1 + len(reports)
    assert "\x1b" not in "".join(lines)
    found = {worker["name"]: worker for worker in shell.json("workers")}
    assert shell.work()[-1]["event"] == "summary", "other workers start concurrently"
    assert (found["odd-0"]["about"], found["odd-4"]["about"]["completed"]) == ({}, None), (
        "NaN is not valid JSON"
    )


def test_a_narrow_terminal_omits_values_that_the_name_contains(shell, register):
    about = {
        "host": "ip-10-0-3-17",
        "pid": 48211,
        "platform": "kubernetes",
        "slots": 100,
        "processes": 8,
        "completed": 1234567,
    }
    register("ip-10-0-3-17.eu-central-1.compute.internal-48211-a3f9c1", about, ago=700)
    narrow = on_a_terminal(shell, "workers", COLUMNS="80", NO_COLOR="1").splitlines()
    assert narrow[1].startswith("…ternal-48211-a3f9c1  100 + 8 proc.")
    wide = on_a_terminal(shell, "workers", COLUMNS="160", NO_COLOR="1").splitlines()
    assert re.search(r"internal-48211-a3f9c1  ip-10-0-3-17  48211  100 \+ 8 proc\. ", wide[1])
    assert (max(map(len, narrow)) <= 80, max(map(len, wide)) <= 160) == (True, True)
    assert (
        shell.ok("workers")
        .splitlines()[1]
        .startswith("ip-10-0-3-17.eu-central-1.compute.internal-48211-a3f9c1 ")
    )


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drained_worker_finishes_its_jobs_and_exits(shell):
    worker = shell.start("work", "tasks:app", "--name", "web-a3f9c1", "--lease", "1500ms")
    events_until(worker, "ready")
    until(lambda: shell.json("workers"))
    assert re.search(
        r"web-a3f9c1 +asked: it holds nothing, claims nothing more and stops",
        shell.ok("workers", "drain", "a3f9c1"),
    )
    out, err = worker.communicate(timeout=30)
    output = [json.loads(line)["event"] for line in out.splitlines()]
    assert (worker.returncode, err, output) == (0, "", ["draining", "summary"])
    assert shell.json("workers") == []


def test_a_drained_worker_is_marked_and_a_silent_one_may_be_gone(shell, register):
    register("w1")
    register("w2", ago=120)
    assert shell.json("workers", "drain", "w1", "w2") == [
        {"worker": name, "answer": "drain"} for name in ("w1", "w2")
    ]
    assert [worker["draining"] for worker in shell.json("workers")] == [True, True]
    assert shell.ok("workers").splitlines()[1].endswith("  draining")
    assert (
        shell.ok("workers", "drain", "w2").splitlines()[1]
        == "w2      asked, but it may have crashed: silent for 2 min"
    )


def test_a_unique_part_of_a_name_is_enough(shell, register):
    for name in ("web", "web-1-aa", "mail-1-ab", "mail-2-bb"):
        register(name)
    (answer,) = shell.json("workers", "drain", "web")
    assert answer["worker"] == "web", "a whole name comes before parts of names"
    answers = shell.json("workers", "drain", "web-", "mail-1", "bb", "mail-2-bb")
    assert [answer["worker"] for answer in answers] == ["web-1-aa", "mail-1-ab", "mail-2-bb"]
    assert shell.no(2, "workers", "drain", "mail").startswith("mail matches 2 workers: mail-")


def test_a_worker_beyond_the_thousand_that_were_seen_last_is_drained(shell, register):
    """By its name, and by the end of it; its leases are counted."""
    register("old-1", ago=60)
    register("old-2", ago=60)
    shell.ok("submit", "add")
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    base = keys.base(settings.namespace)
    with SyncClient(settings) as client:
        client.store.transport.run(
            claim(base, claim_id="c" * 22, worker="old-1", lease=60, n=1, queues=["default"])
        )
    with redis.Redis.from_url(settings.redis_url) as raw:
        about, now = raw.hgetall(keys.worker(base, "old-1")), raw.zscore(keys.workers(base), "old-1") + 60_000
        with raw.pipeline(transaction=False) as pipe:
            for n in range(1000):
                pipe.hset(keys.worker(base, f"w-{n}"), mapping=about)
                pipe.zadd(keys.workers(base), {f"w-{n}": now})
            pipe.execute()
    assert "old-1" not in {worker["name"] for worker in shell.json("workers")}
    shown = shell.ok("workers", "drain", "old-1", "d-2").splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["old-1", "old-2"]
    assert shell.json("list")["jobs"][0]["worker"] == "old-1"
    answers = shell.json("workers", "drain", "old-1", "d-2")
    assert answers == [{"worker": name, "answer": "drain"} for name in ("old-1", "old-2")]


def test_a_missing_worker_is_reported_and_the_others_are_drained(shell, register):
    register("worker-1")
    done = shell.run("workers", "drain", "wroker-1", "worker-1", "x")
    assert done.returncode == 1
    assert "wroker-1  refused: no worker wroker-1, did you mean worker-1?\n" in done.stdout
    assert "worker-1  asked: " in done.stdout
    assert "x         refused: no worker x; there are: worker-1\n" in done.stdout
    (answer,) = json.loads(shell.run("workers", "drain", "x", "--json").stdout)
    assert (answer["error"], answer["message"]) == ("NOT_FOUND", "no worker x; there are: worker-1")


def test_no_worker_is_drained_if_a_name_is_ambiguous(shell, register):
    for name in ("one", "two-1", "two-2"):
        register(name)
    shell.no(2, "workers", "drain", "one", "two")
    shell.no(2, "workers", "drain", "one", "a/b")
    assert not any(worker["draining"] for worker in shell.json("workers"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("drane web", "workers has no verb 'drane', did you mean drain? See sublet workers --help"),
        ("drain", "NAME is missing; see sublet workers drain --help"),
        ("drain a/b", "worker 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ("drain w --now", "there is no option --now; see sublet workers drain --help"),
    ],
)
def test_a_mistake_is_one_line(shell, words, line):
    assert shell.no(2, "workers", *words.split()) == line


def test_draining_creates_no_namespace(shell):
    done = shell.run("workers", "drain", "nobody")
    assert (done.returncode, done.stdout.splitlines()[1]) == (
        1,
        "nobody  refused: no worker nobody: none is registered",
    )
    assert "does not exist yet" in shell.run("doctor").stdout
