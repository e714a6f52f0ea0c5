"""What tests read from a page of the dashboard."""

from typing import Any


def read(page: Any) -> None:
    """Wait until the view has been read and painted."""
    page.wait_for_selector("main:not([aria-busy]) h1")


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
