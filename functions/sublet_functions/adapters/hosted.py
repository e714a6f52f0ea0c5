"""The API inside of another server, for the adapters."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

from sublet.connection.held_secrets import hold_secrets
from sublet.connection.settings import Settings, quick
from sublet.errors import Invalid
from sublet.execution.app_loader import load_app
from sublet.scaling.invokers import invokers_of
from sublet.scaling.signing import Secrets
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from sublet_functions.adapters.summon_first import summon_first
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers.worker_host import GRACE, WorkerHost
from sublet_functions.http.auth import Principal, Tokens
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response

log = logging.getLogger(__name__)

APP = "SUBLET_APP"
"""Environment variable with the app whose jobs `POST /work` runs here, as MODULE:APP."""
IDLE = 60.0
"""With `freezes`, a request after more idle seconds opens new connections: gateways drop idle ones."""
REST_SECONDS = 0.8
"""With `freezes`: most seconds that a response waits until disconnected clients' jobs are released."""
CLOSE_SECONDS = 3.0
NO_TOKENS = "no tokens are set, so every request is refused: set SUBLET_TOKENS (NAME:ROLES:SECRET) or SUBLET_TOKENS_FILE"


class Hosted:
    """The API for one event loop, set up from the environment by `start` or the first request, which remove tokens
    and signing secrets from `os.environ`.

    `freezes`: the platform may freeze the process between requests. So workers are summoned before a response
    (not a stream) is sent.
    """

    def __init__(self, *, freezes: bool = False) -> None:
        self.freezes = freezes
        self._api: Api | None = None
        self._work_seconds: float | None = None
        self._last_request_at = time.time()
        self._running = 0
        self._logged = ""

    async def start(self) -> None:
        """Check the settings, and import the app, if any; Redis is not asked. Raises Invalid, also without
        tokens if SUBLET_OPEN opens no role.
        """
        if not self._open().tokens.needed:
            raise Invalid(NO_TOKENS)

    async def answer(self, request: Request, principal: Principal | None = None) -> Response:
        """Answer one request, with a 503 if settings are invalid or, without `principal`, lack tokens. Raises
        only CancelledError.

        `principal`: the client, if the platform has authenticated it; else the route's own rule decides.
        """
        self._running += 1
        try:
            if self.freezes and self._running == 1:
                await self._renew()
            api = self._open()
            if principal is None and not api.tokens.needed:
                raise Invalid(NO_TOKENS)
            if self.freezes:
                return await self._answer_before_freeze(api, request, principal)
            return await api.answer(request, principal)
        except Invalid as error:
            self._log_once(str(error))
            return Problem(
                "not-set-up", "the server's settings are invalid: its log has the reason"
            ).response()
        finally:
            self._last_request_at = time.time()
            self._running -= 1

    async def _answer_before_freeze(
        self, api: Api, request: Request, principal: Principal | None
    ) -> Response:
        response: Response | None = None
        try:
            response = await summon_first(api.store.summoner, api.answer(request, principal))
            return response
        finally:
            if self._running == 1:
                await self._rest(api, response)

    async def _rest(self, api: Api, response: Response | None) -> None:
        try:
            async with asyncio.timeout(REST_SECONDS):
                await api.store.rest()
        except TimeoutError:
            log.warning(
                "leases of disconnected clients were not released within %g s (Redis is slow or away): they end when they expire",
                REST_SECONDS,
            )
        except asyncio.CancelledError:
            if response:
                await response.discard()
            raise

    def limit_work(self, seconds: float) -> None:
        """Let workers that start later run for at most so many seconds (1 at least)."""
        self._work_seconds = max(1.0, seconds)
        if self._api and self._api.worker_host:
            self._api.worker_host.seconds = self._work_seconds

    def hurry(self) -> None:
        """Answer all waiting requests now; later ones do not wait."""
        if self._api:
            self._api.store.hurry()

    async def finish(self, hurried: asyncio.Event | None = None) -> None:
        """Start no more workers; wait up to 5 s until running ones have finished or released their jobs, less if
        `hurried` is set.
        """
        if self._api and self._api.worker_host:
            await self._api.worker_host.finish(GRACE, hurried or asyncio.Event())

    async def aclose(self) -> None:
        """End all workers, and close all connections; a later request opens new ones."""
        api, self._api = self._api, None
        if api is None:
            return
        if api.worker_host:
            await api.worker_host.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if api.store.summoner:
                    await api.store.summoner.aclose(CLOSE_SECONDS / 2)
                await api.aclose()

    def _open(self) -> Api:
        if self._api is None:
            hold_secrets()
            name = os.environ.get(APP, "")
            tokens, secrets = Tokens.read(), Secrets.read()
            app = load_app(name) if name else None
            store = Store(quick(app.settings if app else Settings.read()))
            summoner = store.summoner = Summoner(store, invokers_of())
            summoner.prompt = self.freezes
            store.nudge = summoner.nudge
            host = WorkerHost(app, seconds=self._work_seconds or WorkerHost.seconds_of()) if app else None
            self._api = Api(store, tokens, worker_host=host, secrets=secrets, app=app)
        return self._api

    async def _renew(self) -> None:
        api = self._api
        if api is None or time.time() - self._last_request_at <= IDLE or api.store.has_subscribers:
            return
        if api.worker_host is None or not api.worker_host.busy:
            await self.aclose()

    def _log_once(self, message: str) -> None:
        if message != self._logged:
            self._logged = message
            log.error("every request is refused: %s", message)
