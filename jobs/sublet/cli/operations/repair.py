"""`doctor --repair`: repair inconsistent data, with progress."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from sublet.cli.output import document, paint, table, write
from sublet.cli.parser import program
from sublet.cli.progress import ProgressBar
from sublet.cli.session import client_of, read, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import JobsError, Unfit
from sublet.operations.consistency.audit import Fault
from sublet.operations.consistency.recount import recount
from sublet.operations.consistency.repair import repair
from sublet.protocol import audit_log, keys, reads, server_info

EXAMPLES = 5
REPAIRS = {
    "baseless": ("a partition had no metadata", "made anew"),
    "gone": ("a job without its hash (deleted or evicted)", "its name removed, and lost"),
    "placed": ("it was in no structure, or had an invalid score", "put back"),
    "stray": ("it was named where it did not belong", "removed there"),
    "grouped": ("the set of its group did not agree with its state", "put right"),
    "held": ("its place in the queue did not agree with its state", "put right"),
    "locked": ("it did not hold its key", "holds its key again"),
    "unlocked": ("its key was held, though the job has ended or is gone", "let go"),
    "listed": ("a job's queue was not in the list of queues", "listed"),
    "numbered": ("a counter was too low", "raised"),
    "unsettled": ("edges of an ended job or a workflow were forgotten", "to be settled"),
    "settled": ("there was a mark for edges that are not there", "removed"),
    "needs": ("it counted other edges than are there", "counted anew"),
    "member": ("its workflow counted it in another state", "counted anew"),
    "called": ("the edge of a called job was lost, or that job", "put right"),
    "ended": ("a workflow has ended without a word, or has not", "put right"),
    "steps": ("the number of its kept steps was wrong", "counted anew"),
    "orphaned": ("the stream of a job that does not exist", "deleted"),
    "recounted": ("a queue's backlog was wrong", "counted anew"),
}
UNREPAIRED = {
    "broken": "with fields that Sublet does not write so (the field is named): HGETALL the key, and set the field right or DEL the key; "
    "then repair again. A registered worker repairs its own registration within seconds",
    "foreign": "of a wrong type, or not as scripts write it: find the program that wrote it; then restore it, or DEL it; where something is "
    "named behind a key, HDEL or ZREM that alone",
    "waits": "that cannot be checked, because a related key has a wrong type: leave them, and repair again when that key is restored",
    "uncounted": "whose backlogs cannot be counted, because a key has a wrong type: repair again when that key is restored",
    "busy": "too many changes to count backlogs: try again; a backlog corrects itself when its queue is empty",
}


class Kind(NamedTuple):
    """Faults of one kind: their number, and up to 5 items."""

    kind: str
    number: int
    examples: list[str]


def repair_namespace(args: Namespace) -> int:
    """Repair a namespace. Return 1 if faults are left. Raises Unavailable, and JobsError if the namespace does
    not exist.
    """
    with client_of(settings_of(args)) as client:
        order = keys.new_claim_id()
        _record(client, order)
        with ProgressBar() as bar:
            bases = client.store.operations.bases
            seen, mended = read(client, repair(bases, partial(_progress, bar)))
            bar.step("counting the backlogs")
            counted = [*_recount_faults(client)]
        _record(client, order)  # again, if the partition's metadata was missing
        store = client.store
        if not (
            mended
            or counted
            or any(store.transport.run(reads.layout(base)) for base in store.operations.bases)
        ):
            raise JobsError(
                f"there is no namespace {store.settings.namespace}: nothing was checked; check --namespace and --redis-url"
            )
    done = [each for each in _kinds([*mended, *counted]) if each.kind in REPAIRS]
    left = _kinds([*seen.faults, *(fault for fault in counted if fault.found in UNREPAIRED)])
    lost = len({fault.key for fault in mended if fault.is_lost})
    if args.json:
        document({
            "ok": not left,
            "checked": seen.looked,
            "lost": lost,
            "repaired": [{**each._asdict(), "found": REPAIRS[each.kind][0], "done": REPAIRS[each.kind][1]} for each in done],
            "left": [{**each._asdict(), "advice": UNREPAIRED.get(each.kind, "repair again")} for each in left],
        })  # fmt: skip
    else:
        _show(seen.looked, lost, done, left)
    return int(bool(left))


def _record(client: SyncClient, order: str) -> None:
    store = client.store
    with suppress(JobsError):  # the audit itself may need the repair
        read(
            client,
            audit_log.record(
                store.operations.bases[0], "repair", store.settings.namespace, "", "started", order
            ),
        )


def _recount_faults(client: SyncClient) -> Iterator[Fault]:
    for base in client.store.operations.bases:
        try:
            if not client.store.transport.run(reads.layout(base)):
                continue
            found = read(client, recount(base))
        except Unfit as error:
            of_type = "type" in str(error)
            wrong = client.store.transport.run(server_info.foreign(base, [])) if of_type else []
            yield from (Fault(base, "key", name, "foreign") for name in wrong)
            yield (
                Fault(base, "base", base, "uncounted")
                if of_type
                else Fault(base, "key", keys.backlog(base), "busy")
            )
            continue
        yield from (Fault(base, "backlog", name, numbers) for name, numbers in found.found)
        if found.busy:
            yield Fault(base, "key", keys.backlog(base), "busy")


def kinds(fault: Fault) -> list[str]:
    """Return the kinds of faults that an item has."""
    return [part.partition(" ")[0] for part in fault.found.split(", ")]


def shown(fault: Fault, kind: str) -> str:
    """Return how to print an item with a fault of this kind: its name or, if the reader must act on it, its key."""
    if kind == "broken":
        return f"{fault.key} ({fault.found.removeprefix('broken ')})"
    return fault.key if kind == "foreign" else fault.name


def _kinds(faults: Sequence[Fault]) -> list[Kind]:
    names: dict[str, dict[str, None]] = {}
    for fault in faults:
        for kind in kinds(fault):
            names.setdefault(kind, {})[shown(fault, kind)] = None
    known = [*REPAIRS, *UNREPAIRED]
    return [
        Kind(kind, len(found), list(found)[:EXAMPLES])
        for kind, found in sorted(names.items(), key=lambda item: known.index(item[0]))
    ]


def _show(looked: int, lost: int, done: list[Kind], left: list[Kind]) -> None:
    if done:
        rows = [[f"{each.number:,}", *REPAIRS[each.kind], " ".join(each.examples)] for each in done]
        table(["NUMBER", "FOUND", "DONE", "E.G."], rows)
        write()
    for each in left:
        write(
            f"{paint('left', 'red')}  {each.number:,} {UNREPAIRED.get(each.kind, 'that came back: repair again')}"
        )
        write(f"      {', '.join(each.examples)}")
    if lost:
        write(paint(f"{lost:,} job{'s are' if lost > 1 else ' is'} lost", "red"))
    if left:
        write(paint(f"{looked:,} items checked; not all could be repaired", "red"))
    elif done:
        write(
            paint(
                f"{looked:,} items checked; all are consistent now. {program()} stats shows what is there",
                "green",
            )
        )
    else:
        write(paint(f"{looked:,} items checked; all are consistent, nothing was changed", "green"))


def _progress(bar: ProgressBar, looked: int, size: int, faults: int) -> None:
    bar.count(looked, size, f"items checked, {faults:,} to repair")
