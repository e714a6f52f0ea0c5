"""Everything this library raises.

    JobsError
    ├── Refused            Redis ran it and said no; the same again is useless. `.code` is the reply's first word
    │   ├── NotFound       NOT_FOUND      there is no such job (or it was forgotten)
    │   ├── LeaseLost      LEASE_LOST     another claim owns the job, or it is over: stop working
    │   ├── WrongState     WRONG_STATE    the job cannot go there from here, e.g. cancel after completed
    │   ├── Changed        CHANGED        the job or queue changed since you looked: look again
    │   ├── KeyTaken       KEY_TAKEN      another job holds the key
    │   ├── QueueFull      QUEUE_FULL     the queue's limit is reached: more workers, or a higher limit
    │   ├── TooMany        TOO_MANY       more items than one call takes
    │   ├── NoNamespace    NO_NAMESPACE   nobody has run `init` here, or the data was flushed
    │   ├── WrongLayout    WRONG_LAYOUT   another version's data lives here
    │   └── OutOfMemory    OOM            Redis is full; claims and completions still work, and make room
    ├── Unavailable        Redis did not answer in time: outcome unknown; every verb is safe to send again
    │   ├── Unconfirmed    Redis has it, but not as many replicas or disks as were asked for: send the same again
    │   ├── Forbidden      Redis's access list lets this user not do that
    │   │   └── Denied     the HTTP API does not take this token, or not for this
    │   ├── Busy           this process has no connection to spare; Redis itself may be well
    │   ├── Demoted        this server takes no writes now: a failover is under way, or was
    │   └── Unfit          what answered cannot be used: not Redis, too old, or set to evict jobs
    │       ├── Moved      it is a node of a cluster, and another one has what was asked for
    │       └── NotDurable it cannot keep jobs as surely as was asked for
    ├── Invalid            the request never left this process: bad payload, unknown task, bad name
    └── JobFailed          the job that was waited for ended without a result
        └── JobCancelled

`Snooze` and `Discard` are no errors: a task raises them to steer (see `sublet.context`).
"""

from collections.abc import Iterable


class JobsError(Exception):
    """The root of all errors of this library."""


class Refused(JobsError):
    """Redis ran the script and said no; nothing has changed, and the same again is useless."""

    code = "REFUSED"


class NotFound(Refused):
    """There is no such job: it never was, or its retention has passed."""

    code = "NOT_FOUND"


class LeaseLost(Refused):
    """The lease was given to another, or the job is over: stop working, nothing more you do counts."""

    code = "LEASE_LOST"


class WrongState(Refused):
    """The job is in a state from which this verb does not lead."""

    code = "WRONG_STATE"


class Changed(Refused):
    """The job, or the queue's settings, changed since the caller looked: look again, then decide again."""

    code = "CHANGED"


class KeyTaken(Refused):
    """Another job holds this job's key by now."""

    code = "KEY_TAKEN"


class QueueFull(Refused):
    """The queue holds as many jobs, or bytes of payload, as `configure` lets it: the job was not taken in."""

    code = "QUEUE_FULL"


class TooMany(Refused):
    """More items than one call takes."""

    code = "TOO_MANY"


class NoNamespace(Refused):
    """The namespace does not exist here: never made, or flushed away."""

    code = "NO_NAMESPACE"


class WrongLayout(Refused):
    """The data here was written by another version, with another layout."""

    code = "WRONG_LAYOUT"


class OutOfMemory(Refused):
    """Redis is full and takes no new job; what is there can still be claimed and completed."""

    code = "OOM"


class Unavailable(JobsError):
    """Redis could not be reached or did not answer in time. The outcome is unknown; sending the same again is safe."""


class Unconfirmed(Unavailable):
    """Redis has taken it in, but fewer replicas, or disks, have it than were asked for. Sending the same again is safe."""

    job_id = ""
    """The job that is there, where it is about one."""


class Forbidden(Unavailable):
    """The user of the URL may not do this: Redis's access list (ACL) says so."""


class Denied(Forbidden):
    """The HTTP API does not take this token, or not for this; nothing has changed."""


class Busy(Unavailable):
    """This process has no connection to spare; Redis itself may be well."""


class Demoted(Unavailable):
    """This server takes no writes now: another one is becoming the primary, or has become it."""


class Unfit(Unavailable):
    """What answers there cannot keep jobs: it is not Redis, is too old, or is set to evict them."""


class Moved(Unfit):
    """The server is a node of a cluster, and another one has what was asked for."""


class NotDurable(Unfit):
    """The server cannot keep a job as surely as was asked for, now or again: it must be set otherwise, or asked for less."""

    job_id = ""
    """The job that is there all the same, where it is about one."""


class Invalid(JobsError):
    """The request is wrong, and was mostly found so before it left this process; nothing has changed."""


class JobFailed(JobsError):
    """The job that was waited for ended without a result. `code`, `message` and `detail` are of its last attempt."""

    def __init__(self, job_id: str, code: str, message: str = "", detail: str = "") -> None:
        super().__init__(f"job {job_id} is dead ({code}){': ' if message else ''}{message}")
        self.job_id, self.code, self.message, self.detail = job_id, code, message, detail


class JobCancelled(JobFailed):
    """The job that was waited for was cancelled."""

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
"""Code → class, for every refusal that a script or Redis itself may answer."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the closest known name: `, did you mean queue?`, to end a message with. Empty if no known name is close."""
    from difflib import get_close_matches  # slow to import, and needed only after a mistake

    matches = get_close_matches(word, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
