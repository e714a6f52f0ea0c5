"""Redis's state in Prometheus's words, made anew for each scrape.

Every process of a fleet tells the same numbers: scrape one of them, or take `max by (…)`.
"""

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sublet.operations.statistics import BOUNDS, OTHERS, QueueNumbers, Times
from sublet.store.store import Store
from sublet_functions.handlers.statistics import Numbers, look

TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of Prometheus's text format."""
_LE = (*(str(bound / 1000) for bound in BOUNDS), "+Inf")


async def exposition(store: Store) -> bytes:
    """The numbers of a namespace as text. Raises Unavailable."""
    return await asyncio.to_thread(
        _text, await look(store)
    )  # a thousand queues are a megabyte: others are served meanwhile


def _text(numbers: Numbers) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Look(numbers))
    return generate_latest(registry)


class _Look(Collector):
    """One look at the namespace, as prometheus-client collects it."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def describe(self) -> Iterable[Metric]:
        """Nothing: nobody else is in the registry whose names could be the same."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Everything, once."""
        yield from _jobs(self._numbers)
        yield from _ended(self._numbers)
        yield from _house(self._numbers)


def _jobs(numbers: Numbers) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "sublet_jobs", "Jobs that wait or run, by queue and state.", labels=("queue", "state")
    )
    oldest = GaugeMetricFamily(
        "sublet_oldest_queued_seconds",
        "For how long the next job of a queue has been due; 0 when none waits.",
        labels=("queue",),
    )
    for queue in numbers.queues:
        if queue.name != OTHERS:
            for state, count in (
                ("scheduled", queue.scheduled),
                ("queued", queue.queued),
                ("running", queue.running),
            ):
                jobs.add_metric((queue.name, state), count)
            oldest.add_metric((queue.name,), numbers.oldest.get(queue.name, 0.0))
    kept = GaugeMetricFamily(
        "sublet_jobs_kept", "Finished jobs that are not forgotten yet, by state.", labels=("state",)
    )
    for state in ("completed", "dead", "cancelled"):
        kept.add_metric((state,), numbers.sizes[state])
    yield from (jobs, kept, oldest)


def _ended(numbers: Numbers) -> Iterator[Metric]:
    totals = numbers.totals
    yield CounterMetricFamily("sublet_jobs_submitted", "Jobs that were taken in.", totals["submitted"])
    finished = CounterMetricFamily(
        "sublet_jobs_finished", "Jobs that ended, by queue and outcome.", labels=("queue", "outcome")
    )
    for queue in numbers.queues:
        for outcome, count in (
            ("completed", queue.completed.count),
            ("dead", queue.dead),
            ("cancelled", queue.cancelled),
        ):
            finished.add_metric((queue.name, outcome), count)
    yield finished
    yield _histogram(
        "sublet_job_wait_seconds",
        "From when a job was to run for the first time to its first claim.",
        ((queue, queue.wait) for queue in numbers.queues),
    )
    yield _histogram(
        "sublet_job_run_seconds",
        "From a claim to the result, or the failure, that was accepted.",
        ((queue, queue.completed + queue.failed) for queue in numbers.queues),
    )
    yield CounterMetricFamily(
        "sublet_leases_expired", "Leases whose worker was not heard of in time, or gone.", totals["expired"]
    )
    yield CounterMetricFamily(
        "sublet_jobs_forgotten",
        "Dead and cancelled jobs forgotten before their time: too many.",
        totals["forgotten"],
    )
    refused = CounterMetricFamily(
        "sublet_refused",
        "What was refused: endings under a lost lease, jobs for a full queue.",
        labels=("reason",),
    )
    for reason in ("lease_lost", "queue_full"):
        refused.add_metric((reason,), totals[reason])
    yield refused


def _histogram(name: str, says: str, times: Iterable[tuple[QueueNumbers, Times]]) -> Metric:
    """One of the scripts' histograms; a queue of which nothing was timed yet has none."""
    found = HistogramMetricFamily(name, says, labels=("queue",))
    for queue, took in times:
        if took.count:
            buckets, upto = [], 0
            for le, count in zip(_LE, took.classes, strict=True):
                upto += count
                buckets.append((le, float(upto)))
            found.add_metric((queue.name,), buckets, took.total_ms / 1000)
    return found


def _house(numbers: Numbers) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "sublet_workers", "Workers that were heard of in the last minute.", numbers.workers
    )
    if numbers.upkeep_age is not None:
        yield GaugeMetricFamily(
            "sublet_upkeep_age_seconds",
            "Since what was due was last moved, or a tick looked for some.",
            numbers.upkeep_age,
        )
    yield GaugeMetricFamily(
        "sublet_queues_left_out", "Queues that are not told of, as there are too many.", numbers.left_out
    )
