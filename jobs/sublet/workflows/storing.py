"""The verb of workflows, and their result."""

from collections.abc import Sequence
from typing import NamedTuple

from sublet.model import Submission, Submitted
from sublet.protocol.scripts import Call, script

JOBS_MAX = 200
"""Most jobs that the script takes."""
EDGES_MAX = 500
"""Most edges that the script takes."""


class WorkflowResult(NamedTuple):
    """How many jobs of a workflow were `completed`, `dead` and `cancelled`."""

    completed: int
    dead: int
    cancelled: int

    @property
    def is_success(self) -> bool:
        """Whether no job was dead or cancelled."""
        return not self.dead and not self.cancelled

    @classmethod
    def of(cls, counts: bytes) -> "WorkflowResult":
        """Parse the three numbers in the reply of `watch`."""
        return cls(*map(int, counts.split()))


class Linked(NamedTuple):
    """A job to store, the ids of the jobs that it waits for, and of the waiting jobs that are to wait for it."""

    job: Submission
    after: Sequence[str] = ()
    into: Sequence[str] = ()


def workflow(
    base: str, workflow_id: str, how: str, jobs: Sequence[Linked] = ()
) -> Call[list[Submitted] | str]:
    """Store up to 200 jobs with up to 500 edges, all or none, as members of a workflow, or (with an empty id)
    of none.

    `how`: `open` (more calls follow), `seal` (the workflow is whole) or `cancel` (its jobs). Returns a
    `Submitted` per job, or one refusal as text.
    """

    def read(reply: list[bytes]) -> list[Submitted] | str:
        if reply and not reply[0].startswith((b"created", b"exists ")):
            return reply[0].decode()
        return [Submitted(one.job.id, word == b"created") for one, word in zip(jobs, reply, strict=True)]

    return script("workflow").call(base, read, fields(jobs), workflow=workflow_id, how=how)


def fields(jobs: Sequence[Linked]) -> list[str | bytes]:
    """Return the script arguments of jobs with edges, seven for each."""
    return [field for one in jobs for field in (*one.job[:5], " ".join(one.after), " ".join(one.into))]
