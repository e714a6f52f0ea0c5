"""A `Runner` of tasks without a worker around it, for the tests of child processes and threads."""

import asyncio
import itertools
import os
import time

import pytest

from sublet.execution.attempt import Attempt, Ended
from sublet.execution.runner import NO_LIMITS, Runner
from sublet.model import Lease
from tests.support import misbehaving_functions as tasks
from tests.support.processes import children_of

NUMBERS = itertools.count(1)


@pytest.fixture
async def hire():
    """Make runners for the app of the test's tasks. All are closed at the end and must leave no process."""
    runners, before = (
        [],
        set(children_of(os.getpid())),
    )  # the servers of other tests, which live as long as the run

    def make(app=tasks.app, *, slots=10, processes=2, limits=NO_LIMITS):
        runners.append(Runner(app.tasks, slots=slots, processes=processes, limits=limits))
        return runners[-1]

    yield make
    for runner in runners:
        await runner.aclose()
    assert await eventually(lambda: set(children_of(os.getpid())) <= before)


def attempt_of(task, payload="{}", **changes):
    number = next(NUMBERS)
    lease = Lease(
        f"0-{number}",
        f"{number}.claim",
        1,
        0,
        "default",
        getattr(task, "name", task),
        None,
        payload.encode(),
        "",
    )
    return Attempt(lease._replace(**changes))


def start(runner, task, payload="{}", **changes):
    attempt = attempt_of(task, payload, **changes)
    attempt.running = runner.start(attempt)
    return attempt


async def result(runner, task, payload="{}", **changes):
    async with asyncio.timeout(60):
        return (await start(runner, task, payload, **changes).running).result


async def failure(runner, task, payload="{}"):
    with pytest.raises(Ended) as caught:
        await result(runner, task, payload)
    return caught.value.ending


async def eventually(condition, seconds=60):
    until = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < until:
        await asyncio.sleep(0.005)
    return found


async def written(path):
    """The numbers in a file, as soon as it has any."""
    assert await eventually(lambda: path.exists() and path.read_text())
    return [int(word) for word in path.read_text().split()]
