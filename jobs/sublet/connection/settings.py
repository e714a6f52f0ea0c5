"""Where the settings come from (flag > environment > default), and the clients that are made of them.

redis-py must be told: it silently re-sends scripts up to ten times unless `Retry(NoBackoff(), 0)` forbids it, and its default
pool fails instead of waiting when all connections are in use.
"""

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
from sublet.protocol.keys import is_name

BLOCK_SECONDS = 10
"""How long one blocking read may wait on the server; the socket of a client for blocking reads waits 5 s longer."""

TIMEOUT_MIN = 0.01
"""Seconds that one call to Redis may take, at least: much less is no time, and a wait of 0 ms has no end."""
QUICK_TIMEOUT = 0.8
"""Seconds that one call to Redis may take where somebody waits for an answer: they are told within a second."""
QUICK_PATIENCE = 0.1
"""Seconds after which a call that got no answer is not sent again there. A connection that broke is made anew in less."""

DURABILITIES = ("none", "replicated", "fsync")
"""What a submit waits for, the weakest first: for nothing but Redis itself, for replicas, or for Redis's disk."""


class ClientFactory(Protocol):
    """Makes Redis clients of its own, where no URL leads (see `sublet.testing`)."""

    def client(self) -> "redis.asyncio.Redis":
        """A new asyncio client."""
        ...

    def sync_client(self) -> "redis.Redis":
        """A new client for code without an event loop."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process must know to find its jobs. `Settings.read()` takes it from the environment."""

    redis_url: str = "redis://127.0.0.1:6379"
    namespace: str = "sublet"
    partitions: int = 1
    timeout: float = 2.0
    """Seconds that one call to Redis may take: well under a third of a lease."""
    patience: float = 8.0
    """Seconds after which a call without an answer is not sent again: Redis remembers a claim for 10."""
    allow_eviction: bool = False
    """Work on a server that is set to evict keys, and so may lose jobs."""
    allow_unverified_tls: bool = False
    """Take a URL that has TLS not look at the server's certificate, or at the name in it: whoever is on the way may listen."""
    durability: str = "none"
    """What a submit waits for that asks for nothing itself: one of DURABILITIES (`docs/guides/durability.md`)."""
    replicas: int = 1
    """How many replicas must have a `replicated` submit."""
    memory: float = 0.9
    """The share of Redis's maxmemory from which on no jobs are taken in; the rest goes on. 1: no guard (`docs/guides/memory.md`)."""
    summon: bool = False
    """Whoever submits jobs also has workers summoned for them, where pools say so (`docs/guides/scaling.md`)."""
    client_factory: ClientFactory | None = field(default=None, repr=False)
    """Makes the clients, instead of the URL."""

    @classmethod
    def read(cls, redis_url: str | None = None, namespace: str | None = None) -> "Settings":
        """Take each setting from the argument, else SUBLET_<NAME>, else (the URL) REDIS_URL, else the default."""
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
            allow_eviction=env.get("SUBLET_ALLOW_EVICTION", "") not in ("", "0"),
            allow_unverified_tls=env.get("SUBLET_ALLOW_UNVERIFIED_TLS", "") not in ("", "0"),
            summon=env.get("SUBLET_SUMMON", "") not in ("", "0"),
        )
        if not is_name(found.namespace):
            raise Invalid(f"namespace {found.namespace[:80]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
        if found.durability not in DURABILITIES:
            raise Invalid(f"SUBLET_DURABILITY={found.durability!r}: use {', '.join(DURABILITIES)}")
        found.check_url()
        return found

    def check_url(self) -> None:
        """Raise Invalid for a URL that cannot be, or that would trust any server, unless that is asked for in words."""
        wrong = flaw(self.redis_url)
        if wrong:
            raise Invalid(f"SUBLET_REDIS_URL {self.shown_url!r}: {wrong}")
        lax = "" if self.allow_unverified_tls else unverified(self.redis_url)
        if lax:
            raise Invalid(
                f"SUBLET_REDIS_URL {self.shown_url!r} has {lax}: whoever is on the way could be the server. Name its certificate "
                "authority instead (ssl_ca_certs=/path), or set SUBLET_ALLOW_UNVERIFIED_TLS=1 to risk it"
            )

    @property
    def shown_url(self) -> str:
        """The URL without its password, for messages: nothing that stands before an @, or behind the address. Never raises."""
        scheme, there, rest = self.redis_url.partition("://")
        if not there or not re.fullmatch(r"[a-z+]{1,16}", scheme):
            return "(not shown: it is no URL)"
        return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}"


def quick(settings: Settings) -> Settings:
    """The settings for who must answer within a second, also when Redis does not; SUBLET_TIMEOUT still has its way."""
    if os.environ.get("SUBLET_TIMEOUT"):
        return settings
    return replace(settings, timeout=min(settings.timeout, QUICK_TIMEOUT), patience=QUICK_PATIENCE)


Number = TypeVar("Number", int, float)


def _number(name: str, default: Number, kind: type[Number]) -> Number:
    raw = os.environ.get(name)
    if not raw:
        return default
    try:
        value = kind(raw)
    except ValueError:
        value = kind(0)
    if name == "SUBLET_MEMORY" and not 0 < value <= 1:  # nor what is no number
        raise Invalid(f"{name}={raw!r}: use a share of Redis's maxmemory, above 0 and up to 1 (no guard)")
    if value <= 0:
        raise Invalid(f"{name}={raw!r}: use a number above 0")
    if name == "SUBLET_TIMEOUT" and not TIMEOUT_MIN <= value < float("inf"):  # nor what is no number
        raise Invalid(f"{name}={raw!r}: use seconds, {TIMEOUT_MIN:g} or more")
    return value


def connect(settings: Settings, *, blocking: bool = False) -> "redis.asyncio.Redis":
    """An asyncio client that never re-sends by itself; `blocking` for reads that wait on the server."""
    if settings.client_factory:
        return settings.client_factory.client()
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url, **_options(settings, blocking), retry=AsyncRetry(NoBackoff(), 0)
    )
    return redis.asyncio.Redis.from_pool(pool)


def connect_sync(settings: Settings) -> "redis.Redis":
    """The same for code without an event loop."""
    if settings.client_factory:
        return settings.client_factory.sync_client()
    options = _options(settings, False)
    if settings.redis_url.startswith("rediss:"):
        options["redis_connect_func"] = _greet
    pool = redis.BlockingConnectionPool.from_url(settings.redis_url, **options, retry=Retry(NoBackoff(), 0))
    return redis.Redis.from_pool(pool)


def _greet(connection: Any) -> None:
    """Say something first over TLS: what the server sends after the handshake is read with the answer.

    Else redis-py sees that there is something to read, takes it for a reply that nobody waits for, and gives the connection up.
    """
    connection.on_connect()
    connection.send_command("PING")
    with contextlib.suppress(redis.ResponseError):  # this user may not say that: an answer it is
        connection.read_response()


_NAMELESS: dict[str, Any] = (
    {"driver_info": None}
    if importlib.util.find_spec("redis.driver_info")
    else {"lib_name": None, "lib_version": None}
)
"""A process that lives for a second need not tell the server each time by which library it speaks: that is two commands."""


def check(settings: Settings) -> None:
    """Raise Invalid for a URL whose parts cannot be understood. Nothing is connected."""
    try:
        for url in servers(settings.redis_url):
            connect_sync(replace(settings, redis_url=url)).connection_pool.make_connection()
    except TypeError as error:
        raise Invalid(
            f"SUBLET_REDIS_URL {settings.shown_url!r}: {unknown(error, settings.redis_url)}"
        ) from None
    except ValueError as error:
        raise Invalid(f"SUBLET_REDIS_URL {settings.shown_url!r}: {error}") from None


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
