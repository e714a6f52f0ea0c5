"""A claim sent behind a blocking read, on the same connection: the server runs it as soon as the read ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sublet.model import Claimed
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

WITHDRAWN_MS = 60_000
"""For how long a withdrawn claim takes no job: longer than a read and its connection can last."""


@dataclass(slots=True, eq=False)
class ClaimAhead:
    """One such claim, of one job at most. Its lease begins before this process knows: see `withdrawal`."""

    call: Call[Claimed]
    repeat: Call[Claimed]
    """Returns the leases that the claim got, if it ran less than 10 s ago."""
    withdrawal: Call[bool]
    """Makes the claim take nothing. Returns False if it has taken jobs already."""
    ends_at: float = 0.0
    """When the read ends without a wake-up; the event loop's time."""
    read: Any = None
    """The reply to the read."""
    reply: Any = None

    @property
    def claimed(self) -> Claimed:
        """The claim's parsed reply."""
        return self.call.read(self.reply)


def claim_ahead(base: str, worker: str, lease: float, queues: Sequence[str], life: str) -> ClaimAhead:
    """Prepare a claim of one job."""
    claim_id = keys.new_claim_id(life)
    call = verbs.claim(base, claim_id=claim_id, worker=worker, lease=lease, n=1, queues=queues)
    repeat = verbs.claim(base, claim_id=claim_id, worker=worker, lease=lease, n=0, queues=queues)
    memo = ("SET", keys.claim(base, claim_id), "-", "NX", "PX", WITHDRAWN_MS)
    return ClaimAhead(call, repeat, Call((memo,), bool))
