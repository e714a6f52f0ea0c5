"""Checks of a namespace, without I/O. Each yields findings, one also if all is well."""

import re
from collections.abc import Iterator
from datetime import datetime

from sublet.cli.jobs.unserved import hook_lines, queue_lines, start_worker, task_lines
from sublet.cli.operations.repair import REPAIRS, kinds
from sublet.cli.output import clean, duration
from sublet.cli.parser import program
from sublet.operations.consistency.audit import Fault
from sublet.operations.diagnosis.findings import Facts, Finding, unknown
from sublet.operations.pool import Pool
from sublet.protocol.scripts import source

SILENT = 60.0
LONG_AGO = 3600.0
ELSEWHERE = "set SUBLET_PARTITIONS as everywhere else, or jobs are not found"
UNSEEN = "not checked, because the partition count differs"
CALLERS = {
    "http": "run sublet tick from cron every minute, with SUBLET_SIGNING_SECRETS",
    "lambda": "run sublet tick from cron every minute, with boto3 and AWS_REGION",
    "process": "run sublet dev MODULE:APP: only it starts these, on its own machine",
    "none": "start them: this pool has no invoker",
}


def layout(facts: Facts) -> Iterator[Finding]:
    """Can this version, with its partition count, read the namespace?"""
    ours = re.findall(r"^local LAYOUT = '(\w+)'", source("lib/base"), re.MULTILINE)[0]
    name, there = facts.settings.namespace, {found for found in facts.layouts if found}
    if facts.other_partition_counts:
        has, looked = " or ".join(map(str, sorted(facts.other_partition_counts))), len(facts.layouts)
        yield Finding(
            "bad",
            "layout",
            f"namespace {name} has {has} partitions, and this client is configured for {looked}",
            ELSEWHERE,
        )
    elif "dropped" in there:
        yield Finding("bad", "layout", f"a drop of namespace {name} was interrupted, or is running: it accepts no calls",
                      f"run {program()} drop {name} again")  # fmt: skip
    elif there - {ours}:
        other = ", ".join(sorted(there - {ours}))
        yield Finding("bad", "layout", f"namespace {name} has layout {other}; this version of Sublet needs {ours}",
                      "use the version that created it, or another namespace (SUBLET_NAMESPACE)")  # fmt: skip
    elif None in facts.layouts:
        yield unknown(
            facts, "layout", f"namespace {name} cannot be read (HGET)", "check the rights of this user (ACL)"
        )
    elif facts.lost:
        yield Finding("bad", "layout", f"{', '.join(facts.lost)} is missing, while other keys of namespace {name} exist",
                      f"{program()} doctor --repair creates it again and repairs the rest")  # fmt: skip
    else:
        yield _partitions(facts, ours)


def _partitions(facts: Facts, ours: str) -> Finding:
    name, number, there = (
        facts.settings.namespace,
        len(facts.layouts),
        len([found for found in facts.layouts if found]),
    )
    if not there and facts.audit is None:
        return unknown(
            facts,
            "layout",
            f"namespace {name} does not exist, as far as this user can read",
            "check its rights (ACL)",
        )
    if not there:
        return Finding("ok", "layout", f"namespace {name} does not exist yet: the first job creates it")
    if there < number:
        found = f"namespace {name} has {there} of its {number} partitions"
        return Finding("warn", "layout", found, "the next client creates the others")
    if facts.misplaced:
        names = f"{', '.join(facts.misplaced[:3])}{' …' if len(facts.misplaced) > 3 else ''}"
        found = f"queues in another partition than if namespace {name} had {number} partitions everywhere: {names}"
        advice = f"if {number} is right, a process has another SUBLET_PARTITIONS: submit their jobs again ({program()} list), cancel these"
        return Finding("bad", "layout", found, advice)
    return Finding("ok", "layout", f"namespace {name}, layout {ours}, partitions: {number}")


def key_types(facts: Facts) -> Iterator[Finding]:
    """Does a key have a wrong type or malformed content?"""
    if facts.wrong_type_keys is None:
        yield unknown(facts, "keys", "their types cannot be read (TYPE)")
    elif wrong := [*dict.fromkeys([*facts.wrong_type_keys, *_unreadable_keys(facts)])]:
        waits = (
            len({fault.key for fault in facts.audit.faults if fault.found == "waits"}) if facts.audit else 0
        )
        more = (
            f"; and {waits:,} job{'s wait' if waits > 1 else ' waits'} for it; leave them as they are"
            if waits
            else ""
        )
        found = (
            f"of a wrong type, or malformed, so that scripts stop there: {clean(', '.join(wrong[:5]))}{more}"
        )
        spared = "or DEL it if its content may be lost (if a field or member is named after the key, HDEL or ZREM that)"
        yield Finding(
            "bad", "keys", found, f"find the program that wrote the key; then restore the key, {spared}"
        )
    elif facts.lost:
        yield Finding(
            "unknown",
            "keys",
            f"not all were checked: {', '.join(facts.lost)} is gone",
            f"{program()} doctor --repair, then check again",
        )
    elif not any(facts.layouts):
        yield Finding("ok", "keys", "there are none")
    else:
        yield Finding("ok", "keys", "all checked keys have the right type")


def _unread(facts: Facts, subject: str, found: str) -> Finding:
    return unknown(facts, subject, UNSEEN if facts.other_partition_counts else found)


def _unreadable_keys(facts: Facts) -> list[str]:
    return [fault.key for fault in facts.audit.faults if fault.found == "foreign"] if facts.audit else []


def consistency(facts: Facts) -> Iterator[Finding]:
    """Is the stored data of the jobs consistent?"""
    yield _audited(facts)
    if facts.missing:
        verb = "job was" if facts.missing == 1 else "jobs were"
        found = f"{facts.missing:,} unfinished {verb} deleted by another program, or evicted; the numbers of their queues may be too high"
        yield Finding(
            "warn", "consistency", found, f"{program()} doctor --repair counts the jobs of all queues again"
        )


def _audited(facts: Facts) -> Finding:
    if facts.audit is None:
        return _unread(facts, "consistency", "the stored data cannot be checked (SCAN, EVALSHA)")
    found = f"{facts.audit.looked:,} items checked{'' if facts.audit.whole else ', a sample'}"
    faults = [fault for fault in facts.audit.faults if fault.found not in ("foreign", "waits")]
    if not faults:
        some = "all others" if any(fault.found == "waits" for fault in facts.audit.faults) else "all"
        return Finding("ok", "consistency", f"{found}; {some} are consistent")
    examples = clean(", ".join(f"{fault.name} ({_describe(fault)})" for fault in faults[:3]))
    verb = "is" if len(faults) == 1 else "are"
    return Finding("bad", "consistency", f"{found}; {len(faults):,} {verb} not consistent: {examples}",
                  f"{program()} doctor --repair repairs it, while workers continue")  # fmt: skip


def _describe(fault: Fault) -> str:
    return "; ".join(REPAIRS[kind][0] if kind in REPAIRS else fault.found for kind in kinds(fault))


def retention(facts: Facts) -> Iterator[Finding]:
    """How many finished jobs were deleted before their retention passed? Never bad."""
    if facts.deleted_early is None:
        yield unknown(facts, "retention", "the number of jobs deleted early cannot be read")
    elif facts.deleted_early:
        found = f"{facts.deleted_early:,} dead or cancelled jobs were deleted before their retention passed, because there were too many"
        yield Finding("ok", "retention", f"{found}; since the namespace was created")
    else:
        yield Finding("ok", "retention", "no dead or cancelled job was deleted before its retention passed")
    if facts.results_deleted_early:
        found = f"{facts.results_deleted_early:,} completed jobs, with their results, were deleted before their retention passed"
        yield Finding("ok", "retention", f"{found}; {program()} configure --completed N keeps more")


def scripts(facts: Facts) -> Iterator[Finding]:
    """How many scripts has the server loaded? Never bad."""
    if facts.loaded is None:
        yield unknown(
            facts,
            "scripts",
            "SCRIPT EXISTS failed",
            "make sure that the server allows EVAL, EVALSHA and SCRIPT",
        )
    else:
        yield Finding(
            "ok",
            "scripts",
            f"{sum(facts.loaded)} of {len(facts.loaded)} loaded; each is loaded at its first use",
        )


def maintenance(facts: Facts) -> Iterator[Finding]:
    """Does maintenance run, or is work overdue?"""
    at, by = facts.last_maintenance or (facts.now, "")
    looked = (
        f"last run {duration((facts.now - at).total_seconds())} ago by {by}"
        if by
        else "no maintenance has run yet"
    )
    if facts.overdue is None:
        yield unknown(facts, "maintenance", "the due items cannot be read")
    elif facts.overdue[0]:
        found = f"{facts.overdue[0]:,} overdue, by up to {duration(facts.overdue[1])}; {looked}"
        yield Finding(
            "warn",
            "maintenance",
            found,
            "no maintenance runs: start a worker, or run sublet tick from cron every minute",
        )
    else:
        yield Finding("ok", "maintenance", f"nothing is overdue; {looked}")


def workers(facts: Facts) -> Iterator[Finding]:
    """Has a registered worker (of the 1,000 seen last) had no heartbeat for a minute? Do jobs that wait for the
    results of others occupy all its slots or child processes?
    """
    if facts.workers is None:
        yield _unread(facts, "workers", "the registered workers cannot be read")
        return
    silent = [(name, (facts.now - at).total_seconds()) for name, at in facts.workers]
    silent = sorted([each for each in silent if each[1] > SILENT], key=lambda each: each[1])
    if not facts.workers:
        yield Finding("ok", "workers", "none is registered")
    elif not silent:
        yield Finding(
            "ok", "workers", f"{len(facts.workers):,} registered, all with a heartbeat in the last minute"
        )
    else:
        names = ", ".join(f"{name} for {duration(seconds)}" for name, seconds in silent[:3])
        more = f" and {len(silent) - 3:,} more" if len(silent) > 3 else ""
        found = f"{len(facts.workers):,} registered, {len(silent):,} silent: {names}{more}"
        advice = "check whether they crashed or lost the network; their jobs move on, and their registration expires after a day"
        yield Finding("warn", "workers", found, advice)
    if facts.starved:
        names = f"{', '.join(facts.starved[:3])}{' …' if len(facts.starved) > 3 else ''}"
        found = f"all slots, or child processes, of {len(facts.starved):,} wait for the results of other jobs: {names}"
        advice = "start another worker for the jobs that they wait for, or give these a higher priority"
        yield Finding("warn", "workers", found, advice)


def queues(facts: Facts) -> Iterator[Finding]:
    """Are the queues of waiting jobs served, their tasks known, and the `on_dead` tasks run?"""
    if facts.gaps is None:
        yield _unread(facts, "queues", "the waiting jobs and their workers cannot be read")
        return
    known = f"`{program()} get ID` says which: deploy the app that has the task and takes these arguments to all workers of the queue, or cancel the jobs"
    for line, queue in zip(queue_lines(facts.gaps), facts.gaps.queues, strict=False):
        yield Finding("warn", "queues", line, f"start a worker: {start_worker(queue)}")
    for line in task_lines(facts.gaps):
        yield Finding("warn", "queues", clean(line), known)
    for line in hook_lines(facts.gaps):
        advice = f"start a worker that has the task, or change the setting: {program()} configure QUEUE --on-dead TASK"
        yield Finding("warn", "queues", clean(line), advice)
    if not any(facts.gaps):
        yield Finding("ok", "queues", "no job waits in a queue that no worker serves")


def pools(facts: Facts) -> Iterator[Finding]:
    """Are the owed workers (of the first 100 pools) invoked, and do the invocations succeed?"""
    if facts.pools is None:
        yield unknown(facts, "pools", "they cannot be read")
        return
    troubled = [words for pool in facts.pools if (words := _problem(pool, facts.now))]
    yield from (Finding("warn", "pools", found, advice) for found, advice in troubled)
    if not troubled:
        yield Finding("ok", "pools", f"{len(facts.pools):,}, no worker owed" if facts.pools else "none")


def _problem(pool: Pool, now: datetime) -> tuple[str, str] | None:
    owed, ago = (
        pool.sum.owed if pool.sum else 0,
        (now - pool.failed_at).total_seconds() if pool.failed_at else LONG_AGO,
    )
    parts = [f"{owed:,} worker{'s' if owed > 1 else ''} owed and not invoked"] if owed else []
    parts += [f"an invocation failed {duration(ago)} ago: {pool.failure}"] if ago < LONG_AGO else []
    advice = CALLERS[pool.invoker] if ago >= LONG_AGO else "fix the reason; owed workers are invoked again"
    return (f"{pool.name} ({pool.invoker}): {'; '.join(parts)}", advice) if parts else None
