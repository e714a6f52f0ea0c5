"""Signatures of requests after Standard Webhooks (https://www.standardwebhooks.com).

Three headers: `webhook-id` (the same when a request is repeated), `webhook-timestamp` (seconds), and
`webhook-signature`: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. Requests are signed with
all valid secrets, and one valid signature suffices, so that a secret can be replaced without a gap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path

from sublet.connection import held_secrets
from sublet.errors import Invalid, JobsError
from sublet.scaling.secrets_file import SecretsFile

log = logging.getLogger(__name__)

TOLERANCE = 300
"""Most seconds between a request's timestamp and the clock."""
SECRETS_MAX = 8
FILE_MAX = 64 * 1024
HINT = 'echo "whsec_$(openssl rand -base64 32)"'

_PREFIX = "whsec_"
_KEY_MIN, _KEY_MAX = 16, 512
_ID = re.compile(r"[!-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")
_COMMENT = re.compile(r"(^|\s)#.*")
_SIGNATURES_MAX = 32


class Unsigned(JobsError):
    """A request's signature or timestamp is missing or invalid."""


class Secrets:
    """Secrets that sign and verify requests, at most 8: those in `words` (separated by blanks) and in `file`.

    Raises Invalid, also for a file without a secret. A changed file is read again; while it is then missing
    or invalid, the previous secrets stay valid.
    """

    def __init__(self, words: str = "", file: str | Path | None = None) -> None:
        self._given = _keys("SUBLET_SIGNING_SECRETS", words)
        self._file = SecretsFile(file, "signing secrets", FILE_MAX) if file else None
        self._keys = _joined(self._given, _of_file(self._file) if self._file else ())

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Secrets:
        """Return the secrets in SUBLET_SIGNING_SECRETS and in the file that SUBLET_SIGNING_SECRETS_FILE
        names, or none. Raises Invalid; the message contains no secret.
        """
        found = held_secrets.environment() if environment is None else environment
        return cls(found.get("SUBLET_SIGNING_SECRETS", ""), found.get("SUBLET_SIGNING_SECRETS_FILE") or None)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self)} signing secrets>"

    def sign(self, message_id: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """Return the three headers for a request. `at`: seconds since 1970, or now. Raises Invalid without a
        secret.
        """
        self._reload()
        if not self._keys:
            raise Invalid(
                f"no signing secret is configured: set SUBLET_SIGNING_SECRETS; `{HINT}` creates one"
            )
        moment = str(int(time.time() if at is None else at))
        signatures = " ".join(f"v1,{_signature(key, message_id, moment, body)}" for key in self._keys)
        return {"webhook-id": message_id, "webhook-timestamp": moment, "webhook-signature": signatures}

    def verify(self, headers: Mapping[str, str], body: bytes, *, at: float | None = None) -> str:
        """Check a request's signature and timestamp; return its `webhook-id`. `headers` must have lower-case
        names. `at`: now, in seconds since 1970. Raises Unsigned.
        """
        self._reload()
        message_id, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not _ID.fullmatch(message_id) or not _SECONDS.fullmatch(moment):
            raise Unsigned(
                "a signed request needs valid headers webhook-id (1 to 256 visible ASCII characters) and webhook-timestamp (seconds since 1970)"
            )
        own = [_signature(key, message_id, moment, body).encode() for key in self._keys]
        words = headers.get("webhook-signature", "").encode("ascii", "replace").split()[:_SIGNATURES_MAX]
        given = [word[3:] for word in words if word.startswith(b"v1,")]
        fits = [hmac.compare_digest(mine, theirs) for mine in own for theirs in given]
        if not any(fits):
            raise Unsigned(
                "the signature does not match, or is missing: sender and receiver need a common signing secret (SUBLET_SIGNING_SECRETS), or the request was changed on the way"
            )
        apart = int(moment) - (time.time() if at is None else at)
        if abs(apart) > TOLERANCE:
            when = "in the future" if apart > 0 else "old"
            raise Unsigned(
                f"the timestamp of the signed request is {abs(apart):.0f} s {when}, and {TOLERANCE} s are allowed: compare the clocks"
            )
        return message_id

    def _reload(self) -> None:
        if self._file is None or not self._file.has_changed():
            return
        try:
            self._keys = _joined(self._given, _of_file(self._file))
        except Invalid as error:
            log.error("%s; the %d previous secrets stay valid", error, len(self._keys))
        else:
            log.warning("%s has changed: %d signing secrets are valid now", self._file.path, len(self._keys))


def _signature(key: bytes, message_id: str, moment: str, body: bytes) -> str:
    signed = f"{message_id}.{moment}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _keys(where: str, text: str) -> tuple[bytes, ...]:
    return tuple(_key(f"{where}: word {at}", word) for at, word in enumerate(text.split(), 1))


def _key(where: str, word: str) -> bytes:
    if word.startswith(_PREFIX):
        coded = word.removeprefix(_PREFIX)
        try:
            key = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(
                f"{where}: the text after {_PREFIX} must be base64: `{HINT}` creates a valid secret"
            ) from None
    else:
        key = word.encode("utf-8", "surrogatepass")
    if not _KEY_MIN <= len(key) <= _KEY_MAX:
        what = "bytes when decoded" if word.startswith(_PREFIX) else "bytes"
        raise Invalid(
            f"{where}: a secret must have {_KEY_MIN} to {_KEY_MAX} {what}: `{HINT}` creates a valid one"
        )
    return key


def _joined(*groups: tuple[bytes, ...]) -> tuple[bytes, ...]:
    found = tuple(dict.fromkeys(key for group in groups for key in group))
    if len(found) > SECRETS_MAX:
        raise Invalid(
            f"{len(found)} signing secrets: at most {SECRETS_MAX} may be valid at once: remove the old ones"
        )
    return found


def _of_file(file: SecretsFile) -> tuple[bytes, ...]:
    lines = ((at, _COMMENT.sub("", line)) for at, line in enumerate(file.text().splitlines(), 1))
    found = tuple(key for at, line in lines for key in _keys(f"{file.path}: line {at}", line))
    if not found:
        raise Invalid(
            f"the file of signing secrets {file.path} contains no secret: write one per line, e.g. {_PREFIX}…"
        )
    return found
