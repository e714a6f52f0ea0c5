"""Fixtures that run a program as a task does."""

import contextlib
import os
import signal
import uuid

import pytest

from sublet.context import Context
from sublet.tasks.programs.command import function
from sublet.tasks.programs.process_guard import ProcessGuard, current
from tests.support.program_runs import LEASE, bearing


@pytest.fixture
def context():
    return Context(LEASE, lambda news, body: None)


@pytest.fixture
async def worker():
    """The process guard of a worker that the test plays."""
    kept = ProcessGuard()
    token = current.set(kept)
    yield kept
    with contextlib.suppress(ValueError):  # the loop gives its tasks copies of the context
        current.reset(token)
    await kept.aclose()


@pytest.fixture
def run(context):
    """Run a command as a task does; returns its outcome."""

    async def run(template, *args, **how):
        options = {name: how.pop(name) for name in ("shell", "cwd", "env") if name in how}
        return await function(template, **options)(context, *args, **how)

    return run


@pytest.fixture
def marker():
    """A mark that only the processes of this test have. None of them may remain at the end."""
    marker = f"mark-{uuid.uuid4().hex}"
    yield marker
    left = bearing(marker)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []
