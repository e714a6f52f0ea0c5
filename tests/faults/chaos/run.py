"""Runs scenarios, several at a time: each has a server, a namespace and processes of its own."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tests.faults.chaos.harness import Harness
from tests.faults.chaos.scenario import Finding, Scenario, failures_of
from tests.faults.chaos.servers import Missing

AT_ONCE = (6, 2, 2)
"""Scenarios that run side by side, for most of each is waiting; and when those are looked at again whose only fault is a long
script_time, for a neighbour may have held the server's processor: two at a time, twice at most."""
SIGNAL_POLL = 0.2
"""Seconds after which a signal is heard at the latest: one may come where a thread that waits for good does not notice."""


@dataclass(frozen=True, slots=True)
class Run:
    """How scenarios are run: with what chance, where, and with which server; `stop` ends them all."""

    quick: bool
    seed: int
    url: str = ""
    binary: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def run_one(self, scenario: Scenario) -> Finding:
        """Run one scenario to its verdict. What breaks it is a finding too."""
        begin = time.monotonic()
        try:
            with self._harness(scenario) as harness:
                scenario.run(harness)
                verdict = harness.settle(exact="twice" in scenario.promises)
                script_time, notes = harness.script_time, harness.notes
                failures = (*harness.failures, *failures_of(scenario, verdict, script_time))
        except Missing as error:
            return Finding(scenario, None, None, time.monotonic() - begin, (), str(error))
        except Exception as error:  # noqa: BLE001  # one that breaks must not take the others' findings with it
            return Finding(
                scenario,
                None,
                None,
                time.monotonic() - begin,
                (f"error: {type(error).__name__}: {error}",),
            )
        return Finding(scenario, verdict, script_time, time.monotonic() - begin, failures, notes=notes)

    def unavailable(self, scenario: Scenario) -> str:
        """Why a scenario cannot be run here, found before it is; empty where it can."""
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
        """Run them, and give each finding as it comes. A long script_time is a fault when it is there each time."""
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
                if not all(run.done() for run in runs):  # nobody wants the others
                    self.stop.set()
                for run in runs:
                    run.cancel()


def _completed(runs: Sequence[Future[Finding]]) -> Iterator[Finding]:
    pending = set(runs)
    while pending:
        done, pending = wait(pending, SIGNAL_POLL, FIRST_COMPLETED)
        yield from (run.result() for run in done)
