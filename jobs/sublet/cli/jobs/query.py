"""`get`, `list`, `queues` and `stats`: read, without creating a missing namespace."""

import shlex
from argparse import Namespace
from collections.abc import Collection, Container, Sequence
from datetime import datetime
from typing import Any

from sublet.cli.jobs.ids import IdFinder, typed
from sublet.cli.jobs.job_view import show_job, tries
from sublet.cli.jobs.unserved import queue_lines, task_lines
from sublet.cli.output import (
    STATE_COLOURS,
    Cell,
    document,
    duration,
    limits_of,
    note,
    paint,
    table,
    write,
)
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, replace_ages, server_time, settings_of
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, NotFound, did_you_mean
from sublet.model import Job, JobSummary, Page, Queue, State, Stats, WorkerInfo
from sublet.operations.coverage import gaps
from sublet.operations.job_list import Filter, take
from sublet.protocol.keys import fits, is_pattern
from sublet.protocol.plan import Plan

FOREIGN = frozenset({"payload", "progress", "checkpoint", "result", "about"})
DEFAULT_QUEUE = "default"
FILTERS = ("task", "tag", "group", "workflow", "code", "worker", "since", "until")
PAGES = 100
"""Pages read at most until one has a job."""
UNREAD = {"payload"}
"""Fields that `list --json` omits: lists do not read large payloads."""


def get(args: Namespace) -> int:
    """Print one job with its attempts, by its id or a unique end of it. Raises NotFound, Invalid."""
    with client_of(settings_of(args)) as client:
        job = find_job(client, typed(args.id))
        if args.json:
            document(as_json(job))
        else:
            show_job(job, server_time(client), args.detail)
    return 0


def as_json(shown: JobSummary | WorkerInfo, without: Collection[str] = ()) -> dict[str, Any]:
    """Return a model's fields for JSON output, but those in `without`."""
    rest = shown.model_dump(mode="json", exclude={*FOREIGN, *without})
    return {
        name: rest.get(name, getattr(shown, name)) for name in type(shown).model_fields if name not in without
    }


def find_job(client: SyncClient, job_id: str) -> Job:
    """Return a job by its id or a unique end. Raises NotFound; Invalid if several ids end so, or may."""
    try:
        return read(client, client.store.operations.get(job_id))
    except NotFound as error:
        found = IdFinder(client).find(job_id, error)
    return read(client, client.store.operations.get(found))


def list_jobs(args: Namespace) -> int:
    """Print the next page that has a job, among the next 100 pages, and the command for the page after."""
    with client_of(settings_of(args)) as client:
        replace_ages(args, client)
        page = read(client, _page(client, args), args)
        if args.json:
            document({"jobs": [as_json(job, UNREAD) for job in page.jobs], "cursor": page.cursor})
            return 0
        if page.jobs:
            _show_list(page.jobs, server_time(client))
        else:
            none = "no such job among those read so far" if page.cursor else "no jobs"
            write(f"{none}{_missing_queue(client, args.queue)}{_unheld_key(args)}")
    if page.cursor:
        note(
            f"more: {same_command(args, ['list'], ('state', 'queue', *FILTERS))} --cursor {shlex.quote(page.cursor)}"
        )
    return 0


def _page(client: SyncClient, args: Namespace) -> Plan[Page]:
    operations, queue = client.store.operations, args.queue
    filters = {name: getattr(args, name) for name in FILTERS}
    if args.key is not None:
        if args.cursor:
            raise Invalid("--key and --cursor: at most one job holds a key: leave --cursor out")
        wanted = Filter(**filters)
        wanted.check()
        found = yield from operations.keyed(queue or DEFAULT_QUEUE, args.key)
        base = operations.base_of_queue(queue or DEFAULT_QUEUE)
        jobs = (yield from take(base, [job.id for job in found], wanted)) if found else {}
        return Page(
            jobs=tuple(job for job in jobs.values() if not args.state or job.state in args.state), cursor=None
        )
    if queue and is_pattern(queue):
        filters["within"] = QueuePattern(queue)
    else:
        filters["queue"] = queue
    cursor, page = args.cursor, Page(jobs=())
    for _ in range(PAGES):
        page = yield from operations.list_jobs(args.state, limit=args.limit, cursor=cursor, **filters)
        cursor = page.cursor
        if page.jobs or not cursor:
            break
    return page


class QueuePattern(Container[str]):
    """The names of queues that a pattern matches."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __contains__(self, queue: object) -> bool:
        return isinstance(queue, str) and fits(queue, self._pattern)


def _unheld_key(args: Namespace) -> str:
    if args.key is None:
        return ""
    other = "" if args.queue else "; a key belongs to a queue: --queue names another"
    return f": no such job holds this key in queue {args.queue or DEFAULT_QUEUE}{other}"


def _show_list(jobs: Sequence[JobSummary], now: datetime) -> None:
    heads = ["ID", "STATE", "TASK", "QUEUE", "TRIES", "WHEN"]
    rows = [_row(job, now) for job in jobs]
    if any(job.last_error or job.result_bytes for job in jobs):
        heads.append("OUTCOME")
        rows = [[*row, _outcome(job)] for row, job in zip(rows, jobs, strict=True)]
    table(heads, rows, ["TRIES", "QUEUE"])


def _outcome(job: JobSummary) -> str:
    if job.result_bytes:
        return f"result of {job.result_bytes:,} byte{'s' * (job.result_bytes != 1)}"
    error = job.last_error
    return ": ".join(filter(None, [error.code, error.message])) if error else ""


def _row(job: JobSummary, now: datetime) -> list[Cell | str]:
    state = Cell(job.state.value, STATE_COLOURS[job.state])
    return [job.id, state, job.task, job.queue, tries(job), _relevant_time(job, now)]


def _relevant_time(job: JobSummary, now: datetime) -> str:
    if job.state is State.SCHEDULED and job.due_at:
        left = (job.due_at - now).total_seconds()
        return f"due in {duration(left)}" if left >= 0 else f"overdue by {duration(-left)}"
    if job.state is State.RUNNING:
        heard = job.heartbeat_at or now
        return f"heartbeat {duration((now - heard).total_seconds())} ago, {job.worker}"
    return f"{duration((now - (job.finished_at or job.submitted_at)).total_seconds())} ago"


def _missing_queue(client: SyncClient, queue: str | None) -> str:
    known = [each.name for each in read(client, client.store.operations.queues())] if queue else []
    if not queue or any(fits(name, queue) for name in known):
        return ""
    return f": there is no queue {queue}{did_you_mean(queue, known)}"


def same_command(args: Namespace, command: Sequence[str], flags: Sequence[str]) -> str:
    """Return `command` with those of `flags` that were given, --redis-url, --namespace and --limit. A URL
    with user, password or options becomes `"$SUBLET_REDIS_URL"`. The caller adds --cursor.
    """
    words = [program(), *command]
    for flag in ("redis-url", "namespace", *flags):
        value = getattr(args, flag.replace("-", "_"))
        if flag == "redis-url" and value and Settings(redis_url=value).shown_url != value:
            words += ["--redis-url", '"$SUBLET_REDIS_URL"']
        elif value:
            words += [f"--{flag}", shlex.quote(_as_typed(value))]
    return " ".join([*words, *(["--limit", str(args.limit)] if args.limit != 20 else [])])


def _as_typed(value: str | list[str] | datetime) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return value.isoformat() if isinstance(value, datetime) else value


def queues(args: Namespace) -> int:
    """Print all queues: their waiting and unfinished jobs, bytes, limits and pauses."""
    with client_of(settings_of(args)) as client:
        found, now = read(client, client.store.operations.queues(), args), server_time(client)
    if args.json:
        document([queue.model_dump(mode="json") for queue in found])
    elif found:
        table(
            ["QUEUE", "WAITING", "IN ALL", "BYTES", "LIMITS", "PAUSED"],
            [_queue_row(queue, now) for queue in found],
        )
    else:
        write("no queues: no job was ever submitted here")
    return 0


def _queue_row(queue: Queue, now: datetime) -> list[Cell | str]:
    paused = f"for {duration((now - queue.paused_at).total_seconds())}" if queue.paused_at else ""
    numbers = [f"{number:,}" for number in (queue.queued, queue.jobs, queue.bytes)]
    return [queue.name, *numbers, limits_of(queue), Cell(paused, "yellow")]


def stats(args: Namespace) -> int:
    """Print the jobs per state, totals and last maintenance; then the waiting jobs that no worker serves, or
    that a worker released as an unknown task.
    """
    with client_of(settings_of(args)) as client:
        found = read(client, client.store.operations.stats(), args)
        missing = read(client, gaps(client.store.operations.bases))
        now = server_time(client)
    sums = total(found)
    if args.json:
        document(sums.model_dump(mode="json") | {"unserved": missing.queues, "unknown_tasks": missing.tasks})
        return 0
    states: list[list[Cell | str]] = [
        [Cell(state.value, STATE_COLOURS[state]), f"{sums.states.get(state, 0):,}"] for state in State
    ]
    table(["NOW", "JOBS"], states)
    write()
    table(["IN TOTAL", "TIMES"], [[name, f"{count:,}"] for name, count in sums.totals.items()])
    if sums.maintenance_at:
        write()
        write(
            f"last maintenance {duration((now - sums.maintenance_at).total_seconds())} ago, by {sums.maintenance_by}"
        )
    for line in (*queue_lines(missing), *task_lines(missing)):
        write(paint(line, "yellow"))
    return 0


def total(partitions: list[Stats]) -> Stats:
    """Return the sums over all partitions, with the time of the latest maintenance."""
    latest = max(partitions, key=lambda each: each.maintenance_at.timestamp() if each.maintenance_at else 0.0)
    return Stats(
        states={state: sum(each.states.get(state, 0) for each in partitions) for state in State},
        totals={name: sum(each.totals[name] for each in partitions) for name in partitions[0].totals},
        maintenance_at=latest.maintenance_at,
        maintenance_by=latest.maintenance_by,
    )
