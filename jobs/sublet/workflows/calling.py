"""Call a job as a step of another."""

from sublet.errors import Invalid, JobsError
from sublet.model import Lease
from sublet.options import PAYLOAD_MAX
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.steps import calls
from sublet.steps.calls import CalledJob, Kept
from sublet.submission.submit import SubmitOperations
from sublet.workflows.operations import admitted


def call(operations: SubmitOperations, lease: Lease, called: CalledJob) -> Plan[Kept]:
    """Store the job, once; return the step, of kind `call` until the job has ended. Raises Refused, Invalid."""
    job, base = called.job, operations.bases[keys.partition_of_id(lease.id) % len(operations.bases)]
    if len(job.payload) > PAYLOAD_MAX:
        raise Invalid(
            f"step {called.step}: arguments of {len(job.payload):,} bytes (JSON): a called job takes at most {PAYLOAD_MAX:,}: pass the address of the data"
        )
    answer = yield from admitted(operations, base, [job], calls.call(base, lease, called))
    if isinstance(answer, JobsError):
        raise answer
    return answer
