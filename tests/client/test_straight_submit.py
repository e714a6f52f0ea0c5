"""`submit_one`, the straight path of a client, sends what `submit` sends, and answers the same."""

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport
from sublet.errors import Invalid, JobsError, Unavailable, Unfit
from sublet.large_payloads.files import Files
from sublet.model import Submission, Submitted
from sublet.protocol import verbs
from sublet.protocol.scripts import Script, script
from sublet.store.store import Store
from sublet.store.sync_store import SyncStore
from tests.support.draws import few

JOB = Submission("0-a", "q", "t", "", b"{}")
AnyStore = Store | SyncStore


class Recorded:
    """A store whose commands are recorded; `straight`: it made no plan."""

    def __init__(self, store: AnyStore) -> None:
        self.store, self.commands, self.straight = store, list[tuple[Any, ...]](), True
        transport = store._transport if isinstance(store, Store) else store.transport
        self._run, self._follow = transport.run, store.follow
        self.fails: Callable[[], Exception | None] = lambda: None
        transport.run, store.follow = self._recorded, self._plan  # type: ignore[method-assign]  # recorded

    def _recorded(self, call: Any) -> Any:
        self.commands += call.commands
        if error := self.fails():
            raise error
        return self._run(call)

    def _plan(self, plan: Any) -> Any:
        self.straight = False
        return self._follow(plan)

    async def submit_one(self, job: Submission) -> Submitted:
        self.straight, self.commands = True, []
        return await done(self.store.submit_one(job))

    async def submit(self, job: Submission) -> Submitted:
        self.commands = []
        (submitted,) = await done(self.store.submit([job]))
        return submitted

    async def aclose(self) -> None:
        await done(self.store.aclose() if isinstance(self.store, Store) else self.store.close())


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


Make = Callable[..., Awaitable[Recorded]]


@pytest.fixture(params=["async", "sync"])
async def make(request: Any, place: Any, raw: Any) -> Any:
    """Makes stores with other settings."""
    made: list[Recorded] = []

    async def make(prepared: bool = True, **changes: Any) -> Recorded:
        changed: Settings = replace(place.settings, **changes)
        store: AnyStore
        if request.param == "async":
            store = Store(changed, client=place.client(), blocking=place.client())
        else:
            store = SyncStore(changed, SyncTransport(changed, place.sync_client()))
        made.append(Recorded(store))
        if prepared:
            await done(store.prepare())
            await made[-1].submit(JOB._replace(id="0-first", durability="none"))  # reads the free memory
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


async def test_a_submit_is_one_command_without_a_plan(make: Make) -> None:
    one = await make()
    assert await one.submit_one(JOB) == Submitted("0-a", True)
    assert one.straight
    sent = one.commands
    assert await one.submit_one(JOB) == await one.submit(JOB) == Submitted("0-a", False)
    assert sent == one.commands
    assert len(sent) == 1


async def test_a_job_over_http_is_one_command_without_a_plan(store: Store) -> None:
    one, nudged = Recorded(store), list[str]()
    await store.submit([JOB._replace(id="0-first")])
    store.nudge, one.straight = nudged.extend, True
    job, invalid = JOB._replace(id="0-b"), JOB._replace(task="a b")
    (stored,), (refused,) = await store.submit_each([job]), await store.submit_each([invalid])
    assert stored == Submitted("0-b", True)
    assert isinstance(refused, Invalid)
    assert one.straight
    assert nudged == ["q", "q"]


async def test_a_stored_job_starts_workers_and_is_not_in_flight(make: Make) -> None:
    one, nudged = await make(), list[str]()
    one.store.nudge = nudged.extend
    await one.submit_one(JOB)
    assert nudged == ["q"]
    one.fails = lambda: Unavailable("gone")
    with pytest.raises(Unavailable, match="id 0-b"):
        await one.submit_one(JOB._replace(id="0-b"))
    assert one.store.operations.admission
    assert set(one.store.operations.admission._in_flight.values()) == {0}
    assert nudged == ["q"]


async def test_the_first_submit_checks_the_namespace(make: Make) -> None:
    await make(partitions=2)
    one = await make(prepared=False, partitions=1, memory=1.0)
    with pytest.raises(Unfit, match="has 2 partitions"):
        await one.submit_one(JOB)


@pytest.mark.parametrize("asked", [{"replicas": 0}, {"durability": "replicated", "replicas": 0}])
async def test_a_submit_that_waits_for_durability_goes_the_general_way(
    make: Make, asked: dict[str, Any]
) -> None:
    one = await make(**asked)
    with pytest.raises(Invalid, match="durability replicated needs"):
        await one.submit_one(JOB._replace(durability="" if "durability" in asked else "replicated"))
    assert not one.straight


async def test_a_submit_without_a_report_of_free_memory_goes_the_general_way(make: Make) -> None:
    one = await make()
    admission = one.store.operations.admission
    assert admission
    admission._free.clear()
    assert await one.submit_one(JOB) == Submitted("0-a", True)
    assert not one.straight
    assert ("INFO", "memory") in one.commands


async def test_without_the_memory_guard_a_submit_is_straight_too(make: Make) -> None:
    one = await make(memory=1.0)
    assert await one.submit_one(JOB) == Submitted("0-a", True)
    assert one.straight


async def test_a_large_payload_is_stored_outside_redis(make: Make, tmp_path: Any) -> None:
    one = await make(large_payloads=Files(tmp_path), large_above=1024)
    assert await one.submit_one(JOB._replace(payload=b'"%s"' % (b"x" * 2000))) == Submitted("0-a", True)
    assert len(one.commands[-1][-1]) < 1000


async def test_a_deleted_namespace_is_created_again(make: Make, raw: Any, base: str) -> None:
    one = await make()
    raw.delete(base)
    assert await one.submit_one(JOB) == Submitted("0-a", True)
    assert one.commands.count(one.commands[0]) == 3  # both ways are refused first
    assert raw.hget(base, "layout") == "1"


class SameBytes:
    """Two namespaces: jobs go to one straight, to the other in the general way."""

    def __init__(self, stores: list[Recorded], raw: Any, names: tuple[str, str]) -> None:
        self.stores, self.raw, self.names = stores, raw, names

    async def answer(self, which: int, job: Submission) -> tuple[Any, list[Any]]:
        one = self.stores[which]
        try:
            answer: Any = await (one.submit if which else one.submit_one)(job)
        except JobsError as error:
            answer = type(error), str(error)
        return [self.plain(part) for part in answer], [[*map(self.plain, each)] for each in one.commands]

    def plain(self, word: Any) -> Any:
        for name in self.names:
            word = word.replace(name, "") if isinstance(word, str) else word
        return word

    def stored(self, name: str) -> dict[str, Any]:
        """All stored data but ids of events."""
        found = {}
        for key in sorted(self.raw.scan_iter(match=f"{{{name}:*", count=1000)):
            is_stream = self.raw.type(key) == "stream"
            found[self.plain(key)] = (
                [e for _, e in self.raw.xrange(key)] if is_stream else dump(self.raw, key)
            )
        return found

    async def check(self, job: Submission) -> bool:
        straight, general = await self.answer(0, job), await self.answer(1, job)
        assert straight == general
        return self.stores[0].straight


def dump(raw: Any, key: str) -> Any:
    reads = {"hash": raw.hgetall, "list": lambda key: raw.lrange(key, 0, -1), "string": raw.get,
             "zset": lambda key: raw.zrange(key, 0, -1, withscores=True)}  # fmt: skip
    return reads[raw.type(key)](key)


def with_clock(name: str) -> Script:
    """A script with a standing clock."""
    own = script(name)
    text = own.text.replace("call('TIME')", "{'1700000000', '123456'}")
    return replace(own, text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


JOBS = st.builds(
    Submission,
    st.integers(0, 30).map(lambda n: f"0-{n}") | st.sampled_from(("0-ä", "0-\ud800", "")),
    st.sampled_from(("q", "q", "r", "full", "no queue", "q" * 129)),
    st.sampled_from(("t", "t", "t", "a b")),
    st.sampled_from(("", "", "", "key=k", "delay=1000", "priority=5 tries=1", "nonsense=1", "tries=x")),
    st.sampled_from((b"{}", b"", b"x" * 1025, b"x" * 20_000)),
    st.sampled_from(("", "", "", "none", "replicated", "nonsense")),
)


@pytest.mark.real_server
async def test_random_jobs_are_sent_and_answered_alike(
    make: Make, raw: Any, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "script", with_clock)
    names = f"{place.settings.namespace}:s", f"{place.settings.namespace}:g"
    same = SameBytes([await make(namespace=name, memory=1.0, replicas=0) for name in names], raw, names)
    for one in same.stores:
        configure = one.store.operations.configure("full", jobs=2)
        await done(one.store.follow(configure))
    drawn: list[Submission] = []

    @settings(
        max_examples=few(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(JOBS)
    def draw(job: Submission) -> None:
        drawn.append(job)

    draw()
    straight = {await same.check(job) for job in drawn}
    assert same.stored(names[0]) == same.stored(names[1])
    assert straight == {True, False}, "both ways are to be tried"
