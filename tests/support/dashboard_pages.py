"""What tests read from a page of the dashboard."""

from typing import Any


def read(page: Any) -> None:
    """Wait until the view has been read and painted."""
    page.wait_for_selector("main h1")
    page.wait_for_selector(".loading", state="detached")


def columns(page: Any, region: str, column: int) -> list[str]:
    """The texts of one column of a table."""
    page.wait_for_selector(f"{region} tbody tr")
    rows = page.locator(f"{region} tbody tr")
    return [row.locator("th, td").nth(column).inner_text() for row in rows.all()]
