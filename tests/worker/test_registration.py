"""Registration: jobs of predecessors are recovered, and a live sibling is never touched."""

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest

from sublet.errors import Invalid, OutOfMemory, Unavailable, WorkersFull
from sublet.model import WorkerInfo
from sublet.protocol import keys
from sublet.worker import host_identity
from sublet.worker.registration import Registration, worker_name

ME = host_identity.identity()
GONE = {**ME, "pid": 2**22 + 1}


class Source:
    def __init__(self, *known):
        self.known, self.gone, self.cards, self.left, self.drains = list(known), {}, [], [], False

    async def workers(self):
        return self.known

    async def reconcile(self, gone):
        self.gone |= gone
        return len(gone)

    async def enlist(self, card):
        self.cards.append(card)
        await asyncio.sleep(0)
        return self.drains

    async def leave(self, card):
        if card.worker_id == "away":
            raise Unavailable("no answer")
        self.left.append(card.worker)


def worker(name, about, worker_id=""):
    now = datetime.now(UTC)
    return WorkerInfo(
        name=name, life=f"life-{name}", worker_id=worker_id, enlisted_at=now, seen_at=now, about=about
    )


def register(source, name="me", worker_id=""):
    return Registration(source, name, lambda: {"slots": 3}, worker_id=worker_id)


async def test_only_workers_that_are_certainly_gone_are_taken_over():
    elsewhere = {**GONE, "boot": "another"}
    source = Source(
        worker("dead", GONE), worker("sibling", ME), worker("elsewhere", elsewhere), worker("foreign", {})
    )
    assert await register(source).enlist() == 1
    assert source.gone == {"dead": "life-dead"}


async def test_the_former_holder_of_a_worker_id_always_counts_as_gone():
    source = Source(worker("before", ME, "pod-0"), worker("beside", ME, "pod-1"))
    assert await register(source, worker_id="pod-0").enlist() == 1
    assert source.gone == {"before": "life-before"}


async def test_a_name_is_free_again_after_the_death_of_its_holder():
    source = Source(worker("me", GONE))
    assert await register(source).enlist() == 1
    assert source.gone == {"me": "life-me"}


async def test_the_name_of_a_live_worker_is_refused():
    source = Source(worker("me", ME))
    with pytest.raises(
        Invalid,
        match=rf"name 'me': a worker of that name runs on this machine already \(pid {ME['pid']}\): give this one another",
    ):
        await register(source).enlist()
    assert source.cards == []


async def test_a_card_has_the_identity_and_a_new_life_each_time():
    source = Source()
    for _ in range(2):
        await register(source).enlist()
    first, second = source.cards
    assert json.loads(first.about) == {**ME, "slots": 3}
    assert (first.worker, first.worker_id) == ("me", "")
    assert first.life != second.life


async def test_a_renewal_returns_whether_to_drain_and_leaving_is_sent(caplog):
    source = Source()
    here = register(source)
    await here.enlist()
    assert not await here.renew()
    source.drains = True
    assert await here.renew()
    await here.leave()
    assert source.left == ["me"]


async def test_an_outage_does_not_keep_a_worker_from_leaving(caplog):
    caplog.set_level(logging.WARNING)
    await register(Source(), worker_id="away").leave()
    assert "cannot remove this worker's registration, which expires by itself: no answer" in caplog.text


async def test_without_a_boot_id_no_workers_are_read(monkeypatch):
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "worker")
    source = Source(worker("dead", GONE))
    assert await register(source).enlist() == 0
    assert source.gone == {}


async def test_a_superseded_worker_finishes_and_leaves(caplog):
    """Also after its registration was removed; the last worker to register has the identity."""
    caplog.set_level(logging.WARNING)
    source = Source()
    here = register(source, worker_id="pod-0")
    await here.enlist()
    me = worker("me", ME, "pod-0").model_copy(update={"life": source.cards[0].life})
    source.known = [me, worker("beside", ME, "pod-1")]
    assert not await here.renew()
    source.known = [
        worker("before", ME, "pod-0").model_copy(update={"enlisted_at": datetime(2020, 1, 1, tzinfo=UTC)}),
        me,
    ]
    assert not await here.renew()
    source.known = [
        me,
        worker("after", ME, "pod-0").model_copy(update={"enlisted_at": datetime(2999, 1, 1, tzinfo=UTC)}),
    ]
    assert await here.renew()
    source.known = [worker("after", ME, "pod-0")]
    assert await here.renew()
    assert (
        "another worker registered with this worker's identity (SUBLET_WORKER_ID): this worker drains"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("mine", "other", "goes"), [("a", "b", False), (None, "b", False), ("a", "a", True), ("a", None, True)]
)
async def test_a_worker_id_is_not_taken_by_another_token(mine, other, goes):
    """Over HTTP a worker may send any identity; one without the API has full access to Redis."""
    source = Source()
    here = register(source, worker_id="pod-0")
    await here.enlist()
    me = worker("me", ME | ({"principal": mine} if mine else {}), "pod-0").model_copy(
        update={"life": source.cards[0].life}
    )
    after = worker("after", ME | ({"principal": other} if other else {}), "pod-0")
    source.known = [me, after.model_copy(update={"enlisted_at": datetime(2999, 1, 1, tzinfo=UTC)})]
    assert await here.renew() is goes


@pytest.mark.parametrize(("other", "goes"), [("b", False), ("a", True)])
async def test_an_unlisted_worker_is_superseded_only_by_the_same_token(other, goes):
    """The list has the latest 1,000, and is empty after a flush, so another token could fill it or enlist first."""
    source = Source()
    here = register(source, worker_id="pod-0")
    enlisting = asyncio.create_task(here.enlist())
    while not source.cards:
        await asyncio.sleep(0)
    source.known = [
        worker("me", ME | {"principal": "a"}, "pod-0").model_copy(update={"life": source.cards[0].life})
    ]
    await enlisting
    after = worker("after", ME | {"principal": other}, "pod-0")
    copy = after.model_copy(update={"name": "copy", "life": source.cards[0].life})
    source.known = [copy, after]
    assert await here.renew() is goes
    assert len(source.cards) == (1 if goes else 2), "the remaining worker registers again"


async def test_one_of_two_simultaneous_workers_with_one_name_leaves(caplog):
    """Both read the list before either registered; the one whose card was overwritten notices it."""
    caplog.set_level(logging.WARNING)
    source = Source()
    first, second = register(source), register(source)
    await first.enlist()
    await second.enlist()
    source.known = [worker("me", ME).model_copy(update={"life": source.cards[1].life})]
    assert await first.renew()
    assert not await second.renew()
    assert "another worker registered with this worker's name: this worker drains" in caplog.text


@pytest.mark.parametrize("error", [WorkersFull("10000 live workers"), OutOfMemory("Redis is full")])
async def test_a_worker_that_is_not_registered_works_and_tries_again(error, caplog, monkeypatch):
    source = Source()
    enlist = source.enlist

    async def refuse(card):
        raise error

    monkeypatch.setattr(source, "enlist", refuse)
    here = register(source)
    assert await here.enlist() == 0
    assert not here.unwanted
    assert not await here.renew()
    assert caplog.messages == [f"this worker works without a registration, and tries again: {error}"]
    monkeypatch.setattr(source, "enlist", enlist)
    assert not await here.renew()
    assert [card.worker for card in source.cards] == ["me"]


@pytest.mark.parametrize("host", ["büro-1.example", "host name", "…", "h" * 100])
def test_a_workers_name_is_valid_on_any_host(monkeypatch, host):
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert keys.is_name(worker_name())
