"""Names that would inject a key, end a string or change the hash slot are refused at every interface, and nothing is stored."""

import contextlib
import itertools
import string
import urllib.parse

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import ResponseError

from sublet.cli import main
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, JobsError
from sublet.model import Card
from sublet.options import Options
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import NAMES, script
from sublet.store.store import Store
from sublet.store.sync_store import SyncStore
from tests.support.draws import few, one_in
from tests.support.http_server import ask, serving
from tests.support.verb_scenes import stage

pytest_plugins = ["tests.support.http_settings", "tests.support.command_line"]
FEW = examples(
    max_examples=few(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
DOTS = (".", "..")
"""A browser removes these from a path, percent-encoded too."""
ALLOWED = string.ascii_letters + string.digits + "_.:-"
HOSTILE = (
    "'", '"', "]]", "--[[", "\0", "a\0b", "\r\n", "a\r\nDEL x", "\n", " ", "a b", "{}", "{a}", "}{", "a}:0{b", "*", "?",
    "[a-z]", "a*", "\\", "..\\", "a/b", "../x", "|", "q|k", "é", "日本", "\u202e", "\x7f", "\x1b[2J", "%s", "%n", "$(id)",
    "`id`", "<b>", ".", "..", "x" * 129, "a" * 5000, "x" * (1 << 20), "\ud800", "a\udcff",
)  # fmt: skip
"""The last two are not valid text: Python's decoding of bytes that are not UTF-8, and a value that JSON
allows."""
BAD = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=40)).filter(
    lambda name: not set(name) <= set(ALLOWED) or len(name) > 128 or name in DOTS
)
GOOD = st.text(ALLOWED, min_size=1, max_size=20).filter(lambda name: name not in DOTS)
NAMED = {
    "id",
    "queue",
    "task",
    "claim_id",
    "worker",
    "life",
    "worker_id",
    "pool",
    "summons",
    "by",
    "name",
    "leaver",
}
"""The arguments of scripts that name something."""


# two names never give one key, and all stay in the hash slot

KINDS = {
    "job": keys.job, "queue": keys.queue, "claim": keys.claim, "wake": keys.wake, "worker": keys.worker,
    "schedule": keys.schedule, "pool": keys.pool, "crew": keys.crew, "summons": keys.summons, "tag": keys.tag,
}  # fmt: skip
SINGLE = (
    keys.queues,
    keys.backlog,
    keys.counts,
    keys.alarm,
    keys.workers,
    keys.catalogue,
    keys.tasks,
    keys.tags,
    keys.minutes,
    keys.hours,
    keys.schedules,
    keys.pools,
    keys.events,
    keys.ended,
)
VISIBLE = st.text("".join(map(chr, range(33, 127))), min_size=1, max_size=12)


def all_keys(base, name, other):
    """Every kind of key, with and without names: its description → the key."""
    found = {(kind, name): make(base, name) for kind, make in KINDS.items()}
    found |= {(make.__name__, ""): make(base) for make in SINGLE} | {
        ("base", ""): base,
        ("nothing", ""): base + ":",
    }
    found |= {(state, ""): keys.structure(base, state) for state in keys.STRUCTURES}
    return found | {("lock", name, other): keys.lock(base, name, other)}


@given(GOOD, GOOD, GOOD, VISIBLE, VISIBLE, st.integers(0, 99))
def test_different_names_give_different_keys_in_one_hash_slot(namespace, one, two, own, other, partition):
    base = keys.base(namespace, partition)
    both = all_keys(base, one, own) | all_keys(base, two, other)
    assert len(set(both.values())) == len(both)
    for key in both.values():
        assert key.startswith(base)
        assert key_slot(key.encode()) == key_slot(base.encode())


def test_a_queue_and_a_key_cannot_be_confused():
    """For example queue `a` with key `a:a`, and queue `a:a` with key `a`: all short names of these letters."""
    words = ["".join(word) for n in (1, 2, 3) for word in itertools.product("a:|", repeat=n)]
    both = [(queue, key) for queue in words if "|" not in queue for key in words]
    assert len({keys.lock("{n:0}", queue, key) for queue, key in both}) == len(both) > 500


@given(GOOD, GOOD, GOOD, GOOD)
def test_two_namespaces_never_share_a_key(one, two, name, other):
    assume(one != two)
    ours, theirs = keys.base(one), keys.base(two)
    assert not set(all_keys(ours, name, "k").values()) & set(all_keys(theirs, other, "k").values())
    assert not ours.startswith(theirs)


@pytest.mark.parametrize("verb", NAMES)
@FEW
@given(data=st.data())
async def test_each_verb_writes_only_keys_of_its_hash_slot(verb, desk, data):
    """Call a verb with other valid names. Return the keys that it has created."""
    desk.raw.delete("nothing", *desk.raw.scan_iter(f"{desk.base}*", count=1000))
    await desk.run(verbs.init(desk.base))
    words, spots = await arguments(verb, desk)
    for i in spots:
        if data.draw(st.booleans()):
            words[i] = data.draw(GOOD).ljust(22, "0").encode()
    before = set(desk.raw.scan_iter(count=1000))
    with contextlib.suppress(ResponseError):
        desk.raw.execute_command("EVAL", script(verb).text, 1, desk.base, *words)
    for key in set(desk.raw.scan_iter(count=1000)) - before:
        assert key == desk.base or key.startswith(desk.base + ":")
        assert key_slot(key.encode()) == key_slot(desk.base.encode())


# the interfaces


async def arguments(verb, desk):
    """A verb's valid arguments in a new scene, and which of them are names."""
    known = script(verb)
    words = [
        word if isinstance(word, bytes) else str(word).encode()
        for word in (await stage(verb, desk)).call.commands[0][4:]
    ]
    names = [*known.fixed, *(known.repeated * len(words) if known.repeated else ())]
    named = NAMED - {"by"} if verb == "audit" else NAMED  # a person has a text
    return words, [i for i in range(len(words)) if names[i] in named and words[i]]


@pytest.mark.parametrize(
    "verb", [verb for verb in NAMES if NAMED & {*script(verb).fixed, *script(verb).repeated}]
)
@FEW
@given(data=st.data())
async def test_a_script_refuses_an_invalid_name(verb, desk, data):
    """Called directly, as any client may: the answer is INVALID or NOT_FOUND, and the stored data is unchanged."""
    desk.raw.delete("nothing", *desk.raw.scan_iter(f"{desk.base}*", count=1000))
    await desk.run(verbs.init(desk.base))
    words, spots = await arguments(verb, desk)
    bad = data.draw(BAD).encode("utf-8", "surrogatepass")
    assume(not (verb == "configure" and bad == b"*"))
    i = data.draw(st.sampled_from(spots))
    takes_patterns = verb == "claim" and i >= len(script(verb).fixed)
    assume(not (takes_patterns and keys.is_pattern(bad.decode(errors="replace"))))
    words[i] = bad
    if script(verb).repeated and i >= len(script(verb).fixed):  # only this item
        size = len(script(verb).repeated)
        at = (i - len(script(verb).fixed)) // size * size + len(script(verb).fixed)
        words = words[: len(script(verb).fixed)] + words[at : at + size]
    before = desk.everything()
    try:
        answer = desk.raw.execute_command("EVAL", script(verb).text, 1, desk.base, *words)
    except ResponseError as error:
        answer = str(error)
    text = answer if isinstance(answer, str) else " ".join(map(str, answer))
    assert any(word in text for word in ("INVALID", "NOT_FOUND", "CHANGED", "sound")), (words, answer)
    assert desk.everything() == before


@pytest.mark.parametrize("dots", DOTS)
async def test_a_script_refuses_dots_as_a_name(desk, dots):
    for verb, *words in (
        ("submit", dots, "q", "t", "", "{}"),
        ("submit", "a", dots, "t", "tries=1", "{}"),
        ("submit", "a", "q", dots, "tries=1", "{}"),
        ("submit", "a", "q", "t", f"tags={dots}", "{}"),
        ("pause", dots, "0"),
        ("configure", dots, "0", "jobs=1"),
        ("claim", "c" * 22, "w", "30000", "1", "q", dots),
    ):
        before = desk.everything()
        try:
            (answer,) = desk.raw.execute_command("EVAL", script(verb).text, 1, desk.base, *words)
        except ResponseError as error:
            answer = str(error)
        assert answer.startswith("INVALID"), (verb, words)
        assert desk.everything() == before


async def test_a_script_refuses_an_invalid_key(desk):
    """A key is one of the rules, so it must not contain blanks or invisible characters."""
    for bad in HOSTILE[:-2]:
        before = desk.everything()
        if not keys.is_key(bad):
            answer = desk.raw.execute_command(
                "EVAL", script("submit").text, 1, desk.base, "a", "q", "t", "key=" + bad, "{}"
            )
            assert answer[0].startswith("INVALID rule "), (bad, answer)
            assert desk.everything() == before


@FEW
@given(BAD)
def test_an_invalid_namespace_is_refused(name):
    with pytest.raises(Invalid, match="namespace"):
        Settings.read(namespace=name)


def asked_of(client, bad):
    """All operations of the async and the sync client that take a name, as (description, call)."""
    return {
        "task": lambda: client.submit(bad),
        "queue": lambda: client.submit("t", {}, Options(queue=bad)),
        "id": lambda: client.submit("t", {}, job_id=bad),
        "get": lambda: client.get(bad),
        "result": lambda: client.result(bad, 0.1),
        "cancel": lambda: client.cancel(bad),
        "retry": lambda: client.retry(bad),
        "promote": lambda: client.promote(bad),
        "reschedule": lambda: client.reschedule(bad, priority=5),
        "erase": lambda: client.erase(bad),
        "pause": lambda: client.pause(bad),
        "resume": lambda: client.resume(bad),
        "configure": lambda: client.configure(bad, completed=-1 if bad == "*" else None),
        "look": lambda: client.queue(bad),
        "cursor": lambda: client.list_jobs(cursor=bad),
        "drain": lambda: client.drain(bad),
        "schedule": lambda: client.schedules.get(bad),
        "remove": lambda: client.schedules.pause(bad),
    }


DOORS = [*asked_of(None, "")]


@pytest.mark.parametrize("door", DOORS)
@FEW
@given(bad=BAD)
async def test_the_async_client_refuses_an_invalid_name(door, place, raw, base, bad):
    assume(not (bad == "*" and door == "look"))
    client = Client(store=Store(place.settings, client=place.client(), blocking=place.client()))
    before = stored(raw, base)
    try:
        with pytest.raises(JobsError) as refused:
            await asked_of(client, bad)[door]()
    finally:
        await client.aclose()
    fit(refused.value)
    assert stored(raw, base) == before


@pytest.mark.parametrize("door", DOORS)
@FEW
@given(bad=BAD)
def test_the_sync_client_refuses_an_invalid_name(door, place, raw, base, bad):
    assume(not (bad == "*" and door == "look"))
    from sublet.connection.transport import SyncTransport

    before = stored(raw, base)
    with (
        SyncClient(
            store=SyncStore(place.settings, SyncTransport(place.settings, place.sync_client()))
        ) as client,
        pytest.raises(JobsError) as refused,
    ):
        asked_of(client, bad)[door]()
    fit(refused.value)
    assert stored(raw, base) == before


def stored(raw, base):
    """The keys besides those of `init`."""
    return {key for key in raw.scan_iter(f"{base}*", count=1000) if key != base}


def fit(error):
    """The message fits in a line or two."""
    assert len(str(error)) < 700


@FEW
@given(bad=BAD)
async def test_an_invalid_name_of_a_worker_is_refused(place, raw, base, bad):
    store = Store(place.settings, client=place.client(), blocking=place.client())
    before = stored(raw, base)
    ask_for = {"worker": "w", "queues": ["q"], "n": 1, "lease": 30.0}
    try:
        queues = [] if keys.is_pattern(bad) else [{"queues": ["q", bad]}]
        for changes in ({"worker": bad}, {"claim_id": bad}, *queues):
            with pytest.raises(JobsError):
                await store.claim(**{**ask_for, **changes})
        for card in (
            Card(bad, "1", "", b"{}"),
            Card("w", bad, "", b"{}"),
            Card("w", "1", bad, b"{}"),
            Card("w", "1", "", b"{}", bad),
        ):
            with pytest.raises(JobsError):
                await store.enlist(card)
        with pytest.raises(JobsError):
            await store.follow(store.operations.reap(bad))
    finally:
        await store.aclose()
    assert stored(raw, base) == before


COMMANDS = (
    "submit BAD", "submit t --queue BAD", "submit t --id BAD", "get BAD", "cancel BAD", "retry BAD",
    "promote BAD", "reschedule BAD --in 5s", "pause BAD", "resume BAD", "configure BAD --jobs 1", "list --queue BAD", "list --cursor BAD",
    "workers drain BAD", "schedules show BAD", "schedules add BAD t --every 5s", "schedules add s BAD --every 5s",
    "schedules remove BAD", "pools show BAD", "pools set BAD --queues q", "pools set p --queues BAD", "scale BAD",
    "stats --namespace BAD", "acl --namespace BAD",
)  # fmt: skip


@pytest.mark.real_server
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_refuses_an_invalid_name_on_one_line(words, place, raw, base, monkeypatch, capsys):
    """The invalid characters of the name do not reach the terminal."""
    monkeypatch.setenv("SUBLET_REDIS_URL", place.settings.redis_url)
    monkeypatch.setenv("SUBLET_NAMESPACE", place.settings.namespace)
    for bad in one_in(4, HOSTILE):
        if (words, bad) in ODD_BUT_FIT:
            continue
        code = main.run([word.replace("BAD", bad) for word in words.split()])
        printed = capsys.readouterr()
        assert code in (1, 2), (bad, printed)
        assert printed.out == "", bad
        line = printed.err.removesuffix("\n")
        assert "Traceback" not in line
        assert len(line) < 700, bad
        assert line.isprintable(), (bad, line)
    assert stored(raw, base) == set()


ODD_BUT_FIT = {("configure BAD --jobs 1", "*"), ("list --queue BAD", "*"), ("list --queue BAD", "a*")}
"""`*` means all queues there, and a list takes patterns."""

REQUESTS = (
    ("GET", "/jobs/BAD"), ("POST", "/jobs/BAD/cancel"), ("POST", "/jobs/BAD/retry"),
    ("POST", "/jobs/BAD/heartbeat", {"token": "x"}), ("GET", "/queues/BAD"), ("PATCH", "/queues/BAD", {"paused": True}),
    ("GET", "/schedules/BAD"), ("DELETE", "/schedules/BAD"), ("GET", "/jobs?queue=BAD"), ("GET", "/jobs?cursor=BAD"),
    ("GET", "/pools/BAD"), ("DELETE", "/pools/BAD"), ("PUT", "/pools/BAD", {"queues": ["q"]}),
    ("PUT", "/workers/BAD", {"life": "1"}), ("DELETE", "/workers/BAD?life=1"), ("POST", "/jobs", {"task": "BAD"}),
    ("POST", "/jobs", {"task": "t", "queue": "BAD"}), ("POST", "/jobs", {"task": "t", "id": "BAD"}),
    ("POST", "/jobs/claim", {"worker": "BAD", "queues": ["q"]}),
    ("POST", "/jobs/claim", {"worker": "w", "queues": ["BAD"]}), ("POST", "/jobs/claim", {"worker": "w", "claim_id": "BAD"}),
    ("PUT", "/pools/p", {"queues": ["BAD"]}), ("PUT", "/schedules/BAD", {"task": "t", "every": 60}),
    ("PUT", "/schedules/s", {"task": "BAD", "every": 60}), ("PUT", "/workers/w", {"life": "BAD"}),
)  # fmt: skip


@pytest.mark.real_server
async def test_http_refuses_an_invalid_name_as_a_problem(place, raw, base):
    """The answer is 4xx, with a document that does not repeat the name at length."""
    async with serving(place.settings) as url:
        for method, path, *body in REQUESTS:
            for bad in HOSTILE:
                if ("BAD" in path and len(bad) > 6000) or (path, bad) == ("/queues/BAD", "*"):
                    continue
                is_claim = path == "/jobs/claim" and body[0].get("queues") == ["BAD"]
                if is_claim and keys.is_pattern(bad):
                    continue
                word = urllib.parse.quote(bad.encode("utf-8", "surrogatepass"), safe="")
                sent = swap(body[0], bad) if body else None
                answer = await ask(url, method, path.replace("BAD", word), sent)
                assert 400 <= answer.status < 500, (method, path, bad[:50], answer)
                assert len(answer.body) < 3000, (method, path, bad[:50])
    assert stored(raw, base) == set()


def swap(found, bad):
    """The object with the name in its place."""
    return {name: [bad if one == "BAD" else one for one in value] if isinstance(value, list) else bad if value == "BAD" else value
            for name, value in found.items()}  # fmt: skip
