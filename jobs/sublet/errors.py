"""The exceptions of this library, with what to do about each.

    JobsError
    ├── Refused            Redis ran the call and rejected it; repeating it is useless. `.code` is the reply's first word
    │   ├── NotFound       NOT_FOUND      there is no such job (or its retention has passed)
    │   ├── LeaseLost      LEASE_LOST     another claim has the job, or it has ended: stop working
    │   ├── WrongState     WRONG_STATE    the job's state does not allow the verb, e.g. cancel after completed
    │   ├── Changed        CHANGED        the job or queue changed since you read it: read it again
    │   ├── KeyTaken       KEY_TAKEN      another job holds the key
    │   ├── QueueFull      QUEUE_FULL     the queue's limit is reached: more workers, or a higher limit
    │   ├── TooMany        TOO_MANY       more items than one call takes
    │   ├── NoNamespace    NO_NAMESPACE   the namespace was never created, or the data was flushed
    │   ├── WrongLayout    WRONG_LAYOUT   the data is of another version
    │   └── OutOfMemory    OOM            Redis is full; claims and completions still work, and free memory
    ├── Unavailable        Redis did not answer in time: outcome unknown; every verb is safe to repeat
    │   ├── Unconfirmed    Redis has it, but fewer replicas or disks than asked for: repeat the call
    │   ├── Forbidden      Redis's access list does not allow this user the command
    │   │   └── Denied     the HTTP API rejects this token, or does not allow it this request
    │   ├── Busy           this process has no free connection; Redis itself may be well
    │   ├── Demoted        this server accepts no writes now: a failover is under way, or has ended
    │   └── Unfit          the server cannot be used: not Redis, too old, or set to evict jobs
    │       ├── Moved      it is a node of a cluster, and another node has the data
    │       └── NotDurable it cannot keep jobs as durably as asked for
    ├── Invalid            the request is not valid: bad payload, unknown task, bad name
    └── JobFailed          the awaited job ended without a result
        └── JobCancelled

`Snooze` and `Discard` are not errors: a task raises them to end its attempt (see `sublet.context`).
"""

from collections.abc import Iterable


class JobsError(Exception):
    """Base class of all errors of this library."""


class Refused(JobsError):
    """Redis ran the script and rejected the call. Nothing has changed, and repeating the call is useless."""

    code = "REFUSED"


class NotFound(Refused):
    """There is no such job: it was never submitted, or its retention has passed."""

    code = "NOT_FOUND"


class LeaseLost(Refused):
    """Another claim has the job, or the job has ended. Stop working: its outcome will not be accepted."""

    code = "LEASE_LOST"


class WrongState(Refused):
    """The state of the job does not allow this verb."""

    code = "WRONG_STATE"


class Changed(Refused):
    """The job, or the queue's settings, changed since the caller read them. Read them again, then decide again."""

    code = "CHANGED"


class KeyTaken(Refused):
    """Another job holds this job's key now."""

    code = "KEY_TAKEN"


class QueueFull(Refused):
    """The queue has reached its limit of jobs or of payload bytes (see `configure`). The job was not stored."""

    code = "QUEUE_FULL"


class TooMany(Refused):
    """The call has more items than it may have."""

    code = "TOO_MANY"


class NoNamespace(Refused):
    """The namespace does not exist: it was never created, or the data was flushed."""

    code = "NO_NAMESPACE"


class WrongLayout(Refused):
    """The data was written by another version, with another layout."""

    code = "WRONG_LAYOUT"


class OutOfMemory(Refused):
    """Redis is full and stores no new job. Existing jobs can still be claimed and completed."""

    code = "OOM"


class Unavailable(JobsError):
    """Redis could not be reached or did not answer in time. The outcome is unknown; repeating the call is safe."""


class Unconfirmed(Unavailable):
    """Redis has stored the job, but fewer replicas or disks have it than asked for. Repeating the call is safe."""

    job_id = ""
    """The job that was stored, if the error is about one."""


class Forbidden(Unavailable):
    """Redis's access list (ACL) does not allow this user the command."""


class Denied(Forbidden):
    """The HTTP API rejects this token, or does not allow it this request. Nothing has changed."""


class Busy(Unavailable):
    """This process has no free connection; Redis itself may be well."""


class Demoted(Unavailable):
    """This server accepts no writes now: another one is becoming the primary, or is it already."""


class Unfit(Unavailable):
    """The server cannot keep jobs: it is not Redis, is too old, or is set to evict keys."""


class Moved(Unfit):
    """The server is a node of a cluster, and another node has the data."""


class NotDurable(Unfit):
    """The server can never keep a job as durably as asked for: change its configuration, or ask for less."""

    job_id = ""
    """The job that was stored nevertheless, if the error is about one."""


class Invalid(JobsError):
    """The request is not valid. Most checks run before anything is sent; nothing has changed."""


class JobFailed(JobsError):
    """The awaited job ended without a result. `code`, `message` and `detail` are those of its last attempt."""

    def __init__(self, job_id: str, code: str, message: str = "", detail: str = "") -> None:
        super().__init__(f"job {job_id} is dead ({code}){': ' if message else ''}{message}")
        self.job_id, self.code, self.message, self.detail = job_id, code, message, detail


class JobCancelled(JobFailed):
    """The awaited job was cancelled."""

    def __init__(self, job_id: str, message: str = "", detail: str = "") -> None:
        super().__init__(job_id, "cancelled", message, detail)
        self.args = (f"job {job_id} was cancelled",)


REFUSALS: dict[str, type[Refused]] = {
    cls.code: cls
    for cls in (
        NotFound,
        LeaseLost,
        WrongState,
        Changed,
        KeyTaken,
        QueueFull,
        TooMany,
        NoNamespace,
        WrongLayout,
        OutOfMemory,
    )
}
"""Code → class, for every refusal of a script or of Redis itself."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the closest known name: `, did you mean queue?`, to end a message with. Empty if no known name is close."""
    from difflib import get_close_matches  # slow to import, and needed only after a mistake

    matches = get_close_matches(word, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
