"""The outcomes of a running job's upstream jobs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, NoReturn

from sublet.client.result import load_json, outcome_of
from sublet.errors import Invalid, JobsError
from sublet.large_payloads.storage import Storage, is_reference
from sublet.model import Standing
from sublet.outcome import Outcome
from sublet.workflows.upstream import UpstreamPage


class LoopUpstream:
    """The upstream jobs' outcomes, for an async task: `async for`, or `await` for a list."""

    def __init__(self, read: Callable[[int], Awaitable[UpstreamPage]], storage: Storage | None) -> None:
        self._read, self._storage = read, storage

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        start: int | None = 0
        while start is not None:
            page = await self._read(start)
            for job_id, standing in page.jobs:
                if is_reference(standing.result):
                    yield await asyncio.to_thread(_outcome, self._storage, job_id, standing)
                else:
                    yield _outcome(None, job_id, standing)
            start = page.following

    def __await__(self) -> Generator[Any, None, list[Outcome]]:
        return self._all().__await__()

    async def _all(self) -> list[Outcome]:
        return [one async for one in self]

    def __iter__(self) -> NoReturn:
        raise Invalid(
            "ctx.upstream in an async task: use `async for one in ctx.upstream`, or `await ctx.upstream`"
        )


class PlainUpstream:
    """The upstream jobs' outcomes, for a plain function, which iterates with `for`."""

    def __init__(self, read: Callable[[int], UpstreamPage], storage: Storage | None) -> None:
        self._read, self._storage = read, storage

    def __iter__(self) -> Iterator[Outcome]:
        start: int | None = 0
        while start is not None:
            page = self._read(start)
            for job_id, standing in page.jobs:
                yield _outcome(self._storage, job_id, standing)
            start = page.following

    def __await__(self) -> NoReturn:
        raise Invalid("ctx.upstream in a plain function: use `for one in ctx.upstream`")

    __aiter__ = __await__


def _outcome(storage: Storage | None, job_id: str, standing: Standing) -> Outcome:
    if is_reference(standing.result):
        try:
            standing = standing._replace(result=large_result(storage, job_id, standing.result))
        except JobsError as error:
            return Outcome(job_id, standing.state, error=error)
    return outcome_of(job_id, standing, load_json)


def large_result(storage: Storage | None, job_id: str, reference: bytes) -> bytes:
    """Fetch a result stored outside Redis. Raises PayloadLost, Unavailable; Invalid without `storage`."""
    if storage is None:
        raise Invalid(
            f"the result of job {job_id} is stored outside Redis, and this worker has no large_payloads: "
            "give them to its App"
        )
    return storage.get(job_id, reference)
