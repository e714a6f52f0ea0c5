"""The exceptions of this library, with what to do about each.

    JobsError
        Refused               Redis rejected the call; repeating it is useless. `.code` is the reply's first word
            NotFound          NOT_FOUND      check the id or name
            LeaseLost         LEASE_LOST     stop working
            WrongState        WRONG_STATE    look at the job's state
            Changed           CHANGED        read again, then decide
            KeyTaken          KEY_TAKEN      wait until the other job has ended
            QueueFull         QUEUE_FULL     more workers, or a higher limit
            WorkersFull       WORKERS_FULL   fewer workers, or another token
            TooMany           TOO_MANY       split the call
            NoNamespace       NO_NAMESPACE   submit a job: it creates the namespace
            WrongLayout       WRONG_LAYOUT   use the version that wrote the data
            OutOfMemory       OOM            more workers, or more memory
        Unavailable           outcome unknown; every verb is safe to repeat
            Unconfirmed       repeat the submit
            Forbidden         change the user's rights
                Denied        check the token
            Busy              fewer calls at once
            Demoted           repeat the call after the failover
            Unfit             change the server or settings
                Moved         use redis+cluster://…
                NotDurable    change its configuration, or ask for less
        Invalid               correct the argument
        PayloadLost           restore the object, or submit the job again
        JobFailed             look at the job's last attempt
            JobCancelled

A task raises `Snooze` and `Discard` (`sublet.context`) to end its attempt: they are not errors.
"""

from collections.abc import Iterable


class JobsError(Exception):
    """Base class of all errors of this library."""


class Refused(JobsError):
    """Redis rejected the call. Nothing has changed; repeating it is useless."""

    code = "REFUSED"


class NotFound(Refused):
    """The job, worker, schedule or pool does not exist, or the job's retention has passed."""

    code = "NOT_FOUND"


class LeaseLost(Refused):
    """The attempt's lease has ended; the job may run elsewhere, or have ended. Stop working."""

    code = "LEASE_LOST"


class WrongState(Refused):
    """The job's state does not allow this verb, for example cancel of a completed job."""

    code = "WRONG_STATE"


class Changed(Refused):
    """The job, queue, worker, schedule or pool has changed since it was read. Read it again, then decide."""

    code = "CHANGED"


class KeyTaken(Refused):
    """Another job holds the deduplication key of the job to retry."""

    code = "KEY_TAKEN"


class QueueFull(Refused):
    """The queue's limit of jobs or bytes is reached (see `configure`). The job was not stored."""

    code = "QUEUE_FULL"


class WorkersFull(Refused):
    """As many live workers are registered, in all or by one token, as may be. The worker works without it."""

    code = "WORKERS_FULL"


class TooMany(Refused):
    """The call has too many items. Split it."""

    code = "TOO_MANY"


class NoNamespace(Refused):
    """The namespace was never created, or its data was flushed."""

    code = "NO_NAMESPACE"


class WrongLayout(Refused):
    """The data in Redis is of another version or partition count, or is being dropped."""

    code = "WRONG_LAYOUT"


class OutOfMemory(Refused):
    """Redis is full, or above SUBLET_MEMORY: no new job is stored. Claims and completions still work."""

    code = "OOM"


class Unavailable(JobsError):
    """Redis, or the HTTP API, cannot serve or did not answer in time. Unknown outcome; repeating is safe."""

    lasting = False
    """Whether waiting is useless: the address, the credentials or the server must change."""

    def __init__(self, *words: object, lasting: bool = False) -> None:
        super().__init__(*words)
        self.lasting = self.lasting or lasting


class Unconfirmed(Unavailable):
    """The job is stored, but fewer replicas or disks confirmed it than asked for. Repeating is safe."""

    job_id = ""
    """Id of the stored job; empty if there are several."""


class Forbidden(Unavailable):
    """Redis's access list (ACL) does not allow this user a command of the call."""

    lasting = True


class Denied(Forbidden):
    """The HTTP API rejects this token, or does not allow it this request. Nothing has changed."""


class Busy(Unavailable):
    """No connection of this process became free in time; Redis may be well."""


class Demoted(Unavailable):
    """No server of the partition accepts the call now, for example during a failover."""


class Unfit(Unavailable):
    """Server or settings unfit: not Redis, too old, evicts keys, malformed data, other partition count."""

    lasting = True


class Moved(Unfit):
    """This node of a cluster does not have the data: use redis+cluster://…."""


class NotDurable(Unfit):
    """The server cannot store as durably as asked for: change its configuration, or ask for less."""

    job_id = ""
    """Id of the job, if one was stored all the same."""


class Invalid(JobsError):
    """An argument, option or setting is not valid. Nothing has changed."""


class PayloadLost(JobsError):
    """The large payload or result of a job is missing in its backend, or damaged."""


class JobFailed(JobsError):
    """The awaited job ended without a result. `code`, `message` and `detail` are from its last attempt's end."""

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
        WorkersFull,
        TooMany,
        NoNamespace,
        WrongLayout,
        OutOfMemory,
    )
}
"""Exception class by refusal code."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean queue?`, to end an error message with; empty if no known name is close."""
    from difflib import get_close_matches  # slow to import, and needed only after a mistake

    matches = get_close_matches(word, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
