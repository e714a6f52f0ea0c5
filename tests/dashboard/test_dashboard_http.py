"""The dashboard's page and files as HTTP: types, entity tags, policy and prefixes. Every platform serves them."""

import re

import pytest

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.dashboard.files import POLICY, static_files
from sublet_functions.http.auth import Tokens
from tests.support.http_server import ADMIN
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

PATHS = {
    "/ui": "./",
    "/ui/jobs": "../",
    "/ui/jobs?state=dead&queue=a": "../",
    "/ui/jobs/0-a:b.c": "../../",
    "/ui/nothing": "../",
    "/ui/Jobs?%FF&a=1&a=2": "../",
    "/ui/schedules/a%20b": "../../",
    "/ui/schedules/daily/": "../../../",
    "/ui/a/b/c": "../../../",
}
"""Paths of the page, and the relative URL of the API's root from there."""


async def test_the_page_is_served_for_each_view_with_a_strict_policy(asked):
    for path, root in PATHS.items():
        answer = await asked("GET", path, token="")
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["cache-control"] == "no-cache"
        text = answer.body.decode()
        assert f'<meta name="sublet-root" content="{root}">' in text
        assert f'src="{root}ui/static/main.js"' in text


async def test_a_slash_at_the_end_leads_to_the_page(asked):
    answer = await asked("GET", "/ui/", token="")
    assert (answer.status, answer.headers["location"]) == (307, "../ui")


async def test_a_name_with_a_slash_is_a_page_too(core):
    answer = await core("GET", "/ui/schedules/a%2Fb")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert '<meta name="sublet-root" content="../../">' in answer.body.decode()
    posted = await core("POST", "/ui/schedules/a%2Fb")
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
    assert (await core("HEAD", "/ui/nothing")).status == 200


async def test_a_file_has_its_type_and_an_entity_tag(asked):
    for name, kind in (
        ("main.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ):
        answer = await asked("GET", f"/ui/static/{name}", token="")
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.body == static_files()[name].body
        tag = answer.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}'):
            again = await asked("GET", f"/ui/static/{name}", token="", if_none_match=known)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        changed = await asked("GET", f"/ui/static/{name}", token="", if_none_match='"other"')
        assert changed.status == 200


async def test_a_file_that_the_dashboard_does_not_have_is_404(asked):
    for path in ("/ui/static/nothing.js", "/ui/static/index.html"):
        answer = await asked("GET", path, token="")
        assert (answer.status, answer.problem) == (404, "not-found"), path


async def test_a_file_name_with_a_path_is_refused(core):
    for path in ("/ui/static/%2e%2e", "/ui/static/..%2Ffiles.py", "/ui/static/a.b.js"):
        assert (await core("GET", path)).problem == "invalid", path


async def test_the_page_and_its_links_work_below_a_base_path(settings):
    api = Api(Store(settings), Tokens(ADMIN), base_path="/queue/v1")
    for path, root in PATHS.items():
        for prefix in ("", "/queue/v1"):  # some gateways remove it
            text = (await asker(api)("GET", prefix + path)).body.decode()
            assert f'content="{root}"' in text, prefix + path
    links = (await asker(api)("GET", "/")).json()["links"]
    assert links["dashboard"] == "/queue/v1/ui"
    await api.aclose()


async def test_a_browser_that_opens_the_root_finds_a_link_to_the_dashboard(core):
    answer = await core("GET", "/", accept="text/html")
    assert '<a href="ui">dashboard</a>' in answer.body.decode()


@pytest.mark.parametrize("directive", ["script-src", "style-src", "connect-src", "img-src"])
def test_the_policy_allows_nothing_inline_and_no_other_origin(directive):
    parts = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert parts[directive] == "'self'"
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts["frame-ancestors"] == parts["trusted-types"] == "'none'"
    assert not re.search(r"unsafe|https?:|\*|data:", POLICY)
