"""Keep large payloads and results outside of Redis, which has a reference to each instead: `{"sublet:large":
…}`.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar

from sublet.errors import Invalid, JobsError, PayloadLost, Unavailable
from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.files import Files
from sublet.large_payloads.s3 import S3
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX
from sublet.protocol.keys import is_id

T = TypeVar("T")

MARK = b'{"sublet:large":'
"""How a reference begins. No Python parameter can have this name."""
ORPHAN_SECONDS = 3600.0
"""From this age on, an object without a job may be deleted: its submit or attempt is over."""
HOLDERS = 10
"""To how many jobs of one key, one after the other, a submit tries to give its payload."""
PAGE = 1000
"""How many objects one listing, or deletion, has at most."""
WAYS_OUT = (
    "store the data elsewhere and pass a path or a URL, or set large_payloads (docs/guides/large-payloads.md)"
)


def is_reference(text: bytes) -> bool:
    """Whether a payload or result in Redis is a reference to one that is kept outside."""
    return text.startswith(MARK)


def backend_at(address: str) -> LargePayloads:
    """Return the backend for `s3://BUCKET/PREFIX` or for an absolute path of a directory. Raises Invalid."""
    if address.startswith("s3://"):
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        return S3(bucket, prefix)
    return Files(address)


def check_above(name: str, value: int) -> int:
    """Return `value`, a number of bytes. Raises Invalid unless it is 1 to 262,144; `name` is for the message."""
    if type(value) is not int or not 1 <= value <= PAYLOAD_MAX:
        raise Invalid(f"{name} {value!r}: use a whole number of bytes from 1 to {PAYLOAD_MAX:,}")
    return value


def large_settings(backend: LargePayloads | None, above: int | None) -> dict[str, Any]:
    """Return, by name, the settings that an app's two arguments for large payloads set; None sets nothing. Raises
    Invalid.
    """
    missing = [name for name in ("put", "get", "delete", "scan") if not hasattr(backend, name)]
    if backend is not None and missing:
        raise Invalid(
            f"large_payloads={backend!r}: it has no {', '.join(missing)}: use Files, S3, or an object with the methods of "
            "sublet.large_payloads.LargePayloads"
        )
    given = {
        "large_payloads": backend,
        "large_above": None if above is None else check_above("large_above", above),
    }
    return {name: value for name, value in given.items() if value is not None}


class Storage(NamedTuple):
    """A backend for one namespace. It stores payloads and results that have more than `above` bytes, or look
    like references.
    """

    backend: LargePayloads
    namespace: str
    above: int = PAYLOAD_MAX

    def takes(self, text: bytes) -> bool:
        """Whether a payload or result is kept in the backend: it is too large, or looks like a reference."""
        return len(text) > self.above or is_reference(text)

    def put(self, job_id: str, text: bytes) -> bytes:
        """Store a job's payload or result; return the reference. Raises Unavailable."""
        name = f"{self.namespace}/{sha256(text).hexdigest()}.{job_id}"
        self._call("stored", job_id, self.backend.put, name, text)
        said = {"bytes": len(text), "sha256": name.partition("/")[2][:64]}
        return MARK + json.dumps(said, separators=(",", ":")).encode() + b"}"

    def get(self, job_id: str, reference: bytes) -> bytes:
        """Return the payload or result for a job's reference. Raises PayloadLost (missing, damaged) or
        Unavailable.
        """
        try:
            said = json.loads(reference)["sublet:large"]
            size, digest = int(said["bytes"]), bytes.fromhex(said["sha256"]).hex()
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PayloadLost(
                f"job {job_id}: its reference to a large payload or result is malformed: submit it again"
            ) from None
        name = f"{self.namespace}/{digest}.{job_id}"
        try:
            text: bytes = self._call("read", job_id, self.backend.get, name)
        except KeyError:
            raise PayloadLost(
                f"job {job_id}: its large payload or result is missing: {self.backend} has no object {name[:250]}: give all processes the same large_payloads, restore it, or submit the job again"
            ) from None
        if len(text) != size or sha256(text).hexdigest() != digest:
            raise PayloadLost(
                f"job {job_id}: object {name} is damaged: it has {len(text):,} bytes, stored were {size:,}, or its content has changed: restore it, or submit the job again"
            )
        return text

    def put_payloads(self, jobs: Sequence[Submission]) -> list[Submission]:
        """Store the large payloads of these jobs; return all jobs, with references instead. Raises Unavailable."""
        return [self._put_for(job.id, job) if self.takes(job.payload) else job for job in jobs]

    def put_for_holders(
        self, jobs: Sequence[Submission], answers: Sequence[object], tries: int
    ) -> dict[int, Submission]:
        """Find the submits that may replace the arguments of a waiting job of their key; store each large payload
        under that job's id. Return the submits to send again, by index. Raises Unavailable if there are any
        after 10 `tries`.
        """
        again = {}
        for place, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
            if self.takes(job.payload) and isinstance(answer, Submitted) and _is_held(job, answer):
                if tries >= HOLDERS:
                    raise Unavailable(
                        f"job {job.id}: its key passed to other jobs while its payload was stored: submit it again"
                    )
                again[place] = self._put_for(answer.id, job)
        return again

    def _put_for(self, owner: str, job: Submission) -> Submission:
        rules = f"{job.rules} onto={owner}" if _replaces(job) else job.rules
        return job._replace(payload=self.put(owner, job.payload), rules=rules)

    def delete_unused(self, jobs: Sequence[Submission], answers: Sequence[object]) -> None:
        """Delete the large payloads of jobs that were not stored, because another job has their key. Ignores
        Unavailable.
        """
        names = [
            f"{self.namespace}/{json.loads(job.payload)['sublet:large']['sha256']}.{job.id}"
            for job, answer in zip(jobs, answers, strict=True)
            if is_reference(job.payload) and isinstance(answer, Submitted) and answer.id != job.id
        ]
        with contextlib.suppress(Unavailable):
            self.delete(names)

    def erase(self, references: Mapping[str, Sequence[bytes]]) -> None:
        """Delete the objects for these references (job id → references). Raises Unavailable."""
        said = (
            (job_id, json.loads(text)["sublet:large"])
            for job_id, texts in references.items()
            for text in texts
        )
        try:
            self.delete([f"{self.namespace}/{one['sha256']}.{job_id}" for job_id, one in said])
        except Unavailable as error:
            error.add_note("the jobs are erased in Redis; the sweep of a worker deletes these objects later")
            raise

    def old_names(self) -> dict[str, list[str]]:
        """List up to 1,000 objects, from a random name on; return the names of those over an hour old, by job
        id. Raises Unavailable.
        """
        prefix = f"{self.namespace}/"
        start = prefix + secrets.token_hex(32)
        found = list(self._call("listed", "", self.backend.scan, prefix, start, PAGE))
        if len(found) < PAGE:
            found += self._call("listed", "", self.backend.scan, prefix, "", PAGE - len(found))
        names: dict[str, list[str]] = {}
        for name, age in dict(found).items():
            job_id = name.partition("/")[2][65:]
            if age > ORPHAN_SECONDS and is_id(job_id):
                names.setdefault(job_id, []).append(name)
        return names

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects by name. Raises Unavailable."""
        for i in range(0, len(names), PAGE):
            self._call("deleted", "", self.backend.delete, names[i : i + PAGE])

    def _call(self, verb: str, job_id: str, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return function(*arguments)
        except JobsError:
            raise
        except Exception as error:
            if verb == "read" and isinstance(error, KeyError):
                raise
            whose = f"job {job_id}: its large payload or result" if job_id else "large payloads"
            todo = (
                ": check that it is mounted; this user must be able to create, read and write there"
                if isinstance(error, OSError) and error.filename
                else ": check its address, credentials, rights and free space"
            )
            raise Unavailable(
                f"{whose} could not be {verb} in {self.backend}: {type(error).__name__}: {error}{todo}"
            ) from error


def _replaces(job: Submission) -> bool:
    return any(word.startswith(("debounce=", "on_conflict=")) for word in job.rules.split(" "))


def _is_held(job: Submission, answer: Submitted) -> bool:
    return _replaces(job) and not answer.created and not answer.replaced and answer.id != job.id


class HasStorage(Protocol):
    """Settings that may have a storage for large payloads."""

    @property
    def storage(self) -> Storage | None:
        """The storage for large payloads; None without one."""
        ...


def storage_of(settings: HasStorage, job_id: str) -> Storage:
    """Return the storage for large payloads of these settings. Raises Invalid, naming the job, without one."""
    if settings.storage is None:
        raise Invalid(
            f"job {job_id}: its payload or result is stored outside Redis: give the app or the client the large_payloads of its workers, or set SUBLET_LARGE_PAYLOADS"
        )
    return settings.storage
