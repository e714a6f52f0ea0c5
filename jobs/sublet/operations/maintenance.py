"""Maintenance over all partitions: end expired leases, queue due jobs, fire schedules, delete old jobs.
`by` is the name of the worker or tick that calls.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime

from sublet.errors import OutOfMemory
from sublet.model import Reaped
from sublet.protocol import reads, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.submission import partitions
from sublet.submission.admission import Admission


def reap(bases: Sequence[str], by: str, limit: int = verbs.SETTLE_MAX) -> Plan[Reaped]:
    """End expired leases and queue due jobs, up to `limit` per partition; return the sums. Raises Unfit for
    another partition count.
    """
    ended = queued = pools = 0
    more = come = False
    for base in bases:
        done: Reaped = yield verbs.reap(base, limit=limit, by=by)
        ended, queued, pools = ended + done.ended, queued + done.queued, pools + done.pools
        more, come = more or done.more, come or done.come
        partitions.check_count(bases, done.partitions)
    return Reaped(ended, queued, more, come, pools, len(bases))


def fire(
    bases: Sequence[str],
    by: str,
    admission: Admission | None = None,
    unread: dict[str, dict[str, str]] | None = None,
) -> Plan[int]:
    """Submit the jobs of due occurrences; return how many. Several callers may do so at once. The arguments
    are those of `fire_due`.

    Raises OutOfMemory, after the last partition, if a server is full.
    """
    # slow to load
    from sublet.schedules.firing import fire_due

    return (yield from fire_due(bases, by, admission, unread)).jobs


def maintain(bases: Sequence[str], by: str, admission: Admission | None = None) -> Plan[None]:
    """Reap the partitions that have something due, then fire due occurrences. On a full server these wait,
    without an error.
    """
    come = False
    for base in bases:
        now: datetime = yield server_info.clock()
        overdue, _ = yield reads.overdue(base, round(now.timestamp() * 1000))
        come = (overdue > 0 and (yield verbs.reap(base, limit=verbs.SETTLE_MAX, by=by)).come) or come
    if come:
        with contextlib.suppress(OutOfMemory):
            yield from fire(bases, by, admission)


def prune(bases: Sequence[str], limit: int = verbs.BATCH) -> Plan[tuple[int, bool]]:
    """Delete finished jobs that are past their retention or too many, up to `limit` per partition, and surplus
    empty queues. Returns how many jobs, and whether more may remain.
    """
    gone, more = 0, False
    for base in bases:
        answer = yield verbs.prune(base, limit=limit)
        gone, more = gone + answer[0], more or answer[1]
    return gone, more
