"""A task's result, and the jobs that follow if it returned `Then`."""

import json
from collections.abc import Iterator
from typing import Any

from sublet.errors import Invalid
from sublet.model import Completion, Following, Lease, Submission
from sublet.protocol import keys
from sublet.submission.submit import new_id
from sublet.tasks.arguments import Arguments, InvalidResult
from sublet.then import Then
from sublet.workflows import following

CHUNK = 128 * 1024
"""Most bytes of arguments in a frame of several jobs."""


def completion_of(lease: Lease, arguments: Arguments, value: Any, most: float) -> Completion:
    """Make the outcome of a returned value, perhaps a `Then`. Raises InvalidResult, e.g. above `most` bytes."""
    if not isinstance(value, Then):
        return Completion(lease, arguments.dump_result(value, most))
    return Completion(
        lease, arguments.dump_result(value.result, most), _following(lease, arguments.name, value)
    )


def _following(lease: Lease, task: str, value: Then[Any]) -> Following:
    jobs, callback = tuple(value.jobs), value.callback
    given = jobs if callback is None else (*jobs, callback)
    wrong = [job for job in given if not isinstance(job, Submission)]
    if wrong:
        raise InvalidResult(
            f"task {task} returned Then with a {type(wrong[0]).__name__}, which is not a job: use the result of Task.job(…)"
        )
    if value.on_failure not in ("cancel", "run", "hold"):
        raise InvalidResult(
            f"task {task} returned Then with on_failure={value.on_failure!r}: use 'cancel', 'run' or 'hold'"
        )
    found = Following(new_id(keys.partition_of_id(lease.id)), jobs, callback, value.on_failure)
    try:
        following.check(lease.id, found)
    except Invalid as error:
        raise InvalidResult(f"task {task} returned {error}") from None
    return found


def chunks(following: Following) -> Iterator[bytes]:
    """Yield the jobs that follow in parts, for `joined`; the last has the callback."""
    part: list[Submission] = []
    size = 0
    for job in following.jobs:
        if part and size + len(job.payload) > CHUNK:
            yield _encoded(following, part, None)
            part, size = [], 0
        part.append(job)
        size += len(job.payload) + 300
    if part and following.callback is not None:
        yield _encoded(following, part, None)
        part = []
    yield _encoded(following, part, following.callback)


def _encoded(following: Following, jobs: list[Submission], callback: Submission | None) -> bytes:
    words = [
        following.workflow,
        [_words(job) for job in jobs],
        callback and _words(callback),
        following.on_failure,
    ]
    return json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _words(job: Submission) -> list[str]:
    return [*job[:4], job.payload.decode("utf-8", "surrogateescape")]


def joined(before: Following | None, part: bytes) -> Following:
    """Add a part's jobs to those of `before`, if it is of the same workflow; return all. Raises ValueError."""
    workflow, jobs, callback, on_failure = json.loads(part.decode("utf-8", "surrogateescape"))
    earlier = before.jobs if before is not None and before.workflow == workflow else ()
    own = [_job(words) for words in jobs]
    return Following(workflow, (*earlier, *own), callback and _job(callback), on_failure)


def _job(words: list[str]) -> Submission:
    job_id, queue, task, rules, payload = words
    return Submission(job_id, queue, task, rules, payload.encode("utf-8", "surrogateescape"))
