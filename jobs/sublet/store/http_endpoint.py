"""The URL and token of the HTTP API, and the exceptions for its refusals."""

import contextlib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sublet.connection.held_secrets import environment
from sublet.errors import REFUSALS, Denied, Invalid, JobsError, Unavailable, Unconfirmed
from sublet.store.http_codec import Answer

PROBLEM = "urn:sublet:problem:"
SAID = 500

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,1024}")
_OF_A_JOB = re.compile(r"GET /jobs/|POST /jobs/[^/]+/")


def address(url: str | None = None) -> tuple[str, str | Path | None]:
    """Return the API's URL (`url`, else SUBLET_SOURCE, else empty) and token (SUBLET_TOKEN, else the path in
    SUBLET_TOKEN_FILE, else None).
    """
    env = environment()
    file = env.get("SUBLET_TOKEN_FILE")
    return url or env.get("SUBLET_SOURCE", ""), env.get("SUBLET_TOKEN") or (Path(file) if file else None)


class Endpoint:
    """The API's URL and token (or the token's file). Raises Invalid for an invalid URL or token, or an
    unreadable file. No message contains the token.
    """

    def __init__(self, url: str, token: str | Path | None = None) -> None:
        self.url = _checked(url)
        self._file = token if isinstance(token, Path) else None
        self._token = _fit(_first_line(token) if isinstance(token, Path) else token or "")

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates a request, with the token as last read; empty without one."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def renew(self, sent: Mapping[str, str]) -> bool:
        """Read the token's file, if any, again, after the API refused the headers `sent`. True: the token has
        changed.
        """
        if self._file:
            with contextlib.suppress(Invalid):  # perhaps it is being replaced
                self._token = _fit(_first_line(self._file))
        return self.headers != sent

    @property
    def is_overheard(self) -> bool:
        """Whether the token is sent over plain HTTP to another machine."""
        parts = urlsplit(self.url)
        return bool(self._token) and parts.scheme == "http" and not _is_loopback(parts.hostname or "")

    def refusal(self, answer: Answer, asked: str) -> JobsError:
        """Return the error for an answer whose status is not 2xx. `asked`: the request's method and path."""
        status, content = answer.status, answer.headers.get("Content-Type", "no content type")[:80]
        kind, detail = _problem(answer) if content.startswith("application/problem+json") else ("", "")
        if status in (401, 403):
            return self._denied(status, detail)
        is_path = detail.startswith("no such path") or not _OF_A_JOB.match(asked)
        if _code(kind) == "NOT_FOUND" and is_path:
            return self.foreign(f"{status} to {asked}")
        if _code(kind) in REFUSALS:
            return REFUSALS[_code(kind)](detail)
        if 300 <= status < 400:
            to = _shown(answer.headers.get("Location", ""))
            return Unavailable(
                f"the API at {self.url} redirects ({status}, to {to}): use that server's address in SUBLET_SOURCE or --source",
                lasting=True,
            )
        is_invalid = (
            kind and status in (400, 412, 414, 415, 422, 431) and _code(kind) != "UNSUPPORTED_VERSION"
        )
        if status == 413 or is_invalid:
            return Invalid(
                detail or f"the API at {self.url} refused the request ({status}): send fewer or smaller jobs"
            )
        if _code(kind) == "UNCONFIRMED":
            return Unconfirmed(detail)
        if kind:
            return Unavailable(
                f"the API at {self.url} did not serve the request: {detail}",
                lasting=_code(kind) in ("UNSUPPORTED_VERSION", "METHOD_NOT_ALLOWED"),
            )
        # A 5xx may be a proxy's, while the API is away
        return self.foreign(f"{status}, {content}", lasting=status < 500)

    def item(self, kind: str, detail: str) -> JobsError:
        """Return the error for one refused item of a batch: by `kind`, the problem's type; else Invalid."""
        return REFUSALS.get(_code(kind), Invalid)(detail)

    def _denied(self, status: int, detail: str) -> Denied:
        what, variable = f"the API at {self.url}", "SUBLET_TOKEN_FILE" if self._file else "SUBLET_TOKEN"
        reason = f" ({detail})" if detail else ""
        if not self._token:
            return Denied(
                f"{what} requires a token{reason if status == 403 else ''}: set SUBLET_TOKEN, or SUBLET_TOKEN_FILE to a file with one"
            )
        if status == 401:
            return Denied(f"{what} refuses this token: check {variable}")
        needed = "" if "is limited to" in detail else "a worker needs one with the role `work`; "
        return Denied(f"{what} refuses this token for this request{reason}: {needed}check {variable}")

    def foreign(self, what: str, lasting: bool = True) -> Unavailable:
        """Return the error for an answer, `what`, that did not come from the API. `lasting`: waiting is
        useless.
        """
        return Unavailable(
            f"the server at {self.url} did not answer as the API of Sublet ({what}): is the API up, and is the address (--source, SUBLET_SOURCE) right?",
            lasting=lasting,
        )

    def away(self, why: str) -> Unavailable:
        """Return the error for a request without an answer; `why` is the cause."""
        return Unavailable(
            f"no answer from the API at {self.url} ({why}): is it up, and is the address (--source, SUBLET_SOURCE) right?",
            lasting="WRONG_VERSION_NUMBER" in why,
        )


def _problem(answer: Answer) -> tuple[str, str]:
    try:
        document = answer.json()
        found = str(document["type"]), str(document.get("detail", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    return (found[0], found[1][:SAID]) if found[0].startswith(PROBLEM) else ("", "")


def _code(kind: str) -> str:
    return kind.removeprefix(PROBLEM).upper().replace("-", "_")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        whole = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
            and url.strip().isprintable()
        )
    except ValueError:
        whole = False
    if not whole or " " in url.strip():
        raise Invalid(
            f"SUBLET_SOURCE or --source: {_shown(url)!r}: use the API's address, e.g. https://jobs.example.com"
        )
    if "@" in parts.netloc:
        raise Invalid(
            f"SUBLET_SOURCE or --source: {_shown(url)!r}: remove the user and password, and put the token into SUBLET_TOKEN"
        )
    if "?" in url or "#" in url:
        raise Invalid(f"SUBLET_SOURCE or --source: {_shown(url)!r}: remove the ? or # and what follows it")
    return url.strip().rstrip("/")


def _shown(url: str) -> str:
    before, slashes, rest = url.strip().partition("://")
    host, slash, path = rest.partition("/")
    return re.split(r"[?#]", f"{before}{slashes}{host.rpartition('@')[2]}{slash}{path}")[0][:200]


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _first_line(file: Path) -> str:
    try:
        return next(iter(file.read_text("utf-8").split()), "")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Invalid(
            f"SUBLET_TOKEN_FILE {str(file)!r} cannot be read ({why}): check its path, rights and encoding (UTF-8)"
        ) from None


def _fit(token: str) -> str:
    token = token.strip()
    if token and not _TOKEN.fullmatch(token):
        raise Invalid(
            "the token (SUBLET_TOKEN or the file SUBLET_TOKEN_FILE) is not valid: use the secret alone, the part after the last : of NAME:ROLES:SECRET"
        )
    return token
