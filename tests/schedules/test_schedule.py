"""Recurrences, and when their jobs are due: no clock, no server."""

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sublet.errors import fault_words
from sublet.schedules import recurrence as schedules
from sublet.schedules.cron import ALIASES
from sublet.schedules.cron_times import CronLine
from sublet.schedules.recurrence import COUNTED, Occurrence, Recurrence, describe, firing, first, upcoming
from tests.support.draws import few
from tests.support.paths import ROOT

PAGE = "".join(
    (ROOT / "docs" / "guides" / name).read_text() for name in ("schedules.md", "schedules-timing.md")
)
NOON = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000)
YEAR = 365 * 86_400_000


def refusal(**rules):
    with pytest.raises(ValidationError) as refused:
        Recurrence(**rules)
    (fault,) = refused.value.errors()
    return fault["loc"], fault_words(fault)


DAILY = {"cron": "0 9 * * *"}
BAD_RULES = [
    ({}, "every", "use cron, a line like '0 9 * * MON-FRI', or every, in seconds"),
    ({**DAILY, "every": 60}, "every", "not both"),
    ({"every": 0}, "every", "use 1 or more"),
    ({"every": 0.999}, "every", "use 1 or more"),
    ({"every": float("nan")}, "every", "finite"),
    ({"every": float("inf")}, "every", "finite"),
    ({"every": 315_576_001}, "every", "use 315,576,000 or less"),
    ({"every": timedelta(days=4000)}, "every", "use 315,576,000 or less"),
    ({"every": True}, "every", "use a number"),
    ({"every": "60"}, "every", "use a number"),
    ({"cron": 5}, "cron", "use text"),
    ({**DAILY, "start": datetime(2026, 1, 1)}, "start", "timezone"),  # naive
    ({**DAILY, "start": "2026-01-01T09:00:00"}, "start", "use a time with a time zone"),
    ({**DAILY, "end": 1_800_000_000}, "end", "use a time with a time zone"),
    ({**DAILY, "end": "2026-13-01T09:00:00Z"}, "end", "month"),
    ({**DAILY, "end": "5000-01-01T09:00:00Z"}, "end", "years 1971 to 4999"),
    (
        {**DAILY, "start": "2026-02-01T00:00:00Z", "end": "2026-01-31T00:00:00Z"},
        "end",
        "end is before start, 2026-02-01",
    ),
    (
        {**DAILY, "start": "2026-02-01T09:00:01Z", "end": "2026-02-02T08:59:59Z"},
        "end",
        "no occurrence between start and end",
    ),
    (
        {"cron": "0 0 29 2 *", "start": "2097-01-01T00:00:00Z", "end": "2103-12-31T00:00:00Z"},
        "end",
        "no occurrence between",
    ),
    ({"every": 60, "jitter": 60}, "jitter", "jitter must be less than every, 60 s"),
    ({**DAILY, "jitter": 86_401}, "jitter", "use 86,400 or less"),
    ({**DAILY, "jitter": -1}, "jitter", "use 0 or more"),
    ({**DAILY, "late": float("nan")}, "late", "finite"),
    ({**DAILY, "most": 0}, "most", "use 1 or more"),
    ({**DAILY, "most": 101}, "most", "use 100 or less"),
    ({**DAILY, "missed": "none"}, "missed", "'latest', 'skip' or 'all'"),
    ({**DAILY, "overlap": "wait"}, "overlap", "'allow', 'skip' or 'queue'"),
    ({**DAILY, "timezone": "UTC"}, "timezone", "unknown: leave it out"),
]


@pytest.mark.parametrize(("rules", "field", "why"), BAD_RULES)
def test_invalid_rules_are_refused_at_their_field(rules, field, why):
    where, output = refusal(**rules)
    assert where == (field,)
    assert why in output


def test_equal_schedules_are_stored_alike():
    here, there = (
        datetime(2026, 1, 1, 9, tzinfo=UTC),
        datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=1))),
    )
    one, other = Recurrence(every=timedelta(minutes=1), start=here), Recurrence(every=60, start=there)
    assert one == other
    assert one.model_dump_json() == other.model_dump_json()
    assert Recurrence.model_validate_json(one.model_dump_json()) == one
    assert Recurrence(cron=" 0\t9 * *  mon-fri\n").cron == "0 9 * * mon-fri"
    assert Recurrence.model_validate_json('{"every": 60, "most": 3.0}').most == 3


# occurrences and firing


def test_an_interval_counts_from_1970_or_from_its_start():
    assert first(Recurrence(every=45), "name", NOON) == Occurrence(
        NOON + 45_000 - NOON % 45_000, NOON + 45_000 - NOON % 45_000
    )
    start = datetime(
        2026, 3, 28, 12, 0, 7, 500, tzinfo=UTC
    )  # 7.0005 s after noon: the occurrence is the next whole ms
    anchored = Recurrence(every=1.5, start=start, end=start + timedelta(seconds=3))
    occurrences = [NOON + 7_001 + n for n in (0, 1500)]
    assert [first(anchored, "name", after) for after in (0, occurrences[0] - 1, occurrences[0])] == [
        Occurrence(occurrence, occurrence) for occurrence in (occurrences[0], occurrences[0], occurrences[1])
    ]
    assert first(anchored, "name", occurrences[1]) is None


def test_start_and_end_are_occurrences_themselves():
    nine = [datetime(2026, 3, day, 9, tzinfo=UTC) for day in (1, 2, 3)]
    both = Recurrence(cron="0 9 * * *", start=nine[0], end=nine[2])
    assert upcoming(both, 0) == nine
    later = Recurrence(
        cron="0 9 * * *", start=nine[0] + timedelta(milliseconds=1), end=nine[2] - timedelta(milliseconds=1)
    )
    assert upcoming(later, 0) == nine[1:2]


def test_upcoming_occurrences_are_in_the_schedules_zone():
    berlin = upcoming(Recurrence(cron="30 2 * * *", tz="Europe/Berlin"), NOON, 3)
    assert [at.isoformat() for at in berlin] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
        "2026-03-31T02:30:00+02:00",
    ]
    assert upcoming(Recurrence(every=60), NOON, 0) == []
    assert len(upcoming(Recurrence(every=60), NOON, 10**9)) == schedules.UPCOMING_MAX


EVERY_DAY = Recurrence(cron="0 9 * * *")
NINE = int(datetime(2026, 3, 1, 9, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000


def nines(*days):
    return tuple(NINE + day * DAY for day in days)


MISSED = [
    ({}, 0, (0,), 0, 1),
    ({}, DAY * 3 + 5, (3,), 3, 4),
    ({}, -1, (), 0, 0),
    ({"missed": "skip"}, 300_000, (0,), 0, 1),
    ({"missed": "skip"}, 300_001, (), 1, 1),
    ({"missed": "skip", "late": 0}, DAY * 2, (2,), 2, 3),
    ({"missed": "skip", "late": 3600}, DAY * 2 + 3_600_001, (), 3, 3),
    ({"missed": "all"}, DAY * 3, (0, 1, 2, 3), 0, 4),
    ({"missed": "all", "most": 2}, DAY * 3, (2, 3), 2, 4),
    ({"missed": "all", "overlap": "queue"}, DAY * 3, (0,), 0, 1),
    ({"missed": "all", "overlap": "queue", "most": 2}, DAY * 3, (2,), 2, 3),
    ({"overlap": "queue"}, DAY * 3, (3,), 3, 4),
    ({"overlap": "skip", "missed": "all"}, DAY, (0, 1), 0, 2),
]


@pytest.mark.parametrize(("rules", "after", "fired", "missed", "following"), MISSED)
def test_missed_occurrences_are_fired_by_the_misfire_policy(rules, after, fired, missed, following):
    found = firing(EVERY_DAY.model_copy(update=rules), "name", NINE, NINE + after)
    assert found == (nines(*fired), missed, Occurrence(*nines(following, following)))


def test_a_schedule_ends_after_its_last_occurrence():
    ends = Recurrence(cron="0 9 * * *", end=datetime(2026, 3, 3, 9, tzinfo=UTC))
    assert firing(ends, "name", NINE, NINE + 100 * DAY) == (nines(2), 2, None)


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
@pytest.mark.parametrize(
    "rules", [{"every": 1}, {"cron": "* * * * *"}, {"cron": "* * * * * *", "tz": "Europe/Berlin"}]
)
def test_a_pause_of_years_costs_no_more_than_one_of_a_day(rules, missed, monkeypatch):
    searched = []
    for way in ("after", "until"):
        plain = getattr(CronLine, way)
        monkeypatch.setattr(CronLine, way, lambda *args, plain=plain: searched.append(args) or plain(*args))
    recurrence = Recurrence(**rules, missed=missed, most=100)
    found = firing(recurrence, "name", NOON, NOON + 5 * YEAR)
    assert len(searched) < 2 * COUNTED + 20
    step = 60_000 if rules.get("cron") == "* * * * *" else 1000
    newest = tuple(NOON + 5 * YEAR - n * step for n in range(100))
    assert found.occurrences == (newest[::-1] if missed == "all" else newest[:1])
    if "every" in rules:
        assert found.missed == 5 * YEAR // 1000 + 1 - len(found.occurrences)
    else:
        assert found.missed >= COUNTED


def test_an_announced_occurrence_is_fired_after_the_rules_changed():
    """As after a change of the time zone's rules: the announced occurrence takes place, then the next one by
    the new rules.
    """
    odd = NINE - 3_600_000
    assert firing(EVERY_DAY, "name", odd, odd) == ((odd,), 0, Occurrence(*nines(0, 0)))
    assert firing(EVERY_DAY, "name", odd, NINE + DAY) == (nines(1), 2, Occurrence(*nines(2, 2)))


moments = st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 30), timezones=st.just(UTC))
recurrences = st.one_of(
    st.fixed_dictionaries(
        {"every": st.sampled_from([1, 1.5, 7, 60, 3600]), "jitter": st.sampled_from([0, 0.9])}
    ),
    st.fixed_dictionaries(
        {
            "cron": st.sampled_from(
                ["* * * * *", "*/15 * * * *", "30 2 * * *", "*/20 * * * * *", "0,30 1-4 * * *", "@hourly"]
            ),
            "tz": st.sampled_from(["UTC", "Europe/Berlin"]),
            "jitter": st.sampled_from([0, 0.5, 90, 7200]),
        }
    ),
)
LOOKS = st.lists(st.integers(0, 60) | st.integers(0, 40_000), min_size=1, max_size=12)


def look_again_and_again(recurrence, begin, looks):
    """Each firing of a sequence, and the next occurrence."""
    occurrence, now, found = first(recurrence, "name", begin), begin, []
    for gap in looks:
        now += gap * 1000
        while occurrence and occurrence.due <= now:
            found.append((now, firing(recurrence, "name", occurrence.occurrence, now)))
            assert found[-1][1].next is None or found[-1][1].next.occurrence > occurrence.occurrence
            occurrence = found[-1][1].next
    return found, occurrence, now


def chain(recurrence, begin, until, limit=None):
    """The occurrences that come due, by `first` alone."""
    occurrences, occurrence = [], first(recurrence, "name", begin)
    while occurrence and occurrence.due <= until and (limit is None or len(occurrences) < limit):
        occurrences.append(occurrence)
        occurrence = first(recurrence, "name", occurrence.occurrence)
    return occurrences


@settings(max_examples=few(120), deadline=None)
@given(recurrences, moments)
def test_occurrences_and_their_due_moments_only_grow(rules, begin):
    recurrence, begin_ms = Recurrence(**rules), int(begin.timestamp() * 1000)
    occurrences = chain(recurrence, begin_ms, begin_ms + 10 * YEAR, 100)
    assert occurrences[0].occurrence > begin_ms
    for one, other in pairwise(occurrences):
        assert one.occurrence <= one.due < other.occurrence
    for one in occurrences:
        assert one.due - one.occurrence < max(1, rules["jitter"] * 1000)


@settings(max_examples=few(150), deadline=None)
@given(
    recurrences,
    moments,
    LOOKS,
    st.sampled_from(["latest", "skip", "all"]),
    st.sampled_from(["allow", "queue"]),
)
def test_no_occurrence_is_fired_twice_at_any_sequence_of_firings(rules, begin, looks, missed, overlap):
    recurrence = Recurrence(**rules, missed=missed, overlap=overlap, most=5, late=60)
    found, following, now = look_again_and_again(recurrence, int(begin.timestamp() * 1000), looks)
    fired = [occurrence for _, one in found for occurrence in one.occurrences]
    assert all(one < other for one, other in pairwise(fired))
    due = chain(recurrence, int(begin.timestamp() * 1000), now, 2000)
    if len(due) < 2000:
        assert set(fired) <= {occurrence.occurrence for occurrence in due}
        assert following is None or following.due > now
    if len(due) <= COUNTED:
        assert len(fired) + sum(one.missed for _, one in found) == len(due)
    for at, one in found if missed == "latest" and len(due) < 2000 else []:
        assert one.occurrences == (max(occurrence.occurrence for occurrence in due if occurrence.due <= at),)


@settings(max_examples=few(100), deadline=None)
@given(recurrences, moments, LOOKS, st.sampled_from(["allow", "queue"]))
def test_with_missed_all_exactly_the_occurrences_are_fired(rules, begin, looks, overlap):
    begin_ms = int(begin.timestamp() * 1000)
    recurrence = Recurrence(**rules, missed="all", most=100, overlap=overlap)
    due = chain(recurrence, begin_ms, begin_ms + sum(looks) * 1000, 101)
    if len(due) <= 100:
        found, _, _ = look_again_and_again(recurrence, begin_ms, looks)
        assert [occurrence for _, one in found for occurrence in one.occurrences] == [
            occurrence.occurrence for occurrence in due
        ]
        assert sum(one.missed for _, one in found) == 0


def test_jitter_is_the_same_on_every_machine():
    tidy = Recurrence(cron="0 9 * * *", jitter=600)
    occurrence = first(tidy, "nightly", NOON)
    assert occurrence.due - occurrence.occurrence == 191_051
    assert first(tidy, "another", NOON).due != occurrence.due
    dues = [one.due - one.occurrence for one in chain(tidy, NOON, NOON + YEAR)]
    assert min(dues) < 20_000
    assert max(dues) > 580_000


# descriptions


WORDS = [
    ({"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}, "At 09:00 on Monday through Friday (Europe/Berlin)"),
    ({"cron": "@daily"}, "At 00:00 every day (UTC)"),
    ({"cron": "*/5 * * * * *"}, "Every fifth second of every minute (UTC)"),
    ({"every": 30}, "Every 30 seconds"),
    ({"every": 1.5}, "Every 1.5 seconds"),
    ({"every": 1}, "Every second"),
    ({"every": 5400}, "Every 90 minutes"),
    ({"every": 86_400, "jitter": 60}, "Every day, up to 1 minute later"),
    (
        {
            "cron": "@hourly",
            "tz": "Europe/Berlin",
            "start": "2026-01-01T08:00:00Z",
            "end": "2026-07-01T08:00:00Z",
        },
        "At the start of every hour, from 2026-01-01 09:00:00, until 2026-07-01 10:00:00 (Europe/Berlin)",
    ),
    ({"every": 60, "overlap": "skip"}, "Every minute, skipped while the previous job runs"),
    ({"every": 60, "overlap": "queue"}, "Every minute, one after the other"),
    ({"every": 60, "missed": "skip"}, "Every minute, not if more than 5 minutes late"),
    ({"every": 60, "missed": "all"}, "Every minute, up to 24 missed occurrences made up for"),
]


@pytest.mark.parametrize(("rules", "said"), WORDS)
def test_a_schedule_is_described(rules, said):
    assert describe(Recurrence(**rules)) == said


# the page


def test_the_pages_examples_print_the_values_of_their_comments(capsys):
    names = {}
    for text in re.findall(r"^```python when\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(text, names)  # noqa: S102  # the page's own snippet
        assert capsys.readouterr().out.splitlines() == re.findall(r"# (.*)", text)


def test_the_pages_table_of_rules_is_complete():
    rules = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) ?\|$", PAGE.split("### Cron lines")[0], re.MULTILINE))
    assert list(rules) == list(Recurrence.model_fields)
    for name, default in rules.items():
        if name not in ("cron", "every"):
            given = Recurrence.model_fields[name].default
            assert default.strip(" `") == ("" if given is None else f"{given}")


def test_the_page_names_all_aliases():
    rows = re.findall(r"^\| (`@.*) \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert {name: line for names, line in rows for name in re.findall(r"@\w+", names)} == ALIASES
