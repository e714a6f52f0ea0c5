"""Pools over HTTP: put, read and removed; and workers of a pool that register and ask to leave."""

import pytest

from sublet.errors import Invalid
from sublet.operations.pool import Pool
from sublet.protocol.scripts import Call
from sublet.scaling.summoner import take_owed
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.schemas.pools import PoolSettings
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

CALLED = {"invoker": "http", "target": "https://example.com/work"}
SETTINGS = {"queues": ["images", "thumbs"], "max": 20, "wait": 2, "slots": 4}


async def test_a_pool_is_put_read_listed_and_deleted(asked):
    made = await asked("PUT", "/pools/images", SETTINGS)
    assert made.status == 201
    pool = made.json()
    assert {name: pool[name] for name in SETTINGS} == SETTINGS
    assert (pool["name"], pool["invoker"], pool["revision"], pool["failed_at"]) == ("images", "none", 1, None)
    assert pool["sum"] == {
        "ready": 0, "running": 0, "rate": 0.0, "run": 1.0, "need": 0.0, "wanted": 0, "crew": 0, "summoned": 0, "owed": 0,
    }  # fmt: skip
    assert (await asked("PUT", "/pools/images", SETTINGS)).status == 200
    assert (await asked("PUT", "/pools/images", {**SETTINGS, "min": 2})).json()["sum"]["owed"] == 2
    assert (await asked("GET", "/pools")).json() == {"pools": [(await asked("GET", "/pools/images")).json()]}
    assert (await asked("DELETE", "/pools/images")).status == 204
    assert (await asked("DELETE", "/pools/images")).status == 204
    gone = await asked("GET", "/pools/images")
    assert (gone.status, gone.problem, gone.json()["detail"]) == (404, "not-found", "no pool images")


async def test_omitted_settings_have_the_same_defaults_everywhere(core):
    pool = (await core("PUT", "/pools/p", {"queues": ["q"]})).json()
    usual = Pool(name="p", queues=("q",), revision=1)
    assert {**pool, "sum": None} == usual.model_dump(mode="json")
    defaults = {
        name: field.default
        for name, field in PoolSettings.model_fields.items()
        if name not in ("queues", "revision")
    }
    assert defaults == {name: getattr(usual, name) for name in defaults}


async def test_a_put_with_another_revision_is_refused(core):
    assert (await core("PUT", "/pools/p", {"queues": ["q"], "revision": 0})).status == 201
    assert (await core("PUT", "/pools/p", {"queues": ["q", "r"], "revision": 1})).status == 200
    late = await core("PUT", "/pools/p", {"queues": ["s"], "revision": 1})
    assert (late.status, late.problem) == (409, "changed")
    assert (await core("GET", "/pools/p")).json()["queues"] == ["q", "r"]


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"queues": []}, "body.queues: "),
        ({"queues": ["a", "a"]}, "queues: give 1 to 32 names, each once"),
        ({"queues": ["a b"]}, "body.queues.0: "),
        ({"invoker": "magic"}, "body.invoker: "),
        ({"max": 1001}, "body.max: "),
        ({"min": 30}, "min=30 max=20: use 0 ≤ min ≤ max"),
        ({"slots": 0}, "body.slots: "),
        ({"wait": 0}, "body.wait: "),
        ({"linger": -1}, "body.linger: "),
        ({"nonsense": 1}, "body.nonsense: "),
        ({"invoker": "http"}, "the target must be a URL"),
        ({"invoker": "http", "target": "https://10.0.0.7/work"}, "is not public"),
        ({"invoker": "http", "target": "http://example.com/work"}, "must begin with https://"),
        (
            {"invoker": "http", "target": "https://example.com/work?…"},
            "this is the masked form; write out what the …",
        ),
    ],
)
async def test_an_invalid_pool_is_refused_with_the_reason(core, wrong, detail):
    answer = await core("PUT", "/pools/images", SETTINGS | wrong)
    assert (answer.status, answer.problem) == (422, "invalid")
    assert detail in answer.json()["detail"]
    assert (await core("GET", "/pools")).json() == {"pools": []}


async def test_possible_secrets_in_a_target_are_not_shown(core):
    target = {"invoker": "http", "target": "https://example.com/work?code=secret"}
    answers = [
        await core("PUT", "/pools/images", SETTINGS | target),
        await core("GET", "/pools"),
        await core("GET", "/pools/images"),
    ]
    assert [b"secret" in answer.body for answer in answers] == [False] * 3
    assert answers[2].json()["target"] == "https://example.com/work?…"


async def test_a_worker_registers_in_a_pool_and_asks_to_leave(asked):
    await asked("PUT", "/pools/p", {"queues": ["q"], "min": 1, "linger": 0})
    assert (await asked("PUT", "/workers/mill", {"life": "1", "pool": "p"})).json() == {"drain": False}
    late = await asked("PUT", "/workers/late", {"life": "1", "pool": "p", "summons": "s" * 22 + ".1"})
    assert late.json() == {"drain": True}
    assert (await asked("GET", "/pools/p")).json()["sum"]["crew"] == 1
    assert (await asked("POST", "/workers/mill/retire", {"life": "1", "pool": "p"})).json() == {
        "leave": False
    }
    assert (await asked("POST", "/workers/mill/retire", {"life": "2", "pool": "p"})).json() == {"leave": True}
    await asked("PUT", "/pools/p", {"queues": ["q"], "linger": 0})
    for _ in range(2):
        assert (await asked("POST", "/workers/mill/retire", {"life": "1", "pool": "p"})).json() == {
            "leave": True
        }
    assert (await asked("GET", "/pools/p")).json()["sum"]["crew"] == 0
    assert (await asked("POST", "/workers/unknown/retire", {"life": "1", "pool": "p"})).json() == {
        "leave": True
    }


async def test_a_worker_is_retired_only_with_its_own_token(settings):
    a, b, boss = "secret-of-a-0123456", "secret-of-b-0123456", "secret-of-the-boss-0123456"
    api = Api(Store(settings), Tokens(f"a:work:{a} b:work:{b} boss:admin:{boss}"))
    core, body = asker(api), {"life": "1", "pool": "p"}
    await core("PUT", "/pools/p", {"queues": ["q"], "linger": 0}, token=boss)
    await core("PUT", "/workers/mill", body, token=a)
    for name, token, crew in (("mill", b, 1), ("a:mill", b, 1), ("mill", a, 0)):
        assert (await core("POST", f"/workers/{name}/retire", body, token=token)).json() == {"leave": True}
        assert (await core("GET", "/pools/p", token=boss)).json()["sum"]["crew"] == crew
    await api.aclose()


async def test_names_that_do_nothing_keep_no_workers_away(settings):
    """They neither count, nor take the places of the workers that are invoked."""
    mill, boss = "secret-of-the-mill-0123456", "secret-of-the-boss-0123456"
    api = Api(Store(settings), Tokens(f"mill:work:{mill} boss:admin:{boss}"))
    core = asker(api)
    await core("PUT", "/pools/p", CALLED | {"queues": ["q"], "slots": 5}, token=boss)
    for i in range(50):
        name = {"life": "1", "pool": "p"} | ({"summons": f"{i:030}.1"} if i % 2 else {})
        assert (await core("PUT", f"/workers/name-{i}", name, token=mill)).status == 200
    jobs = [{"task": "t", "queue": "q"}] * 100
    assert (await core("POST", "/jobs/batch", {"jobs": jobs}, token=boss)).status == 200
    found = (await core("GET", "/pools/p", token=boss)).json()["sum"]
    assert (found["crew"], found["owed"]) == (0, found["wanted"])
    assert found["owed"] >= 4
    store = api.store
    (batch,) = await store.follow(take_owed(store.operations.bases, Pool(name="p", queues=("q",))))
    assert len(batch.summons) == found["owed"]
    for i, summons in enumerate(batch.summons):
        arrived = {"life": "1", "pool": "p", "summons": summons}
        answer = await core("PUT", f"/workers/worker-{i}", arrived, token=mill)
        assert answer.json() == {"drain": False}
    found = (await core("GET", "/pools/p", token=boss)).json()["sum"]
    assert (found["crew"], found["owed"]) == (found["wanted"], 0)
    await api.aclose()


async def test_a_leaving_worker_summons_others_for_its_queues(settings):
    api = Api(Store(settings), Tokens())
    nudged = []
    api.store.nudge = nudged.append
    core = asker(api)
    for about in ({"queues": ["q", 7]}, {"queues": "q"}, {}):
        await core("PUT", "/workers/mill", {"life": "1", "about": about})
        assert (await core("DELETE", "/workers/mill?life=1")).status == 204
    assert nudged == [["q"], [], []]
    await api.aclose()


async def test_a_pool_whose_stored_settings_are_invalid_summons_nobody(settings):
    api = Api(Store(settings), Tokens())
    core, store = asker(api), api.store
    await core("PUT", "/pools/p", CALLED | {"queues": ["q"], "slots": 5})
    assert (await core("POST", "/jobs", {"task": "t", "queue": "q"})).status == 201
    (base,) = store.operations.bases
    stored = await store.run(Call((("HGET", f"{base}:pools", "p"),), bytes.decode))
    await store.run(Call((("HSET", f"{base}:pools", "p", stored.replace("queues=q", "queues=q,+")),), int))
    with pytest.raises(Invalid, match=r"pool p are invalid: set it again"):
        await store.follow(take_owed([base], Pool(name="p", queues=("q",))))
    await api.aclose()
