"""A queue's page: its limits and its groups, what holds jobs back, and the orders that change limits."""

import re

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_pages import columns, read, until_true
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser"]

READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"
TOKENS = f"ada:read:{READ} boss:admin:{ADMIN}"
WAITING, RUNNING, SHARE, HELD, LIMITS = range(1, 6)
HOSTILE = ("<img/src=x/onerror=alert(1)>", "a/b?c=d&e#f%2F..", "'\"`$(x)", "g" * 128)
"""Groups that the server accepts."""


def busy(stock, queue, running, waiting, group="acme", **limits):
    """A queue with limits, and a group with running and waiting jobs; returns the leases."""
    stock.ask("PATCH", f"/queues/{queue}", {"limits": limits or {"group_concurrency": running}})
    for _ in range(running + waiting):
        stock.submit("ask", queue, group=group)
    claim = {"queues": [queue], "worker": "mill-7", "lease": 600, "n": running}
    return stock.ask("POST", "/jobs/claim", claim)["jobs"] if running else []


def cells(page, group):
    row = page.locator(f"tr[data-key='{group}']")
    row.wait_for()
    return [cell.inner_text() for cell in row.locator("th, td").all()]


def test_the_page_of_a_queue_shows_its_limits_and_what_each_group_waits_for(visit, site):
    stock = site.stock
    busy(stock, "shown", 2, 3, concurrency=9, group_concurrency=2)
    stock.ask("PUT", "/queues/shown/groups/tokens", {"rate": 1, "per": 3600, "share": 3})
    for _ in range(2):
        stock.submit("ask", "shown", group="tokens")
    stock.ask("POST", "/jobs/claim", {"queues": ["shown"], "worker": "mill-7", "lease": 600, "n": 9})
    page = visit(site.url, "/queues")
    page.locator("tr[data-key=shown]").get_by_role("link", name="shown", exact=True).click()
    page.wait_for_url("**/ui/queues/shown")
    acme = cells(page, "acme")
    assert acme[WAITING : HELD + 1] == ["3", "2 of 2", "1", "concurrency"]
    assert acme[LIMITS] == "2 at once"
    tokens = cells(page, "tokens")
    assert tokens[WAITING : SHARE + 1] == ["1", "1 of 2", "3"]
    assert re.fullmatch(r"next token in (1 h|59 min)", tokens[HELD])
    assert all(text in tokens[LIMITS] for text in ("1 per h", "2 at once"))
    facts = page.locator(".facts").inner_text()
    assert "3 of 9" in facts
    assert "each group: 2 at once" in facts
    assert "2 groups with queued jobs" in page.locator("main").inner_text()


def test_it_follows_the_jobs_of_its_groups(visit, site):
    (lease,) = busy(site.stock, "followed", 1, 1)
    page = visit(site.url, "/queues/followed")
    page.wait_for_selector(".mark.live")
    assert cells(page, "acme")[WAITING : HELD + 1] == ["1", "1 of 1", "1", "concurrency"]
    site.stock.settle(lease, "complete", result=None)
    until_true(page, "document.querySelector(\"tr[data-key='acme']\").cells[4].innerText === '–'")
    site.stock.submit("ask", "followed", group="fresh")  # a new row
    assert cells(page, "fresh")[WAITING] == "1"


def test_a_limit_of_the_queue_that_holds_all_jobs_back_is_beside_its_name(visit, site):
    busy(site.stock, "full", 1, 2, concurrency=1)
    page = visit(site.url, "/queues/full")
    page.locator(".title .badge.limit", has_text="1 of 1 running").wait_for()


def test_a_jobs_page_and_a_list_say_what_it_waits_for_and_lead_there(visit, site):
    busy(site.stock, "reasons", 1, 2)
    (job, _) = site.stock.ask("GET", "/jobs?queue=reasons&state=queued")["jobs"]
    page = visit(site.url, "/jobs?queue=reasons&state=queued")
    row = page.locator(f"#jobs tr[data-key='{job['id']}']")
    reason = row.get_by_role("link", name="group acme: 1 of 1 running")
    reason.wait_for()
    assert page.locator("#jobs thead").inner_text().strip().endswith("Waits for, or last error")
    row.get_by_role("link", name="group acme", exact=True).click()
    page.wait_for_url("**/ui/jobs?queue=reasons&group=acme")
    read(page)
    assert len(columns(page, "#jobs", 0)) == 3
    assert page.get_by_label("group", exact=True).input_value() == "acme"
    page.goto(f"{site.url}/ui/jobs/{job['id']}")
    page.locator(".note").get_by_role("link", name="group acme: 1 of 1 running").click()
    page.wait_for_url("**/ui/queues/reasons?group=acme")
    assert cells(page, "acme")[WAITING] == "2"
    assert page.get_by_label("Find a group").input_value() == "acme"


def test_a_job_that_waits_is_shown_as_it_is_when_the_reason_is_gone(visit, site):
    busy(site.stock, "released", 1, 1)
    (job,) = site.stock.ask("GET", "/jobs?queue=released&state=queued")["jobs"]
    page = visit(site.url, f"/jobs/{job['id']}")
    page.locator(".note", has_text="It waits: group acme: 1 of 1 running.").wait_for()
    site.stock.ask("PATCH", "/queues/released", {"limits": {"group_concurrency": None}})  # it is no event
    page.locator(".note").wait_for(state="detached")


def test_the_limits_of_a_group_are_changed_and_removed_and_the_audit_says_so(visit, site):
    busy(site.stock, "changed", 1, 1)
    page = visit(site.url, "/queues/changed")
    page.get_by_role("button", name="Change the limits of group acme").click()
    box = page.get_by_role("dialog", name="Limits of group acme")
    assert box.get_by_label("Jobs at once").get_attribute("placeholder") == "1", "as each group of the queue"
    box.get_by_label("Jobs at once").fill("5")
    box.get_by_label("Tokens").fill("60")
    box.get_by_role("button", name="Change").click()
    per = box.locator("label", has=page.locator("[name=per]"))
    per.get_by_role("alert").get_by_text("in how many seconds").wait_for()
    assert box.get_by_label("Jobs at once").input_value() == "5"
    box.get_by_label("in seconds").fill("0.5")
    box.get_by_label("Share").fill("3")
    box.get_by_role("button", name="Change").click()
    box.wait_for(state="detached")
    page.get_by_text("60 per 0.5 s").wait_for()
    found = site.stock.ask("GET", "/queues/changed/groups?group=acme")["groups"][0]
    assert (found["limits"], found["share"]) == ({"concurrency": 5, "rate": 60, "per": 0.5}, 3)
    page.get_by_role("button", name="Change the limits of group acme").click()
    shown = {
        name: box.locator(f"[name={name}]").input_value() for name in ("concurrency", "rate", "per", "share")
    }
    assert shown == {"concurrency": "5", "rate": "60", "per": "0.5", "share": "3"}
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Remove the limits of group acme").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("button", name="Remove the limits of group acme").wait_for(state="detached")
    assert site.stock.ask("GET", "/queues/changed/groups?group=acme")["groups"][0]["own"] == []
    audit = visit(site.url, "/audit")
    audit.get_by_text("5 at once · 60 per 0.5 s · share 3").wait_for()
    audit.get_by_text("no settings").first.wait_for()
    audit.get_by_text("each group: 1 at once").first.wait_for()
    audit.get_by_role("link", name="acme").first.click()
    audit.wait_for_url("**/ui/queues/changed?group=acme")


def test_a_refusal_of_the_server_is_beside_its_field_and_the_form_stays(visit, site):
    busy(site.stock, "refused", 1, 0)
    page = visit(site.url, "/queues/refused")
    page.get_by_role("button", name="Change the limits of group acme").click()
    box = page.get_by_role("dialog")
    for name, text in (("burst", "5"), ("concurrency", "2")):
        box.locator(f"[name={name}]").fill(text)
    box.get_by_role("button", name="Change").click()
    burst = box.locator("label", has=page.locator("[name=burst]"))
    burst.get_by_role("alert").get_by_text("it belongs to a rate").wait_for()
    assert box.get_by_label("Jobs at once").input_value() == "2"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Configure refused").click()
    for name in ("concurrency", "group_burst"):
        box.locator(f"[name={name}]").fill("7")
    box.get_by_role("button", name="Configure").click()
    burst = box.locator("label", has=page.locator("[name=group_burst]"))
    burst.get_by_role("alert").get_by_text("it belongs to a group_rate").wait_for()
    box.locator("[name=group_rate]").fill("60")
    box.locator("[name=group_per]").fill("60")
    box.get_by_role("button", name="Configure").click()
    box.wait_for(state="detached")
    limits = {"concurrency": 7, "group_concurrency": 1, "group_rate": 60, "group_per": 60, "group_burst": 7}
    assert site.stock.ask("GET", "/queues/refused")["limits"] == limits
    page.get_by_text("each group: 60 per min, burst 7").first.wait_for()


def test_a_group_without_jobs_is_limited_by_its_name(visit, site):
    site.stock.ask("PUT", "/queues/ahead/groups/known", {"concurrency": 4})
    page = visit(site.url, "/queues/ahead")
    page.get_by_role("button", name="Limit a group").click()
    box = page.get_by_role("dialog")
    name = box.locator("[name=group]")
    group = box.locator("label", has=page.locator("[name=group]"))
    for text, why in (
        ("two words", "Use visible ASCII characters"),
        ("..", "Browsers cannot send this name"),
        ("known", "has limits of its own"),
    ):
        name.fill(text)
        box.locator("[name=concurrency]").fill("2")
        box.get_by_role("button", name="Change").click()
        group.get_by_role("alert").get_by_text(why).wait_for()
    assert site.stock.ask("GET", "/queues/ahead/groups?group=known")["groups"][0]["limits"] == {
        "concurrency": 4
    }
    name.fill("new/one")
    box.get_by_role("button", name="Change").click()
    box.wait_for(state="detached")
    assert cells(page, "new/one")[LIMITS] == "2 at once"


def test_many_groups_are_shown_in_part_and_one_is_found_by_its_name(visit, site):
    jobs = [{"task": "t", "queue": "crowd", "group": f"g{n}"} for n in range(130)]
    site.stock.ask("POST", "/jobs/batch", {"jobs": jobs})
    page = visit(site.url, "/queues/crowd")
    assert len(columns(page, "[aria-label=Groups]", 0)) == 100
    hidden = ({f"g{n}" for n in range(130)} - set(columns(page, "[aria-label=Groups]", 0))).pop()
    page.get_by_label("Find a group").fill(hidden)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/queues/crowd?group={hidden}")
    until_true(page, "document.querySelectorAll('[aria-label=Groups] tbody tr').length === 1")
    assert cells(page, hidden)[WAITING] == "1"
    page.get_by_role("link", name="All groups").click()
    page.get_by_role("link", name="Show more").click()
    until_true(page, "document.querySelectorAll('[aria-label=Groups] tbody tr').length === 130")


def test_a_queue_without_groups_says_what_they_are(visit, site):
    site.stock.submit("t", "plain")
    page = visit(site.url, "/queues/plain")
    page.get_by_text("No groups.").wait_for()
    assert page.get_by_role("button", name="Limit a group").count() == 1


@pytest.mark.parametrize("token", [READ, ADMIN], ids=["read", "admin"])
def test_a_group_has_the_buttons_of_the_tokens_roles(visit, site, token):
    busy(site.stock, "roles", 0, 1, group_concurrency=1)
    site.stock.ask("PUT", "/queues/roles/groups/acme", {"concurrency": 4})
    with serve_process(site.settings, tokens=TOKENS) as server:
        page = visit(server.url, "/queues/roles", token=token)
        cells(page, "acme")
        until_true(page, "performance.getEntriesByName(new URL('/whoami', location.href).href).length")
        page.wait_for_timeout(600)  # two repaints
        names = page.eval_on_selector_all(
            "main button", "(all) => all.map((one) => one.getAttribute('aria-label') || one.textContent)"
        )
        orders = {
            "Limit a group",
            "Change the limits of group acme",
            "Remove the limits of group acme",
            "Configure roles",
        }
        assert orders <= set(names) if token == ADMIN else names == []
        if token == ADMIN:
            page.route("**/groups/acme", lambda route: route.fulfill(status=403, json={"detail": "no more"}))
            page.get_by_role("button", name="Change the limits of group acme").click()
            page.get_by_role("dialog").get_by_role("button", name="Change").click()
            page.get_by_role("dialog").get_by_role("alert").get_by_text("no more").wait_for()


def test_hostile_names_of_groups_are_text_and_can_be_limited(visit, site):
    stock = site.stock
    for name in HOSTILE:
        stock.submit("t", "hostile-groups", group=name)
    planted = "\u202eevil\u2066 <b>bold</b> " + "x" * 100  # no verb stores it: another program did
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        base = keys.base(site.settings.namespace)
        raw.hset(keys.groups(base, "hostile-groups"), planted, "concurrency=2 <img/src=x>")
    for width in (1280, 360):
        page = visit(site.url, "/queues/hostile-groups", width=width)
        page.locator("[aria-label=Groups] tbody tr").nth(4).wait_for()
        text = page.locator("[aria-label=Groups]").inner_text()
        assert all(name in text for name in HOSTILE)
        assert r"\u202eevil\u2066 <b>bold</b>" in text
        assert page.evaluate(
            "document.scripts.length === 1 && !document.querySelector('main img, main td b')"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for i, name in enumerate(HOSTILE):
        row = page.locator(
            "[aria-label=Groups] tbody tr", has=page.get_by_role("link", name=name, exact=True)
        )
        row.get_by_role("button", name="Change").click()
        box = page.get_by_role("dialog")
        box.locator("[name=concurrency]").fill(str(i + 2))
        box.get_by_role("button", name="Change").click()
        box.wait_for(state="detached")
        row.get_by_text(f"{i + 2} at once").wait_for()
    page = visit(site.url, "/jobs?queue=hostile-groups")
    assert all(f"group {name}" in page.locator("#jobs").inner_text() for name in HOSTILE)
    assert page.evaluate("document.scripts.length === 1 && !document.querySelector('main img')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
