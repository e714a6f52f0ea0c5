"""The life of a job as a table and twenty lines: which moves are legal, and what a repeated request is answered.

The simulation tells every move that Redis made to `follow`, in order. If it has nothing to say at the end,
the job's history is explained.
"""

from dataclasses import dataclass

LEGAL = {
    "submit": {None: {"queued", "scheduled"}},
    "fire": {None: {"queued"}},
    "due": {"scheduled": {"queued"}},
    "promote": {"scheduled": {"queued"}},
    "claim": {"queued": {"running"}},
    "complete": {"running": {"completed"}},
    "fail": {"running": {"scheduled", "dead", "cancelled"}},
    "release": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "expire": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "reconcile": {"running": {"queued", "scheduled", "dead", "cancelled"}},
    "cancel": {"queued": {"cancelled"}, "scheduled": {"cancelled"}},
    "retry": {"dead": {"queued"}, "cancelled": {"queued"}},
    "forget": {"completed": {None}, "dead": {None}, "cancelled": {None}},
}
"""What moves a job → from where → to where."""
BY_LEASE = ("complete", "fail", "release")
LEASE_OVER = (*BY_LEASE, "expire", "reconcile")


@dataclass(frozen=True)
class Move:
    """One move of one job: what caused it, where it led, and the token of the lease it speaks of (or was given)."""

    cause: str
    to: str | None
    token: str = ""
    last: bool = False
    """The attempt's holder said that there shall be no other."""


@dataclass
class Life:
    """What is known of a job from the moves it made."""

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
    """A cancel was asked for while it runs."""
    ended: tuple[str, str] = ("", "")
    """The verb that ended the last attempt, and what that was answered."""
    result: str = ""
    ops: int = 0
    op: tuple[str, str, str] = ("", "", "")
    """The last operator's verb that was accepted, the revision it named, and its answer."""
    worker: str = ""
    """Who was given the last lease."""
    checkpoint: str = ""


def follow(job: Life, move: Move) -> str:
    """Let a job make a move. Answers why the move is against the rules; nothing if it is not."""
    if move.to not in LEGAL[move.cause].get(job.state, ()):
        return f"{move.cause} leads nowhere from {job.state} to {move.to}"
    if move.cause in BY_LEASE and move.token != job.token:
        return f"{move.cause} with a token that is not the lease's"
    if move.cause == "claim" and move.token in job.tokens:
        return "a token was given twice"
    if move.cause in ("submit", "fire", "retry"):
        job.left, job.token, job.ended = job.tries, "", ("", "")
    elif move.cause == "claim":
        job.attempt, job.left, job.token = job.attempt + 1, job.left - 1, move.token
        job.tokens += (move.token,)
    elif move.cause in LEASE_OVER and move.to != "completed":
        job.left = 0 if move.last else job.left + (move.cause == "release")
        ends = "cancelled" if job.flagged else "dead" if job.left <= 0 else "queued scheduled"
        if move.to not in ends.split():
            return f"{move.cause} led to {move.to}, with {job.left} tries left{' and a cancel asked for' * job.flagged}"
    if move.cause in LEASE_OVER:
        job.flagged, job.ended = False, (move.cause, move.to or "")
    if move.to == "completed":
        job.checkpoint = ""
    job.state = move.to
    return ""


def answer_to_lease(job: Life | None, verb: str, token: str) -> str:
    """What a lease's verb must be answered at once; nothing if the lease is live and the verb shall have its effect."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    if token != job.token:
        return "LEASE_LOST"
    if job.state == "running":
        return ""
    return job.ended[1] if job.ended[0] == verb else "LEASE_LOST"


def answer_to_reconcile(job: Life | None, worker: str, attempt: str) -> str:
    """What whoever takes a worker for gone must be answered at once; nothing if the lease is to end."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    if str(job.attempt) != attempt:
        return "LEASE_LOST"
    if job.state == "running":
        return "" if job.worker == worker else "LEASE_LOST"
    return job.ended[1] if job.ended[0] == "reconcile" else "LEASE_LOST"


def answer_to_order(job: Life | None, verb: str, revision: str) -> str:
    """What an operator's verb must be answered at once: a refusal's code or its first answer; nothing if it shall be done."""
    if job is None or job.state is None:
        return "NOT_FOUND"
    current = job.attempt + job.ops
    if job.op[:2] == (verb, revision) and current == int(revision) + 1:
        return job.op[2]
    if str(current) != revision:
        return "CHANGED"
    return "" if (verb == "cancel" and job.state == "running") or job.state in LEGAL[verb] else "WRONG_STATE"


@dataclass(frozen=True)
class Settings:
    """What is known of a queue from the operator's verbs on it."""

    revision: int = 0
    verb: str = ""
    limits: str = ""
    paused: bool = False


def arrange(queue: Settings, verb: str, revision: str, limits: str) -> tuple[Settings, str]:
    """Carry an operator's verb on a queue out: the settings after it, and its answer (or a refusal's code)."""
    answer = {"pause": "paused", "resume": "resumed"}.get(verb, limits)
    if (
        queue.verb == verb
        and queue.revision == int(revision) + 1
        and (verb != "configure" or queue.limits == limits)
    ):
        return queue, answer
    if queue.revision != int(revision):
        return queue, "CHANGED"
    kept = limits if verb == "configure" else queue.limits
    return Settings(
        queue.revision + 1, verb, kept, verb == "pause" or (queue.paused and verb != "resume")
    ), answer
