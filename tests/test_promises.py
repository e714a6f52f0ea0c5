"""The promises of the README, each demonstrated by a test of its name. Harder attacks on them are in other
files."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from sublet import Changed, OutOfMemory, State, SyncClient
from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import NotDurable, Unconfirmed
from sublet.model import Beat, Completion, Failure, Submission
from sublet.protocol import keys, reads, verbs
from tests.support.replicas import pair
from tests.support.tasks import eventually


async def test_at_least_once_execution_at_most_one_accepted_outcome(desk):
    """A job is run until one outcome is accepted. An outcome of a lease that another worker has got changes
    nothing.
    """
    ghost = await desk.running("a")
    desk.elapse(31)
    lease = await desk.take("a")
    assert await desk.complete(lease, b'"the one"') == "completed"
    before = desk.everything()
    assert await desk.complete(ghost, b'"another"') == "LEASE_LOST"
    assert await desk.fail(ghost) == "LEASE_LOST"
    assert await desk.release(ghost) == "LEASE_LOST"
    assert await desk.heartbeat(ghost) == "LEASE_LOST"
    assert desk.everything() == before
    assert desk.job("a")["result"] == '"the one"'


@pytest.mark.real_server
def test_no_acknowledged_job_is_lost(tmp_path, backend):
    """While Redis keeps its data: after a SIGKILL in the middle, all acknowledged jobs exist."""
    if backend != "valkey":
        pytest.skip("one server with an append-only file is enough, and the wheel's is always available")
    folder = tmp_path / "data"
    server = EmbeddedServer.start(folder)
    acknowledged: list[str] = []
    with SyncClient(Settings(redis_url=server.url)) as client:
        for _ in range(200):
            acknowledged.append(client.submit("t").id)
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with EmbeddedServer.start(folder) as again, SyncClient(Settings(redis_url=again.url)) as client:
        assert [job_id for job_id in acknowledged if client.get(job_id).state is not State.QUEUED] == []


@pytest.mark.real_server
def test_a_durable_submit_is_acknowledged_only_after_enough_copies(tmp_path, backend):
    """Part of promise 2. Counted copies survive the loss of the primary; otherwise the result is unknown, and
    the caller repeats the submit.
    """
    with pair(tmp_path, backend) as both:
        with SyncClient(replace(both.settings, durability="replicated")) as client:
            first = client.submit("t", job_id="first")
            both.cut()
            with pytest.raises(
                Unconfirmed,
                match=r"only 0 of 1 replicas have it .* send the same submit again, under the same id 0-late$",
            ):
                client.submit("t", job_id="late")
            with pytest.raises(
                NotDurable, match="durability fsync needs "
            ):  # no append-only file here: the job is not stored, and not acknowledged
                client.submit_all([Submission("0-disk", "q", "t", "", b"{}", "fsync")])
            both.heal()
            again = client.submit("t", job_id="late")
            assert (again.id, again.created) == ("0-late", False)
        both.lose_primary()
        there = both.replica.zrange(keys.queue(keys.base(both.settings.namespace), "default"), 0, -1)
        assert there == [first.id, "0-late"]


async def test_a_repeated_request_never_has_a_second_effect(desk, each_verb):
    """Each verb is sent twice, with the same bytes: the replies are equal, and the second call changes
    nothing.
    """
    ids = ("done", "broken", "gone", "alive", "off", "dead", "late")
    await desk.submit(*ids[:6])
    await desk.submit("late", rules="delay=1000000")
    leases = {lease.id: lease for lease in await desk.claim(6)}
    await desk.fail(leases["dead"], again=False)
    calls = {
        "submit": verbs.submit(desk.base, [Submission("new", "q", "t", "key=k", b"{}")]),
        "claim": verbs.claim(desk.base, claim_id="c" * 22, worker="w", lease=30, n=1, queues=["q"]),
        "heartbeat": verbs.heartbeat(desk.base, [Beat(leases["alive"])], lease=3600),
        "complete": verbs.complete(desk.base, [Completion(leases["done"], b"1")]),
        "fail": verbs.fail(desk.base, [Failure(leases["broken"], "Boom")]),
        "cancel": verbs.cancel(desk.base, "off", desk.revision("off")),
        "retry": verbs.retry(desk.base, "dead", desk.revision("dead")),
        "promote": verbs.promote(desk.base, "late", desk.revision("late")),
        "reschedule": verbs.reschedule(desk.base, "late", desk.revision("late") + 1, "priority=5 delay=5000"),
        "watch": verbs.watch(desk.base, ["alive"]),
        "configure": verbs.configure(desk.base, "q", 0, "jobs=50"),
        "pause": verbs.pause(desk.base, "q", 1),
        "resume": verbs.resume(desk.base, "q", 2),
    }
    for name, call in calls.items():
        first, after = await desk.run(call), desk.everything()
        again = await desk.run(call)
        if name == "submit":
            assert (first[0].created, again[0]) == (True, first[0]._replace(created=False))
        elif name != "heartbeat":
            assert again == first, name
        changed = {key for key, value in desk.everything().items() if value != after.get(key)}
        allowed = (
            {keys.structure(desk.base, "running"), keys.job(desk.base, "alive")}
            if name == "heartbeat"
            else set()
        )
        assert changed <= allowed | {keys.alarm(desk.base), desk.base}, name


async def test_a_queue_can_be_capped(desk):
    """Part of promise 6: at its limit a queue refuses a submit, and its jobs are still run."""
    await desk.operate_queue("configure", "q", None, "jobs=3")
    await desk.submit("a", "b", "c")
    assert await desk.submit("d") == ["QUEUE_FULL queue q may hold 3 jobs and has 3"]
    await desk.complete(await desk.take("a"))
    assert (await desk.submit("d"))[0].created


async def test_an_operators_verb_carries_the_revision_that_its_caller_read(desk):
    await desk.submit("a")
    seen = desk.revision("a")
    await desk.take("a")
    with pytest.raises(Changed, match="read it again"):
        await desk.operate("cancel", "a", seen)
    assert "cancel_requested_at" not in desk.job("a")


async def test_one_clock(desk):
    """Redis's TIME decides every deadline: a client's clock that is wrong by a day has no effect."""
    before = desk.now()
    await desk.submit("a", rules="delay=1000")
    lease = None
    assert before + 1000 <= desk.score("scheduled", "a") <= desk.now() + 1000
    desk.elapse(1)
    lease = await desk.take("a", lease=30)
    assert before <= lease.expires_ms - 30_000 <= desk.now()


async def test_no_process_has_to_stay_alive(desk):
    """Without a tick, two claims take back an expired lease and queue a due job."""
    await desk.running("lost", worker="dead")
    await desk.submit("late", rules="delay=60000")
    desk.elapse(61)
    assert {lease.id for lease in await desk.claim(2)} == {"lost", "late"}


@pytest.mark.real_server
async def test_memory_is_bounded(desk, backend):
    """A full Redis refuses a submit; the stored jobs are still run, which frees memory."""
    if os.environ.get("SUBLET_TEST_REDIS_URL") and backend == "redis":
        pytest.skip("the server at SUBLET_TEST_REDIS_URL is a foreign server: the test must not fill it")
    lease = await desk.running("warm-up")  # the server keeps each script from its first use on
    await desk.heartbeat(lease)
    await desk.complete(lease)
    await desk.submit(*(f"j{i}" for i in range(100)), payload=b'"' + b"x" * 1000 + b'"')
    limit, used = desk.raw.config_get("maxmemory")["maxmemory"], desk.raw.info("memory")["used_memory"]
    try:
        desk.raw.config_set("maxmemory", used - 1)
        with pytest.raises(OutOfMemory, match="add workers, or raise maxmemory"):
            await desk.submit("one-more")
        assert await desk.run(reads.get(desk.base, "j0"))
        assert (await desk.run(reads.stats(desk.base, {"q": None}))).states[State.QUEUED] == 100
        leases = await desk.claim(100)
        assert len(leases) == 100
        assert await desk.heartbeat(leases[0]) != "LEASE_LOST"
        for some in (leases[:50], leases[50:]):
            assert set(await desk.run(verbs.complete(desk.base, [Completion(x, b"1") for x in some]))) == {
                "completed"
            }
    finally:
        desk.raw.config_set("maxmemory", limit)
    assert desk.raw.info("memory")["used_memory"] < used
    assert desk.state("one-more") is None


@pytest.mark.real_server
async def test_jobs_are_refused_before_redis_is_full_and_all_other_calls_work(desk, place, backend):
    """Part of promise 6, on a server that is nearly full, and would itself refuse none of these calls."""
    if os.environ.get("SUBLET_TEST_REDIS_URL") and backend == "redis":
        pytest.skip("the server at SUBLET_TEST_REDIS_URL is a foreign server: the test must not fill it")
    await desk.submit(*"abcdef")
    lost = await desk.take("a")
    desk.raw.set(
        f"{desk.base}:ballast", b"x" * (20 << 20)
    )  # so that the memory of one more client makes no difference
    limit = desk.raw.config_get("maxmemory")["maxmemory"]
    desk.raw.config_set("maxmemory", round(desk.raw.info("memory")["used_memory"] / 0.95))
    try:
        with (
            SyncClient(place.settings) as client,
            pytest.raises(OutOfMemory, match=r"takes no new job from 90% on .* add workers"),
        ):
            client.submit("t", job_id="more")
        done, broken, back, late = await desk.claim(4)
        assert isinstance(await desk.heartbeat(done), int)
        assert await desk.complete(done) == "completed"
        assert await desk.fail(broken, again=False) == "dead"
        assert await desk.release(back) == "queued"
        desk.elapse(31)
        await desk.reap()
        assert (desk.state(lost.id), desk.state(late.id)) == ("queued", "queued")
        assert desk.state("0-more") is None
    finally:
        desk.raw.config_set("maxmemory", limit)
        desk.raw.delete(f"{desk.base}:ballast")


@pytest.mark.real_server
def test_a_killed_worker_loses_nothing(place, raw):
    """A real process is SIGKILLed while it holds jobs: another one runs all of them again."""
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    words = [
        sys.executable,
        "-m",
        "sublet",
        "work",
        "tests.support.tasks:app",
        "--lease",
        "1s",
        "--slots",
        "5",
    ]
    workers = [subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)]
    try:
        with SyncClient(place.settings) as client:
            handles = [client.submit("crowd", {"seconds": 0.8}) for _ in range(10)]
            eventually(lambda: len(client.list_jobs(state=State.RUNNING).jobs) == 5, 20)
            workers[0].kill()
            workers.append(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL))
            for handle in handles:
                handle.result(timeout=30)
            recovered = [
                handle for handle in handles if handle.get().attempts[0].code in ("lease_expired", "crashed")
            ]
            assert len(recovered) == 5
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait(20)


async def test_a_token_is_compared_whole(desk):
    """After a failover that lost writes, two claims may have the same fence; the claim ids in their tokens
    differ.
    """
    zombie = await desk.running("a", claim_id="z" * 22)
    token = f"{zombie.fence}.{'o' * 22}"
    desk.raw.hset(f"{desk.base}:job:a", "token", token)
    before = desk.everything()
    assert await desk.complete(zombie) == "LEASE_LOST"
    assert await desk.heartbeat(zombie) == "LEASE_LOST"
    assert await desk.release(zombie) == "LEASE_LOST"
    assert await desk.fail(zombie) == "LEASE_LOST"
    assert desk.everything() == before
    assert await desk.complete(zombie._replace(token=token)) == "completed"
