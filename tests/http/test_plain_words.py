"""Details of problems that need no knowledge of regular expressions or of submits."""

from sublet.connection.settings import Settings
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker


async def test_a_name_and_an_absent_redis_are_described_in_words():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    named = await ask("POST", "/jobs", {"task": "a/b"})
    assert named.json()["detail"] == "body.task: use 1 to 128 of A-Z a-z 0-9 _ . : -"
    ready = await ask("GET", "/readyz")
    assert (ready.status, ready.json()["detail"]) == (503, "Redis does not answer")
    await api.aclose()
