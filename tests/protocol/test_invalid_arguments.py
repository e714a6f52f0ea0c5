"""Each verb answers invalid arguments with a code of its header, never with an error of Lua."""

import random

import pytest
from redis.exceptions import ResponseError

from sublet.protocol import keys
from sublet.protocol.scripts import script

VERBS = ("schedule", "pick", "fire", "pool", "summon", "complain", "enlist", "publish", "sample", "reap")
ODD = (
    "", " ", "0", "1", "-1", "-0", "1.5", "0x10", "1e3", "nan", "inf", "-inf", "99999999999999", "999999999999999999999", "abc",
    "a b",
    "ä", "\n", "%d", "%", "[", "{", "'", "x" * 41, "x" * 129, "x" * 5000, "x" * 300_000, "s", "p", "q", "w", "s" * 22, "skip",
    "queues=q invoker=none", "queues=q", "queues=q invoker=none max=1e9", "1000", "1000 2000", "2000 1000", "  ", "tries=1",
    "delay=1",
)  # fmt: skip
GOOD = {
    "schedule": ["s", "1", "1000", "{}", "q", "t", "tries=2", "skip", "0", "2000", "2000", "{}"],
    "pick": ["50"],
    "fire": ["w", "s", "1", "1000", "1000", "0", "2000", "2000"],
    "pool": ["p", "1", "queues=q invoker=http", "there"],
    "summon": ["p", "s" * 22, "3", "w", "far", "1", "2", "3", "4", "5"],
    "complain": ["p", "s" * 22 + ".1", "1", "it is away"],
    "enlist": ["w", "1", "", "{}", "p", "s" * 22 + ".1"],
    "publish": ["yes", "t", "ab" * 8, "{}", "u", "cd" * 8, "{}"],
    "sample": ["5", "1000"],
    "reap": ["10", "tick"],
}
TIMES = 250


def odd(chance, good):
    """Arguments of which some may be invalid: too few, too many, or as many as the header names."""
    words = [word if chance.random() < 0.75 else chance.choice(ODD) for word in good]
    how = chance.random()
    if how < 0.2:
        return words[: chance.randrange(len(words))]
    return words + [chance.choice(ODD) for _ in range(chance.randrange(1, 9))] if how < 0.35 else words


@pytest.mark.parametrize("verb", VERBS)
async def test_invalid_arguments_are_refused_with_a_code_of_the_header(desk, verb):
    chance, known = random.Random(verb), script(verb)
    codes = set()
    for i in range(TIMES):
        if i % 25 == 0:
            desk.raw.delete("nothing", *desk.raw.scan_iter(f"{desk.base}:*", count=1000))
            await desk.put()
            await desk.pool()
            await desk.submit("a", "b")
        words = odd(chance, GOOD[verb])
        before = desk.everything() if i % 5 == 0 else None
        try:
            desk.raw.execute_command("EVAL", known.text, 1, desk.base, *words)
        except ResponseError as error:
            code = str(error).split(" ")[0]
            assert code in known.codes, (words, error)  # noqa: PT017  # many are valid, and any may be refused
            codes.add(code)
            assert before is None or desk.everything() == before, words
    assert codes


@pytest.mark.parametrize("verb", VERBS)
async def test_the_arguments_from_which_invalid_ones_are_made_are_valid(desk, verb):
    await desk.put()
    await desk.pool()
    desk.raw.execute_command("EVAL", script(verb).text, 1, desk.base, *GOOD[verb])


async def test_an_invalid_fire_creates_no_job(desk):
    chance = random.Random(7)
    await desk.put()
    for _ in range(TIMES):
        words = odd(chance, GOOD["fire"])
        try:
            desk.raw.execute_command("EVAL", script("fire").text, 1, desk.base, *words)
        except ResponseError:
            continue
    made = desk.members("queue:q")
    assert all(job_id.startswith("0-s:") and int(job_id[4:]) <= desk.now() for job_id in made)
    assert len(made) == len(set(made))
    assert desk.raw.exists(keys.schedule(desk.base, "s"))
