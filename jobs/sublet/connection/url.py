"""Redis URLs of one server, a cluster, or a server behind sentinels."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

SCHEMES = ("redis", "rediss", "unix")
FORMS = (
    "use redis://host:port/db, rediss://… or unix:///path; for several servers redis+cluster://host:port,host:port or "
    "redis+sentinel://host:port,host:port/service/db; write / # ? @ in a password as %2F %23 %3F %40"
)
PORTS = {"cluster": 6379, "sentinel": 26379}

_MANY = re.compile(r"(rediss?)\+(cluster|sentinel)://(?:([^/?#]*)@)?([^/?#@]+)(?:/([^?#]*))?(?:\?([^#]*))?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,]+)(?::([0-9]{1,5}))?")
_SERVICE = re.compile(r"([^/]+)(?:/([0-9]*))?")
_DATABASE = re.compile("[0-9]{1,9}")
_YES = ("1", "true", "yes", "on", "t", "y")


class Misplaced(ValueError):
    """The sentinels' service or the database in a URL is wrong. The message has nothing of the URL."""


@dataclass(frozen=True, slots=True)
class MultiServerUrl:
    """A parsed URL of a cluster or of sentinels (`kind`). `user`: `user:password@`, or empty; `service`: the
    primary's name at its sentinels.
    """

    kind: str
    scheme: str
    user: str
    hosts: tuple[str, ...]
    service: str
    database: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, url: str) -> "MultiServerUrl | None":
        """Parse the URL of a cluster or of sentinels; return None for a single server's. Raises ValueError."""
        if not re.match(r"rediss?\+", url):
            return None
        found = _MANY.fullmatch(url)
        if found is None:
            raise ValueError(FORMS)
        scheme, kind, user, hosts, path, query = found.groups()
        place = _SERVICE.fullmatch(path or "") if kind == "sentinel" else re.fullmatch("()(0?)", path or "")
        if place is None:
            raise Misplaced(
                "name the service at the end, as its sentinels do: …/mymaster, or with a database's number …/mymaster/1"
                if kind == "sentinel"
                else "a cluster has database 0 only: leave out the number or name after its hosts"
            )
        addresses = tuple(_address(host, PORTS[kind]) for host in hosts.split(","))
        options = tuple(parse_qsl(query or "", keep_blank_values=True))
        return cls(kind, scheme, f"{user}@" if user else "", addresses, place[1], place[2] or "", options)

    def node(self, address: str) -> str:
        """Return the URL of the server at host:port, with the same user, database and options."""
        return f"{self.scheme}://{self.user}{address}/{self.database}{self._query()}"

    def sentinel(self, address: str) -> str:
        """Return the URL of the sentinel at host:port, with the user and password in `sentinel_…` options."""
        said = dict(self.options)
        user, password = (
            quote(said.get(f"sentinel_{name}", ""), safe="") for name in ("username", "password")
        )
        return f"{self.scheme}://{f'{user}:{password}@' if password else ''}{address}{self._query()}"

    def _query(self) -> str:
        kept = [(name, value) for name, value in self.options if not name.startswith("sentinel_")]
        return f"?{urlencode(kept)}" if kept else ""


def _address(text: str, port: int) -> str:
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a host, or host:port")
    return f"{found[1]}:{found[2] or port}"


def address(host: str, port: int | str) -> str:
    """Return host:port, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain(url: str) -> str:
    """Return the URL with its scheme in lower case."""
    scheme, there, rest = url.partition("://")
    return f"{scheme.lower()}{there}{rest}" if there else url


def servers(url: str) -> Iterator[str]:
    """Yield a URL for each host named in a URL. Raises ValueError."""
    many = MultiServerUrl.read(url)
    if many is None:
        yield url
    else:
        yield from (many.node(host) for host in many.hosts)


def flaw(text: str) -> str:
    """Return why a URL is invalid, without secrets; empty for a valid one."""
    try:
        wrong = [words for url in servers(text) for words in (_flaw(url),) if words]
    except Misplaced as error:
        return str(error)
    except ValueError:  # an invalid port or host, maybe part of a password
        return FORMS
    return wrong[0] if wrong else ""


def _flaw(text: str) -> str:
    parts = urlsplit(text)
    if _is_past_the_ports(parts):
        return "its port is out of range: use 1 to 65535"
    if not _is_server(text):
        return FORMS
    in_path = set() if parts.scheme == "unix" else {parts.path.strip("/")} - {""}
    named = in_path | {
        value for name, value in parse_qsl(parts.query, keep_blank_values=True) if name == "db"
    }
    strange = next((name for name in sorted(named) if not _DATABASE.fullmatch(name)), None)
    if strange is not None:
        return FORMS if "@" in strange else f"database {strange[:40]!r} is not a number; {FORMS}"
    return f"it names several databases: name one; {FORMS}" if len(named) > 1 else ""


def unknown(error: TypeError, url: str) -> str:
    """Return the message for an option in the URL that redis-py does not know, without secrets."""
    if "@" in urlsplit(url).query:
        return FORMS
    found = re.search(r"unexpected keyword argument '([a-z_]{1,40})'", str(error))
    return (
        f"its parameter {found[1]} is not known: leave it out"
        if found
        else "a parameter after its ? is not known, or has a value of a wrong kind: correct it, or leave it out"
    )


def _is_past_the_ports(parts: SplitResult) -> bool:
    port = parts.netloc.rpartition("@")[2].rpartition(":")[2]
    if (
        parts.scheme not in ("redis", "rediss")
        or not re.fullmatch("[0-9]+", port)
        or "@" in parts.path + parts.query
    ):
        return False  # text with an @ may be part of a password
    return not 1 <= int(port) <= 65535


def _is_server(text: str) -> bool:
    parts = urlsplit(text)
    (parts.hostname or "").encode("idna")
    # an unescaped / in a password ends the host
    split = parts.scheme != "unix" and "@" in parts.path
    small = text.startswith(f"{parts.scheme}:")  # redis-py accepts only lower case
    return small and parts.scheme in SCHEMES and parts.port != 0 and not parts.fragment and not split


def unverified(url: str) -> str:
    """Return the option of a URL that switches off the verification of TLS, e.g. `ssl_cert_reqs=none`; empty
    if none does.
    """
    for name, value in parse_qsl(urlsplit(url).query):
        lax = value.lower() not in _YES if name == "ssl_check_hostname" else value.lower() != "required"
        if name in ("ssl_cert_reqs", "ssl_check_hostname") and lax:
            return f"{name}={value}"
    return ""
