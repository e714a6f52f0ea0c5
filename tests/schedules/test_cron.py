"""Valid and invalid cron lines and time zones, with the error messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sublet.schedules import cron
from sublet.schedules.cron import ALIASES, zone
from sublet.schedules.cron_times import CronLine, cron_line
from sublet.schedules.recurrence import Recurrence, describe, first
from tests.client.test_daylight import lines, read
from tests.support.draws import few

NOON = 1_774_699_200_000


BAD_LINES = {
    "61 * * * *": "minute 61 is not 0 to 59",
    "* 24 * * *": "hour 24 is not 0 to 23",
    "0 0 0 * *": "day-of-month 0 is not 1 to 31",
    "0 0 5W * *": "day-of-month 5W is not 1 to 31, L",
    "0 0 ? * *": "day-of-month ? is not",
    "0 0 * 13 *": "month 13 is not 1 to 12 or JAN to DEC",
    "0 0 * july *": "month JULY is not",
    "0 0 * * 8": "day-of-week 8 is not 0 to 7 or SUN to SAT",
    "0 0 * * FUN": "day-of-week FUN is not",
    "0 0 * * MON#6": "day-of-week MON#6 is not a week of the month: use #1 to #5",
    "0 0 * * 5L/2": "day-of-week 5L/2 is not understood",
    "0 0 * * FRI-MON": "day-of-week FRI-MON ends before it begins: use two ranges, or a list",
    "5-1 * * * *": "minute 5-1 ends before it begins",
    "1- * * * *": "minute 1- is not",
    "-1 * * * *": "minute -1 is not",
    "1,,2 * * * *": "minute has an empty item: write",
    "*/0 * * * *": "minute has the step '0', which is not a whole number from 1",
    "1/2/3 * * * *": "minute has the step '2/3'",
    "60 0 0 * * *": "second 60 is not 0 to 59",
    "0 0 31 2 *": "day-of-month 31 never comes in month 2",
    "0 0 30,31 FEB *": "day-of-month 30,31 never comes in month FEB",
    "0 0 31 4 */2": "day-of-month 31 never comes in month 4",
    "0 0 */31 * MON#5": "never fires: no day fits both its day-of-month and its day-of-week",
    "": "0 fields; use 5",
    "* * *": "3 fields; use 5",
    "* * * * * * *": "7 fields; use 5",
    "@reboot": "there is no such alias: use @hourly, @daily",
    "@every 5m": "give an interval as every",
    "CRON_TZ=Europe/Berlin 0 9 * * *": "give the time zone as tz",
    "½ * * * *": "all ASCII",
    "0 0 * * " + "1," * 200 + "2": "use at most 200 characters",
}


def refusal(**rules):
    with pytest.raises(ValidationError) as refused:
        Recurrence(**rules)
    (fault,) = refused.value.errors()
    return fault["loc"], fault["msg"]


@pytest.mark.parametrize("text", BAD_LINES, ids=lambda text: text[:40])
def test_an_invalid_cron_line_is_refused_with_the_field_and_the_reason(text):
    where, why = refusal(cron=text)
    assert where == ("cron",)
    assert why.startswith(f"cron {text[:200]!r}: " if "never fires" not in why else f"cron {text!r} ")
    assert BAD_LINES[text] in why


@given(st.text(st.sampled_from("0123456789*/,-#LWMONFRI @?\t½"), max_size=30))
@settings(max_examples=few(300), deadline=None)
def test_an_invalid_line_is_refused_with_the_field_and_the_reason(text):
    try:
        output = CronLine(text).describe()
    except ValueError as error:
        output = str(error).removeprefix("cron ")
        assert output != str(error)  # noqa: PT017  # either way is right
    assert output


@given(lines)
@settings(max_examples=few(200), deadline=None)
def test_each_cron_line_is_described(text):
    assert read(text).describe()


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_stands_for_a_line(alias):
    both = [Recurrence(cron=text) for text in (alias.upper(), ALIASES[alias])]
    assert len({first(one, "name", NOON) for one in both}) == 1
    assert len({describe(one) for one in both}) == 1


@pytest.mark.parametrize("day", ["FRIL", "fril", "5L,FRIL"])
def test_the_last_friday_of_a_month_has_a_name(day):
    moments = [first(Recurrence(cron=f"0 0 * * {text}"), "name", NOON) for text in (day, "5L")]
    assert moments[0] == moments[1]
    assert describe(Recurrence(cron=f"0 0 * * {day}"))


BAD_ZONES = {
    "Europe/Berln": "is it Europe/Berlin?",
    "europe/berlin": "is it Europe/Berlin?",
    "New York": "is it America/New_York?",
    "CEST": "use one like Europe/Berlin",
    "Europe": "use one like Europe/Berlin",
    "localtime": "use one like Europe/Berlin",
    "right/UTC": "there is no time zone",
    "posixrules": "there is no time zone",
    "../etc/passwd": "there is no time zone",
    "/etc/passwd": "there is no time zone",
    "Europe/../../etc/passwd": "there is no time zone",
    "Europe/Berlin\0": "there is no time zone",
    "": "there is no time zone ''",
    "x" * 100_000: "the name of a time zone has at most 64 characters",
}


@pytest.mark.parametrize("name", BAD_ZONES, ids=lambda name: repr(name[:30]))
def test_an_unknown_zone_is_refused_and_opens_no_file(name, monkeypatch):
    monkeypatch.setattr(cron, "ZoneInfo", lambda key: pytest.fail(f"looked for {key}"))
    where, why = refusal(every=60, tz=name)
    assert where == ("tz",)
    assert BAD_ZONES[name] in why
    assert len(why) < 200


def test_every_named_zone_can_be_used():
    assert len(cron.zones()) > 500
    assert all(cron_line("0 9 * * *").after(NOON // 1000, zone(name)) for name in cron.zones())
