"""The history of a job: the legal changes of state, and the required replies to repeated requests.

The simulation passes every change to `follow`, in order. A history without a broken rule is legal.
"""

from dataclasses import dataclass

LEGAL = {
    "submit": {None: {"queued", "scheduled"}},
    "workflow": {None: {"queued", "scheduled"}},
    "upstream": {"scheduled": {"queued", "scheduled", "cancelled"}, "cancelled": {"scheduled"}},
    "fire": {None: {"queued"}},
    "on_dead": {None: {"queued"}},
    "due": {"scheduled": {"queued"}},
    "promote": {"scheduled": {"queued"}},
    "reschedule": {"scheduled": {"scheduled", "queued"}, "queued": {"scheduled", "queued"}},
    "replace": {"scheduled": {"scheduled", "queued"}, "queued": {"scheduled", "queued"}},
    "claim": {"queued": {"running"}},
    "complete": {"running": {"completed"}},
    "fail": {"running": {"scheduled", "dead", "cancelled"}},
    "release": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "expire": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "reconcile": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "suspend": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "signal": {"scheduled": {"queued"}},
    "called": {"scheduled": {"queued"}},
    "cancel": {"queued": {"cancelled"}, "scheduled": {"cancelled"}},
    "retry": {"dead": {"queued"}, "cancelled": {"queued", "scheduled"}},
    "forget": {"completed": {None}, "dead": {None}, "cancelled": {None}},
}
"""Cause → state before → states after."""
BY_LEASE = ("complete", "fail", "release", "suspend")
LEASE_OVER = (*BY_LEASE, "expire", "reconcile")


@dataclass(frozen=True)
class Move:
    """One change of a job's state: its cause, the new state, and the token of the lease that it ends or grants."""

    cause: str
    to: str | None
    token: str = ""
    last: bool = False
    """Whether the failure excludes another try."""


@dataclass
class Life:
    """The state of a job after the changes so far."""

    id: str
    queue: str
    tries: int
    key: str = ""
    window: int = 0
    size: int = 0
    """Bytes of its payload."""
    state: str | None = None
    attempt: int = 0
    left: int = 0
    token: str = ""
    tokens: tuple[str, ...] = ()
    flagged: bool = False
    """Whether a cancel was requested while it runs."""
    ended: tuple[str, str] = ("", "")
    """The verb that ended the last attempt, and its reply."""
    result: str = ""
    ops: int = 0
    op: tuple[str, str, str, str] = ("", "", "", "")
    """The last accepted verb of an operator, its revision, its rules, and its reply."""
    worker: str = ""
    """The worker with the last lease."""
    checkpoint: str = ""
    joined: tuple[str, ...] = ()
    """The submits that replaced its arguments."""
    superseded: bool = False
    """Whether a newer job of its key waits for its end."""
    overtaken: bool = False
    """Whether an operator's verb let that newer job run first."""


def follow(job: Life, move: Move) -> str:
    """Apply a change to a job. Returns the rule that it breaks; empty if it is legal."""
    if move.to not in LEGAL[move.cause].get(job.state, ()):
        return f"{move.cause} must not lead from {job.state} to {move.to}"
    if move.cause in BY_LEASE and move.token != job.token:
        return f"{move.cause} with a token of another lease"
    if move.cause == "claim" and move.token in job.tokens:
        return "a token was granted twice"
    if move.cause in ("submit", "workflow", "fire", "on_dead", "retry", "replace"):
        job.left, job.token, job.ended = job.tries, "", ("", "")
        job.checkpoint = "" if move.cause == "replace" else job.checkpoint
    elif move.cause == "claim":
        job.attempt, job.left, job.token = job.attempt + 1, job.left - 1, move.token
        job.tokens += (move.token,)
    elif move.cause in LEASE_OVER and move.to != "completed":
        job.left += move.cause in ("release", "suspend")
        again = "cancelled" if job.superseded else "queued scheduled"
        ends = "cancelled" if job.flagged else "dead" if move.last or job.left <= 0 else again
        if move.to not in ends.split():
            return f"{move.cause} led to {move.to}, with {job.left} tries left{' and a requested cancel' * job.flagged}"
    if move.cause in LEASE_OVER:
        job.flagged, job.ended = False, (move.cause, move.to or "")
    if move.to == "completed":
        job.checkpoint = ""
    job.state = move.to
    return ""


def answer_to_lease(job: Life | None, verb: str, token: str) -> str:
    """The required reply to a verb on a lease; empty if the lease is live and the verb must take effect."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    if token != job.token:
        return "LEASE_LOST"
    if job.state == "running":
        return ""
    return job.ended[1] if job.ended[0] == verb else "LEASE_LOST"


def answer_to_reconcile(job: Life | None, worker: str, attempt: str) -> str:
    """The required reply to `reconcile` for a lease; empty if the lease must end."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    if str(job.attempt) != attempt:
        return "LEASE_LOST"
    if job.state == "running":
        return "" if job.worker == worker else "LEASE_LOST"
    return job.ended[1] if job.ended[0] == "reconcile" else "LEASE_LOST"


def answer_to_order(job: Life | None, verb: str, revision: str, rules: str = "") -> str:
    """The required reply to an operator's verb: a code or its first reply; empty if the verb must take effect."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    current = job.attempt + job.ops
    if job.op[:3] == (verb, revision, rules) and current == int(revision) + 1:
        return job.op[3]
    if str(current) != revision:
        return "CHANGED"
    return "" if (verb == "cancel" and job.state == "running") or job.state in LEGAL[verb] else "WRONG_STATE"


@dataclass(frozen=True)
class Settings:
    """The settings of a queue after the operators' verbs so far."""

    revision: int = 0
    verb: str = ""
    limits: str = ""
    paused: bool = False


def arrange(queue: Settings, verb: str, revision: str, limits: str, own: str = "") -> tuple[Settings, str]:
    """Apply an operator's verb to a queue. Returns the settings after it, and its reply or a refusal's code.

    The verb `group` has in `limits` the settings of a group, and in `own` those that it had.
    """
    answer = {"pause": "paused", "resume": "resumed"}.get(verb, limits)
    if (
        queue.verb == verb
        and queue.revision == int(revision) + 1
        and (verb not in ("configure", "group") or (own if verb == "group" else queue.limits) == limits)
    ):
        return queue, answer
    if queue.revision != int(revision):
        return queue, "CHANGED"
    if verb == "group" and own == limits:
        return queue, answer
    kept = limits if verb == "configure" else queue.limits
    return Settings(
        queue.revision + 1, verb, kept, verb == "pause" or (queue.paused and verb != "resume")
    ), answer
