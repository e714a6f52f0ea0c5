"""The state of a namespace's Redis servers, without their addresses."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sublet.connection.settings import Settings
from sublet.errors import Forbidden, Unfit
from sublet.operations.diagnosis import server_checks
from sublet.operations.diagnosis.findings import Facts, Level
from sublet.protocol import server_info
from sublet.protocol.plan import Plan

CONFIG = ("save", "appendfsync", "maxclients")
COMMANDS = 6
LEVELS: tuple[Level, ...] = ("bad", "warn", "unknown", "ok")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Check(_Frozen):
    """One finding about a server."""

    level: Level
    subject: str
    text: str
    advice: str


class ServerState(_Frozen):
    """The state of one Redis server. None: unknown."""

    product: server_checks.Product | None
    version: str | None
    mode: str | None
    """`standalone`, `cluster` or `sentinel`."""
    uptime_seconds: int | None
    is_replica: bool | None
    replicas: int | None
    """How many replicas are online."""
    used_memory_bytes: int | None
    """Bytes of memory that count for `maxmemory`."""
    maxmemory_bytes: int | None
    """The memory limit in bytes; 0: none."""
    eviction_policy: str | None
    persistence: Literal["aof", "snapshots", "none"] | None
    appendfsync: str | None
    checks: tuple[Check, ...]


class ServerReport(_Frozen):
    """All servers of the namespace. `level` is the worst level of their checks."""

    level: Level
    servers: tuple[ServerState, ...]


def report(settings: Settings, bases: Sequence[str]) -> Plan[ServerReport]:
    """Return the state of the servers, given one partition of each. Raises Forbidden without the right to
    INFO.
    """
    servers = []
    for base in bases:
        now, info = yield server_info.state(base)
        servers.append(_state(settings, now, info, (yield from _config(base))))
    found = {check.level for server in servers for check in server.checks}
    return ServerReport(level=next(level for level in LEVELS if level in found), servers=tuple(servers))


def _config(base: str) -> Plan[dict[str, str | None]]:
    unknown: dict[str, str | None] = dict.fromkeys(CONFIG)
    try:
        known: dict[str, str] = yield server_info.configs(base, CONFIG)
    except (Forbidden, Unfit):  # managed servers have no CONFIG
        return unknown
    return unknown | known


def _state(
    settings: Settings, now: datetime, info: Mapping[str, Any], config: dict[str, str | None]
) -> ServerState:
    facts = Facts(settings, now, 0.0, dict(info), config)
    name, version = server_checks.product(facts.info)
    return ServerState(
        product=name if version else None,
        version=server_checks.text(version) or None,
        mode=info.get("redis_mode", info.get("server_mode")),
        uptime_seconds=_whole(info, "uptime_in_seconds"),
        is_replica=info["role"] == "slave" if "role" in info else None,
        replicas=server_checks.replicas(facts.info) if "role" in info else None,
        used_memory_bytes=server_checks.used_memory(facts.info),
        maxmemory_bytes=_whole(info, "maxmemory"),
        eviction_policy=info.get("maxmemory_policy"),
        persistence=server_checks.persistence_kind(facts),
        appendfsync=config["appendfsync"],
        checks=tuple(
            Check(level=one.level, subject=one.subject, text=one.found, advice=one.advice)
            for check in server_checks.CHECKS
            for one in check(facts)
        ),
    )


def _whole(info: Mapping[str, Any], name: str) -> int | None:
    return int(info[name]) if name in info else None
