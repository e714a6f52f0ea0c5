# Generated from workflow.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncWorkflow`: jobs that wait for others, stored together."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sublet.client.result import load_json
from sublet.client.sync_handle import SyncHandle
from sublet.errors import Invalid
from sublet.model import Submission
from sublet.options import Seconds, milliseconds
from sublet.protocol import keys
from sublet.submission.submit import new_id
from sublet.workflows import operations
from sublet.workflows.graph import Node
from sublet.workflows.storing import WorkflowResult

if TYPE_CHECKING:
    from sublet.client.sync_client import SyncClient

One = SyncHandle[Any] | str
"""A job: its handle or its id."""


@dataclass(slots=True, eq=False)
class SyncWorkflow:
    """Jobs that wait for others. The end of the `with` block stores all of them; after an exception in the
    block, none.
    """

    _client: "SyncClient" = field(repr=False)
    id: str = ""
    """Its id; empty until it has a job."""
    _nodes: dict[str, Node] = field(default_factory=dict, repr=False)
    _is_stored: bool = field(default=False, repr=False)

    def add(
        self,
        job: Submission,
        *,
        after: One | Sequence[One] = (),
        into: One | Sequence[One] = (),
        on_failure: Literal["cancel", "run", "hold"] = "cancel",
        give_up: Seconds | None = None,
    ) -> SyncHandle[Any]:
        """Add a job, made by `Task.job(…)`, that runs when all jobs of `after` are completed. Return its
        handle.

        If one of `after` is dead or cancelled, this job is cancelled; with `on_failure="run"` it runs when
        all have ended, with "hold" it waits for a retry of that one. A wait of `give_up` (seconds) cancels
        it. `into`: waiting jobs that shall wait for this one, too. Raises Invalid.
        """
        if self._is_stored:
            raise Invalid(
                "the workflow is stored: add jobs inside its `with` block, or make another workflow"
            )
        if on_failure not in ("cancel", "run", "hold"):
            raise Invalid(f"on_failure={on_failure!r}: use 'cancel', 'run' or 'hold'")
        if job.id in self._nodes:
            raise Invalid(f"job {job.id} was added before: make a job for each add")
        words = [job.rules] if job.rules else []
        words += [f"on_failure={on_failure}"] if on_failure != "cancel" else []
        words += [f"give_up={milliseconds('give_up', give_up, 1)}"] if give_up is not None else []
        self.id = self.id or new_id(keys.partition_of_id(job.id))
        node = Node(job._replace(rules=" ".join(words)), dict.fromkeys(map(_id, _list(after))))
        for other in map(_id, _list(into)):
            if other in self._nodes:
                self._nodes[other].after[job.id] = None
            else:
                node.into[other] = None
        self._nodes[job.id] = node
        return SyncHandle(job.id, True, self._client, load_json)

    def result(self, timeout: float = 30.0) -> WorkflowResult:
        """Wait until each job has ended; return how many are completed, dead and cancelled. Raises
        TimeoutError after `timeout` seconds; NotFound before they are stored.
        """
        if not self._nodes:
            return WorkflowResult(0, 0, 0)
        return self._client.result(self.id, timeout, WorkflowResult.of)

    def __enter__(self) -> "SyncWorkflow":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._nodes and not self._is_stored:
            self._client.store.follow(operations.store(self._client.store.operations, self.id, self._nodes))
            self._is_stored = True


def _list(some: One | Sequence[One]) -> Sequence[One]:
    return [some] if isinstance(some, str | SyncHandle) else some


def _id(one: One) -> str:
    if isinstance(one, str):
        return one
    if not isinstance(one, SyncHandle):
        raise Invalid(f"{one!r} is not a job: give the handle that `add` returned, or an id")
    return one.id
