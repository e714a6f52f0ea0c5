"""Addresses that may be called. By default only public ones with TLS: a pool's target is external input, and
private services often trust every caller (SSRF). `Reach` has the other choices.

The target is checked when it is set, and every address at connecting: a name may resolve differently by then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

from sublet.errors import Invalid
from sublet.scaling.invokers.thread_call import run_in_thread

TARGET_MAX = 1024
LOOKUPS = 16

_NAME = re.compile(r"(?=.{1,253}\.?$)(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_PUBLIC_6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_WITH_IPV4 = tuple(
    map(ipaddress.ip_network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            # AWS, Google, Azure and most others; tasks and pods of AWS
            *("169.254.169.0/24", "169.254.170.0/24", "fd00:ec2::/32", "fd20:ce::/32"),
            # Tencent, Scaleway, Alibaba, Azure's host, Oracle
            *("169.254.0.23/32", "169.254.42.42/32", "fd00:42::42/128", "100.100.100.200/32"),
            *("168.63.129.16/32", "192.0.0.192/32"),
        ),
    )
)
"""Metadata services of clouds."""
_INSIDE = tuple(
    map(
        ipaddress.ip_network,
        (
            *(
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.0.0.0/24",
            ),
            *(
                "192.0.2.0/24",
                "192.88.99.0/24",
                "192.168.0.0/16",
                "198.18.0.0/15",
                "198.51.100.0/24",
                "203.0.113.0/24",
            ),
            *("224.0.0.0/4", "240.0.0.0/4"),
            # Azure's service for its machines
            "168.63.129.16/32",
            # Teredo and 6to4 addresses contain an IPv4 address
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
"""IANA's special-purpose registries. All of IPv6 outside of 2000::/3 is not public either."""

Address = tuple[Any, ...]
AddressInfo = tuple[Any, Any, int, str, Address]
Resolve = Callable[[str, int, int], Awaitable[list[AddressInfo]]]


class Reach(IntEnum):
    """Which addresses an invoker may call; each value includes those before it."""

    PUBLIC = 0
    """Public addresses, only with TLS."""
    PRIVATE = 1
    """Public addresses and private networks, also without TLS."""
    LOCAL = 2
    """All addresses but the metadata services of clouds."""


_SETTING = {Reach.PRIVATE: "1", Reach.LOCAL: "local"}
_KIND = {
    Reach.PRIVATE: "is not public",
    Reach.LOCAL: "is this machine, link-local or reserved, and not public",
}


def how_to_allow(reach: Reach) -> str:
    """Return `SUBLET_INVOKE_PRIVATE=1 allows it` for PRIVATE, `…=local …` for LOCAL; not for PUBLIC."""
    return f"SUBLET_INVOKE_PRIVATE={_SETTING[reach]} allows it"


class NotAllowed(OSError):
    """This IP address must not be called."""


def is_public(text: str) -> bool:
    """Whether a text is a public IP address in canonical form. An IPv6 address that contains an IPv4 one
    is public only as NAT64 of a public one.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        if address.scope_id or address not in _PUBLIC_6:
            return False
    return (
        address.is_global and not address.is_multicast and not any(address in network for network in _INSIDE)
    )


def reach_of(text: str) -> Reach | None:
    """Return the least reach that allows an IP address. None: it is a cloud's metadata service, which is
    never allowed, or not an address in canonical form.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    forms = [address, *_embedded(address)]
    if isinstance(address, ipaddress.IPv6Address):
        forms.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    if any(form in network for form in forms for network in _NEVER):
        return None
    if is_public(text):
        return Reach.PUBLIC
    inner = [*_embedded(address)] or [address]
    scoped = isinstance(address, ipaddress.IPv6Address) and address.scope_id
    is_private = all(is_public(str(form)) or any(form in network for network in _PRIVATE) for form in inner)
    return Reach.PRIVATE if is_private and not scoped else Reach.LOCAL


def _embedded(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return
    if any(address in network for network in _WITH_IPV4) and int(address) > 1:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour:
        yield address.sixtofour
    yield from address.teredo or ()


def check_url(text: str, *, reach: Reach) -> None:
    """Raise Invalid unless this reach allows a target URL (at most 1,024 characters, no user, no fragment).
    Names are not resolved. HTTP without TLS needs PRIVATE; `localhost` needs LOCAL.
    """
    if not 1 <= len(text) <= TARGET_MAX or not re.fullmatch(r"[!-\[\]-~]+", text):
        raise Invalid(
            f"the target must be a URL of 1 to {TARGET_MAX:,} visible ASCII characters, without a backslash"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Invalid(f"the target is not a valid URL: {error}") from None
    if parts.scheme not in ("https", "http") or not text.lower().startswith(f"{parts.scheme}://"):
        raise Invalid("the target must begin with https://")
    if "@" in parts.netloc:
        raise Invalid(
            "the target must not contain a user or a password: URLs are shown, and requests are signed instead"
        )
    if "#" in text:
        raise Invalid("the target must not have a fragment (#…): it would not be sent")
    if port == 0:
        raise Invalid("the target's port must be 1 to 65535")
    if parts.scheme == "http" and reach is Reach.PUBLIC:
        raise Invalid(
            f"the target must begin with https://: without TLS others can read the request ({how_to_allow(Reach.PRIVATE)})"
        )
    _check_host(host, parts.netloc, reach)


def _check_host(host: str, netloc: str, reach: Reach) -> None:
    is_literal = netloc.startswith("[")
    last = host.rstrip(".").rpartition(".")[2]
    # A host that ends in a number is connected to as an IPv4 address.
    if is_literal or _NUMBER.fullmatch(last):
        try:
            ipaddress.IPv6Address(host) if is_literal else ipaddress.IPv4Address(host)
        except ValueError:
            raise Invalid(
                f"the target's host {host[:80]!r} is not an address in canonical form, e.g. 192.0.2.7 or [2001:db8::7]"
            ) from None
        if "%" in host:
            raise Invalid(
                f"the target's address {host[:80]} has a zone (%…): use a name, or an address without one"
            )
        if why := refusal_of(host, reach):
            raise Invalid(f"the target's address {host[:80]} {why}")
    elif not _NAME.fullmatch(host):
        raise Invalid(
            "the target's host must be a name of letters, digits, dots and hyphens (xn--… for others), or an address"
        )
    elif reach < Reach.LOCAL and f".{host.rstrip('.').lower()}".endswith(".localhost"):
        raise Invalid(f"the target's host {host[:80]} is this machine ({how_to_allow(Reach.LOCAL)})")


def refusal_of(address: str, reach: Reach) -> str:
    """Return why this reach does not allow an address; empty if it does."""
    needed = reach_of(address)
    if needed is None:
        return "is never called: it is a cloud's metadata service, or not in canonical form"
    return f"{_KIND[needed]} ({how_to_allow(needed)})" if needed > reach else ""


class AddressGuard:
    """Resolves names and makes sockets for aiohttp, and refuses addresses beyond its reach."""

    def __init__(self, reach: Reach, resolve: Resolve | None = None) -> None:
        self._reach, self._lookups = reach, Lookups()
        self._look_up = resolve or self._lookups
        self._inside: set[str] = set()

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        """Return a name's addresses in aiohttp's form. Raises OSError; NotAllowed if any is beyond reach."""
        found = await self._look_up(host, port, family)
        for _, _, _, _, address in found:
            self.check(address, host)
        inside = any(reach_of(address[0]) is not Reach.PUBLIC for _, _, _, _, address in found)
        (self._inside.add if inside else self._inside.discard)(host)
        return [
            {"hostname": host, "host": address[0], "port": address[1], "family": kind, "proto": proto,
             "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV}
            for kind, _, proto, _, address in found
        ]  # fmt: skip

    def is_inside(self, url: str) -> bool:
        """Whether a URL's host is a private or local address, or a name that last resolved to one."""
        host = urlsplit(url).hostname or ""
        return host in self._inside or reach_of(host) in (Reach.PRIVATE, Reach.LOCAL)

    async def close(self) -> None:
        """Give up the lookups under way."""
        await self._lookups.close()

    def open(self, info: AddressInfo) -> socket.socket:
        """Return a new, unconnected socket for this address. Raises NotAllowed if it is beyond the reach."""
        family, kind, proto, _, address = info
        self.check(address)
        return socket.socket(family, kind, proto)

    def check(self, address: Address, host: str = "") -> None:
        """Raise NotAllowed for an address beyond the reach. `host` is for the message."""
        why = refusal_of(address[0], self._reach)
        if not why and len(address) > 3 and address[3] and self._reach < Reach.LOCAL:
            why = f"{_KIND[Reach.LOCAL]} ({how_to_allow(Reach.LOCAL)})"
        if why:
            raise NotAllowed(f"{f'{host} resolves to ' if host else ''}{address[0]}, which {why}")


class Lookups:
    """Resolves names, each in its own thread: one that hangs must not delay other lookups, nor the end of
    the process. Beyond 16 at once a lookup fails. A repeated lookup shares the one under way.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, int, int], asyncio.Task[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int, family: int) -> list[AddressInfo]:
        """Return a name's addresses, as `getaddrinfo` does. Raises OSError."""
        key = host, port, family
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= LOOKUPS:
                raise socket.gaierror(socket.EAI_AGAIN, f"{LOOKUPS} other lookups are still under way")
            task = self._under_way[key] = asyncio.create_task(
                run_in_thread(lambda: _getaddrinfo(host, port, family))
            )
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up the lookups under way; their threads may run on."""
        left = tuple(self._under_way.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _getaddrinfo(host: str, port: int, family: int) -> list[AddressInfo]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
