"""Bearer tokens, their roles, and digests of their secrets."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from sublet.connection.held_secrets import environment
from sublet.errors import Invalid
from sublet.scaling.secrets_file import SecretsFile
from sublet_functions.http.problems import Problem
from sublet_functions.http.scope import ENTRIES_MAX, Scope

log = logging.getLogger(__name__)

HINT = "openssl rand -hex 24"
FILE_MAX = 1024 * 1024

_SHAPE = "NAME:ROLES:SECRET or NAME:ROLES@QUEUES:SECRET, e.g. ci:submit,read:<secret>"
_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,64}")
_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+) *")


class Role(StrEnum):
    """The roles of tokens."""

    SUBMIT = "submit"
    """May submit jobs and workflows, send signals, and read the catalogue of tasks."""
    WORK = "work"
    """May claim and settle jobs, run workers, publish tasks, and read the catalogue and its own workers."""
    READ = "read"
    """May read everything but the audit, leases' tokens, payloads, results, checkpoints and values of chunks."""
    PAYLOADS = "payloads"
    """With `read`: may read payloads, results, checkpoints and chunks' values, as do `submit` and `work`."""
    METRICS = "metrics"
    """May read `/stats`, `/metrics` and `/queues`, but no jobs and groups."""
    ADMIN = "admin"
    """May do everything."""
    TICK = "tick"
    """May run ticks."""


SEE_PAYLOADS = frozenset({Role.PAYLOADS, Role.SUBMIT, Role.WORK, Role.ADMIN})


@dataclass(frozen=True, slots=True)
class Principal:
    """A request's client: its name, usually that of its token, and its roles."""

    name: str
    roles: frozenset[Role]
    scope: Scope | None = None
    """The queues that this client may use; None: all of them, and what belongs to no queue."""
    prefix: str = field(init=False, compare=False)
    """What the names of the client's workers in Redis begin with: `name` and a colon. Empty for an admin of
    all queues.
    """

    def __post_init__(self) -> None:
        is_free = Role.ADMIN in self.roles and self.scope is None
        object.__setattr__(self, "prefix", "" if is_free else f"{self.name}:")

    @property
    def sees_payloads(self) -> bool:
        """Whether this client is shown payloads, results, checkpoints and values of chunks."""
        return bool(self.roles & SEE_PAYLOADS)

    def check(self, *entries: str) -> None:
        """Raise Problem unless this client may use all of these queues and patterns."""
        outside = [entry for entry in entries if self.scope is not None and entry not in self.scope]
        if outside:
            raise Problem(
                "forbidden",
                f"the token of {self.name} is limited to the queues {self.scope}, which do not include {outside[0]}: use one of these, or another token",
            )

    def stored(self, name: str) -> str:
        """Return a worker's name in Redis: `prefix` and `name`, or `name` if it begins with that or is the
        client's. Raises Problem for over 128 characters.
        """
        made = name if name == self.name or name.startswith(self.prefix) else self.prefix + name
        if len(made) > NAME_MAX:
            raise Problem(
                "invalid",
                f"worker {name[:80]}…: use at most {NAME_MAX - len(self.prefix)} characters: the name of its token is put in front",
            )
        return made

    def own(self, name: str) -> str:
        """Return a stored worker name without `prefix`."""
        return name.removeprefix(self.prefix)


LOCAL = Principal("anyone", frozenset({Role.ADMIN}))
NAME_MAX = 128
OPENABLE = (Role.TICK, Role.SUBMIT)
"""Roles that SUBLET_OPEN may give to CloudEvents without a token, at `POST /tick` and `POST /jobs`."""

_PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
_Known = tuple[tuple[bytes, Principal], ...]


class Tokens:
    """The valid tokens. Without any, and without `open_for`, every client on this machine has all roles.

    `open_for`: roles of clients without a token that send CloudEvents, for servers that only a platform's
    network can reach. A changed token file is read again; while it is missing, empty or invalid, the last
    tokens stay valid.
    """

    def __init__(self, words: str = "", file: str | Path | None = None, open_for: str = "") -> None:
        self._given = tuple(_parse("SUBLET_TOKENS: word", enumerate(words.split(), 1)))
        self._file = SecretsFile(file, "tokens", FILE_MAX) if file else None
        self._known = _joined(self._given, _of_file(self._file) if self._file else ())
        self.open_roles = _open_roles(open_for)

    @classmethod
    def read(cls, file: str | None = None) -> Tokens:
        """Return the tokens of SUBLET_TOKENS and of a file (`file`, else that of SUBLET_TOKENS_FILE), with the roles of
        SUBLET_OPEN.

        Raises Invalid, without a secret in the message.
        """
        return cls(
            environment().get("SUBLET_TOKENS", ""),
            file or os.environ.get("SUBLET_TOKENS_FILE") or None,
            os.environ.get("SUBLET_OPEN", ""),
        )

    def __len__(self) -> int:
        return len(self._known)

    def __bool__(self) -> bool:
        return self.needed

    def __repr__(self) -> str:
        return f"<{len(self)} tokens>"

    @property
    def needed(self) -> bool:
        """Whether clients need a token. An emptied file does not end this."""
        return bool(self._known or self.open_roles)

    def principal(self, authorization: str | None) -> Principal | None:
        """Return the client for an Authorization header; None for a missing or unknown token. If no tokens
        are needed: a client with all roles.
        """
        if not self.needed:
            return LOCAL
        self._reload()
        bearer = _BEARER.fullmatch(authorization or "")
        digest = _digest(bearer[1] if bearer else "")
        found = None
        for own, principal in self._known:
            if hmac.compare_digest(own, digest):
                found = principal
        return found if bearer else None

    def open_principal(self, roles: frozenset[Role]) -> Principal | None:
        """Return a client with all roles of SUBLET_OPEN if it names one of `roles`, else None."""
        return Principal("open", self.open_roles) if self.open_roles & roles else None

    def untrusted_reason(self, headers: Mapping[str, str]) -> str:
        """Return why a server without tokens must refuse a request; empty if it may answer, or has tokens.

        The headers show requests of web pages in a browser on this machine, also after DNS rebinding.
        """
        if self.needed:
            return ""
        host = headers.get("host", "")
        if not _is_local_host(host):
            return "Host: a server without tokens answers only for localhost, 127.0.0.1 and [::1]: use one in the URL, or set SUBLET_TOKENS"
        if any(name in headers for name in _PROXY_HEADERS):
            return "a server without tokens accepts no request through a proxy: set SUBLET_TOKENS"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return (
                "a server without tokens accepts no request from a page of another origin: set SUBLET_TOKENS"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return (
                "a server without tokens accepts no request from a page of another origin: set SUBLET_TOKENS"
            )
        return ""

    def _reload(self) -> None:
        if self._file is None or not self._file.has_changed():
            return
        try:
            self._known = _joined(self._given, _of_file(self._file))
        except Invalid as error:
            log.error("%s; the %d tokens read before stay valid", error, len(self._known))
        else:
            log.warning(
                "the token file %s has changed: %d tokens are valid now", self._file.path, len(self._known)
            )


def is_loopback(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address."""
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=64)
def _is_local_host(header: str) -> bool:
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return False
    if "@" in header or "%" in header:
        return False
    return parts.netloc == header and is_loopback(parts.hostname or "")


def _open_roles(roles: str) -> frozenset[Role]:
    words = {word.strip() for word in roles.split(",")} - {""}
    if not words <= set(OPENABLE):
        raise Invalid(
            f"SUBLET_OPEN: use {' or '.join(OPENABLE)}, or both with a comma between: all other roles need a token"
        )
    return frozenset(map(Role, words))


def _parse(
    where: str, words: Iterator[tuple[int, str]] | enumerate[str]
) -> Iterator[tuple[bytes, Principal]]:
    for at, word in words:
        name, _, rest = word.partition(":")
        rights, colon, secret = rest.partition(":")
        if "@" in rights:  # the names of queues may contain colons
            rights, colon, secret = rest.rpartition(":")
        if not colon:
            raise Invalid(f"{where} {at} is not {_SHAPE}")
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"{where} {at}: name: use 1 to 64 of A-Z a-z 0-9 _ . -, but not . or .. alone, in {_SHAPE}"
            )
        roles, limited, queues = rights.partition("@")
        if not set(roles.split(",")) <= set(Role):
            raise Invalid(f"{where} {at}: roles: use one or more of {', '.join(Role)}, with commas between")
        scope = Scope.parse(queues) if limited else None
        if limited and scope is None:
            raise Invalid(
                f"{where} {at}: queues: use 1 to {ENTRIES_MAX} names or patterns (mail,tenant-*), with commas between"
            )
        if limited and Role.TICK in roles.split(","):
            raise Invalid(
                f"{where} {at}: roles: a tick is of all queues: give the role tick to a token without @QUEUES"
            )
        if not _SECRET.fullmatch(secret):
            raise Invalid(
                f"{where} {at}: secret: use 16 to 512 of A-Z a-z 0-9 . _ ~ + / = -; `{HINT}` makes one"
            )
        yield _digest(secret), Principal(name, frozenset(map(Role, roles.split(","))), scope)


def _joined(*groups: _Known) -> _Known:
    found: dict[bytes, Principal] = {}
    for digest, principal in (one for group in groups for one in group):
        if found.setdefault(digest, principal) != principal:
            names = " and ".join(sorted({found[digest].name, principal.name}))
            raise Invalid(
                f"two tokens have the same secret but different names, roles or queues (those of {names}): change one secret"
            )
    return tuple(found.items())


def _of_file(file: SecretsFile) -> _Known:
    lines = ((at, line.partition("#")[0].strip()) for at, line in enumerate(file.text().splitlines(), 1))
    found = tuple(_parse(f"{file.path}: line", ((at, line) for at, line in lines if line)))
    if not found:
        raise Invalid(f"the token file {file.path} has no tokens: write one per line, as {_SHAPE}")
    return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
