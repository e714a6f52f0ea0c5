"""Read the outcomes of the jobs that a running job waited for, a page at a time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sublet.errors import LeaseLost, NotFound
from sublet.model import Lease, Standing
from sublet.protocol import keys, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call

PAGE = 50
"""Most upstreams in a page."""


class UpstreamPage(NamedTuple):
    """Some upstreams of a job, each as id and standing, and the index of the next one (None: no more)."""

    jobs: Sequence[tuple[str, Standing]]
    following: int | None


def page(base: str, lease: Lease, start: int) -> Plan[UpstreamPage]:
    """Return up to 50 upstreams of a leased job from index `start` on. Raises LeaseLost, NotFound."""
    ids: list[str] = yield _ids(base, lease, start)
    standings = (yield verbs.watch(base, ids[:PAGE])) if ids else []
    following = start + PAGE if len(ids) > PAGE else None
    return UpstreamPage([*zip(ids[:PAGE], standings, strict=True)], following)


def _ids(base: str, lease: Lease, start: int) -> Call[list[str]]:

    def read(reply: Sequence[Any]) -> list[str]:
        (state, token), ids = reply
        if state is None:
            raise NotFound(f"no job {lease.id}: it never existed, or was deleted (retention, erase)")
        if (shown(state), shown(token or b"")) != ("running", lease.token):
            raise LeaseLost(f"job {lease.id}: the lease of this attempt has ended: stop")
        return [shown(one) for one in ids]

    state = ("HMGET", keys.job(base, lease.id), "state", "token")
    return together([state, ("LRANGE", keys.upstream(base, lease.id), start, start + PAGE)], read)
