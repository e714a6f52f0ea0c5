"""The test vectors for clients in other languages (docs/reference/protocol/schedules.json) agree with this one."""

import hashlib
import json

import pytest

from sublet import Invalid
from sublet.schedules.definition import recurrence
from sublet.schedules.recurrence import Firing, Occurrence, firing, first
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "reference" / "protocol"
VECTORS = json.loads((FOLDER / "schedules.json").read_text())


def cases(kind):
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: json.dumps(case)[:80])


@cases("occurrences")
def test_the_occurrences_are_those_of_the_vector(case):
    found, after = [], case["after"]
    while len(found) < 5 and (one := first(recurrence(case["when"]), "any", after)):
        found.append(one.occurrence)
        after = one.occurrence
    assert found == case["next"]


@cases("due")
def test_an_occurrence_is_due_when_the_vector_says(case):
    found = first(recurrence(case["when"]), case["name"], case["occurrence"] - 1)
    assert found == Occurrence(case["occurrence"], case["due"])


@cases("due")
def test_the_jitter_is_that_of_the_pages_formula(case):
    jitter, plain = case["when"].get("jitter", 0), {**case["when"], "jitter": 0}
    following = first(recurrence(plain), "any", case["occurrence"])
    span = min([round(jitter * 1000), *([following.occurrence - case["occurrence"]] if following else [])])
    text = f"{case['name']} {case['occurrence']}".encode()
    h = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    assert case["due"] == case["occurrence"] + h * span // 2**64


@cases("firing")
def test_the_fired_occurrences_are_those_of_the_vector(case):
    after = None if case["next"] is None else Occurrence(case["next"], case["due"])
    found = firing(recurrence(case["when"]), case["name"], case["occurrence"], case["now"])
    assert found == Firing(tuple(case["fire"]), case["missed"], after)


@cases("unreadable")
def test_an_unreadable_plan_is_refused(case):
    with pytest.raises(Invalid):
        recurrence(case)


def test_every_field_of_a_plan_is_on_the_page_with_its_default_and_in_a_vector():
    page = (FOLDER / "schedules.md").read_text().partition("## Plans")[2].partition("## Cron lines")[0]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    shown = {name.strip(" `"): default.strip(" `") for _, name, _, default, *_ in rows}
    model = type(recurrence({"every": 60}))
    known = {
        name: "" if field.default is None else str(field.default)
        for name, field in model.model_fields.items()
    }
    assert shown == known
    used = {
        name for kind in ("occurrences", "due", "firing") for case in VECTORS[kind] for name in case["when"]
    }
    assert used == set(known)
