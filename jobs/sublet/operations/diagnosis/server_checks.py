"""Checks of a server, without I/O."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from sublet.operations.diagnosis.findings import Facts, Finding, unknown
from sublet.operations.text import duration, size

Product = Literal["redis", "valkey"]
Lines = dict[tuple[int, int], int]


class Vulnerability(NamedTuple):
    """A vulnerability of Redis: the first release line that has it, and each line's first release without it."""

    name: str
    since: tuple[int, int]
    fixed: dict[str, Lines]
    """Product → release line → number of its first patched release. Later lines are patched; a line that is
    missing needs the next one.
    """


VULNERABILITIES = (
    Vulnerability("CVE-2025-49844 (Lua)", (0, 0), {
        "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
        "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
    }),
    Vulnerability("CVE-2026-23479 (blocked clients)", (7, 2), {
        "redis": {(7, 2): 14, (7, 4): 9, (8, 2): 6, (8, 4): 3, (8, 6): 3},
        "valkey": {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4},
    }),
    Vulnerability("CVE-2026-81934 (TLS)", (8, 2), {"redis": {(8, 2): 9, (8, 4): 6, (8, 6): 6, (8, 8): 2, (8, 10): 1}, "valkey": {}}),
)  # fmt: skip
"""Usable by any user that may run scripts or block, or any process that reaches the port. The first's
releases also fix CVE-2025-46817, -46818, -46819, CVE-2024-46981 and CVE-2024-31449; the second's
CVE-2026-23631 (Lua) and CVE-2026-25243 (RESTORE).
"""


def server(facts: Facts) -> Iterator[Finding]:
    """Check that the server is a primary of a supported version, and that the URL suits a cluster."""
    name, version = product(facts.info)
    if not version:
        yield unknown(
            facts,
            "server",
            "INFO does not report its version",
            "make sure that it is Redis 7.0 or newer, or Valkey",
        )
        return
    mode = facts.info.get("redis_mode", facts.info.get("server_mode", "standalone"))
    up = duration(float(facts.info.get("uptime_in_seconds", 0)))
    at = f", at {facts.url}" if facts.url else ""
    found = f"{name.capitalize()} {text(version)}, {mode}, up for {up}{at}"
    if version < (7, 0):
        yield Finding(
            "bad", "server", found, "use Redis 7.0 or newer, or Valkey: the scripts need its features"
        )
    elif facts.info.get("role") == "slave":
        yield Finding("bad", "server", "a read-only replica", "name the primary in SUBLET_REDIS_URL")
    elif mode == "cluster" and "+cluster:" not in facts.settings.redis_url:
        advice = "use redis+cluster://… in SUBLET_REDIS_URL: a partition on another node is refused"
        yield Finding("warn", "server", found, advice)
    else:
        yield Finding("ok", "server", found)


def product(info: dict[str, Any]) -> tuple[Product, tuple[int, ...]]:
    """Return `redis` or `valkey`, and the version's numbers, empty if unknown."""
    name: Product = "valkey" if "valkey_version" in info else "redis"
    return name, tuple(int(part) for part in re.findall(r"\d+", str(info.get(f"{name}_version", "")))[:3])


def text(version: tuple[int, ...]) -> str:
    """Return a version as text, such as 7.2.4."""
    return ".".join(map(str, version))


def security(facts: Facts) -> Iterator[Finding]:
    """Check whether VULNERABILITIES affect the server's release; no finding if that is unknown."""
    name, version = product(facts.info)
    if not version:
        return
    open_ones = [
        (fix, vulnerability.name)
        for vulnerability in VULNERABILITIES
        if (fix := first_fixed(name, version, vulnerability))
    ]
    for fix, what in open_ones:
        yield Finding("warn", "security", f"{text(version)} is below {fix}, where {what} was fixed",
                      "update; or check that your distribution has patched the old release")  # fmt: skip
    if not open_ones:
        yield Finding(
            "ok",
            "security",
            f"this version is not affected by {', '.join(vulnerability.name for vulnerability in VULNERABILITIES)}",
        )


def first_fixed(
    name: str, version: tuple[int, ...], vulnerability: Vulnerability = VULNERABILITIES[0]
) -> str:
    """Return the first patched release, such as 7.2.11; "" if this version is not affected."""
    major, minor, patch = (*version, 0, 0)[:3]
    if (major, minor) < vulnerability.since:
        return ""
    for line, fixed in sorted(vulnerability.fixed[name].items()):
        if line >= (major, minor):
            return "" if line == (major, minor) and patch >= fixed else f"{text(line)}.{fixed}"
    return ""


def eviction(facts: Facts) -> Iterator[Finding]:
    """Check whether the server may evict jobs when its memory is full."""
    policy = str(facts.info.get("maxmemory_policy", ""))
    advice = "CONFIG SET maxmemory-policy noeviction, and keep it with CONFIG REWRITE"
    if not policy:
        yield unknown(
            facts,
            "eviction",
            "INFO does not report maxmemory_policy",
            "make sure that maxmemory-policy is noeviction",
        )
    elif policy.startswith("allkeys"):
        yield Finding("bad", "eviction", f"{policy}: when memory is short, jobs are evicted", advice)
    elif policy.startswith("volatile"):
        yield Finding(
            "warn",
            "eviction",
            f"{policy}: when memory is short, keys may be evicted before they expire",
            advice,
        )
    else:
        yield Finding(
            "ok", "eviction", f"{policy}: when memory is short, new jobs are refused and none is lost"
        )


def memory(facts: Facts) -> Iterator[Finding]:
    """Check whether over 80 % of `maxmemory` is used, or so much that new jobs are refused."""
    used, most = used_memory(facts.info), int(facts.info.get("maxmemory", 0))
    if used is None:
        yield unknown(facts, "memory", "INFO does not report used_memory")
        return
    if not most:
        yield Finding("ok", "memory", f"{size(used)} used, no maxmemory set")
        return
    share = used / most
    found = f"{size(used)} of {size(most)} used ({share:.0%})"
    advice = (
        f"raise maxmemory, start workers ({facts.program} stats shows the backlog), "
        f"or keep fewer finished jobs ({facts.program} configure --completed N)"
    )
    if share > facts.settings.memory or share >= 1:
        yield Finding(
            "bad",
            "memory",
            f"{found}: new jobs are refused, from {facts.settings.memory:.0%} on (SUBLET_MEMORY)",
            advice,
        )
    else:
        yield Finding("warn", "memory", found, advice) if share > 0.8 else Finding("ok", "memory", found)


def used_memory(info: dict[str, Any]) -> int | None:
    """Return the bytes that count for maxmemory; None if unknown."""
    if "used_memory" not in info:
        return None
    return max(0, int(info["used_memory"]) - int(info.get("mem_not_counted_for_evict", 0)))


def persistence_kind(facts: Facts) -> Literal["aof", "snapshots", "none"] | None:
    """Return how the server stores jobs on disk, as far as the user may read that; None if unknown."""
    info, save = facts.info, facts.config["save"]
    if "aof_enabled" not in info:
        return None
    if int(info["aof_enabled"]):
        return "aof"
    return "snapshots" if save or (save is None and int(info.get("rdb_last_save_time", 0))) else "none"


def persistence(facts: Facts) -> Iterator[Finding]:
    """Check how much data a crash of the server would lose."""
    info, kind = facts.info, persistence_kind(facts)
    failed = [
        name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(name, "ok") != "ok"
    ]
    if kind is None:
        yield unknown(
            facts, "persistence", "INFO does not report aof_enabled", "make sure that appendonly is yes"
        )
    elif failed:
        yield Finding(
            "bad",
            "persistence",
            f"the last write to disk failed ({failed[0]})",
            "free space on the server's disk; see its log",
        )
    elif kind == "aof":
        every = facts.config["appendfsync"] or "everysec"
        lost = (
            "nothing acknowledged"
            if every == "always"
            else "about the last second"
            if every == "everysec"
            else "some seconds"
        )
        yield Finding("ok", "persistence", f"AOF, fsync {every}: {lost} is lost if the machine dies")
    elif kind == "snapshots":
        since = duration(facts.now.timestamp() - int(info.get("rdb_last_save_time", facts.now.timestamp())))
        yield Finding("warn", "persistence", f"snapshots only: jobs since the last one ({since} ago) are lost if the server dies",
                      "CONFIG SET appendonly yes, and keep it with CONFIG REWRITE")  # fmt: skip
    else:
        yield Finding("bad", "persistence", "none: every job is lost when the server restarts",
                      "CONFIG SET appendonly yes, and keep it with CONFIG REWRITE")  # fmt: skip


def durability(facts: Facts) -> Iterator[Finding]:
    """Check whether the server can confirm the durability that submits ask for."""
    asked, info = facts.settings.durability, facts.info
    found = f"submits wait for {asked} (SUBLET_DURABILITY)"
    if asked == "none":
        yield Finding("ok", "durability", "submits wait for Redis's reply only (SUBLET_DURABILITY)")
    elif not product(info)[1]:
        yield unknown(facts, "durability", f"{found}; INFO does not report whether the server can")
    elif asked == "replicated":
        has, wants = replicas(info), facts.settings.replicas
        there = f"{has} of {wants} replicas (SUBLET_REPLICAS) {'is' if has == 1 else 'are'} there"
        if has < wants:
            yield Finding(
                "bad", "durability", f"{found}; {there}: submits stay unconfirmed", "check the replicas"
            )
        else:
            yield Finding("ok", "durability", f"{found}; {there}")
    elif lacks := _durability_obstacle(facts):
        yield Finding("bad", "durability", f"{found}, and the server cannot: {lacks[0]}", lacks[1])
    elif facts.config["appendfsync"] is None:
        yield unknown(
            facts,
            "durability",
            f"{found}; CONFIG does not report appendfsync",
            "make sure that appendfsync is always",
        )
    else:
        yield Finding("ok", "durability", f"{found}, and the server can: its appendfsync is always")


def replicas(info: dict[str, Any]) -> int:
    """Return how many replicas are online."""
    return sum("online" in str(value) for name, value in info.items() if re.fullmatch(r"slave\d+", name))


def _durability_obstacle(facts: Facts) -> tuple[str, str] | None:
    name, version = product(facts.info)
    if name == "redis" and version < (7, 2):
        return (
            f"Redis {text(version)} has no WAITAOF",
            "use Redis 7.2 or newer, or Valkey; or ask for none, with appendfsync always",
        )
    if not int(facts.info.get("aof_enabled", 0)):
        return "it has no append-only file", "CONFIG SET appendonly yes, and keep it with CONFIG REWRITE"
    if facts.config["appendfsync"] not in (None, "always"):
        return (
            f"appendfsync is {facts.config['appendfsync']}",
            "CONFIG SET appendfsync always, and keep it with CONFIG REWRITE",
        )
    return None


def connections(facts: Facts) -> Iterator[Finding]:
    """Check whether over 80 % of the server's possible clients are connected."""
    most, now = (
        facts.info.get("maxclients") or facts.config["maxclients"],
        facts.info.get("connected_clients"),
    )
    if now is None or not most:
        yield unknown(facts, "connections", "INFO does not report the clients")
    elif int(now) > 0.8 * int(most):
        yield Finding(
            "warn",
            "connections",
            f"{int(now):,} of {int(most):,}",
            "raise maxclients, or find the clients that do not disconnect",
        )
    else:
        yield Finding("ok", "connections", f"{int(now):,} of {int(most):,}")


def clock(facts: Facts) -> Iterator[Finding]:
    """Check whether the clocks of Redis and of this machine differ by over 5 s."""
    found = f"Redis's is {duration(abs(facts.skew))} {'ahead of' if facts.skew > 0 else 'behind'} ours; Redis's decides"
    if abs(facts.skew) > 5:
        yield Finding(
            "warn",
            "clock",
            found,
            "correct one of them (NTP): jobs with a start time (--at) start by Redis's",
        )
    else:
        yield Finding("ok", "clock", found)


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    server, security, eviction, memory, persistence, durability, connections,
)  # fmt: skip
"""The checks that only need the replies to INFO and CONFIG."""
