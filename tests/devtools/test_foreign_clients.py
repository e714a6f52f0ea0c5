"""The clients in other languages keep every rule of the protocol, and run each other's jobs."""

import asyncio
import os
import shutil
import subprocess

import pytest

from sublet.connection.settings import Settings
from sublet.devtools.conformance.rules import CORE
from sublet.devtools.conformance.run import examine
from tests.support.npm import packages
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def sh():
    """The command line of the shell client."""
    if not shutil.which("redis-cli"):
        pytest.skip("no redis-cli on PATH: worker.sh needs it")
    return ["bash", str(EXAMPLES / "worker.sh")]


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """The command line of the Node client, with the npm package `redis`."""
    folder = tmp_path_factory.mktemp("node")
    installed = packages(folder, "redis")
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(installed)
    shutil.copy(EXAMPLES / "worker.mjs", folder)
    return ["node", str(folder / "worker.mjs")]


@pytest.fixture(params=["sh", "node"])
def client(request, monkeypatch):
    monkeypatch.setenv("SUBLET_LUA", str(ROOT / "lua"))
    return request.getfixturevalue(request.param)


@pytest.fixture
def settings(new_server, client):
    """The shell client uses Redis, the Node client Valkey."""
    return Settings(
        redis_url=new_server(
            "redis" if client[0] == "bash" and shutil.which("redis-server") else "valkey"
        ).url
    )


def test_a_client_in_another_language_keeps_every_rule(client, settings):
    verdicts = asyncio.run(examine(client, settings))
    assert {verdict.rule.name: verdict.seen for verdict in verdicts if not verdict.kept} == {}
    assert len(verdicts) == len(CORE)


@pytest.mark.parametrize("words", [[], ["help"], ["submit"]])
def test_a_client_with_wrong_arguments_prints_its_usage(client, words):
    environment = {**os.environ, "SUBLET_REDIS_URL": "redis://127.0.0.1:1"}
    done = subprocess.run([*client, *words], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "submit TASK JSON" in done.stderr


def test_the_clients_are_short():
    assert len((EXAMPLES / "worker.sh").read_text().splitlines()) < 80
    assert len((EXAMPLES / "worker.mjs").read_text().splitlines()) <= 165
