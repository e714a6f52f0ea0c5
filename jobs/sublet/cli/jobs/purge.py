"""`purge`: cancel the waiting jobs of a queue."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from sublet.cli.output import ask, document, note, write
from sublet.cli.parser import program
from sublet.cli.progress import ProgressBar
from sublet.cli.session import client_of, read, server_time, settings_of
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.errors import Changed, JobsError, NotFound, Refused, did_you_mean
from sublet.model import JobSummary, Queue, State
from sublet.protocol import reads
from sublet.protocol.audit_log import record
from sublet.protocol.keys import new_claim_id
from sublet.protocol.person import acting_for

BATCH = 100
CANCELLED, TAKEN, REFUSED = "cancelled", "taken", "refused"
"""Outcomes. `taken`: since the count, a worker claimed the job, or another command changed it. `refused`:
Redis refused to cancel it.
"""


def purge(args: Namespace) -> int:
    """Cancel the queued jobs of a queue, with --scheduled the scheduled ones, too, once confirmed or with
    --yes. Running jobs stay, and those submitted later. Raises NotFound for an unknown queue; JobsError if
    unconfirmed.
    """
    settings = settings_of(args)
    with client_of(settings) as client:
        counted_at = server_time(client)
        found = _find(client, args.queue)
        with ProgressBar() as bar:
            bar.step("reading the scheduled jobs")
            scheduled = _scheduled(client, found) if args.scheduled else []
    waiting = found.queued + len(scheduled)
    outcomes: list[str] = []
    if waiting:
        _confirm(args, found.queued, len(scheduled))
        with client_of(settings) as client:
            base = client.store.operations.base_of_queue(found.name)
            entry, order = (base, "purge", found.name, found.name), new_claim_id()
            client.store.follow_existing(record(*entry, f"{waiting:,} found", order))
        with ProgressBar() as bar, acting_for(""):  # one entry, not one for each job
            outcomes = asyncio.run(_purge(Client(settings), found, scheduled, counted_at, bar))
        with client_of(settings) as client:
            client.store.follow_existing(record(*entry, _words(outcomes, waiting), order))
    cancelled, taken = outcomes.count(CANCELLED), outcomes.count(TAKEN)
    if args.json:
        document({"queue": args.queue, "waiting": waiting, "cancelled": cancelled, "taken": taken})
        return 0
    others = f"; {taken:,} were claimed or changed meanwhile" if taken else ""
    write(f"{args.queue}: cancelled {cancelled:,} of {waiting:,} waiting jobs{others}")
    if left := max(0, found.jobs - waiting):
        states = "running" if args.scheduled else "scheduled (--scheduled cancels them too) or running"
        note(f"{left:,} stay, which are {states}")
    return 0


def _words(outcomes: Sequence[str], waiting: int) -> str:
    cancelled, refused = outcomes.count(CANCELLED), outcomes.count(REFUSED)
    others = {"skipped": waiting - cancelled - refused, "refused": refused}
    return "; ".join(
        [f"cancelled {cancelled:,} of {waiting:,}", *(f"{word} {n:,}" for word, n in others.items() if n > 0)]
    )


def _find(client: SyncClient, name: str) -> Queue:
    operations = client.store.operations
    operations.check_queue(name)
    found = read(client, operations.queue(name))
    known = [] if found.jobs else [queue.name for queue in read(client, operations.queues())]
    if not found.jobs and name not in known:
        near = did_you_mean(name, known) or f"; {program()} queues lists them"
        raise NotFound(f"there is no queue {name}{near}")
    return found


def _scheduled(client: SyncClient, queue: Queue) -> list[JobSummary]:
    jobs: list[JobSummary] = []
    cursor, more = None, queue.jobs > queue.queued
    while more:
        page = client.store.follow_existing(
            client.store.operations.list_jobs(State.SCHEDULED, queue=queue.name, limit=1000, cursor=cursor)
        )
        jobs += page.jobs
        cursor, more = page.cursor, page.cursor is not None
    return jobs


def _confirm(args: Namespace, queued: int, scheduled: int) -> None:
    if args.yes:
        return
    also = f" and {scheduled:,} scheduled" if scheduled else ""
    noun = "job" if queued + scheduled == 1 else "jobs"
    jobs = f"{queued:,} queued{also} {noun} of {args.queue} will be cancelled"
    if not sys.stdin.isatty():
        flag = " --scheduled" if args.scheduled else ""
        raise JobsError(
            f"{jobs}; nothing was done: there is no terminal to confirm on: {program()} purge {args.queue}{flag} --yes cancels them"
        )
    if ask(f"{jobs}. To confirm, type the queue's name ({args.queue}): ") != args.queue:
        raise JobsError(f"the typed name is not {args.queue}: nothing was cancelled")


async def _purge(
    client: Client, queue: Queue, scheduled: Sequence[JobSummary], counted_at: datetime, bar: ProgressBar
) -> list[str]:
    outcomes: list[str] = []
    total = queue.queued + len(scheduled)
    async with client:
        for i in range(0, len(scheduled), BATCH):
            outcomes += await _cancel_all(client, scheduled[i : i + BATCH], State.SCHEDULED)
            bar.count(len(outcomes), total, "jobs cancelled")
        for kind in ("queue", "grouped"):
            async for some in _cancel_queued(client, queue.name, kind, total - len(outcomes), counted_at):
                outcomes += some
                bar.count(len(outcomes), total, "jobs cancelled")
    return outcomes


async def _cancel_queued(
    client: Client, queue: str, kind: str, most: int, counted_at: datetime
) -> AsyncIterator[list[str]]:
    """Cancel up to `most` jobs submitted by `counted_at`; yield the outcomes of each batch. `kind`: jobs
    without (`queue`) or with a group (`grouped`).
    """
    base, passed, more = client.store.operations.base_of_queue(queue), 0, True
    while most > 0 and more:
        ids = await client.store.run(reads.ids(base, f"{kind}:{queue}", passed, BATCH))
        more = len(ids) == BATCH
        jobs = await client.store.run(reads.summaries(base, ids)) if ids else []
        counted = [job for job in jobs if job.submitted_at <= counted_at][:most]
        answers = await _cancel_all(client, counted, State.QUEUED)
        yield answers
        most -= len(answers)
        passed += len(ids) - len(answers) + answers.count(REFUSED)  # malformed jobs stay, and later ones


async def _cancel_all(client: Client, jobs: Sequence[JobSummary], state: State) -> list[str]:
    return await asyncio.gather(*(cancel_waiting(client, job, state) for job in jobs))


async def cancel_waiting(client: Client, job: JobSummary, state: State) -> str:
    """Cancel a job unless it has another state, or has changed since it was read; return CANCELLED, TAKEN or
    REFUSED.
    """
    if job.state is not state:
        return TAKEN
    try:
        return await client.cancel(job.id, job.revision)
    except Changed:
        return TAKEN
    except Refused:
        return REFUSED
