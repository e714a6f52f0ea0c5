"""Groups from Python: options, limits, the reasons why a job waits, and workers that keep to both."""

import asyncio

import pytest

from sublet import App, Invalid
from sublet.context import Context
from sublet.options import Options


def test_options_are_rules_of_the_protocol():
    assert Options(group="acme", cost=1500).rules() == "group=acme cost=1500"
    assert Options(group=lambda tenant: tenant).rules() == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": "two words"}, "group 'two words': use 1 to 128 visible ASCII characters, without blanks"),
        (
            {"group": ".."},
            "group '..': use 1 to 128 visible ASCII characters, without blanks, but not . or .. alone",
        ),
        ({"group": ""}, "group '': use 1 to 128"),
        ({"group": "g" * 129}, "use 1 to 128"),
        ({"group": 5}, "group '5': use"),
        ({"cost": 0}, "cost 0: use a whole number from 1"),
        ({"cost": 1.5}, "cost 1.5: use a whole number"),
        ({"cost": True}, "cost True: use a whole number"),
    ],
)
def test_an_invalid_option_is_refused(options, words):
    with pytest.raises(Invalid, match=words):
        Options(**options).rules()


class Asking:
    """An app whose task has functions of its arguments as group and cost."""

    def __init__(self, settings):
        self.app = App(settings=settings)

        @self.app.task(queue="llm", group=lambda tenant: tenant, cost=lambda prompt: len(prompt))
        async def ask(prompt: str, tenant: str = "nobody") -> str:
            return f"{tenant}: {prompt}"

        self.ask = ask


def test_the_group_and_the_cost_may_be_functions_of_the_arguments(place):
    ask = Asking(place.settings).ask
    assert ask.job("hello", "acme").rules == "group=acme cost=5"
    assert ask.job("hello").rules == "group=nobody cost=5"
    assert ask.options(group="other").job("hi", tenant="x").rules == "group=other cost=2"
    assert ask.job("x").rules == "group=nobody"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda absent: absent,
            "group: the task's function for it needs absent: give that argument, or group",
        ),
        (lambda tenant: None, "group: the task's function for it returned None"),
        (lambda tenant: "a b", "group 'a b': use 1 to 128"),
    ],
)
def test_a_function_that_does_not_fit_is_named(place, function, words):
    ask = Asking(place.settings).ask
    with pytest.raises(Invalid, match=words):
        ask.options(group=function).job("hello", "acme")


async def test_limits_are_set_and_read_in_seconds(client, desk):
    assert await client.configure("q", concurrency=20, rate=60, per=60, group_concurrency=5) == (
        "concurrency=20 rate=60 per=60000 group_concurrency=5"
    )
    assert (await client.queue("q")).limits == {
        "concurrency": 20,
        "rate": 60,
        "per": 60,
        "group_concurrency": 5,
    }
    assert await client.configure("q", per=0.5) == "concurrency=20 rate=60 per=500 group_concurrency=5"
    assert (await client.queue("q")).limits["per"] == 0.5
    await client.configure("q", concurrency=None, rate=None, per=None, group_concurrency=None)
    assert (await client.queue("q")).limits == {}


async def test_a_groups_settings_are_changed_one_by_one(client):
    assert await client.change_group("q", "acme", concurrency=50, share=3) == "concurrency=50 share=3"
    assert (
        await client.change_group("q", "acme", rate=10, per=60) == "concurrency=50 share=3 rate=10 per=60000"
    )
    assert await client.change_group("q", "acme", concurrency=None, rate=None, per=None) == "share=3"
    with pytest.raises(
        Invalid, match="jobs: the settings of a group are concurrency, rate, per, burst and share"
    ):
        await client.change_group("q", "acme", jobs=3)


async def test_the_groups_of_a_queue_are_listed(client, desk):
    await client.configure("q", group_concurrency=1, group_rate=1, group_per=60)
    await client.change_group("q", "b", concurrency=5, rate=100, per=1)
    await client.change_group("q", "idle", share=2)
    await desk.submit("a0", "a1", "a2", rules="group=a")
    await desk.submit("b0", "b1", rules="group=b")
    first, _, second = sorted(await desk.claim(9), key=lambda lease: lease.id)
    found = {one.name: one for one in (await client.groups("q")).groups}
    assert set(found) == {"a", "b", "idle"}
    a, b = found["a"], found["b"]
    assert (a.waiting, a.running, a.blocked, a.limits) == (
        2,
        1,
        "concurrency",
        {"concurrency": 1, "rate": 1, "per": 60},
    )
    assert (b.waiting, b.running, b.blocked, b.limits) == (
        0,
        2,
        None,
        {"concurrency": 5, "rate": 100, "per": 1},
    )
    assert (b.own, found["idle"].share) == (("concurrency", "rate", "per"), 2)
    await desk.complete(first)
    await desk.claim(9)
    (a,) = [one for one in (await client.groups("q")).groups if one.name == "a"]
    assert a.blocked == "rate"
    assert a.next_at is not None
    assert (await client.groups("q", limit=1)).more
    assert second.id == "b1"


async def test_many_groups_are_listed_in_part(client, desk):
    for i in range(0, 600, 200):
        await asyncio.gather(*(desk.submit(f"j{n}", rules=f"group=g{n}") for n in range(i, i + 200)))
    found = await client.groups("q", limit=50)
    assert (len(found.groups), found.waiting, found.more) == (50, 600, True)
    with pytest.raises(Invalid, match="limit 1001: list 1 to 1,000 groups"):
        await client.groups("q", limit=1001)


async def test_a_job_names_the_limit_for_which_it_waits(client, desk):
    await client.configure("q", group_concurrency=1)
    await desk.submit("a0", "a1", rules="group=a")
    assert (await client.get("a0")).waits_for is None
    lease = await desk.take("a0")
    assert (await client.get("a1")).waits_for == "group a: 1 of 1 running"
    await client.configure("q", group_concurrency=None, concurrency=1)
    assert (await client.get("a1")).waits_for == "queue q: 1 of 1 running"
    await desk.complete(lease)
    await client.configure("q", concurrency=None, rate=1, per=3600)
    await desk.take("a1")
    await desk.submit("a2", rules="group=a")
    assert (await client.get("a2")).waits_for.startswith("queue q: the next token comes at ")
    await client.configure("q", rate=None, per=None, group_rate=1, group_per=3600)
    await desk.submit("b0", "b1", rules="group=b")
    await desk.claim(9)
    assert (await client.get("b1")).waits_for.startswith("group b: the next token comes at ")
    await client.pause("q")
    assert (await client.get("b1")).waits_for == "queue q is paused"


async def test_a_list_names_the_limit_for_which_each_job_waits(client, desk):
    await client.configure("q", group_concurrency=1, rate=10, per=3600, burst=6)
    await desk.submit("a0", "a1", rules="group=a")
    await desk.submit("dear", rules="group=b cost=6")
    await desk.submit("c0", rules="group=c")
    await desk.submit("free", queue="other")
    await desk.take("a0")
    found = {job.id: job.waits_for for job in (await client.list_jobs()).jobs}
    assert found.pop("dear").startswith("queue q: the next token comes at ")
    assert found == {"a0": None, "a1": "group a: 1 of 1 running", "c0": None, "free": None}
    await client.pause("other")
    found = {job.id: job.waits_for for job in (await client.list_jobs(queue="other")).jobs}
    assert found == {"free": "queue other is paused"}


async def test_the_groups_name_the_limit_that_holds_their_whole_queue_back(client, desk):
    await desk.submit("p", queue="plain")
    found = await client.groups("plain")
    assert (found.running, found.blocked, found.next_at) == (None, None, None)
    await client.configure("q", concurrency=1)
    await desk.submit("a0", "a1", rules="group=a")
    assert ((await client.groups("q")).running, (await client.groups("q")).blocked) == (0, None)
    lease = await desk.take("a0")
    found = await client.groups("q")
    assert (found.running, found.blocked, found.next_at) == (1, "concurrency", None)
    await desk.complete(lease)
    await client.configure("q", concurrency=None, rate=1, per=3600)
    await desk.take("a1")
    found = await client.groups("q")
    assert (found.running, found.blocked) == (1, "rate")
    assert found.next_at is not None


async def test_one_group_is_found_by_its_name_and_so_are_its_jobs(client, desk):
    await desk.submit("a0", "a1", rules="group=a")
    await desk.submit("b0", rules="group=b")
    await desk.submit("c0")
    found = await client.groups("q", group="b")
    assert ([(one.name, one.waiting) for one in found.groups], found.more) == ([("b", 1)], True)
    found = await client.groups("q", group="unknown")
    assert [(one.name, one.waiting, one.running) for one in found.groups] == [("unknown", 0, 0)]
    assert [job.id for job in (await client.list_jobs(group="a")).jobs] == ["a0", "a1"]
    for plan in (client.groups("q", group="a b"), client.list_jobs(group="")):
        with pytest.raises(Invalid, match="use 1 to 128 visible ASCII characters"):
            await plan


def test_a_context_refuses_an_invalid_cost():
    context = Context.__new__(Context)
    for cost in (-1, 1.5, True, 10**14):
        with pytest.raises(Invalid, match="use a whole number from 0"):
            context.spent(cost)
