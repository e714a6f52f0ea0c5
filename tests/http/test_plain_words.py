"""Details of problems that need no knowledge of regular expressions."""

import re
from argparse import ArgumentTypeError

import pytest

from sublet.cli.argument_types import timestamp
from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker


async def test_a_name_is_described_in_words():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    named = await ask("POST", "/jobs", {"task": "a/b"})
    assert named.json()["detail"] == "body.task: use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"
    for request, rule in (
        (
            ("PATCH", "/queues/a%20b", {"limits": {}}),
            "path.queue: use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone, or *",
        ),
        (
            ("POST", "/jobs/claim", {"queues": ["a b"], "claim_id": "c" * 22}),
            "body.queues.0: use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone, or a beginning of a name and * for all queues that begin so",
        ),
    ):
        assert (await ask(*request)).json()["detail"] == rule
    for name in ("a%2Fb", "x" * 41, "x" * 200):
        named = await ask("GET", f"/schedules/{name}")
        assert (
            named.json()["detail"]
            == "path.schedule: use 1 to 40 of A-Z a-z 0-9 _ . : -, but not . or .. alone"
        )
    await api.aclose()


async def test_names_that_clients_remove_from_paths_are_refused():
    """Also where they stand in a body: else the API, a browser or curl could not name what was made."""
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    for dots in (".", ".."):
        for request in (
            ("GET", f"/queues/{dots}"),
            ("GET", f"/jobs/{dots}"),
            ("PUT", f"/pools/{dots}", {"queues": ["q"]}),
            ("PUT", f"/schedules/{dots}", {"task": "t", "every": 60}),
            ("PUT", f"/workers/{dots}", {"life": "1"}),
            ("POST", "/jobs", {"task": dots}),
            ("POST", "/jobs", {"task": "t", "queue": dots}),
            ("POST", "/jobs", {"task": "t", "id": dots}),
            ("POST", "/jobs", {"task": "t", "tags": [dots]}),
            ("PUT", "/pools/p", {"queues": [dots]}),
            ("PATCH", "/queues/q", {"on_dead": f"{dots}/t"}),
            ("GET", f"/jobs?tag={dots}"),
        ):
            answer = await ask(*request)
            assert answer.status == 422, request
            assert "but not . or .. alone" in answer.json()["detail"], request
        with pytest.raises(Invalid, match=r"but not \. or \.\. alone"):
            Tokens(f"{dots}:read:{'s' * 20}")
    await api.aclose()


async def test_no_text_of_pydantic_is_shown():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    for request, words in (
        (("POST", "/jobs", {}), "body.task: missing: add it"),
        (("POST", "/jobs", {"task": 5}), "body.task: use text"),
        (("POST", "/jobs", {"task": "t", "tusk": 1}), "body.tusk: unknown: leave it out"),
        (("POST", "/jobs", {"task": "t", "priority": "5"}), "body.priority: use a whole number"),
        (("POST", "/jobs", {"task": "t", "priority": 101}), "body.priority: use 100 or less"),
        (("POST", "/jobs", {"task": "t", "priority": 1.5}), "body.priority: use a whole number"),
        (("POST", "/jobs", {"task": "t", "delay": "5"}), "body.delay: use a number"),
        (("POST", "/jobs", {"task": "t", "payload": []}), "body.payload: use an object"),
        (("POST", "/jobs", {"task": "t", "backoff": []}), "body.backoff: use an object; or: use a number"),
        (("POST", "/jobs", {"task": "t", "keep_payload": 1}), "body.keep_payload: use true or false"),
        (
            ("POST", "/jobs", {"task": "t", "durability": "x"}),
            "body.durability: use 'none', 'replicated' or 'fsync'",
        ),
        (("POST", "/jobs", {"task": "t", "key": ""}), "body.key: use 1 or more characters"),
        (("POST", "/jobs", {"task": "t", "tags": list("abcdef")}), "body.tags: give at most 5"),
        (("POST", "/jobs/batch", {"jobs": []}), "body.jobs: give 1 or more"),
        (("POST", "/jobs", []), "body: use an object"),
        (("POST", "/jobs/cancel", {"filter": {"state": "x"}}), "body.filter.state: use 'scheduled', "),
        (("GET", "/jobs?limit=x"), "query.limit: use a whole number"),
        (("GET", "/workers?jobs=x"), "query.jobs: use true or false"),
        (("GET", "/history?span=year"), "query.span: use 'hour', 'day' or 'month'"),
        (("PUT", "/schedules/s", {"task": "t", "every": 0}), "body.every: use 1 or more"),
    ):
        detail = (await ask(*request)).json()["detail"]
        assert detail.startswith(words), (request, detail)
    await api.aclose()


async def test_a_parameter_that_is_given_twice_is_refused():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    for path, name in (("/jobs?limit=5&limit=6", "limit"), ("/tick?for=1&for=2", "for")):
        answer = await ask("GET", path)
        assert (answer.status, answer.json()["detail"]) == (422, f"query.{name}: given twice: give it once")
        assert answer.json()["errors"] == [{"parameter": name, "detail": "give it once"}]
    await api.aclose()


async def test_a_moment_that_does_not_exist_is_refused_as_such():
    """With the same words in a body, in a query and on the command line."""
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    no_day = "there is no such time: day is out of range for month"
    no_zone = "use a time with a time zone, as RFC 3339 has it, e.g. 2030-01-31T09:00:00Z"
    for text, words in (
        ("2030-02-31", no_day),
        ("2030-02-31T09:00:00Z", no_day),
        ("2030-01-31T25:00:00Z", "there is no such time: hour must be in 0..23"),
        ("2030-01-31T09:00:00", no_zone),
        ("tomorrow", no_zone),
        ("2030-01-31T09:00:00+99:00", no_zone),
    ):
        submitted = await ask("POST", "/jobs", {"task": "t", "run_at": text})
        assert submitted.json()["detail"] == f"body.run_at: {words}"
        listed = await ask("GET", f"/jobs?since={text.replace('+', '%2B')}")
        assert listed.json()["detail"] == f"query.since: {words}"
        planned = await ask("PUT", "/schedules/s", {"task": "t", "every": 60, "start": text})
        assert planned.json()["detail"] == f"body.start: {words}"
        with pytest.raises(ArgumentTypeError, match=re.escape(words)):
            timestamp(text)
    await api.aclose()


async def test_a_reading_without_redis_does_not_warn_of_an_unknown_outcome():
    api = Api(Store(Settings("redis://127.0.0.1:1", timeout=0.2)), Tokens())
    ask = asker(api)
    for method, path, body, words in (
        (
            "GET",
            "/jobs?state=dead",
            None,
            "Redis does not answer or cannot serve: send the request again later",
        ),
        (
            "POST",
            "/jobs/retry",
            {"filter": {}, "dry_run": True},
            "Redis does not answer or cannot serve: send the request again later",
        ),
        (
            "POST",
            "/jobs/retry",
            {"filter": {}},
            "Redis does not answer or cannot serve, so the outcome of this request is unknown: ",
        ),
        (
            "POST",
            "/jobs",
            {"task": "t"},
            "Redis does not answer or cannot serve, so the outcome of this request is unknown: ",
        ),
    ):
        answer = await ask(method, path, body)
        assert answer.status == 503
        assert answer.json()["detail"].startswith(words)
    await api.aclose()
