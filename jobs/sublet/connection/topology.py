"""Which server has which partition: questions to cluster nodes or sentinels, and their answers. No I/O."""

from binascii import crc_hqx
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.connection.url import MultiServerUrl, address
from sublet.errors import Demoted, Forbidden, JobsError, Moved, Unavailable, Unfit
from sublet.protocol.keys import base
from sublet.protocol.scripts import Call

SLOTS = 16384


class Query(NamedTuple):
    """A call to send to the server with this URL."""

    url: str
    call: Call[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """The servers by hash slot, as ranges: first slot, last slot, the server's URL. Of sentinels: one range."""

    ranges: tuple[tuple[int, int, str], ...]
    _known: dict[str, str] = field(default_factory=dict)

    def of(self, tag: str) -> str:
        """Return the URL of the server that has a partition, given as hash tag: `{sublet:0}`. Raises Demoted
        if none has it now.
        """
        if tag not in self._known:
            slot = slot_of(tag)
            url = next((url for first, last, url in self.ranges if first <= slot <= last), None)
            if url is None:
                raise Demoted(
                    f"no node of the cluster serves hash slot {slot} now, in which partition {tag} is: is a node down?"
                )
            self._known[tag] = url
        return self._known[tag]

    @property
    def urls(self) -> list[str]:
        """The URLs of all servers."""
        return list(dict.fromkeys(url for _, _, url in self.ranges))


TopologyPlan = Generator[Query, Any, Topology]
"""A generator that yields queries, gets their replies, and returns the topology."""


def slot_of(tag: str) -> int:
    """Return the hash slot of a tag such as `{sublet:0}`."""
    return crc_hqx(tag[1:-1].encode(), 0) % SLOTS


def discover(many: MultiServerUrl, tag: str, known: Sequence[str]) -> TopologyPlan:
    """Return the plan that finds the server of this partition (hash tag): it asks a cluster's nodes, `known`
    URLs first, or the sentinels. The plan raises Unavailable.
    """
    return _query_sentinels(many) if many.kind == "sentinel" else _query_nodes(many, tag, known)


class TopologyMap:
    """The topology that a client last read, and the servers to ask next."""

    def __init__(self, settings: Settings, many: MultiServerUrl) -> None:
        self.settings, self.many = settings, many
        self.home = base(settings.namespace)
        self.found: Topology | None = None
        self._known: list[str] = []

    def plan(self, tag: str) -> TopologyPlan:
        """Return the plan that reads the topology again."""
        return discover(self.many, tag, self._known)

    def take(self, found: Topology) -> None:
        """Replace the topology by a newer one."""
        self.found, self._known = found, found.urls

    def doubt(self, url: str, error: Exception) -> None:
        """After an error of this server, ask it last for the topology; but first if the error is Moved."""
        known = self._known  # threads replace this list, never change it
        if url in known:
            others = [each for each in known if each != url]
            self._known = [url, *others] if isinstance(error, Moved) else [*others, url]

    def kept(self, found: Topology) -> set[str]:
        """Return the URLs of servers and sentinels whose connections stay open with this topology."""
        return {*found.urls, *map(self.many.sentinel, self.many.hosts)}

    def node(self, url: str) -> Settings:
        """Return settings for one of the servers, with a `patience` of 0."""
        return replace(self.settings, redis_url=url, patience=0.0)


def node_of(many: MultiServerUrl, tag: str) -> Call[str]:
    """Make the call that reads host:port of the server of a partition; empty if none has it."""

    def read(slots: Sequence[Any]) -> str:
        ranges = _ranges(many, many.node(many.hosts[0]), slots)
        url = next((url for first, last, url in ranges if first <= slot_of(tag) <= last), "")
        return urlsplit(url).netloc.rpartition("@")[2]

    return Call((("CLUSTER", "SLOTS"),), read)


def _query_nodes(many: MultiServerUrl, tag: str, known: Sequence[str]) -> TopologyPlan:
    error: JobsError = Unavailable("no node of the cluster was asked")
    for url in dict.fromkeys((*known, *map(many.node, many.hosts))):
        try:
            slots = yield Query(url, Call((("CLUSTER", "SLOTS"),), list))
            found = Topology(tuple(_ranges(many, url, slots)))
            found.of(tag)
        except Unavailable as another:
            error = another
        else:
            return found
    raise error


def _ranges(many: MultiServerUrl, asked: str, slots: Sequence[Any]) -> list[tuple[int, int, str]]:
    ranges = []
    for first, last, (host, port, *_), *_replicas in slots:
        name = _text(host)
        if name == "?":  # the node has a name, and does not know it
            continue
        here = many.node(address(name, port)) if name else _at_port(asked, many, port)
        ranges.append((int(first), int(last), here))
    return ranges


def _at_port(asked: str, many: MultiServerUrl, port: int) -> str:
    return many.node(address(urlsplit(asked).hostname or "", port))


def _query_sentinels(many: MultiServerUrl) -> TopologyPlan:
    error: JobsError = Unavailable("no sentinel was asked")
    for host in many.hosts:
        try:
            said = yield Query(
                many.sentinel(host), Call((("SENTINEL", "GET-MASTER-ADDR-BY-NAME", many.service),), _same)
            )
        except Unfit:
            error = Unfit(
                f"the server at {host} is not a sentinel: use redis://… in SUBLET_REDIS_URL, or name sentinels"
            )
            continue
        except Unavailable as another:
            error = another
            continue
        if said is None:
            error = Unfit(
                f"the sentinel at {host} has no service {many.service}: check the name after the hosts in SUBLET_REDIS_URL"
            )
            continue
        url = many.node(address(_text(said[0]), _text(said[1])))
        try:
            if (yield Query(url, Call((("ROLE",),), _role))) == "master":
                return Topology(((0, SLOTS - 1, url),))
            error = Demoted(
                f"the sentinel at {host} names a server that is not a primary (yet): {_text(said[0])}:{_text(said[1])}; "
                "repeat the call after the failover"
            )
        except Forbidden:
            return Topology(((0, SLOTS - 1, url),))
        except Unavailable as another:
            error = another
    raise error


def _same(reply: Any) -> Any:
    return reply


def _role(reply: Any) -> str:
    return _text(reply[0])


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word or "")
