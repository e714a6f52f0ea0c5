"""Async tests of the example `steering`, without a server and without sleeping (see docs/guides/testing.md).

pip install 'PATH/TO/THE/CHECKOUT[testing]' pytest pytest-asyncio
python3 -m pytest examples -o asyncio_mode=auto
"""

import pytest

from examples.steering import app, deliver, flaky, wait_for_payment
from sublet import JobFailed, testing

sandbox = testing.fixture(app, autouse=True)


async def test_an_unpaid_order_is_snoozed_until_it_is_paid(sandbox: testing.Sandbox) -> None:
    """A snooze uses no try, and the sandbox skips its delay."""
    handle = await wait_for_payment.submit(7)
    assert (await sandbox.drain()).released == 1
    assert (await sandbox.drain(through=1)).completed == 1
    assert await handle.result() == "order 7 is paid"


async def test_an_invalid_job_is_attempted_once(sandbox: testing.Sandbox) -> None:
    """A discarded job is dead after its first attempt."""
    handle = await deliver.submit("nowhere")
    await sandbox.drain(through=3600)
    with pytest.raises(JobFailed, match="'nowhere' is not an address"):
        await handle.result()
    assert sandbox.job(handle).attempt == 1


async def test_a_failed_connection_is_retried(sandbox: testing.Sandbox) -> None:
    """The sandbox skips the backoff of a retry, too."""
    handle = await flaky.submit()
    done = await sandbox.drain(through=3600)
    assert (done.failed, done.completed) == (2, 1)
    assert await handle.result() == "worked at attempt 3, after ConnectionError"
