"""The pages of the web frameworks: their programs and commands run as written, on real servers and a real Redis."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.paths import ROOT

pytestmark = pytest.mark.real_server
PROGRAMS = {
    "fastapi": ["fastapi", "httpx2", "uvicorn"],
    "starlette": ["starlette", "httpx2", "uvicorn"],
    "django": ["django", "gunicorn", "uvicorn"],
    "flask": ["flask", "gunicorn"],
}
"""The frameworks, and the packages that the commands of their pages need."""
FAULTS = re.compile(r"Traceback|\w*Warning|ERROR|Exception ignored")


def page(name):
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text()


@pytest.fixture
def env(tmp_path, place, raw):
    env = pages.page_environment(tmp_path, place)
    return env | {
        "PATH": env["PATH"].replace(":", f":{Path(sys.executable).parent}{os.pathsep}", 1),
        "PYTHONWARNINGS": "always::ResourceWarning",  # a connection that is left open
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:asyncio -W error",
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_framework_works_as_its_page_shows(name, tmp_path, env):
    for package in PROGRAMS[name]:
        pytest.importorskip(package)
    pages.need_curl()
    home = tmp_path / "project"
    for path, text in pages.blocks("python", page(name)):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    here = [*pages.steps(*(text for _, text in pages.blocks("console", page(name))))]
    ports = {port: pages.free_port() for port in re.findall(r"\b839\d\b", page(name))}
    typed = [
        step._replace(command=re.sub(r"\b839\d\b", lambda port: ports[port[0]], step.command))
        for step in here
    ]
    for step, answer in zip(here, pages.run(typed, home, env, 100), strict=True):
        pages.check(step, *answer)
    logs = {path.name: path.read_text() for path in home.glob("*.log")}
    assert logs
    assert {log: text for log, text in logs.items() if FAULTS.search(text)} == {}


def test_the_index_names_all_pages():
    assert re.findall(r"^\| \[\w+\]\((\w+)\.md\)", page("web"), re.M) == list(PROGRAMS)
