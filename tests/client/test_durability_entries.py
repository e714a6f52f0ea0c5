"""Durability at every entry: the HTTP API, an HttpSource, the command line."""

import json
import os
import re
import subprocess
import uuid
from dataclasses import replace

import pytest

from sublet.connection.settings import Settings
from sublet.errors import Invalid, Unconfirmed
from sublet.model import Submission
from sublet.options import Options
from sublet.protocol import keys
from sublet.store.http import HttpSource
from tests.conftest import REAL
from tests.support.command_server import CLIENT, COMMANDS
from tests.support.http_server import ask, serving
from tests.support.replicas import pair

JOB = {"task": "t", "payload": {}}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A primary and its replica, whose stream is cut."""
    with pair(tmp_path_factory.mktemp("pair"), REAL[-1]) as found:
        yield found


@pytest.fixture
def here(both):
    yield replace(both.settings, namespace=uuid.uuid4().hex[:12])
    both.heal()
    assert both.in_step(10_000)


async def test_the_api_answers_unconfirmed_and_a_repeat_is_the_same_job(both, here):
    async with serving(here) as url:
        assert (await ask(url, "POST", "/jobs", JOB | {"durability": "replicated"})).status == 201
        both.cut()
        assert (await ask(url, "POST", "/jobs", JOB)).status == 201
        for path, body in (
            ("/jobs", JOB | {"id": "a", "durability": "replicated"}),
            ("/jobs/batch", {"jobs": [JOB | {"id": "a"}, JOB | {"id": "b", "durability": "replicated"}]}),
        ):
            answer = await ask(url, "POST", path, body)
            assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "unconfirmed", "1")
            assert answer.json()["detail"].startswith(
                "Redis has stored the submit, but only 0 of 1 replicas have it after "
            )
        both.heal()
        answer = await ask(url, "POST", "/jobs", JOB | {"id": "a", "durability": "replicated"})
        assert (answer.status, answer.json()) == (200, {"id": "0-a"})


async def test_a_generated_id_is_reported_and_a_repeat_uses_it(both, here):
    sure = JOB | {"durability": "replicated"}
    async with serving(here) as url:
        both.cut()
        answer = await ask(url, "POST", "/jobs", sure)
        (made,) = re.findall(
            r"send the same submit again, under the same id (0-\w+)$", answer.json()["detail"]
        )
        both.heal()
        again = await ask(url, "POST", "/jobs", sure | {"id": made})
        assert (again.status, again.json()) == (200, {"id": made})
    assert both.primary.zrange(keys.queue(keys.base(here.namespace), "default"), 0, -1) == [made]


async def test_an_unsupported_durability_is_a_problem_of_its_own_and_nothing_is_stored(both, here):
    async with serving(here) as url:
        sure = JOB | {"durability": "fsync"}
        for path, body in (("/jobs", sure), ("/jobs/batch", {"jobs": [JOB, sure]})):
            answer = await ask(url, "POST", path, body)
            assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "not-set-up", "60")
            assert answer.json()["detail"].startswith("durability fsync needs ")
    failed = sublet(here, "submit", "t", "--durability", "fsync", "--json")
    assert (failed.returncode, json.loads(failed.stderr)["error"]) == (3, "UNFIT")
    assert not both.primary.exists(keys.queue(keys.base(here.namespace), "default"))


async def test_a_repeat_may_ask_for_a_higher_durability(here):
    """An Idempotency-Key identifies a job, without its durability."""
    async with serving(here) as url:
        first = await ask(url, "POST", "/jobs", JOB, idempotency_key="once")
        again = await ask(url, "POST", "/jobs", JOB | {"durability": "replicated"}, idempotency_key="once")
        assert (first.status, again.status) == (201, 200)
        assert first.json() == again.json()


async def test_the_api_refuses_an_unknown_durability(here):
    async with serving(here) as url:
        answer = await ask(url, "POST", "/jobs", JOB | {"durability": "disk"})
        assert (answer.status, answer.problem) == (422, "invalid")
        assert answer.places[0] == "#/durability"


async def test_the_servers_setting_is_the_default(both, here):
    async with serving(replace(here, durability="replicated")) as url:
        assert (await ask(url, "POST", "/jobs", JOB)).status == 201
        both.cut()
        assert (await ask(url, "POST", "/jobs", JOB)).problem == "unconfirmed"
        assert (await ask(url, "POST", "/jobs", JOB | {"durability": "none"})).status == 201


async def test_an_http_source_sends_the_durability(both, here):
    async with serving(here) as url:
        source = HttpSource(url)
        both.cut()
        jobs = [Submission(f"0-x{word}", "q", "t", "", b"{}", word) for word in ("", "none")]
        assert [answer.created for answer in await source.submit(jobs)] == [True, True]
        with pytest.raises(Unconfirmed, match="send the same submit again"):
            await source.submit([Submission("0-sure", "q", "t", "", b"{}", "replicated")])
        await source.aclose()


def sublet(settings: Settings, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    own = {
        "SUBLET_REDIS_URL": settings.redis_url,
        "SUBLET_NAMESPACE": settings.namespace,
        "SUBLET_TIMEOUT": "1",
        **env,
    }
    COMMANDS.start()
    command = [*CLIENT, *words]
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=60)


def test_the_command_line_has_the_option_and_prints_the_command_to_repeat(both, here):
    assert sublet(here, "submit", "t", "--durability", "replicated").returncode == 0
    both.cut()
    assert sublet(here, "submit", "t").returncode == 0
    words = ["submit", "t", "--id", "mine", "--json"]
    for more, env in (["--durability", "replicated"], {}), ([], {"SUBLET_DURABILITY": "replicated"}):
        failed = sublet(here, *words, *more, **env)
        assert failed.returncode == 3
        assert "only 0 of 1 replicas have it" in json.loads(failed.stderr)["message"]
        assert json.loads(failed.stderr)["message"].endswith(
            "send the same submit again, under the same id 0-mine (--id 0-mine)"
        )
        assert [json.loads(failed.stderr)[name] for name in ("error", "id")] == ["UNCONFIRMED", "0-mine"]
    assert both.primary.zcard(keys.queue(keys.base(here.namespace), "default")) == 3
    held = sublet(here, "submit", "t", "--key", "k").stdout.strip()
    failed = json.loads(
        sublet(here, "submit", "t", "--key", "k", "--durability", "replicated", "--json").stderr
    )
    assert failed["message"].endswith(
        f"send the same submit again, under its deduplication key's id {held} (--id {held})"
    )
    assert failed["id"] == held
    both.heal()
    done = sublet(here, *words, "--durability", "replicated")
    assert json.loads(done.stdout) == {"id": "0-mine", "created": False}
    wrong = sublet(here, "submit", "t", "--durability", "disk")
    assert (wrong.returncode, "use none, replicated, fsync" in wrong.stderr) == (2, True)


def test_the_default_durability_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SUBLET_DURABILITY", "fsync")
    monkeypatch.setenv("SUBLET_REPLICAS", "2")
    assert (Settings.read().durability, Settings.read().replicas) == ("fsync", 2)
    for seconds in ("nan", "inf", "0.0005", "-1"):
        monkeypatch.setenv("SUBLET_TIMEOUT", seconds)
        with pytest.raises(Invalid, match="SUBLET_TIMEOUT="):
            Settings.read()
    monkeypatch.delenv("SUBLET_TIMEOUT")
    monkeypatch.setenv("SUBLET_DURABILITY", "disk")
    with pytest.raises(Invalid, match="SUBLET_DURABILITY='disk': use none, replicated, fsync"):
        Settings.read()


def test_a_schedule_ignores_the_durability_of_its_task():
    assert Options(durability="replicated").rules() == Options().rules()
