"""Both job sources under the same tests: Redis on every backend, and the HTTP API of a real server on one of
them."""

import pytest

from sublet.store.http import HttpSource
from tests.conftest import REAL
from tests.support.http_server import serving


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if not _is_one_too_many(item)]


def _is_one_too_many(item):
    how = item.callspec.params if hasattr(item, "callspec") else {}
    alone = how.get("over") == "http" or getattr(item.module, "ONE_BACKEND", False)
    return alone and how.get("backend", REAL[-1]) != REAL[-1]


@pytest.fixture(params=["redis", "http"])
def over(request):
    """Which job source a test uses."""
    return request.param


@pytest.fixture
async def source(over, store, place):
    """The source from which a worker claims; the test looks at the jobs through `store`."""
    if over == "redis":
        yield store
        return
    async with serving(place.settings) as url:
        source = HttpSource(url)
        yield source
        await source.aclose()
