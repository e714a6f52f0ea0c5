"""Each view, light and dark, narrow and wide: axe finds nothing, nothing overflows, and keys reach everything."""

import itertools

import pytest

from tests.support.dashboard_flows import diamond, fan_out, work
from tests.support.dashboard_pages import go, read
from tests.support.draws import one_for, one_in
from tests.support.http_server import ADMIN, serve_process
from tests.support.npm import packages

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]
pytestmark = pytest.mark.timeout(300)

VIEWS = (
    "",
    "/jobs",
    "/jobs?state=running",
    "/jobs?state=dead&queue=nothing",
    "/jobs?tag=import&state=running&since=2026-01-31T12:00:00Z",
    "/jobs/RUNNING",
    "/jobs/DEAD",
    "/jobs/JOIN",
    "/jobs/SIGNAL",
    "/workflows/FLOW",
    "/workflows/FAN",
    "/failures",
    "/queues",
    "/queues/mail",
    "/queues/nothing",
    "/schedules",
    "/schedules/nightly-report",
    "/workers",
    "/audit",
    "/nonsense",
)
DIALOGS = (
    ("/jobs/DEAD", "?"),
    ("/jobs/DEAD", "Erase"),
    ("/jobs/DEAD", "Edit and submit again"),
    ("/jobs/RUNNING", "Cancel"),
    ("/jobs/SIGNAL", "Send signal"),
    ("/workflows/FAN", "Retry"),
    ("/workflows/FLOW", "Cancel"),
    ("/failures", "Retry 3"),
    ("/failures", "Erase 3"),
    ("/failures", "Cancel 1 waiting"),
    ("/queues", "Pause images"),
    ("/queues", "Configure images"),
    ("/queues", "Purge 5: mail"),
    ("/queues/mail", "Limit a group"),
    ("/queues/mail", "Change the limits of group acme"),
    ("/queues/mail", "Remove the limits of group acme"),
    ("/schedules", "Run now: crm"),
    ("/workers", "Drain mill-7"),
)
"""A view, and the button that opens the dialog."""
LOOKS = tuple(itertools.product(("light", "dark"), (360, 1280)))


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe, which evaluates in a page."""
    return (packages(tmp_path_factory.mktemp("axe"), "axe-core@4") / "axe-core" / "axe.min.js").read_text()


def place(site, path):
    ids = site.stock.ids
    if "flow" not in ids:
        made, fan = diamond(site.stock, "ways"), fan_out(site.stock, "fan", 20, on_failure="hold")
        work(site.stock, "ways", 1)
        work(site.stock, "fan", 20, failing=2)
        waits = site.stock.held("order", "orders")
        site.stock.settle(waits, "emit", chunks=["a line of words " * 40 + "\n"] * 60)
        ids["signal"] = site.stock.settle(waits, "suspend", kind="signal", name="approval")
        ids |= {"join": made["join"], "flow": made["flow"], "fan": fan["flow"]}
    for word in ("RUNNING", "DEAD", "JOIN", "FLOW", "FAN", "SIGNAL"):
        path = path.replace(word, ids[word.lower()])
    return path


def violations(page, axe):
    page.evaluate(axe)
    found = page.evaluate("axe.run()")["violations"]
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


def pytest_generate_tests(metafunc):
    if "look" in metafunc.fixturenames:
        name = metafunc.function.__name__
        drawn = [(path, *look) for path in one_in(4, VIEWS) for look in one_for(f"{name} {path}", LOOKS)]
        metafunc.parametrize("look", drawn, ids=lambda look: " ".join(map(str, look)))
    if "question" in metafunc.fixturenames:
        drawn = [(*one, *look) for one in one_in(3, DIALOGS) for look in one_for(f"{one}", LOOKS)]
        metafunc.parametrize("question", drawn, ids=lambda one: " ".join(map(str, one)))


def test_axe_finds_nothing_and_nothing_is_wider_than_the_page(visit, site, axe, look):
    path, scheme, width = look
    page = visit(site.url, place(site, path), scheme=scheme, width=width)
    assert violations(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("h1").count() == 1


def test_axe_finds_nothing_in_a_dialog_and_it_fits_the_window(visit, site, axe, question):
    path, label, scheme, width = question
    page = visit(site.url, place(site, path), scheme=scheme, width=width)
    if label == "?":
        page.keyboard.press("?")
    else:
        page.get_by_role("button", name=label).first.click()
    box = page.get_by_role("dialog")
    if label.startswith(("Retry 3", "Erase 3", "Cancel w", "Purge")):
        box.get_by_text("found").or_(box.get_by_text("No job is left")).wait_for()
    assert violations(page, axe) == []
    assert box.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    edges = box.bounding_box()
    assert edges["x"] >= 0
    assert edges["x"] + edges["width"] <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_question_for_a_token(visit, settings, axe, scheme):
    with serve_process(settings, tokens=ADMIN) as server:
        page = visit(server.url, scheme=scheme, width=360, ready=False)
        page.get_by_role("dialog", name="Token").wait_for()
        assert violations(page, axe) == []
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Use a token").wait_for()
        assert violations(page, axe) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_dialogs_messages_and_a_stale_page(visit, site, axe, scheme):
    page = visit(site.url, f"/jobs/{site.stock.ids['queued']}", scheme=scheme)
    page.keyboard.press("?")
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit and submit again").click()
    assert violations(page, axe) == []
    page.locator("[name=queue]").fill("no such name")
    page.locator("[name=payload]").fill("{not json")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    assert violations(page, axe) == []
    page.keyboard.press("Escape")
    page.context.set_offline(True)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.wait_for_selector("main.stale")
    page.wait_for_selector("#toast.bad")
    assert [one for one in violations(page, axe) if one[0] != "color-contrast"] == []  # it is greyed


@pytest.mark.parametrize(
    ("path", "orders"),
    [
        ("/schedules", ["Run now: crm", "Pause crm"]),
        ("/failures", ["Retry 3", "Erase 3", "Cancel 1 waiting"]),
        ("/queues", ["Pause mail", "Resume mail", "Configure mail", "Purge 5: mail"]),
        ("/queues/mail", ["Change the limits of group acme"]),
        ("/workers", ["Drain mill-7"]),
    ],
)
def test_rows_and_their_orders_are_whole_on_a_narrow_window(visit, site, path, orders):
    page = visit(site.url, path, width=360)
    page.get_by_role("button", name=orders[-1]).first.wait_for()
    for name in orders:
        for one in page.get_by_role("button", name=name).all():
            box = one.bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= 360, name
    assert page.evaluate(
        "[...document.querySelectorAll('.stack')].every((one) => one.scrollWidth <= one.clientWidth)"
    )
    labels = page.eval_on_selector_all(
        ".stack tbody td:not(.actions)",
        "(all) => all.map((one) => getComputedStyle(one, '::before').content)",
    )
    assert labels
    assert all(len(label) > 2 for label in labels), "each cell has its column's name"


def test_a_job_id_in_the_audit_is_on_one_line(visit, site):
    page = visit(site.url, "/audit")
    link = page.locator(".wrap .id").first
    link.wait_for()
    assert link.bounding_box()["height"] < 24
    assert link.get_attribute("title") == link.inner_text()


def test_keys_alone_open_a_view_a_row_and_a_dialog(visit, site):
    page = visit(site.url)
    keyboard = page.keyboard
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    keyboard.press("Enter")
    for key, view in (
        ("j", "jobs"),
        ("f", "failures"),
        ("q", "queues"),
        ("s", "schedules"),
        ("w", "workers"),
        ("a", "audit"),
    ):
        go(page, key, view)
    page.goto(f"{site.url}/ui/jobs?state=dead")
    read(page)
    page.wait_for_selector("#jobs tbody tr")
    keyboard.press("j")
    keyboard.press("j")
    keyboard.press("k")
    first = page.locator("#jobs tbody tr").first.get_attribute("data-key")
    keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{first}")
    read(page)
    page.wait_for_selector("text=Retry")
    reached = set()
    for _ in range(40):
        keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent"))
    assert {"Retry", "Edit and submit again", "Copy id", "Copy as curl", "Copy as Python"} <= reached
    keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="detached")


def test_the_tab_of_the_current_state_is_in_view_until_a_user_scrolls(visit, site):
    page = visit(site.url, "/jobs?state=cancelled", width=360)
    page.wait_for_selector(".tabs [aria-current] b")  # the counts make the tabs wider
    tab, bar = page.locator(".tabs [aria-current]"), page.locator(".tabs")
    inner, outer = tab.bounding_box(), bar.bounding_box()
    assert outer["x"] <= inner["x"]
    assert inner["x"] + inner["width"] <= outer["x"] + outer["width"] + 1  # it scrolls by whole pixels
    bar.evaluate("bar => { bar.scrollLeft = 0; }")
    job = site.stock.submit("t", "scrolled")
    site.stock.ask("POST", f"/jobs/{job}/cancel")
    page.wait_for_selector(f"tr[data-key='{job}']")
    assert bar.evaluate("bar => bar.scrollLeft") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_region_that_scrolls_has_a_shadow_where_it_goes_on(visit, site, scheme):
    page = visit(site.url, "/workers", width=360, scheme=scheme)
    page.evaluate(
        """() => {
          const [box, wide] = [document.createElement("div"), document.createElement("p")];
          box.className = "scroll";
          box.append(wide);
          for (const [name, value] of [["inline-size", "900px"], ["block-size", "40px"]]) wide.style.setProperty(name, value);
          document.querySelector("h1").before(box);
        }"""
    )
    region = page.locator(".scroll").first

    def edges():
        """Pictures of the outermost pixels, left and right."""
        box = region.bounding_box()
        left, right = box["x"] + 2, box["x"] + box["width"] - 4
        size = {"y": box["y"] + 10, "width": 2, "height": 20}
        return [page.screenshot(clip={"x": x, **size}) for x in (left, right)]

    plain, shadow = edges()
    assert plain != shadow
    region.evaluate("one => { one.scrollLeft = 9999; }")
    left, right = edges()
    assert left != plain
    assert right == plain


def test_a_repaint_keeps_the_focus_and_the_typed_text(visit, site):
    page = visit(site.url, "/jobs")
    page.wait_for_selector(".mark.live")
    queue = page.get_by_label("queue", exact=True)
    queue.fill("mai")
    made = site.stock.submit("t", "repainted")
    page.wait_for_selector(f"tr[data-key='{made}']")
    assert queue.input_value() == "mai"
    assert page.evaluate("document.activeElement.name") == "queue"
    queue.press("Control+a")
    queue.type("repainted")
    queue.press("Enter")
    page.wait_for_url("**/ui/jobs?queue=repainted")


LONG = "a-long-name.of-a-tenant:" + "x" * 90


@pytest.fixture(scope="module")
def long_names(site):
    """Everything with a name of nearly as many characters as may be."""
    stock = site.stock
    stock.submit(LONG, LONG, tags=["tenant:" + "x" * 50])
    stock.ask("PATCH", f"/queues/{LONG}", {"paused": True, "limits": {"group_concurrency": 1}})
    stock.ask("PUT", f"/queues/{LONG}/groups/{LONG}", {"concurrency": 2})
    stock.ask("PUT", f"/workers/{LONG}", {"life": "1", "about": {"host": LONG, "queues": [LONG]}})
    stock.ask("PUT", f"/pools/{LONG}", {"queues": [LONG]})
    stock.ask("PUT", "/schedules/" + "x" * 40, {"task": LONG[:60], "every": 3600, "queue": LONG[:60]})
    return stock.dead(LONG, f"{LONG}-", LONG, LONG)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/jobs",
        "/jobs/DEAD",
        "/failures",
        "/queues",
        f"/queues/{LONG}",
        "/schedules",
        "/workers",
        "/audit",
    ],
)
def test_long_names_do_not_make_the_page_scroll_sideways(visit, site, long_names, path, width):
    page = visit(site.url, path.replace("DEAD", long_names), width=width)
    page.get_by_text(LONG[:20]).or_(page.get_by_text("x" * 20)).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.eval_on_selector_all(
        "main *, #top *",
        """(all, width) => all.filter((one) => !one.closest('.scroll, .tabs, #views, .hidden, caption, svg, pre, details:not([open])')
          && one.getBoundingClientRect().right > width + 1).map((one) => one.outerHTML.slice(0, 90))""",
        width,
    )
    assert outside == []
    hidden = page.eval_on_selector_all(
        "main .scroll :is(.clamp, .name, .cut, .tag)",
        """(all) => all.filter((one) => !one.closest('[title]') && !one.querySelector('[title]')
          && (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 2)).map((one) => one.outerHTML.slice(0, 120))""",
    )
    assert hidden == [], "a name that is cut has its title"
