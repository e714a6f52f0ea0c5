"""The generated reference pages (docs/reference/cli.md, settings.md, errors.md) agree with the code."""

import pytest

from tests.support.reference_pages import FOLDER, PAGES, SETTINGS, variables_in_code


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name, monkeypatch):
    monkeypatch.delenv("SUBLET_APP", raising=False)
    assert (FOLDER / name).read_text() == PAGES[name](), (
        "run: .venv/bin/python -m tests.support.reference_pages"
    )


def test_every_variable_in_the_code_is_documented_and_every_documented_one_is_in_the_code():
    documented = [row[0] for rows in SETTINGS.values() for row in rows]
    assert len(documented) == len(set(documented))
    assert set(documented) == set(variables_in_code())
