"""Cron lines on days when clocks change: lists of real occurrences, and two independent searches with the same
results."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sublet.schedules.cron import zone
from sublet.schedules.cron_times import CronLine, cron_line
from tests.support.draws import few

CHANGES = """
# Berlin: 02:00 becomes 03:00
Europe/Berlin | 2026-03-29 00:00 2026-03-30 00:00 | 30 2 * * *     | 29 03:00+02
Europe/Berlin | 2026-03-29 00:00 2026-03-30 00:00 | 0 3 * * *      | 29 03:00+02
Europe/Berlin | 2026-03-29 00:00 2026-03-30 00:00 | 0,30 2,3 * * * | 29 03:00+02, 29 03:30+02
Europe/Berlin | 2026-03-29 00:00 2026-03-30 00:00 | 0 30 2 * * *   | 29 03:00+02
Europe/Berlin | 2026-03-29 00:00 2026-03-30 00:00 | */30 2 * * *   |
Europe/Berlin | 2026-03-29 01:30 2026-03-29 03:45 | */15 * * * * | 29 01:30+01, 29 01:45+01, 29 03:00+02, \
29 03:15+02, 29 03:30+02
Europe/Berlin | 2026-03-29 00:00 2026-03-29 05:00 | 30 * * * *     | 29 00:30+01, 29 01:30+01, 29 03:30+02, 29 04:30+02
# Berlin: 03:00 becomes 02:00
Europe/Berlin | 2026-10-25 00:00 2026-10-26 00:00 | 30 2 * * *     | 25 02:30+02
Europe/Berlin | 2026-10-25 00:00 2026-10-26 00:00 | 0 3 * * *      | 25 03:00+01
Europe/Berlin | 2026-10-25 00:00 2026-10-26 00:00 | 0,30 2,3 * * * | 25 02:00+02, 25 02:30+02, 25 03:00+01, 25 03:30+01
Europe/Berlin | 2026-10-25 00:00 2026-10-26 00:00 | */30 2 * * *   | 25 02:00+02, 25 02:30+02, 25 02:00+01, 25 02:30+01
Europe/Berlin | 2026-10-25 02:30 2026-10-25 03:15 | */15 * * * * | 25 02:30+02, 25 02:45+02, 25 02:00+01, \
25 02:15+01, 25 02:30+01, 25 02:45+01, 25 03:00+01
Europe/Berlin | 2026-10-25 00:00 2026-10-25 04:00 | 30 * * * * | 25 00:30+02, 25 01:30+02, 25 02:30+02, 25 02:30+01, \
25 03:30+01
# New York: 02:00 becomes 03:00, and 02:00 becomes 01:00
America/New_York | 2026-03-08 00:00 2026-03-09 00:00 | 30 2 * * *   | 08 03:00-04
America/New_York | 2026-03-08 01:30 2026-03-08 03:30 | */15 * * * * | 08 01:30-05, 08 01:45-05, 08 03:00-04, 08 03:15-04
America/New_York | 2026-11-01 00:00 2026-11-02 00:00 | 30 1 * * *   | 01 01:30-04
America/New_York | 2026-11-01 00:00 2026-11-02 00:00 | 30 2 * * *   | 01 02:30-05
America/New_York | 2026-11-01 00:00 2026-11-01 03:00 | 30 * * * *   | 01 00:30-04, 01 01:30-04, 01 01:30-05, 01 02:30-05
# Lord Howe: 02:00 becomes 02:30, and 02:00 becomes 01:30
Australia/Lord_Howe | 2025-10-05 00:00 2025-10-06 00:00 | 15 2 * * *   | 05 02:30+11
Australia/Lord_Howe | 2025-10-05 00:00 2025-10-05 04:00 | 0 * * * *    | 05 00:00+1030, 05 01:00+1030, 05 03:00+11
Australia/Lord_Howe | 2025-10-05 01:30 2025-10-05 03:00 | */15 * * * * | 05 01:30+1030, 05 01:45+1030, 05 02:30+11, \
05 02:45+11
Australia/Lord_Howe | 2025-10-05 00:00 2025-10-06 00:00 | */15 4 * * * | 05 04:00+11, 05 04:15+11, 05 04:30+11, 05 04:45+11
Australia/Lord_Howe | 2026-04-05 00:00 2026-04-06 00:00 | 45 1 * * *   | 05 01:45+11
Australia/Lord_Howe | 2026-04-05 01:30 2026-04-05 02:15 | */15 * * * * | 05 01:30+11, 05 01:45+11, 05 01:30+1030, \
05 01:45+1030, 05 02:00+1030
Australia/Lord_Howe | 2026-04-05 00:00 2026-04-05 03:00 | 30 * * * * | 05 00:30+11, 05 01:30+11, 05 01:30+1030, 05 02:30+1030
# Casablanca: an hour back for Ramadan, and forward after it
Africa/Casablanca | 2026-02-15 00:00 2026-02-16 00:00 | 30 2 * * *   | 15 02:30+01
Africa/Casablanca | 2026-02-15 00:00 2026-02-15 04:00 | 30 * * * * | 15 00:30+01, 15 01:30+01, 15 02:30+01, \
15 02:30+00, 15 03:30+00
Africa/Casablanca | 2026-03-22 00:00 2026-03-23 00:00 | 30 2 * * *   | 22 03:00+01
Africa/Casablanca | 2026-03-22 01:30 2026-03-22 03:30 | */15 * * * * | 22 01:30+00, 22 01:45+00, 22 03:00+01, 22 03:15+01
# Havana: the hour after midnight is skipped, and repeated
America/Havana | 2026-03-07 00:00 2026-03-10 00:00 | @daily       | 07 00:00-05, 08 01:00-04, 09 00:00-04
America/Havana | 2026-03-08 00:00 2026-03-09 00:00 | */15 0 * * * |
America/Havana | 2026-03-07 22:00 2026-03-08 03:00 | @hourly      | 07 22:00-05, 07 23:00-05, 08 01:00-04, 08 02:00-04
America/Havana | 2026-10-31 00:00 2026-11-03 00:00 | @daily       | 31 00:00-04, 01 00:00-04, 02 00:00-05
America/Havana | 2026-10-31 23:00 2026-11-01 02:00 | @hourly      | 31 23:00-04, 01 00:00-04, 01 00:00-05, 01 01:00-05
# Newfoundland, once: 00:01 of the 1st became 23:01 of the 31st
America/St_Johns | 2009-10-31 23:00 2009-11-01 01:00 | */30 * * * * | 31 23:00-0230, 31 23:30-0230, 01 00:00-0230, \
31 23:30-0330, 01 00:00-0330, 01 00:30-0330
America/St_Johns | 2009-10-31 00:00 2009-11-03 00:00 | @daily       | 31 00:00-0230, 01 00:00-0230, 02 00:00-0330
# Samoa had no 30th of December 2011
Pacific/Apia | 2011-12-29 00:00 2012-01-01 00:00 | 0 9 * * *    | 29 09:00-10, 31 00:00+14, 31 09:00+14
Pacific/Apia | 2011-12-29 00:00 2012-01-01 00:00 | @daily       | 29 00:00-10, 31 00:00+14
Pacific/Apia | 2011-12-01 00:00 2012-01-31 00:00 | 0 9 30 12 *  | 31 00:00+14
Pacific/Apia | 2011-12-29 23:30 2011-12-31 00:30 | */15 * * * * | 29 23:30-10, 29 23:45-10, 31 00:00+14, 31 00:15+14
Pacific/Apia | 2011-12-29 22:30 2011-12-31 02:00 | 30 * * * *   | 29 22:30-10, 29 23:30-10, 31 00:30+14, 31 01:30+14
"""
ROWS = [
    [cell.strip() for cell in row.split("|")]
    for row in CHANGES.replace("\\\n", "").splitlines()
    if row and row[0] != "#"
]
AROUND = [
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"), ("Australia/Lord_Howe", "2025-10-05"), ("Australia/Lord_Howe", "2026-04-05"),
    ("Africa/Casablanca", "2026-02-15"), ("Africa/Casablanca", "2026-03-22"), ("America/Havana", "2026-03-08"),
    ("America/Havana", "2026-11-01"), ("America/St_Johns", "2009-03-08"), ("America/St_Johns", "2009-11-01"),
    ("Pacific/Apia", "2011-12-30"), ("Antarctica/Casey", "2010-03-05"), ("Asia/Kathmandu", "2026-01-01"), ("UTC", "2028-02-29"),
]  # fmt: skip
ORDINARY = ("Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Kathmandu", "UTC")


def moment(text, name):
    return int(datetime.fromisoformat(text).replace(tzinfo=zone(name)).timestamp())


def forwards(cron, begin, end, where):
    """The moments in (begin, end], found one after the other."""
    found, at = [], begin
    while (at := cron.after(at, where)) is not None and at <= end:
        found.append(at)
    return found


def backwards(cron, begin, end, where):
    found, at = [], end + 1
    while (at := cron.until(at - 1, where)) is not None and at > begin:
        found.append(at)
    return found[::-1]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_a_day_on_which_clocks_change_has_these_occurrences(row):
    name, between, text, expected = row
    begin, end = moment(between[:16], name), moment(between[17:], name)
    found = forwards(cron_line(text), begin - 1, end - 1, zone(name))
    shown = [datetime.fromtimestamp(at, zone(name)) for at in found]
    assert ", ".join(f"{at:%d %H:%M%z}".removesuffix("00") for at in shown) == expected
    assert backwards(cron_line(text), begin - 1, end - 1, zone(name)) == found


def some(least, most):
    """A random field of a line: a number, a range, a list, or any of them with a step."""
    number = st.integers(least, most)
    term = st.one_of(
        st.just("*"),
        number.map(str),
        st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}"),
    )
    stepped = st.tuples(term, st.sampled_from(["", "", "/2", "/3", "/7", "/15", "/30"])).map("".join)
    return st.lists(stepped, min_size=1, max_size=2).map(",".join)


lines = st.tuples(
    some(0, 59),
    st.one_of(some(0, 3), some(0, 23)),
    st.one_of(st.just("*"), st.just("*"), some(1, 31), st.sampled_from(["L", "LW"])),
    st.one_of(st.just("*"), some(1, 12)),
    st.one_of(st.just("*"), st.just("*"), some(0, 7), st.sampled_from(["5L", "SUN#1", "0#2"])),
).map(" ".join)


def read(text):
    try:
        return CronLine(text)
    except ValueError:
        assume(False)  # such as the 30th of February


def by_hand(cron, text, begin, end, where):
    """Check every minute between two moments; a fixed line's times once, skipped ones after the gap."""
    sim = CronSim(text, datetime(1970, 1, 1, tzinfo=UTC))
    minute, hour = text.split()[:2]
    fixed = not (minute.startswith("*") or hour.startswith("*"))
    walls, last = set(), None
    for at in range(begin + 60 - begin % 60, end + 1, 60):
        now = datetime.fromtimestamp(at, where)
        naive = now.replace(tzinfo=None, fold=0)
        shown = [naive] if not (fixed and now.fold) else []
        while fixed and last is not None and last + timedelta(minutes=1) < naive:  # skipped by the clock
            last += timedelta(minutes=1)
            shown.append(last)
        last = naive
        if any(
            s.month in sim.months and sim.match_day(s) and s.hour in sim.hours and s.minute in sim.minutes
            for s in shown
        ):
            walls.add(at)
    return sorted(walls)


@settings(
    max_examples=few(150),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(st.sampled_from(AROUND), lines)
def test_the_search_agrees_with_a_check_of_every_minute(place, text):
    where, cron = zone(place[0]), read(text)
    begin, end = (int(datetime.fromisoformat(place[1]).timestamp()) + hours * 3600 for hours in (-40, 40))
    expected = by_hand(cron, text, begin, end, where)
    if len(expected) > 500:
        begin = expected[-500]
        expected = expected[-499:]
    assert forwards(cron, begin, end, where) == expected
    assert backwards(cron, begin, end, where) == expected
    assert expected == sorted(set(expected))


@settings(max_examples=few(150), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from([place for place in AROUND if place[0] in ORDINARY]), lines)
def test_the_search_agrees_with_cronsim(place, text):
    """Where clocks move by whole hours, and not around midnight; elsewhere cronsim's answer depends on its
    start.
    """
    where, cron = zone(place[0]), read(text)
    begin = int(datetime.fromisoformat(place[1]).timestamp()) - 40 * 3600
    theirs = CronSim(text, datetime.fromtimestamp(begin, where))
    at = begin
    for _ in range(60):
        at = cron.after(at, where)
        its = next(theirs, None)
        assert at == (its and int(its.timestamp()))
        if at is None or at > begin + 80 * 3600:
            break


def test_no_occurrence_is_missed_from_any_start():
    """From the evening before, cronsim finds 04:30 first on the day that Lord Howe's clocks move by half an
    hour.
    """
    where = zone("Australia/Lord_Howe")
    four = moment("2025-10-05 04:00", "Australia/Lord_Howe")
    for begin in range(moment("2025-10-04 05:00", "Australia/Lord_Howe"), four, 997):
        assert cron_line("*/15 4 * * *").after(begin, where) == four


def test_a_midnight_is_found_from_a_repeated_evening():
    """Newfoundland, 2009: midnight, a minute of the new day, and then 23:01 of the old one again."""
    where, midnight = zone("America/St_Johns"), int(datetime(2009, 11, 1, 2, 30, tzinfo=UTC).timestamp())
    assert f"{datetime.fromtimestamp(midnight + 1800, where):%d %H:%M}" == "31 23:30"
    assert cron_line("@daily").until(midnight + 1800, where) == midnight
    assert cron_line("@daily").after(midnight, where) == midnight + 25 * 3600


def test_no_occurrence_is_before_1970():
    where = zone("America/New_York")
    assert cron_line("@daily").until(5 * 3600 - 1, where) is None
    assert cron_line("@daily").until(5 * 3600, where) == 5 * 3600
    assert cron_line("*/15 * * * *").until(-1, where) is None


def test_lines_with_seconds_find_every_second():
    where, begin = zone("Europe/Berlin"), moment("2026-03-29 01:59", "Europe/Berlin")
    assert forwards(cron_line("*/20 * * * * *"), begin, begin + 120, where) == [
        begin + s for s in (20, 40, 60, 80, 100, 120)
    ]
    assert forwards(cron_line("*/20 59 1 * * *"), begin, begin + 120, where) == [begin + 20, begin + 40]
    assert forwards(cron_line("*/20 30 2 * * *"), begin, begin + 3600, where) == [
        begin + 60
    ]  # skipped: once, after the gap


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 29 2 */7", "0 0 * 2 MON#5", "59 59 23 31 12 *"])
def test_rare_occurrences_are_found_from_any_start(text):
    where = ZoneInfo("Europe/Berlin")
    occurrences = forwards(cron_line(text), 0, 3_000_000_000, where)
    assert occurrences == backwards(cron_line(text), 0, 3_000_000_000, where)
    assert len(occurrences) >= 2
    assert (
        cron_line(text).after(occurrences[0] + 1, where)
        == occurrences[1]
        == cron_line(text).until(occurrences[1], where)
    )
