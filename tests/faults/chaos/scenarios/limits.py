"""Faults of workers, handlers and the server while limits and turns hold the jobs of tenants back."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import redis

from sublet.model import Job, Submission
from sublet.protocol import keys
from tests.faults.chaos import limits as judge
from tests.faults.chaos.crew import Crew, now_ms
from tests.faults.chaos.harness import Harness
from tests.faults.chaos.producer import tenants_job
from tests.faults.chaos.scenario import UNUSED, scenario
from tests.faults.chaos.scenarios.servers import WRITTEN
from tests.faults.chaos.servers import connect
from tests.faults.chaos.tasks import OVER, QUEUES

TENANTS = 20
FLOOD = 9
"""How many jobs one tenant submits for each job of the others together."""
PLACES, EACH, SECONDS = 10, 4, 0.2
"""The places of the first queue, those of each tenant, and how long its jobs take."""
RATE, BURST, SHORT = 30, 3, 0.05
"""The tokens per second of the second queue, how many are saved up, and how long its jobs take."""
BEFORE = 15
"""Jobs of each tenant that wait from the beginning."""
MORE = 1.1
"""How many jobs come for each that the limits allow."""
UNFAIR, USED = 0.05, 0.9
"""The bounds: of a tenant's turns, and of the work that the limits allow."""
PATIENCE = 90.0
"""Seconds for the jobs that are left at the end."""
TIMED, PACED = QUEUES[:2]
NAMES = [f"t{n}" for n in range(TENANTS)]


class Watch(threading.Thread):
    """Looks at places, leases and groups at one moment, many times a second."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(daemon=True)
        (self._base,) = harness.client.store.operations.bases
        self._client, self._over = connect(harness.settings.redis_url), threading.Event()
        self.moments = self.leaks = self.excess = self.without_work = 0
        self.judges_work = False

    def run(self) -> None:
        """Look until closed. A server that is down is not looked at."""
        while not self._over.wait(0.03):
            with suppress(redis.RedisError, OSError):
                self._look()

    def look(self) -> tuple[set[bytes], set[bytes]]:
        """The ids that hold a place, and those that hold a lease."""
        *places, running = self._together(lambda pipe: pipe.zrange(self._key("running"), 0, -1))
        return {*places[0], *places[1]}, set(running)

    def _look(self) -> None:
        def more(pipe: Any) -> None:
            pipe.zrange(self._key("running"), 0, -1)
            pipe.zcard(keys.turns(self._base, TIMED))
            pipe.zcard(keys.full(self._base, TIMED))

        timed, paced, running, turns, full = self._together(more)
        self.moments += 1
        self.leaks += {*timed, *paced} != set(running)
        self.excess += len(timed) > PLACES
        self.without_work += self.judges_work and turns + full < TENANTS

    def _together(self, more: Callable[[Any], object]) -> list[Any]:
        with self._client.pipeline() as pipe:
            for queue in (TIMED, PACED):
                pipe.hgetall(keys.places(self._base, queue))
            more(pipe)
            found: list[Any] = pipe.execute()
            return found

    def _key(self, structure: str) -> str:
        return keys.structure(self._base, structure)

    def waiting(self) -> int:
        """How many jobs of both queues wait."""
        return sum(int(self._client.zcard(keys.grouped(self._base, queue))) for queue in (TIMED, PACED))

    def left(self) -> list[str]:
        """The keys of places and turns that exist."""
        kinds = ("places:", "waiting:", "grouped:", "turns:", "full:", "tokens:")
        names = (key.decode().removeprefix(f"{self._base}:") for key in self._client.scan_iter(count=10_000))
        return sorted(name for name in names if name.startswith(kinds))

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        if self.is_alive():
            self.join()
        self._client.close()


class Tenants(Crew):
    """Their jobs, and the faults among which they run."""

    def __init__(self, harness: Harness) -> None:
        self.over = harness.folder / "over"
        harness.processes.env |= {OVER: str(self.over)}
        harness.client.configure(TIMED, concurrency=PLACES, group_concurrency=EACH)
        harness.client.configure(PACED, rate=RATE, per=1, burst=BURST)
        super().__init__(harness)
        self.watch = harness.closing(Watch(harness))

    def submit(self, jobs: Sequence[Submission]) -> None:
        """Submit jobs at once."""
        for job in self.harness.client.submit_all(jobs):
            self.harness.writer.write("acked", job.id)

    def begin(self) -> None:
        """The flood comes first, and then the others. From then on all have work all the time."""
        harness, pace = self.harness, PLACES / SECONDS * MORE
        others = (TENANTS - 1) * (BEFORE + int(harness.seconds * pace / TENANTS))
        flood = FLOOD * others - int(harness.seconds * pace / TENANTS)
        self.submit([tenants_job(TIMED, 0, SECONDS, f"flood.{n}") for n in range(flood)])
        self.watch.start()
        harness.until(
            lambda: len(self.watch.look()[0]) == EACH, "the flood runs as many jobs as a tenant may"
        )
        harness.wait(1)
        for queue, seconds in ((TIMED, SECONDS), (PACED, SHORT)):
            first = queue == TIMED
            self.submit(
                [
                    tenants_job(queue, n, seconds, f"{queue}.{n}.{i}")
                    for i in range(BEFORE)
                    for n in range(first, TENANTS)
                ]
            )
        harness.processes.start_producer(pace, SECONDS, TIMED, str(TENANTS))
        harness.processes.start_producer(RATE * MORE, SHORT, PACED, str(TENANTS), env=self.over_http)
        harness.until(lambda: len(self.watch.look()[0]) >= PLACES, "all places are held")

    def end(self) -> None:
        """Let the jobs that are left end soon."""
        for producer in self.harness.processes.producers:
            producer.stop()
        self.watch.close()
        self.over.touch()
        self.harness.client.configure(TIMED, concurrency=200, group_concurrency=200)
        left = Watch(self.harness)
        self.harness.until(lambda: not left.waiting(), "no job is left", PATIENCE)
        left.close()


@scenario("limits", recovery=5, quick=21, whole=90, server=WRITTEN, shows=("rerun", "late_refused"))
def limits(harness: Harness) -> None:
    """Tenants share limits, and one floods, while workers, handlers and the server are killed or frozen.

    Places, tokens and turns are judged by Redis's records, and the places at many moments.
    """
    tenants = Tenants(harness)
    tenants.begin()
    tenants.watch.judges_work = True
    began = now_ms()
    faults = (tenants.kill_worker, tenants.freeze_worker, tenants.kill_handler, tenants.restart_server)
    for n in harness.rounds(every=3):
        faults[n % len(faults)]()
    window = judge.Window(began, now_ms(), tuple(tenants.down))
    tenants.watch.judges_work = False
    tenants.end()
    harness.judges.append(lambda jobs: _judge(harness, tenants.watch, window, jobs))


def _judge(harness: Harness, watch: Watch, window: judge.Window, jobs: Mapping[str, Job]) -> None:
    timed, paced = (judge.spans_of(jobs.values(), queue) for queue in (TIMED, PACED))
    limited = [span for span in timed if span.begin < window.end]
    at_once, ms = judge.most_at_once(limited), 1000 / RATE
    each = {name: judge.most_at_once(span for span in limited if span.tenant == name) for name in NAMES}
    early = judge.before_token(paced, ms, BURST)
    expect, report = harness.expect, harness.notes
    expect(at_once == PLACES, f"{at_once} jobs ran at once, of {PLACES} that may")
    expect(
        max(each.values()) == EACH, f"{max(each.values())} jobs of a tenant ran at once, of {EACH} that may"
    )
    expect(not early, f"{early} jobs started before their token")
    expect(not watch.excess, f"{watch.excess} moments with more places than the limit")
    expect(not watch.leaks, f"{watch.leaks} of {watch.moments} moments with places that are not the leases")
    expect(
        not watch.without_work,
        f"{watch.without_work} moments in which a tenant had no work: nothing is shown",
    )
    left = Watch(harness)
    expect(not left.left(), f"left at the end: {left.left()[:3]}")
    left.close()
    share = sum(job.group == NAMES[0] for job in jobs.values() if job.queue == TIMED)
    report["flood"] = round(share / max(1, sum(job.queue == TIMED for job in jobs.values())), 3)
    report["moments"] = watch.moments
    for name, spans in (("places", timed), ("tokens", paced)):
        turns = judge.turns(spans, window, NAMES)
        unfair, floods = judge.unfairness(turns), turns[NAMES[0]] * TENANTS / max(1, sum(turns.values()))
        report |= {f"turns_{name}": sum(turns.values()), f"unfair_{name}": round(unfair, 3)}
        expect(
            unfair <= UNFAIR,
            f"turns for {name} differ by {unfair:.1%} from an equal share, bound {UNFAIR:.0%}",
        )
        expect(floods <= 1 + UNFAIR, f"the flood got {floods:.2f} of its share of {name}")
    used = {
        "places": judge.use_of_places(timed, window, PLACES, SECONDS * 1000),
        "tokens": judge.use_of_tokens(paced, window, ms),
    }
    for name, part in used.items():
        report[f"used_{name}"] = round(part, 3)
        expect(part >= USED, f"{part:.1%} of the {name} {UNUSED}, bound {USED:.0%}")
