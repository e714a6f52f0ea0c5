"""`audit`: the orders that people gave."""

from argparse import Namespace

from sublet.cli.output import document, note, table, write
from sublet.cli.session import client_of, read, settings_of


def audit(args: Namespace) -> int:
    """Print one page of the audit, the latest orders first."""
    with client_of(settings_of(args)) as client:
        page = read(client, client.store.operations.audit(args.limit, args.cursor), args)
    if args.json:
        document(page.model_dump(mode="json"))
        return 0
    if page.entries:
        table(
            ["TIME", "BY", "ORDER", "WHAT", "OUTCOME"],
            [
                [f"{one.at:%Y-%m-%d %H:%M:%S}Z", one.by, one.verb, one.what, one.outcome]
                for one in page.entries
            ],
        )
    else:
        write("no orders by people")
    if page.cursor:
        note(f"more: the same command with --cursor {page.cursor}")
    return 0
