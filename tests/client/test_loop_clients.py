"""The clients of an app: one for each event loop, closed at the loop's end without `aclose`."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from sublet import App
from tests.support.pages import page_environment

pytestmark = pytest.mark.real_server

PROGRAM = """
import asyncio, threading
from asgiref.sync import async_to_sync
from sublet import App

app = App()

@app.task
async def nothing() -> None: ...

async def main() -> None:
    handle = await nothing.submit()
    try:
        await handle.result(timeout=0.01)
    except TimeoutError:
        print("waited")

asyncio.run(main())
asyncio.run(main())
views = [threading.Thread(target=async_to_sync(main)) for _ in range(4)]
for view in views:
    view.start()
for view in views:
    view.join()
with asyncio.Runner() as runner:
    runner.run(main())
"""


@pytest.fixture
def app(place, raw):
    return App(settings=place.settings)


async def used(app):
    """Connect the running loop's client and return it."""
    await app.client.queues()
    return app.client


def ended(*, politely):
    """Return a function that runs a coroutine on a loop of its own, which ends as `asyncio.run` does or only closes."""

    def run(coroutine):
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(coroutine)
        finally:
            if politely:
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run


def connections(raw):
    return {one["id"] for one in raw.client_list()}


def test_a_program_that_closes_nothing_ends_without_warnings(tmp_path, place, raw):
    pytest.importorskip("asgiref")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=page_environment(tmp_path, place),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["waited"] * 7, "")


def test_a_loop_closes_its_client_when_it_ends(app, raw):
    before = connections(raw)
    gc.disable()  # it would close them as well, later
    try:
        for _ in range(5):
            ended(politely=True)(used(app))
        raw.ping()  # after the ends of those connections
        assert connections(raw) <= before
    finally:
        gc.enable()


def test_a_loop_that_only_closes_is_forgotten(app):
    client = weakref.ref(ended(politely=False)(used(app)))
    asyncio.run(used(app))
    gc.collect()
    assert client() is None


def test_loops_in_threads_keep_their_clients(app):
    both, seen = threading.Barrier(2, timeout=30), []

    async def view():
        first = await used(app)
        await asyncio.to_thread(both.wait)
        second = app.client
        await asyncio.to_thread(both.wait)
        seen.append((first, second, app.client))

    threads = [threading.Thread(target=asyncio.run, args=(view(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first, *others), (second, *more) = seen
    assert others == [first] * 2
    assert more == [second] * 2
    assert first is not second


async def test_a_closed_app_connects_again(app, raw):
    client = await used(app)
    before = connections(raw)
    await app.aclose()
    raw.ping()
    assert connections(raw) < before
    assert await used(app) is not client
    await app.aclose()


async def test_the_end_of_one_loop_leaves_the_others(app):
    client = await used(app)
    await asyncio.to_thread(asyncio.run, used(app))
    assert app.client is client
    assert await client.queues() == []
