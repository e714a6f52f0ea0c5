"""Text about jobs that wait although no worker will run them."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import TYPE_CHECKING

from sublet.cli.output import note
from sublet.cli.parser import program
from sublet.client.sync_client import SyncClient
from sublet.errors import JobsError

if TYPE_CHECKING:
    from sublet.operations.coverage import Gaps

MOST = 10


def queue_lines(found: Gaps) -> list[str]:
    """Return a sentence per queue without a worker, for `MOST` of them; then one with the number of the others."""
    lines = [f"{_jobs(count)} in {queue}, which no worker serves" for queue, count in found.queues.items()]
    more = len(lines) - MOST
    return lines if more <= 0 else [*lines[:MOST], f"and {more:,} more queues that no worker serves"]


def task_lines(found: Gaps) -> list[str]:
    """Return a sentence per task whose waiting jobs some worker of its queue refused, for the first `MOST`."""
    return [
        f"{_jobs(count, 'needs', 'need')} task {task}, which a worker of the queue does not have, or whose arguments it refuses"
        for task, count in list(found.tasks.items())[:MOST]
    ]


def hook_lines(found: Gaps) -> list[str]:
    """Return a sentence per `on_dead` that no worker runs, for the first `MOST`."""
    reasons = {"queue": "no worker serves its queue", "task": "no worker has this task"}
    return [
        f"dead jobs are reported by {setting}, but {reasons[reason]}"
        for setting, reason in list(found.hooks.items())[:MOST]
    ]


def start_worker(queue: str) -> str:
    """Return the command that starts a worker for a queue."""
    return f"{program()} work MODULE:APP --queues {shlex.quote(queue)}"


def note_unserved(client: SyncClient, queue: str) -> None:
    """If no registered worker or pool serves this queue, warn on stderr, if that is a terminal. Errors of
    Redis are ignored.
    """
    if not sys.stderr.isatty():
        return
    from sublet.operations.coverage import unserved

    with contextlib.suppress(JobsError):
        if client.store.follow_existing(unserved(client.store.operations.bases, {queue: 1})):
            note(f"no registered worker serves queue {queue}: {start_worker(queue)} starts one")


def _jobs(count: int, one: str = "waits", many: str = "wait") -> str:
    return f"1 job {one}" if count == 1 else f"{count:,} jobs {many}"
