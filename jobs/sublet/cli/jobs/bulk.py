"""`retry`, `cancel`, `promote` and `erase` for all jobs of a filter."""

import sys
from argparse import Namespace
from collections import Counter
from datetime import datetime

from sublet.cli.output import Cell, ask, document, table, write
from sublet.cli.parser import program
from sublet.cli.progress import ProgressBar
from sublet.cli.session import client_of, replace_ages, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, JobsError
from sublet.model import State
from sublet.operations.orders.bulk import OrderOutcome, Selection

FILTERS = ("state", "queue", "task", "tag", "workflow", "code", "worker", "since", "until", "message")
DONE = {"retry": "queued again", "cancel": "cancelled", "promote": "queued", "erase": "erased for good"}
SHOWN = 20


def given(args: Namespace) -> bool:
    """Whether a filter selects the jobs; else ids do. Raises Invalid for both or neither, and for
    --dry-run or --yes with ids.
    """
    filters = any(getattr(args, name) is not None for name in FILTERS)
    if filters == bool(args.ids):
        raise Invalid(f"give ids, or a filter ({', '.join(f'--{name}' for name in FILTERS)}): one of them")
    if args.ids and (args.dry_run or args.yes):
        raise Invalid("--dry-run and --yes go with a filter, not with ids: leave them out")
    return filters


def order(verb: str, args: Namespace) -> int:
    """Count the jobs that match the filter (in `Selection.states`) and, without --dry-run, change them page
    by page, once confirmed or with --yes. Return 1 if one was refused. Raises JobsError if unconfirmed.
    """
    with client_of(settings_of(args)) as client:
        replace_ages(args, client)
        wanted = Selection(**{name: getattr(args, name) for name in FILTERS})
        wanted = wanted._replace(state=State(args.state) if args.state else None)
        if args.workflow is not None:
            wanted = wanted._replace(workflow=client.store.operations.full_id(args.workflow))
        client.store.follow_existing(client.store.operations.exists())
        with ProgressBar() as bar:
            bar.step("counting the jobs")
            found, counted_at = _count(client, verb, wanted)
        if args.dry_run or not found:
            document({"found": found}) if args.json else write(f"{found:,} jobs fit")
            return 0
        _confirm(verb, args, found)
        outcomes = _give(client, verb, wanted, found, counted_at)
    return _report(args, found, outcomes)


def _count(client: SyncClient, verb: str, wanted: Selection) -> tuple[int, datetime]:
    page = client.store.order_page(verb, wanted, dry_run=True)
    found = page.found
    while page.cursor:
        page = client.store.order_page(verb, wanted, dry_run=True, cursor=page.cursor)
        found += page.found
    return found, page.counted_at


def _confirm(verb: str, args: Namespace, found: int) -> None:
    if args.yes:
        return
    jobs = f"{found:,} {'job' if found == 1 else 'jobs'} will be {DONE[verb]}"
    if not sys.stdin.isatty():
        raise JobsError(
            f"{jobs}; nothing was done: there is no terminal to confirm on: add --yes to {program()} {verb}"
        )
    if ask(f"{jobs}. Type {found} to confirm: ").replace(",", "") != str(found):
        raise JobsError(
            f"the typed number is not {found}: nothing was done; run the command again to confirm"
        )


def _give(
    client: SyncClient, verb: str, wanted: Selection, found: int, counted_at: datetime
) -> list[OrderOutcome]:
    outcomes, cursor, more = list[OrderOutcome](), None, True
    with ProgressBar() as bar:
        while more:
            page = client.store.order_page(verb, wanted, expected=found, cursor=cursor, counted_at=counted_at)
            outcomes += page.outcomes
            cursor, more = page.cursor, page.cursor is not None
            bar.count(len(outcomes), found, "jobs")
    return outcomes


def _report(args: Namespace, found: int, outcomes: list[OrderOutcome]) -> int:
    refused = [one for one in outcomes if one.refusal]
    answers = Counter(one.answer for one in outcomes if not one.refusal)
    if args.json:
        shown = [
            {"id": one.id, "error": one.refusal.code, "message": str(one.refusal)}
            for one in refused
            if one.refusal
        ]
        document({"found": found, "done": dict(answers), "refused": shown})
    else:
        write(" · ".join([*(f"{word} {n:,}" for word, n in answers.items()), f"refused {len(refused):,}"]))
        if refused:
            table(
                ["ID", "ANSWER"],
                [[one.id, Cell(f"refused: {one.refusal}", "red")] for one in refused[:SHOWN]],
            )
    return 1 if refused else 0
