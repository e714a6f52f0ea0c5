"""What makes a server fit to keep jobs, one function per question, over facts that were gathered once. No I/O."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jobs.cli.output import duration
from jobs.config import Settings
from jobs.pool import Pool
from jobs.scripts import source

LOOPBACK = ("127.0.0.1", "localhost", "::1", "")
SILENT = 60.0
"""Seconds after which a worker, which is to be heard of every 5 s at least, counts as silent."""
LONG_AGO = 3600.0  # seconds after which a call that failed is no news
CALLERS = {  # what to do where a pool is owed workers, by its invoker
    "http": "have cron call sublet tick every minute, with SUBLET_SIGNING_SECRETS",
    "lambda": "have cron call sublet tick every minute, with boto3 and AWS_REGION",
    "process": "run sublet dev MODULE:APP: nothing else starts those, and it does so on its own machine",
    "none": "start them: for this pool nobody is called",
}
FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""CVE-2025-49844: the first patched release of each line; later lines are patched, lines between have no patched release."""


class Facts(NamedTuple):
    """What the server said; None for what it did not."""

    settings: Settings
    now: datetime
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    layouts: list[str | None]
    beyond: bool
    loaded: list[bool] | None
    upkeep: tuple[datetime, str] | None
    overdue: tuple[int, float] | None
    """How much is overdue, and for how many seconds at most."""
    foreign: list[str] | None
    """Keys of the namespace that are of a wrong type."""
    workers: list[tuple[str, datetime]] | None
    """The workers on the register, and when each was last heard of."""
    pools: list[Pool] | None = None
    """The pools, with their sums."""


class Finding(NamedTuple):
    """One line: `ok`, `warn`, `bad` or `unknown`, what was looked at, what was seen, and what to do."""

    level: str
    what: str
    seen: str
    do: str = ""


def server(facts: Facts) -> Iterator[Finding]:
    """Is it a server that the scripts are made for?"""
    name, version = product(facts.info)
    if not version:
        yield Finding("unknown", "server", "it does not say what it is (INFO)", "use Redis 7.0 or Valkey, or newer")
        return
    mode = facts.info.get("redis_mode", facts.info.get("server_mode", "standalone"))
    up = duration(float(facts.info.get("uptime_in_seconds", 0)))
    seen = f"{name.capitalize()} {text(version)}, {mode}, up for {up}, at {facts.settings.shown_url}"
    if version < (7, 0):
        yield Finding("bad", "server", seen, "use Redis 7.0 or Valkey, or newer: the scripts need what came with it")
    elif facts.info.get("role") == "slave":
        yield Finding("bad", "server", "a read-only replica", "name the primary in SUBLET_REDIS_URL")
    elif mode == "cluster":
        yield Finding("warn", "server", seen, "this client does not follow redirections: a queue on another node is refused")
    else:
        yield Finding("ok", "server", seen)


def product(info: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Name and version of the server; an empty version when it does not say."""
    name = "valkey" if "valkey_version" in info else "redis"
    return name, tuple(int(part) for part in re.findall(r"\d+", str(info.get(f"{name}_version", "")))[:3])


def text(version: tuple[int, ...]) -> str:
    """A version with dots."""
    return ".".join(map(str, version))


def security(facts: Facts) -> Iterator[Finding]:
    """Can somebody who may run scripts break out of them?"""
    name, version = product(facts.info)
    if not version:
        return
    fix = first_fixed(name, version)
    if fix:
        yield Finding("warn", "security", f"{text(version)} is below {fix}, where CVE-2025-49844 (Lua) was fixed",
                      "update; or see that your distribution has patched it under the old number")  # fmt: skip
    else:
        yield Finding("ok", "security", "CVE-2025-49844 (Lua) is fixed in this version")


def first_fixed(name: str, version: tuple[int, ...]) -> str:
    """The release to update to; empty when this one has the fix."""
    major, minor, patch = (*version, 0, 0)[:3]
    for line, fixed in sorted(FIXED[name].items()):
        if line >= (major, minor):
            return "" if line == (major, minor) and patch >= fixed else f"{text(line)}.{fixed}"
    return ""


def eviction(facts: Facts) -> Iterator[Finding]:
    """Does it throw jobs away when memory is short?"""
    policy = str(facts.info.get("maxmemory_policy", ""))
    do = "CONFIG SET maxmemory-policy noeviction, and keep it with CONFIG REWRITE"
    if not policy:
        yield Finding("unknown", "eviction", "it does not say (INFO memory)", "see that maxmemory-policy is noeviction")
    elif policy.startswith("allkeys"):
        yield Finding("bad", "eviction", f"{policy}: when memory is short, jobs are thrown away", do)
    elif policy.startswith("volatile"):
        yield Finding("warn", "eviction", f"{policy}: when memory is short, keys may be dropped before their time", do)
    else:
        yield Finding("ok", "eviction", f"{policy}: when memory is short, new jobs are refused and none is lost")


def memory(facts: Facts) -> Iterator[Finding]:
    """Is there room?"""
    if "used_memory" not in facts.info:
        yield Finding("unknown", "memory", "it does not say (INFO memory)")
        return
    used, most = int(facts.info["used_memory"]), int(facts.info.get("maxmemory", 0))
    if not most:
        yield Finding("ok", "memory", f"{size(used)} used, no maxmemory set")
        return
    share = used / most
    seen = f"{size(used)} of {size(most)} used ({share:.0%})"
    do = "raise maxmemory, shorten --retention, or start workers (sublet stats shows the backlog)"
    yield Finding("warn", "memory", seen, do) if share > 0.8 else Finding("ok", "memory", seen)


def size(number: int) -> str:
    """Bytes as people say it."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1024:.0f} KiB"


def persistence(facts: Facts) -> Iterator[Finding]:
    """What is lost when the server dies?"""
    info, save = facts.info, facts.config["save"]
    failed = [name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name, "ok") != "ok"]
    if "aof_enabled" not in info:
        yield Finding("unknown", "persistence", "it does not say (INFO persistence)", "see that appendonly is yes")
    elif failed:
        yield Finding("bad", "persistence", f"the last write to disk failed ({failed[0]})", "make room on its disk; see its log")
    elif int(info["aof_enabled"]):
        every = facts.config["appendfsync"] or "everysec"
        lost = "nothing acknowledged" if every == "always" else "about the last second" if every == "everysec" else "some seconds"
        yield Finding("ok", "persistence", f"AOF, fsync {every}: {lost} is lost if its machine dies")
    elif save or (save is None and int(info.get("rdb_last_save_time", 0))):
        since = duration(facts.now.timestamp() - int(info.get("rdb_last_save_time", facts.now.timestamp())))
        yield Finding("warn", "persistence", f"snapshots only: jobs since the last one ({since} ago) are lost if it dies",
                      "CONFIG SET appendonly yes, and keep it with CONFIG REWRITE")  # fmt: skip
    else:
        yield Finding("bad", "persistence", "none: every job is lost when it restarts",
                      "CONFIG SET appendonly yes, and keep it with CONFIG REWRITE")  # fmt: skip


def connections(facts: Facts) -> Iterator[Finding]:
    """Is there room for more clients?"""
    most, now = facts.info.get("maxclients") or facts.config["maxclients"], facts.info.get("connected_clients")
    if now is None or not most:
        yield Finding("unknown", "connections", "it does not say (INFO clients)")
    elif int(now) > 0.8 * int(most):
        yield Finding("warn", "connections", f"{int(now):,} of {int(most):,}", "raise maxclients, or find who does not hang up")
    else:
        yield Finding("ok", "connections", f"{int(now):,} of {int(most):,}")


def clock(facts: Facts) -> Iterator[Finding]:
    """Do the clocks agree? Redis's decides, so this one is for the reader of times only."""
    seen = f"Redis's is {duration(abs(facts.skew))} {'ahead of' if facts.skew > 0 else 'behind'} ours; Redis's decides"
    if abs(facts.skew) > 5:
        yield Finding("warn", "clock", seen, "set one of them right (NTP): jobs given a moment (--at) start by Redis's")
    else:
        yield Finding("ok", "clock", seen)


def layout(facts: Facts) -> Iterator[Finding]:
    """Is what lives in the namespace ours to read?"""
    ours = re.findall(r"^local LAYOUT = '(\w+)'", source("lib"), re.MULTILINE)[0]
    name, there = facts.settings.namespace, {found for found in facts.layouts if found}
    if facts.beyond:
        yield Finding("bad", "layout", f"namespace {name} has more partitions than the {len(facts.layouts)} that we look at",
                      "set SUBLET_PARTITIONS as everywhere else, or jobs are not seen")  # fmt: skip
    elif there - {ours}:
        other = ", ".join(sorted(there - {ours}))
        yield Finding("bad", "layout", f"namespace {name} has layout {other}, this is for {ours}",
                      "use the sublet that made it, or another namespace (SUBLET_NAMESPACE)")  # fmt: skip
    elif None in facts.layouts:
        yield Finding("unknown", "layout", f"namespace {name} cannot be read (HGET)", "see to the rights of this user (ACL)")
    elif not there:
        yield Finding("ok", "layout", f"namespace {name} is not there yet: the first job makes it")
    else:
        yield Finding("ok", "layout", f"namespace {name}, layout {ours}, partitions: {len(facts.layouts)}")


def foreign(facts: Facts) -> Iterator[Finding]:
    """Has somebody else written here?"""
    if facts.foreign is None:
        yield Finding("unknown", "keys", "their types cannot be seen (TYPE)")
    elif facts.foreign:
        seen = f"of a wrong type, so that scripts stop at it: {', '.join(facts.foreign[:5])}"
        yield Finding("bad", "keys", seen, "find who wrote it; then restore it, or DEL it if what it held can be spared")
    else:
        yield Finding("ok", "keys", "all are of the type that they must be")


def scripts(facts: Facts) -> Iterator[Finding]:
    """Does the server know the scripts?"""
    if facts.loaded is None:
        yield Finding(
            "unknown", "scripts", "it does not say (SCRIPT EXISTS)", "see that this user may run EVAL, EVALSHA and SCRIPT"
        )
    else:
        yield Finding("ok", "scripts", f"{sum(facts.loaded)} of {len(facts.loaded)} loaded; each is when it is first used")


def upkeep(facts: Facts) -> Iterator[Finding]:
    """Does anybody look after what falls due?"""
    at, by = facts.upkeep or (facts.now, "")
    looked = f"last seen to {duration((facts.now - at).total_seconds())} ago by {by}" if by else "nobody ever had to see to it"
    if facts.overdue is None:
        yield Finding("unknown", "upkeep", "what is due cannot be read")
    elif facts.overdue[0]:
        seen = f"{facts.overdue[0]:,} overdue, by up to {duration(facts.overdue[1])}; {looked}"
        yield Finding("warn", "upkeep", seen, "nobody looks: start a worker, or have cron call sublet tick every minute")
    else:
        yield Finding("ok", "upkeep", f"nothing is overdue; {looked}")


def workers(facts: Facts) -> Iterator[Finding]:
    """Is every worker that has not said goodbye still heard of?"""
    if facts.workers is None:
        yield Finding("unknown", "workers", "the register cannot be read")
        return
    silent = [(name, (facts.now - at).total_seconds()) for name, at in facts.workers]
    silent = sorted([each for each in silent if each[1] > SILENT], key=lambda each: each[1])
    if not facts.workers:
        yield Finding("ok", "workers", "none is on the register")
    elif not silent:
        yield Finding("ok", "workers", f"{len(facts.workers):,} on the register, all heard of in the last minute")
    else:
        names = ", ".join(f"{name} for {duration(seconds)}" for name, seconds in silent[:3])
        more = f" and {len(silent) - 3:,} more" if len(silent) > 3 else ""
        seen = f"{len(facts.workers):,} on the register, {len(silent):,} silent: {names}{more}"
        do = "see whether they are dead or cut off; what they held is given on, and after a day they are forgotten"
        yield Finding("warn", "workers", seen, do)


def pools(facts: Facts) -> Iterator[Finding]:
    """Does somebody call the workers that are owed, and do the calls get through?"""
    if facts.pools is None:
        yield Finding("unknown", "pools", "they cannot be read")
        return
    troubled = [words for pool in facts.pools if (words := _trouble(pool, facts.now))]
    yield from (Finding("warn", "pools", seen, do) for seen, do in troubled)
    if not troubled:
        yield Finding("ok", "pools", f"{len(facts.pools):,}, no worker owed" if facts.pools else "none")


def _trouble(pool: Pool, now: datetime) -> tuple[str, str] | None:
    """What is wrong with a pool, and what to do; None for nothing."""
    owed, ago = pool.sum.owed if pool.sum else 0, (now - pool.failed_at).total_seconds() if pool.failed_at else LONG_AGO
    parts = [f"{owed:,} worker{'s' if owed > 1 else ''} owed that nobody has called"] if owed else []
    parts += [f"a call failed {duration(ago)} ago: {pool.failure}"] if ago < LONG_AGO else []
    do = CALLERS[pool.invoker] if ago >= LONG_AGO else "mend what it says; who is owed is called again"
    return (f"{pool.name} ({pool.invoker}): {'; '.join(parts)}", do) if parts else None


def trust(facts: Facts) -> Iterator[Finding]:
    """May anybody on the way listen, or anybody at all come in?"""
    url = urlsplit(facts.settings.redis_url)
    if url.scheme == "unix" or (url.hostname or "") in LOOPBACK:
        yield Finding("ok", "trust", "on this machine only")
        return
    lacks = [word for word, lacking in (("no password", not url.password), ("no TLS", url.scheme != "rediss")) if lacking]
    if lacks:
        yield Finding("warn", "trust", f"{url.hostname} over the network with {' and '.join(lacks)}",
                      "use a password and rediss://, unless the network is yours alone")  # fmt: skip
    else:
        yield Finding("ok", "trust", f"{url.hostname} over TLS, with a password")


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    server, security, eviction, memory, persistence, connections, clock, layout, foreign, scripts, upkeep, workers, pools, trust,
)  # fmt: skip
