"""Runs scenarios, several at a time: each has a server, a namespace and processes of its own."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from jobs.chaos.scenario import Finding, Scenario, faults_of
from jobs.chaos.servers import Missing
from jobs.chaos.stage import Stage

AT_ONCE = 6
"""Scenarios that run side by side: most of each is waiting."""
LOOKS = 2
"""How often a scenario is looked at again, alone, if a long hold is all that is wrong with it."""
HEARING = 0.2
"""Seconds after which a signal is heard at the latest: one may come where a thread that waits for good does not notice."""


@dataclass(frozen=True, slots=True)
class Run:
    """How scenarios are run: with what chance, where, and with which server; `stop` ends them all."""

    quick: bool
    seed: int
    url: str = ""
    binary: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def one(self, scenario: Scenario) -> Finding:
        """Run one scenario to its verdict. What breaks it is a finding too."""
        begin = time.monotonic()
        try:
            with self._stage(scenario) as stage:
                scenario.make(stage)
                verdict = stage.settle(exact="twice" in scenario.promises)
                hold, notes = stage.hold, stage.notes
                faults = (*stage.faults, *faults_of(scenario, verdict, hold))
        except Missing as error:
            return Finding(scenario, None, None, time.monotonic() - begin, (), str(error))
        except Exception as error:  # noqa: BLE001  # one that breaks must not take the others' findings with it
            return Finding(scenario, None, None, time.monotonic() - begin, (f"it broke: {type(error).__name__}: {error}",))
        return Finding(scenario, verdict, hold, time.monotonic() - begin, faults, notes=notes)

    def lacks(self, scenario: Scenario) -> str:
        """Why a scenario cannot be run here, found before it is; empty where it can."""
        if scenario.clock or scenario.valkey:
            try:
                self._stage(scenario).close()
            except Missing as error:
                return str(error)
        return ""

    def _seconds(self, scenario: Scenario) -> float:
        return scenario.seconds[0 if self.quick else 1]

    def _stage(self, scenario: Scenario) -> Stage:
        server, seed = {"binary": self.binary} | scenario.server, f"{self.seed} {scenario.name}"
        stage = Stage(
            seconds=self._seconds(scenario), seed=seed, url=self.url, server=server, clock=scenario.clock, stop=self.stop
        )
        if scenario.valkey and stage.version < scenario.valkey:
            stage.close()
            raise Missing(f"it takes Valkey {'.'.join(map(str, scenario.valkey))} or newer, and this server is another")
        return stage

    def all(self, chosen: Sequence[Scenario]) -> Iterator[Finding]:
        """Run them, and give each finding as it comes; one whose only fault is a long hold is looked at again."""
        slow = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            runs = [pool.submit(self.one, each) for each in sorted(chosen, key=self._seconds, reverse=True)]
            try:
                for finding in _as_they_come(runs):
                    if finding.slow:
                        slow.append(finding.scenario)
                    else:
                        yield finding
            finally:
                if not all(run.done() for run in runs):  # nobody wants the others
                    self.stop.set()
                for run in runs:
                    run.cancel()
        for each in slow:
            yield self._alone(each)

    def _alone(self, scenario: Scenario) -> Finding:
        """A neighbour may have held the server's processor: a hold is a fault when it is there each time."""
        finding = self.one(scenario)
        for _ in range(LOOKS - 1):
            if finding.slow and not self.stop.is_set():
                finding = self.one(scenario)
        return finding


def _as_they_come(runs: Sequence[Future[Finding]]) -> Iterator[Finding]:
    pending = set(runs)
    while pending:
        done, pending = wait(pending, HEARING, FIRST_COMPLETED)
        yield from (run.result() for run in done)
