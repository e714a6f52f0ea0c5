"""The invoker `http`: a signed POST to a function's URL for each worker.

A 2xx status is success: a function answers first and works afterwards, as `POST /work` does. Many platforms
stop a function whose caller disconnects, so the connection stays open for up to 15 minutes.
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
from sublet.scaling.invokers.addresses import AddressGuard, NotAllowed, Reach, Resolve, check_url
from sublet.scaling.signing import Secrets
from sublet.source_tree import install_command

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

AT_ONE_TARGET = 8
"""Most calls to one target at the same time."""
HOLD = 900.0
"""Most seconds that a connection stays open after the status."""
HELD_MAX = 256
"""Most connections that stay open after the status; further ones are closed at once."""
ANSWER_MAX = 64 * 1024
"""Most bytes of an answer that are read and discarded; then the connection is closed."""
UNSEEN = "the call of a private address failed: the log of the process that made it has the reason"
"""The text stored for a failed call of a target that is not public: the reason would reveal open ports."""
HINTS = {401: ": does it have the same SUBLET_SIGNING_SECRETS as this process?"}


class HttpInvoker:
    """Starts workers by signed POST requests to the URL of a function, at addresses that `reach` allows."""

    kind = "http"

    def __init__(
        self,
        secrets: Secrets,
        reach: Reach = Reach.PUBLIC,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._secrets, self._reach, self._tls = secrets, reach, tls
        self._guard = AddressGuard(reach, resolve)
        self._session: aiohttp.ClientSession | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._held: set[asyncio.Task[None]] = set()

    async def invoke(self, request: Invocation) -> None:
        """Post to the pool's URL once for each summons. Raises InvocationFailed with those without a status
        2xx within 5 s; with all, if the URL is not allowed or aiohttp is missing.
        """
        try:
            check_url(request.target, reach=self._reach)
        except Invalid as error:
            raise InvocationFailed(str(error), request.summons) from None
        session = self._open(request)
        # Weak: removed after the last call.
        own = self._turns_of.setdefault(request.target, asyncio.Semaphore(AT_ONE_TARGET))
        try:
            await call_each(request, lambda summons: self._call(session, request, summons), own, self._turns)
        except InvocationFailed as error:
            if self._guard.is_inside(request.target):
                raise InvocationFailed(UNSEEN, error.summons, str(error)) from None
            raise

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
                f"the target answered {response.status}: redirects are not followed: use the final URL as the target"
            )
        if not 200 <= response.status < 300:
            raise InvocationFailed(
                f"the target answered {response.status}{HINTS.get(response.status, ': see the log of the target')}"
            )

    def _open(self, request: Invocation) -> aiohttp.ClientSession:
        if self._session is None:
            try:
                import aiohttp
            except ImportError:
                words = f"calling a URL needs aiohttp: {install_command('http')}"
                raise InvocationFailed(words, request.summons) from None
            connector = aiohttp.TCPConnector(
                # The semaphores limit calls: kept connections must not count.
                limit=0,
                # An idle connection may be dead; then it is unknown whether a call has arrived.
                force_close=True,
                use_dns_cache=False,
                resolver=cast(Any, self._guard),
                socket_factory=self._guard.open,
                ssl=True if self._tls is None else self._tls,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sublet"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                auto_decompress=False,
                # A proxy would connect to an address that was not checked.
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        """Close all connections, also those of running workers: many platforms then stop the worker."""
        for task in tuple(self._held):
            task.cancel()
        if self._held:
            await asyncio.wait(tuple(self._held))
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._guard.close()


async def _hold(response: aiohttp.ClientResponse) -> None:
    import aiohttp

    left = ANSWER_MAX
    try:
        async with asyncio.timeout(HOLD):
            while left > 0 and (piece := await response.content.readany()):
                left -= len(piece)
    except (aiohttp.ClientError, OSError) as error:
        log.debug("the answer of an invoked function was cut off: %s", type(error).__name__)
    finally:
        response.close()


def _unconnected(error: aiohttp.ClientConnectorError) -> str:
    why: Any = getattr(error, "certificate_error", None) or error.os_error
    if isinstance(why, NotAllowed):
        return str(why)
    if isinstance(why, ssl.SSLError | ssl.CertificateError):
        return f"TLS with the target failed: {getattr(why, 'verify_message', '') or getattr(why, 'reason', '') or 'the handshake failed'}"
    plain = why.errno and not isinstance(why, socket.gaierror)  # asyncio's message contains the address
    return f"the target cannot be reached: {(os.strerror(why.errno) if plain else why.strerror) or type(why).__name__}"


def _broken(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | ConnectionError):
        return "the target closed the connection before it answered"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the target's answer is not valid HTTP"
    return f"the call of the target failed ({type(error).__name__})"
