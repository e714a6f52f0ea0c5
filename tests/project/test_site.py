"""The documentation site: it builds without a warning, and a reader finds the pages by the menu and by search."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Each warning (a dead link, a missing heading, a page in no menu) is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", str(folder / "cache")]
    done = subprocess.run(
        [*build, "docs", str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "html"


def test_each_page_is_in_the_menu(site):
    menu = (site / "index.html").read_text()
    for page in PAGES:
        assert (site / page).with_suffix(".html").is_file()
        if str(page) != "index.md":
            assert f'href="{page.with_suffix(".html")}"' in menu, f"{page} is not in the menu"


def test_search_finds_each_page(site):
    index = json.loads(re.fullmatch(r"Search\.setIndex\((.*)\)", (site / "searchindex.js").read_text())[1])
    assert {f"{name}.md" for name in index["docnames"]} == {str(page) for page in PAGES}


def test_the_documented_command_builds_the_site_as_the_test_does():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert ".venv/bin/python -m sphinx -W --keep-going -n docs .site" in text
