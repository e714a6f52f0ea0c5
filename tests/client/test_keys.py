"""Deduplication keys of any text: plain ones are stored as they are, others as a hash; equal texts share a job."""

import hashlib
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublet import App
from sublet.client.client import Client
from sublet.options import Options
from sublet.protocol.keys import HASHED, stored_key
from tests.support.http_server import ask, serving

pytest_plugins = ["tests.support.http_settings", "tests.support.command_line"]
URL = "https://shop.example/größe?q=a b"
STORED = HASHED + hashlib.sha256(URL.encode()).hexdigest()
TEXTS = st.one_of(
    st.text(min_size=1), st.text("ab ä", min_size=100, max_size=200), st.from_regex(f"{HASHED}[ab]{{0,64}}")
)


@given(one=TEXTS, other=TEXTS)
@example(one=URL, other=STORED)
@example(one="\ud800", other="\udcff")
def test_two_texts_share_a_key_only_if_equal(one, other):
    for text in (one, other):
        assert re.fullmatch("[!-~]{1,128}", stored_key(text))
        assert stored_key(text) == stored_key("".join(list(text)))
        plain = re.fullmatch("[!-~]{1,128}", text) and not text.startswith(HASHED)
        assert (stored_key(text) == text) == bool(plain)
    assert (stored_key(one) == stored_key(other)) == (one == other)


def test_a_key_that_is_not_plain_is_hashed():
    assert Options(key="a.png").rules() == "key=a.png"
    assert Options(key="k" * 128).rules() == "key=" + "k" * 128
    assert Options(key=URL, window=1).rules() == f"key={STORED} window=1000"
    for text in ("k" * 129, "two words", "ä", "\n", "x" * 1_000_000, STORED):
        assert Options(key=text).rules() == f"key={HASHED}{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.mark.real_server
async def test_equal_texts_return_one_job_from_python_http_and_the_command(place, store, raw, shell):
    shell.env |= {
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    app = App(settings=place.settings)

    @app.task
    async def f() -> None: ...

    first = await f.options(key=URL).submit()
    assert f.options(key=URL).submit_sync().id == first.id
    assert (await Client(store=store).submit("f", {}, Options(key=URL))).id == first.id
    async with serving(place.settings) as url:
        answer = await ask(url, "POST", "/jobs", {"task": "f", "key": URL})
        assert (answer.status, json.loads(answer.body)["id"]) == (200, first.id)
        batch = {
            "jobs": [{"task": "f", "key": URL}, {"task": "f", "key": STORED}, {"task": "f", "key": "k" * 200}]
        }
        same, *others = json.loads((await ask(url, "POST", "/jobs/batch", batch)).body)["jobs"]
        assert (same["id"], same["status"]) == (first.id, 200)
        assert [one["status"] for one in others] == [201, 201]
        for bad in ("", 7, "\ud800"):
            assert (await ask(url, "POST", "/jobs", {"task": "f", "key": bad})).status in (400, 422), bad
        shown = json.loads((await ask(url, "GET", f"/jobs/{first.id}")).body)
        assert shown["key"] == STORED
    assert shell.ok("submit", "f", "--key", URL, said=".* holds this key\n") == first.id
    refusal = shell.no(2, "submit", "f", "--key", "")
    assert "the key is empty: use 1 character or more, or leave --key out" in refusal
    assert shell.ok("submit", "f", "--key", "größe") != first.id
    await app.client.aclose()
    app.sync.close()
