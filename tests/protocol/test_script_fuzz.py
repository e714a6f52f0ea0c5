"""Random keys and arguments for the scripts, on real servers: the answer is a refusal or an argument error, and nothing changed.

`SUBLET_TEST_FUZZ=100` runs a hundred times longer. Earlier findings are plain tests at the end.
"""

import os
import random

import pytest
from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from sublet.protocol import verbs
from sublet.protocol.scripts import NAMES, script
from tests.support.draws import few
from tests.support.verb_scenes import stage

pytestmark = pytest.mark.real_server
TIMES = few(150) * int(os.environ.get("SUBLET_TEST_FUZZ") or 1)
ANEW = 20
"""Calls on one stage, which successful calls change."""
HOLD, PER_BYTE, AGAIN = 5000, 0.1, 7
"""The time in us for which a call may block the server, the addition for each byte, and the number of
repetitions of a slower call."""
ODD = [
    b"", b" ", b"0", b"1", b"-1", b"-0", b"1.5", b"0x10", b"1e3", b"1e309", b"-1e309", b"nan", b"-nan", b"inf", b"-inf",
    b"9007199254740993", b"99999999999999", b"9" * 21, b"9" * 400, b"abc", b"a b", b"\xff\xfe\x00\x80", b"\x00", b"\r\n",
    b"%d", b"%", b"[", b"]]", b"{", b"{a}", b"}{", b"'", b'"', b"x" * 41, b"x" * 65, b"x" * 129, b"x" * 5000, b"q", b"s",
    b"p", b"w", b"*", b"s" * 22, b"priority=-0", b"tries=0", b"timeout=none", b"timeout=0", b"delay=99999999999999",
    b"at=99999999999999", b"backoff=0:0:0", b"backoff=99999999999999:9999999999:99999999999999",
    b"backoff=1000:0." + b"0" * 90 + b"1:1", b"key=a window=1", b"key=" + b"k" * 128, b"retention=99999999999999",
    b"queues=q invoker=none", b"queues=q invoker=none max=1000 min=0 wait=1 arrive=1 slots=1 linger=0",
    b"queues=" + b",".join(b"q%d" % i for i in range(33)), b"jobs=1", b"bytes=0 jobs=0", b"completed=0", b"1000 2000",
    b"skip", b"yes", b"no", b"released", b"unknown_task", b"abandoned",
]  # fmt: skip
LARGE = [b"x" * (1 << 20), b"\n" * 100_000, b"a=b " * 20_000, b"1 " * 20_000, b",a" * 20_000]
KEYS = [b"", b"nobase", b"{x:0", b"\x00", b"x" * 4096]
ARGUMENT = ("must be strings or integers", "'base' (a nil value)")
"""The replies of Redis if a script gets no key."""


def odd(chance, good):
    """Arguments: valid ones with some invalid ones, or too few, too many, or very many."""
    pool = LARGE if chance.random() < 0.05 else ODD
    words = [word if chance.random() < 0.8 else chance.choice(pool) for word in good]
    how = chance.random()
    if how < 0.15:
        return words[: chance.randrange(len(words) + 1)]
    if how < 0.3:
        return words + [chance.choice(ODD) for _ in range(chance.randrange(1, 9))]
    if how < 0.34:
        return [chance.choice(ODD)[:64]] * chance.choice([100, 1000, 9000, 20_000])
    return words * chance.choice([2, 20, 200]) if how < 0.38 else words


def odd_keys(chance, base):
    """Keys: the base, mostly; none, one too many, or another one."""
    how = chance.random()
    if how < 0.9:
        return [base]
    return [] if how < 0.93 else [base, b"x"] if how < 0.96 else [chance.choice([*KEYS, base + b":running"])]


@pytest.fixture
def bare(place):
    """A client that returns replies as bytes."""
    with Redis.from_url(place.settings.redis_url, protocol=2) as client:
        yield client


def everything(bare, base):
    """All stored data, as DUMP returns it, and the keys that expire."""
    found = sorted(bare.scan_iter(base + b"*", count=1000))
    pipe = bare.pipeline(transaction=False)
    for key in found:
        pipe.dump(key)
        pipe.pttl(key)
    replies = pipe.execute()
    dumps = {key: dump for key, dump in zip(found, replies[::2], strict=True) if dump is not None}
    return dumps, {key for key, ttl in zip(found, replies[1::2], strict=True) if ttl != -1}


def same(before, after):
    """Whether nothing was added, changed or removed, except keys that expired."""
    (stored, mortal), (now, _) = before, after
    return now == {key: value for key, value in stored.items() if key in now or key not in mortal}


def send(bare, verb, keys, words):
    """Call a script with these arguments. Return its error, if any."""
    known = script(verb)
    try:
        bare.execute_command("EVALSHA", known.sha, len(keys), *keys, *words)
    except NoScriptError:
        bare.script_load(known.text)
        return send(bare, verb, keys, words)
    except ResponseError as error:
        return str(error)
    return ""


def held(bare):
    """us for which the last script blocked the server, from SLOWLOG."""
    return max(
        [entry["duration"] for entry in bare.slowlog_get(5) if entry["command"].startswith(b"EVALSHA")],
        default=0,
    )


async def set_stage(desk, verb):
    """Create data on which the verb has work to do. Returns its valid arguments."""
    desk.raw.delete(*desk.raw.scan_iter(f"{desk.base}*", count=1000))
    await desk.run(verbs.init(desk.base))
    call = (await stage(verb, desk)).call
    return [word if isinstance(word, bytes) else str(word).encode() for word in call.commands[0][4:]]


@pytest.mark.parametrize("verb", NAMES)
async def test_random_calls_are_refused_and_change_nothing(verb, desk, bare):
    chance, base, codes = random.Random(f"{verb} {TIMES}"), desk.base.encode(), script(verb).codes
    slow, good, run_id = [], [], bare.info("server")["run_id"]
    bare.config_set("slowlog-log-slower-than", HOLD)
    for i in range(TIMES):
        if i % ANEW == 0:
            good = await set_stage(desk, verb)
        keys, words = odd_keys(chance, base), odd(chance, good)
        before = everything(bare, base)
        bare.slowlog_reset()
        error = send(bare, verb, keys, words)
        allowed = HOLD + PER_BYTE * sum(map(len, words))
        if held(bare) > allowed:
            slow.append((keys, words, allowed))
        if error:
            code = error.split(" ")[0]
            fits = (
                code in codes
                or (not keys and any(text in error for text in ARGUMENT))
                or (code == "WRONGTYPE" and keys != [base])
            )
            assert fits, (verb, keys, words[:20], error)
            assert same(before, everything(bare, base)), (verb, keys, words[:20], error)
    bare.delete(*KEYS)
    for (
        keys,
        words,
        allowed,
    ) in slow:  # a busy machine sometimes stops a server for some ms, but not each time
        assert min(took(bare, verb, keys, words) for _ in range(AGAIN)) <= allowed, (verb, words[:20])
    assert bare.info("server")["run_id"] == run_id


def took(bare, verb, keys, words):
    """us for which a call blocks the server."""
    bare.slowlog_reset()
    send(bare, verb, keys, words)
    return held(bare)


# earlier findings


@pytest.mark.parametrize("verb", ["schedule", "enlist", "pool"])
@pytest.mark.parametrize("n", [12, 8001, 20_000])
async def test_more_arguments_than_lua_can_unpack_raise_no_lua_error(verb, n, desk, bare):
    """`unpack` of more than about 8,000 values raises `too many results to unpack`, before an argument is checked."""
    base = desk.base.encode()
    before = everything(bare, base)
    assert send(bare, verb, [base], [b" "] * n).startswith("INVALID ")
    assert same(before, everything(bare, base))


@pytest.mark.parametrize("verb", NAMES)
def test_a_script_without_a_key_writes_nothing(verb, desk, bare):
    before = everything(bare, b"")
    assert any(text in send(bare, verb, [], [b"1"] * 6) for text in ARGUMENT)
    assert same(before, everything(bare, b""))


@pytest.mark.parametrize("key", KEYS)
def test_only_init_creates_a_missing_base(key, desk, bare):
    bare.delete(key)
    for verb in [name for name in NAMES if name != "init"]:
        error = send(bare, verb, [key], [b"1"] * 6)
        assert error.split(" ")[0] in (*script(verb).codes, "NO_NAMESPACE"), error
        assert not bare.exists(key)
