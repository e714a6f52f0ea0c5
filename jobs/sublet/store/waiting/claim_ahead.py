"""A claim behind a blocking read, on the same connection: the server runs it when the read ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sublet.model import Claimed
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

WITHDRAWN_MS = 60_000
"""For so many ms a withdrawn claim gets no job: longer than its connection lasts."""


@dataclass(slots=True, eq=False)
class ClaimAhead:
    """A claim of one job that Redis runs when the blocking read before it ends."""

    call: Call[Claimed]
    repeat: Call[Claimed]
    """The same claim again, of 0 jobs: within 10 s its reply has the same lease."""
    withdrawal: Call[bool]
    """The call that stops the claim from getting a job. Its reply is False if the claim already has a job."""
    ends_at: float = 0.0
    """When the blocking read ends at the latest, by the event loop's clock."""
    read: Any = None
    """The reply to the blocking read."""
    reply: Any = None
    is_over: bool = False
    """Whether the claim has its reply, or will get none."""

    @property
    def claimed(self) -> Claimed:
        """The claim's parsed reply."""
        return self.call.read(self.reply)


def claim_ahead(base: str, worker: str, lease: float, queues: Sequence[str], life: str) -> ClaimAhead:
    """Prepare (not send) a claim of one job, to follow a blocking read."""
    claim_id = keys.new_claim_id(life)
    call = verbs.claim(base, claim_id=claim_id, worker=worker, lease=lease, n=1, queues=queues)
    repeat = verbs.claim(base, claim_id=claim_id, worker=worker, lease=lease, n=0, queues=queues)
    memo = ("SET", keys.claim(base, claim_id), "-", "NX", "PX", WITHDRAWN_MS)
    return ClaimAhead(call, repeat, Call((memo,), bool))
