"""Put jobs where their states say, while workers go on.

A scan reports faults; the script `repair` gets them again, and repairs them by the current data. Jobs return
to a queue by ms of the submit and id, within a batch of `FOUND`.
"""

from collections.abc import Sequence

from sublet.operations.consistency.audit import CALL, Audit, Fault, Report, ask, audit
from sublet.protocol import verbs
from sublet.protocol.plan import Plan

ROUNDS = 3
"""Scans that repair, at most: a repair may reveal another fault."""


def repair(
    bases: Sequence[str], report: Report = lambda looked, size, faults: None
) -> Plan[tuple[Audit, list[Fault]]]:
    """Repair these partitions. Return what an audit then finds, and the repaired faults."""
    done: list[Fault] = []

    def mend_some(base: str, faults: Sequence[Fault]) -> Plan[None]:
        done.extend((yield from mend(base, faults, len(bases))))

    for _ in range(ROUNDS):
        before = len(done)
        seen = yield from audit(bases, report=report, mend=mend_some)
        if len(done) == before:
            return seen, done
    return (yield from audit(bases, report=report)), done


def mend(base: str, faults: Sequence[Fault], partitions: int) -> Plan[list[Fault]]:
    """Repair faults of one partition of a namespace with `partitions`, in this order. Return the repaired ones."""
    done = [fault for fault in faults if fault.seen_in == "base"]
    if done:
        yield verbs.init(base, partitions)
    seen = [(fault.seen_in, fault.name) for fault in faults if fault.seen_in != "base"]
    for i in range(0, len(seen), CALL):
        answered = yield from ask(base, "mend", seen[i : i + CALL])
        done += [fault for fault in answered if fault.is_repairable]
    return done
