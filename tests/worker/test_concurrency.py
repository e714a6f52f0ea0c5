"""Several processes and threads on one queue never hold one job at once, and each job is completed once."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

from sublet.connection.transport import SyncTransport
from sublet.model import Submission
from sublet.protocol import verbs
from tests.support.paths import ROOT

pytestmark = pytest.mark.real_server
JOBS, PROCESSES, THREADS = 3000, 3, 3

WORKER = """
import json, random, sys, threading, uuid
from sublet.protocol import keys, verbs
from sublet.connection.settings import Settings, connect_sync
from sublet.model import Beat, Completion, Failure, Release
from sublet.connection.transport import SyncTransport

url, namespace, process, threads, wanted = sys.argv[1:]
settings, base = Settings(redis_url=url, namespace=namespace), keys.base(namespace)
ledger, failures = [], []

def hold(run, client, leases):
    for lease in leases:
        assert client.set(f"{base}:hold:{lease.id}", lease.token, nx=True), f"{lease.id} is held by another"
    beats = run(verbs.heartbeat(base, [Beat(lease) for lease in leases], lease=60))
    assert all(isinstance(answer, int) for answer in beats), beats
    for lease in leases:
        assert client.getdel(f"{base}:hold:{lease.id}") == lease.token.encode(), f"{lease.id} is held by another"

def settle(run, chance, leases):
    lots = {"complete": [], "fail": [], "release": []}
    for lease in leases:
        luck = chance.random()
        if luck < 0.05:
            lots["fail"].append(Failure(lease, "Unlucky"))
        elif luck < 0.1:
            lots["release"].append(Release(lease))
        else:
            lots["complete"].append(Completion(lease, lease.id.encode()))
    for verb, endings in lots.items():
        call = getattr(verbs, verb)(base, endings)
        answers = run(call)
        if chance.random() < 0.2 and verb == "complete":
            assert run(call) == answers, "the same request, another answer"
        for ending, answer in zip(endings, answers, strict=True):
            ledger.append((ending.lease.id, ending.lease.attempt, ending.lease.token, answer.split(" ")[0]))

def work(seed):
    chance = random.Random(seed)
    transport = SyncTransport(settings)
    client = connect_sync(settings)
    queues = ["high", "low"] if seed % 2 else ["low", "high"]
    while client.zcard(keys.structure(base, "completed")) < int(wanted):
        how = {"claim_id": uuid.uuid4().hex, "worker": f"w{process}-{seed}", "lease": 60, "queues": queues}
        call = verbs.claim(base, n=chance.randint(1, 20), **how)
        leases = transport.run(call).leases
        if chance.random() < 0.2 and leases:
            assert transport.run(call).leases == leases, "the same claim, other leases"
        hold(transport.run, client, leases)
        settle(transport.run, chance, leases)
    transport.close()

def guard(seed):
    try:
        work(seed)
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=guard, args=(int(process) * 10 + i,)) for i in range(int(threads))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"ledger": ledger, "failures": failures}))
"""


def submit_all(place, base, failures):
    """Two threads submit the same jobs at the same time."""
    jobs = [
        Submission(f"j{i}", "high" if i % 3 else "low", "t", "tries=1000 backoff=1:1:1", b"{}")
        for i in range(JOBS)
    ]

    def submit(batches):
        transport = SyncTransport(place.settings)
        try:
            made.append(sum(s.created for batch in batches for s in transport.run(verbs.submit(base, batch))))
        except Exception as error:  # noqa: BLE001  the main thread raises it
            failures.append(repr(error))
        transport.close()

    made: list[int] = []
    batches = [jobs[i : i + 150] for i in range(0, JOBS, 150)]
    threads = [threading.Thread(target=submit, args=(each,)) for each in (batches, batches[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made)


@pytest.fixture
def processes(place, desk):
    """The workers; none outlives the test."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WORKER, place.settings.redis_url, place.settings.namespace]
    numbers = [str(THREADS), str(JOBS)]
    started = [
        subprocess.Popen([*command, str(i), *numbers], stdout=subprocess.PIPE, env=env)
        for i in range(PROCESSES)
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


async def test_no_job_is_leased_twice_and_each_is_completed_once(desk, place, processes):
    failures: list[str] = []
    assert submit_all(place, desk.base, failures) == JOBS
    reports = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert failures + [failure for report in reports for failure in report["failures"]] == []

    ledger = [tuple(entry) for report in reports for entry in report["ledger"]]
    completed = Counter(job_id for job_id, _, _, answer in ledger if answer == "completed")
    assert completed == Counter(f"j{i}" for i in range(JOBS))
    assert {answer for *_, answer in ledger} == {"completed", "scheduled", "queued"}
    attempts = Counter((job_id, attempt) for job_id, attempt, _, _ in ledger)
    assert set(attempts.values()) == {1}, "one attempt was leased twice"
    assert len({(job_id, token) for job_id, _, token, _ in ledger}) == len(ledger)
    assert all(report["ledger"] for report in reports), "a worker or thread got no job"

    assert desk.counter("submitted") == desk.counter("completed") == JOBS
    assert desk.counter("failed") + desk.counter("released") == len(ledger) - JOBS
    assert (
        desk.members("running")
        == desk.members("scheduled")
        == desk.members("queue:high")
        == desk.members("queue:low")
        == []
    )
    assert desk.state("j0") == "completed"
