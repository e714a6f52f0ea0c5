# Generated from workflow.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncWorkflow`: jobs that wait for others, stored together."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sublet.client.result import load_json
from sublet.client.sync_handle import SyncHandle
from sublet.errors import Invalid, NotFound, Unconfirmed
from sublet.model import State, Submission
from sublet.options import Seconds, milliseconds
from sublet.protocol import keys
from sublet.submission.submit import new_id
from sublet.workflows import operations
from sublet.workflows.graph import Node
from sublet.workflows.storing import WorkflowResult

if TYPE_CHECKING:
    from sublet.client.sync_client import SyncClient
    from sublet.workflows.reading import StoredWorkflow

One = SyncHandle[Any] | str
"""A job: its handle or its id."""


@dataclass(slots=True, eq=False)
class SyncWorkflow:
    """Jobs that wait for others. The end of the `with` block stores all of them (many in several calls, and
    none starts before the last); after an exception in the block, none.
    """

    _client: "SyncClient" = field(repr=False)
    id: str = ""
    """The workflow's id; empty until it has a job."""
    _nodes: dict[str, Node] = field(default_factory=dict, repr=False)
    _handles: list[SyncHandle[Any]] = field(default_factory=list, repr=False)
    _is_stored: bool = field(default=False, repr=False)

    def add(
        self,
        job: Submission,
        *,
        after: One | Iterable[One] = (),
        into: One | Iterable[One] = (),
        on_failure: Literal["cancel", "run", "hold"] = "cancel",
        give_up: Seconds | None = None,
    ) -> SyncHandle[Any]:
        """Add a job, made by `Task.job(…)`, that runs when all jobs of `after` are completed. Return its
        handle, for use after the block.

        If one of `after` is dead or cancelled, this job is cancelled; with `on_failure="run"` it runs when
        all have ended, with "hold" it waits for a retry of the failed one. If it waits for `give_up` seconds
        (≥ 1), it is cancelled. `into`: waiting jobs that shall wait for this one, too. Raises Invalid.
        """
        if self._is_stored:
            raise Invalid(
                "a stored workflow takes no more jobs: add them before its block ends, or make another workflow"
            )
        if not isinstance(job, Submission):
            raise Invalid(f"add takes a job that `Task.job(…)` made, not {type(job).__name__}")
        if on_failure not in ("cancel", "run", "hold"):
            raise Invalid(f"on_failure={on_failure!r}: use 'cancel', 'run' or 'hold'")
        if job.id in self._nodes:
            raise Invalid(f"job {job.id} was added before: make a job for each add, with an id of its own")
        words = [job.rules] if job.rules else []
        words += [f"on_failure={on_failure}"] if on_failure != "cancel" else []
        words += [f"give_up={milliseconds('give_up', give_up, 1)}"] if give_up is not None else []
        node = Node(job._replace(rules=" ".join(words)), dict.fromkeys(map(_id, _list(after))))
        for other in map(_id, _list(into)):
            if other in self._nodes:
                self._nodes[other].after[job.id] = None
            else:
                node.into[other] = None
        self.id = self.id or new_id(keys.partition_of_id(job.id))
        self._nodes[job.id] = node
        self._handles.append(SyncHandle(job.id, True, self._client, load_json, _is_stored=False))
        return self._handles[-1]

    def result(self, timeout: float = 30.0) -> WorkflowResult:
        """Wait until each job has ended; return how many were completed, dead and cancelled. Raises
        TimeoutError after `timeout` seconds, and the jobs continue; NotFound.
        """
        if not self.id:
            return WorkflowResult(0, 0, 0)
        self._check_stored()
        standing = self._client.store.watch(self.id, timeout)
        if standing.state is None:
            raise NotFound(f"no workflow {self.id}: it never existed, or ended over 14 days ago")
        if standing.story or standing.state not in (State.RUNNING, State.COMPLETED):
            raise Invalid(f"{self.id} is a job, not a workflow: wait for it with client.result(id)")
        if standing.state is State.RUNNING:
            raise TimeoutError(
                f"workflow {self.id} has not ended after {timeout:g} s; its jobs go on: wait again"
            )
        return WorkflowResult.of(standing.result)

    def get(
        self,
        limit: int = 50,
        cursor: str | None = None,
        state: State | str | Iterable[State] | None = None,
    ) -> "StoredWorkflow":
        """Return the workflow's state, how many of its jobs have ended, and up to `limit` (≤ 200) of its
        jobs, from `cursor` on: those in `state` (one or several), else all. Raises NotFound.
        """
        from sublet.workflows import reading

        self._check_stored()
        store = self._client.store
        return store.follow(reading.get(store.operations, self.id, limit, cursor, state))

    def cancel(self) -> dict[str, int]:
        """Cancel the unfinished jobs. Return how many (not if 0) were `cancelled`, `requested` (they run;
        their workers end them), `unchanged` (they ended meanwhile), `cascaded` (another's cancel ended
        them; some are not counted) and `refused`. Safe to repeat. Raises NotFound.
        """
        return self._order("cancel")

    def retry(self) -> dict[str, int]:
        """Retry the dead and cancelled jobs; the retry of a failed job brings back those that its failure
        cancelled. Return how many (not if 0) are `queued`, `scheduled` (they wait), `cancelled` (another's
        retry will bring them back), `unchanged` (already back) and `refused`. Raises NotFound, WrongState.
        """
        return self._order("retry")

    def _order(self, order: Literal["cancel", "retry"]) -> dict[str, int]:
        from sublet.operations.orders.bulk import Selection

        self._check_stored()
        wanted, counts = Selection(workflow=self.id), Counter[str]()
        page = self._client.order_page(order, wanted)
        while True:
            counts.update("refused" if one.refusal else one.answer for one in page.outcomes)
            if not page.cursor:
                return dict(counts)
            page = self._client.order_page(order, wanted, cursor=page.cursor)

    def _check_stored(self) -> None:
        if not self._is_stored:
            raise Invalid(
                "the workflow is not stored: the end of its `with` block stores it, unless that fails, or the block raises or adds no job: call this after the block, or make another workflow"
            )

    def __enter__(self) -> "SyncWorkflow":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._nodes and not self._is_stored:
            store = self._client.store
            try:
                store.follow(operations.store(store.operations, self.id, self._nodes))
            except Unconfirmed:
                self._note_stored()
                raise
            self._note_stored()
            store.nudge([node.job.queue for node in self._nodes.values()])

    def _note_stored(self) -> None:
        self._is_stored = True
        for handle in self._handles:
            handle._is_stored = True


def _list(some: One | Iterable[One]) -> Iterable[Any]:
    if isinstance(some, str | SyncHandle | Submission) or not isinstance(some, Iterable):
        return [some]
    return some


def _id(one: One) -> str:
    if isinstance(one, str):
        return keys.check_name("job id", one, keys.ID_MAX)
    if isinstance(one, Submission):
        raise Invalid(
            f"give the handle that `add` returned for job {one.id}, not the job itself: `first = flow.add(job)`, then `first` in `after` or `into`"
        )
    if not isinstance(one, SyncHandle):
        raise Invalid(f"{one!r} is not a job: give the handle that `add` returned, or an id")
    return one.id
