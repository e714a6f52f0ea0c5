"""The interface of a backend for large payloads."""

from collections.abc import Sequence
from typing import Protocol


class LargePayloads(Protocol):
    """Where large payloads and results are kept: bytes under names `NAMESPACE/SHA256.JOB_ID`, of ASCII
    letters, digits and `_ . : - /`.

    Several threads and processes call it at the same time. Any exception but a KeyError of `get` means that
    the backend is not available.
    """

    def put(self, name: str, data: bytes) -> None:
        """Store bytes, durably and as a whole; replace an object of this name, whose age then starts anew."""
        ...

    def get(self, name: str) -> bytes:
        """Return an object's bytes. Raises KeyError if it does not exist."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete up to 1,000 objects; ignore missing ones."""
        ...

    def scan(self, prefix: str, after: str, limit: int) -> Sequence[tuple[str, float]]:
        """Return up to `limit` names under the prefix (`NAMESPACE/`) in ASCII order, each greater than `after`,
        with the object's age in seconds. Fewer than `limit` means that no more follow.
        """
        ...
