"""The generated reference pages (docs/reference/cli.md, settings.md, errors.md) agree with the code."""

import re

import pytest

from sublet.cli.commands import COMMANDS
from tests.support.paths import ROOT
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


def test_each_option_has_a_row_that_names_what_explains_it():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    work = page.partition("### sublet work\n")[2].partition("\n### ")[0]
    flags = COMMANDS["work"].parser().flags().keys() - {"--redis-url", "--namespace", "--json", "--debug"}
    assert sorted(re.findall(r"^\| `(--[a-z-]+)", work, re.MULTILINE)) == sorted(flags)
    assert "| `--linger 5s` | see `--drain` |" in work
