"""Run the chaos suite for `sublet chaos`: choose the scenarios, run them, report the verdicts."""

import signal
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from sublet.cli.output import document, note, table
from sublet.cli.parser import program
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, did_you_mean
from sublet.protocol import server_info
from tests.faults.chaos.report import document_of, show, status_of
from tests.faults.chaos.run import Run
from tests.faults.chaos.scenario import Scenario, scenarios
from tests.faults.chaos.servers import Server


def run_suite(args: Namespace) -> int:
    """Run the scenarios. Return 1 if a promise was broken, or if no scenario could run."""
    known = scenarios()
    if args.list and args.json:
        document(
            [
                {"name": each.name, "fault": each.fault, "recovery_bound_s": each.recovery}
                for each in known.values()
            ]
        )
        return 0
    if args.list:
        table(("scenario", "fault"), [(each.name, each.fault) for each in known.values()])
        return 0
    url = args.redis_url or ""
    chosen = _choose(known, args.only or (), url)
    _check_server(url, args.binary)
    seed = args.seed if args.seed is not None else int(time.time())
    run = Run(quick=args.quick, seed=seed, url=url, binary=args.binary)
    _check_available(run, chosen if args.only else ())
    where = f"against {url.rpartition('@')[2]}" if url else "on servers of its own"
    note(f"seed {seed}, scenarios: {len(chosen)} of {len(known)}, {where}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    findings = []
    try:
        for finding in run.run_all(chosen):
            findings.append(finding)
            place, verdict = f"{len(findings):>3} of {len(chosen)}", status_of(finding)
            why = f": {'; '.join(finding.failures)}" if finding.failures else ""
            note(f"{place}  {verdict:<8} {finding.scenario.name} in {finding.seconds:.0f} s{why}")
    except KeyboardInterrupt:
        note("interrupted: stopping the running scenarios")
        raise
    findings.sort(key=lambda finding: list(known).index(finding.scenario.name))
    if args.json:
        document(document_of(findings, seed))
    else:
        show(findings)
    return int(not all(finding.ok for finding in findings) or all(finding.skipped for finding in findings))


def _choose(known: Mapping[str, Scenario], names: Sequence[str], url: str) -> list[Scenario]:
    """The scenarios of these names, or all that can run there. Raises Invalid."""
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known)
            raise Invalid(f"unknown scenario {name}{meant or ';'} {program()} chaos --list shows all")
        if url and known[name].own_server:
            raise Invalid(f"{name} cannot run with --redis-url: it kills its own server")
    return [
        each for each in known.values() if (not names or each.name in names) and not (url and each.own_server)
    ]


def _check_available(run: Run, named: Sequence[Scenario]) -> None:
    """Raises Invalid if a scenario that was named cannot run here. Others are reported as "not run"."""
    for each in named:
        if words := run.unavailable(each):
            raise Invalid(f"{each.name} cannot be run here: {words}")


def _check_server(url: str, binary: str | None) -> None:
    """Raises Unavailable if no server answers at the URL, or none can be started."""
    if url:
        with SyncClient(Settings.read(url)) as client:
            client.store.transport.run(server_info.clock())
        return
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        Server(Path(folder), binary=binary).close()
