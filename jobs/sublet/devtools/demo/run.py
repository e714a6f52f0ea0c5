"""Run the demo: one job per file, up to three workers, one killed, one frozen."""

import asyncio
import math
import os
import signal
import sys
import time
from collections import deque
from contextlib import closing
from dataclasses import asdict
from json import dumps

from sublet.client.client import Client
from sublet.connection.settings import Settings
from sublet.devtools.demo import FOLDER, accidents
from sublet.devtools.demo.accidents import LEASE, DemoFailed, Show, wait_until
from sublet.devtools.demo.audience import LOGS, Audience
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.report import keep_running, print_report
from sublet.devtools.demo.screen import Progress, Screen
from sublet.devtools.demo.tally import Tally, count
from sublet.devtools.demo.tasks import Report, analyse
from sublet.devtools.platform.app_source import AppInfo
from sublet.devtools.platform.platform import STOPPED_AT_ONCE, Platform, PlatformConfig
from sublet.model import State
from sublet.options import Options

APP = "sublet.devtools.demo.tasks:app"
WORKERS, SLOTS, WAIT = 3, 2, 0.5
KILL_AT, FREEZE_AT = 0.25, 0.4
POLL_SECONDS = 0.1
STALL_SECONDS = 30.0
LAST_LINES = 1.0


def run(once: bool, json: bool, call: str, screen: Screen | None = None) -> int:
    """Run the demo. Return 0 if each job ended once, one was recovered and a late report refused; else 1; 128
    + the signal that stopped it, except Ctrl-C after the results. A second signal exits without returning.

    With `json`, progress goes to stderr and the tally to stdout. Without `once`, all processes run until
    Ctrl-C. `call` is this program's command line. Raises JobsError when the demo cannot continue.
    """
    screen = screen or Screen(sys.stderr if json else sys.stdout)
    demo = Demo(screen, once, json, call)
    with closing(screen), asyncio.Runner() as runner:
        if runner.run(demo.platform.run(demo.perform)) == STOPPED_AT_ONCE:
            code = demo.end()
            sys.stdout.flush()
            os._exit(code)
    return demo.end()


class Demo:
    """The demo's jobs; `platform` runs the server, API and workers."""

    def __init__(self, screen: Screen, once: bool, json: bool, call: str) -> None:
        self._once, self._json, self._call = once, json, call
        self.screen, self.audience, self.corpus = screen, Audience(screen), Corpus.find()
        config = PlatformConfig(
            app=APP, settings=Settings.read(Settings().redis_url), data=FOLDER, port=None if once else 0, workers=WORKERS, slots=SLOTS,
            wait=WAIT, lease=LEASE, reload=False, describe=self._describe, lines_max=math.inf,
        )  # fmt: skip
        self.platform = Platform(config, self.audience)
        self._queue = ""
        self._code: int | None = None

    def end(self) -> int:
        """Restore the terminal. Return the exit code."""
        self.screen.close()
        by = self.platform.stopped_by
        if by == signal.SIGINT:
            self.screen.print(f"  stopped; the data are kept in {FOLDER}")
        if by in (None, signal.SIGINT) and self._code is not None:
            return self._code
        return 128 + (by or signal.SIGINT)

    async def _describe(self, settings: Settings) -> AppInfo:
        screen = self.screen
        screen.fact("data", f"kept in {FOLDER}; to delete them: rm -r {FOLDER}")
        screen.fact("work", f"{self.corpus.words}, one job each")
        async with Client(settings) as client:
            self._queue = await _new_queue(client, screen)
        screen.fact(
            "workers",
            f"up to {WORKERS}, summoned as the backlog requires; {SLOTS} slots each, and a few short jobs claimed ahead; "
            f"short leases of {LEASE:g} s",
        )
        screen.print()
        return AppInfo(app=APP, queues=[self._queue], tasks=[analyse.name], folders=[])

    async def perform(self, settings: Settings) -> None:
        """Submit the jobs, kill a worker, freeze another, and print the results; then stop the platform, or
        without `once` run on. Raises DemoFailed.
        """
        async with Client(settings) as client:
            show = Show(client, self.audience, self._queue)
            before, _ = await _ended(client)
            ids = await _submit(show, self.corpus)
            await _work_off(show, len(ids), before)
            self.audience.end_show()
            tally, reports = await _count(show, ids)
        print_report(self.screen, self.corpus, tally, reports)
        if self._json:
            print(dumps(asdict(tally)), flush=True)  # noqa: T201  # the tally is the output
        self._code = 1 if tally.complaints() else 0
        if self._once:
            self.platform.stop()
        else:
            await keep_running(self.audience, settings.redis_url, self._queue, self._call)


async def _new_queue(client: Client, screen: Screen) -> str:
    earlier = [queue for queue in await client.queues() if queue.name.startswith("demo-")]
    waiting = sum(queue.queued for queue in earlier)
    if waiting:
        screen.fact(
            "before",
            f"{waiting:,} jobs of interrupted demos are still in their queues; they are not touched",
        )
    numbers = [int(queue.name[5:]) for queue in earlier if queue.name[5:].isdigit()]
    return f"demo-{max(numbers, default=0) + 1}"


async def _submit(show: Show, corpus: Corpus) -> list[str]:
    options = Options(queue=show.queue)
    submission = show.client.store.operations.submission
    payloads = [analyse.arguments.dump((str(path),), {}) for path in corpus.files]
    began = show.audience.began = time.monotonic()
    jobs = [submission(analyse.name, payload, show.queue, options.rules()) for payload in payloads]
    ids = [submitted.id for submitted in await show.client.submit_all(jobs)]
    took = time.monotonic() - began
    show.report(
        "●", f"submitted {len(ids):,} jobs in {took:.2f} s ({len(ids) / took:,.0f}/s), to queue {show.queue}"
    )
    return ids


async def _work_off(show: Show, submitted: int, before: int) -> None:
    audience, acting = show.audience, asyncio.create_task(_have_accidents(show))
    seen: deque[tuple[float, int]] = deque([(audience.seconds, 0)], maxlen=20)
    last_change = audience.seconds
    while True:
        ended, running = await _ended(show.client)
        ended -= before
        last_change = audience.seconds if ended != seen[-1][1] else last_change
        seen.append((audience.seconds, ended))
        show.share = ended / submitted
        done = acting.done() and ended >= submitted
        if acting.done():
            acting.result()
        then, ended_then = (0.0, 0) if done else seen[0]
        rate = (ended - ended_then) / max(audience.seconds - then, 0.001)
        progress = Progress(submitted, ended, running, rate, audience.seconds)
        audience.screen.draw(progress, audience.statuses(), last=done)
        if done:
            return
        if ended < submitted and audience.seconds - last_change > STALL_SECONDS:
            raise DemoFailed(
                f"no job has ended for {STALL_SECONDS:g} s, {submitted - ended:,} are left; see {LOGS['worker']}"
            )
        await asyncio.sleep(POLL_SECONDS)


async def _have_accidents(show: Show) -> None:
    await accidents.kill(show, KILL_AT)
    await accidents.freeze(show, FREEZE_AT)


async def _ended(client: Client) -> tuple[int, int]:
    stats = await client.stats()
    ended = sum(part.totals[name] for part in stats for name in ("completed", "dead", "cancelled"))
    return ended, sum(part.states[State.RUNNING] for part in stats)


async def _count(show: Show, ids: list[str]) -> tuple[Tally, list[Report]]:
    async def all_accepted() -> bool:
        return len(show.ledger.accepted) >= len(ids)

    seconds = show.audience.seconds
    await wait_until(all_accepted, LAST_LINES)
    return await count(show.client, ids, show.ledger, seconds)
