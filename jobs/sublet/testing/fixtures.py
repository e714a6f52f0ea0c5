"""The pytest fixture."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sublet.app import App
from sublet.testing.sandbox import Sandbox
from sublet.testing.work import Plain


def fixture(
    app: App, *, autouse: bool = False, plain: Plain = "thread", slots: int = 1, now: datetime | None = None
) -> Any:
    """A pytest fixture that gives each test a sandbox of its own: in a conftest.py, `sandbox = sublet.testing.fixture(app)`.

    It needs no event loop, so it serves async tests (pytest-asyncio, anyio) and plain ones alike. With `autouse` no test can
    reach the real Redis through this app, whether it asks for the sandbox or not.
    """
    import pytest  # here and not above: a sandbox works without it

    @pytest.fixture(autouse=autouse)
    def sandbox() -> Iterator[Sandbox]:
        """The app, in a sandbox."""
        with Sandbox(app, plain=plain, slots=slots, now=now) as entered:
            yield entered

    return sandbox
