"""Examples of all request bodies, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sublet_functions.schemas import requests as b
from sublet_functions.schemas import schedules as t
from sublet_functions.schemas import steps as s
from sublet_functions.schemas import workflows as w
from sublet_functions.schemas.orders import BulkOrder
from sublet_functions.schemas.pools import PoolSettings
from sublet_functions.schemas.queues import GroupSettings, QueuePatch
from sublet_functions.schemas.triggers import Summons, Trigger

_ID = "0-01KAHM7Z5V8K9XQ2T4R6W8Y0BC"
_TOKEN = "7.k2v9x0m4q8s1"
_LEASE = {"id": _ID, "token": _TOKEN}
_JOB = {"task": "resize", "payload": {"image": "cat.png", "width": 640}, "queue": "images", "max_attempts": 5}
_BEAT = {"progress": {"fraction": 0.4, "message": "two of five"}}
_FAILURE = {"code": "TimeoutError", "message": "the camera did not answer"}
_RELEASE = {"delay": 5, "reason": "shutting down"}
_WAIT = {"kind": "signal", "name": "approval", "delay": 604800}
_NOTE = {"checkpoint": {"page": 17}, "log": "1.204 page 17 is done"}

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    b.NewJob: _JOB,
    b.NewJobBatch: {
        "jobs": [_JOB, {"task": "greet", "payload": {"name": "Ada"}, "delay": 60, "durability": "none"}]
    },
    w.NewWorkflow: {
        "jobs": [
            {"name": "a", "task": "fetch", "payload": {"page": 1}},
            {"name": "b", "task": "fetch", "payload": {"page": 2}},
            {"task": "index", "after": ["a", "b"], "on_failure": "run"},
        ]
    },
    w.WorkflowOrder: {},
    b.Claim: {"queues": ["images", "default"], "n": 5, "worker": "mill-1", "lease": 30},
    b.Heartbeat: {"token": _TOKEN, "lease": 30, **_BEAT},
    b.HeartbeatBatch: {"lease": 30, "jobs": [_LEASE | _BEAT]},
    b.Completion: {"token": _TOKEN, "result": {"bytes": 48213}},
    b.CompletionBatch: {"jobs": [_LEASE | {"result": {"bytes": 48213}}]},
    b.Failure: {"token": _TOKEN, **_FAILURE},
    b.FailureBatch: {"jobs": [_LEASE | _FAILURE]},
    b.Release: {"token": _TOKEN, **_RELEASE},
    b.ReleaseBatch: {"jobs": [_LEASE | _RELEASE]},
    b.Note: {"token": _TOKEN, **_NOTE},
    b.NoteBatch: {"jobs": [_LEASE | _NOTE]},
    s.Emission: {"token": _TOKEN, "before": 0, "chunks": ["Hel", "lo"]},
    s.Steps: {"token": _TOKEN, "steps": {"charge": {"receipt": 4711}}},
    s.Continuation: {
        "token": _TOKEN,
        "result": 2,
        "workflow": "0-01KAHM7Z5V8K9XQ2T4R6W8Y0BD",
        "jobs": [_JOB | {"id": f"cat-{n}"} for n in (1, 2)],
        "callback": {"task": "album", "id": "cat-album"},
    },
    s.CallRequest: {"token": _TOKEN, "step": "label", "job": _JOB},
    s.UpstreamRequest: {"token": _TOKEN, "start": 50},
    s.Suspension: {"token": _TOKEN, **_WAIT},
    s.SuspensionBatch: {"jobs": [_LEASE | _WAIT]},
    s.Signal: {"name": "approval", "value": {"by": "ada"}},
    b.JobAction: {"revision": 3},
    b.Retry: {"revision": 3, "anew": True},
    b.Reschedule: {"run_at": "2030-01-31T09:00:00.000Z", "priority": 10, "revision": 3},
    BulkOrder: {"filter": {"task": "resize", "code": "TimeoutError"}, "expected": 187},
    GroupSettings: {"concurrency": 50, "share": 3},
    QueuePatch: {"paused": False, "limits": {"jobs": 10_000, "bytes": None}},
    b.WorkerRegistration: {"life": "9f2c", "about": {"host": "mill", "pid": 4711, "slots": 4}},
    b.TaskPublication: {
        "starting": True,
        "tasks": [
            {
                "name": "resize",
                "summary": "Resize an image.",
                "options": {"queue": "images", "max_attempts": 5},
                "arguments": {
                    "type": "object",
                    "properties": {"image": {"type": "string"}, "width": {"type": "integer", "default": 640}},
                    "required": ["image"],
                    "additionalProperties": False,
                },
            }
        ],
    },
    b.ReconcileRequest: {"life": "9f2c"},
    Summons: {
        "pool": "images",
        "queues": ["images"],
        "slots": 4,
        "linger": 5,
        "summons": "Zk3v0QmT1x8yLr5aWc2bNe.1",
    },
    Trigger: {"sublet": "tick", "for": 50, "every": 5},
    b.RetireRequest: {"life": "9f2c", "pool": "images"},
    PoolSettings: {
        "queues": ["images"],
        "invoker": "http",
        "target": "https://images.example.com/work",
        "max": 20,
        "wait": 2,
    },
    t.NewSchedule: {"task": "report", "cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin", "overlap": "skip"},
    t.ScheduleRun: {"id": "report-by-hand"},
}
