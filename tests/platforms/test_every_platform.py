"""The API's tests on every platform: each real server runs as a process here, or as the platform's own
client.

A test with the fixture `asked` or `core` needs a whole API, independent of the server. Some platforms
cannot pass the requests of the tests in NOT_HERE to the application, or answer them alone.
"""

import asyncio
import inspect
import re
import uuid
from types import ModuleType

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.store.store import Store
from sublet_functions.http.response import SECURITY_HEADERS
from tests.dashboard import test_dashboard_http
from tests.http import test_http_api, test_http_bodies, test_http_twice
from tests.http.test_http_twice import stored  # noqa: F401  a fixture of some tests
from tests.scaling import test_pools_http
from tests.schedules import test_schedules_http
from tests.schedules.test_schedules_http import occurrence  # noqa: F401  likewise
from tests.support.draws import one_for
from tests.support.http_settings import own  # noqa: F401  likewise
from tests.support.platforms import PLATFORMS

MODULES: tuple[ModuleType, ...] = (
    test_http_api,
    test_http_twice,
    test_http_bodies,
    test_schedules_http,
    test_pools_http,
    test_dashboard_http,
)
NOT_HERE = {
    "test_an_unsupported_method_is_405_with_the_allowed_methods": "servers refuse unknown methods themselves",
    "test_a_schedule_is_checked_as_a_job_is": "their servers keep the catalogue of the test before for seconds",
    "test_an_unknown_path_is_404": "servers refuse malformed paths themselves, and some merge slashes",
}
LINE_BREAK = re.compile("%0[ad]", re.IGNORECASE)
"""Flask answers 404 for these paths without calling the application."""


def of_the_api(module: ModuleType) -> dict[str, object]:
    """The tests of a module that need an API."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_") and callable(test)}
    return {
        name: test
        for name, test in tests.items()
        if {"asked", "core"} & set(inspect.signature(test).parameters) and name not in NOT_HERE
    }


for _module in MODULES:
    globals().update(of_the_api(_module))


def test_each_module_has_tests_of_the_api_and_the_excluded_tests_exist():
    assert all(of_the_api(module) for module in MODULES)
    assert all(any(hasattr(module, name) for module in MODULES) for name in NOT_HERE)


@pytest.fixture(scope="module")
def url(new_server):
    """A server for this file: it is flushed before each test."""
    return new_server("valkey").url


def pytest_generate_tests(metafunc):
    if "platform" in metafunc.fixturenames:
        platforms = one_for(metafunc.definition.nodeid, list(PLATFORMS))
        metafunc.parametrize("platform", platforms, indirect=True, scope="module")


@pytest.fixture(scope="module")
def platform(request, url, tmp_path_factory):
    """A platform's server for all tests: its client, its settings, and the keys of a new namespace."""
    settings = Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
    with (
        PLATFORMS[request.param](settings, tmp_path_factory.mktemp(request.param)) as asked,
        redis.Redis.from_url(url) as raw,
    ):
        raw.flushdb()
        asyncio.run(prepare(settings))
        yield settings, asked, {key: raw.dump(key) for key in raw.scan_iter(count=1000)}


async def prepare(settings):
    store = Store(settings)
    await store.prepare()
    await store.aclose()


@pytest.fixture
def settings(platform):
    """The settings of a server with a new namespace; the server is not restarted."""
    settings, _, fresh = platform
    with redis.Redis.from_url(settings.redis_url) as raw:
        raw.flushdb()
        for key, value in fresh.items():
            raw.restore(key, 0, value)
    return settings


@pytest.fixture
def asked(platform, settings, request):
    _, asked, _ = platform

    async def of_flask(method, path, *body, **how):
        answer = await asked(method, path, *body, **how)
        if LINE_BREAK.search(path.partition("?")[0]):
            assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
            pytest.xfail("Flask does not call its application here")
        return answer

    return of_flask if "functions-framework" in request.node.callspec.id else asked


@pytest.fixture
def core(asked):
    return asked


async def test_a_missing_or_wrong_token_gets_a_problem(asked):
    for token in ("", "an-unknown-token-0123456"):
        for method, path, body in (
            ("POST", "/jobs", {"task": "t"}),
            ("GET", "/tick", None),
            ("POST", "/events", {"sublet": "tick"}),
        ):
            answer = await asked(method, path, body, token=token, x_amzn_request_context="null")
            assert (answer.status, answer.problem, answer.headers["www-authenticate"]) == (
                401,
                "unauthorized",
                "Bearer",
            )
    assert (await asked("GET", "/healthz", token="")).status == 200


async def test_a_path_and_its_query_are_parsed_as_they_were_sent(asked):
    await asked("POST", "/jobs", {"task": "t", "queue": "a-b"})
    assert (await asked("GET", "/queues/a%2Db")).json()["jobs"] == 1
    assert (await asked("GET", "/jobs/a%2Fb")).places[0] == "id"
    assert (await asked("GET", "/jobs/next?queue=none&queue=a%2Db&worker=w")).json()["queue"] == "a-b"
    assert (await asked("GET", "/jobs?nonsense=%26&limit=1")).places[0] == "nonsense"


async def test_every_response_has_the_security_headers(asked):
    for method, path, status in (
        ("GET", "/", 200),
        ("POST", "/jobs/claim", 204),
        ("GET", "/nope", 404),
        ("DELETE", "/jobs", 405),
    ):
        answer = await asked(method, path)
        assert answer.status == status
        assert {
            name.lower(): value for name, value in SECURITY_HEADERS.items()
        }.items() <= answer.headers.items()
