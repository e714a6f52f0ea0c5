"""`HttpSource`: reach jobs over the HTTP API.

A request without an answer is sent again, up to twice: each is safe to repeat.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from pydantic import TypeAdapter

from sublet import model
from sublet.errors import Denied, Invalid, JobsError, NotFound, Unavailable
from sublet.protocol import keys, verbs
from sublet.steps.calls import CalledJob, Kept
from sublet.steps.chunks import Emission
from sublet.store import http_codec
from sublet.store.http_endpoint import Endpoint, address
from sublet.workflows.following import fail_instead, settle_each
from sublet.workflows.upstream import UpstreamPage

T = TypeVar("T")
Body = Mapping[str, Any]
Item = TypeVar("Item")
log = logging.getLogger(__name__)

PAUSES = (0.05, 0.2)
PATIENCE = 8.0
"""A request over so many seconds old, its `wait` not counted, is not sent again."""
WAIT_MAX = 20.0
ANSWER_MAX = 64 * 1024 * 1024
CONNECTIONS = 32
HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "sublet",
    "Sublet-Version": "1",
}
GATEWAY = (502, 504)
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
_WORKERS = TypeAdapter(list[model.WorkerInfo])


class HttpSource:
    """Reaches jobs through the HTTP API at a URL. For one event loop.

    `token`: the token, or the `Path` of a file with it, which is read again when the API refuses the token.
    `timeout`: seconds for each try, besides its `wait`. Raises Invalid for an invalid URL or token. Methods
    raise Unavailable without an answer in time, Denied if the token is refused.
    """

    def __init__(self, url: str, token: str | Path | None = None, timeout: float = 2.0) -> None:
        self._at, self._timeout = Endpoint(url, token), timeout
        self._session: aiohttp.ClientSession | None = None
        self._unclaimed: set[asyncio.Future[None]] = set()
        if self._at.is_overheard:
            log.warning(
                "the token is sent to %s unencrypted: use https:// unless the network is trusted",
                self._at.url,
            )

    @classmethod
    def read(cls, url: str | None = None, timeout: float = 2.0) -> "HttpSource":
        """Make a source for `url` or SUBLET_SOURCE, with the token in SUBLET_TOKEN, else in the file
        SUBLET_TOKEN_FILE.
        """
        return cls(*address(url), timeout)

    async def submit(self, jobs: Sequence[model.Submission]) -> list[model.Submitted]:
        """Store jobs; return the answers in order. Raises Invalid, Refused or Unavailable; then some may be
        stored.
        """
        answers: list[model.Submitted] = []
        for batch in verbs.batches(jobs, lambda job: len(job.payload), http_codec.BATCH):
            for line in await self._lines("/jobs/batch", batch, http_codec.new_job, http_codec.submitted):
                if isinstance(line, http_codec.Rejected):
                    raise self._at.item(line.type, line.detail)
                answers.append(line)
        return answers

    async def claim(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        n: int,
        lease: float,
        wait: float = 0,
        strict: bool = False,
        life: str = "",
    ) -> model.Claimed:
        """Lease up to `n` jobs, at most 100; wait up to `wait` seconds for the first, as `JobSource.claim`."""
        request = {"worker": worker, "queues": list(queues), "n": min(n, verbs.CLAIM_MAX), "lease": lease}
        if strict:
            request["strict"] = True
        until = time.monotonic() + wait
        while True:
            claimed = await self._claim_once(
                request | {"claim_id": keys.new_claim_id(life)},
                min(max(until - time.monotonic(), 0.0), WAIT_MAX),
            )
            left = until - time.monotonic()
            if claimed.leases or claimed.dead or left <= 0:
                return claimed
            await asyncio.sleep(min(left, PAUSES[0]))

    async def _claim_once(self, request: dict[str, Any], wait: float) -> model.Claimed:
        try:
            return await self._ask("POST", "/jobs/claim", http_codec.claimed, request, wait=wait)
        except (asyncio.CancelledError, Unavailable) as error:
            if not isinstance(error, Denied):
                giving_back = asyncio.ensure_future(self._give_back(request | {"n": 0}))
                self._unclaimed.add(giving_back)
                giving_back.add_done_callback(self._unclaimed.discard)
            raise

    async def _give_back(self, again: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(2 * self._timeout):
                claimed = await self._ask("POST", "/jobs/claim", http_codec.claimed, again)
                await self.settle(
                    [
                        model.Release(lease, 0, "given back: the worker had stopped waiting for this claim")
                        for lease in claimed.leases
                    ]
                )
        except (JobsError, TimeoutError) as error:
            log.info(
                "the jobs of a cancelled claim could not be released (%s): they are queued again when their leases expire",
                str(error) or "no answer",
            )

    async def heartbeat(self, beats: Sequence[model.Beat], *, lease: float) -> list[int | str]:
        """Extend leases; return per lease its new end (ms since 1970) or a code, as `JobSource.heartbeat`."""

        async def send(some: Sequence[model.Beat]) -> list[int | str]:
            return await self._lines("/jobs/heartbeat", some, http_codec.beat, http_codec.beaten, lease=lease)

        return await _side_by_side(beats, send)

    async def settle(self, endings: Sequence[model.Ending]) -> list[str]:
        """Report outcomes; return per attempt the job's new state or a code, as `JobSource.settle`. An
        invalid result makes the job dead.
        """

        async def send(some: Sequence[model.Ending]) -> list[str]:
            return await _side_by_side(some, self._settle)

        return await settle_each(endings, dict.fromkeys(http_codec.ROUTES, send), self._proceed)

    async def _proceed(self, ending: model.Completion, following: model.Following) -> str:
        body = http_codec.continuation(ending, following)
        return await self._ask("POST", f"/jobs/{ending.lease.id}/proceed", http_codec.continued, body)

    async def _settle(self, endings: Sequence[model.Ending]) -> list[str]:
        try:
            return await self._lines(
                http_codec.ROUTES[type(endings[0])], endings, http_codec.ending, http_codec.settled
            )
        except Invalid as error:
            ending = endings[0]
            if len(endings) > 1:
                half = len(endings) // 2
                return await self._settle(endings[:half]) + await self._settle(endings[half:])
            if not isinstance(ending, model.Completion):
                raise
            return [await fail_instead(ending, error, self._settle)]

    async def note(self, notes: Sequence[model.Note]) -> list[str]:
        """Store checkpoints, logs and costs; return per lease `noted` or a code; log a refused checkpoint."""
        return await _side_by_side(notes, self._note)

    async def step(self, lease: model.Lease, steps: Mapping[str, bytes]) -> dict[str, Kept]:
        """Keep steps; return those kept before; if `steps` is empty, all kept ones."""
        path = f"/jobs/{lease.id}/step"
        return await self._ask("POST", path, http_codec.kept_steps, http_codec.steps(lease, steps))

    async def emit(self, lease: model.Lease, emission: Emission) -> None:
        """Append chunks, as `JobSource.emit`."""
        body = http_codec.emission(lease, emission)
        await self._ask("POST", f"/jobs/{lease.id}/emit", lambda answer: None, body)

    async def call(self, lease: model.Lease, called: CalledJob) -> Kept:
        """Store a job for a step, once; return the step, as `JobSource.call`."""
        body = http_codec.called_job(lease, called)
        return await self._ask("POST", f"/jobs/{lease.id}/call", http_codec.kept_call, body)

    async def upstream(self, lease: model.Lease, start: int) -> UpstreamPage:
        """Return outcomes of upstream jobs, from index `start` on."""
        body = {"token": lease.token, "start": start}
        return await self._ask("POST", f"/jobs/{lease.id}/upstream", http_codec.upstream, body)

    async def _note(self, notes: Sequence[model.Note]) -> list[str]:
        try:
            return await self._lines("/jobs/note", notes, http_codec.note, http_codec.noted)
        except Invalid as error:
            if len(notes) > 1:
                return await self._note(notes[: len(notes) // 2]) + await self._note(notes[len(notes) // 2 :])
            if not notes[0].checkpoint:
                raise
            log.warning("a checkpoint of job %s is not stored: %s", notes[0].lease.id, error)
            return await self._note([notes[0]._replace(checkpoint=b"")])

    async def enlist(self, card: model.Card) -> bool:
        """Register a worker, or renew it; return whether it should drain."""
        return await self._ask(
            "PUT",
            f"/workers/{http_codec.part(card.worker)}",
            lambda a: bool(a.json()["drain"]),
            http_codec.card(card),
        )

    async def publish(self, tasks: Sequence[model.Description], starting: bool) -> None:
        """Write or renew a worker's tasks in the catalogue; replace recent different ones only if `starting`."""
        for batch in verbs.batches(tasks, lambda task: len(task.text), verbs.PUBLISH_MAX):
            body = {"starting": starting, "tasks": [http_codec.task(each) for each in batch]}
            await self._ask("PUT", "/tasks", lambda answer: None, body)

    async def workers(self) -> list[model.WorkerInfo]:
        """Return the workers registered with this token; for an admin of all queues, all."""
        return await self._ask(
            "GET",
            "/workers?jobs=false&own=true",
            lambda answer: _WORKERS.validate_python(answer.json()["workers"]),
        )

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """End the leases of this token's gone workers (name → life), and delete their registrations; return
        how many leases.
        """
        ended = 0
        for name, life in gone.items():
            path = f"/workers/{http_codec.part(name)}/reconcile"
            ended += await self._ask("POST", path, lambda answer: int(answer.json()["ended"]), {"life": life})
        return ended

    async def retire(self, card: model.Card) -> bool:
        """Return whether an idle worker may leave its pool; if so, it must not claim again."""
        path, body = f"/workers/{http_codec.part(card.worker)}/retire", {"life": card.life, "pool": card.pool}
        return await self._ask("POST", path, lambda answer: bool(answer.json()["leave"]), body)

    async def leave(self, card: model.Card) -> None:
        """Delete a worker's registration, unless its life is another."""
        path = f"/workers/{http_codec.part(card.worker)}?life={http_codec.part(card.life)}"
        await self._ask("DELETE", path, lambda answer: None)

    async def watch(self, job_id: str, wait: float) -> model.Standing:
        """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
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
        """Release jobs of cancelled claims; close all connections."""
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)
        if self._session:
            await self._session.close()

    async def _lines(
        self,
        path: str,
        items: Sequence[Item],
        encode: Callable[[Item], Any],
        read: Callable[[Any], T],
        **more: Any,
    ) -> list[T]:
        body = {"jobs": [encode(item) for item in items], **more}

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
        ends, until = time.monotonic() + wait, time.monotonic() + wait + PATIENCE
        for pause in (*PAUSES, None):
            left = max(0.0, ends - time.monotonic())
            try:
                answer = await self._send(method, path, body, left)
                if not 200 <= answer.status < 300:
                    raise self._at.refusal(answer, f"{method} {path}")
                return read(answer)
            except MALFORMED as error:
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
        if wait and body is not None:
            body = {**body, "wait": wait}
        elif wait:
            path = f"{path}?wait={wait:.3f}"
        sent = self._at.headers
        answer = await self._once(method, path, body, wait)
        if answer.status == 401 and self._at.renew(sent):
            answer = await self._once(method, path, body, wait)
        if answer.status in GATEWAY:
            raise aiohttp.ClientError(f"a gateway answered {answer.status}")
        return answer

    async def _once(self, method: str, path: str, body: Body | None, wait: float) -> http_codec.Answer:
        data = None if body is None else http_codec.write(body)
        headers = (
            self._at.headers if body is None else {"Content-Type": "application/json", **self._at.headers}
        )
        timeout = aiohttp.ClientTimeout(total=wait + self._timeout, sock_connect=self._timeout)
        request = self._open().request(
            method, self._at.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
        )
        async with request as response:
            parts, size = [], 0
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > ANSWER_MAX:
                    raise aiohttp.ClientPayloadError(f"its answer has more than {ANSWER_MAX:,} bytes")
            return http_codec.Answer(response.status, response.headers, b"".join(parts))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=HEADERS,
                auto_decompress=False,
            )
        return self._session

    def _away(self, error: Exception) -> Unavailable:
        if isinstance(error, aiohttp.ClientResponseError):
            return self._at.foreign("it does not speak HTTP")
        if isinstance(error, TimeoutError):
            return self._at.away(f"nothing for {self._timeout:g} s")
        why = getattr(error, "os_error", error)
        return self._at.away(str(why) or type(error).__name__)


async def _side_by_side(items: Sequence[Any], send: Callable[[Sequence[Any]], Awaitable[list[T]]]) -> list[T]:
    batches = list(verbs.batches(items, verbs.weight, http_codec.BATCH))
    if len(batches) == 1:
        return await send(batches[0])
    return [answer for answers in await asyncio.gather(*map(send, batches)) for answer in answers]
