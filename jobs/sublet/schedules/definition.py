"""A schedule in three forms: to be stored (`NewSchedule`), as stored (`Stored`) and as shown (`Schedule`)."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from sublet.errors import Invalid, fault_words
from sublet.model import InSeconds, State, Timestamp
from sublet.options import PAYLOAD_MAX, Options
from sublet.protocol import keys
from sublet.protocol.reads import json_of, moment, pairs, shown, together
from sublet.protocol.scripts import Call
from sublet.schedules.durations import EPOCH, MS
from sublet.schedules.recurrence import Recurrence, describe, upcoming

NAME_MAX = 40
"""Most characters of a schedule's name, which is part of the ids of its jobs."""
PLAN_MAX = 4096
SHOWN = 5
RUNS = 10
_RUN = re.compile(r"[A-Za-z0-9_.:-]{1,50}:([0-9]{1,14})")

ScheduleState = Literal["active", "held", "paused", "ended", "broken"]
"""Active: it fires. Held: an occurrence waits (`Schedule.held` has the reason). Paused: by an operator. Ended: no
occurrence is left. Broken: this version cannot read its recurrence.
"""


class NewSchedule(NamedTuple):
    """A schedule to store. `rules`: the job options other than the defaults, as text: `priority=3 tries=5`."""

    name: str
    queue: str
    task: str
    rules: str
    payload: bytes
    recurrence: Recurrence
    source: str = ""

    @property
    def plan(self) -> bytes:
        """The schedule's recurrence and source as JSON, which the scripts store and do not read."""
        said: dict[str, Any] = {"when": self.recurrence.model_dump(mode="json", exclude_defaults=True)}
        said |= {"from": self.source} if self.source else {}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def new_schedule(
    name: str, when: Recurrence, task: str, payload: bytes, options: Options, source: str = ""
) -> NewSchedule:
    """Make a schedule to store. Raises Invalid for an invalid name or option, too large a payload or plan, and
    options of single jobs.
    """
    check_name(name)
    keys.check_name("task", task)
    for option in ("delay", "run_at", "key", "window", "debounce", "at_most", "on_conflict"):
        if getattr(options, option):
            raise Invalid(
                f"schedule {name}: {option} is for single jobs only: leave it out of the task and the schedule; the jobs of a schedule get their ids and times from its occurrences"
            )
    if len(payload) > PAYLOAD_MAX:
        raise Invalid(
            f"schedule {name} of task {task}: arguments of {len(payload):,} bytes (JSON): at most {PAYLOAD_MAX:,} are "
            "allowed: store the data elsewhere and pass a path or a URL (large_payloads is for single jobs)"
        )
    if options.by_arguments:
        options = options.of(json.loads(payload))
    made = NewSchedule(name, options.queue, task, options.rules(), payload, when, source)
    if len(made.plan) > PLAN_MAX:
        raise Invalid(
            f"schedule {name}: its recurrence and source have {len(made.plan):,} bytes as JSON, at most {PLAN_MAX:,}: "
            "shorten the cron line or MODULE:APP"
        )
    return made


class Stored(NamedTuple):
    """A schedule as a partition has it: the partition's key prefix (`base`), the fields of the schedule's hash, and
    when it is due (`score`: ms, very high while it is paused or has ended; None if lost).
    """

    base: str
    name: str
    fields: dict[str, bytes]
    score: bytes | float | None

    def text(self, field: str) -> str:
        """Return a field as text; empty if it is missing."""
        return self.fields.get(field, b"").decode("utf-8", "replace")

    @property
    def revision(self) -> int:
        """The schedule's version number: each change, pause and resume raises it."""
        return int(self.text("revision") or 0)

    @property
    def plan(self) -> dict[str, Any]:
        """The stored JSON: the recurrence (`when`) and the source (`from`, if any); empty unless it is an object."""
        said = json_of(self.fields.get("plan"))
        return said if isinstance(said, dict) else {}

    @property
    def source(self) -> str:
        """The app that declares the schedule (MODULE:APP); empty if it was stored by a call."""
        return str(self.plan.get("from", ""))

    @property
    def recurrence(self) -> Recurrence:
        """The recurrence. Raises Invalid if this version cannot read it."""
        return recurrence(self.plan.get("when"))

    @property
    def paused(self) -> bool:
        """Whether an operator has paused the schedule."""
        return self.text("paused") == "1"


class PastRun(BaseModel):
    """A past occurrence and its job. `state` is None if the job has been deleted."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    occurrence: Timestamp
    job: str
    state: State | None


class Schedule(BaseModel):
    """A schedule as `client.schedules`, the HTTP API and the commands show it."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    name: str
    task: str
    queue: str
    payload: Any = None
    """The arguments of its jobs by name; None in a list."""
    state: ScheduleState
    description: str
    """The recurrence in English; if this version cannot read it, the error."""
    cron: str | None = None
    every: InSeconds | None = None
    tz: str = "UTC"
    start: Timestamp | None = None
    end: Timestamp | None = None
    jitter: InSeconds = 0.0
    missed: str = "latest"
    late: InSeconds = 300.0
    most: int = 24
    overlap: str = "allow"
    priority: int = 0
    max_attempts: int = 3
    timeout: InSeconds | None = 300.0
    stall: InSeconds | None = None
    retention: InSeconds = 86_400.0
    backoff: dict[str, float] | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    cost: int = 1
    keep_payload: bool = False
    source: str = ""
    """The app that declares the schedule (MODULE:APP); empty if it was stored by a call."""
    next_at: Timestamp | None = None
    """The next occurrence, or the one that is held; None if the schedule is paused or has ended."""
    due_at: Timestamp | None = None
    """When `next_at`'s job is submitted: with jitter later; while held, the next try; None without `next_at`.
    """
    upcoming: tuple[Timestamp, ...] = ()
    """At most five occurrences after now, in the schedule's time zone, even while paused; empty in a list."""
    last_at: Timestamp | None = None
    last_job: str | None = None
    last_runs: tuple[PastRun, ...] = ()
    """The last occurrences that submitted a job, at most ten, the newest first; empty in a list."""
    fired_at: Timestamp | None = None
    """When an occurrence last submitted a job; `fired_by` is the worker or tick that did."""
    fired_by: str | None = None
    fired: int = 0
    occurrences_missed: int = 0
    """How many occurrences the misfire policy dropped; of a cron line, at most about 100 at a time."""
    occurrences_skipped: int = 0
    """How many occurrences the overlap policy (`overlap`) has dropped."""
    held: str | None = None
    """Why the occurrence is held: the job before is unfinished, the queue full, stored data invalid; None: it is
    not held.
    """
    made_at: Timestamp | None = None
    changed_at: Timestamp | None = None
    revision: int = 0
    """The schedule's version number, which grows with each change, pause and resume."""


def recurrence(said: Any) -> Recurrence:
    """Make a recurrence from a dict of its fields. Raises Invalid with the field and the reason."""
    try:
        return Recurrence.model_validate(said)
    except ValidationError as error:
        raise Invalid(reason(error)) from None


def reason(error: ValidationError) -> str:
    """Return the first error of a failed validation as text: the field and the fault."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where, words = ".".join(map(str, fault["loc"])), fault_words(fault)
    return f"{where}: {words}" if where and not words.startswith(where) else words


def check_name(name: str) -> str:
    """Return a schedule's name if it is valid. Raises Invalid."""
    return keys.check_name("schedule", name, NAME_MAX)


SUMMARY = (
    "revision", "plan", "queue", "task", "rules", "overlap", "paused", "occurrence", "held", "made_at", "changed_at", "last_id",
    "fired_at", "fired_by", "fired", "skipped", "missed",
)  # fmt: skip


def stored(base: str, names: Sequence[str]) -> Call[list[Stored]]:
    """Read those of the named schedules that this partition has, with payloads."""

    def read(reply: Sequence[Any]) -> list[Stored]:
        found = [(pairs(reply[i]) if reply[i] else {}, reply[i + 1]) for i in range(0, len(reply), 2)]
        return [
            Stored(base, name, *one) for name, one in zip(names, found, strict=True) if "revision" in one[0]
        ]

    return together(
        [c for name in names for c in (("HGETALL", keys.schedule(base, name)), _score(base, name))], read
    )


def summaries(base: str, names: Sequence[str]) -> Call[list[Stored]]:
    """Read those of the named schedules that this partition has, without payloads."""

    def read(reply: Sequence[Any]) -> list[Stored]:
        found = []
        *rows, scores = reply
        for name, values, score in zip(names, rows, scores, strict=True):
            fields = {field: value for field, value in zip(SUMMARY, values, strict=True) if value is not None}
            found += [Stored(base, name, fields, score)] if "revision" in fields else []
        return found

    commands: list[tuple[Any, ...]] = [("HMGET", keys.schedule(base, name), *SUMMARY) for name in names]
    return together([*commands, ("ZMSCORE", keys.schedules(base), *names)], read)


def _score(base: str, name: str) -> tuple[Any, ...]:
    return ("ZSCORE", keys.schedules(base), name)


def at_now(one: Stored) -> Call[tuple[int, tuple[PastRun, ...]]]:
    """Read the server's time (ms since 1970) and up to ten past runs of a schedule, the newest first."""
    found = [match for word in one.text("runs").split()[:RUNS] if (match := _RUN.fullmatch(word))]

    def read(reply: Sequence[Any]) -> tuple[int, tuple[PastRun, ...]]:
        *states, (seconds, microseconds) = reply
        now = int(seconds) * 1000 + int(microseconds) // 1000
        return now, tuple(map(_past_run, found, states))

    commands = [("HGET", keys.job(one.base, match[0]), "state") for match in found]
    return together([*commands, ("TIME",)], read)


def _past_run(found: re.Match[str], state: bytes | None) -> PastRun:
    word, at = shown(state or b""), EPOCH + int(found[1]) * MS
    return PastRun(occurrence=at, job=found[0], state=State(word) if word in set(State) else None)


def names(base: str) -> Call[list[str]]:
    """Read the names of a partition's schedules, sorted, without invalid ones."""
    return Call(
        (("ZRANGE", keys.schedules(base), 0, -1),),
        lambda reply: sorted(n for n in map(shown, reply) if keys.is_name(n)),
    )


def schedule_from(one: Stored, now_ms: int | None = None) -> Schedule:
    """Make the shown form of a stored schedule; with the time `now_ms`, also its next occurrences. An unreadable
    recurrence gives the state `broken`; other invalid fields raise one of MALFORMED.
    """
    occurrence, held, last = one.text("occurrence"), one.text("held"), one.text("last_id")
    last_occurrence = last.rpartition(":")[2]
    runs: list[datetime] = []
    try:
        plan = one.recurrence
        text = describe(plan)
        runs = upcoming(plan, now_ms, SHOWN) if now_ms is not None else []
        state: ScheduleState = (
            "paused" if one.paused else "ended" if not occurrence else "held" if held else "active"
        )
    except Invalid as error:
        plan, state = Recurrence.model_construct(), "broken"
        text = f"this version of Sublet cannot read its recurrence: {error}"
    return Schedule(
        name=one.name,
        task=one.text("task"),
        queue=one.text("queue"),
        payload=json_of(one.fields.get("payload")),
        state=state,
        description=text,
        **dict(plan),
        **_rules(one.text("rules")),
        source=one.source,
        next_at=moment(occurrence) if occurrence and not one.paused else None,
        due_at=moment(one.score) if occurrence and not one.paused else None,
        upcoming=tuple(runs),
        last_at=moment(last_occurrence) if last_occurrence.isdigit() else None,
        last_job=last or None,
        fired_at=moment(one.text("fired_at") or None),
        fired_by=one.text("fired_by") or None,
        fired=int(one.text("fired") or 0),
        occurrences_missed=int(one.text("missed") or 0),
        occurrences_skipped=int(one.text("skipped") or 0),
        held=_why(held),
        made_at=moment(one.text("made_at") or None),
        changed_at=moment(one.text("changed_at") or None),
        revision=one.revision,
    )


def _why(held: str) -> str | None:
    if not held:
        return None
    code, _, rest = held.partition(" ")
    words = {"QUEUE_FULL": f"its queue is full: {rest}", "INVALID": rest}
    return words.get(code, f"job {held} is not over")


def _rules(text: str) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name, _, value in (word.partition("=") for word in text.split()):
        if name == "priority":
            said["priority"] = int(value)
        elif name == "tries":
            said["max_attempts"] = int(value)
        elif name in ("timeout", "stall", "retention"):
            said[name] = None if value == "none" else int(value) / 1000
        elif name == "group":
            said[name] = value
        elif name == "cost":
            said[name] = int(value)
        elif name == "tags":
            said[name] = tuple(value.split(","))
        elif name == "backoff":
            first, factor, cap = value.split(":")
            said[name] = {"first": int(first) / 1000, "factor": float(factor), "cap": int(cap) / 1000}
        elif name == "keep":
            said["keep_payload"] = True
    return said


def in_ms(at: datetime) -> int:
    """Convert a datetime to whole ms since 1970, rounded."""
    return round(at.astimezone(UTC).timestamp() * 1000)
