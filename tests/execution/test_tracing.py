"""OpenTelemetry: a span around each submit and each attempt, and the thread that leads from one to the other."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from sublet import App, Context, Discard, Invalid, Settings, Snooze, Unavailable
from sublet.protocol import keys
from sublet.steps.waits import Suspended
from sublet.tracing import OpenTelemetry
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.paths import ROOT
from tests.support.workers_beside import ended

pytestmark = pytest.mark.real_server
SNIPPETS = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "guides" / "middleware.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
W3C = "00-{0.trace_id:032x}-{0.span_id:016x}-{0.trace_flags:02x}"


class Spans:
    """A provider, and the spans that it was given."""

    def __init__(self, sampler: sampling.Sampler = sampling.ALWAYS_ON) -> None:
        self.memory, self.provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name):
        return [span for span in self.memory.get_finished_spans() if span.name == name]

    def one(self, name):
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans():
    return Spans()


@pytest.fixture
async def app(place, raw):
    app = App(settings=place.settings)
    yield app
    await app.aclose()


@pytest.fixture
def traced_app(app, spans):
    OpenTelemetry(spans.provider).instrument(app)
    return app


@pytest.fixture
async def run(store):
    """Have a worker run some handles' jobs to their end, and give them as they are then."""
    return lambda app, *handles: ended(app, store, *handles)


def links(span):
    return [link.context.span_id for link in span.links]


def outcome(span):
    return (
        span.attributes["messaging.sublet.outcome"],
        span.status.status_code,
        span.attributes.get("error.type"),
    )


# spans and attributes


async def test_a_submit_and_its_attempt_are_two_linked_spans(traced_app, spans, run):
    @traced_app.task(queue="images")
    async def resize(path: str) -> str:
        return path

    handle = await resize.submit("a.png")
    await run(traced_app, handle)
    send, process = spans.one("send images"), spans.one("process images")
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (send.parent, process.parent) == (None, None)
    assert send.context.trace_id != process.context.trace_id
    assert [W3C.format(link.context) for link in process.links] == [W3C.format(send.context)]
    common = {
        "messaging.system": "sublet",
        "messaging.destination.name": "images",
        "messaging.message.id": handle.id,
    }
    common["messaging.sublet.task"] = "resize"
    assert dict(process.attributes) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.sublet.attempt": 1,
        "messaging.sublet.outcome": "completed",
    }
    where = {name: value for name, value in send.attributes.items() if name.startswith("server.")}
    assert where
    assert dict(send.attributes) == common | where | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.body.size": len('{"path":"a.png"}'),
    }
    assert send.instrumentation_scope.name == "sublet"


def test_the_names_are_those_of_the_conventions():
    text = (ROOT / "jobs" / "sublet" / "tracing.py").read_text()
    known = {
        value
        for module in (messaging_attributes, error_attributes, server_attributes)
        for name, value in vars(module).items()
        if name.isupper()
    }
    named = set(re.findall(r'"((?:messaging|error|server)\.[a-z_.]+)"', text))
    ours = {name for name in named if name.startswith("messaging.sublet.")}
    assert len(named - ours) >= 9
    assert named - ours <= known
    assert {"create", "send", "process"} <= {
        each.value for each in messaging_attributes.MessagingOperationTypeValues
    }


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://:secret@cache.internal:7000/2", {"server.address": "cache.internal", "server.port": 7000}),
        ("rediss://cache.internal", {"server.address": "cache.internal", "server.port": 6379}),
        ("unix:///run/valkey.sock", {"server.address": "/run/valkey.sock"}),
    ],
)
def test_a_producer_span_names_the_server_without_secrets(url, where):
    from sublet import tracing

    assert tracing._server(url) == where


async def test_payloads_and_results_are_never_recorded(traced_app, spans, run):
    @traced_app.task
    async def login(password: str) -> str:
        return f"token of {password}"

    (job,) = await run(traced_app, await login.submit("hunter2"))
    assert job.result == "token of hunter2"
    assert all("hunter2" not in span.to_json() for span in spans.memory.get_finished_spans())


async def test_jobs_made_for_a_bulk_submit_have_a_create_span_each(traced_app, spans, run, raw):
    @traced_app.task
    async def work(n: int) -> None: ...

    with spans.tracer.start_as_current_span("a request"):
        submitted = await traced_app.client.submit_all([work.job(n) for n in range(3)])
    worker_jobs = [await traced_app.client.get(each.id) for each in submitted]
    creates = spans.named("create default")
    assert [span.kind for span in creates] == [SpanKind.PRODUCER] * 3
    assert {span.parent.span_id for span in creates} == {spans.one("a request").context.span_id}
    assert [job.trace for job in worker_jobs] == [W3C.format(span.context) for span in creates]
    assert spans.named("send default") == []


async def test_a_submit_without_an_event_loop_is_traced_too(traced_app, spans):
    @traced_app.task
    async def work() -> None: ...

    handle = await asyncio.to_thread(work.submit_sync)
    job = await traced_app.client.get(handle.id)
    assert job.trace == W3C.format(spans.one("send default").context)


async def test_a_submit_that_fails_is_an_error(spans):
    app = App(settings=Settings(redis_url="redis://127.0.0.1:1"))
    OpenTelemetry(spans.provider).instrument(app)

    @app.task
    async def work() -> None: ...

    with pytest.raises(Unavailable):
        await work.submit()
    send = spans.one("send default")
    assert (send.status.status_code, send.attributes["error.type"]) == (
        StatusCode.ERROR,
        "sublet.errors.Unavailable",
    )
    await app.aclose()


async def test_every_attempt_is_linked_to_the_one_submit(traced_app, spans, run):
    @traced_app.task(max_attempts=3, backoff=0.01)
    async def flaky(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ConnectionError("hung up")

    await run(traced_app, await flaky.submit())
    first, second, third = spans.named("process default")
    send = spans.one("send default").context.span_id
    assert [links(span) for span in (first, second, third)] == [[send]] * 3
    assert len({span.context.trace_id for span in (first, second, third)}) == 3
    assert [span.attributes["messaging.sublet.attempt"] for span in (first, second, third)] == [1, 2, 3]
    assert [span.attributes.get("messaging.sublet.recovered") for span in (first, second)] == [
        None,
        "ConnectionError",
    ]
    assert [outcome(span) for span in (first, third)] == [
        ("failed", StatusCode.ERROR, "ConnectionError"),
        ("completed", StatusCode.UNSET, None),
    ]
    (event,) = first.events
    assert event.name == "exception"
    assert event.attributes["exception.message"] == "hung up"
    assert 'raise ConnectionError("hung up")' in event.attributes["exception.stacktrace"]


STEERS: dict[str, BaseException] = {
    "snoozed": Snooze(0.01),
    "discarded": Discard("of no use"),
    "suspended": Suspended("sleep", "nap", 0.01),
}


@pytest.mark.parametrize("word", STEERS)
async def test_snoozed_suspended_and_discarded_are_outcomes_and_not_errors(traced_app, spans, run, word):
    @traced_app.task
    async def steers(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise STEERS[word]

    await run(traced_app, await steers.submit())
    first = spans.named("process default")[0]
    assert outcome(first) == (word, StatusCode.UNSET, None)
    assert first.events == ()


async def test_a_time_out_is_an_error_by_its_own_name(traced_app, spans, run):
    @traced_app.task(timeout=0.1, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    await run(traced_app, await slow.submit())
    assert outcome(spans.one("process default")) == ("timed_out", StatusCode.ERROR, "timed_out")


async def test_a_release_by_a_stopping_worker_is_not_an_error(traced_app, spans, store):
    running = asyncio.Event()

    @traced_app.task
    async def slow() -> None:
        running.set()
        await asyncio.Event().wait()

    await slow.submit()
    worker = Worker(traced_app, store, WorkerConfig(slots=1, grace=0.0))
    async with asyncio.timeout(30):
        working = asyncio.create_task(worker.run())
        await running.wait()
        worker.stop()
        await working
    assert outcome(spans.one("process default")) == ("stopping", StatusCode.UNSET, None)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("not even its words")


async def test_an_error_that_cannot_be_read_changes_no_outcome(traced_app, spans, run):
    @traced_app.task(max_attempts=1)
    async def bad() -> None:
        raise Unspeakable

    (job,) = await run(traced_app, await bad.submit())
    assert [line.code for line in job.attempts] == ["Unspeakable"]
    word, status, kind = outcome(spans.one("process default"))
    assert (word, status) == ("failed", StatusCode.ERROR)
    assert kind.endswith("Unspeakable")


# propagation


async def test_only_the_traceparent_is_passed_on(traced_app, spans, raw, place):
    @traced_app.task(priority=5)
    async def work() -> None: ...

    far = SpanContext(
        1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "secret")])
    )
    token = context.attach(
        baggage.set_baggage("user", "ann", trace.set_span_in_context(NonRecordingSpan(far)))
    )
    try:
        handle = await work.submit()
    finally:
        context.detach(token)
    spec = raw.hget(keys.job(keys.base(place.settings.namespace), handle.id), "spec")
    (word,) = re.findall(r" (trace=\S+)\n", spec)
    assert " priority=5 " in spec
    assert len(word) == len("trace=") + 55
    assert word == "trace=" + W3C.format(spans.one("send default").context)
    assert "secret" not in spec
    assert "ann" not in spec


async def test_a_job_without_tracing_carries_nothing(app, raw, place):
    @app.task
    async def work() -> None: ...

    handle = await work.submit()
    assert "trace" not in raw.hget(keys.job(keys.base(place.settings.namespace), handle.id), "spec")
    assert (await handle.get()).trace is None


@pytest.mark.parametrize(
    "foreign", ["00", "00-ab", "ff-" + "1" * 32 + "-" + "1" * 16 + "-01", "0" * 55, "a" * 128]
)
async def test_an_invalid_traceparent_is_ignored(traced_app, spans, run, foreign):
    @traced_app.task
    async def work() -> None: ...

    job = work.job()
    job = job._replace(rules=re.sub(r"trace=\S+", f"trace={foreign}", job.rules))
    assert foreign in job.rules
    (submitted,) = await traced_app.client.submit_all([job])
    handle = type("Held", (), {"result": lambda _, t: traced_app.client.result(submitted.id, t)})()
    handle.get = lambda: traced_app.client.get(submitted.id)
    (done,) = await run(traced_app, handle)
    process = spans.one("process default")
    assert (done.state, process.links, process.parent) == ("completed", (), None)


@pytest.mark.parametrize(
    "words",
    ["", "nonsense", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "é" * 55, "00-" + "G" * 52, "-" * 600],
)
def test_an_invalid_trace_has_no_submitter(words):
    from sublet import tracing

    assert tracing._submit_span(words) is None


async def test_an_unsampled_job_still_carries_its_parent(app, run):
    off = Spans(sampling.ALWAYS_OFF)
    OpenTelemetry(off.provider).instrument(app)

    @app.task
    async def work() -> None: ...

    handle = await work.submit()
    (job,) = await run(app, handle)
    assert int(job.trace[-2:], 16) % 2 == 0
    assert (job.state, off.memory.get_finished_spans()) == ("completed", ())


@pytest.mark.parametrize("within", [False, True])
async def test_with_the_api_alone_a_context_is_passed_on_but_not_created(app, run, within):
    OpenTelemetry(trace.NoOpTracerProvider()).instrument(app)

    @app.task
    async def work() -> None: ...

    far = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(far)) if within else context.Context())
    try:
        handle = await work.submit()
    finally:
        context.detach(token)
    (job,) = await run(app, handle)
    assert (job.state, job.trace) == ("completed", W3C.format(far) if within else None)


# how spans hang together


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_jobs_that_a_task_submits_belong_to_its_span(traced_app, spans, run, where):
    @traced_app.task(queue="second")
    async def second() -> None: ...

    async def on_the_loop() -> None:
        with spans.tracer.start_as_current_span("a step of the task"):
            await second.submit()

    def in_a_thread() -> None:
        with spans.tracer.start_as_current_span("a step of the task"):
            second.submit_sync()

    first = traced_app.task(on_the_loop) if where == "loop" else traced_app.task(run="thread")(in_a_thread)
    await run(traced_app, await first.submit())
    process, step, send = (
        spans.one("process default"),
        spans.one("a step of the task"),
        spans.one("send second"),
    )
    assert step.parent.span_id == process.context.span_id
    assert send.parent.span_id == step.context.span_id
    assert send.context.trace_id == process.context.trace_id


async def test_tasks_side_by_side_do_not_mix_their_spans(traced_app, spans, run):
    both = asyncio.Barrier(2)

    @traced_app.task
    async def step(name: str) -> None:
        await both.wait()
        with spans.tracer.start_as_current_span(name):
            await both.wait()

    await run(traced_app, await step.submit("a"), await step.submit("b"))
    parents = {spans.one(name).parent.span_id for name in ("a", "b")}
    assert parents == {span.context.span_id for span in spans.named("process default")}
    assert len(parents) == 2


async def test_a_worker_inside_a_span_is_the_parent_of_its_attempts(traced_app, spans, run):
    @traced_app.task
    async def work() -> None: ...

    handle = await work.submit()
    with spans.tracer.start_as_current_span("an invocation") as around:
        await run(traced_app, handle)
    process = spans.one("process default")
    assert process.parent.span_id == around.get_span_context().span_id
    assert links(process) == [spans.one("send default").context.span_id]


async def test_the_submitter_may_be_the_parent(app, spans, run):
    OpenTelemetry(spans.provider, parent=True).instrument(app)

    @app.task
    async def work() -> None: ...

    handle = await work.submit()
    with spans.tracer.start_as_current_span("an invocation") as around:
        await run(app, handle)
    send, process = spans.one("send default").context, spans.one("process default")
    assert (process.parent.span_id, process.context.trace_id) == (send.span_id, send.trace_id)
    assert links(process) == [send.span_id, around.get_span_context().span_id]


async def test_an_app_is_instrumented_once_and_other_hooks_stay(app, spans, run):
    seen = []

    @contextmanager
    def marks(job, operation) -> Iterator:
        seen.append((operation, "trace=" in job.rules))
        yield job._replace(rules=f"{job.rules} priority=7".strip())

    app.submit_middleware = marks
    OpenTelemetry(spans.provider).instrument(app)
    with pytest.raises(Invalid, match="instrumented already"):
        OpenTelemetry().instrument(app)

    @app.task
    async def work() -> None: ...

    (job,) = await run(app, await work.submit())
    assert (seen, job.priority, job.trace is not None) == ([("send", True)], 7, True)


# when it is not there

WITHOUT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Nothing())
"""


def python(text):
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_tracing_is_imported_only_on_request():
    """OpenTelemetry's API itself may be there all the same: redis-py imports it where it finds it."""
    text = "import sys, sublet, sublet.worker.worker, sublet.execution.child_main, sublet.cli.main, sublet_functions.work\nassert sublet.App\n"
    done = python(text + "assert 'sublet.tracing' not in sys.modules")
    assert done.returncode == 0, done.stderr
    own = [*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    assert [
        path.name for path in own if re.search(r"^\s*(from|import) opentelemetry", path.read_text(), re.M)
    ] == ["tracing.py"]


def test_without_opentelemetry_the_error_names_the_package_to_install():
    done = python(
        WITHOUT
        + "import sublet.worker.worker, sublet.execution.child_main, sublet_functions.work\nfrom sublet.tracing import OpenTelemetry\n"
    )
    assert done.returncode == 1
    words = "sublet.tracing needs OpenTelemetry's API: pip install 'PATH/TO/THE/CHECKOUT[otel]'"
    assert done.stderr.splitlines()[-1] == f"ImportError: {words}"


# the page


def test_the_documents_snippet_works_as_written(tmp_path, place, raw):
    (tmp_path / "shop.py").write_text(SNIPPETS[2])
    program = "import asyncio, shop\nfrom sublet_functions.work import work\n" + (
        "async def main():\n"
        "    handle = await shop.resize.submit('a.png')\n"
        "    await work(shop.app, drain=True)\n"
        "    print(await handle.result())\n"
        "    await shop.app.aclose()\n"
        "asyncio.run(main())\n"
    )
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "small-a.png" in done.stdout
    printed = done.stdout + done.stderr  # a child's output goes to stderr
    assert set(re.findall(r'"name": "([a-z ]+)"', printed)) == {"send default", "load", "process default"}
