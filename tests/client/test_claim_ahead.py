"""An idle worker's claim waits on the server, behind the blocking read: a wake-up brings the job at once.

Whatever ends the wait, no job stays with a claim that nobody reads: it is withdrawn, or its job is released.
"""

import asyncio
import json
import signal
import time

import pytest
import redis

from sublet import Settings
from sublet.errors import Unavailable
from sublet.model import Completion, Submission
from sublet.protocol import keys, verbs
from sublet.store.store import Store
from sublet.submission.submit import new_id
from tests.support.blocked_clients import blocked, until

pytest_plugins = ["tests.support.command_line"]
pytestmark = pytest.mark.real_server


class Idle(Store):
    """A store that records the claims that it sends otherwise than behind a read."""

    def __init__(self, settings):
        super().__init__(settings)
        self.claims, self._once, self._claims._run = [], self.run, self.run_and_record

    async def run_and_record(self, call):
        if call.commands[0][0] == "EVALSHA" and call.commands[0][1] == verbs.script("claim").sha:
            self.claims.append(call.commands[0])
        return await self._once(call)

    @property
    def ahead(self):
        """The claim that waits behind the read, or None."""
        wakeups = self._claims._wakeups
        return wakeups._ahead[1] if wakeups and wakeups._ahead else None

    async def claim_ahead(self, *queues, n=1, wait=60.0):
        """Claim as an idle worker does."""
        return await self.claim(worker="w", queues=queues or ["q"], n=n, lease=30, wait=wait, ahead=True)


@pytest.fixture
async def idle(place, raw):
    """Open stores and start a claim of each that waits on the server, with the claim behind it."""
    opened, begun = [], []

    async def start(*queues, **how):
        store, before = Idle(place.settings), blocked(raw)
        opened.append(store)
        begun.append(asyncio.create_task(store.claim_ahead(*queues, **how)))
        await until(lambda: store.ahead and blocked(raw) > before)
        return store, begun[-1]

    yield start
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    for store in opened:
        await store.aclose()


def job(queue="q", rules=""):
    return Submission(new_id(0), queue, "t", rules, b"{}")


def submit_without_wake_up(raw, base):
    with raw.pipeline(transaction=True) as both:
        both.execute_command(*verbs.submit(base, [job()]).with_text())
        both.delete(keys.wake(base, "q"))
        both.execute()


def memo(raw, base, sent):
    """The memo of a claim that was sent ahead."""
    return raw.get(keys.claim(base, sent.call.commands[0][4]))


def scripts_run(raw):
    """How many scripts the server has run by their hash."""
    return raw.info("commandstats")["cmdstat_evalsha"]["calls"]


def running(raw, base):
    """How many leases there are."""
    return raw.zcard(f"{base}:running")


async def the_lease(task):
    async with asyncio.timeout(20):
        (lease,) = (await task).leases
    return lease


async def test_a_wake_up_brings_the_job(idle, store):
    """The claim that found nothing is the only one that was sent by itself."""
    worker, waiting = await idle()
    await store.submit([job()])
    lease = await the_lease(waiting)
    assert (lease.attempt, lease.task) == (1, "t")
    assert len(worker.claims) == 1
    assert await store.settle([Completion(lease, b"1")]) == ["completed"]


async def test_one_job_comes_with_the_wake_up_and_leaves_one_for_the_next_worker(idle, store, raw, base):
    """A burst is for all idle workers: one of a hundred slots takes a single job ahead."""
    first, second = await idle(n=100), await idle(n=100)
    await store.submit([job() for _ in range(3)])
    await asyncio.gather(the_lease(first[1]), the_lease(second[1]))
    assert running(raw, base) == 2
    assert raw.llen(keys.wake(base, "q")) == 1


async def test_queues_are_asked_in_the_order_of_the_claim(idle, store, raw, base):
    _, waiting = await idle("first", "second")
    with raw.pipeline(transaction=True) as both:  # both jobs are there before the read ends
        both.execute_command(*verbs.submit(base, [job("second")]).with_text())
        both.execute_command(*verbs.submit(base, [job("first")]).with_text())
        both.execute()
    assert (await the_lease(waiting)).queue == "first"


async def test_a_paused_queue_yields_nothing(idle, store, raw, base):
    worker, waiting = await idle()
    await store.follow(store.operations.pause("q"))
    await store.submit([job()])
    raw.lpush(keys.wake(base, "q"), "1")  # a late wake-up
    sent = worker.ahead
    await until(lambda: worker.ahead and worker.ahead is not sent)
    assert not waiting.done()
    await store.follow(store.operations.resume("q"))
    assert (await the_lease(waiting)).attempt == 1


async def test_a_job_that_falls_due_is_claimed_by_the_server_at_its_time(idle, store):
    """The read ends when the claim is due: no other claim polls."""
    await store.submit([job(rules="delay=1200")])
    worker, waiting = await idle()
    assert (await the_lease(waiting)).attempt == 1
    assert len(worker.claims) == 1


async def test_a_lost_wake_up_is_found_by_the_claim_that_is_the_poll(idle, raw, base):
    worker, waiting = await idle()
    submit_without_wake_up(raw, base)
    assert (await the_lease(waiting)).attempt == 1
    assert len(worker.claims) == 1


async def test_a_wait_ends_in_time_and_leaves_nothing_on_the_server(idle, raw, base, store):
    worker, waiting = await idle(wait=0.3)
    sent, before = worker.ahead, scripts_run(raw)
    async with asyncio.timeout(10):
        assert (await waiting).leases == []
    assert scripts_run(raw) == before + 1
    assert (worker.ahead, memo(raw, base, sent)) == (None, None), "it was answered, not withdrawn"
    await until(lambda: not blocked(raw))
    await store.submit([job()])
    assert running(raw, base) == 0


async def test_a_caller_that_leaves_withdraws_its_claim(idle, raw, base, store):
    """A stopped worker: a job that comes a moment later is for another worker, in its first attempt."""
    worker, waiting = await idle()
    sent = worker.ahead
    waiting.cancel()
    await until(lambda: memo(raw, base, sent) == "-")
    await store.submit([job()])
    other = await store.claim(worker="other", queues=["q"], n=1, lease=30, wait=10)
    assert [(lease.attempt, lease.recovered) for lease in other.leases] == [(1, "")]


async def test_a_withdrawn_claim_returns_the_wake_up(idle, raw, base, store):
    """The read is still open, and the oldest: its wake-up goes back for a worker that blocks later."""
    worker, waiting = await idle()
    sent = worker.ahead
    waiting.cancel()
    await until(lambda: memo(raw, base, sent) == "-")
    raw.lpush(keys.wake(base, "q"), "1")
    await until(lambda: not worker._claims._wakeups._reading and raw.llen(keys.wake(base, "q")) == 1)


async def test_a_job_that_came_before_the_withdrawal_is_released(idle, raw, base, store, monkeypatch):
    """The claim took it after the worker was told to stop: it does not wait for the end of its lease."""
    worker, waiting = await idle()
    gate, run = asyncio.Event(), worker._claims._run

    async def late(call):
        await gate.wait()
        return await run(call)

    monkeypatch.setattr(worker._claims, "_run", late)
    waiting.cancel()
    await asyncio.wait([waiting])
    await store.submit([job()])
    await until(lambda: running(raw, base) == 1)
    gate.set()
    other = await store.claim(worker="other", queues=["q"], n=1, lease=30, wait=10)
    assert [(lease.attempt, lease.recovered) for lease in other.leases] == [(2, "released")]


async def test_a_caller_that_leaves_with_the_answer_gives_the_job_back(idle, raw, base, store):
    """It is cancelled after the reply has arrived and before it has read it."""
    worker, waiting = await idle()
    (waiter,) = worker._claims._wakeups._waiters
    call = waiter.call

    def call_and_cancel(*wakeup):
        call(*wakeup)
        waiting.cancel()

    waiter.call = call_and_cancel
    await store.submit([job()])
    other = await store.claim(worker="other", queues=["q"], n=1, lease=30, wait=10)
    assert (waiting.cancelled(), [lease.attempt for lease in other.leases]) == (True, [2])


async def test_a_broken_connection_costs_no_job(idle, raw, base, store):
    """Nothing was taken, nothing will be, and the worker gets the next job."""
    worker, waiting = await idle()
    sent = worker.ahead
    (ours,) = [one["id"] for one in raw.client_list() if one["cmd"] == "blpop" and "b" in one["flags"]]
    raw.client_kill_filter(_id=ours)
    await until(lambda: memo(raw, base, sent) == "-")
    await store.submit([job()])
    assert (await the_lease(waiting)).attempt == 1


async def test_a_lost_answer_gives_the_job_back(idle, raw, base, store):
    """The connection breaks after the server ran the claim: nobody waits for the end of that lease."""
    worker, waiting = await idle()
    line = worker._claims._wakeups._line
    line.data_received = lambda data: line.connection_lost(None)
    await store.submit([job()])
    lease = await the_lease(waiting)
    assert (lease.attempt, lease.recovered) == (2, "released")


async def test_a_claim_without_an_answer_after_its_read_is_given_up(idle, store):
    """The read was answered, so the server is there: waiting as long as for a read would cost the job's lease."""
    worker, waiting = await idle()
    wakeups = worker._claims._wakeups
    wakeups._timeout, line = 0.1, wakeups._line

    def give_the_first(data):
        del line.data_received  # the next connection answers all
        line._reader.feed(data)
        line._pending.popleft()(line._reader.gets())

    line.data_received = give_the_first
    await store.submit([job()])
    lease = await the_lease(waiting)
    assert (lease.attempt, lease.recovered) == (2, "released")


async def test_a_claim_whose_outcome_is_unknown_is_withdrawn_when_the_server_is_back(
    idle, raw, base, store, monkeypatch
):
    """The first attempts to withdraw it get no answer."""
    worker, waiting = await idle()
    sent, run, failures = worker.ahead, worker._claims._run, iter([True, True])

    async def away(call):
        if call is sent.withdrawal and next(failures, False):
            raise Unavailable("no answer")
        return await run(call)

    monkeypatch.setattr(worker._claims, "_run", away)
    waiting.cancel()
    await until(lambda: memo(raw, base, sent) == "-")


async def test_after_an_outage_one_read_carries_no_claim(idle, raw, monkeypatch):
    """A server that stays away leaves one claim to withdraw, not one for each attempt to connect."""
    worker, waiting = await idle()
    withdrawn, withdraw = [], worker._claims._wakeups._withdraw
    monkeypatch.setattr(
        worker._claims._wakeups, "_withdraw", lambda sent: (withdrawn.append(sent), withdraw(sent))
    )
    wakeups = worker._claims._wakeups
    for _ in range(3):
        await until(lambda: wakeups._reading and not wakeups._rest and blocked(raw))
        (ours,) = [one["id"] for one in raw.client_list() if one["cmd"] == "blpop" and "b" in one["flags"]]
        raw.client_kill_filter(_id=ours)
        await until(lambda: wakeups._rest)
    assert len(withdrawn) == 1
    assert not waiting.done()


async def test_a_server_without_the_script_gets_its_text(idle, raw, store):
    """SCRIPT FLUSH while it waits: the claim behind the read is refused, the next one sends the text."""
    worker, waiting = await idle()
    raw.script_flush()
    await store.submit([job()])
    assert (await the_lease(waiting)).attempt == 1
    assert len(worker.claims) == 2


async def test_a_poll_without_the_script_sends_its_text(idle, raw, base):
    """The same, and the wake-up is lost."""
    _, waiting = await idle()
    raw.script_flush()
    submit_without_wake_up(raw, base)
    assert (await the_lease(waiting)).attempt == 1


async def test_a_second_claim_of_the_process_shares_the_read(idle, raw, store):
    """Both wait: from the next read on the wake-ups are shared out, and each gets a job."""
    worker, first = await idle()
    second = asyncio.create_task(worker.claim_ahead("other"))
    wakeups = worker._claims._wakeups
    await until(lambda: wakeups._reading and len(wakeups._named) == 2)
    assert worker.ahead is None
    await store.submit([job("other")])
    assert (await the_lease(second)).queue == "other"
    await store.submit([job("q")])
    assert (await the_lease(first)).queue == "q"


async def test_closing_a_store_withdraws_its_claim(idle, raw, base, store):
    worker, waiting = await idle()
    sent = worker.ahead
    waiting.cancel()
    await worker.aclose()
    assert memo(raw, base, sent) == "-"
    await store.submit([job()])
    assert running(raw, base) == 0


@pytest.fixture
async def awake(place, raw, base):
    """A store of which a claim just got the two jobs of queue q, of five that it asked for."""
    store = Idle(place.settings)
    await store.submit([job(), job()])
    assert len((await store.claim(worker="w", queues=["q"], n=5, lease=30)).leases) == 2
    assert not raw.exists(keys.wake(base, "q"))
    store.claims.clear()
    yield store
    await store.aclose()


async def test_a_worker_that_got_fewer_jobs_than_it_asked_for_waits_at_once(awake, raw):
    before, waiting = blocked(raw), asyncio.create_task(awake.claim_ahead(n=5))
    await until(lambda: awake.ahead and blocked(raw) > before)
    assert awake.claims == [], "it asks no second time"
    await awake.submit([job()])
    assert len((await waiting).leases) == 1


async def test_a_job_that_comes_before_the_wait_is_found(awake):
    await awake.submit([job()])
    assert len((await awake.claim_ahead(n=5)).leases) == 1
    assert awake.claims == []


async def test_a_worker_that_got_all_that_it_asked_for_asks_again(awake, raw, base):
    await awake.submit([job(), job(), job()])
    assert len((await awake.claim(worker="w", queues=["q"], n=2, lease=30)).leases) == 2
    raw.delete(keys.wake(base, "q"))
    assert len((await awake.claim_ahead(n=5)).leases) == 1
    assert len(awake.claims) == 2, "it does not wait for a poll"


@pytest.mark.parametrize(
    "how",
    [{"worker": "other"}, {"queues": ["q", "r"]}, {"ahead": False}],
    ids=["worker", "queues", "not ahead"],
)
async def test_a_claim_of_another_worker_or_of_other_queues_asks_first(awake, raw, base, how):
    submit_without_wake_up(raw, base)
    claim = {"worker": "w", "queues": ["q"], "n": 5, "lease": 30, "wait": 60.0, "ahead": True} | how
    assert len((await awake.claim(**claim)).leases) == 1
    assert len(awake.claims) == 1, "it does not wait for a poll"


async def test_a_worker_asks_again_at_the_moment_that_its_last_claim_named(awake):
    await awake.submit([job(), job(rules="delay=1200")])
    claimed = await awake.claim(worker="w", queues=["q"], n=5, lease=30)
    assert len(claimed.leases) == 1
    assert claimed.next_in < 2
    waiting = asyncio.create_task(awake.claim_ahead(n=5))
    await until(lambda: awake.ahead)
    assert awake._claims._wakeups.next_in < 1.9
    assert len((await waiting).leases) == 1


async def test_a_moment_that_has_passed_is_not_waited_for(awake, raw, base):
    awake._claims._dry = ("w", frozenset(["q"]), time.monotonic())
    submit_without_wake_up(raw, base)
    assert len((await awake.claim_ahead(n=5)).leases) == 1
    assert len(awake.claims) == 1, "it asks at once"


async def test_an_older_answer_does_not_outlive_a_newer_one(awake, raw, base):
    """A worker has two loops: one may have found nothing before the other's claim was given a job, and a moment."""
    waiting = asyncio.create_task(awake.claim_ahead(n=5))
    await until(lambda: awake.ahead)
    awake._claims._dry = ("w", frozenset(["q"]), time.monotonic() + 60)
    await awake.submit([job()])
    assert len((await waiting).leases) == 1
    submit_without_wake_up(raw, base)
    assert len((await awake.claim_ahead(n=5)).leases) == 1
    assert len(awake.claims) == 1, "it asks at once"


class Processes:
    """Worker processes of a namespace, each idle and with its claim on the server once it is hired."""

    def __init__(self, shell):
        self.shell, self.workers = shell, []
        self.settings = Settings(
            redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"]
        )
        self.base = keys.base(self.settings.namespace)
        self.raw = redis.Redis.from_url(self.settings.redis_url, decode_responses=True)

    async def hire(self):
        """Start one, and wait until it is idle."""
        before = blocked(self.raw)
        self.workers.append(self.shell.start("work", "tasks:app", "--queues", "default", "--slots", "10"))
        line = await asyncio.to_thread(self.workers[-1].stdout.readline)
        assert json.loads(line)["event"] == "ready"
        await until(lambda: blocked(self.raw) > before)
        return self.workers[-1]

    def close(self):
        """End them."""
        for one in self.workers:
            if one.poll() is None:
                for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGINT):
                    one.send_signal(number)
            one.communicate(timeout=20)
        self.raw.close()


@pytest.fixture
async def processes(shell):
    """Real workers, and a store of their namespace."""
    made = Processes(shell)
    yield made
    made.close()


@pytest.fixture
async def own_store(processes):
    store = Store(processes.settings)
    yield store
    await store.aclose()


async def test_a_job_that_arrives_with_sigterm_is_run_or_queued(processes, own_store):
    """…when the worker has left, not after the end of a lease."""
    for _ in range(4):
        worker = await processes.hire()
        submitting = asyncio.create_task(own_store.submit([add()]))
        worker.send_signal(signal.SIGTERM)
        await submitting
        assert await asyncio.to_thread(worker.wait, 20) == 0
        assert running(processes.raw, processes.base) == 0


async def test_a_killed_idle_worker_takes_no_job(processes, own_store):
    worker = await processes.hire()
    worker.kill()
    await asyncio.to_thread(worker.wait, 20)
    await until(lambda: not blocked(processes.raw))
    await own_store.submit([add()])
    assert running(processes.raw, processes.base) == 0


async def test_a_suspended_idle_worker_holds_one_job_at_most(processes, own_store):
    """It has a hundred slots free and cannot know: the other jobs are for others at once."""
    worker = await processes.hire()
    worker.send_signal(signal.SIGSTOP)
    await own_store.submit([add() for _ in range(5)])
    await until(lambda: running(processes.raw, processes.base) == 1)
    others = await own_store.claim(worker="other", queues=["default"], n=10, lease=30)
    assert len(others.leases) == 4
    worker.send_signal(signal.SIGCONT)
    await until(lambda: running(processes.raw, processes.base) == 4)


def add():
    return Submission(new_id(0), "default", "add", "", b'{"a": 1}')
