"""The argument of every handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sublet.store.store import Store
from sublet_functions.handlers.known_tasks import KnownTasks
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.http.auth import Principal
from sublet_functions.http.request import Request
from sublet_functions.http.shared_reads import Sharing

B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One authenticated HTTP request, as a handler gets it: `body` and `query` are parsed."""

    store: Store
    principal: Principal
    request: Request
    body: B = field(repr=False)
    query: Q
    path: Mapping[str, str]
    """The parameters in the path, by their names in the route."""
    worker_host: WorkerHost | None = None
    known: KnownTasks | None = None
    """The tasks that this server knows; the dispatcher always sets it."""
    sharing: Sharing | None = None
    """The shared answers, and how old an answer the client accepts; None: it wants a new one."""
