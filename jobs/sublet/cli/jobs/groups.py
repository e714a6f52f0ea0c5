"""`groups list` and `groups set`."""

from argparse import Namespace
from datetime import datetime
from typing import Any

from sublet.cli.output import Cell, document, limit_text, note, table, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, server_time, settings_of
from sublet.errors import Invalid
from sublet.operations.groups import Group

OPTIONS = ("concurrency", "rate", "burst", "share")


def list_groups(args: Namespace) -> int:
    """Print up to --limit groups of a queue."""
    with client_of(settings_of(args)) as client:
        found, now = (
            read(client, client.store.operations.groups(args.queue, args.limit), args),
            server_time(client),
        )
    if args.json:
        document(found.model_dump(mode="json"))
        return 0
    if not found.groups:
        write(f"no groups in {args.queue}: no job of a group waits or runs, and none has settings")
        return 0
    heads = ["GROUP", "WAITING", "RUNNING", "SHARE", "BLOCKED", "LIMITS"]
    table(heads, [_row(group, now) for group in found.groups])
    if found.more:
        note(f"there are more: {program()} groups list {args.queue} --limit 1000")
    return 0


def _row(group: Group, now: datetime) -> list[Cell | str]:
    blocked: str = group.blocked or ""
    if group.next_at:
        blocked += f", next in {max(0.0, (group.next_at - now).total_seconds()):.3g} s"
    numbers = [f"{number:,}" for number in (group.waiting, group.running, group.share)]
    return [group.name, *numbers, Cell(blocked, "yellow"), limit_text(group.limits)]


def set_group(args: Namespace) -> int:
    """Change given settings of a group; print all its settings."""
    given = rates({name: getattr(args, name) for name in OPTIONS if hasattr(args, name)})
    if not given:
        raise Invalid(
            f"nothing to set: give --concurrency, --rate, --burst or --share; {program()} groups list {args.queue} shows them"
        )
    with client_of(settings_of(args)) as client:
        answer = client.change_group(args.queue, args.group, **given)
    if args.json:
        document({"queue": args.queue, "group": args.group, "settings": answer})
    else:
        write(f"{args.queue}, group {args.group}: {answer or 'no settings of its own'}")
    return 0


def rates(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings with each `rate` or `group_rate`, (tokens, seconds) or None, split into `rate` and
    `per` (`group_per`); None also removes the burst.
    """
    found = dict(given)
    for kind in ("", "group_"):
        if f"{kind}rate" in given:
            found[f"{kind}rate"], found[f"{kind}per"] = given[f"{kind}rate"] or (None, None)
            if given[f"{kind}rate"] is None:
                found[f"{kind}burst"] = None
    return found
