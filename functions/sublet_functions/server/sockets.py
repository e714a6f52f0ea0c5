"""The sockets on which `sublet serve` listens."""

import contextlib
import errno
import resource
import socket

from sublet.errors import Invalid, JobsError
from sublet_functions.http.auth import HINT, is_loopback

BACKLOG = 1024
"""Most connections of a socket that wait to be accepted."""
CONNECTIONS = 4096
SPARE_FILES = 128
"""File descriptors that are kept for Redis and for connections beyond the limit."""
FREE_PORT_TRIES = 16
NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(host: str, port: int, *, loopback_only: bool) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host, on one port; port 0 finds a free one.

    Raises Invalid for a host that is not this machine, a port that is invalid or needs a privilege and, with
    `loopback_only`, a host that is not loopback; JobsError for a port in use and other failures.
    """
    found = _addresses(host, port)
    others = [address for _, address in found if not is_loopback(address)]
    if loopback_only and others:
        raise Invalid(
            f"host {_named(host, others[0])}: without tokens only loopback addresses are served: set SUBLET_TOKENS to "
            f"NAME:ROLES:SECRET (roles: submit work read payloads metrics tick admin; `{HINT}` makes a secret), or use --host 127.0.0.1"
        )
    for tries_left in reversed(range(FREE_PORT_TRIES)):
        try:
            return _bind_all(found, host, port)
        except JobsError:
            # in use at another address
            if port or not tries_left:
                raise
    raise AssertionError("unreachable")


def _named(host: str, address: str) -> str:
    return host if host == address else f"{host} ({address})"


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    if not 0 <= port <= 65_535:
        raise Invalid(f"port {port}: use 0 to 65535")
    try:
        infos = socket.getaddrinfo(
            host or "127.0.0.1", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise Invalid(
            f"host {host[:80]!r}: the name or address does not exist: use one of this machine, e.g. 127.0.0.1"
        ) from None
    both = {(family, str(address[0])): None for family, _, _, _, address in infos}
    return [one for one in both if one[0] != socket.AF_INET6 or socket.has_ipv6]


def _bind_all(found: list[tuple[socket.AddressFamily, str]], host: str, port: int) -> list[socket.socket]:
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        lacking: OSError | None = None
        for family, address in found:
            own = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(undo.enter_context(_bind(family, address, own)))
            except OSError as error:
                if error.errno not in NO_SUCH_ADDRESS:
                    raise _why(error, host, own) from None
                lacking = lacking or error  # `localhost` is often also ::1
        if not sockets and lacking:
            raise _why(lacking, host, port) from None
        undo.pop_all()
        return sockets


def _bind(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    both = address == "::" and socket.has_dualstack_ipv6()  # includes IPv4
    one = socket.create_server((address, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    one.setblocking(False)
    return one


def _why(error: OSError, host: str, port: int) -> JobsError:
    if error.errno == errno.EADDRINUSE:
        return JobsError(
            f"port {port} is in use: stop the process that listens there, or set another by --port or SUBLET_PORT (0 finds a free one)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Invalid(
            f"port {port} needs a privilege that this process does not have: use one from 1024, e.g. --port 8377"
        )
    if error.errno in NO_SUCH_ADDRESS:
        return Invalid(
            f"host {host}: this machine does not have the address: use 127.0.0.1 for this machine, 0.0.0.0 for all its addresses"
        )
    return JobsError(f"cannot listen on {host} port {port}: {error.strerror or error}")


def url_of(host: str, one: socket.socket) -> str:
    """Return the URL of a listening socket, with the given host."""
    return f"http://{f'[{host}]' if ':' in host else host or '127.0.0.1'}:{one.getsockname()[1]}"


def make_room(connections: int = CONNECTIONS) -> int:
    """Raise this process's limit of file descriptors if needed; return how many of the connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - SPARE_FILES))
