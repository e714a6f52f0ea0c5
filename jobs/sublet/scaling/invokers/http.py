"""The invoker `http`: a signed POST to a function's URL for each worker that is owed.

It has got through when a status of 2xx has come: a function answers first and works then, as `POST /work` does. What follows is
not waited for. But to many platforms and gateways a caller who has hung up is a reason to stop, so the connection is kept open,
unread but for a little, as long as this process lives, at most 15 minutes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from sublet.errors import Invalid
from sublet.scaling.invokers import AT_ONCE, Invocation, InvocationFailed, call_each
from sublet.scaling.invokers.addresses import Guard, NotAllowed, Resolve, check_url
from sublet.scaling.signing import Secrets

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

AT_ONE_TARGET = 8
"""Calls of one target that are under way at once: one that hangs leaves turns to the others."""
HOLD = 900.0
"""Seconds that a connection is kept open behind its status: no function platform of note lets a request go on for longer."""
HELD_MAX = 256
"""Connections that are kept open; of further ones, each is closed when its status is here."""
ANSWER_MAX = 64 * 1024
"""Bytes of an answer that are taken from the wire, and thrown away; then the connection is closed."""
HINTS = {401: ": has it the same SUBLET_SIGNING_SECRETS as whoever calls it?"}
"""What to look for behind a status."""


class HttpInvoker:
    """Calls functions by their URLs. The connection is made to the address that was checked, and to no other."""

    kind = "http"

    def __init__(
        self,
        secrets: Secrets,
        *,
        private: bool = False,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secrets, self._private, self._tls = secrets, private, tls
        self._guard = Guard(private=private, resolve=resolve)
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._held: set[asyncio.Task[None]] = set()

    async def invoke(self, request: Invocation) -> None:
        """Post to the pool's URL, once for each summons. Raises InvocationFailed for those that got no 2xx within 5 s."""
        try:
            check_url(request.target, private=self._private)
        except Invalid as error:  # whatever wrote it to Redis
            raise InvocationFailed(str(error), request.summons) from None
        session = self._open(request)
        own = self._turns_of.setdefault(
            request.target, asyncio.Semaphore(AT_ONE_TARGET)
        )  # gone when its last call is
        await call_each(request, lambda summons: self._call(session, request, summons), own, self._turns)

    async def _call(self, session: aiohttp.ClientSession, request: Invocation, summons: str) -> None:
        import aiohttp

        body = request.body(summons)
        headers = self._secrets.sign(summons, body) | {"Content-Type": "application/json"}
        try:
            response = await session.post(request.target, data=body, headers=headers, allow_redirects=False)
        except aiohttp.ClientConnectorError as error:
            raise InvocationFailed(_unconnected(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise InvocationFailed(_broken(error)) from None
        if 200 <= response.status < 300 and len(self._held) < HELD_MAX:
            task = asyncio.create_task(_hold(response))
            self._held.add(task)
            task.add_done_callback(self._held.discard)
            return
        response.close()
        if 300 <= response.status < 400:
            raise InvocationFailed(
                f"it answered {response.status}, and no redirect is followed: give the address that answers"
            )
        if not 200 <= response.status < 300:
            raise InvocationFailed(f"it answered {response.status}{HINTS.get(response.status, '')}")

    def _open(self, request: Invocation) -> aiohttp.ClientSession:
        """The session, made when it is first needed: so is aiohttp, which takes a while to import."""
        if self._session is None:
            try:
                import aiohttp
            except ImportError:
                words = "to call a URL takes aiohttp: pip install 'sublet[http]' (from a checkout: '.[http]')"
                raise InvocationFailed(words, request.summons) from None
            connector = aiohttp.TCPConnector(
                limit=0,  # the turns are the limit; held connections must not count
                force_close=True,  # a connection that was left idle may be dead, and then nobody knows whether the call was heard
                use_dns_cache=False,
                resolver=cast(Any, self._guard),
                socket_factory=self._guard.open,
                ssl=True if self._tls is None else self._tls,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sublet"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # `call_each` sees to it
                auto_decompress=False,
                trust_env=False,  # a proxy would connect to an address that nobody has checked
            )
        return self._session

    async def aclose(self) -> None:
        """Close all connections."""
        for task in tuple(self._held):
            task.cancel()
        if self._held:
            await asyncio.wait(tuple(self._held))
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._guard.close()


async def _hold(response: aiohttp.ClientResponse) -> None:
    """Stay on the line until the answer has ended, has become too long, or has taken too long."""
    import aiohttp

    left = ANSWER_MAX
    try:
        async with asyncio.timeout(HOLD):
            while left > 0 and (piece := await response.content.readany()):
                left -= len(piece)
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        log.debug("an invoked function's answer broke off: %s", type(error).__name__)
    finally:
        response.close()


def _unconnected(error: aiohttp.ClientConnectorError) -> str:
    why: Any = getattr(error, "certificate_error", None) or error.os_error
    if isinstance(why, NotAllowed):
        return str(why)
    if isinstance(why, ssl.SSLError | ssl.CertificateError):
        return f"no TLS with it: {getattr(why, 'verify_message', '') or getattr(why, 'reason', '') or 'the handshake failed'}"
    plain = why.errno and not isinstance(why, socket.gaierror)  # asyncio's own words name the address
    return (
        f"it cannot be reached: {(os.strerror(why.errno) if plain else why.strerror) or type(why).__name__}"
    )


def _broken(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError):
        return "it hung up before it answered"
    if isinstance(error, aiohttp.ClientResponseError):
        return "what answered does not speak HTTP"
    return f"the call broke off ({type(error).__name__})"
