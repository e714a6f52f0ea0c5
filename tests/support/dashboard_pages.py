"""Readings of a page of the dashboard, for tests."""

import shutil
from typing import Any

from tests.support.processes import until


def chromium_program() -> str | None:
    """The path of the machine's own Chromium."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, found), None)


def read(page: Any) -> None:
    """Wait until the view has been read and painted."""
    page.wait_for_selector("main:not([aria-busy]) h1")


def until_true(page: Any, expression: str) -> None:
    """Wait until JavaScript is true in the page. (Playwright's own way needs `eval`, which the policy forbids.)"""
    until(lambda: page.evaluate(expression), expression)


def go(page: Any, key: str, view: str) -> None:
    """Open a view by its two keys: again, if a busy machine lets too much time pass between them."""

    def pressed() -> bool:
        page.keyboard.press("g")
        page.keyboard.press(key)
        return str(page.evaluate("location.pathname")).endswith(f"/ui/{view}")

    until(pressed, lambda: f"{page.url} after g {key}; a dialog: {page.locator('dialog').all_inner_texts()}")


def columns(page: Any, region: str, column: int) -> list[str]:
    """The texts of one column of a table."""
    page.wait_for_selector(f"{region} tbody tr")
    # All at once: a repaint may remove rows between two calls
    found: list[str] = page.eval_on_selector_all(
        f"{region} tbody tr",
        "(rows, column) => rows.map((row) => row.querySelectorAll('th, td')[column].innerText)",
        column,
    )
    return found
