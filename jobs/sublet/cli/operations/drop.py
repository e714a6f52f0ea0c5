"""`drop`: delete a namespace in steps, after confirmation."""

import sys
from argparse import Namespace
from dataclasses import replace

from sublet.cli.output import ask, document, note, progress, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, settings_of
from sublet.errors import Changed, JobsError
from sublet.operations.drop import Content, contents, widest
from sublet.operations.drop import drop as forget
from sublet.protocol.keys import check_name

NAMED = 3


def drop(args: Namespace) -> int:
    """Delete a namespace. Raises JobsError if it does not exist, has live workers (without --force), or the
    user does not confirm; Invalid.
    """
    settings = replace(settings_of(args), namespace=check_name("namespace", args.name))
    with client_of(settings) as client:
        follow, many = client.store.follow_existing, "+cluster://" in settings.redis_url
        spread = follow(widest(args.name, settings.partitions)) if many else 0
        content = follow(contents(args.name, spread))
        if not content.keys:
            raise JobsError(
                f"there is no namespace {args.name}: nothing was deleted; check the name and --redis-url"
            )
        _confirm(args, content)
        try:
            deleted = follow(forget(args.name, spread, _progress))
        except Changed:
            raise JobsError(
                f"{args.name} was dropped by another process and created again since: nothing of the new one was deleted; to drop that, run the command again"
            ) from None
        finally:
            progress("")
    if args.json:
        document(
            {
                "namespace": args.name,
                "deleted": deleted,
                "partitions": len(content.keys),
                "jobs": content.jobs,
            }
        )
    else:
        write(f"dropped {args.name}: {deleted:,} keys of {_count(len(content.keys))}")
    return 0


def _confirm(args: Namespace, content: Content) -> None:
    note(
        f"{args.name}: {_jobs(content)}; {sum(content.keys.values()):,} keys of {_count(len(content.keys))}; live workers: {len(content.live):,}"
    )
    if content.live and not args.force:
        named = ", ".join(content.live[:NAMED]) + (" and others" if len(content.live) > NAMED else "")
        alive = "1 worker is" if len(content.live) == 1 else f"{len(content.live):,} workers are"
        raise JobsError(
            f"{alive} alive in {args.name}: {named}; stop {'it' if len(content.live) == 1 else 'them'}, or add --force"
        )
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise JobsError(
            f"there is no terminal to confirm on: {program()} drop {args.name} --yes deletes it all"
        )
    question = f"all of this is deleted for good. To confirm, type the namespace's name ({args.name}): "
    if ask(question) != args.name:
        raise JobsError(f"the typed name is not {args.name}: nothing was deleted")


def _jobs(content: Content) -> str:
    if not content.jobs:
        return "an unknown number of jobs"
    jobs = ", ".join(f"{number:,} {state}" for state, number in content.jobs.items() if number) or "no jobs"
    return f"{jobs} (without {_count(content.unread)} that cannot be read)" if content.unread else jobs


def _count(partitions: int) -> str:
    return f"{partitions:,} partition{'' if partitions == 1 else 's'}"


def _progress(deleted: int) -> None:
    progress(f"{deleted:,} keys deleted")
