"""Run the demo: one job per file of the standard library, three workers, one killed and one frozen."""

import os
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
from sublet.devtools.demo import FOLDER, accidents
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.report import keep_running, print_report
from sublet.devtools.demo.screen import Progress, Screen, WorkerStatus
from sublet.devtools.demo.tally import Tally, count
from sublet.devtools.demo.tasks import Report, analyse
from sublet.devtools.demo.worker_group import SLOTS, WORKERS, DemoFailed, WorkerGroup
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.devtools.platform.api_service import ApiService
from sublet.model import State
from sublet.options import Options

KILL_AT, FREEZE_AT = 0.25, 0.4
"""Shares of the work after which a worker is killed, and another one frozen."""
POLL_SECONDS = 0.05
STALL_SECONDS = 30.0
"""Time without an ended job after which the demo gives up."""
LAST_LINES = 1.0
"""Seconds for the workers' last lines."""


def run(once: bool, json: bool, call: str, screen: Screen | None = None) -> int:
    """Run it. Return 0 if each job ended once and the frozen worker's late reports were refused, otherwise 1.

    With `json`, progress goes to stderr and the tally to stdout as one JSON object. Without `once`, all
    processes keep running until Ctrl-C; `call` is this program's command line. `screen` replaces the
    output. Raises JobsError when the demo cannot continue. No process remains.
    """
    screen = screen or Screen(sys.stderr if json else sys.stdout)
    code: int | None = None
    try:
        with _signals(), ExitStack() as stack:
            stack.callback(screen.close)
            corpus = Corpus.find()
            server, show = _set_up(stack, screen, corpus)
            before, _ = _ended(show.client)
            ids = _submit(show, corpus)
            _perform(show, len(ids), before)
            tally, reports = _count(show, ids)
            print_report(screen, corpus, tally, reports)
            if json:
                print(dumps(asdict(tally)), flush=True)  # noqa: T201  # the tally is the output
            code = 1 if tally.complaints() else 0
            if not once:
                keep_running(screen, server, show.group, _api(stack, server.url), show.queue, call)
    except KeyboardInterrupt:
        screen.print(f"  stopped; the data are kept in {FOLDER}")
        return 130 if code is None else code
    return code


def _api(stack: ExitStack, redis_url: str) -> ApiService:
    """Return the API, not yet started; `stack` stops it."""
    log = stack.enter_context((FOLDER / "api.log").open("ab"))

    def on_line(line: bytes) -> None:
        log.write(line)

    api = ApiService({"SUBLET_REDIS_URL": redis_url}, on_line)
    stack.callback(api.stop)
    return api


@contextmanager
def _signals() -> Iterator[None]:

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


def _set_up(stack: ExitStack, screen: Screen, corpus: Corpus) -> tuple[EmbeddedServer, accidents.Show]:
    began = time.monotonic()
    server = stack.enter_context(EmbeddedServer.start(FOLDER))
    screen.print(
        "  [bold]Sublet[/]: a job scheduler with no master. Any process may die at any moment; no job is lost."
    )
    screen.print()
    socket = os.path.relpath(server.url.removeprefix("unix://"))
    screen.fact("server", f"{server.version}, embedded, at {socket} · {time.monotonic() - began:.1f} s")
    screen.fact("data", f"kept in {FOLDER}; to delete them: rm -r {FOLDER}")
    screen.fact("work", f"{corpus.words}, one job each")
    client = stack.enter_context(SyncClient(Settings.read(redis_url=server.url)))
    queue = _new_queue(client, screen)
    group = stack.enter_context(
        WorkerGroup(Settings.read(redis_url=server.url), queue, accidents.LEASE, FOLDER / "workers.log")
    )
    screen.fact(
        "workers",
        f"up to {WORKERS}, summoned as the backlog requires; {SLOTS} slots each, and a few short jobs claimed ahead; "
        f"leases of {accidents.LEASE:g} s, shorter than usual",
    )
    screen.print()
    return server, accidents.Show(client, group, screen, queue)


def _new_queue(client: SyncClient, screen: Screen) -> str:
    """Return an unused name: an interrupted earlier run may have left jobs."""
    earlier = [queue for queue in client.queues() if queue.name.startswith("demo-")]
    waiting = sum(queue.queued for queue in earlier)
    if waiting:
        screen.fact(
            "before",
            f"{waiting:,} jobs of interrupted demos are still in their queues; they are not touched",
        )
    numbers = [int(queue.name[5:]) for queue in earlier if queue.name[5:].isdigit()]
    return f"demo-{max(numbers, default=0) + 1}"


def _submit(show: accidents.Show, corpus: Corpus) -> list[str]:
    options = Options(queue=show.queue)
    submission = show.client.operations.submission
    payloads = [analyse.arguments.dump((str(path),), {}) for path in corpus.files]
    began = show.began = time.monotonic()
    jobs = [submission(analyse.name, payload, show.queue, options.rules()) for payload in payloads]
    ids = [submitted.id for submitted in show.client.submit_all(jobs)]
    took = time.monotonic() - began
    show.report(
        "●", f"submitted {len(ids):,} jobs in {took:.2f} s ({len(ids) / took:,.0f}/s), to queue {show.queue}"
    )
    return ids


def _perform(show: accidents.Show, submitted: int, before: int) -> None:
    """Wait for the end of all jobs and accidents. Raises DemoFailed after a stall."""
    running_accidents = [accidents.kill(show, KILL_AT), accidents.freeze(show, FREEZE_AT)]
    seen: deque[tuple[float, int]] = deque([(show.seconds, 0)], maxlen=40)
    last_change, known = show.seconds, 0
    while True:
        ended, running = _ended(show.client)
        ended -= before
        last_change = show.seconds if ended != seen[-1][1] else last_change
        seen.append((show.seconds, ended))
        show.share = ended / submitted
        show.group.read_events()
        for worker in show.group.workers[known:]:
            show.report("+", f"{worker} started: summoned because of the backlog")
        known = len(show.group.workers)
        for worker in show.group.take_ended():
            show.report(
                "!" if worker.exit else "·",
                f"{worker} ended by itself ({f'exit {worker.exit}' if worker.exit else 'idle'})",
            )
        running_accidents = [each for each in running_accidents if _advance(each)]
        done = ended >= submitted and not running_accidents
        then, ended_then = (0.0, 0) if done else seen[0]
        rate = (ended - ended_then) / max(show.seconds - then, 0.001)
        progress = Progress(submitted, ended, running, rate, show.seconds)
        show.screen.draw(progress, _statuses(show), last=done)
        if done:
            return
        if ended < submitted and show.seconds - last_change > STALL_SECONDS:
            raise DemoFailed(
                f"no job has ended for {STALL_SECONDS:g} s, {submitted - ended:,} are left; see {FOLDER / 'workers.log'}"
            )
        time.sleep(POLL_SECONDS)


def _advance(accident: accidents.Accident) -> bool:
    """Return whether the accident continues."""
    with suppress(StopIteration):
        next(accident)
        return True
    return False


def _ended(client: SyncClient) -> tuple[int, int]:
    """Return how many jobs ended since the namespace was created, and how many run."""
    stats = client.stats()
    ended = sum(part.totals[name] for part in stats for name in ("completed", "dead", "cancelled"))
    return ended, sum(part.states[State.RUNNING] for part in stats)


def _statuses(show: accidents.Show) -> list[WorkerStatus]:
    signs = {"": "●", "killed": "✗", "frozen": "‖", "died": "✗", "left": "·"}
    done = show.group.ledger.completed
    return [
        WorkerStatus(str(worker), signs[worker.fate], f"{done[worker.number]:,} {worker.fate or 'done'}")
        for worker in show.group.workers
    ]  # fmt: skip


def _count(show: accidents.Show, ids: list[str]) -> tuple[Tally, list[Report]]:
    seconds, deadline = show.seconds, time.monotonic() + LAST_LINES
    while len(show.group.ledger.accepted) < len(ids) and time.monotonic() < deadline:
        show.group.read_events()
        time.sleep(0.01)
    return count(show.client, ids, show.group.ledger, seconds)
