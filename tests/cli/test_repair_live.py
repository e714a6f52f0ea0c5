"""The repair on real servers: after an eviction, under load, with very many jobs, and how long it blocks the
server."""

import random
import re
import threading

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, follow_sync
from sublet.errors import NoNamespace
from sublet.model import Submission
from sublet.operations.consistency import repair
from sublet.operations.consistency.recount import recount
from sublet.operations.operations import Operations
from sublet.protocol import keys, verbs

pytest_plugins = ["tests.support.command_line"]
pytestmark = [pytest.mark.real_server, pytest.mark.timeout(240)]


@pytest.fixture
def own(new_server, backend, shell):
    """A server for one test, and the shell connected to it."""
    shell.env["SUBLET_REDIS_URL"] = new_server(backend).url
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"], decode_responses=True) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.flushall()


@pytest.fixture
def transport(own, shell):
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    transport = SyncTransport(settings)
    transport.run(verbs.init(keys.base(settings.namespace)))
    yield transport
    transport.close()


@pytest.fixture
def base(shell):
    return keys.base(shell.env["SUBLET_NAMESPACE"])


def words_of(command):
    """How many words a command has: the slow log shows the first 31."""
    more = re.search(rb"\.\.\. \((\d+) more arguments\)$", command)
    return len(command.split()) if more is None else 31 + int(more[1])


def ids_of(own, base):
    return {key.partition(":job:")[2] for key in own.scan_iter(match=f"{base}:job:*", count=5000)}


def submit(transport, base, n, payload=b'{"a":1}', size=200):
    """Submit jobs in batches, as clients do: a missing namespace is created again."""
    operations = Operations(transport.settings)
    for _ in range(n // size):
        batch = [operations.submission("add", payload, "default", "") for _ in range(size)]
        for _ in range(2):
            try:
                transport.run(verbs.submit(base, [Submission(*job) for job in batch]))
                break
            except NoNamespace:
                transport.run(verbs.init(base))


def test_after_an_eviction_every_remaining_job_runs(own, transport, base, shell):
    """The server evicts the least recently used keys and is filled: whole queues are gone, and the metadata."""
    own.config_set("maxmemory-policy", "allkeys-lru")
    own.config_set("maxmemory", own.info("memory")["used_memory"] + (1 << 20))
    submit(transport, base, 8000)
    assert own.info("stats")["evicted_keys"] > 1000
    own.delete(keys.queue(base, "default"))  # it is the largest key, and sometimes survives
    own.config_set("maxmemory", 0)
    own.config_set("maxmemory-policy", "noeviction")
    left = ids_of(own, base)
    assert len(left) > 100
    output = shell.json("doctor", "--repair")
    assert (output["ok"], output["left"]) == (True, [])
    assert set(own.zrange(keys.queue(base, "default"), 0, -1)) == left
    assert int(own.hget(keys.backlog(base), "default jobs")) == len(left)
    events = shell.work("--queues", "default", "--quiet")
    assert events[-1]["completed"] == len(left)
    assert shell.json("stats")["states"]["queued"] == 0
    assert shell.json("doctor", "--repair")["repaired"] == []


def test_missing_metadata_is_reported_as_created_again(own, transport, base, shell):
    submit(transport, base, 200)
    own.delete(base, keys.queues(base))
    output = shell.json("doctor", "--repair")
    mended = {each["kind"]: (each["number"], each["found"], each["done"]) for each in output["repaired"]}
    assert output["ok"]
    assert mended["baseless"] == (1, "a partition had no metadata", "made anew")
    assert mended["listed"][:2] == (1, "a job's queue was not in the list of queues")
    assert "lost" not in mended


def test_a_repair_beside_workers_and_submitters_loses_and_repeats_no_job(own, transport, base, shell):
    """Two workers and a producer continue while keys are lost and repairs run. Every job whose hash was
    spared is completed once.
    """
    first, second = shell.start("work", "tasks:app", "--quiet"), shell.start("work", "tasks:app", "--quiet")
    chance, wrong = random.Random(1), []
    done = threading.Event()

    def produce():
        other = SyncTransport(transport.settings)
        try:
            for _ in range(40):
                submit(other, base, 100, size=50)
        except Exception as error:  # noqa: BLE001  # the test reports it
            wrong.append(error)
        finally:
            other.close()
            done.set()

    producer = threading.Thread(target=produce)
    producer.start()
    rounds = 0
    while not done.is_set() or rounds < 5:
        lost = chance.choice([keys.queue(base, "default"), keys.structure(base, "running"), keys.queues(base),
                              keys.structure(base, "completed"), keys.wake(base, "default"), keys.backlog(base)])  # fmt: skip
        own.delete(lost)
        follow_sync(transport.run, repair.repair([base]))
        rounds += 1
        assert rounds < 2000
    producer.join(60)
    assert not wrong
    ids = ids_of(own, base)
    assert len(ids) == 4000
    seen = shell.json("doctor", "--repair")
    assert not [each for each in seen["left"] if each["kind"] != "busy"]
    limit = 0
    while own.zcard(keys.structure(base, "completed")) < 4000:
        transport.run(verbs.reap(base, limit=100, by="tick"))
        follow_sync(transport.run, repair.repair([base]))
        limit += 1
        assert limit < 3000, own.zcard(keys.structure(base, "completed"))
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    with own.pipeline(transaction=False) as pipe:
        for job_id in sorted(ids):
            pipe.hmget(keys.job(base, job_id), "state", "attempt")
        attempts = [int(attempt) for state, attempt in pipe.execute() if state == "completed"]
    assert len(attempts) == 4000
    assert attempts.count(1) == 4000, "a running job was given to another worker while its own was alive"
    assert follow_sync(transport.run, recount(base)).busy is False
    assert own.hgetall(keys.backlog(base)) == {}


def test_twenty_thousand_jobs_are_repaired_in_short_steps(own, transport, base, capsys):
    submit(transport, base, 20_000)
    own.delete(keys.queue(base, "default"), keys.backlog(base), keys.queues(base))
    own.config_set("slowlog-log-slower-than", 100)
    own.config_set("slowlog-max-len", 50_000)
    own.slowlog_reset()
    seen, mended = follow_sync(transport.run, repair.repair([base]))
    found = follow_sync(transport.run, recount(base))
    assert (seen.faults, len(mended)) == ([], 20_000)
    assert (found.jobs, found.busy, [queue for queue, _ in found.found]) == (20_000, False, ["default"])
    own.config_set("slowlog-log-slower-than", 10_000)
    calls = [entry for entry in own.slowlog_get(50_000) if entry["command"].startswith(b"EVALSHA")]
    took = sorted(entry["duration"] for entry in calls)
    own.config_set("slowlog-max-len", 128)
    own.slowlog_reset()
    with capsys.disabled():
        print(
            f"\n{len(took):,} calls held it for, µs: half {took[len(took) // 2]}, 99 % {took[-len(took) // 100]}, {took[-3:]}"
        )
    assert len(took) > 800
    # Not how long they took: on a busy machine most of that is spent by other processes
    sizes = {
        words_of(entry["command"])
        for entry in calls
        if entry["command"].split()[4:5] in ([b"look"], [b"mend"])
    }
    assert max(sizes) <= 5 + 2 * 25, "a call checks 25 items"
    ordered = own.zrange(keys.queue(base, "default"), 0, -1)
    with own.pipeline(transaction=False) as pipe:
        for job_id in ordered:
            pipe.hget(keys.job(base, job_id), "spec")
        moments = [int(spec.split(" ")[2].split("\n")[0]) for spec in pipe.execute()]
    assert moments == sorted(moments)
