"""`doctor`: looks the server over and says what was seen and what to do. It changes nothing."""

import time
from argparse import Namespace
from datetime import datetime
from typing import TypeVar

from jobs import keys, pools, reads, roster
from jobs.cli.checks import CHECKS, Facts, Finding
from jobs.cli.look import total
from jobs.cli.output import document, paint, write
from jobs.cli.session import client_of, look, settings_of
from jobs.client import SyncClient
from jobs.pool import Pool
from jobs.scripts import NAMES, Call, script

T = TypeVar("T")

COLOURS = {"ok": "green", "warn": "yellow", "bad": "red", "unknown": "dim"}
CONFIG = ("save", "appendfsync", "maxclients")
QUEUES = 1000
"""Queues that are looked at one by one."""
OVERDUE = 5.0
"""Seconds that something may be overdue: idle workers look every 2 s."""


def doctor(args: Namespace) -> int:
    """Check the server, line by line. 1 if anything is bad; raises Unavailable when nothing answers."""
    with client_of(settings_of(args)) as client:
        facts = _gather(client)
    findings = [finding for check in CHECKS for finding in check(facts)]
    bad = any(finding.level == "bad" for finding in findings)
    if args.json:
        document({"ok": not bad, "checks": [finding._asdict() for finding in findings]})
        return int(bad)
    for finding in findings:
        _show(finding)
    write("\n" + _verdict(findings))
    return int(bad)


def _show(finding: Finding) -> None:
    write(f"{paint(finding.level.ljust(7), COLOURS[finding.level])}  {finding.what.ljust(11)}  {finding.seen}")
    if finding.do:
        write(f"{' ' * 22}{paint('→', 'bold')} {finding.do}")


def _verdict(findings: list[Finding]) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in ("bad", "warn", "unknown")}
    words = [f"{count} {level}" for level, count in counts.items() if count]
    if counts["bad"]:
        return paint(f"not fit to keep jobs: {', '.join(words)}", "red")
    fit = "fit to keep jobs, as far as it tells" if counts["unknown"] else "fit to keep jobs"
    return paint(": ".join(filter(None, [fit, ", ".join(words)])), "yellow" if words else "green")


def _gather(client: SyncClient) -> Facts:
    """Ask the server everything once. The clock must answer; what else it does not say is None."""
    layout = client.layout
    before = time.time()
    now = client.transport.run(reads.clock())
    skew = now.timestamp() - (before + time.time()) / 2
    beyond = keys.base(layout.settings.namespace, len(layout.bases))
    return Facts(
        settings=layout.settings,
        now=now,
        skew=skew,
        info=_ask(client, reads.server()) or {},
        config={name: _ask(client, reads.config(name)) for name in CONFIG},
        layouts=[_ask(client, reads.layout(base)) for base in layout.bases],
        beyond=_ask(client, reads.layout(beyond)) not in (None, ""),
        loaded=_ask(client, reads.known([script(name).sha for name in NAMES])),
        upkeep=_upkeep(client),
        overdue=_overdue(client, now),
        foreign=_foreign(client),
        workers=_workers(client),
        pools=_pools(client),
    )


def _workers(client: SyncClient) -> list[tuple[str, datetime]] | None:
    """The workers on the register, and when each was last heard of; None where it cannot be read."""
    try:
        found = look(client, roster.workers(client.layout.bases, jobs=False))
    except Exception:  # noqa: BLE001  # as in _ask
        return None
    return [(worker.name, worker.seen_at) for worker in found]


def _pools(client: SyncClient) -> list[Pool] | None:
    """The pools with their sums; None where they cannot be read."""
    try:
        return look(client, pools.look_at_all(client.layout.bases))
    except Exception:  # noqa: BLE001  # as in _ask
        return None


def _foreign(client: SyncClient) -> list[str] | None:
    """The keys that are of a wrong type; None where it cannot be seen."""
    found = []
    for base in client.layout.bases:
        names = _ask(client, reads.queues(base)) or []
        found.append(_ask(client, reads.foreign(base, names[:QUEUES])))
    return None if None in found else [key for each in found for key in each or ()]


def _upkeep(client: SyncClient) -> tuple[datetime, str] | None:
    """When somebody last saw to what was due, and who."""
    found = [each for each in [_ask(client, reads.stats(base, [])) for base in client.layout.bases] if each]
    sums = total(found) if found else None
    return (sums.upkeep_at, sums.upkeep_by or "") if sums and sums.upkeep_at else None


def _overdue(client: SyncClient, now: datetime) -> tuple[int, float] | None:
    """How much is overdue, and for how many seconds at most; None where it cannot be read."""
    until = round((now.timestamp() - OVERDUE) * 1000)
    found = [_ask(client, reads.overdue(base, until)) for base in client.layout.bases]
    if None in found:
        return None
    since = [each[1] for each in found if each and each[1]]
    return sum(each[0] for each in found if each), (now - min(since)).total_seconds() if since else 0.0


def _ask(client: SyncClient, call: Call[T]) -> T | None:
    try:
        return client.transport.run(call)
    except Exception:  # noqa: BLE001  # a limited server refuses in words of its own: what it does not tell is unknown
        return None
