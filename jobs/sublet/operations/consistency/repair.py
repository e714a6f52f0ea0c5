"""Put stored data in order, while workers continue: jobs go back to where their states say."""

from collections.abc import Sequence

from sublet.operations.consistency.audit import CALL, Audit, Fault, Report, ask, audit
from sublet.protocol import verbs
from sublet.protocol.plan import Plan

ROUNDS = 3
"""Most rounds of check and repair: a repair may reveal another fault."""


def repair(
    bases: Sequence[str], report: Report = lambda looked, size, faults: None
) -> Plan[tuple[Audit, list[Fault]]]:
    """Repair these partitions. The result: what a check finds afterwards, and the repaired faults."""
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
    """Repair these faults of one partition, in this order; return the repaired ones. `partitions`: the
    partition count.
    """
    done = [fault for fault in faults if fault.seen_in == "base"]
    if done:
        yield verbs.init(base, partitions)
    seen = [(fault.seen_in, fault.name) for fault in faults if fault.seen_in != "base"]
    for i in range(0, len(seen), CALL):
        answered = yield from ask(base, "mend", seen[i : i + CALL])
        done += [fault for fault in answered if fault.is_repairable]
    return done
