"""Traced tasks, in a module that a child process can import. Spans go as lines of JSON to the file named by
SUBLET_TEST_SPANS."""

import os
import time
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from sublet import App
from sublet.tracing import OpenTelemetry


class ToFile(SpanExporter):
    """Appends each span to a file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ.get("SUBLET_TEST_SPANS", os.devnull), "a") as file:
            file.writelines(f"{os.getpid()} {span.to_json(indent=None)}\n" for span in spans)
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
batching = TracerProvider()
batching.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=3_600_000))

app, batched = App(), App()
OpenTelemetry(provider).instrument(app)
OpenTelemetry(batching).instrument(batched)


@app.task
def submits_from_a_child(url: str, namespace: str) -> str:
    """Submit from a child process, and so with a client of its own."""
    elsewhere = App(url, namespace=namespace)
    elsewhere.submit_middleware = app.submit_middleware

    @elsewhere.task
    async def later() -> None: ...

    try:
        with trace.get_tracer("test", tracer_provider=provider).start_as_current_span("a step of the task"):
            return later.submit_sync().id
    finally:
        elsewhere.sync.close()


@app.task(timeout=0.5, max_attempts=1)
def stuck_in_a_child() -> None:
    while True:
        time.sleep(0.01)


@app.task(max_attempts=1)
def fails_in_a_child() -> None:
    raise LookupError("not there")


@batched.task
def in_a_batch() -> int:
    return os.getpid()
