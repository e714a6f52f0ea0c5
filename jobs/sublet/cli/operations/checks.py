"""All checks of the doctor, in order."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from sublet.cli.operations import namespace_checks as namespace
from sublet.operations.diagnosis import server_checks
from sublet.operations.diagnosis.findings import Facts, Finding

LOOPBACK = ("127.0.0.1", "localhost", "::1", "")


def trust(facts: Facts) -> Iterator[Finding]:
    """Is the connection on this machine, or encrypted and with a password?"""
    url = urlsplit(facts.settings.redis_url)
    if url.scheme == "unix" or (url.hostname or "") in LOOPBACK:
        yield Finding("ok", "trust", "on this machine only")
        return
    plain = not url.scheme.startswith("rediss")
    lacks = [word for word, lacking in (("no password", not url.password), ("no TLS", plain)) if lacking]
    if lacks:
        yield Finding("warn", "trust", f"{url.hostname} over the network with {' and '.join(lacks)}",
                      "use a password and rediss://, unless the network is private")  # fmt: skip
    else:
        yield Finding("ok", "trust", f"{url.hostname} over TLS, with a password")


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *server_checks.CHECKS, server_checks.clock, namespace.layout, namespace.key_types, namespace.consistency, namespace.retention,
    namespace.scripts, namespace.maintenance, namespace.workers, namespace.queues, namespace.pools, trust,
)  # fmt: skip
OF_NODE = frozenset({*server_checks.CHECKS, server_checks.clock, namespace.scripts})
