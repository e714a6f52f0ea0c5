"""SECURITY.md names tests that are there, one at least for each threat, and leads where it says."""

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
def test_each_threat_has_its_defence_and_a_test_that_is_there(row):
    threat, defence, shown = row
    assert threat
    assert len(defence) > 20
    named = NAMED.findall(shown)
    assert named, "no test shows it"
    assert NAMED.sub("", shown).strip() == "", "nothing stands there but tests"
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        functions = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert test in functions, f"{file} has no {test}"


def test_the_table_has_all_that_there_is_to_fear():
    assert len(threats()) >= 20
    assert len({row[0] for row in threats()}) == len(threats())


def test_no_security_test_is_left_out_of_the_page():
    """Each of these files shows something that the page says."""
    files = {path.name for path in (ROOT / "tests").rglob("test_security_*.py")} - {"test_security_page.py"}
    assert {file.rpartition("/")[2] for file, _ in NAMED.findall(PAGE)} >= files


def test_its_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = link.partition("#")
        text = (ROOT / path).read_text()
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
            for line in text.splitlines()
            if line[:1] == "#"
        }
        assert not anchor or anchor in headings, link


def test_it_names_nobody():
    """Reports go by the repository's own private way: no address to be flooded, no person to be found."""
    assert not re.search(r"[\w.]+@[\w.]+", PAGE)
    assert "Report a vulnerability" in PAGE


def test_the_variables_that_it_names_are_ours():
    sources = "".join(
        path.read_text() for path in [*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    )
    for name in set(re.findall(r"SUBLET_[A-Z_]+", PAGE)):
        assert name in sources, name
