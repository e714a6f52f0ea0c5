"""Has a namespace as many partitions as this process was told? With another number it would not see all jobs."""

from collections.abc import Sequence

from jobs import reads
from jobs.errors import Unfit
from jobs.transport import Plan


def check(bases: Sequence[str], number: int) -> None:
    """Raise Unfit where a namespace of `number` partitions is not one of these bases. A number of 0 is not known: let in."""
    if number and number != len(bases):
        raise Unfit(
            f"namespace {bases[0][1:-1].rpartition(':')[0]} has {number} partitions, and SUBLET_PARTITIONS says {len(bases)}: "
            "set it as everywhere else"
        )


def agree(bases: Sequence[str]) -> Plan[bool]:
    """Is there a namespace? Raises Unfit where it has another number of partitions. The first base that is there tells."""
    for base in bases:
        number: int = yield reads.partitions(base)
        if number:
            check(bases, number)
            return True
    return False
