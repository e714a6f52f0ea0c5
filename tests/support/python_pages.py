"""The names on the pages of docs/reference/python*.md: their places, and the meanings that no docstring has."""

from sublet import Recurrence

# Page, title, introduction; its sections: title, objects (module:name).
PAGES = {
    "python-tasks.md": (
        "Python: declare tasks",
        "Apps, tasks, and their options.",
        {
            "App": ("sublet:App",),
            "Tasks": ("sublet:Task", "sublet:Options", "sublet:Backoff"),
        },
    ),
    "python-context.md": (
        "Python: inside a task",
        "The objects that a running task and its failure hooks use.",
        {
            "Inside a task": ("sublet:Context", "sublet:Snooze", "sublet:Discard", "sublet:Then"),
            "Failure hooks": ("sublet:AttemptFailure",),
        },
    ),
    "python-jobs.md": (
        "Python: submit jobs, wait for results, operate",
        "`Client` is for async code, `SyncClient` for all other code. `app.client` and `app.sync` make them at first use. "
        "Most code submits by [`Task.submit`](python-tasks.md#tasksubmit).",
        {
            "Clients": ("sublet:Client", "sublet:SyncClient", "sublet:Settings"),
            "Handles and results": ("sublet:Handle", "sublet:SyncHandle"),
            "Submit many jobs": ("sublet:Submission", "sublet:Submitted"),
        },
    ),
    "python-workflows.md": (
        "Python: workflows",
        "Jobs that wait for others. `app.workflow()` and [`Client.workflow`](python-jobs.md#clientworkflow) make one; "
        "the [guide](../guides/workflows.md) shows how to use it.",
        {
            "Workflows": (
                "sublet.client.workflow:Workflow",
                "sublet.client.sync_workflow:SyncWorkflow",
                "sublet.workflows.storing:WorkflowResult",
                "sublet.workflows.reading:StoredWorkflow",
                "sublet.workflows.reading:Member",
            ),
        },
    ),
    "python-schedules.md": (
        "Python: schedules",
        "[`@app.schedule`](python-tasks.md#appschedule) declares a schedule in code; `client.schedules` reads and changes stored ones.",
        {
            "Recurrence": ("sublet:Recurrence",),
            "Stored schedules": (
                "sublet.client.schedules:Schedules",
                "sublet.client.sync_schedules:SyncSchedules",
                "sublet:Schedule",
                "sublet.schedules.operations:Synced",
            ),
        },
    ),
    "python-workers.md": (
        "Python: workers, ticks and the HTTP API",
        "`sublet work`, `sublet tick` and `sublet serve` run these; call them where a platform calls a function of yours.",
        {
            "Workers": (
                "sublet_functions.work:work",
                "sublet:WorkerConfig",
                "sublet.execution.process_pool:Limits",
                "sublet:Worker",
                "sublet.worker.summary:Summary",
            ),
            "Ticks": ("sublet_functions.tick:run_tick", "sublet_functions.tick:TickSummary"),
            "The HTTP API as a server": (
                "sublet_functions.serve:serve",
                "sublet_functions.serve:Stop",
                "sublet_functions.http.auth:Tokens",
                "sublet_functions.handlers.worker_host:WorkerHost",
                "sublet.scaling.signing:Secrets",
                "sublet_functions.http.limits:Limits",
            ),
            "The HTTP API inside another server": (
                "sublet_functions.asgi:app",
                "sublet_functions.asgi:Asgi",
                "sublet_functions.wsgi:app",
                "sublet_functions.wsgi:Wsgi",
                "sublet_functions.wsgi:ResponseAborted",
            ),
            "Functions on platforms": (
                "sublet_functions.aws:handler",
                "sublet_functions.aws:EventFailed",
                "sublet_functions.google:http",
                "sublet_functions.google:event",
                "sublet_functions.google:TickFailed",
            ),
        },
    ),
    "python-records.md": (
        "Python: jobs, queues, workers, statistics",
        "What a client returns about jobs, queues and workers.",
        {
            "Jobs": (
                "sublet:Job",
                "sublet:State",
                "sublet:Attempt",
                "sublet.model:LastError",
                "sublet.model:KeptStep",
                "sublet:Outcome",
                "sublet:Chunk",
            ),
            "Lists": ("sublet:Page", "sublet.model:JobSummary"),
            "Queues, workers and statistics": (
                "sublet:Queue",
                "sublet.operations.groups:Groups",
                "sublet.operations.groups:Group",
                "sublet.model:WorkerInfo",
                "sublet:Stats",
                "sublet.operations.history:History",
            ),
        },
    ),
    "python-extras.md": (
        "Python: orders, programs, large payloads, tracing",
        "What a client returns about orders, the results of `command` tasks, the backends of large payloads, and OpenTelemetry.",
        {
            "Orders": (
                "sublet.operations.orders.bulk:Selection",
                "sublet.operations.orders.bulk:OrderPage",
                "sublet.operations.orders.bulk:OrderOutcome",
                "sublet.operations.orders.audit:AuditPage",
                "sublet.operations.orders.audit:AuditEntry",
            ),
            "Programs": (
                "sublet.tasks.programs.program:Output",
                "sublet.tasks.programs.program:ProgramFailed",
            ),
            "Large payloads": (
                "sublet.large_payloads:Files",
                "sublet.large_payloads:S3",
                "sublet.large_payloads:LargePayloads",
            ),
            "Tracing": ("sublet.tracing:OpenTelemetry",),
        },
    ),
    "python-testing.md": (
        "Python: tests",
        "Tests run tasks without a server and without sleeping ([guide](../guides/testing.md)).",
        {
            "Sandbox": (
                "sublet.testing:Sandbox",
                "sublet.testing:fixture",
                "sublet.testing:Drained",
                "sublet.testing:Endless",
            ),
            "Without a sandbox": ("sublet.testing:StandIn",),
            "Failures": ("sublet.testing:WorkerDied",),
        },
    ),
}

TITLES = {
    "sublet.execution.process_pool:Limits": "Limits of child processes",
    "sublet_functions.http.limits:Limits": "Limits of the HTTP API",
    "sublet_functions.asgi:app": "asgi.app",
    "sublet_functions.wsgi:app": "wsgi.app",
    "sublet_functions.aws:handler": "aws.handler",
    "sublet_functions.google:http": "google.http",
    "sublet_functions.google:event": "google.event",
}
"""Headings of objects that need another one than their names."""

TWINS = {
    "SyncClient": "Client",
    "SyncHandle": "Handle",
    "SyncSchedules": "Schedules",
    "SyncWorkflow": "Workflow",
}
"""Classes without an event loop: their methods are those of the async class, without `await`."""

INTERNAL = {
    "App.operations", "App.storage", "Client.store", "WorkflowResult.of", "Context.flush", "Context.open_with", "Context.waits", "Drained.count", "Limits.check", "Options.declared_rules", "Options.rules",
    "Settings.check_url", "Settings.client_factory", "Settings.storage", "StandIn.flush", "StandIn.open_with", "StandIn.waits", "Summary.count",
    "Task.takes_process", "asgi.LoopState", "aws.Context", "asgi.StopSignals", "tick.RoundResult", "tick.one_round",
    "tick.pause_until_next_round", "work.on_signals", "wsgi.ResponseIterator",
       "TickSummary.add_summoned", "Wsgi.ask",
}  # fmt: skip
"""Names without an underscore that only Sublet uses."""

SPECIAL = ("Task.__call__",)
"""Names with underscores that are for users."""

GROUPS = {
    "App": {
        "Declare": ("task", "schedule", "command", "middleware", "on_failure"),
        "Workflows": ("workflow",),
        "Wait for results": ("gather", "results", "as_completed"),
        "Connect": ("load", "queues", "using", "aclose"),
    },
    "Task": {
        "Submit": ("submit", "submit_sync", "options", "job"),
        "Results of earlier jobs": ("handle", "handle_sync"),
        "Run here": ("__call__",),
    },
    "Client": {
        "Submit": ("submit", "submit_all"),
        "Workflows": ("workflow", "upstream"),
        "Wait for results": ("result", "results", "gather", "as_completed", "stream"),
        "Look at jobs": ("get", "list_jobs"),
        "Change jobs": ("cancel", "retry", "signal", "promote", "reschedule", "erase", "order_page", "audit"),
        "Queues": ("queues", "queue", "pause", "resume", "configure", "groups", "change_group"),
        "Workers and statistics": ("workers", "drain", "stats", "history"),
        "Schedules and end": ("sync", "aclose"),
    },
}
"""The methods of large classes, by the reader's purpose."""

SHOWN_ONLY = {
    "Files": (),
    "Recurrence": tuple(Recurrence.model_fields),
    "S3": (),
    "Secrets": ("read",),
    "Tokens": ("read",),
    "Worker": ("run", "stop", "drain"),
    "WorkerHost": ("seconds_of",),
}
"""Classes of which only some members are for users."""

NOT_CALLED = (
    "Context", "Handle", "LargePayloads", "Schedules", "SyncHandle", "SyncSchedules", "Task",
    "Attempt", "AttemptFailure", "Drained", "Job", "JobSummary", "LastError", "Outcome", "Output", "Page", "Queue", "Schedule", "State",
    "History", "Stats", "Submission", "Submitted", "Summary", "Synced", "TickSummary", "WorkerInfo",
)  # fmt: skip
"""Classes whose objects Sublet makes: their constructors and defaults are not shown."""

TYPES = {
    "Duration": "Seconds",
    "Span": "Literal['hour', 'day', 'month']",
    "Value": "float | None",
    "InSeconds": "float",
    "Timestamp": "datetime",
    "Moment": "datetime | None",
    "Whole": "int",
    "ErrorClasses": "type | tuple[type, ...]",
    "Run": "Literal['loop', 'process', 'thread', 'command']",
    "Plain": "Literal['thread', 'inline', 'process']",
    "ScheduleState": "Literal['active', 'held', 'paused', 'ended', 'broken']",
    "Durability": "Literal['none', 'replicated', 'fsync']",
}
"""Names of types, and the types that a reader sees."""
