"""Large payloads and results of attempts. The calls block: the process that runs the task makes them."""

from typing import Any

from sublet.errors import PayloadLost
from sublet.execution.attempt import Ended, UnknownTask
from sublet.large_payloads.storage import Storage, backend_at
from sublet.model import Failure, Lease


def read_payload(storage: Storage | None, lease: Lease) -> bytes:
    """Fetch the payload of a job whose lease has only a reference to it. Raises Unavailable; UnknownTask
    without a backend; Ended if the payload is lost.
    """
    if storage is None:
        raise UnknownTask(
            "the payload is stored outside Redis, and this worker has no large_payloads: give them to its App"
        )
    try:
        return storage.get(lease.id, lease.payload)
    except PayloadLost as error:
        raise Ended(Failure(lease, "payload_lost", str(error), again=False)) from None


def described(storage: Storage | None, apps: Any) -> dict[str, Any] | None:
    """Return, for `storage_from` in a child process, the namespace, `above`, and the backend's address (None
    if it has none, or if all apps have this backend). None without storage.
    """
    if storage is None:
        return None
    own = all(app.large_payloads is storage.backend for app in apps)
    address = None if own else getattr(storage.backend, "address", None)
    return {"namespace": storage.namespace, "above": storage.above, "address": address}


def storage_from(described: dict[str, Any] | None, app: Any) -> Storage | None:
    """Make the storage in a child process from what `described` returned in its parent; without an address,
    use the app's backend. None without a backend.
    """
    if described is None:
        return None
    backend = backend_at(described["address"]) if described["address"] else app.large_payloads
    return Storage(backend, described["namespace"], described["above"]) if backend else None
