"""Producers of workflows, senders of signals, and a process that ends all waits when the faults are over."""

from collections.abc import Sequence

from sublet.errors import Refused, Unavailable
from sublet.worker.settle_loop import RETRY_AFTER
from sublet.workflows import storing
from sublet.workflows.storing import Linked
from tests.faults.simulation.actors import BASE, LAYOUT, QUEUES
from tests.faults.simulation.invariants import FINISHED
from tests.faults.simulation.request import must
from tests.faults.simulation.workflows.drawn import AFTER, RULES, SIGNALS, WAITS, WAYS
from tests.faults.simulation.world import Process, Sleep, Strand, World

UNSEALED = 3601
"""Seconds after which an open workflow is cancelled."""


class Weaver(Process):
    """Stores graphs of jobs, sometimes stops repeating a call, or leaves a workflow open."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.older: list[str] = []
        self.start(self.weave())

    def weave(self) -> Strand[None]:
        """The whole life of a weaver."""
        for n in range(1, 1 + self.pick("graphs", (1, 2, 3))):
            yield Sleep(self.pick(f"pause before {n}", (0.0, 0.5, 4.0, 15.0), 0.6))
            yield from self.store(n, self.pick(f"graph {n} is stored", WAYS, 0.7))

    def store(self, n: int, way: str) -> Strand[None]:
        """Store a graph, in its way."""
        jobs = self.graph(n)
        flow = "" if way == "loose" else f"0-{self.name}.{n}"
        half = len(jobs) // 2 if way in ("in two calls", "never sealed", "cancelled") else 0
        if half and not (yield from self.call(flow, "open", jobs[:half])):
            return
        if half and way != "in two calls":
            yield Sleep(self.pick(f"graph {n} is left after", (0.5, 3.0)))
            yield from self.call(flow, *(("cancel", []) if way == "cancelled" else ("open", jobs[half:])))
            return
        is_stored = yield from self.call(flow, "seal", jobs[half:])
        if half and not is_stored:
            yield from self.call(flow, "cancel", [])
        if is_stored and way == "grows":
            yield Sleep(self.pick(f"graph {n} grows after", (0.1, 2.0)))
            yield from self.call(flow, "seal", [self.job(f"{n}.more", (), into=[jobs[-1].job.id])])

    def graph(self, n: int) -> list[Linked]:
        """Some jobs, each of which waits for earlier ones."""
        jobs: list[Linked] = []
        for i in range(1, 1 + self.pick(f"jobs in graph {n}", (3, 1, 2, 5, 7))):
            own = [one.job.id for one in jobs]
            after = self.pick(f"{n}.{i} waits for", AFTER, 0.6)
            found = {
                "the last": own[-1:],
                "the last two": own[-2:],
                "all": own,
                "an older one": self.older[-1:],
            }
            jobs.append(self.job(f"{n}.{i}", found.get(after, ())))
        self.older += [one.job.id for one in jobs]
        return jobs

    def job(self, name: str, after: Sequence[str], into: Sequence[str] = ()) -> Linked:
        """One job of a graph."""
        rules = self.pick(f"rules of {name}", RULES, 0.6)
        queue = self.pick(f"queue of {name}", QUEUES, 0.3)
        return Linked(LAYOUT.submission("t", b"{}", queue, rules, f"{self.name}.{name}"), after, into)

    def call(self, flow: str, how: str, jobs: Sequence[Linked]) -> Strand[bool]:
        """Send a call until it is answered, a few times. Returns whether its jobs are stored."""
        for again in range(3):
            if again:
                yield Sleep(RETRY_AFTER)
            try:
                answer = yield from self.ask(storing.workflow(BASE, flow, how, jobs))
            except Unavailable:
                continue
            for one in answer if not isinstance(answer, str) else ():
                must(
                    one.id in self.world.checker.lives,
                    f"{one.id} was acknowledged to {self.name}, but does not exist",
                )
            return not isinstance(answer, str)
        return False


class Sender(Process):
    """Sends signals to jobs, whether they wait for one or not, some twice, some with another value. Retries called jobs
    that failed.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.send())

    def send(self) -> Strand[None]:
        """The whole life of a sender."""
        for n in range(1, 1 + self.pick("signals", (2, 5, 9))):
            yield Sleep(self.pick(f"pause before {n}", (0.3, 0.02, 2.0, 8.0), 0.8))
            yield from self.retry(n)
            known = sorted(self.world.checker.lives)
            if not known:
                continue
            job_id = known[-1 - self.pick(f"signal {n} is for", range(9)) % len(known)]
            value = self.pick(f"value of {n}", SIGNALS, 0.2)
            for _ in range(1 + self.pick(f"signal {n} is repeated", (0, 1), 0.2)):
                try:
                    yield from self.follow(LAYOUT.signal(job_id, WAITS[0], value))
                except (Refused, Unavailable):
                    continue

    def retry(self, n: int) -> Strand[None]:
        """Retry a called job that failed, if there is one."""
        checker = self.world.checker
        failed = [i for i in checker.steps.children if checker.lives[i].state in ("dead", "cancelled")]
        if failed and self.pick(f"a called job is retried before {n}", (False, True), 0.5):
            try:
                yield from self.follow(LAYOUT.retry(failed[-1]))
            except (Refused, Unavailable):
                return


class Closer(Process):
    """Starts last. It sends the signals that are waited for, retries jobs that hold others, and lets an hour pass for
    workflows that are not sealed.
    """

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.close())

    def close(self) -> Strand[None]:
        """Until the end of the run."""
        for n in range(10**6):
            checker = self.world.checker
            for job_id, (kind, name) in [*checker.steps.awaits.items()]:
                if kind == "signal":
                    yield from self.order(LAYOUT.signal(job_id, name, b'"end"'))
            for cause in checker.edges.holders():
                if checker.lives[cause].state in FINISHED:
                    yield from self.order(LAYOUT.retry(cause))
            if n == 6 and checker.edges.open_workflows():
                self.world.note("an hour passes")
                self.world.clock.skew += UNSEALED * 1000
            yield Sleep(5.0)

    def order(self, plan: object) -> Strand[None]:
        """Give an order; another one may have come first."""
        try:
            yield from self.follow(plan)  # type: ignore[arg-type]  # plans of several results
        except (Refused, Unavailable):
            return
