"""The API inside somebody else's server: what every adapter for a platform stands on.

An adapter turns what its platform says into a `Request`, asks a `Hosted`, and turns the `Reply` back. All that differs between
platforms is there; all that they have in common is here: settings from the environment, tokens that must be, workers that are
summoned before the platform freezes the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

from sublet.connection.settings import Settings, quick
from sublet.errors import Invalid
from sublet.execution.app_loader import load_app
from sublet.scaling.invokers import invokers_of
from sublet.scaling.signing import Secrets
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from sublet_functions.adapters.summon_first import promptly
from sublet_functions.api.auth import Principal, Tokens
from sublet_functions.api.dispatch import Api
from sublet_functions.api.request import Reply, Request
from sublet_functions.api.response import Problem
from sublet_functions.api.routes import SECURITY
from sublet_functions.handlers.work import GRACE, Workshop
from sublet_functions.server.writer import undo

log = logging.getLogger(__name__)

APP = "SUBLET_APP"
"""The variable that names the app whose jobs are run here, by MODULE:APP."""
IDLE = 60.0
"""Seconds without a request after which the connections of a process that may have been frozen are not trusted any more."""
RESTING = 0.8
"""Seconds that an answer may be kept back until everything is given back that claims have left."""
CLOSING = 3.0
"""Seconds that the connections to Redis may take to close: it may not answer."""
OPEN = "no caller can be let in, for this server has no tokens: set SUBLET_TOKENS (NAME:ROLES:SECRET) or SUBLET_TOKENS_FILE"


class Hosted:
    """The API, made of the environment when it is first asked. Belongs to one event loop.

    `prompt`: the process may be frozen between two requests. What a request sets off, which is that workers are summoned, is seen
    to before it is answered then, and connections that lay idle for a minute are made anew.
    """

    def __init__(self, *, prompt: bool = False) -> None:
        self._prompt = prompt
        self._api: Api | None = None
        self._work_seconds: float | None = None
        self._asked_at = time.time()
        self._under_way = 0
        self._said = ""

    async def start(self) -> None:
        """See that requests can be answered. Redis need not be there. Raises Invalid for settings with which they cannot."""
        if not self._open().tokens.needed:
            raise Invalid(OPEN)

    async def answer(self, request: Request, who: Principal | None = None) -> Reply:
        """Answer one request. Nothing is raised but CancelledError.

        `who` is somebody whom the platform has let in. Everybody else needs a token, and where there are none, nobody is let in:
        who may reach a platform's address cannot be known here.
        """
        self._under_way += 1
        try:
            if self._prompt and self._under_way == 1:
                await self._renew()
            api = self._open()
            if who is None and not api.tokens.needed:
                raise Invalid(OPEN)
            return await (self._promptly(api, request, who) if self._prompt else api.answer(request, who))
        except Invalid as error:
            self._tell(str(error))
            refusal = Problem(
                "not-set-up", "with its settings this server can do nothing: its log says what is wrong"
            ).reply()
            refusal.headers = SECURITY | refusal.headers
            return refusal
        finally:
            self._asked_at = time.time()
            self._under_way -= 1

    async def _promptly(self, api: Api, request: Request, who: Principal | None) -> Reply:
        """Answer, and leave nothing to be done afterwards: then this process may be frozen."""
        reply: Reply | None = None
        try:
            reply = await promptly(api.store.summoner, api.answer(request, who))
            return reply
        finally:
            if self._under_way == 1:
                await self._rest(api, reply)

    async def _rest(self, api: Api, reply: Reply | None) -> None:
        try:
            async with asyncio.timeout(RESTING):
                await api.store.rest()
        except TimeoutError:
            log.warning(
                "what claims have left undone is not done after %g s: Redis is slow, or away", RESTING
            )
        except asyncio.CancelledError:
            if reply:  # there is an answer, and nobody who takes it
                await undo(reply)
            raise

    def limit_work(self, seconds: float) -> None:
        """Have no worker that begins from now on stay for longer, however long it may stay otherwise."""
        self._work_seconds = max(1.0, seconds)
        if self._api and self._api.workshop:
            self._api.workshop.seconds = self._work_seconds

    def hurry(self) -> None:
        """Have nobody wait any more: who does is answered now."""
        if self._api:
            self._api.store.hurry()

    async def finish(self, hurried: asyncio.Event | None = None) -> None:
        """Have workers finish or give back, within some seconds. No more are let in."""
        if self._api and self._api.workshop:
            await self._api.workshop.finish(GRACE, hurried or asyncio.Event())

    async def aclose(self) -> None:
        """See workers gone, and let go of all connections."""
        api, self._api = self._api, None
        if api is None:
            return
        if api.workshop:
            await api.workshop.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                if api.store.summoner:
                    await api.store.summoner.aclose(CLOSING / 2)
                await api.aclose()

    def _open(self) -> Api:
        if self._api is None:
            name, tokens, secrets = os.environ.get(APP, ""), Tokens.read(), Secrets.read()
            app = load_app(name) if name else None
            store = Store(quick(app.settings if app else Settings.read()))
            summoner = store.summoner = Summoner(store, invokers_of())
            summoner.prompt, store.nudge = self._prompt, summoner.nudge
            workshop = Workshop(app, seconds=self._work_seconds or Workshop.seconds_of()) if app else None
            self._api = Api(store, tokens, workshop=workshop, secrets=secrets)
        return self._api

    async def _renew(self) -> None:
        """Let go of what may have died while nobody looked: a gateway forgets connections without telling anybody."""
        api = self._api
        if api is None or time.time() - self._asked_at <= IDLE or api.store.has_subscribers:
            return
        if api.workshop is None or not api.workshop.busy:
            await self.aclose()

    def _tell(self, words: str) -> None:
        """Log what is wrong with the settings, once."""
        if words != self._said:
            self._said = words
            log.error("nothing can be done here: %s", words)
