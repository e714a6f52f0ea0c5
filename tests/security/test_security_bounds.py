"""Names that a token can invent: how many there may be, and what they cost the requests of others."""

import redis

from sublet.protocol import keys
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

ONE, TWO = "secret-of-one-0123456", "secret-of-two-0123456"


async def test_a_token_registers_at_most_a_thousand_live_workers(settings):
    raw = redis.Redis.from_url(settings.redis_url)
    api = Api(Store(settings), Tokens(f"one:work:{ONE} two:work:{TWO}"))
    core, life = asker(api), {"life": "1"}
    await core("PUT", "/workers/w", life, token=ONE)
    base = keys.base(settings.namespace, 0)
    now = raw.zscore(keys.workers(base), "one:w")
    raw.zadd(keys.owner(base, "one"), {f"other-{i}": now for i in range(999)})
    refused = await core("PUT", "/workers/new", life, token=ONE)
    assert (refused.status, refused.problem) == (429, "workers-full")
    assert refused.json()["detail"] == "one has 1000 live workers, the most of one token: use another"
    assert not raw.exists(keys.worker(base, "one:new"))
    assert (await core("PUT", "/workers/w", life, token=ONE)).status == 200, "a known one is renewed"
    assert (await core("PUT", "/workers/new", life, token=TWO)).status == 200
    await api.aclose()
    raw.close()
