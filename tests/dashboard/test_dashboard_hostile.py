"""Hostile texts stay text, whatever client stored them."""

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_jobs import HOSTILE
from tests.support.dashboard_pages import read

pytest_plugins = ["tests.support.browser"]

NO_EFFECT = "document.scripts.length === 1 && !document.querySelector('main img, main script, main b > i')"


@pytest.fixture(scope="module")
def evil(site):
    return site.stock.hostile()


@pytest.mark.parametrize("path", ["/jobs?queue=hostile", "/failures?queue=hostile", "/jobs/EVIL"])
def test_hostile_texts_are_shown_as_text(visit, site, evil, path):
    """`visit` fails for a violation of the policy."""
    page = visit(site.url, path.replace("EVIL", evil))
    page.wait_for_selector("main table")
    text = page.locator("main").inner_text()
    assert "<img src=x onerror=alert(1)>" in text
    assert not set("\x1b\x07\u202e\u2066\u2069") & set(text), "control characters are escapes"
    if path == "/jobs/EVIL":
        assert r"\u001b[31mred" in text
        assert r"invoice\u202efdp.exe" in text
        assert all(part in text for part in (HOSTILE["template"],))
    assert page.evaluate(NO_EFFECT)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_a_long_line_is_cut_until_it_is_asked_for(visit, site, evil):
    page = visit(site.url, f"/jobs/{evil}", width=360)
    payload = page.get_by_role("region", name="Payload").first
    assert len(payload.inner_text()) < 5000
    buttons = page.get_by_role("button", name="Show all")
    payload_button = page.get_by_role("button", name="Show all 19").last  # 196 KiB
    last = buttons.nth(buttons.count() - 1)
    payload_button.click()
    last.wait_for(state="detached")
    assert max(len(text) for text in page.locator("pre").all_inner_texts()) > 190_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_search_and_a_filter_with_markup_stay_text(visit, site):
    page = visit(site.url, "/jobs?queue=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&state=%3Cb%3E")
    assert page.get_by_role("alert").inner_text().startswith("Not valid")
    page.locator("#search-text").fill("<img src=x>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#toast.bad")
    assert page.evaluate(NO_EFFECT)
    page = visit(site.url, "/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", ready=False)
    assert page.evaluate("document.scripts.length") <= 1


def test_a_hostile_tag_is_text(visit, site):
    """No verb stores such a tag: another program did."""
    job = site.stock.submit("t", "tagged", tags=["fine"])
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        hash_key = keys.job(keys.base(site.settings.namespace), job)
        spec = raw.hget(hash_key, "spec")
        raw.hset(
            hash_key, "spec", spec.replace(b"tags=fine", "tags=<img/src=x/onerror=alert(1)>,\u202eb".encode())
        )
    for path in ("/jobs?queue=tagged", f"/jobs/{job}"):
        page = visit(site.url, path)
        page.get_by_role("link", name="<img/src=x/onerror=alert(1)>").wait_for()
        assert r"\u202eb" in page.locator("main").inner_text()
        assert page.evaluate(NO_EFFECT)
    refused = visit(site.url, "/jobs?tag=%3Cimg%20src%3Dx%3E&since=%3Cb%3E")
    assert refused.get_by_role("alert").inner_text().startswith("Not valid")
    assert refused.evaluate(NO_EFFECT)


def test_hostile_queries_of_the_page_do_nothing(visit, site):
    page = visit(site.url, "/queues?cursor=javascript:alert(1)")
    read(page)
    assert page.evaluate(NO_EFFECT)
