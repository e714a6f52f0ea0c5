"""`POST /jobs`, `POST /jobs/batch`. A repeated id, deduplication key, Idempotency-Key or CloudEvent returns
the existing job."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sublet.errors import Busy, Invalid, JobsError, NotDurable, Unavailable, Unconfirmed
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX, Backoff, Options
from sublet.protocol import reads
from sublet_functions.handlers.call import Call
from sublet_functions.http.body import stored_json
from sublet_functions.http.cloudevents import ACCEPTED, Event
from sublet_functions.http.problems import (
    MayBeStored,
    Problem,
    invalid_problem,
    invalid_value,
    problem_of,
    validation_problem,
)
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, EventQuery
from sublet_functions.schemas.requests import ExponentialBackoff, NewJob, NewJobBatch

_KEY = re.compile(r'"([ !#-\[\]-~]{1,255})"|([!#-~]{1,255})')
"""A quoted string (draft-ietf-httpapi-idempotency-key-header), or the bare word that many clients send."""
PLAIN = frozenset({"task", "payload", "queue", "id", "durability"})
"""Fields of NewJob that need no `Options`: a job with only these has default rules."""


async def submit(call: Call[NewJob | Event, EventQuery]) -> Response:
    """Store a job and return its id. 201 if it is new; 200 with the existing job's of the same id, key or
    Idempotency-Key.

    The body may also be a CloudEvent, answered with 202: its data is the job. With the query parameter
    `task`, it becomes a job of that task, with the payload `{"event": …}`: the whole event in structured
    form. An event that is delivered twice makes one job.
    """
    body, key = call.body, idempotency_key(call)
    if isinstance(body, Event):
        new = job_of_event(body, call.query)
        event_id = None if new.id or key else f"e.{body.key(call.principal.name, new.task, new.queue)}"
        job = submission(call, new, key, event_id=event_id)
    elif call.query.task is None:
        job = submission(call, body, key)
    else:
        reason = "only for CloudEvents: name the task in the body"
        raise Problem("invalid", f"query.task: {reason}", errors=[invalid_value(reason, "query", "task")])
    named = key is not None or isinstance(body, Event) or body.id is not None
    (answer,) = await _store(call, [job], named)
    if isinstance(answer, JobsError):
        raise answer
    headers = {"Location": f"/jobs/{answer.id}"}
    if key is not None and not answer.created and answer.id == job.id and await check_same_body(call, job):
        headers["Idempotent-Replayed"] = "true"
    if isinstance(body, Event):
        return Response(ACCEPTED, b"", headers)
    return json_response({"id": answer.id}, 201 if answer.created else 200, headers)


async def _store(
    call: Call[Any, Any], jobs: Sequence[Submission], named: bool
) -> list[Submitted | JobsError]:
    try:
        return await call.store.submit_each(jobs)
    except (Unconfirmed, NotDurable, Busy):
        raise
    except Unavailable as error:
        if named:
            raise
        if len(jobs) == 1:
            how = f"send it with the id {jobs[0].id}"
        else:
            how = "give each job an id, or send an Idempotency-Key"
        raise MayBeStored(
            str(error), f"sent again unchanged, it could store its jobs twice; {how}"
        ) from error


def job_of_event(event: Event, asked: EventQuery) -> NewJob:
    """Return the job to store for an event: of the query's `task`, with the event as payload; without `task`, the job
    in the event's data. Raises Problem for other data.
    """
    if asked.task is not None:
        named = {"task": asked.task} | ({"queue": asked.queue} if asked.queue else {})
        return NewJob.model_validate({**named, "payload": {"event": event.form}})
    try:
        return NewJob.model_validate_json(event.json_data())
    except ValidationError as error:
        raise validation_problem(error, "event", "data") from None


async def submit_batch(call: Call[NewJobBatch, Empty]) -> Response:
    """Store up to 1,000 jobs, each independently; the outcomes are in their order. An invalid job refuses all."""
    key = idempotency_key(call)
    jobs = [submission(call, job, key, at) for at, job in enumerate(call.body.jobs)]
    answers = await _store(call, jobs, key is not None or all(job.id for job in call.body.jobs))
    items = []
    for job, answer in zip(jobs, answers, strict=True):
        try:
            is_repeat = isinstance(answer, Submitted) and not answer.created and answer.id == job.id
            if key is not None and is_repeat:
                await check_same_body(call, job)
            items.append(_item(job, answer))
        except Problem as mismatch:
            items.append(mismatch.as_item(job.id))
    return json_response({"jobs": items})


def _item(job: Submission, answer: Submitted | JobsError) -> dict[str, Any]:
    if isinstance(answer, JobsError):
        return problem_of(answer).as_item(job.id)
    return {"id": answer.id, "status": 201 if answer.created else 200}


def idempotency_key(call: Call[Any, Any]) -> str | None:
    """Return the request's Idempotency-Key without quotes, if sent. Raises Problem for a malformed one."""
    header = call.request.headers.get("idempotency-key")
    if header is None:
        return None
    found = _KEY.fullmatch(header.strip())
    if not found:
        raise Problem(
            "bad-request",
            'Idempotency-Key: use 1 to 255 visible characters in double quotes, e.g. "8e03978e-40d5"',
        )
    return found[1] or found[2]


def submission(
    call: Call[Any, Any], job: NewJob, key: str | None, at: int | None = None, event_id: str | None = None
) -> Submission:
    """Check a request's job and turn it into a Submission. Its id: made from the Idempotency-Key `key`, the
    job's own, or `event_id`. `at`: position in a batch. Raises Problem.
    """
    where: tuple[str | int, ...] = ("body",) if at is None else ("body", "jobs", at)
    if key is not None and job.id is not None:
        raise Problem(
            "invalid",
            "id: not together with an Idempotency-Key: send one of them",
            errors=[invalid_value("not together with an Idempotency-Key", *where, "id")],
        )
    payload = stored_json(job.payload, PAYLOAD_MAX, *where, "payload")
    job_id = job.id or event_id
    try:
        rules = "" if job.model_fields_set <= PLAIN else _rules(job)
        if key is not None:
            job_id = keyed_id(call, key, at)
            rules = f"{rules} digest={_digest(job)}".strip()
        return call.store.operations.submission(job.task, payload, job.queue, rules, job_id, job.durability)
    except Invalid as error:
        raise invalid_problem(error, *where) from None


def keyed_id(call: Call[Any, Any], key: str, at: int | None = None) -> str:
    """Return the id of a job with an Idempotency-Key: a hash of token name, key, and position in the batch."""
    return "i." + hashlib.sha256(json.dumps([call.principal.name, key, at]).encode()).hexdigest()[:40]


def _rules(job: NewJob) -> str:
    options = Options(
        queue=job.queue,
        priority=job.priority,
        delay=job.delay,
        run_at=job.run_at,
        key=job.key,
        window=job.window,
        max_attempts=job.max_attempts,
        timeout=None if job.timeout == "none" else job.timeout,
        retention=job.retention,
        backoff=backoff_of(job.backoff),
        tags=job.tags,
        keep_payload=job.keep_payload,
    )
    return f"{options.rules()} trace={job.trace}".strip() if job.trace else options.rules()


def backoff_of(backoff: float | ExponentialBackoff) -> float | Backoff:
    """Return a request's backoff as `Options` takes it."""
    if isinstance(backoff, ExponentialBackoff):
        return Backoff(backoff.first, backoff.factor, backoff.cap)
    return backoff


def _digest(job: NewJob) -> str:
    text = json.dumps(job.model_dump(mode="json", exclude={"durability"}), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def check_same_body(call: Call[Any, Any], job: Submission) -> bool:
    """Return True if the stored job was made from the same body. Raises Problem if not, or if it was deleted."""
    digest = await call.store.run(reads.digest(call.store.operations.base_of_job(job.id), job.id))
    if digest is None:
        raise Problem("not-found", f"job {job.id} was deleted a moment ago: send the request again")
    if f"digest={digest}" not in job.rules.split(" "):
        raise Problem(
            "idempotency-mismatch",
            "Idempotency-Key: its first request had another body: send that body again, or a new key for a new job",
        )
    return True
