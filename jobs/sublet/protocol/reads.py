"""Calls that read the stored structures, and the parsing of replies."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sublet.errors import NotFound, Unfit
from sublet.model import FINISHED, Attempt, Job, JobSummary, KeptStep, LastError, Queue, State, Stats
from sublet.protocol import keys
from sublet.protocol.scripts import Call

T = TypeVar("T")

DIGITS = 14
LAST = 10**DIGITS - 1
PARTITIONS = re.compile(rb"[1-9][0-9]{0,3}")
_NUMBER = re.compile(rb"-?[0-9]{1,14}")
_LIMIT = re.compile(rb" ([a-z_]+)=([0-9]{1,14})(?= |\Z)")
_ON_DEAD = re.compile(rb" on_dead=([^ ]+)")
_REVISION = re.compile(rb"([0-9]{1,14}) [^ ]")
SECONDS = {"per", "group_per"}
"""Limits given in seconds and stored in ms."""
MALFORMED = (ValueError, KeyError, OverflowError)
"""Errors of parsing stored fields that are missing, or that no Sublet script would write."""

TOTALS = (
    "submitted",
    "completed",
    "failed",
    "dead",
    "cancelled",
    "released",
    "unknown_task",
    "expired",
    "lease_lost",
    "queue_full",
    "forgotten",
    "forgotten_results",
    "missing",
)


def moment(milliseconds: bytes | str | float | None) -> datetime | None:
    """Convert ms since 1970 to a datetime in UTC; None stays None. Raises ValueError if out of range."""
    if milliseconds is None:
        return None
    at = float(milliseconds)
    if not 0 <= at <= LAST:
        raise ValueError(f"{at:g} is not a valid moment: use 0 to {LAST} ms")
    return datetime.fromtimestamp(at / 1000, UTC)


def together(commands: Sequence[tuple[Any, ...]], read: Callable[[Sequence[Any]], T]) -> Call[T]:
    """Make one call of several read commands. `read` gets the list of their replies."""
    return Call(tuple(commands), read if len(commands) > 1 else lambda reply: read([reply]))


def get(base: str, job_id: str) -> Call[Job]:
    """Read one job with its attempts. Raises NotFound for an unknown id, Unfit for malformed fields."""

    def read(reply: Sequence[Any]) -> Job:
        fields, lease_end, due = reply
        if not fields:
            raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
        try:
            return job_from(job_id, pairs(fields), lease_end, due)
        except MALFORMED as error:
            raise Unfit(
                f"a field of job {job_id} is malformed, so another program wrote to it ({type(error).__name__}): "
                f"look at it with HGETALL {keys.job(base, job_id)}, and correct or delete that field"
            ) from None

    hash_, running, scheduled = (
        keys.job(base, job_id),
        keys.structure(base, "running"),
        keys.structure(base, "scheduled"),
    )
    commands = (("HGETALL", hash_), ("ZSCORE", running, job_id), ("ZSCORE", scheduled, job_id))
    return Call(commands, read, raw=True)


def digest(base: str, job_id: str) -> Call[str | None]:
    """Read the hash of the HTTP request that submitted a job; None without one."""

    def read(reply: bytes | None) -> str | None:
        words = shown((reply or b"").partition(b"\n")[0]).split(" ")[3:]
        return next((word.removeprefix("digest=") for word in words if word.startswith("digest=")), None)

    return Call((("HGET", keys.job(base, job_id), "spec"),), read)


def pairs(reply: Any) -> dict[str, bytes]:
    """Return a reply of HGETALL, which may be a flat list, as a dict."""
    if isinstance(reply, dict):
        return {shown(name): value for name, value in reply.items()}
    return {shown(reply[i]): reply[i + 1] for i in range(0, len(reply), 2)}


def shown(raw: bytes) -> str:
    """Decode stored text; invalid UTF-8 becomes U+FFFD."""
    return raw.decode("utf-8", "replace")


def number(raw: bytes | None) -> int:
    """Parse a stored number of up to 14 digits, maybe negative; 0 if missing or malformed."""
    return int(raw) if raw and _NUMBER.fullmatch(raw) else 0


def job_from(job_id: str, fields: dict[str, bytes], lease_end: Any = None, due: Any = None) -> Job:
    """Parse a job from the fields of its hash, the end of its lease and its due time (ms).
    Raises one of MALFORMED.
    """
    result = fields.get("result")
    common = _common(job_id, fields, lease_end, due, len(result) if result else 0)
    return Job(
        **common,
        steps=tuple(sorted(_steps(fields), key=lambda step: step.kept_at)),
        checkpoint=json_of(fields.get("checkpoint")),
        log=_log(fields, common["attempt"]) if fields["state"] == b"running" else (),
        attempts=tuple(_story(fields)),
        result=json_of(result),
    )


def _awaits(fields: dict[str, bytes]) -> str | None:
    if "awaits" in fields:
        return shown(fields["awaits"]).rpartition(" ")[0]
    if "cause" in fields:
        return f"retry {shown(fields['cause'])}"
    return f"upstream {int(fields['needs']) - int(fields.get('broken', 0))}" if "needs" in fields else None


def _steps(fields: dict[str, bytes]) -> Iterator[KeptStep]:
    for name in (name for name in fields if name.startswith("step:")):
        head, _, value = fields[name].partition(b"\n")
        at, _, kind = head.decode().partition(" ")
        kept_at = datetime.fromtimestamp(int(at) / 1000, UTC)
        yield KeptStep(name=name[5:], kind=kind, kept_at=kept_at, bytes=len(value))


def _common(
    job_id: str, fields: dict[str, bytes], lease_end: Any, due: Any, result_bytes: int
) -> dict[str, Any]:
    header, _, inline = fields["spec"].partition(b"\n")
    queue, task, submitted_at, *words = header.decode().split(" ")
    rules = dict(word.split("=", 1) for word in words)
    replaced, _, replaced_at = rules.get("replaced", "0").partition(":")
    attempt, tries = int(fields.get("attempt", 0)), int(rules.get("tries", 3))
    state = State(fields["state"].decode())
    left = max(0, tries - attempt) if state is State.COMPLETED else tries
    return {
        "id": job_id,
        "task": task,
        "queue": queue,
        "state": state,
        "priority": int(rules.get("priority", 0)),
        **{name: rules.get(name) for name in ("key", "group", "trace", "schedule", "workflow", "after")},
        "tags": tuple(rules["tags"].split(",")) if "tags" in rules else (),
        "cost": int(rules.get("cost", 1)),
        "payload": json_of(inline or fields.get("payload")),
        "submitted_at": datetime.fromtimestamp(int(submitted_at) / 1000, UTC),
        "due_at": None if due is not None and float(due) >= LAST else moment(due),
        "finished_at": moment(fields.get("finished_at")),
        "attempt": attempt,
        "max_attempts": tries,
        "tries_left": int(fields.get("tries_left", left)),
        "worker": fields["worker"].decode() if "worker" in fields else None,
        "claimed_at": moment(fields.get("claimed_at")),
        "heartbeat_at": moment(fields.get("heartbeat_at") or fields.get("claimed_at")),
        "lease_expires_at": moment(lease_end),
        "progress": json_of(fields.get("progress")),
        "replaced": int(replaced),
        "replaced_at": moment(replaced_at or None),
        "awaits": _awaits(fields) if state is State.SCHEDULED else None,
        "run_at": moment(rules.get("at")),
        "cancel_requested_at": moment(fields.get("cancel_requested_at")),
        "last_error": _last_error(fields.get("error")),
        "result_bytes": result_bytes or None,
        "revision": attempt + int(fields.get("ops", 0)),
    }


def _last_error(raw: bytes | None) -> LastError | None:
    code, _, message = shown(raw or b"").partition(" ")
    return LastError(code=code, message=message.removeprefix(f"{code}: ")) if code else None


def json_of(raw: bytes | None) -> Any:
    """Parse JSON; return the text itself if it is invalid, None if it is empty."""
    if not raw:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")


def _story(fields: dict[str, bytes]) -> Iterator[Attempt]:
    for number in sorted(int(name[8:]) for name in fields if name.startswith("attempt:")):
        yield attempt_from(
            number, fields[f"attempt:{number}"].decode("utf-8", "replace"), _log(fields, number)
        )


def _log(fields: dict[str, bytes], number: int) -> tuple[str, ...]:
    return tuple(fields.get(f"log:{number}", b"").decode("utf-8", "replace").splitlines())


def attempt_from(number: int, text: str, log: tuple[str, ...] = ()) -> Attempt:
    """Parse an ended attempt from its stored text."""
    line, _, rest = text.partition("\n")
    claimed_at, worker, ended_at, code = line.split(" ", 3)
    message, _, detail = rest.partition("\n")
    return Attempt(
        number=number,
        worker=worker,
        claimed_at=datetime.fromtimestamp(int(claimed_at) / 1000, UTC),
        ended_at=datetime.fromtimestamp(int(ended_at) / 1000, UTC),
        code=code,
        message=message,
        detail=detail,
        log=log,
    )


SUMMARY = (
    "state", "spec", "attempt", "ops", "tries_left", "worker", "claimed_at", "heartbeat_at", "finished_at", "progress",
    "cancel_requested_at", "error", "awaits", "cause", "needs", "broken",
)  # fmt: skip


def summaries(base: str, job_ids: Sequence[str], *, results: bool = False) -> Call[list[JobSummary]]:
    """Read several jobs for a list, without missing and malformed ones; with `results`, also result sizes."""
    hashes, number_of = [keys.job(base, job_id) for job_id in job_ids], len(job_ids)
    commands: list[tuple[Any, ...]] = [("HMGET", hash_, *SUMMARY) for hash_ in hashes]
    commands += [("ZMSCORE", keys.structure(base, name), *job_ids) for name in ("running", "scheduled")]
    commands += [("HSTRLEN", hash_, "result") for hash_ in hashes] if results else []

    def read(reply: Sequence[Any]) -> list[JobSummary]:
        found, rows = [], reply[:number_of]
        (leases, dues), sizes = reply[number_of : number_of + 2], reply[number_of + 2 :] or [0] * number_of
        for job_id, values, lease_end, due, size in zip(job_ids, rows, leases, dues, sizes, strict=True):
            fields = {name: value for name, value in zip(SUMMARY, values, strict=True) if value is not None}
            with contextlib.suppress(*MALFORMED):  # `get` reports it; the others must be shown
                found.append(JobSummary(**_common(job_id, fields, lease_end, due, size)))
        return found

    return together(commands, read)


def attempt_workers(base: str, attempts: Sequence[tuple[str, int]]) -> Call[dict[str, str]]:
    """Read which worker ran each of these ended attempts (job id, number); missing ones are left out."""

    def read(reply: Sequence[Any]) -> dict[str, str]:
        stories = [
            (job_id, shown(text or b"").split(" ", 2))
            for (job_id, _), text in zip(attempts, reply, strict=True)
        ]
        return {job_id: words[1] for job_id, words in stories if len(words) == 3}

    return together([("HGET", keys.job(base, job_id), f"attempt:{n}") for job_id, n in attempts], read)


def ids(base: str, structure: str, start: int, count: int, *, is_rising: bool = False) -> Call[list[str]]:
    """Read up to `count` job ids of a structure (`running`, `queue:<name>`, …) from index `start` on;
    finished jobs in reverse, unless `is_rising`.
    """
    order = () if is_rising or structure not in FINISHED else ("REV",)
    command = ("ZRANGE", keys.structure(base, structure), start, start + count - 1, *order)
    return Call((command,), lambda reply: [shown(i) for i in reply])


def queues_of(base: str, job_ids: Sequence[str]) -> Call[dict[str, str]]:
    """Read the queue of each of these jobs; missing jobs are left out."""

    def read(reply: Sequence[Any]) -> dict[str, str]:
        found = zip(job_ids, reply, strict=True)
        return {job_id: shown(spec.partition(b" ")[0]) for job_id, spec in found if spec}

    return together([("HGET", keys.job(base, job_id), "spec") for job_id in job_ids], read)


def last_ids(base: str, structures: Sequence[str], count: int) -> Call[list[list[str]]]:
    """Read the last `count` ids of each structure (a state, or `queue:<name>`), the last one first."""
    commands = [("ZRANGE", keys.structure(base, name), 0, count - 1, "REV") for name in structures]
    return together(commands, lambda reply: [[shown(i) for i in part] for part in reply])


def describe(base: str, names: Sequence[str]) -> Call[list[Queue]]:
    """Read the number of jobs, limits and settings of queues, also of unknown ones. `*`: the partition's."""

    def read(reply: Sequence[Any]) -> list[Queue]:
        settings, backlog, *lengths = reply
        sizes = [
            (max(0, number(backlog[i])), max(0, number(backlog[i + 1]))) for i in range(0, len(backlog), 2)
        ]
        return [
            Queue(name=name, queued=sum(map(int, pair)), jobs=size[0], bytes=size[1], **_settings(text))
            for name, text, size, *pair in zip(
                names, settings, sizes, lengths[::2], lengths[1::2], strict=True
            )
        ]

    commands: list[tuple[Any, ...]] = [("HMGET", keys.queues(base), *names)]
    commands.append(
        ("HMGET", keys.backlog(base), *(f"{name} {what}" for name in names for what in ("jobs", "bytes")))
    )
    return together([*commands, *(("ZCARD", key) for name in names for key in keys.queued(base, name))], read)


def _settings(stored: bytes | None) -> dict[str, Any]:
    text = stored or b""
    revision, values = (
        _REVISION.match(text),
        dict[str, int | float]((name.decode(), int(value)) for name, value in _LIMIT.findall(text)),
    )
    paused_at = moment(values.pop("paused", None))
    values.pop("flow", None)
    for name in SECONDS & values.keys():
        values[name] = values[name] // 1000 if values[name] % 1000 == 0 else values[name] / 1000
    on_dead = _ON_DEAD.search(text)
    return {
        "revision": int(revision[1]) if revision else 0,
        "paused_at": paused_at,
        "limits": values,
        "on_dead": shown(on_dead[1]) if on_dead else None,
        "exists": stored is not None,
    }


def stats(base: str, queues: Mapping[str, bytes | None]) -> Call[Stats]:
    """Read a partition's totals, maintenance, and jobs by state (queued: of `queues`, name → settings)."""

    def read(reply: Sequence[Any]) -> Stats:
        fields, *sizes = reply
        base_fields = pairs(fields) if fields else {}
        states = {State(name): size for name, size in keys.sizes(sizes[: keys.SIZES]).items()}
        states[State.QUEUED] = sum(map(int, sizes[keys.SIZES :]))
        at, _, by = base_fields.get("maintenance", b"").partition(b" ")
        totals = {name: number(base_fields.get(name)) for name in TOTALS}
        return Stats(
            states=states,
            totals=totals,
            maintenance_at=moment(max(0, number(at)) or None),
            maintenance_by=shown(by) or None,
        )

    commands: list[tuple[Any, ...]] = [("HGETALL", base)]
    commands += keys.size_commands(base)
    commands += [("ZCARD", key) for name, text in queues.items() for key in keys.queued_by(base, name, text)]
    return together(commands, read)


def events(base: str, after: str, count: int) -> Call[list[tuple[str, dict[str, str]]]]:
    """Read up to `count` state changes after the stream's id `after` (`0`: from the oldest): id and fields."""

    def read(reply: Sequence[Any]) -> list[tuple[str, dict[str, str]]]:
        return [
            (entry[0].decode(), {k: shown(v) for k, v in pairs(entry[1]).items()}) for entry in reply or ()
        ]

    return Call((("XRANGE", keys.events(base), f"({after}", "+", "COUNT", count),), read)


def overdue(base: str, until_ms: int) -> Call[tuple[int, datetime | None]]:
    """Count leases, jobs and occurrences due by `until_ms`, and read the earliest moment (None: none)."""

    def read(reply: Sequence[Any]) -> tuple[int, datetime | None]:
        count = sum(map(int, reply[::2]))
        return count, moment(
            max(0.0, min(float(first[1]) for first in reply[1::2] if first))
        ) if count else None

    commands: list[tuple[Any, ...]] = []
    for key in (keys.structure(base, "running"), keys.structure(base, "scheduled"), keys.schedules(base)):
        commands += [("ZCOUNT", key, "-inf", until_ms), ("ZRANGE", key, 0, 0, "WITHSCORES")]
    return together(commands, read)


def layout(base: str) -> Call[str]:
    """Read the version of a partition's data; empty if the partition does not exist."""
    return Call((("HGET", base, "layout"),), lambda reply: shown(reply) if reply else "")


def uncounted(base: str) -> Call[int]:
    """Read how many unfinished jobs were found missing since the backlogs were last counted anew."""
    return Call(
        (("HMGET", base, "missing", "recounted"),), lambda reply: max(0, number(reply[0]) - number(reply[1]))
    )


def partitions(base: str) -> Call[int]:
    """Read the partition count in a partition's metadata; 0 if missing or invalid."""
    return Call(
        (("HGET", base, "partitions"),),
        lambda reply: int(reply) if reply and PARTITIONS.fullmatch(reply) else 0,
    )
