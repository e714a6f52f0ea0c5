"""Checks of cluster nodes when a part of the namespace cannot be reached."""

from contextlib import closing, suppress

from sublet.client.sync_client import SyncClient
from sublet.connection.routing import SyncRoutingTransport
from sublet.connection.settings import Settings
from sublet.connection.topology import TopologyMap
from sublet.connection.transport import SyncTransport
from sublet.connection.url import MultiServerUrl
from sublet.errors import Forbidden, Unavailable
from sublet.operations.diagnosis.findings import Finding
from sublet.protocol import reads, server_info


def check_nodes(client: SyncClient) -> list[Finding]:
    """Return a finding per node that has a partition or is in the URL, and one for partitions without a node.
    [] if none answers, or without a cluster.
    """
    settings, transport = client.store.settings, client.store.transport
    many = MultiServerUrl.read(settings.redis_url)
    if not isinstance(transport, SyncRoutingTransport) or many is None or many.kind != "cluster":
        return []
    on = _partitions_by_node(client, transport, many)
    known = TopologyMap(settings, many)
    found = [_check_node(place, known.node(many.node(place)), on[place]) for place in sorted(on) if place]
    answers = any(answers for answers, _ in found)
    return [finding for _, finding in found] + _without_node(on.get("", [])) if answers else []


def _partitions_by_node(
    client: SyncClient, routes: SyncRoutingTransport, many: MultiServerUrl
) -> dict[str, list[str]]:
    on: dict[str, list[str]] = {}
    for base in client.store.operations.bases:
        place = ""
        with suppress(Unavailable):
            place = routes.address(base)
        on.setdefault(place, []).append(base)
    return {host: list[str]() for host in many.hosts} | on


def _check_node(place: str, settings: Settings, bases: list[str]) -> tuple[bool, Finding]:
    with closing(SyncTransport(settings)) as transport:
        try:
            transport.run(server_info.clock())
        except Forbidden:
            pass
        except Unavailable as error:
            lost = f"; out of reach: {', '.join(bases)}" if bases else ""
            found = f"it does not answer ({_reason(error)}){lost}"
            return False, Finding("bad", "node", found, "start it again, or check the network", place)
        return True, _check_partitions(place, transport, bases)


def _check_partitions(place: str, transport: SyncTransport, bases: list[str]) -> Finding:
    for base in bases:
        try:
            transport.run(reads.layout(base))
        except Forbidden:
            break
        except Unavailable as error:
            found = f"it answers, but does not serve {', '.join(bases)}: {_reason(error)}"
            return Finding(
                "bad", "node", found, "check the nodes that do not answer; CLUSTER NODES lists all", place
            )
    return Finding("ok", "node", f"it answers{', and serves ' if bases else ''}{', '.join(bases)}", "", place)


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error).rpartition("caused error: ")[2].rstrip(".")[:160]


def _without_node(bases: list[str]) -> list[Finding]:
    if not bases:
        return []
    return [
        Finding(
            "bad",
            "node",
            f"no node has {', '.join(bases)}",
            "check which hash slots have no node: CLUSTER SLOTS",
        )
    ]
