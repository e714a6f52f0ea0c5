"""What whoever touches a queue does in passing, and a tick does for its own sake: plans over all partitions, without I/O."""

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
    """Do what time has decided, in every partition. Schedules and pools that are to be seen to are only told of.

    Raises Unfit where the namespace has another number of partitions.
    """
    ended = queued = pools = 0
    more = come = False
    for base in bases:
        done: Reaped = yield verbs.reap(base, limit=limit, by=by)
        ended, queued, pools = ended + done.ended, queued + done.queued, pools + done.pools
        more, come = more or done.more, come or done.come
        partitions.check_count(bases, done.partitions)
    return Reaped(ended, queued, more, come, pools, len(bases))


def fire(bases: Sequence[str], by: str, admission: Admission | None = None) -> Plan[int]:
    """Give the occurrences of schedules that have come their jobs: how many there are. Any number may do so at once.

    Raises OutOfMemory where a server has no room for them: the occurrences wait.
    """
    # imported late: it loads the calendar, which a process without schedules does not need
    from sublet.schedules.firing import fire_due

    return (yield from fire_due(bases, by, admission)).jobs


def see_to(bases: Sequence[str], by: str, admission: Admission | None = None) -> Plan[None]:
    """Do a share of the upkeep where something is overdue; where nothing is, nothing is written."""
    come = False
    for base in bases:
        now: datetime = yield server_info.clock()
        overdue, _ = yield reads.overdue(base, round(now.timestamp() * 1000))
        come = (overdue > 0 and (yield verbs.reap(base, limit=verbs.SETTLE_MAX, by=by)).come) or come
    if come:
        with contextlib.suppress(
            OutOfMemory
        ):  # the occurrences wait; who only looks is not to be refused for them
            yield from fire(bases, by, admission)


def prune(bases: Sequence[str], limit: int = verbs.BATCH) -> Plan[tuple[int, bool]]:
    """Forget what is past its time, in every partition: jobs forgotten, whether there may be more."""
    gone, more = 0, False
    for base in bases:
        answer = yield verbs.prune(base, limit=limit)
        gone, more = gone + answer[0], more or answer[1]
    return gone, more
