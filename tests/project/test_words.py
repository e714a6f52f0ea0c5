"""The project, its tests included, is in plain technical English: habits that are hard to read are counted, and stay rare.

Ordinary uses remain possible ("what to do next", "who owns a job"): a habit may come once in a thousand words.
"""

import re

import pytest

from tests.project.prose import KINDS, files, prose
from tests.support.paths import ROOT

HABITS = {
    "an indefinite person": r"\b(who|whoever|whom|nobody|somebody|anybody|everybody|everyone|someone|anyone)\b",
    "a clause for a noun": r"\bwhat (is|was|has|have|a|an|the|it|they|its|came|comes|ends|goes|we|there|stands"
    r"|are|were|can|cannot)\b",
    "speech": r"\b(hears?|heard|tells?|told|says?|said)\b",
    "a negated noun": r"\b(is|are|was|be|it|has) (no|none)\b",
}
"""Each habit and the words that show it."""
LIMIT = 1.0
"""How often a habit may come in 1,000 words."""
PROSE = 110
"""How many words of prose 100 lines of code may have."""
REPLACED = {
    r"\bmarkers?\b(?! expression)": "wake-up",
    r"\b(pulse|signs? of life)\b": "heartbeat",
    r"\b(roster|on the register|place on the register)\b": "registration",
    r"\bSUBLET_SLOT\b": "SUBLET_WORKER_ID",
    r"\b(timetable|planner)\b": "schedule",
    r"\bslots? of (a|the) schedules?\b|\bschedule's slots?\b": "occurrence",
    r"\bupkeep\b": "maintenance",
    r"\bturned away\b": "rejected, refused",
    r"\bspoiled\b": "inconsistent, invalid",
    r"\bnumber of partitions\b": "partition count",
}
"""Words that the glossary has replaced, where they name its things, and the words that are used instead."""


@pytest.mark.parametrize("kind", KINDS)
def test_habits_that_are_hard_to_read_are_rare(kind):
    texts = prose(kind)
    total = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts.values())
    for habit, words in HABITS.items():
        hits = {path: len(re.findall(words, text, re.IGNORECASE)) for path, text in texts.items()}
        most = sorted(hits, key=lambda path: hits[path], reverse=True)[:5]
        worst = ", ".join(f"{path.relative_to(ROOT)} {hits[path]}" for path in most)
        rate = 1000 * sum(hits.values()) / total
        assert rate <= LIMIT, f"{habit}: {rate:.1f} in 1,000 words of {kind}; most in {worst}"


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_words_are_not_used(kind):
    found = [
        f"{path.relative_to(ROOT)}: {hit.group()!r}: say {instead}"
        for path, text in prose(kind).items()
        if path.name != "CHANGELOG.md"  # it names what was renamed
        for words, instead in REPLACED.items()
        for hit in re.finditer(words, text, re.IGNORECASE)
    ]
    assert found == [], "\n".join(found[:40])


def test_code_is_not_drowned_in_prose():
    sources = files(".py")
    lines = sum(len(path.read_text().splitlines()) for path in sources)
    words = sum(len(prose("code")[path].split()) for path in sources)
    assert words * 100 / lines <= PROSE
