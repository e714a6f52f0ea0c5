"""The demo: the files of the standard library as jobs, three workers, one killed and one frozen; nothing may get lost."""

import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from json import dumps
from types import FrameType
from typing import NoReturn

from sublet.client.client import SyncClient
from sublet.connection.settings import Settings
from sublet.devtools.demo import FOLDER, acts
from sublet.devtools.demo.cast import SLOTS, WORKERS, Cast, Stuck
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.ending import play, sums
from sublet.devtools.demo.screen import Member, Numbers, Screen
from sublet.devtools.demo.tally import Tally, count
from sublet.devtools.demo.tasks import Report, analyse
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.devtools.platform.api import ApiPiece
from sublet.model import State
from sublet.options import Options

KILL_AT, FREEZE_AT = 0.25, 0.4
"""Shares of the work after which a worker is killed, and another one frozen."""
LOOK = 0.05
"""Seconds between two looks at how far the work is."""
STALL_SECONDS = 30.0
"""How long nothing may get done."""
LAST_LINES = 1.0
"""How long to wait for the last lines of the workers when Redis has said that all jobs have ended."""


def run(once: bool, json: bool, call: str) -> int:
    """Show it, and give the exit code: 0 if every job ended once and the ghosts were refused.

    With `json` the story goes to stderr, and the sums to stdout as one JSON object. Without `once`, server, workers and the HTTP
    API stay up until Ctrl-C, and `call` is how to call this program. Raises JobsError when it cannot go on; whatever happens, no
    process is left behind.
    """
    screen = Screen(sys.stderr if json else sys.stdout)
    code: int | None = None
    try:
        with _signals(), ExitStack() as stack:
            stack.callback(screen.close)
            corpus = Corpus.find()
            server, stage = _set_up(stack, screen, corpus)
            before, _ = _ended(stage.client)
            ids = _submit(stage, corpus)
            _perform(stage, len(ids), before)
            tally, reports = _count(stage, ids)
            sums(screen, corpus, tally, reports)
            if json:
                print(dumps(asdict(tally)), flush=True)  # noqa: T201  # the sums are the output
            code = 1 if tally.complaints() else 0
            if not once:
                play(screen, server, stage.cast, _api(stack, server.url), stage.queue, call)
    except KeyboardInterrupt:
        screen.say(f"  stopped; the data stay in {FOLDER}")
        return 130 if code is None else code
    return code


def _api(stack: ExitStack, redis_url: str) -> ApiPiece:
    """The HTTP API, not yet started; it ends with the show."""
    log = stack.enter_context((FOLDER / "api.log").open("ab"))

    def hear(line: bytes) -> None:
        log.write(line)

    api = ApiPiece({"SUBLET_REDIS_URL": redis_url}, hear)
    stack.callback(api.stop)
    return api


@contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM, and the end of the terminal, end the demo as tidily as Ctrl-C does."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _set_up(stack: ExitStack, screen: Screen, corpus: Corpus) -> tuple[EmbeddedServer, acts.Stage]:
    """Say what is about to happen, and start the server and the workers."""
    began = time.monotonic()
    server = stack.enter_context(EmbeddedServer.start(FOLDER))
    screen.say(
        "  [bold]Sublet[/]: a job scheduler with no master. Any process may die at any line; nothing gets lost."
    )
    screen.say()
    socket = server.url.removeprefix("unix://")
    screen.point("server", f"{server.version}, embedded, at {socket} · {time.monotonic() - began:.1f} s")
    screen.point("data", f"kept in {FOLDER}; to forget it: rm -r {FOLDER}")
    screen.point("work", f"{corpus.words}, one job each")
    client = stack.enter_context(SyncClient(Settings.read(redis_url=server.url)))
    queue = _new_queue(client, screen)
    cast = stack.enter_context(
        Cast(Settings.read(redis_url=server.url), queue, acts.LEASE, FOLDER / "workers.log")
    )
    screen.point(
        "workers",
        f"up to {WORKERS}, summoned as the backlog owes them; each runs {SLOTS} jobs at a time under leases of {acts.LEASE:g} s: "
        "short, for the show",
    )
    screen.say()
    return server, acts.Stage(client, cast, screen, queue)


def _new_queue(client: SyncClient, screen: Screen) -> str:
    """The name of a queue of this run's own: an earlier run may have been interrupted."""
    earlier = [queue for queue in client.queues() if queue.name.startswith("demo-")]
    waiting = sum(queue.queued for queue in earlier)
    if waiting:
        screen.point(
            "before",
            f"{waiting:,} jobs of demos that were interrupted are still in their queues, and are left alone",
        )
    numbers = [int(queue.name[5:]) for queue in earlier if queue.name[5:].isdigit()]
    return f"demo-{max(numbers, default=0) + 1}"


def _submit(stage: acts.Stage, corpus: Corpus) -> list[str]:
    """Submit one job per file, in bulk."""
    options = Options(queue=stage.queue)
    submission = stage.client.operations.submission
    payloads = [analyse.arguments.dump((str(path),), {}) for path in corpus.files]
    began = stage.began = time.monotonic()
    jobs = [submission(analyse.name, payload, stage.queue, options.rules()) for payload in payloads]
    ids = [submitted.id for submitted in stage.client.submit_all(jobs)]
    took = time.monotonic() - began
    stage.tell(
        "●", f"submitted {len(ids):,} jobs in {took:.2f} s ({len(ids) / took:,.0f}/s), to queue {stage.queue}"
    )
    return ids


def _perform(stage: acts.Stage, submitted: int, before: int) -> None:
    """Let the workers work and the acts go on until both are through. Raises Stuck when nothing gets done any more."""
    playing: list[acts.Act] = [acts.kill(stage, KILL_AT), acts.freeze(stage, FREEZE_AT)]
    seen: deque[tuple[float, int]] = deque([(stage.seconds, 0)], maxlen=40)
    moved, came = stage.seconds, 0
    while True:
        ended, running = _ended(stage.client)
        ended -= before
        moved = stage.seconds if ended != seen[-1][1] else moved
        seen.append((stage.seconds, ended))
        stage.share = ended / submitted
        stage.cast.listen()
        for worker in stage.cast.workers[came:]:
            stage.tell("+", f"{worker} is here: it was summoned, for the backlog owed one")
        came = len(stage.cast.workers)
        for worker in stage.cast.gone():
            stage.tell(
                "!" if worker.exit else "·",
                f"{worker} went by itself ({f'exit {worker.exit}' if worker.exit else 'idle'})",
            )
        playing = [act for act in playing if _goes_on(act)]
        through = ended >= submitted and not playing
        then, ended_then = (0.0, 0) if through else seen[0]
        rate = (ended - ended_then) / max(stage.seconds - then, 0.001)
        numbers = Numbers(submitted, ended, running, rate, stage.seconds)
        stage.screen.show(numbers, _members(stage), last=through)
        if through:
            return
        if ended < submitted and stage.seconds - moved > STALL_SECONDS:
            raise Stuck(
                f"no job has ended for {STALL_SECONDS:g} s, {submitted - ended:,} are left; see {FOLDER / 'workers.log'}"
            )
        time.sleep(LOOK)


def _goes_on(act: acts.Act) -> bool:
    with suppress(StopIteration):
        next(act)
        return True
    return False


def _ended(client: SyncClient) -> tuple[int, int]:
    """How many jobs have ended since the namespace was made, and how many run now."""
    stats = client.stats()
    ended = sum(part.totals[name] for part in stats for name in ("completed", "dead", "cancelled"))
    return ended, sum(part.states[State.RUNNING] for part in stats)


def _members(stage: acts.Stage) -> list[Member]:
    signs = {"": "●", "killed": "✗", "frozen": "‖", "died": "✗", "left": "·"}
    done = stage.cast.ledger.completed
    return [
        Member(str(worker), signs[worker.fate], f"{done[worker.number]:,} {worker.fate or 'done'}")
        for worker in stage.cast.workers
    ]  # fmt: skip


def _count(stage: acts.Stage, ids: list[str]) -> tuple[Tally, list[Report]]:
    """The sums, once the workers' last lines are here; those of a worker that was killed may never come."""
    seconds, deadline = stage.seconds, time.monotonic() + LAST_LINES
    while len(stage.cast.ledger.accepted) < len(ids) and time.monotonic() < deadline:
        stage.cast.listen()
        time.sleep(0.01)
    return count(stage.client, ids, stage.cast.ledger, seconds)
