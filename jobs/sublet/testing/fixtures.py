"""A pytest fixture that makes a sandbox."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sublet.app import App
from sublet.testing.sandbox import Sandbox
from sublet.testing.work import Plain


def fixture(
    app: App, *, autouse: bool = False, plain: Plain = "thread", slots: int = 1, now: datetime | None = None
) -> Any:
    """Return a pytest fixture that gives each test a new sandbox: `sandbox = sublet.testing.fixture(app)` in
    a conftest.py.

    With `autouse`, all tests have one. `plain`, `slots` and `now` are those of `Sandbox`.
    """
    import pytest

    @pytest.fixture(autouse=autouse)
    def sandbox() -> Iterator[Sandbox]:
        with Sandbox(app, plain=plain, slots=slots, now=now) as entered:
            yield entered

    return sandbox
