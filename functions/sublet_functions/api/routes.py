"""The whole HTTP API as one table, and what it takes to answer a request by it. Adapters bring requests here."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from sublet.model import Job, Queue
from sublet.operations.pool import Pool
from sublet.schedules.definition import Schedule
from sublet_functions.api.auth import Principal, Role
from sublet_functions.api.openapi import document
from sublet_functions.api.parsing import BATCH_BODY_MAX, BODY_MAX
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import JSON, encode
from sublet_functions.handlers.cancel import cancel
from sublet_functions.handlers.claim import claim, claim_next
from sublet_functions.handlers.complete import complete, complete_batch
from sublet_functions.handlers.events import EVENT_STREAM, EventsPage, EventsQuery, events
from sublet_functions.handlers.fail import fail, fail_batch
from sublet_functions.handlers.health import healthz, index, readyz
from sublet_functions.handlers.heartbeat import heartbeat, heartbeat_batch
from sublet_functions.handlers.jobs import get_job, list_jobs
from sublet_functions.handlers.metrics import metrics
from sublet_functions.handlers.note import note, note_batch
from sublet_functions.handlers.pools import delete_pool, get_pool, list_pools, put_pool
from sublet_functions.handlers.promote import promote
from sublet_functions.handlers.queues import change_queue, get_queue, list_queues
from sublet_functions.handlers.release import release, release_batch
from sublet_functions.handlers.retry import retry
from sublet_functions.handlers.schedules import (
    get_schedule,
    list_schedules,
    pause_schedule,
    put_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from sublet_functions.handlers.stats import Numbered, StatsQuery, stats
from sublet_functions.handlers.submit import submit, submit_batch
from sublet_functions.handlers.triggers import trigger
from sublet_functions.handlers.work import Worked, WorkQuery, work
from sublet_functions.handlers.workers import drain, enlist, leave, list_workers, reconcile, retire
from sublet_functions.schemas import query as q
from sublet_functions.schemas import requests as b
from sublet_functions.schemas import responses as a
from sublet_functions.schemas.pools import PoolWish
from sublet_functions.schemas.schedules import NewSchedule, RunNow, SchedulesPage
from sublet_functions.schemas.summons import Summons
from sublet_functions.schemas.triggers import Trigger
from sublet_functions.tick import tick

log = logging.getLogger(__name__)

B = TypeVar("B", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)

ALL: frozenset[Role] = frozenset()
"""For everybody, with or without a token."""
SUBMIT, WORK, READ, TICK, ADMIN = (
    frozenset({role}) for role in (Role.SUBMIT, Role.WORK, Role.READ, Role.TICK, Role.ADMIN)
)
NOBODY = Principal("", frozenset())
"""Whoever asks for what is for everybody."""
NEW_PROBLEMS = ("idempotency-mismatch", "oom", "unconfirmed")
GONE = ("not-found",)
LEASE_PROBLEMS = ("not-found", "lease-lost")
ORDER_PROBLEMS = ("not-found", "wrong-state", "changed")

SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every answer."""


@dataclass(frozen=True)
class Route(Generic[B, Q]):
    """One line of the table: what is asked how, who may ask, what is answered. Its handler's docstring describes it."""

    method: str
    path: str
    roles: frozenset[Role]
    """Any of these may; `admin` always may."""
    handler: Callable[[Call[B, Q]], Awaitable[Reply]]
    body: type[B]
    query: type[Q]
    answers: Mapping[int, Any]
    """Status → the model of its body, or the media type of one that is no JSON, or several of them; None for none."""
    problems: tuple[str, ...] = ()
    """Beside those that any route may answer."""
    alias: str = ""
    """Another path for the same."""
    most: int = BODY_MAX
    """Bytes that the body may have."""
    headers: tuple[str, ...] = ()
    """Those of its own that a request or an answer may have; `sublet_functions.api.openapi` says what each means."""
    signed: bool = False
    """Is a signature as good as a token?"""
    events: bool = False
    """May a CloudEvent stand for it?"""


async def openapi(call: Call[q.Nothing, q.Nothing]) -> Reply:
    """This document: the API, as OpenAPI 3.1 has it."""
    return Reply(200, _described(), {"Content-Type": JSON})


@cache
def _described() -> bytes:
    return encode(document(ROUTES))


MANY = BATCH_BODY_MAX
NO, NONE = q.Nothing, None
IDEMPOTENT, NEXT_IN, PAGED = (
    ("Idempotency-Key", "Location", "Idempotent-Replayed"),
    ("Sublet-Next-In",),
    ("Link",),
)

ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/jobs", SUBMIT, submit, b.NewJob, q.EventQuery, {201: a.Made, 200: a.Made, 202: NONE},
          (*NEW_PROBLEMS, "queue-full"), headers=IDEMPOTENT, events=True),
    Route("POST", "/jobs/batch", SUBMIT, submit_batch, b.NewJobs, NO, {200: a.MadeBatch}, NEW_PROBLEMS, most=MANY,
          headers=IDEMPOTENT[:1]),
    Route("GET", "/jobs", READ, list_jobs, NO, q.ListQuery, {200: a.JobsPage}, headers=PAGED),
    Route("GET", "/jobs/{id}", READ | SUBMIT | WORK, get_job, NO, q.WaitQuery, {200: Job}, ("not-found",)),
    Route("POST", "/jobs/claim", WORK, claim, b.Claim, NO, {200: a.LeasedBatch, 204: NONE}, headers=NEXT_IN),
    Route("GET", "/jobs/next", WORK, claim_next, NO, q.NextQuery, {200: a.Leased, 204: NONE}, headers=NEXT_IN),
    Route("POST", "/jobs/{id}/heartbeat", WORK, heartbeat, b.Beat, NO, {200: a.Extended}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/complete", WORK, complete, b.Completion, NO, {200: a.Moved}, LEASE_PROBLEMS, "/jobs/{id}/done"),
    Route("POST", "/jobs/{id}/fail", WORK, fail, b.Failure, NO, {200: a.Moved}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/release", WORK, release, b.Release, NO, {200: a.Moved}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/note", WORK, note, b.Note, NO, {200: a.Moved}, LEASE_PROBLEMS),
    Route("POST", "/jobs/heartbeat", WORK, heartbeat_batch, b.Beats, NO, {200: a.Items}, most=MANY),
    Route("POST", "/jobs/complete", WORK, complete_batch, b.Completions, NO, {200: a.Items}, most=MANY),
    Route("POST", "/jobs/fail", WORK, fail_batch, b.Failures, NO, {200: a.Items}, most=MANY),
    Route("POST", "/jobs/release", WORK, release_batch, b.Releases, NO, {200: a.Items}, most=MANY),
    Route("POST", "/jobs/note", WORK, note_batch, b.Notes, NO, {200: a.Items}, most=MANY),
    Route("POST", "/jobs/{id}/cancel", ADMIN, cancel, b.Order, NO, {200: a.Moved, 202: a.Moved}, ORDER_PROBLEMS),
    Route("POST", "/jobs/{id}/retry", ADMIN, retry, b.Order, NO, {200: a.Moved}, (*ORDER_PROBLEMS, "key-taken")),
    Route("POST", "/jobs/{id}/promote", ADMIN, promote, b.Order, NO, {200: a.Moved}, ORDER_PROBLEMS),
    Route("GET", "/queues", READ, list_queues, NO, q.PageQuery, {200: a.QueuesPage}, headers=PAGED),
    Route("GET", "/queues/{queue}", READ, get_queue, NO, NO, {200: Queue}),
    Route("PATCH", "/queues/{queue}", ADMIN, change_queue, b.QueueChange, NO, {200: Queue}, ("changed",)),
    Route("GET", "/schedules", READ, list_schedules, NO, q.PageQuery, {200: SchedulesPage}, headers=PAGED),
    Route("GET", "/schedules/{name}", READ, get_schedule, NO, NO, {200: Schedule}, GONE),
    Route("PUT", "/schedules/{name}", ADMIN, put_schedule, NewSchedule, NO, {200: Schedule, 201: Schedule}, ORDER_PROBLEMS),
    Route("DELETE", "/schedules/{name}", ADMIN, remove_schedule, NO, NO, {204: NONE}, ("changed",)),
    Route("POST", "/schedules/{name}/pause", ADMIN, pause_schedule, NO, NO, {200: Schedule}, (*GONE, "changed")),
    Route("POST", "/schedules/{name}/resume", ADMIN, resume_schedule, NO, NO, {200: Schedule}, (*GONE, "changed")),
    Route("POST", "/schedules/{name}/run", ADMIN, run_schedule, RunNow, NO, {201: a.Made, 200: a.Made},
          (*GONE, *NEW_PROBLEMS, "queue-full"), headers=IDEMPOTENT),
    Route("GET", "/workers", READ | WORK, list_workers, NO, q.WorkersQuery, {200: a.Workers}),
    Route("PUT", "/workers/{name}", WORK, enlist, b.Card, NO, {200: a.Enlisted}),
    Route("DELETE", "/workers/{name}", WORK, leave, NO, q.LifeQuery, {204: NONE}),
    Route("POST", "/workers/{name}/reconcile", WORK, reconcile, b.Gone, NO, {200: a.Reconciled}),
    Route("POST", "/workers/{name}/retire", WORK, retire, b.Retiring, NO, {200: a.Retired}),
    Route("POST", "/workers/{name}/drain", ADMIN, drain, NO, NO, {202: a.Enlisted}, ("not-found",)),
    Route("GET", "/pools", READ, list_pools, NO, NO, {200: a.Pools}),
    Route("GET", "/pools/{name}", READ, get_pool, NO, NO, {200: Pool}, ("not-found",)),
    Route("PUT", "/pools/{name}", ADMIN, put_pool, PoolWish, NO, {201: Pool, 200: Pool}, ("changed",)),
    Route("DELETE", "/pools/{name}", ADMIN, delete_pool, NO, NO, {204: NONE}),
    Route("GET", "/events", READ, events, NO, EventsQuery, {200: (EventsPage, EVENT_STREAM)}, ("busy",),
          headers=("Last-Event-ID",)),
    Route("POST", "/events", TICK | WORK, trigger, Trigger, NO, {200: (a.Ticked, Worked)}, ("not-found", "at-work")),
    Route("POST", "/tick", TICK, tick, NO, q.TickQuery, {200: a.Ticked, 202: NONE}, events=True),
    Route("GET", "/tick", TICK, tick, NO, q.TickQuery, {200: a.Ticked}),
    Route("POST", "/work", WORK, work, Summons, WorkQuery, {200: Worked}, ("not-found", "at-work"), signed=True),
    Route("GET", "/stats", READ, stats, NO, StatsQuery, {200: Numbered}),
    Route("GET", "/metrics", READ, metrics, NO, NO, {200: "text/plain"}),
    Route("GET", "/", ALL, index, NO, NO, {200: (a.Links, "text/html")}, headers=("Vary",)),
    Route("GET", "/healthz", ALL, healthz, NO, NO, {200: a.Health}),
    Route("GET", "/readyz", ALL, readyz, NO, NO, {200: a.Health}, ("wrong-layout", "unavailable")),
    Route("GET", "/openapi.json", ALL, openapi, NO, NO, {200: "application/json"}),
)  # fmt: skip
"""The API."""

ACTS = frozenset({claim_next, tick})
"""What does something although it is asked by GET: a HEAD must not."""
