"""`Settings`, read from arguments and the environment, and the redis-py clients made from them."""

import contextlib
import importlib.util
import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from sublet.connection.url import flaw, plain, servers, unknown, unverified
from sublet.errors import Invalid
from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.storage import Storage, backend_at, check_above
from sublet.options import PAYLOAD_MAX
from sublet.protocol.keys import check_name

BLOCK_SECONDS = 10

TIMEOUT_MIN = 0.01
"""Minimum of `Settings.timeout` in seconds."""
QUICK_TIMEOUT = 0.8
QUICK_PATIENCE = 0.1
"""For how many seconds an HTTP server repeats a call without a reply."""

DURABILITIES = ("none", "replicated", "fsync")


class ClientFactory(Protocol):
    """Makes redis-py clients; tests use it instead of a URL."""

    def client(self) -> "redis.asyncio.Redis":
        """Return a new asyncio client."""
        ...

    def sync_client(self) -> "redis.Redis":
        """Return a new sync client."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """The address of a namespace, and how a process uses it."""

    redis_url: str = "redis://127.0.0.1:6379"
    namespace: str = "sublet"
    partitions: int = 1
    timeout: float = 2.0
    """Most seconds to wait for a reply of Redis. Must be well under a third of a lease."""
    patience: float = 8.0
    """For at most how many seconds a call without a reply is sent again."""
    allow_eviction: bool = False
    """Accept a server that evicts keys when its memory is full, and so may lose jobs."""
    allow_unverified_tls: bool = False
    """Accept TLS that does not verify the server's certificate or name."""
    durability: str = "none"
    """The confirmation that a submit waits for by default: `none`, `replicated` or `fsync`."""
    replicas: int = 1
    memory: float = 0.9
    """New jobs are refused when more than this share of the server's maxmemory is used (0 to 1); 1: no such
    limit.
    """
    summon: bool = False
    """Whether a submit starts workers of the pools that serve its queue."""
    large_payloads: LargePayloads | None = field(default=None, repr=False)
    """Where payloads and results of more than `large_above` bytes are kept, outside of Redis."""
    large_above: int = PAYLOAD_MAX
    client_factory: ClientFactory | None = field(default=None, repr=False)

    @classmethod
    def read(cls, redis_url: str | None = None, namespace: str | None = None) -> "Settings":
        """Return the settings. Each one is the argument, else the variable SUBLET_<NAME> (the URL: also
        REDIS_URL), else (`patience`, `client_factory`: always) the default. Raises Invalid.
        """
        env, usual = os.environ, cls()
        found = cls(
            redis_url=plain(
                redis_url or env.get("SUBLET_REDIS_URL") or env.get("REDIS_URL") or usual.redis_url
            ),
            namespace=namespace or env.get("SUBLET_NAMESPACE") or usual.namespace,
            partitions=_number("SUBLET_PARTITIONS", usual.partitions, int),
            timeout=_number("SUBLET_TIMEOUT", usual.timeout, float),
            durability=env.get("SUBLET_DURABILITY") or usual.durability,
            replicas=_number("SUBLET_REPLICAS", usual.replicas, int),
            memory=_number("SUBLET_MEMORY", usual.memory, float),
            allow_eviction=_flag("SUBLET_ALLOW_EVICTION"),
            allow_unverified_tls=_flag("SUBLET_ALLOW_UNVERIFIED_TLS"),
            summon=_flag("SUBLET_SUMMON"),
            large_payloads=_backend(env.get("SUBLET_LARGE_PAYLOADS")),
            large_above=check_above(
                "SUBLET_LARGE_ABOVE", _number("SUBLET_LARGE_ABOVE", usual.large_above, int)
            ),
        )
        check_name("namespace", found.namespace)
        if found.durability not in DURABILITIES:
            raise Invalid(f"SUBLET_DURABILITY={found.durability!r}: use {', '.join(DURABILITIES)}")
        found.check_url()
        return found

    def check_url(self) -> None:
        """Raise Invalid for an invalid URL, or for unverified TLS unless that is allowed."""
        wrong = flaw(self.redis_url)
        if wrong:
            raise Invalid(f"{self.named_url}: {wrong}")
        lax = "" if self.allow_unverified_tls else unverified(self.redis_url)
        if lax:
            raise Invalid(
                f"{self.named_url} has {lax}: any server could answer instead. Leave this option out, name your "
                "certificate authority (ssl_ca_certs=/path) if the server's certificate needs one, or set SUBLET_ALLOW_UNVERIFIED_TLS=1 to risk it"
            )

    @property
    def storage(self) -> Storage | None:
        """The storage for large payloads of this namespace; None without `large_payloads`."""
        if self.large_payloads is None:
            return None
        return Storage(self.large_payloads, self.namespace, self.large_above)

    @property
    def named_url(self) -> str:
        """The URL for error messages, without secrets, after its variable's name (else `Redis URL`)."""
        names = ("SUBLET_REDIS_URL", "REDIS_URL")
        source = next(
            (name for name in names if plain(os.environ.get(name, "")) == self.redis_url), "Redis URL"
        )
        return f"{source} {self.shown_url!r}"

    @property
    def shown_url(self) -> str:
        """The URL without user, password and options; a remark if it is malformed."""
        scheme, there, rest = self.redis_url.partition("://")
        if not there or not re.fullmatch(r"[a-z+]{1,16}", scheme):
            return "(not shown: not a URL)"
        return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}"


def quick(settings: Settings) -> Settings:
    """Return settings with so short limits that a call lasts about a second at most (unchanged if SUBLET_TIMEOUT is set)."""
    if os.environ.get("SUBLET_TIMEOUT"):
        return settings
    return replace(settings, timeout=min(settings.timeout, QUICK_TIMEOUT), patience=QUICK_PATIENCE)


def _backend(address: str | None) -> LargePayloads | None:
    try:
        return backend_at(address) if address else None
    except Invalid as error:
        raise Invalid(f"SUBLET_LARGE_PAYLOADS={address!r}: {error}") from None


Number = TypeVar("Number", int, float)


def _flag(name: str) -> bool:
    raw = os.environ.get(name, "")
    if raw not in ("", "0", "1"):
        raise Invalid(f"{name}={raw!r}: use 1 (yes) or 0 (no)")
    return raw == "1"


def _number(name: str, default: Number, kind: type[Number]) -> Number:
    raw = os.environ.get(name)
    if not raw:
        return default
    try:
        value = kind(raw)
    except ValueError:
        value = kind(0)
    if name == "SUBLET_MEMORY" and not 0 < value <= 1:  # false for NaN
        raise Invalid(f"{name}={raw!r}: use a share of Redis's maxmemory, above 0 and up to 1 (1: no limit)")
    if value <= 0:
        raise Invalid(f"{name}={raw!r}: use a {'whole ' if kind is int else ''}number above 0")
    if name == "SUBLET_TIMEOUT" and not TIMEOUT_MIN <= value < float("inf"):
        raise Invalid(f"{name}={raw!r}: use a finite number of seconds, {TIMEOUT_MIN:g} or more")
    return value


def connect(settings: Settings, *, blocking: bool = False) -> "redis.asyncio.Redis":
    """Make an asyncio redis-py client, which the caller closes; `blocking`: for commands that wait on the
    server.
    """
    if settings.client_factory:
        return settings.client_factory.client()
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url, **_options(settings, blocking), retry=AsyncRetry(NoBackoff(), 0)
    )
    return redis.asyncio.Redis.from_pool(pool)


def connect_sync(settings: Settings) -> "redis.Redis":
    """Make a synchronous redis-py client, which the caller closes."""
    if settings.client_factory:
        return settings.client_factory.sync_client()
    options = _options(settings, False)
    if settings.redis_url.startswith("rediss:"):
        options["redis_connect_func"] = _ping_first
    pool = redis.BlockingConnectionPool.from_url(settings.redis_url, **options, retry=Retry(NoBackoff(), 0))
    return redis.Redis.from_pool(pool)


def _ping_first(connection: Any) -> None:
    connection.on_connect()
    connection.send_command("PING")
    with contextlib.suppress(redis.ResponseError):  # denied to this user: a reply, too
        connection.read_response()


_NAMELESS: dict[str, Any] = (
    {"driver_info": None}
    if importlib.util.find_spec("redis.driver_info")
    else {"lib_name": None, "lib_version": None}
)


def check(settings: Settings) -> None:
    """Raise Invalid for a URL that redis-py does not accept. Does not connect."""
    try:
        for url in servers(settings.redis_url):
            connect_sync(replace(settings, redis_url=url)).connection_pool.make_connection()
    except TypeError as error:
        raise Invalid(f"{settings.named_url}: {unknown(error, settings.redis_url)}") from None
    except ValueError as error:
        raise Invalid(f"{settings.named_url}: {error}") from None


def _options(settings: Settings, blocking: bool) -> dict[str, Any]:
    settings.check_url()
    return {
        "max_connections": 4 if blocking else 16,
        "timeout": settings.timeout,
        "socket_timeout": BLOCK_SECONDS + 5 if blocking else settings.timeout,
        "socket_connect_timeout": settings.timeout,
        "protocol": 2,
        **_NAMELESS,
    }
