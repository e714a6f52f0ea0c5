"""`conformance`: test a client in any language against the protocol."""

import asyncio
import signal
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sublet.cli.output import document, paint, progress, write
from sublet.connection.settings import Settings
from sublet.devtools.conformance.rules import BY_NAME, CORE, GROUPS, Verdict
from sublet.devtools.conformance.run import examine
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Invalid, did_you_mean


def conformance(args: Namespace) -> int:
    """Test the client and print a verdict per rule. Return 1 if a MUST is violated."""
    names = _names(args.only, args.groups)
    # SIGTERM must end the started processes
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        verdicts = asyncio.run(examine(args.command, _settings(args, stack), names, _progress))
    bad = any(not verdict.kept and verdict.rule.level == "MUST" for verdict in verdicts)
    if args.json:
        document({"ok": not bad, "rules": [_row(verdict) for verdict in verdicts]})
        return int(bad)
    for verdict in verdicts:
        _show(verdict)
    write()
    write(_summary(verdicts))
    return int(bad)


def _names(only: list[str] | None, groups: list[str] | None) -> set[str]:
    for group in groups or ():
        if group not in GROUPS:
            raise Invalid(
                f"there is no group of rules {group[:40]!r}{did_you_mean(group, GROUPS)}; they are: {' '.join(GROUPS)}"
            )
    for name in only or ():
        if name not in BY_NAME:
            raise Invalid(
                f"there is no rule {name[:40]!r}{did_you_mean(name, BY_NAME)}; they are: {' '.join(BY_NAME)}"
            )
    return set(only or CORE).union(*(GROUPS[group] for group in groups or ()))


def _settings(args: Namespace, stack: ExitStack) -> Settings:
    if args.redis_url:
        return replace(Settings.read(args.redis_url), partitions=1)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-"))
    server = stack.enter_context(EmbeddedServer.start(Path(folder), persistent=False))
    return replace(Settings.read(server.url), partitions=1)


def _progress(done: int, of: int) -> None:
    progress(f"{done} of {of} trials" if done < of else "")


def _row(verdict: Verdict) -> dict[str, object]:
    rule = verdict.rule
    broken = {} if verdict.kept else {"found": verdict.seen, "advice": rule.advice}
    return {"name": rule.name, "level": rule.level, "kept": verdict.kept, "sentence": rule.sentence, **broken}


def _show(verdict: Verdict) -> None:
    rule = verdict.rule
    sign = paint("✓", "green") if verdict.kept else paint("✗", "red" if rule.level == "MUST" else "yellow")
    write(f"{sign} {rule.name.ljust(15)}  {paint(rule.level.ljust(6), 'dim')}  {rule.sentence}")
    if not verdict.kept:
        write(f"{' ' * 27}seen: {verdict.seen}")
        write(f"{' ' * 27}{paint('→', 'bold')} {rule.advice}")


def _summary(verdicts: list[Verdict]) -> str:
    counts = {
        level: sum(not v.kept for v in verdicts if v.rule.level == level) for level in ("MUST", "SHOULD")
    }
    kept = f"{sum(v.kept for v in verdicts)} of {len(verdicts)} rules kept"
    broken = ", ".join(f"{count} {level} broken" for level, count in counts.items() if count)
    colour = "red" if counts["MUST"] else "yellow" if broken else "green"
    return paint(f"{kept}{': ' if broken else ''}{broken}", colour)
