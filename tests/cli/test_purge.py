"""`purge` cancels the waiting jobs of a queue, and no others."""

import os
import pty
import re
import signal
import subprocess
import threading

import pytest
import redis

from sublet import Options
from sublet.cli.jobs.purge import cancel_waiting
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.model import State

pytest_plugins = ["tests.support.command_line"]


@pytest.fixture
def settings(shell):
    return Settings.read(shell.env["SUBLET_REDIS_URL"], shell.env["SUBLET_NAMESPACE"])


def fill(settings, queue, number):
    with SyncClient(settings) as client:
        make = client.store.operations.submission
        client.submit_all([make("add", b'{"a":1}', queue, "") for _ in range(number)])


def states(shell):
    return {state: number for state, number in shell.json("stats")["states"].items() if number}


def test_waiting_jobs_are_cancelled_and_others_stay(shell, settings):
    fill(settings, "default", 250)
    fill(settings, "mail", 3)
    shell.ok("submit", "add", "--delay", "1h")
    stay = "1 stay, which are scheduled \\(--scheduled cancels them too\\) or running\n"
    shown = shell.ok("purge", "default", "--yes", said=stay)
    assert shown == "default: cancelled 250 of 250 waiting jobs"
    assert states(shell) == {"scheduled": 1, "queued": 3, "cancelled": 250}
    answer = {"queue": "default", "waiting": 1, "cancelled": 1, "taken": 0}
    assert shell.json("purge", "default", "--scheduled", "--yes") == answer
    assert shell.ok("purge", "default") == "default: cancelled 0 of 0 waiting jobs"
    assert states(shell) == {"queued": 3, "cancelled": 251}


def test_scheduled_jobs_of_other_queues_stay(shell):
    for queue in ("mail", "images", "mail", "images"):
        shell.ok("submit", "add", "--delay", "1h", "--queue", queue)
    shell.ok("purge", "mail", "--scheduled", "--yes")
    assert [job["queue"] for job in shell.json("list", "--state", "scheduled")["jobs"]] == ["images"] * 2


def test_without_a_terminal_it_asks_for_the_flag(shell, settings):
    fill(settings, "default", 2)
    shell.ok("submit", "add", "--delay", "1h")
    assert shell.no(1, "purge", "default", "--scheduled") == (
        "2 queued and 1 scheduled jobs of default will be cancelled; nothing was done: there is no terminal to confirm on: "
        "sublet purge default --scheduled --yes cancels them"
    )
    assert states(shell) == {"scheduled": 1, "queued": 2}


@pytest.mark.parametrize(("answer", "left"), [("default", 0), ("y", 2)])
def test_on_a_terminal_it_asks_for_the_name(shell, settings, answer, left):
    fill(settings, "default", 2)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*shell.command, "purge", "default"],
        cwd=shell.folder, env=shell.env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    os.write(ours, f"{answer}\n".encode())
    _, asked = process.communicate(timeout=30)
    assert asked.startswith(
        "2 queued jobs of default will be cancelled. To confirm, type the queue's name (default): "
    )
    assert (process.returncode, states(shell).get("queued", 0)) == (int(left > 0), left)
    assert left == 0 or asked.endswith("sublet: the typed name is not default: nothing was cancelled\n")
    os.close(ours), os.close(theirs)


def test_a_lost_job_at_the_head_of_a_queue_does_not_keep_the_others(shell, settings):
    fill(settings, "default", 150)
    with redis.Redis.from_url(settings.redis_url) as server:
        server.zadd(f"{{{settings.namespace}:0}}:queue:default", {"0-lost": 0})
    assert shell.ok("purge", "default", "--yes") == "default: cancelled 150 of 151 waiting jobs"


def test_an_unknown_queue_is_named(shell):
    shell.ok("submit", "add")
    assert shell.no(1, "purge", "defualt", "--yes") == "there is no queue defualt, did you mean default?"
    assert (
        shell.no(2, "purge", "*", "--yes")
        == "queue '*': this takes no pattern: name each queue; `sublet queues` lists them"
    )


async def test_a_job_that_a_worker_has_claimed_since_is_not_cancelled(shell, settings):
    """Before its state was read, and after."""
    async with Client(settings) as client:
        handles = [await client.submit("add", {"a": 1}) for _ in range(2)]
        waiting = await client.get(handles[0].id)
        await client.store.claim(worker="w", queues=["default"], n=2, lease=30)
        running = await client.get(handles[1].id)
        assert [await cancel_waiting(client, job, State.QUEUED) for job in (waiting, running)] == [
            "taken"
        ] * 2
        assert [(await client.get(one.id)).cancel_requested_at for one in handles] == [None, None]


@pytest.mark.parametrize(
    "words", [("purge", "default", "--yes"), ("cancel", "--queue", "default", "--yes")], ids=" ".join
)
def test_a_producer_may_submit_meanwhile(shell, settings, words):
    """What came after the count stays, whatever its priority."""
    fill(settings, "default", 1000)
    stop = threading.Event()

    def produce():
        with SyncClient(settings) as client:
            while not stop.is_set():
                for priority in (0, 5):
                    client.submit("add", {"a": 1}, Options(priority=priority))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        while states(shell)["queued"] == 1000:
            pass
        shell.ok(*words)
    finally:
        stop.set()
        producer.join()
    with SyncClient(settings) as client:
        jobs = client.list_jobs(limit=1000)
        found = [*jobs.jobs]
        while jobs.cursor:
            jobs = client.list_jobs(limit=1000, cursor=jobs.cursor)
            found += jobs.jobs
    cancelled = [job.submitted_at for job in found if job.state is State.CANCELLED]
    queued = [job.submitted_at for job in found if job.state is State.QUEUED]
    assert len(cancelled) > 1000
    assert max(cancelled) <= min(queued)


def test_workers_may_run_meanwhile(shell, settings):
    """Each job is either done or cancelled."""
    fill(settings, "default", 2000)
    worker = shell.start("work", "tasks:app", "--drain", "--slots", "20", "--quiet")
    try:
        while not states(shell).get("completed"):
            pass
        shown = shell.ok("purge", "default", "--yes", said="(\\d+ stay, which are .+\n)?")
        assert re.match(r"default: cancelled [\d,]+ of [\d,]+ waiting jobs", shown)
        assert worker.wait(30) == 0
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    found = states(shell)
    assert found["cancelled"] > 0
    assert found == {"completed": 2000 - found["cancelled"], "cancelled": found["cancelled"]}


# patterns and keys


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("purge",)])
def test_a_pattern_is_not_taken_where_each_queue_is_named(shell, words):
    line = shell.no(2, *words, "tenant-*")
    assert line == "queue 'tenant-*': this takes no pattern: name each queue; `sublet queues` lists them"


def test_a_list_takes_a_pattern(shell):
    ids = {queue: shell.ok("submit", "add", "--queue", queue) for queue in ("tenant-a", "tenant-b", "mail")}
    page = shell.json("list", "--queue", "tenant-*")
    assert {job["id"] for job in page["jobs"]} == {ids["tenant-a"], ids["tenant-b"]}
    first = shell.json("list", "--queue", "tenant-*", "--limit", "1")
    rest = shell.json("list", "--queue", "tenant-*", "--cursor", first["cursor"])
    assert {job["id"] for job in (*first["jobs"], *rest["jobs"])} == {ids["tenant-a"], ids["tenant-b"]}
    assert shell.ok("list", "--queue", "tenat-*").startswith("no jobs: there is no queue tenat-*")


@pytest.mark.parametrize("key", ["paid-7", "a key of any text, ä"])
def test_the_job_that_holds_a_key_is_listed(shell, key):
    job_id = shell.ok("submit", "add", "--key", key)
    shell.ok("submit", "add", "--key", "another")
    (job,) = shell.json("list", "--key", key)["jobs"]
    assert job["id"] == job_id
    assert shell.json("list", "--key", key, "--state", "dead")["jobs"] == []
    assert shell.json("list", "--key", key, "--queue", "mail")["jobs"] == []
    shell.ok("cancel", job_id)
    assert shell.ok("list", "--key", key) == (
        "no jobs: no such job holds this key in queue default; a key belongs to a queue: --queue names another"
    )
    assert shell.no(2, "list", "--key", key, "--cursor", "x").startswith("--key and --cursor: ")
