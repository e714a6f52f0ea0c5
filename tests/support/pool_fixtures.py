"""A pool, and summoners that are closed at the end: a plugin."""

import pytest

from sublet.operations import pools
from sublet.scaling.summoner import Summoner
from tests.support.recording_invoker import POOL, Recorder


@pytest.fixture
def have_pool(store):
    """Configure the pool."""

    async def have_pool(**how):
        await store.follow(pools.put(store.operations.bases, POOL.model_copy(update=how)))

    return have_pool


@pytest.fixture
async def summoner_of(store):
    """A summoner that a store nudges; closed at the end."""
    hired = []

    def summoner_of(*invokers, of=store):
        one = Summoner(of, {invoker.kind: invoker for invoker in invokers})
        of.nudge = one.nudge
        hired.append(one)
        return one

    yield summoner_of
    for one in hired:
        await one.aclose()


@pytest.fixture
def look(store):
    """The pool with its numbers."""

    async def look():
        (found,) = await store.follow(pools.look_at_all(store.operations.bases, "p"))
        return found

    return look


@pytest.fixture
def lookups(monkeypatch):
    """How often the pools were listed, and how often one was summoned for."""
    counts = {"known": 0, "ask": 0}

    def counting(name, plan):
        def counted(*args, **how):
            counts[name] += 1
            return plan(*args, **how)

        return counted

    for name in counts:
        monkeypatch.setattr(pools, name, counting(name, getattr(pools, name)))
    return counts


@pytest.fixture
def made():
    """Recorders, as many as requested; each belongs to a loop of its own."""
    made = []

    def make():
        made.append(Recorder())
        return {"http": made[-1]}

    make.made = made
    return make
