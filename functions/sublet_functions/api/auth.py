"""Who may do what over HTTP: bearer tokens, each with a name and roles. Of the secrets only digests are kept."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from sublet.errors import Invalid
from sublet.scaling.secrets_file import SecretsFile

log = logging.getLogger(__name__)

HINT = "openssl rand -hex 24"
"""A command that makes a secret."""
FILE_MAX = 1024 * 1024
"""Bytes that the file may have."""

_SHAPE = "NAME:ROLES:SECRET, e.g. ci:submit,read:<secret>"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+) *")


class Role(StrEnum):
    """What a token is for."""

    SUBMIT = "submit"
    """Store jobs, and look at one."""
    WORK = "work"
    """All that a worker needs."""
    READ = "read"
    """See everything but the leases' tokens."""
    ADMIN = "admin"
    """Everything."""
    TICK = "tick"
    """The upkeep, from a cron."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a name, which several tokens may share, and what this token is for."""

    name: str
    roles: frozenset[Role]


ANYONE = Principal("anyone", frozenset({Role.ADMIN}))
"""Whoever asks where no token is needed, which is on this machine alone."""

_OF_PROXIES = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers that say that a request came through a proxy."""
OPENABLE = (Role.TICK, Role.SUBMIT)
"""Roles for which a server may be open, and then only for what an event may stand for: that shows nothing, and may come twice."""
_Known = tuple[tuple[bytes, Principal], ...]


class Tokens:
    """The tokens that are valid. `Tokens.read()` takes them from the environment; without any, everybody may do everything.

    `open_for` are roles for which nobody needs one, if an event may stand for what is asked: for a server that only a platform's
    own network reaches, and that is called by what can send no token.

    A file of tokens is read again when it has changed. If it is gone or broken then, the tokens that were read before stay.
    """

    def __init__(self, words: str = "", file: str | Path | None = None, open_for: str = "") -> None:
        self._given = tuple(_parse("SUBLET_TOKENS: word", enumerate(words.split(), 1)))
        self._file = SecretsFile(file, "tokens", FILE_MAX) if file else None
        self._known = _joined(self._given, _of_file(self._file) if self._file else ())
        self.opened = _opened(open_for)
        """Roles for which no token is needed, for what an event may stand for."""

    @classmethod
    def read(cls, file: str | None = None) -> Tokens:
        """Those of SUBLET_TOKENS, and of the file that is given here or named by SUBLET_TOKENS_FILE; open for SUBLET_OPEN.

        Raises Invalid, with the place of what is wrong, and never with a secret.
        """
        return cls(
            os.environ.get("SUBLET_TOKENS", ""),
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
        """Must a caller have one? That is decided at the start: no file that changes can open the door to all."""
        return bool(self._known or self.opened)

    def principal(self, authorization: str | None) -> Principal | None:
        """Whom the Authorization header names; None for a token that is missing, or is none of ours.

        It is compared with all tokens, and no comparison ends early: how long it takes says nothing about any of them.
        """
        if not self.needed:
            return ANYONE
        self._look()
        said = _BEARER.fullmatch(authorization or "")
        digest = _digest(said[1] if said else "")
        found = None
        for own, principal in self._known:
            if hmac.compare_digest(own, digest):
                found = principal
        return found if said else None

    def is_name(self, name: str) -> bool:
        """Is this the name of a token that is valid?"""
        return any(principal.name == name for _, principal in self._known)

    def stray(self, roles: frozenset[Role]) -> Principal | None:
        """Whoever sends no token, if this server is open for one of these roles; else None."""
        return Principal("open", self.opened) if self.opened & roles else None

    def stranger(self, headers: Mapping[str, str]) -> str:
        """Why a request must not be let in although no token is needed; empty when it may come in.

        Any page in a browser on this machine can send requests here. The browser says so, in headers that no page can forge;
        and a name that somebody has made to mean 127.0.0.1 (DNS rebinding) stands in `Host`.
        """
        if self.needed:
            return ""
        host = headers.get("host", "")
        if not _means_this_machine(host):
            return "without a token, this server answers only by the names localhost, 127.0.0.1 and [::1]"
        if any(name in headers for name in _OF_PROXIES):
            return "without a token, nothing may come through a proxy: whoever reaches that would reach this"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "without a token, no other site's page may come here"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return "without a token, no page of another origin may come here"
        return ""

    def _look(self) -> None:
        """Read the file again, if it has changed."""
        if self._file is None or not self._file.has_changed():
            return
        try:
            self._known = _joined(self._given, _of_file(self._file))
        except Invalid as error:
            log.error("%s; the %d tokens that were read before stay valid", error, len(self._known))
        else:
            log.warning("%s has changed: %d tokens are valid now", self._file.path, len(self._known))


def is_loopback(host: str) -> bool:
    """Is this a name or an address of this machine that others cannot reach?"""
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=64)
def _means_this_machine(header: str) -> bool:
    """Does this Host header name a loopback address?"""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises for one that cannot be
        odd = (
            "@" in header or "%" in header
        )  # no zone of an address belongs here, nor anything that looks like one
        return parts.netloc == header and not odd and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def _opened(roles: str) -> frozenset[Role]:
    """The roles that SUBLET_OPEN names. Raises Invalid for one that takes a token."""
    words = {word.strip() for word in roles.split(",")} - {""}
    if not words <= set(OPENABLE):
        raise Invalid(
            f"SUBLET_OPEN: use {' or '.join(OPENABLE)}, or both with a comma between: all else takes a token"
        )
    return frozenset(map(Role, words))


def _parse(
    where: str, words: Iterator[tuple[int, str]] | enumerate[str]
) -> Iterator[tuple[bytes, Principal]]:
    """The digests of some tokens and whose they are. Raises Invalid; nothing that it says was in a word."""
    for at, word in words:
        name, _, rest = word.partition(":")
        roles, colon, secret = rest.partition(":")
        if not colon:
            raise Invalid(f"{where} {at} is not {_SHAPE}")
        if not _NAME.fullmatch(name):
            raise Invalid(f"{where} {at}: its name must be 1 to 64 of A-Z a-z 0-9 _ . - (it is {_SHAPE})")
        if not set(roles.split(",")) <= set(Role):
            raise Invalid(
                f"{where} {at}: its second part must be roles, with commas between, of: {', '.join(Role)}"
            )
        if not _SECRET.fullmatch(secret):
            raise Invalid(
                f"{where} {at}: its secret must be 16 to 512 of A-Z a-z 0-9 . _ ~ + / = -; `{HINT}` makes a good one"
            )
        yield _digest(secret), Principal(name, frozenset(map(Role, roles.split(","))))


def _joined(*groups: _Known) -> _Known:
    """All of them together. Raises Invalid if a secret would stand for two names, or for different roles."""
    found: dict[bytes, Principal] = {}
    for digest, principal in (one for group in groups for one in group):
        if found.setdefault(digest, principal) != principal:
            names = " and ".join(sorted({found[digest].name, principal.name}))
            raise Invalid(
                f"two tokens have the same secret but not the same name and roles (those of {names})"
            )
    return tuple(found.items())


def _of_file(file: SecretsFile) -> _Known:
    lines = ((at, line.partition("#")[0].strip()) for at, line in enumerate(file.text().splitlines(), 1))
    found = tuple(_parse(f"{file.path}: line", ((at, line) for at, line in lines if line)))
    if not found:
        raise Invalid(f"the file of tokens {file.path} holds none; each line is {_SHAPE}")
    return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
