"""Pages of the audit, newest first, over all partitions."""

import re
from collections.abc import Container, Sequence
from datetime import UTC, datetime

from sublet.errors import Invalid
from sublet.model import Frozen, Timestamp
from sublet.protocol import audit_log, reads
from sublet.protocol.plan import Plan

LIMIT = 1000
_MOMENT = re.compile(r"(?<=scheduled )[0-9]{1,14}")
_CURSOR = re.compile(r"([0-9]{1,16}-[0-9]{1,16})/([0-9]{1,5})")

_Key = tuple[int, int, int]


class AuditEntry(Frozen):
    """A command given by `sublet`, or over HTTP with a token of the role `admin`."""

    at: Timestamp
    by: str
    """Who gave it: a token's name, or `user@host`."""
    verb: str
    """The command: `cancel`, `pause`, `schedule-put`, …."""
    what: str
    """The id or name of the job, queue, group, worker, schedule or pool; or a filter of jobs."""
    queue: str = ""
    """The queue, or that of the job, group or schedule; else, and for several queues, empty."""
    outcome: str
    """The answer; for a filter, how many jobs matched and were changed."""


class AuditPage(Frozen):
    """Some commands of people, newest first. If `cursor` is set, more follow, even if `entries` is empty."""

    entries: tuple[AuditEntry, ...]
    cursor: str | None = None


def page(
    bases: Sequence[str], limit: int, cursor: str | None, within: Container[str] | None = None
) -> Plan[AuditPage]:
    """Return a page of the audit, for the queues in `within` (None: all). Raises Invalid."""
    if not 1 <= limit <= LIMIT:
        raise Invalid(f"limit {limit}: use 1 to {LIMIT:,}")
    seen = _CURSOR.fullmatch(cursor) if cursor is not None and not cursor.startswith("0-0/") else None
    if cursor is not None and not seen:
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before")
    found: list[tuple[_Key, AuditEntry]] = []
    for partition, base in enumerate(bases):
        end = "+" if not seen else seen[1] if partition < int(seen[2]) else f"({seen[1]}"
        for entry_id, fields in (yield audit_log.entries(base, end, limit + 1)):
            at, _, number = entry_id.partition("-")
            found.append(((int(at), int(number), partition), _entry(int(at), fields)))
    found.sort(key=lambda one: one[0], reverse=True)
    shown = [entry for _, entry in found[:limit] if within is None or entry.queue in within]
    last = found[limit - 1][0] if len(found) > limit else None
    return AuditPage(entries=tuple(shown), cursor=f"{last[0]}-{last[1]}/{last[2]}" if last else None)


def _entry(at: int, fields: dict[str, str]) -> AuditEntry:
    names = ("by", "verb", "what", "queue", "outcome")
    given = {name: fields.get(name, "") for name in names}
    if given["verb"] == "reschedule":
        given["outcome"] = _MOMENT.sub(
            lambda ms: f"{reads.moment(ms[0]):%Y-%m-%dT%H:%M:%SZ}", given["outcome"]
        )
    return AuditEntry(at=datetime.fromtimestamp(at / 1000, UTC), **given)
