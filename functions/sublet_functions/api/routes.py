"""All routes of the API."""

from dataclasses import replace
from functools import cache
from typing import Any

from sublet.model import Job, Queue
from sublet.operations.diagnosis.server_report import ServerReport
from sublet.operations.groups import Groups
from sublet.operations.history import History
from sublet.operations.pool import Pool
from sublet.schedules.definition import Schedule
from sublet.tasks.catalogue import TaskInfo
from sublet.workflows.reading import StoredWorkflow, UpstreamPage
from sublet_functions.api.openapi import document
from sublet_functions.api.route import Route
from sublet_functions.dashboard.files import get_file, get_page
from sublet_functions.handlers.audit import list_audit
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.call_job import call_job
from sublet_functions.handlers.cancel import cancel
from sublet_functions.handlers.claim import claim, claim_next
from sublet_functions.handlers.complete import complete, complete_batch
from sublet_functions.handlers.emit import emit
from sublet_functions.handlers.erase import erase
from sublet_functions.handlers.events import EVENT_STREAM, events
from sublet_functions.handlers.fail import fail, fail_batch
from sublet_functions.handlers.health import healthz, index, readyz
from sublet_functions.handlers.heartbeat import heartbeat, heartbeat_batch
from sublet_functions.handlers.history import get_history
from sublet_functions.handlers.jobs import get_job, list_jobs
from sublet_functions.handlers.metrics import metrics
from sublet_functions.handlers.new_workflows import submit_workflow
from sublet_functions.handlers.note import note, note_batch
from sublet_functions.handlers.orders import cancel_many, erase_many, promote_many, retry_many
from sublet_functions.handlers.pools import delete_pool, get_pool, list_pools, put_pool
from sublet_functions.handlers.proceed import proceed
from sublet_functions.handlers.promote import promote
from sublet_functions.handlers.queues import (
    change_queue,
    delete_group,
    get_queue,
    list_groups,
    list_queues,
    put_group,
)
from sublet_functions.handlers.release import release, release_batch
from sublet_functions.handlers.reschedule import reschedule
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
from sublet_functions.handlers.server import get_server
from sublet_functions.handlers.signal import signal
from sublet_functions.handlers.stats import stats
from sublet_functions.handlers.step import step
from sublet_functions.handlers.stream import get_stream
from sublet_functions.handlers.submit import submit, submit_batch
from sublet_functions.handlers.suspend import suspend, suspend_batch
from sublet_functions.handlers.tasks import get_task, list_tasks, publish_tasks
from sublet_functions.handlers.tick import tick
from sublet_functions.handlers.triggers import trigger
from sublet_functions.handlers.upstream_page import upstream_page
from sublet_functions.handlers.whoami import whoami
from sublet_functions.handlers.work import work
from sublet_functions.handlers.workers import drain, enlist, leave, list_workers, reconcile, retire
from sublet_functions.handlers.workflows import cancel_workflow, get_workflow, list_upstream, retry_workflow
from sublet_functions.http.auth import Role
from sublet_functions.http.body import BATCH_BODY_MAX
from sublet_functions.http.response import JSON, Response, encode
from sublet_functions.schemas import query as q
from sublet_functions.schemas import requests as b
from sublet_functions.schemas import responses as a
from sublet_functions.schemas import steps as s
from sublet_functions.schemas import workflows as w
from sublet_functions.schemas.orders import BulkOrder, OrderResult
from sublet_functions.schemas.pools import PoolSettings
from sublet_functions.schemas.queues import GroupSettings, GroupsQuery, QueuePatch
from sublet_functions.schemas.schedules import NewSchedule, ScheduleRun, SchedulesPage, StoredSchedule
from sublet_functions.schemas.triggers import Summons, Trigger

ALL: frozenset[Role] = frozenset()
SUBMIT, WORK, READ, TICK, ADMIN, METRICS = (
    frozenset({role}) for role in (Role.SUBMIT, Role.WORK, Role.READ, Role.TICK, Role.ADMIN, Role.METRICS)
)
NEW_PROBLEMS = ("idempotency-mismatch", "key-taken", "oom", "unconfirmed")
NOT_FOUND = ("not-found",)
LEASE_PROBLEMS = ("not-found", "lease-lost")
ACTION_PROBLEMS = ("not-found", "wrong-state", "changed")
IDEMPOTENT = ("Idempotency-Key", "Location", "Idempotent-Replayed")
NEXT_IN = ("Sublet-Next-In", "Sublet-Dead")
PAGED = ("Link",)
CACHED = ("ETag",)
SHAREABLE = ("Sublet-Shared", "Age")
PAGE = {200: "text/html", 304: None, 307: None}
FILE = {200: ("text/javascript", "text/css", "image/svg+xml"), 304: None}
MANY = BATCH_BODY_MAX
NO = q.Empty
NONE = None


async def openapi(call: Call[q.Empty, q.Empty]) -> Response:
    """Return this document: the API described in OpenAPI 3.1."""
    return Response(200, _document(), {"Content-Type": JSON})


@cache
def _document() -> bytes:
    return encode(document(ROUTES))


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/jobs", SUBMIT, submit, b.NewJob, q.EventQuery, {201: a.SubmittedJob, 200: a.SubmittedJob, 202: NONE},
          (*NEW_PROBLEMS, "unknown-task", "queue-full"), headers=IDEMPOTENT, events=True),
    Route("POST", "/jobs/batch", SUBMIT, submit_batch, b.NewJobBatch, NO, {200: a.SubmittedBatch},
          (*NEW_PROBLEMS, "unknown-task"), most=MANY,
          headers=IDEMPOTENT[:1]),
    Route("GET", "/jobs", READ, list_jobs, NO, q.ListQuery, {200: a.JobsPage}, headers=PAGED),
    Route("GET", "/jobs/{id}", READ, get_job, NO, q.WaitQuery, {200: Job}, ("not-found",)),
    Route("POST", "/jobs/claim", WORK, claim, b.Claim, NO, {200: a.LeasedBatch, 204: NONE}, ("changed",), headers=NEXT_IN),
    Route("GET", "/jobs/next", WORK, claim_next, NO, q.ClaimNextQuery, {200: a.Leased, 204: NONE}, ("changed",), headers=NEXT_IN),
    Route("POST", "/jobs/{id}/heartbeat", WORK, heartbeat, b.Heartbeat, NO, {200: a.LeaseExtension}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/complete", WORK, complete, b.Completion, NO, {200: a.JobState}, LEASE_PROBLEMS, "/jobs/{id}/done"),
    Route("POST", "/jobs/{id}/fail", WORK, fail, b.Failure, NO, {200: a.JobState}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/release", WORK, release, b.Release, NO, {200: a.JobState}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/note", WORK, note, b.Note, NO, {200: a.JobState},
          (*LEASE_PROBLEMS, "oom")),
    Route("POST", "/jobs/{id}/emit", WORK, emit, s.Emission, NO, {200: a.JobState}, (*LEASE_PROBLEMS, "oom"), most=MANY),
    Route("GET", "/jobs/{id}/stream", READ, get_stream, NO, s.StreamQuery, {200: (s.ChunksPage, EVENT_STREAM), 204: NONE},
          (*NOT_FOUND, "busy"), headers=("Last-Event-ID",)),
    Route("POST", "/jobs/{id}/step", WORK, step, s.Steps, NO, {200: s.KeptSteps}, (*LEASE_PROBLEMS, "steps-full"), most=MANY),
    Route("POST", "/jobs/{id}/proceed", WORK, proceed, s.Continuation, NO, {200: a.JobState},
          (*LEASE_PROBLEMS, "queue-full", "unknown-task"), most=MANY),
    Route("POST", "/jobs/{id}/call", WORK, call_job, s.CallRequest, NO, {200: s.KeptCall},
          (*LEASE_PROBLEMS, "steps-full", "queue-full", "unknown-task", "oom")),
    Route("POST", "/jobs/{id}/upstream", WORK, upstream_page, s.UpstreamRequest, NO, {200: s.UpstreamOutcomes}, LEASE_PROBLEMS),
    Route("POST", "/jobs/{id}/suspend", WORK, suspend, s.Suspension, NO, {200: a.JobState}, LEASE_PROBLEMS),
    Route("POST", "/jobs/suspend", WORK, suspend_batch, s.SuspensionBatch, NO, {200: a.BatchResult}, most=MANY),
    Route("POST", "/jobs/{id}/signal", SUBMIT | ADMIN, signal, s.Signal, NO, {200: s.KeptSignal},
          ("not-found", "wrong-state", "steps-full")),
    Route("GET", "/jobs/{id}/upstream", READ, list_upstream, NO, q.PageQuery, {200: UpstreamPage}, NOT_FOUND, headers=PAGED),
    Route("POST", "/workflows", SUBMIT, submit_workflow, w.NewWorkflow, NO, {201: w.SubmittedWorkflow, 200: w.SubmittedWorkflow},
          (*NEW_PROBLEMS, "unknown-task", "queue-full", "wrong-state"), most=MANY, headers=IDEMPOTENT),
    Route("GET", "/workflows/{id}", READ, get_workflow, NO, w.WorkflowQuery, {200: StoredWorkflow}, NOT_FOUND, headers=PAGED),
    Route("POST", "/workflows/{id}/cancel", ADMIN, cancel_workflow, w.WorkflowOrder, NO, {200: w.WorkflowOrdered}, NOT_FOUND),
    Route("POST", "/workflows/{id}/retry", ADMIN, retry_workflow, w.WorkflowOrder, NO, {200: w.WorkflowOrdered},
          (*NOT_FOUND, "wrong-state")),
    Route("POST", "/jobs/heartbeat", WORK, heartbeat_batch, b.HeartbeatBatch, NO, {200: a.BatchResult}, most=MANY),
    Route("POST", "/jobs/complete", WORK, complete_batch, b.CompletionBatch, NO, {200: a.BatchResult}, most=MANY),
    Route("POST", "/jobs/fail", WORK, fail_batch, b.FailureBatch, NO, {200: a.BatchResult}, most=MANY),
    Route("POST", "/jobs/release", WORK, release_batch, b.ReleaseBatch, NO, {200: a.BatchResult}, most=MANY),
    Route("POST", "/jobs/note", WORK, note_batch, b.NoteBatch, NO, {200: a.BatchResult}, ("oom",), most=MANY),
    Route("POST", "/jobs/{id}/cancel", ADMIN, cancel, b.JobAction, NO, {200: a.JobState, 202: a.JobState}, ACTION_PROBLEMS),
    Route("POST", "/jobs/{id}/retry", ADMIN, retry, b.Retry, NO, {200: a.JobState}, (*ACTION_PROBLEMS, "key-taken")),
    Route("POST", "/jobs/{id}/promote", ADMIN, promote, b.JobAction, NO, {200: a.JobState}, ACTION_PROBLEMS),
    Route("POST", "/jobs/{id}/reschedule", ADMIN, reschedule, b.Reschedule, NO, {200: a.JobState}, ACTION_PROBLEMS),
    Route("POST", "/jobs/{id}/erase", ADMIN, erase, b.JobAction, NO, {200: a.ErasedJob}, ACTION_PROBLEMS),
    Route("POST", "/jobs/retry", ADMIN, retry_many, BulkOrder, NO, {200: OrderResult}, ACTION_PROBLEMS),
    Route("POST", "/jobs/cancel", ADMIN, cancel_many, BulkOrder, NO, {200: OrderResult}, (*NOT_FOUND, "changed")),
    Route("POST", "/jobs/promote", ADMIN, promote_many, BulkOrder, NO, {200: OrderResult}, (*NOT_FOUND, "changed")),
    Route("POST", "/jobs/erase", ADMIN, erase_many, BulkOrder, NO, {200: OrderResult}, (*NOT_FOUND, "changed")),
    Route("GET", "/queues", READ | METRICS, list_queues, NO, q.PageQuery, {200: a.QueuesPage}, headers=PAGED),
    Route("GET", "/queues/{queue}", READ | METRICS, get_queue, NO, NO, {200: Queue}),
    Route("PATCH", "/queues/{queue}", ADMIN, change_queue, QueuePatch, NO, {200: Queue}, ("changed",)),
    Route("GET", "/queues/{queue}/groups", READ, list_groups, NO, GroupsQuery, {200: Groups}),
    Route("PUT", "/queues/{queue}/groups/{group}", ADMIN, put_group, GroupSettings, NO, {200: a.GroupStored}, ("changed",)),
    Route("DELETE", "/queues/{queue}/groups/{group}", ADMIN, delete_group, NO, NO, {204: NONE}, ("changed",)),
    Route("GET", "/schedules", READ, list_schedules, NO, q.PageQuery, {200: SchedulesPage}, headers=PAGED),
    Route("GET", "/schedules/{schedule}", READ, get_schedule, NO, NO, {200: Schedule}, NOT_FOUND),
    Route("PUT", "/schedules/{schedule}", ADMIN, put_schedule, NewSchedule, NO, {200: StoredSchedule, 201: StoredSchedule},
          (*ACTION_PROBLEMS, "unknown-task")),
    Route("DELETE", "/schedules/{schedule}", ADMIN, remove_schedule, NO, NO, {204: NONE}, ("changed",)),
    Route("POST", "/schedules/{schedule}/pause", ADMIN, pause_schedule, NO, NO, {200: Schedule}, (*NOT_FOUND, "changed")),
    Route("POST", "/schedules/{schedule}/resume", ADMIN, resume_schedule, NO, NO, {200: Schedule}, (*NOT_FOUND, "changed")),
    Route("POST", "/schedules/{schedule}/run", ADMIN, run_schedule, ScheduleRun, NO, {201: a.SubmittedJob, 200: a.SubmittedJob},
          (*NOT_FOUND, *NEW_PROBLEMS, "queue-full"), headers=IDEMPOTENT),
    Route("GET", "/tasks", READ | SUBMIT | WORK, list_tasks, NO, q.PageQuery, {200: a.TasksPage}, headers=PAGED),
    Route("GET", "/tasks/{name}", READ | SUBMIT | WORK, get_task, NO, NO, {200: TaskInfo}, NOT_FOUND),
    Route("PUT", "/tasks", WORK, publish_tasks, b.TaskPublication, NO, {200: a.PublishResult}, ("oom",)),
    Route("GET", "/workers", READ | WORK, list_workers, NO, q.WorkersQuery, {200: a.WorkerList}),
    Route("PUT", "/workers/{name}", WORK, enlist, b.WorkerRegistration, NO, {200: a.EnlistResult},
          ("workers-full", "oom")),
    Route("DELETE", "/workers/{name}", WORK, leave, NO, q.LifeQuery, {204: NONE}),
    Route("POST", "/workers/{name}/reconcile", WORK, reconcile, b.ReconcileRequest, NO, {200: a.ReconcileResult}),
    Route("POST", "/workers/{name}/retire", WORK, retire, b.RetireRequest, NO, {200: a.RetireResult}),
    Route("POST", "/workers/{name}/drain", ADMIN, drain, NO, NO, {202: a.EnlistResult}, ("not-found",)),
    Route("GET", "/pools", READ, list_pools, NO, NO, {200: a.PoolList}),
    Route("GET", "/pools/{name}", READ, get_pool, NO, NO, {200: Pool}, ("not-found",)),
    Route("PUT", "/pools/{name}", ADMIN, put_pool, PoolSettings, NO, {201: Pool, 200: Pool}, ("changed",)),
    Route("DELETE", "/pools/{name}", ADMIN, delete_pool, NO, NO, {204: NONE}),
    Route("GET", "/events", READ, events, NO, q.EventsQuery, {200: (a.EventsPage, EVENT_STREAM)}, ("busy",),
          headers=("Last-Event-ID", "Sublet-Shared")),
    Route("POST", "/events", TICK | WORK, trigger, Trigger, NO, {200: (a.TickResult, a.WorkSummary)}, ("not-found", "at-work")),
    Route("POST", "/tick", TICK, tick, NO, q.TickQuery, {200: a.TickResult, 202: NONE}, events=True),
    Route("GET", "/tick", TICK, tick, NO, q.TickQuery, {200: a.TickResult}),
    Route("POST", "/work", WORK, work, Summons, q.WorkQuery, {200: a.WorkSummary}, ("not-found", "at-work"), signed=True),
    Route("GET", "/audit", ADMIN, list_audit, NO, q.PageQuery, {200: a.AuditPage}, headers=PAGED),
    Route("GET", "/stats", READ | METRICS, stats, NO, q.StatsQuery, {200: a.Stats}),
    Route("GET", "/history", READ, get_history, NO, q.HistoryQuery, {200: History}),
    Route("GET", "/server", READ, get_server, NO, NO, {200: ServerReport}),
    Route("GET", "/metrics", READ | METRICS, metrics, NO, NO, {200: "text/plain"}),
    Route("GET", "/whoami", frozenset(Role), whoami, NO, NO, {200: a.Identity}),
    Route("GET", "/", ALL, index, NO, NO, {200: (a.Links, "text/html")}, headers=("Vary",)),
    Route("GET", "/ui", ALL, get_page, NO, q.AnyQuery, PAGE, headers=CACHED),
    Route("GET", "/ui/static/{file}", ALL, get_file, NO, NO, FILE, NOT_FOUND, headers=CACHED),
    Route("GET", "/healthz", ALL, healthz, NO, NO, {200: a.Health}),
    Route("GET", "/readyz", ALL, readyz, NO, NO, {200: a.Health}, ("wrong-layout", "unavailable")),
    Route("GET", "/openapi.json", ALL, openapi, NO, NO, {200: "application/json"}),
)  # fmt: skip

UNSAFE_GETS = frozenset({claim_next, tick})
"""Handlers of GET that change something: HEAD is not allowed."""
SHARED = frozenset(
    {
        *(list_jobs, get_job, list_queues, get_queue, list_groups, stats, metrics, list_tasks, get_task),
        *(
            list_schedules,
            get_schedule,
            list_workers,
            list_pools,
            get_pool,
            get_server,
            get_history,
            list_audit,
            get_workflow,
            list_upstream,
        ),
    }
)
"""Handlers whose answer may be shared by clients that accept an older one (`Sublet-Shared`)."""
WITH_PAYLOADS = frozenset({list_jobs, get_job, get_schedule, list_upstream})
"""Handlers whose answers have payloads: shared ones are kept for at most 5 s."""
ERASING = frozenset({erase, erase_many})
"""Handlers after which all shared answers are dropped."""
ROUTES = tuple(
    replace(route, headers=(*route.headers, *SHAREABLE)) if route.handler in SHARED else route
    for route in ROUTES
)
BY_TOKEN = frozenset({list_workers})
"""Handlers whose answer differs with the token's name."""
WITHIN_QUEUES = frozenset(
    {
        *(
            submit,
            submit_batch,
            submit_workflow,
            list_jobs,
            get_job,
            claim,
            claim_next,
            cancel,
            retry,
            promote,
            erase,
        ),
        *(reschedule, retry_many, cancel_many, promote_many, erase_many),
        *(
            heartbeat,
            complete,
            fail,
            release,
            note,
            emit,
            get_stream,
            step,
            proceed,
            call_job,
            upstream_page,
            suspend,
            suspend_batch,
            signal,
            list_upstream,
        ),
        *(heartbeat_batch, complete_batch, fail_batch, release_batch, note_batch),
        *(
            list_queues,
            get_queue,
            change_queue,
            list_groups,
            put_group,
            delete_group,
            stats,
            events,
            list_tasks,
            get_task,
        ),
        *(list_schedules, get_schedule, put_schedule, remove_schedule),
        *(pause_schedule, resume_schedule, run_schedule),
        *(list_workers, enlist, leave, retire, reconcile, list_pools, get_pool, whoami, list_audit),
    }
)
"""Handlers that a token limited to some queues may use: they show and change nothing of other queues."""
