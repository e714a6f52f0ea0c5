"""Jobs over HTTP: the `JobSource` of a worker or producer that reaches no Redis, only the API, behind whatever gateway.

It promises what `sublet.store.store.Store` does. A request without an answer is sent again, the very same, a few times: every route gives
a repeated request its first answer. What is sent and how answers read is `sublet.store.http_codec`'s; this module speaks HTTP.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from pydantic import TypeAdapter

from sublet import model
from sublet.errors import Denied, Invalid, JobsError, NotFound, Unavailable
from sublet.protocol import verbs
from sublet.store import http_codec
from sublet.store.http_endpoint import Endpoint, address

T = TypeVar("T")
Body = Mapping[str, Any]
Item = TypeVar("Item")
log = logging.getLogger(__name__)

PAUSES = (0.05, 0.2)
"""Seconds before a request without an answer is sent again."""
PATIENCE = 8.0
"""Seconds after which it is not, its own waiting apart: Redis remembers a claim for 10."""
WAIT_MAX = 20.0
"""Seconds that one request waits; a longer wait is asked for piece by piece."""
ANSWER_MAX = 64 * 1024 * 1024
"""Bytes of an answer that are read."""
CONNECTIONS = 32
"""Requests that are under way at once; others wait for their turn."""
GATEWAY = (502, 504)
"""Statuses by which a gateway says that it got no answer itself."""
_WORKERS = TypeAdapter(list[model.WorkerInfo])


class HttpSource:
    """The API at a URL. Belongs to one event loop; connects on first use.

    `token` may be the path of a file that has it, which is read again when the token is refused; `timeout` is seconds that one
    request may take beyond what it asks to wait. Raises Invalid for a URL or a token that cannot be. Every method raises
    Unavailable when nothing answers in time, and Denied when the API does not take the token.
    """

    def __init__(self, url: str, token: str | Path | None = None, timeout: float = 2.0) -> None:
        self._at, self._timeout = Endpoint(url, token), timeout
        self._session: aiohttp.ClientSession | None = None
        self._unclaimed: set[asyncio.Future[None]] = set()
        if self._at.is_overheard:
            log.warning(
                "the token goes to %s in the clear: use https:// where others could listen", self._at.url
            )

    @classmethod
    def read(cls, url: str | None = None, timeout: float = 2.0) -> "HttpSource":
        """The one at `url`, else at SUBLET_SOURCE, with the token that the environment has (see `address`)."""
        return cls(*address(url), timeout)

    async def submit(self, jobs: Sequence[model.Submission]) -> list[model.Submitted]:
        """Store jobs, as many as there are. Raises Invalid, Refused or Unavailable; sending the same again is safe."""
        answers: list[model.Submitted] = []
        for batch in verbs.batches(jobs, lambda job: len(job.payload), http_codec.BATCH):
            for line in await self._lines("/jobs/batch", batch, http_codec.new_job, http_codec.submitted):
                if isinstance(line, http_codec.Not):
                    raise self._at.item(line.type, line.detail)
                answers.append(line)
        return answers

    async def claim(
        self, *, worker: str, queues: Sequence[str], n: int, lease: float, wait: float = 0
    ) -> model.Claimed:
        """Take up to `n` jobs from the queues, in their order; with `wait`, stay up to that many seconds for the first one."""
        wish = {"worker": worker, "queues": list(queues), "n": min(n, verbs.CLAIM_MAX), "lease": lease}
        until = time.monotonic() + wait
        while True:
            claimed = await self._claim_safely(wish, min(max(until - time.monotonic(), 0.0), WAIT_MAX))
            left = until - time.monotonic()
            if claimed.leases or left <= 0:
                return claimed
            await asyncio.sleep(min(left, PAUSES[0]))  # a server that is about to go may have cut it short

    async def _claim_safely(self, wish: dict[str, Any], wait: float) -> model.Claimed:
        """Claim. If the caller is cancelled, or hears no answer, what it may have been given by then goes back."""
        wish = wish | {"claim_id": secrets.token_urlsafe(16)}
        try:
            return await self._ask("POST", "/jobs/claim", http_codec.claimed, wish, wait=wait)
        except (asyncio.CancelledError, Unavailable) as error:
            if not isinstance(error, Denied):  # then nothing was given
                giving_back = asyncio.ensure_future(self._give_back(wish | {"n": 0}))
                self._unclaimed.add(giving_back)
                giving_back.add_done_callback(self._unclaimed.discard)
            raise

    async def _give_back(self, again: dict[str, Any]) -> None:
        """Ask once more what a claim has brought, which its id tells for 10 s, and release that."""
        try:
            async with asyncio.timeout(2 * self._timeout):
                claimed = await self._ask("POST", "/jobs/claim", http_codec.claimed, again)
                await self.settle([model.Release(lease, 0, "the claimer left") for lease in claimed.leases])
        except (JobsError, TimeoutError) as error:
            log.info(
                "a claim was abandoned (%s); what it took comes back when its lease ends",
                str(error) or "no answer",
            )

    async def heartbeat(self, beats: Sequence[model.Beat], *, lease: float) -> list[int | str]:
        """Extend leases, any number. Per lease its new end in ms, or LEASE_LOST, NOT_FOUND, CANCEL_REQUESTED."""

        async def send(some: Sequence[model.Beat]) -> list[int | str]:
            return await self._lines("/jobs/heartbeat", some, http_codec.beat, http_codec.beaten, lease=lease)

        return await _side_by_side(beats, send)

    async def settle(self, endings: Sequence[model.Ending]) -> list[str]:
        """End attempts, any number and mix. Per ending the new state with its words, LEASE_LOST or NOT_FOUND."""
        answers: dict[int, str] = {}

        async def send(kind: type) -> None:
            own = [i for i, ending in enumerate(endings) if type(ending) is kind]
            words = await _side_by_side([endings[i] for i in own], self._settle)
            answers.update(zip(own, words, strict=True))

        await asyncio.gather(*(send(kind) for kind in http_codec.ROUTES))
        return [answers[i] for i in range(len(endings))]

    async def _settle(self, endings: Sequence[model.Ending]) -> list[str]:
        """End attempts of one kind. A result that the API does not take must keep neither the others nor its worker."""
        try:
            return await self._lines(
                http_codec.ROUTES[type(endings[0])], endings, http_codec.ending, http_codec.settled
            )
        except Invalid as error:
            ending = endings[0]
            if len(endings) > 1:
                half = len(endings) // 2  # find out which
                return await self._settle(endings[:half]) + await self._settle(endings[half:])
            if not isinstance(ending, model.Completion):
                raise
            return await self._settle(
                [model.Failure(ending.lease, "invalid_result", str(error), again=False)]
            )

    async def note(self, notes: Sequence[model.Note]) -> list[str]:
        """Keep checkpoints and logs, any number. Per lease `noted`, LEASE_LOST or NOT_FOUND."""
        return await _side_by_side(notes, self._note)

    async def _note(self, notes: Sequence[model.Note]) -> list[str]:
        try:
            return await self._lines("/jobs/note", notes, http_codec.note, http_codec.noted)
        except Invalid as error:
            if len(notes) > 1:
                return await self._note(notes[: len(notes) // 2]) + await self._note(notes[len(notes) // 2 :])
            if not notes[0].checkpoint:
                raise
            log.warning("a checkpoint of job %s is not kept: %s", notes[0].lease.id, error)
            return await self._note([notes[0]._replace(checkpoint=b"")])

    async def enlist(self, card: model.Card) -> bool:
        """A worker's sign of life. True when it has been asked to finish and go."""
        return await self._ask(
            "PUT",
            f"/workers/{http_codec.part(card.worker)}",
            lambda a: bool(a.json()["drain"]),
            http_codec.card(card),
        )

    async def workers(self) -> list[model.WorkerInfo]:
        """The workers on the register; what they hold is left out."""
        return await self._ask(
            "GET", "/workers?jobs=false", lambda answer: _WORKERS.validate_python(answer.json()["workers"])
        )

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """Strike off workers (name → life) that are gone for good and end their leases. How many those were.

        Those that came with another's token are not ours to strike off: their leases end by themselves.
        """
        ended = 0
        for name, life in gone.items():
            try:
                path = f"/workers/{http_codec.part(name)}/reconcile"
                ended += await self._ask(
                    "POST", path, lambda answer: int(answer.json()["ended"]), {"life": life}
                )
            except Denied as error:
                log.warning("what worker %s held comes back when its leases end: %s", name, error)
        return ended

    async def retire(self, card: model.Card) -> bool:
        """May an idle worker of a pool go? True: it counts no more from this moment, and must take nothing more."""
        path, said = f"/workers/{http_codec.part(card.worker)}/retire", {"life": card.life, "pool": card.pool}
        return await self._ask("POST", path, lambda answer: bool(answer.json()["leave"]), said)

    async def leave(self, card: model.Card) -> None:
        """Strike off a worker that holds nothing any more."""
        path = f"/workers/{http_codec.part(card.worker)}?life={http_codec.part(card.life)}"
        await self._ask("DELETE", path, lambda answer: None)

    async def watch(self, job_id: str, wait: float) -> model.Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        path, until = f"/jobs/{http_codec.part(job_id)}", time.monotonic() + wait
        while True:
            piece = min(max(until - time.monotonic(), 0.0), WAIT_MAX)
            try:
                standing = await self._ask(
                    "GET", path, lambda answer: http_codec.standing(answer.json()), wait=piece
                )
            except NotFound:
                return model.Standing(None, b"", "")
            left = until - time.monotonic()
            if standing.state in model.FINISHED or left <= 0:
                return standing
            await asyncio.sleep(min(left, PAUSES[0]))

    async def aclose(self) -> None:
        """Give back what abandoned claims brought, and let go of all connections."""
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)
        if self._session:
            await self._session.close()

    async def _lines(
        self,
        path: str,
        items: Sequence[Item],
        say: Callable[[Item], Any],
        read: Callable[[Any], T],
        **more: Any,
    ) -> list[T]:
        """Send a batch, and read its answer line by line."""
        body = {"jobs": [say(item) for item in items], **more}

        def lines(answer: http_codec.Answer) -> list[T]:
            found = answer.json()["jobs"]
            if len(found) != len(items):
                raise ValueError(f"{len(found)} answers to {len(items)} items")
            return [read(line) for line in found]

        return await self._ask("POST", path, lines, body)

    async def _ask(
        self,
        method: str,
        path: str,
        read: Callable[[http_codec.Answer], T],
        body: Body | None = None,
        *,
        wait: float = 0.0,
    ) -> T:
        """Send a request, again if nothing answers, and read its answer. Raises what the API's refusal means."""
        ends, until = time.monotonic() + wait, time.monotonic() + wait + PATIENCE
        for pause in (*PAUSES, None):
            left = max(0.0, ends - time.monotonic())
            try:
                answer = await self._send(method, path, body, left)
                if not 200 <= answer.status < 300:
                    raise self._at.refusal(answer, f"{method} {path}")
                return read(answer)
            except (
                KeyError,
                TypeError,
                ValueError,
                AttributeError,
                RecursionError,
            ) as error:  # somebody has spoiled it
                if pause is None or time.monotonic() > until:
                    raise self._at.foreign(
                        f"{type(error).__name__} in its answer to {method} {path}"
                    ) from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if pause is None or time.monotonic() > until:
                    raise self._away(error) from error
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _send(self, method: str, path: str, body: Body | None, wait: float) -> http_codec.Answer:
        """One request and its answer; if the token was refused, and its file has another by now, a second one."""
        if wait and body is not None:
            body = {**body, "wait": wait}
        elif wait:
            path = f"{path}?wait={wait:.3f}"
        sent = self._at.headers
        answer = await self._once(method, path, body, wait)
        if answer.status == 401 and self._at.renew(sent):
            answer = await self._once(method, path, body, wait)
        if answer.status in GATEWAY:
            raise aiohttp.ClientError(f"a gateway says {answer.status}")
        return answer

    async def _once(self, method: str, path: str, body: Body | None, wait: float) -> http_codec.Answer:
        said = None if body is None else http_codec.write(body)
        headers = (
            self._at.headers if body is None else {"Content-Type": "application/json", **self._at.headers}
        )
        timeout = aiohttp.ClientTimeout(total=wait + self._timeout, sock_connect=self._timeout)
        request = self._open().request(
            method, self._at.url + path, data=said, headers=headers, timeout=timeout, allow_redirects=False
        )
        async with request as response:
            parts, size = [], 0
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > ANSWER_MAX:
                    raise aiohttp.ClientPayloadError(f"an answer of more than {ANSWER_MAX:,} bytes")
            return http_codec.Answer(response.status, response.headers, b"".join(parts))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "sublet"},
                auto_decompress=False,
            )
        return self._session

    def _away(self, error: Exception) -> Unavailable:
        if isinstance(error, aiohttp.ClientResponseError):
            return self._at.foreign("it does not speak HTTP")
        if isinstance(error, TimeoutError):
            return self._at.away(f"not a word for {self._timeout:g} s")
        why = getattr(error, "os_error", error)
        return self._at.away(str(why) or type(error).__name__)


async def _side_by_side(items: Sequence[Any], send: Callable[[Sequence[Any]], Awaitable[list[T]]]) -> list[T]:
    """Send items in requests that are not too large, side by side; the answers come in the items' order."""
    batches = list(verbs.batches(items, verbs.weight, http_codec.BATCH))
    if len(batches) == 1:
        return await send(batches[0])
    return [answer for answers in await asyncio.gather(*map(send, batches)) for answer in answers]
