"""Flow control: the calls that set a group's limits and correct a cost."""

from collections.abc import Sequence

from sublet.model import Lease
from sublet.protocol.scripts import Call, script


def group(base: str, queue: str, revision: int, name: str, settings: str, by: str = "") -> Call[str]:
    """Replace the settings of a group (`concurrency=N rate=N per=MS burst=N share=N`); those not given are removed.
    Returns them as stored.
    """
    return script("group").call(
        base, bytes.decode, queue=queue, revision=revision, group=name, settings=settings, by=by
    )


def spend(base: str, costs: Sequence[tuple[Lease, int]]) -> Call[list[str]]:
    """Set the costs of up to 100 running jobs. Returns per lease `spent`, LEASE_LOST or NOT_FOUND."""
    return script("spend").call(
        base, _words, [f for lease, cost in costs for f in (lease.id, lease.token, cost)]
    )


def _words(reply: list[bytes]) -> list[str]:
    return [word.decode() for word in reply]
