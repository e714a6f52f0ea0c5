"""Compare a namespace's partition count with `SUBLET_PARTITIONS`."""

from collections.abc import Iterable, Sequence

from sublet.errors import Unfit
from sublet.protocol import reads
from sublet.protocol.plan import Plan


def check_count(bases: Sequence[str], count: int) -> None:
    """Raise Unfit if the stored partition count (0: unknown) differs from SUBLET_PARTITIONS, the number of
    `bases`.
    """
    if count and count != len(bases):
        raise Unfit(
            f"namespace {bases[0][1:-1].rpartition(':')[0]} has {count} partitions, but SUBLET_PARTITIONS is {len(bases)}: "
            f"set it to {count}"
        )


def read_count(bases: Iterable[str]) -> Plan[int]:
    """Read the partition count from the first partition that exists; 0 if none does."""
    for base in bases:
        count: int = yield reads.partitions(base)
        if count:
            return count
    return 0


def exists(bases: Sequence[str]) -> Plan[bool]:
    """Whether the namespace exists. Raises Unfit for another partition count."""
    count = yield from read_count(bases)
    check_count(bases, count)
    return count > 0
