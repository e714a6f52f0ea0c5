"""Which server a partition is on, without I/O: what the nodes of a cluster, or sentinels, are asked and how that is read."""

from binascii import crc_hqx
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.connection.url import Many, address
from sublet.errors import Demoted, Forbidden, JobsError, Moved, Unavailable, Unfit
from sublet.protocol.keys import base
from sublet.protocol.scripts import Call

SLOTS = 16384


class Ask(NamedTuple):
    """A question for one server, by its URL."""

    url: str
    call: Call[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Who serves what: ranges of hash slots, each with the URL of the server that has it."""

    ranges: tuple[tuple[int, int, str], ...]
    _known: dict[str, str] = field(default_factory=dict)

    def of(self, tag: str) -> str:
        """The URL of the server that a hash tag's keys are on. Raises Demoted if there is none now."""
        if tag not in self._known:
            slot = slot_of(tag)
            url = next((url for first, last, url in self.ranges if first <= slot <= last), None)
            if url is None:
                raise Demoted(f"no node of the cluster serves slot {slot} now, where {tag} is")
            self._known[tag] = url
        return self._known[tag]

    @property
    def urls(self) -> list[str]:
        """All servers, each once."""
        return list(dict.fromkeys(url for _, _, url in self.ranges))


Look = Generator[Ask, Any, Found]
"""Yields questions, is sent their answers or the errors that came instead, and returns who serves what."""


def slot_of(tag: str) -> int:
    """The hash slot of a tag, `{sublet:0}`, and so of every key that begins with it."""
    return crc_hqx(tag[1:-1].encode(), 0) % SLOTS


def look(many: Many, tag: str, known: Sequence[str]) -> Look:
    """Ask who serves what, by a cluster's nodes (those that are known first) or by sentinels, until one knows it of this tag.

    Raises Unavailable.
    """
    return _look_at_sentinels(many) if many.kind == "sentinel" else _look_at_cluster(many, tag, known)


class Map:
    """What is known of who serves what, and whom to ask first."""

    def __init__(self, settings: Settings, many: Many) -> None:
        self.settings, self.many = settings, many
        self.home = base(settings.namespace)
        self.found: Found | None = None
        self._known: list[str] = []

    def plan(self, tag: str) -> Look:
        """The questions that tell who serves what."""
        return look(self.many, tag, self._known)

    def take(self, found: Found) -> None:
        """Go by this from now on."""
        self.found, self._known = found, found.urls

    def doubt(self, url: str, error: Exception) -> None:
        """A server did not serve: one that sends us elsewhere is asked first for where that is, another one last."""
        known = self._known  # another thread may put another list there meanwhile, and none changes one
        if url in known:
            others = [each for each in known if each != url]
            self._known = [url, *others] if isinstance(error, Moved) else [*others, url]

    def kept(self, found: Found) -> set[str]:
        """The URLs of the servers that are still of use."""
        return {*found.urls, *map(self.many.sentinel, self.many.hosts)}

    def node(self, url: str) -> Settings:
        """The settings for one server: it is asked once, and whether again is decided here."""
        return replace(self.settings, redis_url=url, patience=0.0)


def node_of(many: Many, tag: str) -> Call[str]:
    """host:port of the node of a cluster that has a partition, for words; empty if nobody has it."""

    def read(slots: Sequence[Any]) -> str:
        ranges = _ranges(many, many.node(many.hosts[0]), slots)
        url = next((url for first, last, url in ranges if first <= slot_of(tag) <= last), "")
        return urlsplit(url).netloc.rpartition("@")[2]

    return Call((("CLUSTER", "SLOTS"),), read)


def _look_at_cluster(many: Many, tag: str, known: Sequence[str]) -> Look:
    error: JobsError = Unavailable("no node of the cluster was asked")
    for url in dict.fromkeys((*known, *map(many.node, many.hosts))):
        try:
            slots = yield Ask(url, Call((("CLUSTER", "SLOTS"),), list))
            found = Found(tuple(_ranges(many, url, slots)))
            found.of(tag)
        except Unavailable as another:
            error = another
        else:
            return found
    raise error


def _ranges(many: Many, asked: str, slots: Sequence[Any]) -> list[tuple[int, int, str]]:
    """What CLUSTER SLOTS answered: of each range the first node, which is the primary. Its host is empty if it has no other
    name than that by which it was asked."""
    ranges = []
    for first, last, (host, port, *_), *_replicas in slots:
        name = _text(host)
        if name == "?":  # it has a name, and does not know it
            continue
        here = many.node(address(name, port)) if name else _at_port(asked, many, port)
        ranges.append((int(first), int(last), here))
    return ranges


def _at_port(asked: str, many: Many, port: int) -> str:
    return many.node(address(urlsplit(asked).hostname or "", port))


def _look_at_sentinels(many: Many) -> Look:
    error: JobsError = Unavailable("no sentinel was asked")
    for host in many.hosts:
        try:
            said = yield Ask(
                many.sentinel(host), Call((("SENTINEL", "GET-MASTER-ADDR-BY-NAME", many.service),), _same)
            )
        except Unfit:
            error = Unfit(f"what answers at {host} is no sentinel: use redis://… in SUBLET_REDIS_URL")
            continue
        except Unavailable as another:
            error = another
            continue
        if said is None:
            error = Unfit(
                f"the sentinel at {host} knows no service {many.service}: see the end of SUBLET_REDIS_URL"
            )
            continue
        url = many.node(address(_text(said[0]), _text(said[1])))
        try:
            if (yield Ask(url, Call((("ROLE",),), _role))) == "master":
                return Found(((0, SLOTS - 1, url),))
            error = Demoted(
                f"the sentinel at {host} names a server that is no primary (yet): {_text(said[0])}:{_text(said[1])}"
            )
        except Forbidden:  # this user may not ask for a server's role
            return Found(((0, SLOTS - 1, url),))
        except Unavailable as another:
            error = another
    raise error


def _same(reply: Any) -> Any:
    return reply


def _role(reply: Any) -> str:
    return _text(reply[0])


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word or "")
