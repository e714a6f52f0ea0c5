"""Fixtures for tests of the HTTP API: a plugin."""

from collections.abc import AsyncIterator

import pytest

from sublet.connection.settings import Settings
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.http_server import ask, serving
from tests.support.route_samples import Ask, asker


@pytest.fixture
async def core(settings: Settings) -> AsyncIterator[Ask]:
    """The framework-free API (`async def answer(request)`) on a fresh namespace."""
    api = Api(Store(settings), Tokens())
    yield asker(api)
    await api.aclose()


@pytest.fixture(params=["core", "wire"])
async def asked(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Ask]:
    """Send requests to the API on a fresh namespace: to the core directly, and through a real server."""
    if request.param == "core":
        api = Api(Store(settings), Tokens())
        yield asker(api)
        await api.aclose()
        return
    async with serving(settings) as url:
        yield lambda method, path, body=None, **how: ask(url, method, path, body, **how)
