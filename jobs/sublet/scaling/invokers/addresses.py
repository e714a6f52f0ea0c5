"""Which addresses may be called: by default https on the public internet, for a pool's target is what an operator typed.

What is inside (this machine, its network, the platform's metadata service) answers to whoever can reach it, so nobody outside may
choose what this process calls there. Looked at twice: a target when it is set, as far as it says an address itself, and every
address at the moment of connecting, when a name may mean another one than before.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from sublet.errors import Invalid
from sublet.scaling.invokers.aside import aside

TARGET_MAX = 2048
"""Characters that a URL may have."""
LOOKUPS = 16
"""Names that are looked up at once."""
SAY_SO = "SUBLET_INVOKE_PRIVATE=1 allows it"

_NAME = re.compile(r"(?=.{1,253}\.?$)(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_PUBLIC_6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
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
            "168.63.129.16/32",  # Azure's own service for its machines, by an address that looks public
            *(
                "2001::/23",
                "2001:db8::/32",
                "2002::/16",
                "3fff::/20",
            ),  # Teredo and 6to4 carry an IPv4 address inside
        ),
    )
)
"""What is not the public internet (IANA's special-purpose registries); of IPv6, all beyond 2000::/3 is none either."""

Address = tuple[Any, ...]
AddressInfo = tuple[Any, Any, int, str, Address]
Resolve = Callable[[str, int, int], Awaitable[list[AddressInfo]]]
"""What `getaddrinfo` does: host, port and family to addresses."""


class NotAllowed(OSError):
    """An address that must not be called. An OSError, for that is what becomes of a connection that cannot be made."""


def is_public(text: str) -> bool:
    """Is this an address of the public internet, in plain spelling? An IPv4 address inside of an IPv6 one must be so, too."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:  # how a network without IPv4 reaches it
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        if address.scope_id or address not in _PUBLIC_6:
            return False
    return (
        address.is_global and not address.is_multicast and not any(address in network for network in _INSIDE)
    )


def check_url(text: str, *, private: bool) -> None:
    """Look at a URL that is to be called. Raises Invalid, saying what is wrong, for one that cannot be or must not be.

    Names are not looked up: what they mean is checked at the moment of connecting.
    """
    if not 1 <= len(text) <= TARGET_MAX or not re.fullmatch(r"[!-\[\]-~]+", text):
        raise Invalid(
            f"the target must be a URL of 1 to {TARGET_MAX:,} visible ASCII characters, without a backslash"
        )
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Invalid(f"the target is no URL: {error}") from None
    if parts.scheme not in ("https", "http") or not text.lower().startswith(f"{parts.scheme}://"):
        raise Invalid("the target must begin with https://")
    if "@" in parts.netloc:
        raise Invalid(
            "the target must not hold a user or a password: requests are signed, and URLs are shown"
        )
    if "#" in text:
        raise Invalid("the target must have no fragment (#…): it would never be sent")
    if port == 0:
        raise Invalid("the target's port must be 1 to 65535")
    if parts.scheme == "http" and not private:
        raise Invalid(
            f"the target must begin with https://; in the clear, others could read and keep what is sent ({SAY_SO})"
        )
    _check_host(host, parts.netloc, private)


def _check_host(host: str, netloc: str, private: bool) -> None:
    is_literal = netloc.startswith("[")
    last = host.rstrip(".").rpartition(".")[2]
    if is_literal or _NUMBER.fullmatch(
        last
    ):  # a host that ends in a number is an IPv4 address, to whoever connects
        try:
            ipaddress.IPv6Address(host) if is_literal else ipaddress.IPv4Address(host)
        except ValueError:
            raise Invalid(
                f"the target's host {host[:80]!r} is no address in plain spelling, e.g. 192.0.2.7 or [2001:db8::7]"
            ) from None
        if "%" in host or (not private and not is_public(host)):
            raise Invalid(f"the target's address {host[:80]} is not public ({SAY_SO})")
    elif not _NAME.fullmatch(host):
        raise Invalid(
            "the target's host must be a name of letters, digits, dots and hyphens (xn--… for others), or an address"
        )
    elif not private and (
        host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(".localhost")
    ):
        raise Invalid(f"the target's host {host[:80]} is this machine ({SAY_SO})")


class Guard:
    """Stands where connections are made: gives aiohttp its addresses, and each of its sockets."""

    def __init__(self, *, private: bool, resolve: Resolve | None = None) -> None:
        self._private, self._lookups = private, Lookups()
        self._look_up = resolve or self._lookups

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[dict[str, Any]]:
        """What a name means at this moment, as aiohttp's resolvers say it. Raises NotAllowed if any of it is not public."""
        found = await self._look_up(host, port, family)
        for _, _, _, _, address in found:
            self.check(address, host)
        return [
            {"hostname": host, "host": address[0], "port": address[1], "family": kind, "proto": proto,
             "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV}
            for kind, _, proto, _, address in found
        ]  # fmt: skip

    async def close(self) -> None:
        """Wait for no name any more."""
        await self._lookups.close()

    def open(self, info: AddressInfo) -> socket.socket:
        """The socket that is about to be connected to this very address: the last look, and the one that counts."""
        family, kind, proto, _, address = info
        self.check(address)
        return socket.socket(family, kind, proto)

    def check(self, address: Address, host: str = "") -> None:
        """Raise NotAllowed for an address that is not public, unless those are allowed."""
        scoped = len(address) > 3 and address[3]
        if not self._private and (scoped or not is_public(address[0])):
            raise NotAllowed(
                f"{f'{host} means ' if host else ''}{address[0]}, which is not a public address ({SAY_SO})"
            )


class Lookups:
    """Looks names up, each in a thread of its own.

    A resolver may hang for longer than anybody waits, and whoever else has a name looked up by the event loop, as for Redis, must
    not stand in line behind it, nor the process's end wait for it. So as not to have ever more threads, who asks for a name that
    is being looked up waits for that, and beyond so many names there is no answer.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, int, int], asyncio.Task[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int, family: int) -> list[AddressInfo]:
        """The addresses of a name. Raises OSError."""
        key = host, port, family
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= LOOKUPS:
                raise socket.gaierror(
                    socket.EAI_AGAIN, f"no answer yet to {LOOKUPS} other names that were looked up"
                )
            task = self._under_way[key] = asyncio.create_task(aside(lambda: _getaddrinfo(host, port, family)))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)  # who stops waiting leaves it to the others

    async def close(self) -> None:
        """Leave those that are under way to themselves."""
        left = tuple(self._under_way.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _getaddrinfo(host: str, port: int, family: int) -> list[AddressInfo]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
