"""`POST /jobs`, `POST /jobs/batch`: store jobs. The same id, key, Idempotency-Key or event answers with the job that is there."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sublet.errors import Busy, JobsError, NotDurable, Unavailable, Unconfirmed
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX, Backoff, Options
from sublet.protocol import reads
from sublet_functions.adapters.cloudevents import TAKEN, Event
from sublet_functions.api.parsing import fault, telling, written
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, Unnamed, faults, item, json_reply, problem_of
from sublet_functions.schemas.query import EventQuery, Nothing
from sublet_functions.schemas.requests import Growing, NewJob, NewJobs

_KEY = re.compile(r'"([ !#-\[\]-~]{1,255})"|([!#-~]{1,255})')
"""An Idempotency-Key: a string in quotes (draft-ietf-httpapi-idempotency-key-header), or the bare word that many send."""


PLAIN = frozenset({"task", "payload", "queue", "id", "durability"})
"""What a job may say without asking for anything unusual: most say no more, and have no rules."""


async def submit(call: Call[NewJob | Event, EventQuery]) -> Reply:
    """Store a job. 201 when it is new; 200 with the job that was there already, by its id, key or Idempotency-Key.

    The data of a CloudEvent is the job, too; with `task`, it is a job of that task, and its payload `{"event": …}` has the whole
    event in structured form. An event that comes twice is one job. It is answered with 202.
    """
    sent, given = call.body, idempotency_key(call)
    if isinstance(sent, Event):
        told = told_by(sent, call.query)
        made = None if told.id or given else f"e.{sent.key(call.who.name, told.task, told.queue)}"
        job = submission(call, told, given, made=made)
    elif call.query.task is None:
        job = submission(call, sent, given)
    else:
        why = "stands for what becomes of a CloudEvent, and this is none: name the task in the body"
        raise Problem("invalid", f"query.task: {why}", errors=[fault(why, "query", "task")])
    (answer,) = await _store(call, [job], given is not None or isinstance(sent, Event) or sent.id is not None)
    if isinstance(answer, JobsError):
        raise answer
    replayed = (
        given is not None and not answer.created and answer.id == job.id and await is_the_same(call, job)
    )
    headers = {"Location": f"/jobs/{answer.id}"} | ({"Idempotent-Replayed": "true"} if replayed else {})
    if isinstance(sent, Event):
        return Reply(TAKEN, b"", headers)
    return json_reply({"id": answer.id}, 201 if answer.created else 200, headers)


async def _store(
    call: Call[Any, Any], jobs: Sequence[Submission], is_named: bool
) -> list[Submitted | JobsError]:
    """Store jobs. `is_named`: the same request again means the same jobs. Raises Unnamed, where it does not, for Unavailable."""
    try:
        return await call.store.submit_each(jobs)
    except (Unconfirmed, NotDurable, Busy):
        raise
    except Unavailable as error:
        if is_named:
            raise
        how = (
            f"with the id {jobs[0].id}"
            if len(jobs) == 1
            else "with an id for each job, or with an Idempotency-Key,"
        )
        raise Unnamed(
            str(error), f"as it is, it may make other jobs when it is sent again: {how} it is safe"
        ) from error


def told_by(event: Event, asked: EventQuery) -> NewJob:
    """The job that an event stands for. Unless it has an id, that is made of who sent it, the event, its task and its queue."""
    if asked.task is not None:
        named = {"task": asked.task} | ({"queue": asked.queue} if asked.queue else {})
        return NewJob.model_validate({**named, "payload": {"event": event.form}})
    try:
        return NewJob.model_validate_json(event.json_data())
    except ValidationError as error:
        raise faults(error, "event", "data") from None


async def submit_batch(call: Call[NewJobs, Nothing]) -> Reply:
    """Store up to 1,000 jobs. Each is taken in, known already, or refused on its own; the answers are in their order."""
    given = idempotency_key(call)
    jobs = [submission(call, job, given, at) for at, job in enumerate(call.body.jobs)]
    answers = await _store(call, jobs, given is not None or all(job.id for job in call.body.jobs))
    lines = []
    for job, answer in zip(jobs, answers, strict=True):
        try:
            if (
                given is not None
                and isinstance(answer, Submitted)
                and not answer.created
                and answer.id == job.id
            ):
                await is_the_same(call, job)
            lines.append(_line(job, answer))
        except Problem as mismatch:
            lines.append(item(job.id, mismatch))
    return json_reply({"jobs": lines})


def _line(job: Submission, answer: Submitted | JobsError) -> dict[str, Any]:
    if isinstance(answer, JobsError):
        return item(job.id, problem_of(answer))
    return {"id": answer.id, "status": 201 if answer.created else 200}


def idempotency_key(call: Call[Any, Any]) -> str | None:
    """The caller's Idempotency-Key, if it sent one. Raises Problem for what cannot be one."""
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
    call: Call[Any, Any], job: NewJob, key: str | None, at: int | None = None, made: str | None = None
) -> Submission:
    """A job to be, from what was sent; with an Idempotency-Key, its id is made of that and of who sent it. `made`: by us."""
    where: tuple[str | int, ...] = ("body",) if at is None else ("body", "jobs", at)
    if key is not None and job.id is not None:
        raise Problem(
            "invalid",
            "give an id or an Idempotency-Key, not both",
            errors=[fault("beside an Idempotency-Key", *where, "id")],
        )
    payload = written(job.payload, PAYLOAD_MAX, *where, "payload")
    with telling(*where):
        rules = _rules(job)
        own = job.id or made
        if key is not None:
            own = keyed_id(call, key, at)
            rules = f"{rules} digest={_digest(job)}".strip()
        return call.store.operations.submission(job.task, payload, job.queue, rules, own, job.durability)


def keyed_id(call: Call[Any, Any], key: str, at: int | None = None) -> str:
    """The id of the job that an Idempotency-Key stands for: made of that, of who sent it, and of its place in a batch."""
    return "i." + hashlib.sha256(json.dumps([call.who.name, key, at]).encode()).hexdigest()[:40]


def _rules(job: NewJob) -> str:
    if job.model_fields_set <= PLAIN:
        return ""
    growing = job.backoff
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
        backoff=Backoff(growing.first, growing.factor, growing.cap)
        if isinstance(growing, Growing)
        else growing,
    )
    return f"{options.rules()} trace={job.trace}".strip() if job.trace else options.rules()


def _digest(job: NewJob) -> str:
    """What tells one body from another, however its fields are ordered, and however sure its sender wants to be."""
    said = json.dumps(job.model_dump(mode="json", exclude={"durability"}), sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def is_the_same(call: Call[Any, Any], job: Submission) -> bool:
    """Did the job that is there come from the same body? Raises Problem if not."""
    digest = await call.store.run(reads.digest(call.store.operations.base_of_job(job.id), job.id))
    if digest is None:
        raise Problem("not-found", f"job {job.id} was forgotten a moment ago: send it again")
    if f"digest={digest}" not in job.rules.split(" "):
        raise Problem(
            "idempotency-mismatch",
            "the first request with this key said something else: use a new key for a new job",
        )
    return True
