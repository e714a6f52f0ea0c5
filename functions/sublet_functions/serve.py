"""Run the HTTP API as a server of its own, for `sublet serve`."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

from sublet.connection.settings import Settings, quick
from sublet.scaling.invokers import invokers_of
from sublet.scaling.signing import Secrets
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from sublet_functions.adapters.summon_first import SummonFirst
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.http.auth import Tokens
from sublet_functions.http.limits import Limits
from sublet_functions.http.request import Request
from sublet_functions.server.server import HttpServer
from sublet_functions.server.sockets import listen, make_room, url_of

log = logging.getLogger(__name__)

GRACE = 8.0
"""Seconds that running requests have when the server stops."""
CLOSE_SECONDS = 3.0
READY = Request("GET", "/readyz", headers={"host": "localhost"})


class Stop:
    """A stop of a server: after the first `ask` requests have 8 s, the second ends them."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def ask(self) -> None:
        """Stop the server; the second time, end requests."""
        (self.hurried if self.asked.is_set() else self.asked).set()


async def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = 8377,
    tokens: Tokens | None = None,
    report: Callable[[str], None] = lambda url: None,
    *,
    limits: Limits | None = None,
    stop: Stop | None = None,
    worker_host: WorkerHost | None = None,
    secrets: Secrets | None = None,
    summon_first: bool = False,
    check_tasks: str = "",
) -> None:
    """Serve the API until SIGTERM, SIGINT or SIGHUP; with `stop`, until `stop.ask` instead.

    `report` gets the URL when the server listens. Without `tokens`, `host` must be a loopback address.
    Without Redis, most requests are answered 503. With a `worker_host`, `POST /work` runs workers, for
    clients with a token or a signature by one of the `secrets`. On a stop, waiting requests are answered at
    once, workers have 5 s to finish jobs, and other requests 8 s; a second signal ends all. `summon_first`: a
    response waits until workers are summoned, as this process may then freeze. `check_tasks`: the `policy` of
    `KnownTasks`. Raises Invalid for unusable settings or addresses, JobsError for a port in use.
    """
    tokens, limits = tokens or Tokens(), limits or Limits()
    sockets = listen(host, port, loopback_only=not tokens.needed)
    store = Store(quick(settings))
    summoner = store.summoner = Summoner(store, invokers_of())
    store.nudge = summoner.nudge
    api = _api(store, tokens, worker_host, secrets, check_tasks)
    application = SummonFirst(api, summoner) if summon_first else api
    server = HttpServer(application, replace(limits, connections=make_room(limits.connections)))
    try:
        with _stop_on_signals(stop) as stop:
            await server.start(sockets)
            report(url_of(host, sockets[0]))
            # for the log: is Redis available?
            checking = asyncio.create_task(api.answer(READY))
            await stop.asked.wait()
            checking.cancel()
            store.hurry()
            finishing = [worker_host.finish(GRACE, stop.hurried)] if worker_host else []
            await asyncio.gather(server.stop(GRACE, stop.hurried), *finishing)
    finally:
        if worker_host:
            await worker_host.aclose()
        for one in sockets:
            one.close()
        await _disconnect(store, summoner)


def _api(
    store: Store, tokens: Tokens, worker_host: WorkerHost | None, secrets: Secrets | None, check_tasks: str
) -> Api:
    app = worker_host.app if worker_host else None
    secrets = secrets or Secrets()
    return Api(store, tokens, worker_host=worker_host, secrets=secrets, app=app, check_tasks=check_tasks)


async def _disconnect(store: Store, summoner: Summoner) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await summoner.aclose(CLOSE_SECONDS / 2)
            await store.aclose()


@contextlib.contextmanager
def _stop_on_signals(stop: Stop | None) -> Iterator[Stop]:
    if stop:
        yield stop
        return
    stop = Stop()
    loop = asyncio.get_running_loop()
    handled = []
    # not the main thread
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # under nohup SIGHUP stays ignored
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop.ask)
                handled.append(number)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
