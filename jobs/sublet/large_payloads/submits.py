"""Submit jobs whose large payloads are stored outside Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sublet.large_payloads.storage import Storage, is_reference
from sublet.model import Submission

T = TypeVar("T")


async def submit_large(
    storage: Storage, jobs: Sequence[Submission], submit: Callable[[Sequence[Submission]], Awaitable[list[T]]]
) -> list[T]:
    """Store the large payloads, then the jobs with `submit`; call it again for those that replace a waiting
    job's arguments. Delete the payloads of jobs whose key another job has. Return the last answers, in order.
    """
    if not any(storage.takes(job.payload) for job in jobs):
        return await submit(jobs)
    sent = await asyncio.to_thread(storage.put_payloads, jobs)
    answers = await submit(sent)
    tries = 0
    while again := await asyncio.to_thread(storage.put_for_holders, jobs, answers, tries):
        tries += 1
        for place, answer in zip(again, await submit([*again.values()]), strict=True):
            answers[place] = answer
    if any(is_reference(job.payload) for job in sent):
        await asyncio.to_thread(storage.delete_unused, sent, answers)
    return answers
