"""`doctor`: check a server and a namespace, with advice. Only `--repair` changes anything."""

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sublet.cli.jobs.query import total
from sublet.cli.operations.checks import CHECKS, OF_NODE
from sublet.cli.operations.node_checks import check_nodes
from sublet.cli.output import document, paint, write
from sublet.cli.parser import program
from sublet.cli.progress import ProgressBar
from sublet.cli.session import client_of, read, settings_of
from sublet.client.sync_client import SyncClient
from sublet.connection.routing import SyncRoutingTransport
from sublet.errors import Forbidden, Unavailable
from sublet.model import Stats
from sublet.operations import pools
from sublet.operations import workers as roster
from sublet.operations.consistency.audit import audit
from sublet.operations.coverage import gaps
from sublet.operations.diagnosis.findings import Facts, Finding, Node
from sublet.operations.diagnosis.server_report import CONFIG
from sublet.protocol import keys, queue_names, reads, server_info
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import NAMES, Call, script

T = TypeVar("T")

COLOURS = {"ok": "green", "warn": "yellow", "bad": "red", "unknown": "dim"}
QUEUES = 1000
AUDITED = 5000
OVERDUE = 5.0
"""Seconds after which due work counts as overdue."""


def doctor(args: Namespace) -> int:
    """Print the findings or, with --repair, repair the data. Return 1 if a finding is bad, or a fault is
    left. Raises Unavailable.
    """
    if args.repair:
        from sublet.cli.operations.repair import repair_namespace

        return repair_namespace(args)
    with client_of(settings_of(args)) as client:
        try:
            with ProgressBar() as bar:
                facts = read_facts(client, bar)
        except Unavailable:
            _print_findings(check_nodes(client), args.json)
            raise
    findings = diagnose(facts)
    bad = any(finding.level == "bad" for finding in findings)
    if args.json:
        document(
            {"ok": not bad, "denied": facts.denied, "checks": [finding._asdict() for finding in findings]}
        )
        return int(bad)
    for finding in findings:
        _show(finding._replace(advice="") if finding.advice == facts.advice else finding)
    write()
    write(_verdict(findings))
    if facts.suggested_user and any(finding.level == "unknown" for finding in findings):
        write(
            f"this user may not read the unknown facts: run the doctor as {facts.suggested_user} ({program()} acl prints such users)"
        )
    return int(bad)


def _print_findings(findings: list[Finding], as_json: bool) -> None:
    if findings and as_json:
        document({"ok": False, "denied": False, "checks": [finding._asdict() for finding in findings]})
        return
    for finding in findings:
        _show(finding)


def diagnose(facts: Facts) -> list[Finding]:
    """Run all checks and return their findings. Equal findings of several servers become one."""
    findings: list[Finding] = []
    each = [facts._replace(**node._asdict()) for node in facts.nodes] or [facts]
    for check in CHECKS:
        on: dict[Finding, list[str]] = {}
        for one in each if check in OF_NODE else [facts]:
            for finding in check(one):
                on.setdefault(finding, []).append(one.node)
        for finding, nodes in on.items():
            named = "" if len(each) == 1 or check not in OF_NODE else ", ".join(nodes)
            findings.append(
                finding._replace(
                    node=f"all {len(each)} nodes" if named and len(nodes) == len(each) else named
                )
            )
    return findings


def _show(finding: Finding) -> None:
    found = f"{finding.node}: {finding.found}" if finding.node else finding.found
    write(f"{paint(finding.level.ljust(7), COLOURS[finding.level])}  {finding.subject.ljust(11)}  {found}")
    if finding.advice:
        write(f"{' ' * 22}{paint('→', 'bold')} {finding.advice}")


def _verdict(findings: list[Finding]) -> str:
    counts = {
        level: sum(finding.level == level for finding in findings) for level in ("bad", "warn", "unknown")
    }
    words = [f"{count} {level}" for level, count in counts.items() if count]
    if counts["bad"]:
        return paint(f"not fit to keep jobs: {', '.join(words)}", "red")
    fit = "fit to keep jobs, as far as this user can read" if counts["unknown"] else "fit to keep jobs"
    return paint(": ".join(filter(None, [fit, ", ".join(words)])), "yellow" if words else "green")


def read_facts(client: SyncClient, bar: ProgressBar) -> Facts:
    """Read all facts once, those that cannot be read as None. Raises Unavailable if a server does not answer
    TIME.
    """
    probe = _Probe(client)
    bar.step("reading the server and the queues")
    operations, bases = client.store.operations, client.store.operations.bases
    nodes = [_node(probe, place, base) for place, base in _servers(client).items()]
    now = client.store.transport.run(server_info.clock())
    names = [probe.follow(queue_names.names(base)) for base in bases]
    stats = [each for each in [probe.ask(reads.stats(base, {})) for base in bases] if each]
    sums = total(stats) if stats else None
    workers = probe.follow(roster.workers(bases, jobs=False))
    first = nodes[0]._asdict() | {"node": ""} if len(nodes) == 1 else nodes[0]._asdict()
    return Facts(
        settings=operations.settings,
        now=now,
        **first,
        nodes=tuple(nodes) if len(nodes) > 1 else (),
        layouts=[probe.ask(reads.layout(base)) for base in bases],
        partition_counts=tuple(probe.ask(reads.partitions(base)) for base in bases),
        last_maintenance=_last_maintenance(sums),
        deleted_early=sums.totals["forgotten"] if sums else None,
        results_deleted_early=sums.totals["forgotten_results"] if sums else None,
        missing=sum(probe.ask(reads.uncounted(base)) or 0 for base in bases),
        overdue=_overdue(probe, now),
        wrong_type_keys=_wrong_type_keys(probe, names),
        misplaced=tuple(
            n
            for p, some in enumerate(names)
            for n in some or ()
            if keys.partition_of_queue(n, len(bases)) != p
        ),
        workers=None if workers is None else [(worker.name, worker.seen_at) for worker in workers],
        starved=tuple(worker.name for worker in workers or () if worker.about.get("starved") is True),
        pools=probe.follow(pools.look_at_all(bases)),
        gaps=probe.follow(gaps(bases)),
        audit=probe.follow(audit(bases, AUDITED, partial(_checked, bar))),
        denied=probe.denied,
        url=operations.settings.shown_url,
        program=program(),
    )


def _checked(bar: ProgressBar, looked: int, size: int, faults: int) -> None:
    bar.count(looked, size, "items checked")


class _Probe:
    def __init__(self, client: SyncClient) -> None:
        self.client, self.denied = client, False

    def ask(self, call: Call[T]) -> T | None:
        return self._try(lambda: self.client.store.transport.run(call))

    def follow(self, plan: Plan[T]) -> T | None:
        return self._try(lambda: read(self.client, plan))

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Forbidden:
            self.denied = True
        except Exception:  # noqa: BLE001  # a fact that a server does not give is unknown
            pass
        return None


def _servers(client: SyncClient) -> dict[str, str]:
    transport, bases = client.store.transport, client.store.operations.bases
    if not isinstance(transport, SyncRoutingTransport):
        return {"": bases[0]}
    return dict(sorted((transport.address(base), base) for base in bases))


def _node(probe: _Probe, place: str, base: str) -> Node:

    def of(call: Call[T]) -> Call[T]:
        return _routed_to(base, call) if place else call

    before = time.time()
    now = probe.client.store.transport.run(of(server_info.clock()))
    return Node(
        node=place,
        skew=now.timestamp() - (before + time.time()) / 2,
        info=probe.ask(of(server_info.server())) or _basic_facts(probe, base),
        config={name: probe.ask(of(server_info.config(name))) for name in CONFIG},
        loaded=probe.ask(of(server_info.known([script(name).sha for name in NAMES]))),
    )


def _basic_facts(probe: _Probe, base: str) -> dict[str, Any]:
    memory = probe.ask(server_info.memory(base))
    return (
        {"maxmemory_policy": memory.policy, "used_memory": memory.used, "maxmemory": memory.most}
        if memory and memory.used
        else {}
    )


def _routed_to(base: str, call: Call[T]) -> Call[T]:

    def read(reply: Any) -> T:
        return call.read(reply[1])

    return Call((("HGET", base, "layout"), *call.commands), read)


def _wrong_type_keys(probe: _Probe, names: list[list[str] | None]) -> list[str] | None:
    bases = probe.client.store.operations.bases
    found = [
        probe.ask(server_info.foreign(base, (some or [])[:QUEUES]))
        for base, some in zip(bases, names, strict=True)
    ]
    return None if None in found else [key for each in found for key in each or ()]


def _last_maintenance(sums: Stats | None) -> tuple[datetime, str] | None:
    return (sums.maintenance_at, sums.maintenance_by or "") if sums and sums.maintenance_at else None


def _overdue(probe: _Probe, now: datetime) -> tuple[int, float] | None:
    until = round((now.timestamp() - OVERDUE) * 1000)
    found = [probe.ask(reads.overdue(base, until)) for base in probe.client.store.operations.bases]
    if None in found:
        return None
    since = [each[1] for each in found if each and each[1]]
    return sum(each[0] for each in found if each), (now - min(since)).total_seconds() if since else 0.0
