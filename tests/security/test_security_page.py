"""SECURITY.md names existing tests, at least one for each threat, and its links work."""

import ast
import re

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def threats():
    table = PAGE.partition("## Threats\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[0][:60])
def test_each_threat_has_a_defence_and_an_existing_test(row):
    threat, defence, shown = row
    assert threat
    assert len(defence) > 20
    named = NAMED.findall(shown)
    assert named, "the row names no test"
    assert NAMED.sub("", shown).strip() == "", "the cell contains only tests"
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        functions = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in functions, f"{file} has no {test}"


def test_the_table_has_at_least_twenty_distinct_threats():
    assert len(threats()) >= 20
    assert len({row[0] for row in threats()}) == len(threats())


def test_the_page_names_every_security_test_file():
    """Each of these files tests a statement of the page."""
    files = {path.name for path in (ROOT / "tests").rglob("test_security_*.py")} - {"test_security_page.py"}
    assert {file.rpartition("/")[2] for file, _ in NAMED.findall(PAGE)} >= files


def test_the_links_of_the_page_work():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = link.partition("#")
        text = (ROOT / path).read_text()
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
            for line in text.splitlines()
            if line[:1] == "#"
        }
        assert not anchor or anchor in headings, link


def test_the_page_contains_no_address():
    """Reports use the repository's private reporting: the page contains no e-mail address and no name of a
    person.
    """
    assert not re.search(r"[\w.]+@[\w.]+", PAGE)
    assert "Report a vulnerability" in PAGE


def test_the_variables_on_the_page_exist():
    sources = "".join(
        path.read_text() for path in [*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    )
    for name in set(re.findall(r"SUBLET_[A-Z_]+", PAGE)):
        assert name in sources, name
