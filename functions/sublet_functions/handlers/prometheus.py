"""Metrics in Prometheus's text format."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sublet.operations.statistics import BOUNDS, OTHERS, QueueNumbers, Times
from sublet_functions.handlers.statistics import NamespaceStatistics

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNSERVED = 100
"""Most queues that `sublet_jobs_unserved` names."""
_LE = (*(str(bound / 1000) for bound in BOUNDS), "+Inf")


async def exposition(found: NamespaceStatistics) -> bytes:
    """Return a namespace's metrics as text."""
    return await asyncio.to_thread(_text, found)


def _text(found: NamespaceStatistics) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_NamespaceCollector(found))
    return generate_latest(registry)


class _NamespaceCollector(Collector):
    def __init__(self, found: NamespaceStatistics) -> None:
        self._found = found

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from _jobs(self._found)
        yield from _outcomes(self._found)
        yield from _losses(self._found.totals)
        yield from _namespace(self._found)


def _jobs(found: NamespaceStatistics) -> Iterator[Metric]:
    jobs = GaugeMetricFamily(
        "sublet_jobs", "Scheduled, queued and running jobs, by queue and state.", labels=("queue", "state")
    )
    oldest = GaugeMetricFamily(
        "sublet_oldest_queued_seconds",
        "Seconds since the job at the head of the queue was due; 0 for an empty queue.",
        labels=("queue",),
    )
    held = GaugeMetricFamily(
        "sublet_jobs_held", "Queued jobs that limits of what runs hold back, by queue.", labels=("queue",)
    )
    for queue in found.queues:
        if queue.name != OTHERS:
            held.add_metric((queue.name,), queue.held)
            for state, count in (
                ("scheduled", queue.scheduled),
                ("queued", queue.queued),
                ("running", queue.running),
            ):
                jobs.add_metric((queue.name, state), count)
            oldest.add_metric((queue.name,), found.oldest.get(queue.name, 0.0))
    kept = GaugeMetricFamily(
        "sublet_jobs_kept", "Ended jobs that are still kept, by state.", labels=("state",)
    )
    for state in ("completed", "dead", "cancelled"):
        kept.add_metric((state,), found.sizes[state])
    yield from (jobs, kept, oldest, held)


def _outcomes(found: NamespaceStatistics) -> Iterator[Metric]:
    yield CounterMetricFamily("sublet_jobs_submitted", "Jobs submitted.", found.totals["submitted"])
    finished = CounterMetricFamily(
        "sublet_jobs_finished", "Jobs that ended, by queue and outcome.", labels=("queue", "outcome")
    )
    for queue in found.queues:
        for outcome, count in (
            ("completed", queue.completed.count),
            ("dead", queue.dead),
            ("cancelled", queue.cancelled),
        ):
            finished.add_metric((queue.name, outcome), count)
    yield finished
    yield _histogram(
        "sublet_job_wait_seconds",
        "Time from a job's due time to its first claim.",
        ((queue, queue.wait) for queue in found.queues),
    )
    yield _histogram(
        "sublet_job_run_seconds",
        "Time from a claim to the accepted result or failure.",
        ((queue, queue.completed + queue.failed) for queue in found.queues),
    )


def _losses(totals: Mapping[str, int]) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "sublet_unknown_task",
        "Jobs released because the worker has no such task.",
        totals["unknown_task"],
    )
    yield CounterMetricFamily(
        "sublet_leases_expired",
        "Leases that expired without a heartbeat, or whose worker had ended.",
        totals["expired"],
    )
    yield CounterMetricFamily(
        "sublet_jobs_forgotten",
        "Dead and cancelled jobs deleted before the end of their retention, because of a limit.",
        totals["forgotten"],
    )
    yield CounterMetricFamily(
        "sublet_results_forgotten",
        "Completed jobs deleted before the end of their retention, because of a limit.",
        totals["forgotten_results"],
    )
    yield CounterMetricFamily(
        "sublet_jobs_missing",
        "Scheduled, queued or running jobs whose data another program, or an eviction, had deleted.",
        totals["missing"],
    )
    refused = CounterMetricFamily(
        "sublet_refused",
        "Refused calls: outcomes under a lost lease, jobs for a full queue.",
        labels=("reason",),
    )
    for reason in ("lease_lost", "queue_full"):
        refused.add_metric((reason,), totals[reason])
    yield refused


def _histogram(name: str, description: str, times: Iterable[tuple[QueueNumbers, Times]]) -> Metric:
    histogram = HistogramMetricFamily(name, description, labels=("queue",))
    for queue, took in times:
        if took.count:
            buckets = []
            upto = 0
            for le, count in zip(_LE, took.classes, strict=True):
                upto += count
                buckets.append((le, float(upto)))
            histogram.add_metric((queue.name,), buckets, took.total_ms / 1000)
    return histogram


def _unserved(queues: Mapping[str, int]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "sublet_queues_unserved",
        "Queues with queued jobs that no worker of the last minute and no pool with an invoker serves.",
        len(queues),
    )
    jobs = GaugeMetricFamily(
        "sublet_jobs_unserved", "Queued jobs of these queues; at most a hundred queues.", labels=("queue",)
    )
    for name, count in list(queues.items())[:UNSERVED]:
        jobs.add_metric((name,), count)
    yield jobs


def _namespace(found: NamespaceStatistics) -> Iterator[Metric]:
    yield from _unserved(found.unserved)
    yield GaugeMetricFamily("sublet_workers", "Workers with a heartbeat in the last minute.", found.workers)
    if found.maintenance_age is not None:
        yield GaugeMetricFamily(
            "sublet_maintenance_age_seconds",
            "Seconds since the last maintenance by a worker or a tick.",
            found.maintenance_age,
        )
    yield GaugeMetricFamily(
        "sublet_queues_left_out",
        "Queues left out of these metrics: only the thousand busiest are read.",
        found.left_out,
    )
