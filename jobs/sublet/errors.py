"""The exceptions of this library, with what to do about each.

    JobsError
    ├── Refused            Redis rejected the call; repeating it is useless. `.code` is the reply's first word
    │   ├── NotFound       NOT_FOUND      unknown job, or its retention has passed
    │   ├── LeaseLost      LEASE_LOST     another claim has the job, or it has ended: stop working
    │   ├── WrongState     WRONG_STATE    the job's state does not allow the verb, e.g. cancel after completed
    │   ├── Changed        CHANGED        the job or queue changed since you read it: read it again
    │   ├── KeyTaken       KEY_TAKEN      another job holds the key
    │   ├── QueueFull      QUEUE_FULL     the queue's limit is reached: more workers, or a higher limit
    │   ├── TooMany        TOO_MANY       too many items in one call: split it
    │   ├── NoNamespace    NO_NAMESPACE   never created, or the data was flushed
    │   ├── WrongLayout    WRONG_LAYOUT   the data is of another version
    │   └── OutOfMemory    OOM            Redis is full; claims and completions still work, and free memory
    ├── Unavailable        outcome unknown; every verb is safe to repeat
    │   ├── Unconfirmed    stored, but on fewer replicas or disks than asked for: repeat the call
    │   ├── Forbidden      Redis's access list does not allow this user the command
    │   │   └── Denied     the HTTP API rejects this token, or does not allow it this request
    │   ├── Busy           all connections of this process are in use
    │   ├── Demoted        this server accepts no writes now: failover
    │   └── Unfit          not Redis, too old, or set to evict jobs
    │       ├── Moved      a node of a cluster, and another node has the data
    │       └── NotDurable cannot keep jobs as durably as asked for
    ├── Invalid            bad payload, unknown task, bad name
    └── JobFailed          the awaited job ended without a result
        └── JobCancelled

A task raises `Snooze` and `Discard` (`sublet.context`) to end its attempt: they are not errors.
"""

from collections.abc import Iterable


class JobsError(Exception):
    """Base class of all errors of this library."""


class Refused(JobsError):
    """Redis rejected the call. Nothing has changed; repeating it is useless."""

    code = "REFUSED"


class NotFound(Refused):
    """The job was never submitted, or its retention has passed."""

    code = "NOT_FOUND"


class LeaseLost(Refused):
    """Another claim has the job, or it has ended. Stop working."""

    code = "LEASE_LOST"


class WrongState(Refused):
    """The job's state does not allow this verb."""

    code = "WRONG_STATE"


class Changed(Refused):
    """The job or queue has changed since it was read. Read it again, then decide."""

    code = "CHANGED"


class KeyTaken(Refused):
    """Another job holds the key."""

    code = "KEY_TAKEN"


class QueueFull(Refused):
    """The queue's limit of jobs or bytes is reached (see `configure`). The job was not stored."""

    code = "QUEUE_FULL"


class TooMany(Refused):
    """Too many items in one call."""

    code = "TOO_MANY"


class NoNamespace(Refused):
    """The namespace was never created, or the data was flushed."""

    code = "NO_NAMESPACE"


class WrongLayout(Refused):
    """The data is of another version."""

    code = "WRONG_LAYOUT"


class OutOfMemory(Refused):
    """Redis is full and stores no new job. Claims and completions still work."""

    code = "OOM"


class Unavailable(JobsError):
    """Redis did not answer in time. The outcome is unknown; repeating the call is safe."""


class Unconfirmed(Unavailable):
    """The job is stored, but on fewer replicas or disks than asked for. Repeating the call is safe."""

    job_id = ""
    """Id of the stored job."""


class Forbidden(Unavailable):
    """Redis's access list (ACL) does not allow this user the command."""


class Denied(Forbidden):
    """The HTTP API rejects this token, or does not allow it this request. Nothing has changed."""


class Busy(Unavailable):
    """All connections of this process are in use; Redis may be well."""


class Demoted(Unavailable):
    """This server accepts no writes now: another one becomes primary."""


class Unfit(Unavailable):
    """The server cannot keep jobs: not Redis, too old, or set to evict keys."""


class Moved(Unfit):
    """This node of a cluster does not have the data."""


class NotDurable(Unfit):
    """The server cannot store as durably as asked for: change its configuration, or ask for less."""

    job_id = ""
    """Id of the stored job."""


class Invalid(JobsError):
    """The request is not valid. Nothing has changed."""


class JobFailed(JobsError):
    """The awaited job ended without a result. `code`, `message` and `detail` are its last attempt's."""

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
"""Class of each code."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean queue?`, to end a message with; empty without a close name."""
    from difflib import get_close_matches  # slow to import, and needed only after a mistake

    matches = get_close_matches(word, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
