"""The bundle for clients in other languages: `sublet scripts --json --text`, and its golden exchanges as bytes."""

import asyncio
import hashlib
import json
import re

import pytest
import redis

from sublet.devtools.conformance.resp import read_reply
from sublet.protocol.bundle import bundle
from sublet.protocol.scripts import NAMES, script
from tests.conftest import REAL
from tests.support import golden
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]
GOLDEN = {exchange["name"]: exchange for exchange in bundle()["golden"]}
BASE = "{sublet:0}"
ELAPSE = (ROOT / "tests" / "support" / "elapse.lua").read_text()


def test_the_file_has_the_exchanges_of_the_pages():
    assert golden.FILE.read_text() == golden.text(), "run python -m tests.support.golden --write"


def test_the_command_prints_the_bundle_without_a_server(shell):
    away = ("--redis-url", "unix:///nowhere/redis.sock")
    printed = shell.json("scripts", "--text", *away)
    assert printed == json.loads(json.dumps(bundle()))
    assert (printed["layout"], list(printed["verbs"])) == (1, list(NAMES))
    for name, verb in printed["verbs"].items():
        assert hashlib.sha1(verb["text"].encode()).hexdigest() == verb["sha"] == script(name).sha
    assert "--json" in shell.no(2, "scripts", "--text", *away)
    assert "--load" in shell.no(2, "scripts", "--text", "--load", "--json", *away)


def test_every_verb_has_an_exchange_and_its_present_sha():
    for name in NAMES:
        assert any(script(name).sha in step.get("send", "") for step in GOLDEN[name]["steps"]), name
    assert not any("$" in step["send"].split("\r\n")[4] for step in GOLDEN["claim"]["steps"])


def test_the_words_that_vary_have_different_texts():
    for exchange in GOLDEN.values():
        values = exchange["values"].values()
        assert len(set(values)) == len(values), exchange["name"]
        assert not re.search(r"<\w+>", json.dumps(exchange["steps"]))


def lineage(name):
    chain = [GOLDEN[name]]
    while chain[0]["after"]:
        chain.insert(0, GOLDEN[chain[0]["after"]])
    return chain


class Player:
    """Sends the bytes of exchanges over two sockets, and compares those of the replies."""

    def __init__(self, server, sockets):
        self.server, self.sockets, self.seen = server, sockets, {}

    async def play(self, exchange):
        values = {text: name for name, text in exchange["values"].items()}
        for step in exchange["steps"]:
            if "later" in step:
                self.server.eval(ELAPSE, 1, BASE, step["later"] * 1000)
                continue
            reader, writer = self.sockets[step.get("on", "client")]
            if "send" in step:
                writer.write(self.mine(step["send"], values).encode())
            reply, _ = await asyncio.wait_for(read_reply(reader), 10)
            self.compare(reply.decode(), step["reply"], values)

    def mine(self, send, values):
        for text, name in values.items():
            if name in self.seen:
                assert len(self.seen[name]) == len(text)
                send = send.replace(text, self.seen[name])
        return send

    def compare(self, reply, expected, values):
        pattern = re.escape(expected)
        for text, name in values.items():
            known = re.escape(self.seen[name]) if name in self.seen else rf"(?P<{name}>[0-9a-zA-Z_.-]+)"
            first, *more = pattern.split(re.escape(text))
            pattern = first + "".join(
                (known if i == 0 or name in self.seen else f"(?P={name})") + part
                for i, part in enumerate(more)
            )
        found = re.fullmatch(pattern, reply)
        assert found, f"reply:\n{reply}\nexpected:\n{expected}"
        self.seen |= found.groupdict()


@pytest.fixture(scope="module", params=REAL)
def server(request, new_server):
    """A server of its own: the exchanges are those of the namespace `sublet`."""
    with redis.Redis.from_url(new_server(request.param).url) as client:
        for name in NAMES:
            client.script_load(script(name).text)
        yield client


@pytest.mark.parametrize("name", GOLDEN)
async def test_an_exchange_has_these_bytes_on_a_real_server(server, name):
    server.flushall()
    where = server.connection_pool.connection_kwargs
    sockets = {
        who: await asyncio.open_unix_connection(where["path"])
        if "path" in where
        else await asyncio.open_connection(where["host"], where["port"])
        for who in ("client", "waiter")
    }
    try:
        player = Player(server, sockets)
        for exchange in lineage(name):
            await player.play(exchange)
    finally:
        for _, writer in sockets.values():
            writer.close()
