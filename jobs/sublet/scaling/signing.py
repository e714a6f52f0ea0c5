"""Signed requests, as Standard Webhooks has them (https://www.standardwebhooks.com): their sender knows the receiver's secret.

Three headers: `webhook-id` (the same when it is sent again), `webhook-timestamp` (seconds), and `webhook-signature`, which is
`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. Several secrets are valid at once, so that one can be changed
without a gap: what is sent is signed with all of them, and one that fits is enough.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from sublet.errors import Invalid, JobsError
from sublet.scaling.secrets_file import SecretsFile

log = logging.getLogger(__name__)

TOLERANCE = 300
"""Seconds that the sender's clock and ours may be apart; a request that was overheard is of no use any more after that."""
SECRETS_MAX = 8
"""Secrets that are valid at once."""
FILE_MAX = 64 * 1024
"""Characters that the file may have."""
HINT = 'echo "whsec_$(openssl rand -base64 32)"'
"""A command that makes a secret."""

_PREFIX = "whsec_"
_KEY_MIN, _KEY_MAX = 16, 512
_ID = re.compile(r"[!-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")
_COMMENT = re.compile(r"(^|\s)#.*")
_SIGNATURES_MAX = 32


class Unsigned(JobsError):
    """A request does not carry the signature that it says it carries, and why."""


class Secrets:
    """The signing secrets that are valid. `Secrets.read()` takes them from the environment.

    A file of secrets is read again when it has changed. If it is gone or broken then, those that were read before stay.
    """

    def __init__(self, words: str = "", file: str | Path | None = None) -> None:
        self._given = _keys("SUBLET_SIGNING_SECRETS", words)
        self._file = SecretsFile(file, "signing secrets", FILE_MAX) if file else None
        self._keys = _joined(self._given, _of_file(self._file) if self._file else ())

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Secrets:
        """Those of SUBLET_SIGNING_SECRETS, and of the file that SUBLET_SIGNING_SECRETS_FILE names.

        Raises Invalid, with the place of what is wrong, and never with a secret.
        """
        found = os.environ if environment is None else environment
        return cls(found.get("SUBLET_SIGNING_SECRETS", ""), found.get("SUBLET_SIGNING_SECRETS_FILE") or None)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self)} signing secrets>"

    def sign(self, message_id: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
        """The three headers of a request. Raises Invalid where there is no secret."""
        self._look()
        if not self._keys:
            raise Invalid(f"there is no signing secret: set SUBLET_SIGNING_SECRETS; `{HINT}` makes one")
        moment = str(int(time.time() if at is None else at))
        said = " ".join(f"v1,{_signature(key, message_id, moment, body)}" for key in self._keys)
        return {"webhook-id": message_id, "webhook-timestamp": moment, "webhook-signature": said}

    def verify(self, headers: Mapping[str, str], body: bytes, *, at: float | None = None) -> str:
        """The id of a request (headers by lower-case name) that was signed with one of the secrets, within the last minutes.

        Raises Unsigned for any other. Every signature is compared with that of every secret, and no comparison ends early: how
        long it takes says nothing about any of them.
        """
        self._look()
        message_id, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not _ID.fullmatch(message_id) or not _SECONDS.fullmatch(moment):
            raise Unsigned(
                "a signed request has the headers webhook-id, webhook-timestamp (seconds) and webhook-signature"
            )
        own = [_signature(key, message_id, moment, body).encode() for key in self._keys]
        words = headers.get("webhook-signature", "").encode("ascii", "replace").split()[:_SIGNATURES_MAX]
        said = [word[3:] for word in words if word.startswith(b"v1,")]
        fits = [hmac.compare_digest(mine, theirs) for mine in own for theirs in said]
        if not any(fits):
            raise Unsigned(
                "the signature fits no secret of this server, or the request was changed on its way"
            )
        apart = int(moment) - (time.time() if at is None else at)
        if abs(apart) > TOLERANCE:
            when = "lies in the future" if apart > 0 else "is too old"
            raise Unsigned(
                f"the signed request {when}: by {abs(apart):.0f} s, and {TOLERANCE} s are allowed; compare the clocks"
            )
        return message_id

    def _look(self) -> None:
        """Read the file again, if it has changed."""
        if self._file is None or not self._file.has_changed():
            return
        try:
            self._keys = _joined(self._given, _of_file(self._file))
        except Invalid as error:
            log.error("%s; the %d secrets that were read before stay valid", error, len(self._keys))
        else:
            log.warning("%s has changed: %d signing secrets are valid now", self._file.path, len(self._keys))


def _signature(key: bytes, message_id: str, moment: str, body: bytes) -> str:
    signed = f"{message_id}.{moment}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _keys(where: str, text: str) -> tuple[bytes, ...]:
    """The keys that stand in a text. Raises Invalid; nothing that it says was in the text."""
    return tuple(_key(f"{where}: word {at}", word) for at, word in enumerate(text.split(), 1))


def _key(where: str, word: str) -> bytes:
    if word.startswith(_PREFIX):
        coded = word.removeprefix(_PREFIX)
        try:
            key = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(
                f"{where}: what follows {_PREFIX} must be base64; `{HINT}` makes a good one"
            ) from None
    else:
        key = word.encode("utf-8", "surrogatepass")
    if not _KEY_MIN <= len(key) <= _KEY_MAX:
        what = "bytes when decoded" if word.startswith(_PREFIX) else "characters"
        raise Invalid(f"{where}: a secret has {_KEY_MIN} to {_KEY_MAX} {what}; `{HINT}` makes a good one")
    return key


def _joined(*groups: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """All of them together, each once. Raises Invalid if there are too many."""
    found = tuple(dict.fromkeys(key for group in groups for key in group))
    if len(found) > SECRETS_MAX:
        raise Invalid(
            f"there are {len(found)} signing secrets: at most {SECRETS_MAX}, the new one and those that are to go"
        )
    return found


def _of_file(file: SecretsFile) -> tuple[bytes, ...]:
    lines = ((at, _COMMENT.sub("", line)) for at, line in enumerate(file.text().splitlines(), 1))
    found = tuple(key for at, line in lines for key in _keys(f"{file.path}: line {at}", line))
    if not found:
        raise Invalid(
            f"the file of signing secrets {file.path} holds none; each line is one, e.g. {_PREFIX}…"
        )
    return found
