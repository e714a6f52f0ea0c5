"""A claim behind a blocking read, on the same connection: the server runs it when the read ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sublet.model import Claimed
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

WITHDRAWN_MS = 60_000
"""How long a withdrawn claim takes no job: longer than its connection lasts."""


@dataclass(slots=True, eq=False)
class ClaimAhead:
    """One such claim, of one job at most."""

    call: Call[Claimed]
    repeat: Call[Claimed]
    """Returns its leases, within 10 s."""
    withdrawal: Call[bool]
    """Makes it take nothing; False if it has taken a job."""
    ends_at: float = 0.0
    """The event loop's time when the read ends."""
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
