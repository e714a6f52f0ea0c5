"""A rolling deploy under load: workers are replaced one by one, without lost, repeated or delayed jobs."""

import signal
import threading
from datetime import datetime

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])
FLAGS = ("--slots", "50", "--processes", "8", "--lease", "300s", "--grace", "200ms")
ROUNDS = 3


class Load:
    """Submits jobs one by one until stopped; some run longer than the grace."""

    def __init__(self, stage):
        self.stage, self.ids, self.plain = stage, [], []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        for i in range(1000):
            self.ids += self.stage.submit(tasks.naps, 0.1 + i % 6 / 10)
            if i % 10 == 0:
                self.plain += self.stage.submit(tasks.plain_naps, 0.3)
            if self.over.wait(0.05):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def deploy(stage):
    """Replace two workers one by one for some rounds; returns all workers."""
    serving = [stage.start(*FLAGS) for _ in range(2)]
    workers = list(serving)
    for worker in serving:
        worker.until("ready")
    for _ in range(ROUNDS):
        for i in range(2):
            assert serving[i].stop(signal.SIGTERM) == 0
            serving[i] = stage.hire(*FLAGS)
            workers.append(serving[i])
    return workers


def waits(workers):
    """Seconds from each release to the next start of the same job, according to the events."""
    about = [
        event for worker in workers for event in worker.events if event["event"] in ("released", "started")
    ]
    released = [event for event in about if event["event"] == "released"]
    for event in released:
        (then,) = [
            e
            for e in about
            if e["event"] == "started" and (e["id"], e["attempt"]) == (event["id"], event["attempt"] + 1)
        ]
        yield (datetime.fromisoformat(then["at"]) - datetime.fromisoformat(event["at"])).total_seconds()


def deploy_under_load(stage):
    """Check that no job is lost or repeated; returns the waiting times of released jobs."""
    with Load(stage) as load:
        workers = deploy(stage)
    ids = load.ids + load.plain
    stage.until_ended(*ids)
    assert [worker.stop() for worker in workers[-2:]] == [0, 0]
    completed = [event["id"] for worker in workers for event in worker.seen("completed")]
    assert sorted(completed) == sorted(ids)
    assert sorted(note.id for note in stage.notes("done") if note.id in set(load.ids)) == sorted(load.ids)
    for job_id in ids:
        *before, last = stage.codes(job_id)
        assert (set(before) | {"released"}, last) == (
            {"released"},
            "completed",
        )  # a release does not count as an attempt
    return list(waits(workers))


@OVER_BOTH
def test_a_rolling_deploy_loses_repeats_and_delays_no_job(stage):
    gaps = deploy_under_load(stage)
    assert len(gaps) >= ROUNDS
    if max(gaps) >= 1.0:  # repeat once: other load on this machine may cause a delay
        gaps = deploy_under_load(stage)
    assert max(gaps) < 1.0, sorted(gaps)
