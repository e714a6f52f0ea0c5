"""How often the page reads when events arrive: modules run in node, on a clock of the test."""

from itertools import pairwise

import pytest

from tests.dashboard.test_dashboard_files import of_node

STAGE = """
let clock = 1e6;
const timers = [];
Object.defineProperty(globalThis, "performance", { value: { now: () => clock } });
globalThis.setTimeout = (act, wait = 0) => { const one = { at: clock + wait, act }; timers.push(one); return one; };
globalThis.clearTimeout = (one) => { if (timers.includes(one)) timers.splice(timers.indexOf(one), 1); };
const pass = (ms) => {
  const until = clock + ms;
  for (;;) {
    const [due] = timers.filter(({ at }) => at <= until).sort((a, b) => a.at - b.at);
    if (!due) break;
    clearTimeout(due);
    clock = due.at;
    due.act();
  }
  clock = until;
};
globalThis.document = { querySelector: () => null, addEventListener: () => {}, hidden: false };
globalThis.location = { href: "http://localhost/ui" };
const { Live } = await import("./live.js");
const { allowance } = await import("./sharing.js");
const tells = [];
const live = new Live((events) => tells.push({ at: clock, last: events.at(-1).id, may: allowance("jobs"), list: allowance("queues") }), () => {});
let n = 0;
const event = () => live.hear([{ id: String(n++), jobs: ["0-a"], state: "queued", code: "submitted" }]);
"""


def tells(acts):
    """The times (ms) at which views were told to read, each with the newest event and the ages (s) that they accept: of a
    list of jobs, and of a costly one.
    """
    found = of_node(f"{STAGE}\n{acts}\nconsole.log(JSON.stringify(tells))")
    return [
        (
            one["at"] - 1e6,
            int(one["last"]),
            float(one["may"].split(", ")[0]),
            float(one["list"].split(", ")[1]),
        )
        for one in found
    ]


def test_the_first_events_are_shown_soon_and_by_a_read_after_them():
    found = tells("event(); pass(1000); event(); event(); pass(30000)")
    assert [(at, last) for at, last, *_ in found] == [(250, 0), (1250, 2)]
    assert all(most < 0.25 for _, _, most, _ in found)


@pytest.mark.parametrize("gap", [100, 500, 1000, 2500])
def test_steady_events_are_told_ten_times_a_minute(gap):
    found = tells(f"for (let at = 0; at < 120000; at += {gap}) {{ event(); pass({gap}); }}")
    assert len(found) <= 3 + 120 / 6 + 1
    assert max(later[0] - earlier[0] for earlier, later in pairwise(found)) <= 6000
    assert all(most <= 5 for _, _, most, _ in found)


@pytest.mark.parametrize("gap", [100, 500, 1000, 2500])
def test_after_the_last_event_a_read_shows_all(gap):
    found = tells(f"for (let at = 0; at < 60000; at += {gap}) {{ event(); pass({gap}); }} pass(3000)")
    at, last, most, _ = found[-1]
    assert last == 60_000 / gap - 1
    assert at - most * 1000 >= (last * gap), "an answer from before the last event is not accepted"


def test_costly_lists_are_read_again_when_they_must_show_the_last_event():
    (_, _, _, costly), (at, last, _, again) = tells("pass(90000); event(); pass(90000)")
    assert costly == again == 60
    assert (at, last) == (90_000 + 250 + 60_000, 0)


def test_a_page_accepts_nothing_from_before_its_own_orders():
    acts = """
    const { changed } = await import("./sharing.js");
    changed();
    pass(550);
    console.log(JSON.stringify([allowance("jobs"), allowance("stats")]));
    """
    assert of_node(STAGE + acts) == ["0.500, 0.500"] * 2
