"""`workflow`: show the jobs of a workflow, and what each one waits for."""

import shlex
from argparse import Namespace

from sublet.cli.jobs.ids import typed
from sublet.cli.jobs.job_view import moment
from sublet.cli.jobs.query import same_command
from sublet.cli.output import STATE_COLOURS, Cell, document, note, paint, table, write
from sublet.cli.session import client_of, read, settings_of
from sublet.model import State
from sublet.workflows import reading
from sublet.workflows.reading import Member, StoredWorkflow

ENDS = 3
"""Most ids in the column AFTER."""
LAST = 8


def workflow(args: Namespace) -> int:
    """Print the counts of a workflow and a page of its jobs, unfinished ones first. Raises NotFound."""
    with client_of(settings_of(args)) as client:
        operations = client.store.operations
        name = operations.full_id(typed(args.id))
        found = read(client, reading.get(operations, name, args.limit, args.cursor, args.state))
    if args.json:
        document(found.model_dump(mode="json"))
        return 0
    _show(found)
    if found.members:
        write()
        table(
            ["ID", "STATE", "TASK", "QUEUE", "AFTER", "ERROR"],
            [_row(one) for one in found.members],
            ["QUEUE"],
        )
    if found.cursor:
        again = same_command(args, ["workflow", found.id], ["state"])
        note(f"more: {again} --cursor {shlex.quote(found.cursor)}")
    return 0


def _show(found: StoredWorkflow) -> None:
    write(f"{paint(found.id, 'bold')}   {_standing(found)}")
    counts = {"unfinished": found.unfinished} | {
        state.value: getattr(found, state.value) for state in (State.COMPLETED, State.DEAD, State.CANCELLED)
    }
    write(" · ".join(f"{word} {number:,}" for word, number in counts.items()))


def _standing(found: StoredWorkflow) -> str:
    if found.ended_at:
        return f"ended {moment(found.ended_at)}"
    if found.state == "open":
        return f"open since {moment(found.created_at)}: its jobs start when it is whole"
    return f"runs since {moment(found.created_at)}"


def _row(job: Member) -> list[Cell | str]:
    after = [f"…{one[-LAST:]}" if len(one) > 2 * LAST else one for one in job.after[:ENDS]]
    if job.after_count > len(after):
        after.append(f"and {job.after_count - len(after):,} more")
    error = job.last_error
    words = ": ".join(filter(None, [error.code, error.message])) if error else ""
    return [
        job.id,
        Cell(job.state.value, STATE_COLOURS[job.state]),
        job.task,
        job.queue,
        ", ".join(after),
        words,
    ]
