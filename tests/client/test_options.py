"""The options of a submit: written as the protocol's rules, refused with a reason if they are invalid."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from sublet import App, Backoff, Invalid, Options, Settings, SyncClient


def test_default_options_add_no_rules():
    assert Options().rules() == ""


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        (Options(priority=-5), "priority=-5"),
        (Options(delay=1.5), "delay=1500"),
        (Options(delay=timedelta(minutes=2)), "delay=120000"),
        (Options(run_at=datetime(2026, 1, 2, tzinfo=UTC)), "at=1767312000000"),
        (Options(run_at=datetime(1, 1, 1, tzinfo=UTC)), "at=0"),
        (Options(key="a b".replace(" ", "_")), "key=a_b"),
        (Options(key="k", window=60), "key=k window=60000"),
        (
            Options(key="k", debounce=30, at_most=timedelta(minutes=5)),
            "debounce=30000 at_most=300000 key=k",
        ),
        (Options(key="k", debounce=0.5), "debounce=500 key=k"),
        (
            Options(key="k", on_conflict="cancel_running", delay=1),
            "on_conflict=cancel_running delay=1000 key=k",
        ),
        (Options(max_attempts=1), "tries=1"),
        (Options(timeout=0.25), "timeout=250"),
        (Options(timeout=None), "timeout=none"),
        (Options(retention=timedelta(hours=1)), "retention=3600000"),
        (Options(backoff=5), "backoff=5000:1:5000"),
        (Options(backoff=Backoff(0.5, 1.5, 60)), "backoff=500:1.5:60000"),
        (Options(keep_payload=True), "keep=1"),
        (Options(queue="other"), ""),
        (Options(tags=("tenant:acme", "import")), "tags=tenant:acme,import"),
        (Options(tags=["a"]), "tags=a"),
    ],
)
def test_other_options_become_rules(options, rules):
    assert options.rules() == rules


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue": "no spaces"}, "queue 'no spaces': use 1 to 128 of"),
        ({"queue": "{slot}"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"priority": 101}, "priority 101: use a whole number from -100 to 100"),
        ({"priority": 1.5}, "priority"),
        ({"priority": True}, "priority True: use a whole number"),
        ({"delay": -1}, "delay -1 s: use 0 s or more"),
        ({"delay": float("nan")}, "delay nan: use a finite number of seconds"),
        ({"delay": "10"}, "delay '10': use a finite number of seconds"),
        ({"run_at": datetime(2026, 1, 1)}, "a datetime with a time zone"),
        ({"run_at": "2026-01-01T00:00Z"}, "a datetime with a time zone"),
        ({"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 5}, "and no delay"),
        ({"key": ""}, "key '': use text of 1 character or more, or None"),
        ({"key": 7}, "key 7: use text of 1 character or more"),
        ({"window": 60}, "window without a key"),
        ({"key": "k", "window": 0}, "window 0 s: use 0.001 s or more"),
        ({"debounce": 30}, "debounce without a key: give the deduplication key that it is for"),
        ({"on_conflict": "replace"}, "on_conflict without a key: give the deduplication key that it is for"),
        ({"key": "k", "at_most": 30}, "at_most without debounce: it ends the delays of a debounce"),
        ({"key": "k", "debounce": 30, "at_most": 29.9}, "at_most 29.9 s: use at least the debounce, 30 s"),
        ({"key": "k", "debounce": 0}, "debounce 0 s: use 0.001 s or more"),
        ({"key": "k", "debounce": -1}, "debounce -1 s: use 0.001 s or more"),
        ({"key": "k", "debounce": "30"}, "debounce '30': use a finite number of seconds, or a timedelta"),
        ({"key": "k", "debounce": False}, "debounce False: use a finite number of seconds"),
        ({"key": "k", "debounce": 1, "at_most": "soon"}, "at_most 'soon': use a finite number of seconds"),
        ({"key": "k", "debounce": 1, "at_most": -1}, "at_most -1 s: use 0.001 s or more"),
        ({"key": "k", "debounce": 1, "on_conflict": "replace"}, "debounce and on_conflict: use one of them"),
        ({"key": "k", "debounce": 1, "window": 1}, "debounce and window: use one of them"),
        ({"key": "k", "debounce": 1, "delay": 1}, "debounce sets the time of the first try: use no delay"),
        ({"key": "k", "on_conflict": "replace", "window": 1}, "on_conflict and window: use one of them"),
        (
            {"key": "k", "on_conflict": "ignore"},
            "on_conflict 'ignore': use replace or cancel_running, or None",
        ),
        ({"key": "k", "on_conflict": ["replace"]}, "on_conflict ['replace']: use replace or cancel_running"),
        ({"max_attempts": 0}, "max_attempts 0: use a whole number from 1 to 999,999,999"),
        ({"max_attempts": True}, "max_attempts True: use a whole number from 1"),
        ({"max_attempts": 10**15}, "max_attempts 1000000000000000: use a whole number from 1"),
        ({"timeout": 0}, "timeout 0 s"),
        ({"retention": 59}, "retention 59 s: use 60 s or more"),
        ({"retention": timedelta(days=367)}, "at most 31622400 s"),
        ({"key": "k", "window": 1e9}, "s: use 0.001 s or more, at most 31622400 s"),
        ({"backoff": -1}, "backoff -1 s"),
        ({"tags": "import"}, "tags 'import': use a tuple of texts, as in tags=('tenant:acme',)"),
        ({"tags": ("a b",)}, "tag 'a b': use 1 to 64 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ({"tags": ("",)}, "tag '': use 1 to 64 of"),
        ({"tags": (7,)}, "tag '7': use 1 to 64 of"),
        ({"tags": ("t" * 65,)}, "use 1 to 64 of"),
        ({"tags": ("a", "a")}, "tags a, a: use at most 5 different ones"),
        ({"tags": tuple("abcdef")}, "tags a, b, c, d, e, f: use at most 5 different ones"),
        ({"backoff": Backoff(factor=0.5)}, "backoff factor 0.5"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(changes, words):
    with pytest.raises(Invalid, match=re.escape(words)):
        Options(**changes).rules()


@pytest.mark.parametrize("payload", [[], 0, "", b"", "[]"])
def test_a_payload_that_is_no_object_is_refused(payload):
    client = SyncClient(Settings(redis_url="redis://127.0.0.1:1"))
    with pytest.raises(Invalid, match="payload"):
        client.submit("add", payload)


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(Invalid, match="unknown option prio: use queue, priority, "):
        Options().but(prio=1)


def test_a_moment_that_the_scripts_do_not_accept_is_refused():
    last = datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC)
    assert Options(run_at=last).rules() == "at=99999999999000"
    with pytest.raises(Invalid, match=r"run_at 9999-12-31.*: use a time until 5138-11-16T09:46:39Z"):
        Options(run_at=datetime(9999, 12, 31, tzinfo=UTC)).rules()


@pytest.mark.parametrize("name", ["SUBLET_SUMMON", "SUBLET_ALLOW_EVICTION", "SUBLET_ALLOW_UNVERIFIED_TLS"])
def test_a_switch_that_is_neither_1_nor_0_is_refused(monkeypatch, name):
    for text in ("maybe", "true", "no"):
        monkeypatch.setenv(name, text)
        with pytest.raises(Invalid, match=f"{name}='{text}': use 1 \\(yes\\) or 0 \\(no\\)"):
            Settings.read()


def test_a_task_may_declare_a_debounce_and_each_submit_gives_the_key():
    own = App()
    task = own.task(name="t", debounce=30)(lambda: None)
    assert task.options(key="k")._rules == "debounce=30000 key=k"
    assert task._rules == "debounce=30000"
    with pytest.raises(Invalid, match="at_most 1 s: use at least the debounce, 30 s"):
        task.options(at_most=1)


async def test_a_submit_of_such_a_task_without_a_key_is_refused(store):
    own = App()

    @own.task(debounce=30)
    async def reindex() -> None: ...

    with pytest.raises(
        Invalid, match=r"rule debounce=30000: give the key that it is for; refused: job .* of task reindex"
    ):
        await store.submit([reindex.job()])
    (first,) = await store.submit([reindex.options(key="k").job()])
    (again,) = await store.submit([reindex.options(key="k").job()])
    assert (first.created, first.replaced) == (True, False)
    assert (again.id, again.created, again.replaced) == (first.id, False, True)
