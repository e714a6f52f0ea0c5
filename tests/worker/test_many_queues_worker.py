"""Workers of many queues and of patterns: in Python, over HTTP, and on the command line."""

import asyncio
import json
import signal

import pytest

from sublet import App, Invalid
from sublet.client.client import Client
from sublet.model import Lease
from sublet.operations import coverage
from sublet.protocol import verbs
from sublet.store.http import HttpSource
from sublet.worker.capacity import QueueTurns, queue_sets
from sublet.worker.config import WorkerConfig
from sublet.worker.registration import ABOUT_MAX
from sublet.worker.time_limits.time_budget import TimeBudget
from sublet.worker.worker import Worker
from sublet_functions.work import work
from tests.support.http_server import ask, serve_process, serving

pytest_plugins = ["tests.support.command_line", "tests.support.job_sources"]

THOUSAND = [f"q{i}" for i in range(1000)]
TWO_THOUSAND = [f"q{i}" for i in range(2000)]


def tasks():
    app, ran = App(), []

    @app.task
    async def note(name: str) -> None:
        ran.append(name)

    return app, note, ran


@pytest.mark.parametrize("queues", [THOUSAND[:40], THOUSAND, ["q*", "mail"]], ids=["40", "1,000", "q*"])
async def test_a_worker_drains_all_its_queues(store, source, queues):
    app, note, ran = tasks()
    names = ["q0", "q5", "q39", "q33", "q39"]
    await Client(store=store).submit_all([note.options(queue=name).job(name) for name in names])
    worker = Worker(app, source, WorkerConfig(queues=queues, slots=2, name="w"))
    summary = await asyncio.wait_for(worker.run(drain=True), 60)
    assert summary.completed == 5
    assert sorted(ran) == sorted(names)


@pytest.mark.parametrize("over", ["redis", "http"])
async def test_an_idle_worker_serves_a_queue_that_appears(store, source):
    app, note, ran = tasks()
    worker = Worker(app, source, WorkerConfig(queues=["tenant-*"], slots=2, name="w"))
    running = asyncio.create_task(worker.run(max_jobs=3))
    for name in ("tenant-a", "other", "tenant-b", "tenant-c"):
        await Client(store=store).submit_all([note.options(queue=name).job(name)])
        async with asyncio.timeout(30):
            while name not in (*ran, "other"):
                await asyncio.sleep(0.01)
    await asyncio.wait_for(running, 30)
    assert ran == ["tenant-a", "tenant-b", "tenant-c"]


@pytest.mark.parametrize("over", ["redis"])
async def test_one_slot_serves_fifty_queues_in_turns(store, source):
    """Of 50 busy queues and one that gets a job last, the late one does not wait for a backlog."""
    app, note, ran = tasks()
    jobs = [note.options(queue=f"tenant-{i}").job("busy") for i in range(50) for _ in range(4)]
    await Client(store=store).submit_all([*jobs, note.options(queue="tenant-late").job("late")])
    worker = Worker(app, source, WorkerConfig(queues=["tenant-*"], slots=1, name="w"))
    await asyncio.wait_for(worker.run(drain=True), 60)
    assert len(ran) == 201
    assert ran.index("late") <= 51


def test_turns_beyond_one_claim_are_left_to_the_source():
    turns = QueueTurns(TWO_THOUSAND)
    assert turns.order(TWO_THOUSAND) is TWO_THOUSAND
    turns.record(TWO_THOUSAND, ["q7"])
    assert QueueTurns(["a-*"]).order(["a-*"]) == ["a-*"]
    assert len(turns.order(TWO_THOUSAND[:20])) == 20, "one of its claims may be a small one"


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (dict.fromkeys(TWO_THOUSAND, 1) | {"q3": 2}, "weights need at most 32 queues and no pattern: leave out"),
        ({"a-*": 3, "b": 1}, "weights need at most 32 queues and no pattern: leave out the weights"),
        (["a*b"], r"queue 'a\*b': use 1 to 128 of .*, or a beginning of a name and \* for all queues"),
        (["no good"], "queue 'no good'"),
        ([f"p{i}-*" for i in range(17)], "17 patterns: a worker has up to 16"),
    ],
)  # fmt: skip
def test_invalid_queues_are_refused(queues, words):
    with pytest.raises(Invalid, match=words):
        Worker(App(), None, WorkerConfig(queues=queues))


def test_the_jobs_of_a_pattern_may_need_a_child_process():
    app = App()
    app.task(queue="plain", name="plain")(lambda: None)
    (one,) = queue_sets(["tenant-*"], app.tasks.values())
    assert one.may_need_child


def test_a_pattern_is_closed_with_a_queue_whose_jobs_take_too_long():
    budget = TimeBudget(10.0, 1.0, {})
    assert budget.open(["tenant-*", "other-*", "q"]) == ["tenant-*", "other-*", "q"]
    budget._ends -= 5
    assert not budget.suffices(Lease("0-a", "1.t", 1, 0, "tenant-7", "t", 6000, b"", ""))
    assert budget.open(["tenant-*", "other-*", "q"]) == ["other-*", "q"]


async def test_a_registration_shows_some_of_many_queues(store, desk):
    """Such a worker may serve any queue, so none is reported as unserved."""
    await desk.submit("a", queue="vip")

    async def find():
        return await store.follow(coverage.unserved(store.operations.bases, {"vip": 1}))

    assert await find() == {"vip": 1}
    worker = Worker(App(), store, WorkerConfig(queues=[f"{'x' * 60}{i}" for i in range(2000)], name="w"))
    card = worker._registration._card()
    assert len(card.about) < ABOUT_MAX
    about = json.loads(card.about)
    assert (len(about["queues"]), about["queue_count"]) == (32, 2000)
    await store.run(verbs.enlist(desk.base, card))
    assert await find() == {}
    await desk.enlist("w", about=json.dumps({"queues": ["tenant-*", "v*"]}).encode())
    assert await find() == {}
    await desk.enlist("w", about=json.dumps({"queues": ["tenant-*", "v"]}).encode())
    assert await find() == {"vip": 1}


@pytest.mark.parametrize("over", ["http"])
async def test_over_http_a_worker_names_a_thousand_queues(source):
    with pytest.raises(Invalid, match=r"2,000 queues: a worker over HTTP may name 1,000: use patterns"):
        await work(App(), source, queues=TWO_THOUSAND)


@pytest.mark.real_server
async def test_the_api_claims_by_patterns_and_up_to_a_thousand_names(place, store, raw):
    for queue in ("tenant-1", "urgent", "q999"):
        await store.submit([store.operations.submission("t", b"{}", queue, "")])
    async with serving(place.settings) as url:

        async def claim(**body):
            answer = await ask(url, "POST", "/jobs/claim", {"n": 1, **body})
            return [job["queue"] for job in answer.json()["jobs"]] if answer.status == 200 else answer.status

        assert await claim(queues=["urgent", "tenant-*", "*"], strict=True) == ["urgent"]
        assert await claim(queues=THOUSAND) == ["q999"]
        assert (await ask(url, "GET", "/jobs/next?queue=tenant-*")).json()["queue"] == "tenant-1"
        assert await claim(queues=["tenant-*"]) == 204
        assert await claim(queues=[*THOUSAND, "one-more"]) == 422
        assert await claim(queues=["a*b"]) == 422
        assert await claim(queues=[f"p{i}*" for i in range(17)]) == 422


def queues_of(events):
    return sorted(event["queue"] for event in events if event["event"] == "completed")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (",".join(TWO_THOUSAND[:40]), "q31 and 8 more"),
        (",".join(TWO_THOUSAND), "q31 and 1,968 more"),
        ("q*", "queues=q*"),
        ("*", "queues=*"),
    ],
    ids=["40", "2,000", "q*", "*"],
)
def test_the_command_drains_many_queues(shell, given, shown):
    for queue in ("q0", "q35", "q39"):
        shell.ok("submit", "add", '{"a": 1}', "--queue", queue)
    events = shell.work("--queues", given)
    assert events[0]["detail"].endswith(shown)
    assert queues_of(events) == ["q0", "q35", "q39"]


def test_the_command_says_which_of_many_names_are_unknown(shell):
    events = shell.work("--queues", ",".join(TWO_THOUSAND[:50]))
    (warning,) = [event["detail"] for event in events if event["event"] == "warning"]
    assert warning.count("no task of this app uses it") == 5
    assert warning.endswith("; and 45 more such queues")


def test_the_command_serves_a_pattern_over_http(shell, tmp_path):
    from sublet.connection.settings import Settings

    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    with serve_process(settings) as served:
        env = {name: shell.env.pop(name) for name in ("SUBLET_REDIS_URL", "SUBLET_NAMESPACE")}
        worker = shell.start(
            "work", "tasks:app", "--queues", "tenant-*", "--source", served.url, "--max-jobs", "1"
        )
        assert json.loads(worker.stdout.readline())["event"] == "ready"
        shell.env |= env
        shell.ok("submit", "add", '{"a": 1}', "--queue", "tenant-new")
        out, err = worker.communicate(timeout=60)
        assert queues_of(map(json.loads, out.splitlines())) == ["tenant-new"], err


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (
            "tenant-*:3,b",
            "weights need at most 32 queues and no pattern: leave out the weights, for equal turns",
        ),
        (
            "a*b",
            "queue 'a*b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone, or a beginning of a name and * for all queues",
        ),
    ],
)
def test_the_command_refuses_invalid_queues(shell, queues, words):
    assert words in shell.no(2, "work", "tasks:app", "--queues", queues)


def test_the_command_stops_at_a_signal_while_it_waits_for_a_pattern(shell):
    worker = shell.start("work", "tasks:app", "--queues", "tenant-*")
    assert json.loads(worker.stdout.readline())["event"] == "ready"
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, err) == (0, ""), out


def test_a_source_over_http_sends_the_order(monkeypatch):
    sent = []

    async def once(self, request, wait):
        sent.append(request)
        raise Invalid("enough")

    monkeypatch.setattr(HttpSource, "_claim_once", once)
    for strict in (True, False):
        source = HttpSource("http://127.0.0.1:1")
        with pytest.raises(Invalid, match="enough"):
            asyncio.run(source.claim(worker="w", queues=["a-*"], n=1, lease=30, strict=strict))
    assert [request.get("strict") for request in sent] == [True, None]
