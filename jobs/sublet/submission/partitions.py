"""Has a namespace as many partitions as this process was told? With another number it would not see all jobs."""

from collections.abc import Iterable, Sequence

from sublet.errors import Unfit
from sublet.protocol import reads
from sublet.protocol.plan import Plan


def check(bases: Sequence[str], number: int) -> None:
    """Raise Unfit where a namespace of `number` partitions is not one of these bases. A number of 0 is not known: let in."""
    if number and number != len(bases):
        raise Unfit(
            f"namespace {bases[0][1:-1].rpartition(':')[0]} has {number} partitions, and SUBLET_PARTITIONS says {len(bases)}: "
            "set it as everywhere else"
        )


def said(bases: Iterable[str]) -> Plan[int]:
    """How many partitions the namespace has, as the first of these bases says that is there; 0 where none is."""
    for base in bases:
        number: int = yield reads.partitions(base)
        if number:
            return number
    return 0


def agree(bases: Sequence[str]) -> Plan[bool]:
    """Is there a namespace? Raises Unfit where it has another number of partitions."""
    number = yield from said(bases)
    check(bases, number)
    return number > 0
