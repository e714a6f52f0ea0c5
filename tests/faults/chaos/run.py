"""Run scenarios concurrently, each with its own server, namespace and processes."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tests.faults.chaos.harness import Harness
from tests.faults.chaos.scenario import Finding, Scenario, failures_of
from tests.faults.chaos.servers import Missing

AT_ONCE = (6, 2, 2)
"""Concurrent scenarios, in the first run and in two further ones. Those repeat scenarios whose only failure
is a long script, because other processes may have used the server's processor."""
SIGNAL_POLL = 0.2
"""Seconds between checks for signals, which a thread in an endless wait would not notice."""


@dataclass(frozen=True, slots=True)
class Run:
    """Parameters of a run. `stop` interrupts it."""

    quick: bool
    seed: int
    url: str = ""
    binary: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run_one(self, scenario: Scenario) -> Finding:
        """Run one scenario. An exception becomes a finding."""
        begin = time.monotonic()
        try:
            with self._harness(scenario) as harness:
                scenario.run(harness)
                verdict = harness.settle(exact="twice" in scenario.promises)
                script_time, notes = harness.script_time, harness.notes
                failures = (*harness.failures, *failures_of(scenario, verdict, script_time))
        except Missing as error:
            return Finding(scenario, None, None, time.monotonic() - begin, (), str(error))
        except Exception as error:  # noqa: BLE001  the other findings must survive
            return Finding(
                scenario,
                None,
                None,
                time.monotonic() - begin,
                (f"error: {type(error).__name__}: {error}",),
            )
        return Finding(scenario, verdict, script_time, time.monotonic() - begin, failures, notes=notes)

    def unavailable(self, scenario: Scenario) -> str:
        """Why a scenario cannot run here; empty if it can."""
        if scenario.clock or scenario.valkey:
            try:
                self._harness(scenario).close()
            except Missing as error:
                return str(error)
        return ""

    def _seconds(self, scenario: Scenario) -> float:
        return scenario.seconds[0 if self.quick else 1]

    def _harness(self, scenario: Scenario) -> Harness:
        server, seed = {"binary": self.binary} | scenario.server, f"{self.seed} {scenario.name}"
        harness = Harness(
            seconds=self._seconds(scenario),
            seed=seed,
            url=self.url,
            server=server,
            clock=scenario.clock,
            stop=self.stop,
        )
        if scenario.valkey and harness.version < scenario.valkey:
            harness.close()
            raise Missing(f"it needs Valkey {'.'.join(map(str, scenario.valkey))} or newer")
        return harness

    def run_all(self, chosen: Sequence[Scenario]) -> Iterator[Finding]:
        """Run the scenarios, and yield each finding. A long script is a failure only if it occurs in all
        three runs.
        """
        left = [*chosen]
        for look, at_once in enumerate(AT_ONCE, 1):
            slow = []
            for finding in self._run_concurrently(left, at_once):
                if finding.slow and look < len(AT_ONCE) and not self.stop.is_set():
                    slow.append(finding.scenario)
                else:
                    yield finding
            left = slow

    def _run_concurrently(self, chosen: Sequence[Scenario], at_once: int) -> Iterator[Finding]:
        with ThreadPoolExecutor(at_once) as pool:
            runs = [
                pool.submit(self.run_one, each) for each in sorted(chosen, key=self._seconds, reverse=True)
            ]
            try:
                yield from _completed(runs)
            finally:
                if not all(run.done() for run in runs):  # the caller has stopped iterating
                    self.stop.set()
                for run in runs:
                    run.cancel()


def _completed(runs: Sequence[Future[Finding]]) -> Iterator[Finding]:
    pending = set(runs)
    while pending:
        done, pending = wait(pending, SIGNAL_POLL, FIRST_COMPLETED)
        yield from (run.result() for run in done)
