"""Hostile texts stay text, whatever client stored them."""

import json
import re

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_jobs import HOSTILE, LONG
from tests.support.dashboard_pages import read

pytest_plugins = ["tests.support.browser"]

NAME = "<img/src=x/onerror=alert(1)>\u202e\x1b[31m"
"""A name as no verb accepts it; it has no space, which separates stored words."""
CONTROL = set("\x1b\x07\u202e\u2066\u2069")
ATTRIBUTES = """
[...document.querySelectorAll("body *")]
  .flatMap((one) => [...one.attributes].filter(({ name }) => name !== "data-key").map(({ value }) => value)).join(" ")
"""
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
    assert not CONTROL & (set(text) | set(page.evaluate(ATTRIBUTES))), "control characters are escapes"
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


class Planted:
    """Hostile texts in places where no verb stores them: another program wrote to Redis."""

    def __init__(self, site):
        self.stock = site.stock
        self.base = keys.base(site.settings.namespace)
        with redis.Redis.from_url(site.settings.redis_url) as self.raw:
            self.job = self._job()
            self._audit()
            self._workers()
            self._schedules()
            self._queues()
            self.raw.set(keys.minutes(self.base), (NAME * 60).encode())

    def _job(self):
        """Its every field is long or hostile."""
        stock, everything = self.stock, " ".join(HOSTILE.values())
        lease = stock.held("t", "planted", payload=HOSTILE, backoff=0.001, max_attempts=5)
        stock.settle(lease, "fail", code="Evil", message="words")
        (lease,) = stock.ask(
            "POST", "/jobs/claim", {"queues": ["planted"], "worker": "w", "lease": 600, "wait": 10}
        )["jobs"]
        key = keys.job(self.base, lease["id"])
        spec = self.raw.hget(key, "spec")
        spec = re.sub(rb"^\S+ \S+", f"{NAME} {NAME}".encode(), spec)
        spec = spec.replace(b"\n", f" key={NAME} trace={NAME} schedule={NAME} tags={NAME}\n".encode(), 1)
        began = self.raw.hget(key, "attempt:1").split(b" ")[0].decode()
        attempt = f"{began} {NAME} {began} {NAME}\n{everything} {LONG}\n{everything} {LONG}"
        fields = {
            "spec": spec,
            "worker": NAME,
            "attempt:1": attempt,
            "log:1": f"{everything}\n{LONG}\n" * 2,
            "log:2": f"{everything}\n{LONG}",
        }
        fields |= {
            "progress": json.dumps({"fraction": 0.5, "message": everything}),
            "checkpoint": json.dumps([everything, LONG]),
            "error": f"{NAME} {everything} {LONG}",
        }
        self.raw.hset(key, mapping=fields)
        return lease["id"]

    def _audit(self):
        for text in (*HOSTILE.values(), LONG):
            self.raw.xadd(
                keys.audit(self.base), dict.fromkeys(("by", "verb", "what", "queue", "outcome"), text)
            )
        for verb in ("cancel", "drain", "schedule-put"):
            self.raw.xadd(
                keys.audit(self.base),
                dict.fromkeys(("by", "what", "queue", "outcome"), NAME) | {"verb": verb},
            )

    def _workers(self):
        about = {
            "host": NAME,
            "platform": NAME,
            "pid": NAME,
            "slots": NAME,
            "completed": NAME,
            "failed": LONG[:300],
            "queues": [NAME] * 5,
        }
        self.stock.ask("PUT", "/workers/planted", {"life": "1", "about": about})
        self.raw.rename(keys.worker(self.base, "planted"), keys.worker(self.base, NAME))
        self.raw.zadd(keys.workers(self.base), {NAME: self.raw.zscore(keys.workers(self.base), "planted")})
        self.raw.zrem(keys.workers(self.base), "planted")

    def _schedules(self):
        schedule = {"task": "t", "cron": "0 6 1 * *", "payload": {**HOSTILE, "long": LONG[:200_000]}}
        for name in ("hostile", "planted"):
            self.stock.ask("PUT", f"/schedules/{name}", schedule)
        self.raw.rename(keys.schedule(self.base, "planted"), keys.schedule(self.base, NAME))
        self.raw.zadd(
            keys.schedules(self.base), {NAME: self.raw.zscore(keys.schedules(self.base), "planted")}
        )
        self.raw.zrem(keys.schedules(self.base), "planted")

    def _queues(self):
        self.raw.hset(keys.queues(self.base), NAME, f"1 {NAME} jobs=5")
        self.raw.hset(keys.pools(self.base), NAME, self.raw.hget(keys.pools(self.base), "images"))


@pytest.fixture(scope="module")
def planted(site):
    return Planted(site)


PLANTED = (
    "", "/jobs", "/jobs?state=running", "/jobs/PLANTED", "/failures", "/queues", "/schedules", "/schedules/hostile", "/workers", "/audit",
)  # fmt: skip


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("path", PLANTED)
def test_what_another_program_stored_is_text_in_every_view(visit, site, planted, path, width):
    path = path.replace("PLANTED", planted.job)
    page = visit(site.url, path, width=width)
    page.locator("main h1").wait_for()
    shown = page.locator("main").inner_text() + page.title()
    attributes = page.evaluate(ATTRIBUTES)
    assert not CONTROL & (set(shown) | set(attributes)), "control characters are escapes"
    assert page.evaluate(NO_EFFECT)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if path in ("/jobs?state=running", f"/jobs/{planted.job}", "/audit"):
        assert "<img/src=x/onerror=alert(1)>" in shown
    if path == "/audit":
        assert r"invoice\u202efdp.exe" in shown
        assert page.locator("main a[href^='javascript'], main a[href^='//']").count() == 0


def test_hostile_queries_of_the_page_do_nothing(visit, site):
    page = visit(site.url, "/queues?cursor=javascript:alert(1)")
    read(page)
    assert page.evaluate(NO_EFFECT)


HOLDS, COMPLETED = 2, 5


WRONG = ("NaN", "Infinity", "-5", "1e300", "1" * 40, '"many"', '{"a": {"b": 1}}', "[1]", "true", "null")


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_workers_wrong_description_is_shown_safely(visit, site, number):
    """Another program stored it. Each has a name of its own: servers share answers from before."""
    value, name = WRONG[number], f"wrong-{number}"
    about = {
        f: "VALUE" for f in ("host", "pid", "platform", "slots", "completed", "failed", "memory", "last_job")
    }
    stored = json.dumps(about | {"queues": ["VALUE"]}).replace('"VALUE"', value)
    site.stock.ask("PUT", f"/workers/{name}", {"life": "1", "about": {}})
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        raw.hset(keys.worker(keys.base(site.settings.namespace), name), "about", stored)
    page = visit(site.url, "/workers")
    row = page.locator(f"tr[data-key={name}]")
    row.wait_for()
    cells = row.locator("th, td").all_inner_texts()
    assert cells[HOLDS] == "0"
    assert cells[COMPLETED : COMPLETED + 3] == ["–"] * 3
    text = row.inner_text()
    for wrong in ("NaN", "Infinity", "[object", "undefined", "of –"):
        assert wrong not in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
