"""The exceptions of this library. docs/reference/errors.md explains each.

    JobsError
        Refused               Redis rejected the call; repeat it after a change. `.code` is the reply's first word
            NotFound          NOT_FOUND
            LeaseLost         LEASE_LOST
            WrongState        WRONG_STATE
            Changed           CHANGED
            KeyTaken          KEY_TAKEN
            QueueFull         QUEUE_FULL
            WorkersFull       WORKERS_FULL
            StepsFull         STEPS_FULL
            TooMany           TOO_MANY
            NoNamespace       NO_NAMESPACE
            WrongLayout       WRONG_LAYOUT
            OutOfMemory       OOM
        Unavailable           outcome unknown; repeat with the same job id or key
            Unconfirmed
            Forbidden
                Denied
            Busy
            Demoted
            Unfit
                Moved
                NotDurable
        Invalid
        PayloadLost
        JobFailed
            JobCancelled

A task raises `Snooze` and `Discard` (`sublet.context`) to end its attempt: they are not errors.
"""

from collections.abc import Iterable, Mapping
from typing import Any


class JobsError(Exception):
    """Base class of all errors of this library."""


class Refused(JobsError):
    """Redis rejected a call, which changed nothing. Repeating it is useless until something has changed."""

    code = "REFUSED"


class NotFound(Refused):
    """The job, workflow, queue, worker, schedule or pool does not exist, or was deleted. Check the id or
    name.
    """

    code = "NOT_FOUND"


class LeaseLost(Refused):
    """The attempt's lease has ended: the job may run elsewhere, or be finished. Stop working on it."""

    code = "LEASE_LOST"


class WrongState(Refused):
    """The state of the job or workflow does not allow the call, for example to cancel a completed job. Or a schedule of
    this name is in another partition: remove it, and add it again.
    """

    code = "WRONG_STATE"


class Changed(Refused):
    """The job, queue, worker, schedule, pool or partition has changed since it was read. Read it again, then
    decide.
    """

    code = "CHANGED"


class KeyTaken(Refused):
    """The job cannot be retried: another job holds its deduplication key. Wait for the end of that job, or of
    the key's window.
    """

    code = "KEY_TAKEN"


class QueueFull(Refused):
    """The job was not stored or changed. Its queue has reached its limit of jobs or bytes: start more workers, or raise
    the limit (`configure`). Or its queue is new, and its partition has as many as the limit `queues` allows.
    """

    code = "QUEUE_FULL"


class WorkersFull(Refused):
    """The limit of registered live workers is reached, of the namespace or of one API token. This worker works
    unregistered. Start fewer workers, or use another token.
    """

    code = "WORKERS_FULL"


class StepsFull(Refused):
    """The step or signal was not kept: the job would have over 1,000 steps, or 1 MiB. Go on in another job."""

    code = "STEPS_FULL"


class TooMany(Refused):
    """The call has more items than its script accepts. Split it."""

    code = "TOO_MANY"


class NoNamespace(Refused):
    """The namespace was never created, or its data was flushed. Submit a job: it creates the namespace."""

    code = "NO_NAMESPACE"


class WrongLayout(Refused):
    """The data in Redis was written by another version or for another partition count: use that version and
    SUBLET_PARTITIONS. Or `sublet drop` has begun to delete it: run that to its end.
    """

    code = "WRONG_LAYOUT"


class OutOfMemory(Refused):
    """The job or other data was not stored: Redis is full or, for a submit, above SUBLET_MEMORY. Claims and completions
    still work: add workers, or memory.
    """

    code = "OOM"


class Unavailable(JobsError):
    """Redis, or the HTTP API, could not serve the call or did not answer in time. Whether it had an effect is
    unknown. Repeat a submit only with the same `Submission`, id or key: `task.submit(…)` makes a second job.
    """

    lasting = False
    """Whether repeating is useless until the address, the credentials or the server has changed."""

    def __init__(self, *words: object, lasting: bool = False) -> None:
        super().__init__(*words)
        self.lasting = self.lasting or lasting


class Unconfirmed(Unavailable):
    """The job is stored, but fewer replicas or disks have confirmed it than were asked for. Repeat the submit
    with the id `job_id`, or the same `Submission`.
    """

    job_id = ""
    """Id of the stored job; empty if there are several, or over HTTP."""


class Forbidden(Unavailable):
    """The Redis user may not run a command of the call, by Redis's access list (ACL). Change its rights."""

    lasting = True


class Denied(Forbidden):
    """The HTTP API does not know the token, or the token may not make this request. Nothing has changed."""


class Busy(Unavailable):
    """All connections of this process stayed in use until the timeout. Make fewer calls at once."""


class Demoted(Unavailable):
    """The server that was asked cannot serve the partition now: a failover, a replica, or a move of keys in a
    cluster. Repeat the call; if that never helps, check the URL.
    """


class Unfit(Unavailable):
    """The server cannot be used with these settings: it is not Redis, too old, evicts keys, has malformed
    data or another partition count. Change the server or the settings.
    """

    lasting = True


class Moved(Unfit):
    """This node of a cluster does not have the data: use redis+cluster://…."""


class NotDurable(Unfit):
    """The server cannot confirm the durability that the submit asks for. Nothing is stored, unless the
    message names stored ids. Change the server's configuration, or ask for less.
    """

    job_id = ""
    """Id of the job if a single one was stored nevertheless; else empty."""


class Invalid(JobsError):
    """An argument, option, setting or stored value is not valid. Nothing has changed, but `submit_all` may
    have stored other jobs, and a large workflow some, which are then cancelled.
    """


class PayloadLost(JobsError):
    """The large payload or result of a job is missing or damaged where it was stored outside of Redis. Restore
    the object, or submit the job again.
    """


class JobFailed(JobsError):
    """The awaited job is dead (cancelled: `JobCancelled`). `code`, `message` and `detail` describe how its
    last attempt ended.
    """

    def __init__(self, job_id: str, code: str, message: str = "", detail: str = "") -> None:
        super().__init__(f"job {job_id} is dead ({code}){': ' if message else ''}{message}")
        self.job_id, self.code, self.message, self.detail = job_id, code, message, detail


class JobCancelled(JobFailed):
    """The awaited job was cancelled, for example by an order, a newer job of its key, or the failure of a job
    that it waited for. `cause` names that job, or another reason; it may be empty. `code` is `cancelled`.
    """

    def __init__(self, job_id: str, message: str = "", detail: str = "", cause: str = "") -> None:
        super().__init__(job_id, "cancelled", message, detail)
        self.cause = cause
        self.args = (f"job {job_id} was cancelled{': ' if cause else ''}{cause}",)


REFUSALS: dict[str, type[Refused]] = {
    cls.code: cls
    for cls in (
        NotFound,
        LeaseLost,
        WrongState,
        Changed,
        KeyTaken,
        QueueFull,
        WorkersFull,
        StepsFull,
        TooMany,
        NoNamespace,
        WrongLayout,
        OutOfMemory,
    )
}
"""The exception class of each code with which Redis refuses a call."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for the end of an error message, such as `, did you mean queue?`; empty if no name in
    `known` is like `word`.
    """
    from difflib import get_close_matches  # slow to import

    matches = get_close_matches(word, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""


_WORDS = {
    "missing": "missing: add it",
    "extra_forbidden": "unknown: leave it out",
    "bool": "use true or false",
    "int": "use a whole number",
    "float": "use a number",
    "finite_number": "use a finite number",
    "string": "use text",
    "string_unicode": "use valid Unicode",
    "dict": "use an object",
    "model": "use an object",
    "list": "use a list",
    "tuple": "use a list",
    "literal_error": "use {expected}",
    "enum": "use {expected}",
    "greater_than": "use a number above {gt:,.12g}",
    "greater_than_equal": "use {ge:,.12g} or more",
    "less_than": "use a number below {lt:,.12g}",
    "less_than_equal": "use {le:,.12g} or less",
    "string_too_short": "use {min_length:,} or more characters",
    "string_too_long": "use at most {max_length:,} characters",
    "too_short": "give {min_length:,} or more",
    "too_long": "give at most {max_length:,}",
    "string_pattern_mismatch": "use text that matches {pattern}",
}


def fault_words(fault: Mapping[str, Any]) -> str:
    """Return the text of an error of a pydantic ValidationError: ours for common types, otherwise its own."""
    kind: str = fault["type"]
    short = kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    words = _WORDS.get(short.removesuffix("_attributes"))
    return words.format(**fault.get("ctx", {})) if words else fault["msg"].removeprefix("Value error, ")
