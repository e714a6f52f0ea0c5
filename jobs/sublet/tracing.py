"""OpenTelemetry: a span for each `Task.submit`, `submit_sync`, `Task.job` and attempt, not `client.submit`.

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/ (status: development). A job carries
one W3C `traceparent`, without `tracestate` and baggage. A span has an exception's message and stack, never
payloads and results.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sublet.connection.url import servers
from sublet.context import Context, Discard, Snooze
from sublet.errors import Invalid
from sublet.model import Submission
from sublet.source_tree import install_command
from sublet.steps.waits import Suspended

try:
    from opentelemetry import context as otel
    from opentelemetry import trace
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(f"sublet.tracing needs OpenTelemetry's API: {install_command('otel')}") from error

if TYPE_CHECKING:
    from sublet.app import App, SubmitMiddleware

SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"
PROPAGATOR: Final = TraceContextTextMapPropagator()
ENDED: Final = {
    "timed_out": "the task was ended at its timeout",
    "stalled": "the task was ended because it reported no progress",
}


class OpenTelemetry:
    """Makes OpenTelemetry spans of an app's submits and attempts. Call `instrument` in the app's module, so
    that child processes trace, too.

    Spans go to `tracer_provider`, by default the global one. An attempt's span links to the submit's span;
    with `parent` it is a child of that.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, parent: bool = False) -> None:
        self._tracer = trace.get_tracer("sublet", tracer_provider=tracer_provider, schema_url=SCHEMA)
        self._parent = parent

    def instrument(self, app: "App") -> None:
        """Begin to trace an app. Raises Invalid if the app is traced already."""
        if any(isinstance(getattr(hook, "__self__", None), OpenTelemetry) for hook in app.hooks):
            raise Invalid("this app is instrumented already: call `instrument` once for each app")
        app.submit_middleware = partial(self._produce, app, app.submit_middleware)
        app.middleware(self._consume)

    @contextmanager
    def _produce(
        self, app: "App", inner: "SubmitMiddleware | None", job: Submission, operation: str
    ) -> Iterator[Submission]:
        attributes = _messaging(operation, job.queue, job.id, job.task)
        attributes["messaging.message.body.size"] = len(job.payload)
        if operation == "send":
            attributes |= _server(app.settings.redis_url)
        with _current(
            self._tracer.start_span(f"{operation} {job.queue}", None, SpanKind.PRODUCER, attributes)
        ) as span:
            try:
                carrying = _with_context(job)
                with inner(carrying, operation) if inner else nullcontext(carrying) as sent:
                    yield sent
            except BaseException as error:
                _record(span, error)
                raise

    @contextmanager
    def _consume(self, ctx: Context) -> Iterator[None]:
        attributes = {
            **_messaging("process", ctx.queue, ctx.id, ctx.task),
            "messaging.sublet.attempt": ctx.attempt,
        }
        if ctx.recovered:
            attributes["messaging.sublet.recovered"] = ctx.recovered
        submit_span, enclosing = _submit_span(ctx.trace), trace.get_current_span().get_span_context()
        linked, context = [submit_span] if submit_span else [], None
        if self._parent and submit_span:
            context = trace.set_span_in_context(trace.NonRecordingSpan(submit_span))
            linked += [enclosing] if enclosing.is_valid else []
        links = [Link(each) for each in linked]
        name = f"process {ctx.queue}"
        with _current(self._tracer.start_span(name, context, SpanKind.CONSUMER, attributes, links)) as span:
            outcome = "completed"
            try:
                yield
            except BaseException as error:
                outcome = _outcome(ctx, error)
                if outcome == "failed":
                    _record(span, error)
                elif outcome in ENDED:
                    span.set_attribute("error.type", outcome)
                    span.set_status(StatusCode.ERROR, ENDED[outcome])
                raise
            finally:
                span.set_attribute("messaging.sublet.outcome", outcome)


def _messaging(operation: str, queue: str, job_id: str, task: str) -> dict[str, str | int]:
    return {
        "messaging.system": "sublet",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": job_id,
        "messaging.sublet.task": task,
    }


def _with_context(job: Submission) -> Submission:
    carried: dict[str, str] = {}
    PROPAGATOR.inject(carried)
    return job._replace(rules=f"{job.rules} trace={carried['traceparent']}".lstrip()) if carried else job


def _server(url: str) -> dict[str, str | int]:
    parts = urlsplit(next(servers(url)))  # of several servers, the first; never the password
    if parts.scheme == "unix":
        return {"server.address": parts.path}
    return {"server.address": parts.hostname or "localhost", "server.port": parts.port or 6379}


def _submit_span(traceparent: str) -> SpanContext | None:
    found = trace.get_current_span(
        PROPAGATOR.extract({"traceparent": traceparent}, otel.Context())
    ).get_span_context()
    return found if found.is_valid else None


def _current(span: Span) -> AbstractContextManager[Span]:
    # without an SDK the span is invalid; with older APIs it would hide the enclosing one
    if not span.get_span_context().is_valid:
        return nullcontext(span)
    return trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False)


def _outcome(ctx: Context, error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError) and ctx.ending:
        return ctx.ending
    if isinstance(error, Snooze):
        return "snoozed"
    if isinstance(error, Suspended):
        return "suspended"
    return "discarded" if isinstance(error, Discard) else "failed"


def _record(span: Span, error: BaseException) -> None:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute("error.type", name)
    try:
        span.record_exception(error)
        words = f"{name}: {error}"
    except Exception:  # noqa: BLE001  # a user's __str__ may raise anything
        words = name
    span.set_status(StatusCode.ERROR, words[:1024])
