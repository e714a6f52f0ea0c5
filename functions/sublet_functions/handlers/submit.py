"""`POST /jobs`, `POST /jobs/batch`. A repeated id, deduplication key, Idempotency-Key or CloudEvent returns
the existing job."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from sublet.errors import Busy, Invalid, JobsError, NotDurable, Unavailable, Unconfirmed
from sublet.model import Submission, Submitted
from sublet.options import OF_SINGLE_JOBS, PAYLOAD_MAX, Backoff, Options
from sublet.protocol import reads
from sublet.tasks.json.schema import Misfit
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.known_tasks import (
    FREE_ATTEMPTS,
    KnownTasks,
    exceeded,
    shortest_backoff,
)
from sublet_functions.handlers.within import check_taken, taken
from sublet_functions.http.auth import Role
from sublet_functions.http.body import stored_json
from sublet_functions.http.cloudevents import ACCEPTED, Event
from sublet_functions.http.problems import (
    ERRORS_SHOWN,
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
"""Quoted (draft-ietf-httpapi-idempotency-key-header), or a bare word, as many clients send it."""
PLAIN = frozenset({"task", "payload", "queue", "id", "durability"})
"""Fields of a request that leave the task's options as they are."""
OPTIONS = frozenset(Options.__slots__) & NewJob.model_fields.keys() - {"durability"}
LIMITED = frozenset({"max_attempts", "timeout", "backoff"})
"""Options that `refuse` keeps within the task's own, unless the token has the role admin."""
DEFAULTS = Options()


async def submit(call: Call[NewJob | Event, EventQuery]) -> Response:
    """Store a job and return its id. 201 if it is new; 200 with the id of an existing job of the same id, key
    or Idempotency-Key, and `replaced` if that job got the new arguments.

    The body may also be a CloudEvent, answered with 202: its data is the job. With the query parameter
    `task`, it becomes a job of that task, with the payload `{"event": …}`: the whole event in structured
    form. An event that is delivered twice makes one job.

    `Prefer: handling=strict` refuses arguments of which the server would only warn.
    """
    body, key, event_id = call.body, idempotency_key(call), None
    if isinstance(body, Event):
        new = job_of_event(body, call.query)
        if not (new.id or key):
            event_id = f"e.{body.key(call.principal.name, new.task, new.queue)}"
    elif call.query.task is None:
        new = body
    else:
        reason = "only for CloudEvents: name the task in the body"
        raise Problem("invalid", f"query.task: {reason}", errors=[invalid_value(reason, "query", "task")])
    known = await known_tasks(call, [new])
    job, warning = submission(call, new, key, known, event_id=event_id)
    named = key is not None or isinstance(body, Event) or body.id is not None
    (answer,) = await _store(call, [job], named)
    if isinstance(answer, JobsError):
        raise answer
    if not answer.created and call.principal.scope is not None:
        await check_taken(call, answer.id)
    headers = {"Location": f"{call.request.prefix}/jobs/{answer.id}"}
    if key is not None and not answer.created and answer.id == job.id and await check_same_body(call, job):
        headers["Idempotent-Replayed"] = "true"
    if isinstance(body, Event):
        return Response(ACCEPTED, b"", headers)
    content = _content(answer) | ({"warning": warning} if warning else {})
    return json_response(content, 201 if answer.created else 200, headers)


async def known_tasks(call: Call[Any, Any], jobs: Sequence[NewJob]) -> KnownTasks:
    """Return the tasks that the server knows; they are read again after 10 s, for unknown ones after 0.2 s."""
    known = call.known
    if known is None:
        raise TypeError("a call that submits jobs needs `known`")
    await known.refresh(job.task for job in jobs)
    return known


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
        raise MayBeStored(str(error), f"the same request again could store its jobs twice: {how}") from error


def job_of_event(event: Event, asked: EventQuery) -> NewJob:
    """Return the job to store for an event: of the query's `task`, with the event as payload; without `task`, the job
    in the event's data. Raises Problem for other data.
    """
    if asked.task is not None:
        named = {"task": asked.task} | ({"queue": asked.queue} if asked.queue else {})
        return NewJob.model_validate({**named, "payload": {"event": event.form}})
    data = event.json_data()
    try:
        return NewJob.model_validate_json(data)
    except ValidationError as error:
        raise validation_problem(error, "event", "data", value=data) from None


async def submit_batch(call: Call[NewJobBatch, Empty]) -> Response:
    """Store up to 1,000 jobs independently; the outcomes are in their order. One invalid job refuses them all."""
    key = idempotency_key(call)
    known = await known_tasks(call, call.body.jobs)
    pairs = [submission(call, job, key, known, at) for at, job in enumerate(call.body.jobs)]
    jobs = [job for job, _ in pairs]
    answers = await _store(call, jobs, key is not None or all(job.id for job in call.body.jobs))
    there = [answer.id for answer in answers if isinstance(answer, Submitted) and not answer.created]
    problems = await taken(call, there) if call.principal.scope is not None else {}
    items = []
    for (job, warning), answer in zip(pairs, answers, strict=True):
        try:
            if isinstance(answer, Submitted) and answer.id in problems:
                raise problems[answer.id]
            is_repeat = isinstance(answer, Submitted) and not answer.created and answer.id == job.id
            if key is not None and is_repeat:
                await check_same_body(call, job)
            items.append(_item(job, answer) | ({"warning": warning} if warning else {}))
        except Problem as mismatch:
            items.append(mismatch.as_item(job.id))
    return json_response({"jobs": items})


def _item(job: Submission, answer: Submitted | JobsError) -> dict[str, Any]:
    if isinstance(answer, JobsError):
        return problem_of(answer).as_item(job.id)
    return _content(answer) | {"status": 201 if answer.created else 200}


def _content(answer: Submitted) -> dict[str, Any]:
    return {"id": answer.id, "replaced": True} if answer.replaced else {"id": answer.id}


def idempotency_key(call: Call[Any, Any]) -> str | None:
    """Return the request's Idempotency-Key without quotes; None if not sent. Raises Problem for a malformed one."""
    header = call.request.headers.get("idempotency-key")
    if header is None:
        return None
    found = _KEY.fullmatch(header.strip())
    if not found:
        raise Problem(
            "bad-request",
            'Idempotency-Key: use 1 to 255 visible ASCII characters in double quotes, none of them " or \\, e.g. "8e03978e-40d5"',
        )
    return found[1] or found[2]


def submission(
    call: Call[Any, Any],
    job: NewJob,
    key: str | None,
    known: KnownTasks,
    at: int | None = None,
    event_id: str | None = None,
    place: tuple[str | int, ...] = (),
) -> tuple[Submission, str]:
    """Check a request for a job; return the job to store, and a warning (or "") if task or arguments may be
    wrong. The job's id is made from the Idempotency-Key `key`; else it is the request's, `event_id`, or new.
    `at`: the position in a batch; `place`: of a job that is elsewhere in the body. Raises Problem.
    """
    where = ("body", *(place or (() if at is None else ("jobs", at))))
    if key is not None and job.id is not None:
        raise Problem(
            "invalid",
            "id: not together with an Idempotency-Key: send one of them",
            errors=[invalid_value("not together with an Idempotency-Key", *where, "id")],
        )
    payload = stored_json(job.payload, PAYLOAD_MAX, *where, "payload")
    task = known.find(job.task)
    options = task.options if task else DEFAULTS
    queue = job.queue if "queue" in job.model_fields_set else options.queue
    if call.principal.scope is not None:
        call.principal.check(queue)
    job_id = job.id or event_id
    try:
        if job.model_fields_set <= PLAIN and not (task and task.by_arguments):
            rules = task.rules if task else ""
        else:
            asked = _options(job, options).of(job.payload)
            _check_attempts(call, job, asked, where)
            rules = asked.rules() + (f" trace={job.trace}" if job.trace else "")
        warning = _check_task(call, job, payload, known, where)
        if key is not None:
            job_id = keyed_id(call, key, at)
            rules = f"{rules} digest={_digest(job)}"
        durability = job.durability or options.durability
        made = call.store.operations.submission(job.task, payload, queue, rules.strip(), job_id, durability)
    except Invalid as error:
        raise invalid_problem(error, *where, model=NewJob) from None
    return made, warning


async def check_schedule(call: Call[Any, Any], job: NewJob, payload: bytes) -> tuple[Options, str]:
    """Check the jobs that a schedule will submit; return their options, and a warning (or "") if task or
    arguments may be wrong. Raises Problem.
    """
    known = await known_tasks(call, [job])
    task = known.find(job.task)
    own = replace(task.options, delay=0, run_at=None, **OF_SINGLE_JOBS) if task else DEFAULTS
    asked = _options(job, own)
    try:
        asked = asked.of(job.payload)
    except Invalid as error:
        raise invalid_problem(error, "body", model=NewJob) from None
    call.principal.check(asked.queue)
    _check_attempts(call, job, asked, ("body",))
    return asked, _check_task(call, job, payload, known, ("body",))


def _check_task(
    call: Call[Any, Any], job: NewJob, payload: bytes, known: KnownTasks, where: tuple[str | int, ...]
) -> str:
    if known.policy == "off":
        return ""
    task, slug, found = known.find(job.task), "invalid", list[Misfit]()
    if task is None:
        reason = known.unknown(job.task)
        found, slug = [Misfit(("task",), reason)] if reason else [], "unknown-task"
    else:
        found = [Misfit(("payload", *path), text) for path, text in task.misfits(payload, job.payload)]
        if known.policy == "refuse" and _is_limited(call, job):
            over = exceeded(task.options, _options(job, task.options), job.model_fields_set)
            advice = "ask for less, or use a token of the role admin"
            found += [Misfit((name,), f"{text}: {advice}") for name, text in over]
    if not found:
        return ""
    path, text = found[0]
    if task is not None:
        text = f"task {job.task}: {'.'.join(map(str, path))}: {text}"
    text += f", and {len(found) - 1} more" if len(found) > 1 else ""
    is_strict = task is not None and "handling=strict" in call.request.headers.get("prefer", "")
    if known.policy == "warn" and not is_strict:
        return text
    errors = [invalid_value(each.message, *where, *each.path) for each in found[:ERRORS_SHOWN]]
    raise Problem(slug, text, errors=errors)


def _is_limited(call: Call[Any, Any], job: NewJob) -> bool:
    return bool(LIMITED & job.model_fields_set) and Role.ADMIN not in call.principal.roles


def _check_attempts(call: Call[Any, Any], job: NewJob, asked: Options, where: tuple[str | int, ...]) -> None:
    is_loop = asked.max_attempts > FREE_ATTEMPTS and shortest_backoff(asked) < 1
    if is_loop and _is_limited(call, job):
        reason = f"more than {FREE_ATTEMPTS} attempts need a backoff of 1 s or more: ask for fewer, or use a token of the role admin"
        raise Problem(
            "invalid", f"max_attempts: {reason}", errors=[invalid_value(reason, *where, "max_attempts")]
        )


def keyed_id(call: Call[Any, Any], key: str, at: object = None) -> str:
    """Return the id for a job or workflow with an Idempotency-Key: a hash of the token's name, the key, and
    `at` (any JSON, such as the position in a batch).
    """
    return "i." + hashlib.sha256(json.dumps([call.principal.name, key, at]).encode()).hexdigest()[:40]


def _options(job: NewJob, own: Options) -> Options:
    given: dict[str, Any] = {name: getattr(job, name) for name in OPTIONS & job.model_fields_set}
    if "backoff" in given:
        given["backoff"] = backoff_of(job.backoff)
    if given.get("run_at") is not None:
        given.setdefault("delay", 0)
    return replace(own, **given)


def backoff_of(backoff: float | ExponentialBackoff) -> float | Backoff:
    """Convert a backoff in a request to that of `Options`."""
    if isinstance(backoff, ExponentialBackoff):
        return Backoff(backoff.first, backoff.factor, backoff.cap)
    return backoff


def _digest(job: NewJob) -> str:
    text = json.dumps(job.model_dump(mode="json", exclude={"durability"}), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def check_same_body(call: Call[Any, Any], job: Submission) -> bool:
    """Return True if the job that is stored under this id was made from the same body. Raises Problem if not,
    or if it was deleted.
    """
    digest = await call.store.run(reads.digest(call.store.operations.base_of_job(job.id), job.id))
    if digest is None:
        raise Problem("not-found", f"job {job.id} was deleted a moment ago: send the request again")
    if f"digest={digest}" not in job.rules.split(" "):
        raise Problem(
            "idempotency-mismatch",
            "Idempotency-Key: its first request had another body, or ran another schedule: repeat it, or send a new key for a new job",
        )
    return True
