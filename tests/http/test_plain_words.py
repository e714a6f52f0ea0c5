"""Details of problems that need no knowledge of regular expressions."""

from sublet.connection.settings import Settings
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker


async def test_a_name_is_described_in_words():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    named = await ask("POST", "/jobs", {"task": "a/b"})
    assert named.json()["detail"] == "body.task: use 1 to 128 of A-Z a-z 0-9 _ . : -"
    for request, rule in (
        (("PATCH", "/queues/a%20b", {"limits": {}}), "path.queue: use 1 to 128 of A-Z a-z 0-9 _ . : -, or *"),
        (
            ("POST", "/jobs/claim", {"queues": ["a b"], "claim_id": "c" * 22}),
            "body.queues.0: use 1 to 128 of A-Z a-z 0-9 _ . : -, or a beginning of a name and *",
        ),
    ):
        assert (await ask(*request)).json()["detail"] == rule
    await api.aclose()


async def test_a_reading_without_redis_does_not_warn_of_an_unknown_outcome():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    for method, path, body, words in (
        ("GET", "/jobs?state=dead", None, "Redis does not answer: send the request again later"),
        (
            "POST",
            "/jobs",
            {"task": "t"},
            "Redis does not answer, so the outcome of this request is unknown: ",
        ),
    ):
        answer = await ask(method, path, body)
        assert answer.status == 503
        assert answer.json()["detail"].startswith(words)
    await api.aclose()
