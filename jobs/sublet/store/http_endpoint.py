"""Where the HTTP API is, as whom we come to it, and what its refusals mean. Without I/O but for the file of a token."""

import contextlib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sublet.errors import REFUSALS, Denied, Invalid, JobsError, Unavailable, Unconfirmed
from sublet.store.http_codec import Answer

PROBLEM = "urn:sublet:problem:"
"""What the type of each of the API's problem documents begins with."""
SAID = 500
"""Characters of somebody else's words that we pass on."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,1024}")


def address(url: str | None = None) -> tuple[str, str | Path | None]:
    """A URL, else SUBLET_SOURCE, and the token from SUBLET_TOKEN, else the path of its file from SUBLET_TOKEN_FILE."""
    env = os.environ
    file = env.get("SUBLET_TOKEN_FILE")
    return url or env.get("SUBLET_SOURCE", ""), env.get("SUBLET_TOKEN") or (Path(file) if file else None)


class Endpoint:
    """The API at a URL, and a token for it. Raises Invalid for a URL or a token that cannot be.

    `token` may be the path of a file that has it. The token itself is in no message, and in no repr.
    """

    def __init__(self, url: str, token: str | Path | None = None) -> None:
        self.url = _checked(url)
        self._file = token if isinstance(token, Path) else None
        self._token = _fit(_first_line(token) if isinstance(token, Path) else token or "")

    @property
    def headers(self) -> dict[str, str]:
        """What says who we are."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def renew(self, sent: Mapping[str, str]) -> bool:
        """The token of a request's headers was refused: is there another by now, or in its file?"""
        if self._file:
            with contextlib.suppress(
                Invalid
            ):  # it is being replaced, perhaps; the refusal says what is wrong
                self._token = _fit(_first_line(self._file))
        return self.headers != sent

    @property
    def is_overheard(self) -> bool:
        """Does a token go over a network in the clear?"""
        parts = urlsplit(self.url)
        return bool(self._token) and parts.scheme == "http" and not _is_loopback(parts.hostname or "")

    def refusal(self, answer: Answer, asked: str) -> JobsError:
        """The error for an answer that is none of the 200s, to a request (method and path)."""
        status, content = answer.status, answer.headers.get("Content-Type", "no content type")[:80]
        kind, detail = _problem(answer) if content.startswith("application/problem+json") else ("", "")
        if status in (401, 403):
            return self._denied(status, detail)
        if _code(kind) == "NOT_FOUND" and not asked.startswith(
            "GET /jobs/"
        ):  # nothing else that we ask for can be missing
            return self.foreign(f"{status} to {asked}")
        if _code(kind) in REFUSALS:
            return REFUSALS[_code(kind)](detail)
        if 300 <= status < 400:
            to = _shown(answer.headers.get("Location", ""))
            return Unavailable(
                f"the API at {self.url} sends us elsewhere ({status}, to {to}): set SUBLET_SOURCE to where it is"
            )
        if status == 413 or (kind and status in (400, 414, 415, 422, 431)):
            return Invalid(detail or f"the API at {self.url} refused the request ({status})")
        if _code(kind) == "UNCONFIRMED":
            return Unconfirmed(detail)
        if kind:
            return Unavailable(f"the API at {self.url} cannot serve now: {detail}")
        return self.foreign(f"{status}, {content}")

    def item(self, kind: str, detail: str) -> JobsError:
        """The error for an item of a batch that was refused, by its problem's type."""
        return REFUSALS.get(_code(kind), Invalid)(detail)

    def _denied(self, status: int, detail: str) -> Denied:
        what, variable = f"the API at {self.url}", "SUBLET_TOKEN_FILE" if self._file else "SUBLET_TOKEN"
        said = f" ({detail})" if detail else ""
        if not self._token:
            return Denied(
                f"{what} wants a token{said if status == 403 else ''}: set SUBLET_TOKEN, or SUBLET_TOKEN_FILE"
            )
        if status == 401:
            return Denied(f"{what} does not take this token: check {variable}")
        needed = "" if "did not come with" in detail else "a worker needs one with the role `work`; "
        return Denied(f"{what} does not take this token for this{said}: {needed}check {variable}")

    def foreign(self, what: str) -> Unavailable:
        """The error for an answer that the API would not give."""
        return Unavailable(
            f"what answers at {self.url} is not the API of Sublet ({what}): is it up, and is SUBLET_SOURCE right?"
        )

    def away(self, why: str) -> Unavailable:
        """The error for no answer."""
        return Unavailable(
            f"no answer from the API at {self.url} ({why}): is it up, and is SUBLET_SOURCE right?"
        )


def _problem(answer: Answer) -> tuple[str, str]:
    """The type and the detail of a problem document; empty where it is none of ours."""
    try:
        said = answer.json()
        found = str(said["type"]), str(said.get("detail", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""
    return (found[0], found[1][:SAID]) if found[0].startswith(PROBLEM) else ("", "")


def _code(kind: str) -> str:
    """The code of the refusal that a problem's type stands for."""
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
    except ValueError:  # a port that cannot be
        whole = False
    if not whole or " " in url.strip():
        raise Invalid(f"SUBLET_SOURCE {_shown(url)!r}: use the API's address, e.g. https://jobs.example.com")
    if "@" in parts.netloc:
        raise Invalid(
            f"SUBLET_SOURCE {_shown(url)!r}: no user and password here; the token goes into SUBLET_TOKEN"
        )
    if "?" in url or "#" in url:
        raise Invalid(
            f"SUBLET_SOURCE {_shown(url)!r}: nothing may stand behind a ? or #; the API's address is all"
        )
    return url.strip().rstrip("/")


def _shown(url: str) -> str:
    """A URL without what may be a secret in it, for messages."""
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
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise Invalid(f"SUBLET_TOKEN_FILE {str(file)!r} cannot be read ({why})") from None


def _fit(token: str) -> str:
    """The token, which must be one word. It is not shown, whatever is wrong with it."""
    token = token.strip()
    if token and not _TOKEN.fullmatch(token):
        raise Invalid(
            "SUBLET_TOKEN: use the secret alone, what stands behind the last : of NAME:ROLES:SECRET"
        )
    return token
