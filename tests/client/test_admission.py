"""Jobs are refused before the server is full, and stored jobs are still worked on."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sublet import SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import follow
from sublet.errors import Forbidden, Invalid, OutOfMemory, Unavailable
from sublet.model import Submission, Submitted
from sublet.protocol import keys, verbs
from sublet.protocol.server_info import Memory, memory
from sublet.schedules.firing import fire_due, schedule
from sublet.store.store import Store
from sublet.submission import admission
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request

MOST = 1000 << 20
"""The memory limit of the servers here: so large that the server itself refuses nothing."""


class MemoryReports:
    """Answers memory reports and counts them; all other calls go to the store's own server."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share, self.most, self.asked, self.raises = 0.5, MOST, 0, None
        self._run = store._transport.run
        monkeypatch.setattr(store._transport, "run", self.run)

    async def run(self, call: Any) -> Any:
        if ("INFO", "memory") not in call.commands:
            return await self._run(call)
        self.asked += 1
        if self.raises:
            raise self.raises
        return Memory("noeviction", round(MOST * self.share), self.most)


@pytest.fixture
def reports(store, monkeypatch) -> MemoryReports:
    return MemoryReports(store, monkeypatch)


@pytest.fixture
def clock(monkeypatch) -> Callable[[float], None]:
    """Moves the clock of this process on."""
    now = [100.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def job(name: str = "", rules: str = "", payload: bytes = b"{}") -> Submission:
    return Submission(name or f"0-{uuid.uuid4().hex}", "q", "t", rules, payload)


# refusals


async def test_above_the_limit_a_job_is_refused_and_nothing_is_stored(store, reports, desk):
    reports.share = 0.93
    before = desk.everything()
    with pytest.raises(
        OutOfMemory, match=r"used 93% of its memory and takes no new job from 90% on \(SUBLET_MEMORY\)"
    ) as full:
        await store.submit([job()])
    assert full.value.code == "OOM"
    assert desk.everything() == before


async def test_the_limit_is_a_setting_of_the_caller(store, reports):
    reports.share = 0.5
    store.operations.admission = admission.Admission(0.49)
    with pytest.raises(OutOfMemory, match="from 49% on"):
        await store.submit([job()])
    store.operations.admission = admission.Admission(0.51)
    assert (await store.submit([job()]))[0].created


async def test_a_repeated_submit_above_the_limit_gets_its_first_answer(store, reports):
    """A client without an answer repeats the call, and the server may have filled meanwhile."""
    first = job("0-a", "key=k")
    windowed = job("0-w", "window=60000 key=w")
    await store.submit([first, windowed])
    reports.share = 0.95
    store.operations.admission = admission.Admission(0.9)
    assert await store.submit([first]) == [Submitted("0-a", False)]
    other, same_key, lasting = job("0-b"), job("0-c", "priority=1 key=k"), job("0-d", "key=w window=60000")
    answers = await store.follow(
        store.operations.submit_each([other, first, same_key, lasting, job("0-e", "key=new")])
    )
    assert [getattr(one, "id", None) for one in answers] == [None, "0-a", "0-a", "0-w", None]
    assert isinstance(answers[0], OutOfMemory)
    assert isinstance(answers[4], OutOfMemory)


async def test_the_key_of_a_missing_job_admits_nothing_above_the_limit(store, reports, raw, base):
    await store.submit([job("0-a", "key=k")])
    raw.delete(keys.job(base, "0-a"))
    reports.share = 0.95
    store.operations.admission = admission.Admission(0.9)
    with pytest.raises(OutOfMemory):
        await store.submit([job("0-b", "key=k")])


async def test_a_key_with_a_window_outlives_its_deleted_job(store, reports, raw, base):
    await store.submit([job("0-a", "key=k window=60000")])
    raw.delete(keys.job(base, "0-a"))
    reports.share = 0.95
    store.operations.admission = admission.Admission(0.9)
    assert await store.submit([job("0-b", "key=k")]) == [Submitted("0-a", False)]


async def test_each_of_many_calls_is_admitted_separately(store, reports, raw, base):
    """A server that fills during a submit of a million jobs stores those that fit."""
    run, sent = store._transport.run, []

    async def filling(call):
        if call.commands[0][0] == "EVALSHA":
            sent.append(call)
            reports.share = 0.899 if len(sent) < 2 else 0.95
        return await run(call)

    reports.share = 0.899
    store._transport.run = filling
    answers = await store.follow(
        store.operations.submit_each([job(payload=b"x" * 100_000) for _ in range(40)])
    )
    kinds = [isinstance(one, OutOfMemory) for one in answers]
    assert (kinds[0], kinds[-1], kinds == sorted(kinds)) == (False, True, True)


async def test_a_job_above_the_limit_of_its_queue_is_refused_for_good(desk):
    await desk.operate_queue("configure", "q", None, "bytes=100")
    full = "QUEUE_FULL queue q may hold 100 bytes and has 0"
    assert await desk.submit("a", payload=b"x" * 101) == [f"{full}, so that one of 101 can never fit"]
    assert (await desk.submit("b", payload=b"x" * 100))[0].created
    assert await desk.submit("c", payload=b"x" * 100) == ["QUEUE_FULL queue q may hold 100 bytes and has 100"]


# reports


async def test_an_acceptance_is_cached_for_a_second(store, reports, clock):
    for _ in range(50):
        await store.submit([job()])
    assert reports.asked == 2, "one request to create the namespace, one for the memory"
    clock(0.99)
    await store.submit([job()])
    assert reports.asked == 2
    clock(0.02)
    await store.submit([job()])
    assert reports.asked == 3
    reports.share = 0.95
    clock(1.01)
    with pytest.raises(OutOfMemory):
        await store.submit([job()])


async def test_a_refusal_always_rests_on_a_new_report(store, reports, clock):
    await store.prepare()
    reports.share, before = 0.95, reports.asked
    for asked in range(1, 4):
        with pytest.raises(OutOfMemory):
            await store.submit([job()])
        assert reports.asked == before + asked
    reports.share = 0.85
    assert (await store.submit([job()]))[0].created, "accepted within the same second"


async def test_a_client_asks_again_after_a_sixteenth_of_the_free_memory(store, reports, clock):
    """So processes that begin at the same moment with the same report cannot fill the server."""
    await store.submit([job()])
    asked, room = reports.asked, round(MOST * 0.4)
    sent = 0
    while reports.asked == asked:
        await store.submit([job(payload=b"x" * 250_000) for _ in range(2)])
        sent += 500_000
        assert sent < room / admission.PART, "the client asks earlier"
    assert sent > room / admission.PART / 2


async def test_concurrent_submits_share_one_report(store, reports, clock):
    await store.submit([job()])
    clock(1.5)
    asked = reports.asked
    await asyncio.gather(*(store.submit([job()]) for _ in range(50)))
    assert reports.asked == asked + 1


async def test_bytes_in_flight_count_against_the_free_memory(store, reports, clock):
    """Several large submits at once share the reported free memory."""
    await store.submit([job()])
    clock(1.5)
    reports.share = 0.89
    ends = await asyncio.gather(
        *(store.submit([job(payload=b"x" * 250_000)]) for _ in range(100)), return_exceptions=True
    )
    refused = [end for end in ends if isinstance(end, OutOfMemory)]
    assert 100 - (MOST * 0.01 // 250_000) <= len(refused) <= 75
    assert "used 89% of its memory, with more jobs on their way, and takes no new job from 90% on" in str(
        refused[0]
    )
    assert (await store.submit([job(payload=b"x" * 250_000)]))[0].created, "no job is in flight any more"


@pytest.mark.real_server
async def test_a_burst_of_a_fresh_process_asks_the_server_once(place, raw):
    def asked():
        return raw.info("commandstats").get("cmdstat_info", {"calls": 0})["calls"]

    store = Store(place.settings)
    await store.follow(store.operations.prepare())
    store.operations.admission, before = admission.Admission(0.9), asked()
    await asyncio.gather(*(store.submit([job()]) for _ in range(500)))
    assert asked() - before < 10, "one request for all submits, and those of this test"
    await store.aclose()


async def test_partitions_on_one_server_share_its_memory(store, reports):
    await store.prepare()
    reports.share = 0.5
    for partitions in (1, 64):
        found = admission.Admission(0.9, partitions)
        assert await store.follow(found.check("base", 0)) is None
        room = MOST * 0.4 / admission.PART / partitions
        weight = admission.estimated_bytes([job()])
        assert sum(found.admit("base", weight) for _ in range(round(room / weight) + 10)) == room // weight


@pytest.mark.parametrize(
    "error", [Forbidden("NOPERM"), OutOfMemory("no"), None], ids=["forbidden", "refused", "without an answer"]
)
async def test_a_server_without_reports_takes_all_jobs_and_is_seldom_asked(store, reports, clock, error):
    reports.raises, reports.share = error, 0.0
    for _ in range(10):
        assert (await store.submit([job()]))[0].created
        clock(5)
    assert reports.asked <= 2
    clock(15)
    reports.raises, reports.share = None, 0.95
    with pytest.raises(OutOfMemory):
        await store.submit([job()])


async def test_a_server_without_a_limit_takes_all_and_may_have_one_later(store, reports, clock):
    reports.most = 0
    await store.submit([job(payload=b"x" * 200_000) for _ in range(20)])
    reports.most, reports.share = MOST, 0.95
    clock(1.1)
    with pytest.raises(OutOfMemory):
        await store.submit([job()])


async def test_an_unavailable_server_raises_unavailable(store, reports):
    reports.raises = Unavailable("gone")
    with pytest.raises(Unavailable, match="gone"):
        await store.submit([job()])


async def test_a_limit_of_one_asks_no_server(store, reports):
    store.operations.admission = None
    reports.share = 1.5
    await store.follow(store.operations.prepare())
    asked = reports.asked
    assert (await store.submit([job()]))[0].created
    assert reports.asked == asked


async def test_each_partition_has_a_server_of_its_own(place, raw, monkeypatch):
    """On a cluster: where one node is full, the others take jobs."""
    store = Store(replace(place.settings, partitions=2), client=place.client(), blocking=place.client())
    full: list[str] = []
    run = store._transport.run

    async def answer(call):
        if ("INFO", "memory") not in call.commands:
            return await run(call)
        assert call.tag in store.operations.bases
        return Memory("noeviction", 99 if call.tag in full else 1, 100)

    monkeypatch.setattr(store._transport, "run", answer)
    queues = {store.operations.base_of_queue(name): name for name in ("a", "b", "c", "d", "e", "f")}
    first, second = store.operations.bases
    await store.follow(store.operations.prepare())
    full.append(first)
    jobs = [store.operations.submission("t", b"{}", queues[base], "") for base in (first, second)]
    one, two = await store.follow(store.operations.submit_each(jobs))
    assert (isinstance(one, OutOfMemory), two.created) == (True, True)
    await store.aclose()


@pytest.mark.parametrize("share", ["0", "-1", "1.01", "90", "nan", "inf", "much"])
def test_an_invalid_limit_is_refused(monkeypatch, share):
    monkeypatch.setenv("SUBLET_MEMORY", share)
    with pytest.raises(
        Invalid, match=rf"SUBLET_MEMORY='{share}': use a share of Redis's maxmemory, above 0 and up to 1 "
    ):
        Settings.read()


def test_the_limit_comes_from_the_environment(monkeypatch):
    assert Settings.read().memory == 0.9
    for value in ("0.5", "1"):
        monkeypatch.setenv("SUBLET_MEMORY", value)
        assert Settings.read().memory == float(value)


# a real server


@pytest.fixture
def limited(place, raw) -> Iterator[Callable[[float], None]]:
    """Sets the limit of a real server so that it is full to this share."""
    if place.is_given:
        pytest.skip("SUBLET_TEST_REDIS_URL is somebody's server: its memory limit is not ours to set")

    raw.set(
        f"{{{place.settings.namespace}:0}}:ballast", b"x" * (20 << 20)
    )  # so that a client more or less makes no difference

    def full(share: float) -> None:
        raw.config_set("maxmemory", round(raw.info("memory")["used_memory"] / share))

    yield full
    raw.config_set("maxmemory", 0)


@pytest.mark.real_server
async def test_a_servers_report_is_parsed(store, limited, raw):
    limited(0.5)
    seen = await store.run(memory(store.operations.bases[0]))
    assert seen.policy == "noeviction"
    assert seen.used == pytest.approx(raw.info("memory")["used_memory"], rel=0.1)
    assert seen.most == int(raw.config_get("maxmemory")["maxmemory"])


@pytest.mark.real_server
async def test_above_the_limit_jobs_end_and_operators_can_act(place, limited, desk):
    with SyncClient(replace(place.settings)) as client:
        client.submit_all([job(f"0-{i}") for i in range(6)])
        limited(0.95)
        # otherwise the last report would be used
        client.store.operations.admission = admission.Admission(0.9)
        with pytest.raises(OutOfMemory, match="SUBLET_MEMORY"):
            client.submit_all([job()])
        one, two, three = await desk.claim(3)
        assert isinstance(await desk.heartbeat(one), int)
        assert await desk.complete(one) == "completed"
        assert await desk.fail(two, again=False) == "dead"
        assert await desk.release(three) == "queued"
        assert (client.cancel("0-4"), client.retry(two.id)) == ("cancelled", "queued")
        assert client.store.follow(client.store.operations.prune()) == (0, False)
        assert client.schedules.list() == []


@pytest.mark.real_server
async def test_over_http_a_refusal_is_507_with_retry_after(store, limited):
    api = Api(store, Tokens())

    async def send(body: bytes, path: str = "/jobs") -> Any:
        headers = {"host": "localhost", "content-type": "application/json"}
        return await api.answer(Request("POST", path, headers=headers, body=body))

    assert (await send(b'{"task":"t","id":"a"}')).status == 201
    limited(0.95)
    store.operations.admission = admission.Admission(0.9)
    refused = await send(b'{"task":"t","id":"b"}')
    assert (refused.status, refused.headers["Retry-After"]) == (507, "30")
    assert b"urn:sublet:problem:oom" in refused.body
    assert (await send(b'{"task":"t","id":"a"}')).status == 200
    limited(0.5)
    assert (await send(b'{"task":"t","id":"b"}')).status == 201


@pytest.mark.real_server
async def test_a_user_without_the_right_to_read_the_memory_can_submit(place, raw, limited):
    if place.is_given:
        pytest.skip("no users are made on somebody's server")
    name = f"u{uuid.uuid4().hex[:8]}"
    raw.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-info")
    scheme, _, rest = place.settings.redis_url.partition("://")
    url = f"{scheme}://{name}:secret@{rest}"
    try:
        with SyncClient(replace(place.settings, redis_url=url)) as client:
            limited(0.95)
            assert client.submit("t").created
            asked = raw.info("commandstats").get("cmdstat_info", {}).get("rejected_calls", 0)
            for _ in range(5):
                assert client.submit("t").created
            assert raw.info("commandstats").get("cmdstat_info", {}).get("rejected_calls", 0) == asked
    finally:
        raw.execute_command("ACL", "DELUSER", name)


async def test_fakeredis_without_reports_takes_all_jobs(place):
    with (
        SyncClient(place.settings)
        if not place.fake
        else SyncClient(replace(place.settings, client_factory=place)) as client
    ):
        assert client.submit("t").created


# schedules and workers


@pytest.fixture
def come(desk) -> Callable[[], Any]:
    """A schedule with a due occurrence."""

    async def put() -> None:
        await desk.put("s", 0, occurrence=desk.now() - 1000, plan=b'{"when":{"every":3600}}')

    return put


async def test_an_occurrence_waits_for_free_memory_and_is_not_lost(store, reports, desk, come):
    await come()
    occurrence = desk.schedule()["occurrence"]
    reports.share = 0.95
    with pytest.raises(OutOfMemory):
        await store.follow(store.operations.fire("me"))
    assert (desk.schedule()["occurrence"], desk.members("queue:q")) == (occurrence, [])
    reports.share = 0.5
    assert await store.follow(store.operations.fire("me")) == 0, "the next try is in 2 s"
    desk.elapse(2.1)
    assert await store.follow(store.operations.fire("me")) == 1
    (job_id,) = desk.members("queue:q")
    assert job_id.startswith("0-s:")


async def test_a_full_partition_does_not_stop_the_schedules_of_others(store, desk, come):
    await come()
    other = "{other:0}"

    class Full(admission.Admission):
        def check(self, base: str, size: int) -> Any:
            yield from ()
            return OutOfMemory("full") if base == other else None

    await desk.run(verbs.init(other))
    await desk.run(schedule(other, "x", 0, plan=b'{"when":{"every":3600}}', queue="q", task="t", rules="", overlap="allow",
                            paused=False, occurrence=desk.now() - 1000, due=desk.now() - 1000, payload=b"{}"))  # fmt: skip
    with pytest.raises(OutOfMemory):
        await follow(store.run, fire_due([other, desk.base], "me", Full(0.9)))
    assert len(desk.members("queue:q")) == 1
    desk.raw.delete(*desk.raw.keys("{other:0}*"))


async def test_statistics_are_read_although_an_occurrence_waits(store, reports, desk, come):
    """An autoscaler calls `summon`, and a full server needs more workers."""
    await come()
    reports.share = 0.95
    api = Api(store, Tokens())
    reply = await api.answer(Request("GET", "/stats", headers={"host": "localhost"}))
    assert reply.status == 200


async def test_workers_are_summoned_above_the_limit(store, reports, desk):
    await store.submit([job() for _ in range(5)])
    await desk.pool(settings="queues=q invoker=none wait=1 slots=1")
    reports.share = 0.95
    store.operations.admission = admission.Admission(0.9)
    with pytest.raises(OutOfMemory):
        await store.submit([job()])
    assert (await desk.summon(3)).given > 0
