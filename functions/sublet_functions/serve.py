"""The API as a server of its own. It keeps nothing: run as many as you like, and kill any of them."""

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
from sublet_functions.adapters.summon_first import Prompt
from sublet_functions.api.auth import Tokens
from sublet_functions.api.dispatch import Api
from sublet_functions.api.request import Request
from sublet_functions.handlers.work import Workshop
from sublet_functions.server.limits import Limits
from sublet_functions.server.server import Front
from sublet_functions.server.sockets import listen, make_room, url_of

log = logging.getLogger(__name__)

GRACE = 8.0
"""Seconds that requests in flight may take to finish when the server stops."""
CLOSING = 3.0
"""Seconds that the connections to Redis may take to close: it may not answer."""


class Stop:
    """Whether the server is to stop: asked once, it finishes what it has begun; asked again, it hurries."""

    def __init__(self) -> None:
        self.asked, self.hurried = asyncio.Event(), asyncio.Event()

    def ask(self) -> None:
        """Ask it to stop."""
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
    workshop: Workshop | None = None,
    secrets: Secrets | None = None,
    prompt: bool = False,
) -> None:
    """Serve the API until a signal comes (SIGTERM, SIGINT, SIGHUP), or, if there is a `stop`, until that is asked.

    `report` is told the URL once it is up. Without `tokens` only loopback addresses are served. Redis need not be there: who
    asks meanwhile is told 503. With a `workshop`, `POST /work` runs jobs in it, for who has a token or one of the `secrets`. At
    the end, no more requests are taken, who waits is answered, workers finish or give back, and the others have 8 s; a second
    signal hurries. `prompt` is for a process that may be frozen between two requests: an answer waits for the workers that its
    request has summoned. Raises Invalid for an address that cannot be served, and JobsError for a port that is taken.
    """
    tokens, limits = tokens or Tokens(), limits or Limits()
    sockets = listen(host, port, loopback_only=not tokens.needed)
    store = Store(quick(settings))
    summoner = store.summoner = Summoner(store, invokers_of())
    store.nudge = summoner.nudge
    api = Api(store, tokens, workshop=workshop, secrets=secrets or Secrets())
    front = Front(
        Prompt(api, summoner) if prompt else api, replace(limits, connections=make_room(limits.connections))
    )
    try:
        with _asked(stop) as stop:
            await front.start(sockets)
            report(url_of(host, sockets[0]))
            looking = asyncio.create_task(
                api.answer(Request("GET", "/readyz", headers={"host": "localhost"}))
            )
            await stop.asked.wait()
            looking.cancel()  # it was for the log: is Redis there?
            store.hurry()
            ending = [workshop.finish(GRACE, stop.hurried)] if workshop else []
            await asyncio.gather(front.stop(GRACE, stop.hurried), *ending)
    finally:
        if workshop:
            await workshop.aclose()
        for one in sockets:
            one.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await summoner.aclose(CLOSING / 2)
                await store.aclose()


@contextlib.contextmanager
def _asked(stop: Stop | None) -> Iterator[Stop]:
    """Who asks for the stop: the caller, or else signals."""
    if stop:
        yield stop
        return
    stop, loop, taken = Stop(), asyncio.get_running_loop(), []
    with contextlib.suppress(
        NotImplementedError, RuntimeError, ValueError
    ):  # not the main thread: the platform has the signals
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # started under nohup: stay
                loop.add_signal_handler(number, stop.ask)
                taken.append(number)
    try:
        yield stop
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
