"""`doctor --repair`: mends what does not agree, shows how far it is, and says what it found and did."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jobs import reads
from jobs.cli.output import clean, document, paint, table, write
from jobs.cli.parser import program
from jobs.cli.session import client_of, look, settings_of
from jobs.client import SyncClient
from jobs.errors import Unfit
from jobs.recount import recount
from jobs.repair import Fault, repair

EXAMPLES = 5
"""Ids that are named of each kind."""
MENDED = {
    "baseless": ("a partition had no base", "made anew"),
    "lost": ("what was left of it could be neither run nor kept", "removed, and lost"),
    "placed": ("it was in no structure", "put back"),
    "stray": ("it was named where it did not belong", "removed there"),
    "restated": ("its state was lost, or could not be", "given the one that it shows"),
    "locked": ("it did not hold its key", "holds it again"),
    "unlocked": ("its key was held, and it is over or gone", "let go"),
    "listed": ("a job's queue was not on the list", "listed"),
    "numbered": ("a counter was lower than what it counts", "raised"),
    "recounted": ("a queue's backlog was wrong", "counted anew"),
}
"""The script's words: what was found, and what was done about it."""
LEFT = {
    "foreign": "of a wrong type, or with a header that cannot be: find who wrote it; then restore it, or DEL it",
    "busy": "so much moves that backlogs cannot be counted: try again; they are right by themselves when a queue runs dry",
}
"""What stays as it was, and what to do about it."""


class Kind(NamedTuple):
    """All of one kind."""

    kind: str
    number: int
    examples: list[str]


def mend(args: Namespace) -> int:
    """Repair a namespace, and say what was done. 1 if something is left. Raises WrongLayout, Unavailable."""
    with client_of(settings_of(args)) as client:
        seen, mended = look(client, repair(client.layout.bases, _progress))
        counted = list(_recounted(client))
        _clear()
    done = [each for each in _kinds([*mended, *counted]) if each.kind in MENDED]
    left = _kinds([*seen.faults, *(fault for fault in counted if fault.words in LEFT)])
    if args.json:
        document({
            "ok": not left,
            "looked": seen.looked,
            "mended": [{**each._asdict(), "found": MENDED[each.kind][0], "done": MENDED[each.kind][1]} for each in done],
            "left": [{**each._asdict(), "do": LEFT.get(each.kind, "run it again")} for each in left],
        })  # fmt: skip
    else:
        _show(seen.looked, done, left)
    return int(bool(left))


def _recounted(client: SyncClient) -> Iterator[Fault]:
    """What was wrong with the backlogs, or why that cannot be told."""
    for base in client.layout.bases:
        try:
            if not client.transport.run(reads.layout(base)):
                continue
            found = look(client, recount(base))
        except Unfit as error:
            yield Fault(base, "backlog", f"{base}:backlog", "foreign" if "type" in str(error) else "busy")
            continue
        yield from (Fault(base, "backlog", name, words) for name, words in found.found)
        if found.busy:
            yield Fault(base, "backlog", f"{base}:backlog", "busy")


def _kinds(faults: Sequence[Fault]) -> list[Kind]:
    """The faults by the words that the script had for them, in the order of the tables; one may have several."""
    names: dict[str, list[str]] = {}
    for fault in faults:
        for part in fault.words.split(", "):
            names.setdefault(part.partition(" ")[0], []).append(fault.name)
    known = [*MENDED, *LEFT]
    return [
        Kind(kind, len(found), list(dict.fromkeys(found))[:EXAMPLES])
        for kind, found in sorted(names.items(), key=lambda item: known.index(item[0]))
    ]


def _show(looked: int, done: list[Kind], left: list[Kind]) -> None:
    if done:
        rows = [[f"{each.number:,}", *MENDED[each.kind], " ".join(each.examples)] for each in done]
        table(["NUMBER", "FOUND", "DONE", "E.G."], rows)
        write()
    for each in left:
        write(f"{paint('left', 'red')}  {each.number:,} {LEFT.get(each.kind, 'that came back: run it again')}")
        write(f"      {clean(', '.join(each.examples))}")
    if left:
        write(paint(f"{looked:,} things looked at; not all could be mended", "red"))
    elif done:
        write(paint(f"{looked:,} things looked at; all agree now. {program()} stats shows what is there", "green"))
    else:
        write(paint(f"{looked:,} things looked at; all agreed, and nothing was changed", "green"))


def _progress(looked: int, faults: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{looked:,} looked at, {faults:,} to mend")
        sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
