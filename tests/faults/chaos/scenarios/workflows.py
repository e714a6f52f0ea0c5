"""Faults while jobs wait for others, and their callbacks have steps."""

import json
from collections.abc import Mapping

from sublet.model import Job, State
from tests.faults.chaos import workflows as judge
from tests.faults.chaos.crew import Crew
from tests.faults.chaos.final_state import ended
from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.scenarios.failover import BACK, Pair
from tests.faults.chaos.scenarios.servers import WRITTEN
from tests.faults.chaos.tasks import SEEN
from tests.faults.chaos.verdict import percentile
from tests.faults.chaos.workflows import Woven

RATE = 2.0
"""Workflows per second of each of two producers."""
FIRST = 5
"""Workflows that are stored before the first fault."""


class Loom:
    """The producers of workflows. `plain`: see their module."""

    def __init__(self, harness: Harness, plain: bool = False) -> None:
        self.harness, self.plain, self.made = harness, plain, 0
        harness.processes.env |= {SEEN: str(harness.ledger.folder)}

    def start(self) -> None:
        """Start a producer."""
        self.made += 1
        name, processes = f"weaver-{self.made}", self.harness.processes
        words = [name, str(self.harness.ledger.path(name)), str(RATE), *["plain"] * self.plain]
        processes.start_writer(name, "tests.faults.chaos.weaver", words)

    def kill(self) -> None:
        """Kill a producer, perhaps between two calls of a workflow, and start another one."""
        with self.harness.fault("SIGKILL of a producer"):
            producers = [each for each in self.harness.processes.producers if each.is_running]
            self.harness.random.choice(producers).kill()
        self.start()

    def woven(self) -> list[Woven]:
        """The workflows that were acknowledged."""
        found = [Woven(*json.loads(entry.detail)) for entry in self.harness.ledger.of("woven")]
        return [flow._replace(edges=[(first, then) for first, then in flow.edges]) for flow in found]

    def until_begun(self) -> None:
        """Wait until some workflows are stored, and jobs of them done."""
        self.harness.until(lambda: len(self.harness.ledger.of("woven")) >= FIRST, "workflows are stored")
        self.harness.until(lambda: len(self.harness.ledger.of("completed")) >= FIRST, "jobs are completed")

    def judge(self, jobs: Mapping[str, Job]) -> None:
        """Judge all workflows at the end. Losses are judged by the ledger."""
        harness, woven, ledger = self.harness, self.woven(), self.harness.ledger
        expect, notes = harness.expect, harness.notes
        stuck = [flow.id for flow in woven if not self._has_ended(flow, jobs)]
        callbacks = [flow.jobs[-1] for flow in woven if flow.jobs[-1] in jobs]
        undone = [job_id for job_id in callbacks if jobs[job_id].state is not State.COMPLETED]
        early = judge.too_early(woven, jobs)
        twice = judge.charged_twice((entry.id, entry.detail) for entry in ledger.of("charged"))
        refused = [entry.detail for entry in ledger.of("refused-workflow")]
        expect(not stuck, f"{len(stuck)} workflows have not ended, e.g. {stuck[:1]}")
        expect(not undone, f"{len(undone)} callbacks were not completed, e.g. {undone[:1]}")
        expect(not early, f"{len(early)} jobs began too early, e.g. {early[:1]}")
        expect(self.plain or not twice, f"{len(twice)} jobs saw two results of a step, e.g. {twice[:1]}")
        expect(all("was cancelled" in words for words in refused), f"workflows were refused: {refused[:1]}")
        waits = judge.delays(woven, jobs)
        notes |= {
            "workflows": len(woven), "edges": sum(len(flow.edges) for flow in woven), "callbacks": len(callbacks),
            "largest": max((len(flow.jobs) for flow in woven), default=0), "refused": len(refused),
            "charged": len({entry.id for entry in ledger.of("charged")}), "suspended": len(ledger.of("suspended")),
            "callback_p50_s": round(percentile(waits, 0.5), 3), "callback_p99_s": round(percentile(waits, 0.99), 3),
        }  # fmt: skip

    def _has_ended(self, flow: Woven, jobs: Mapping[str, Job]) -> bool:
        """Whether a workflow has ended with all members completed, or was lost whole."""
        client, base = self.harness.client, self.harness.client.store.operations.base_of_job(flow.id)
        is_over, done = client.store.transport.run(ended(base, flow.id))
        here = sum(job_id in jobs for job_id in flow.jobs)
        return not here or (is_over and done == len(flow.jobs))


@scenario("workflows", recovery=5, quick=25, whole=260, server=WRITTEN, shows=("rerun", "late_refused"))
def workflows(harness: Harness) -> None:
    """Workflows run while all processes and the server are killed.

    Each callback has a step, a sleep and a wait for a signal. The order is judged by Redis's records.
    """
    loom = Loom(harness)
    crew = Crew(harness)
    for _ in range(2):
        loom.start()
    loom.until_begun()
    faults = (crew.kill_worker, crew.freeze_worker, loom.kill, crew.kill_handler, crew.restart_server)
    for n in harness.rounds(every=4):
        faults[n % len(faults)]()
    harness.judges.append(loom.judge)


@scenario("workflows-failover", recovery=BACK, quick=6, whole=20, promises=(), server={"repl-diskless-sync-delay": 0},
          loses="writes that were not replicated, whole calls of a workflow")  # fmt: skip
def workflows_failover(harness: Harness) -> None:
    """The same as `primary-lost`, with workflows."""
    loom, pair = Loom(harness, plain=True), Pair(harness)
    for _ in range(2):
        harness.processes.start_worker(lease=LEASE)
    loom.start()
    loom.until_begun()
    harness.wait(harness.seconds / 3)
    with harness.fault("failover"):
        pair.stream.hang()
        harness.wait(max(1.0, harness.seconds / 3))
        pair.fail_over()
        pair.come_back()
    harness.wait(harness.seconds / 3)
    harness.judges.append(loom.judge)
