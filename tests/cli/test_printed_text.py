"""Every command prints stored text without control characters."""

import json
import re
import time

import pytest
import redis

from sublet.cli.commands import COMMANDS
from sublet.cli.output import clean, escaped
from sublet.protocol import keys
from tests.cli.test_cli import on_a_terminal
from tests.project.sources import modules

pytest_plugins = ["tests.support.command_line"]

EVIL = "evil\x1b]0;t\x07\x1b[8m\x9b31m\u202e\u2066\u200f\x7f\r\nnext"
TASKS = f"""
from sublet import App, Context

EVIL = {EVIL!r}
app = App()

@app.task(queue="mail", max_attempts=1)
async def fail(ctx: Context, words: str) -> None:
    ctx.log(words)
    await ctx.emit(words)
    await ctx.emit({{words: [words]}})
    ctx.progress(0.5, stage=words)
    ctx.checkpoint(words)
    raise ValueError(words)

@app.task(queue="mail")
async def echo(words: str) -> str:
    return words

async def described(words: str) -> None:
    pass

described.__doc__ = EVIL
app.task(queue="mail")(described)
"""
OURS = re.compile(r"\x1b\[(0|1|2|3[1236])m")

PRINTS = {
    "submit": [
        ["submit", "echo", "--queue", "mail", "--id", "0-done", "--wait", "20s", json.dumps({"words": EVIL})]
    ],
    "get": [["get", "0-failed"], ["get", "0-failed", "--detail"], ["get", "0-done", "--detail"]],
    "list": [["list", "--state", "dead"]],
    "queues": [["queues"]],
    "stats": [["stats"]],
    "events": [["events", "--after", "0", "--for", "300ms"]],
    "stream": [["stream", "0-failed"], ["stream", "0-failed", "--json"]],
    "cancel": [["cancel", "0-failed"]],
    "retry": [["retry", "0-done"]],
    "workflow": [["workflow", "0-flow"]],
    "signal": [["signal", "0-failed", "approval"]],
    "promote": [["promote", "0-failed"]],
    "reschedule": [["reschedule", "0-failed", "--in", "5s"]],
    "erase": [["erase", "0-failed"]],
    "audit": [["audit"]],
    "pause": [["pause", "mail"]],
    "resume": [["resume", "mail"]],
    "configure": [["configure", "mail", "--max-jobs", "1000"]],
    "groups list": [["groups", "list", "mail"]],
    "groups set": [["groups", "set", "mail", "acme", "--share", "2"]],
    "schedules list": [["schedules"]],
    "schedules show": [["schedules", "show", "s"]],
    "schedules add": [["schedules", "add", "s2", "echo", json.dumps({"words": EVIL}), "--every", "1h"]],
    "schedules pause": [["schedules", "pause", "s"]],
    "schedules resume": [["schedules", "resume", "s"]],
    "schedules run": [["schedules", "run", "s"]],
    "schedules remove": [["schedules", "remove", "s2"]],
    "schedules sync": [["schedules", "sync", "evil:app"]],
    "tick": [["tick"]],
    "work": [["work", "evil:app", "--drain"]],
    "workers list": [["workers"]],
    "workers drain": [["workers", "drain", "w"]],
    "tasks": [["tasks"]],
    "pools list": [["pools"]],
    "pools show": [["pools", "show", "p"]],
    "pools set": [["pools", "set", "p", "--max", "5"]],
    "pools remove": [["pools", "remove", "p2"]],
    "scale": [["scale"]],
    "purge": [["purge", "mail", "--yes"]],
    "doctor": [["doctor"], ["doctor", "--repair"]],
}
"""Command lines of every command that prints text of a namespace."""
LINES = [(name, words) for name, lines in PRINTS.items() for words in lines]
SHOWS = {"submit", "get", "list", "workflow", "stats", "schedules show", "work", "workers list", "tasks", "pools list",
         "pools show", "doctor"}  # fmt: skip
"""Those whose output contains the stored text."""
NO_STORED_TEXT = {"serve", "acl", "scripts", "drop", "dev", "init", "conformance", "demo", "test", "simulate", "chaos", "version",
                  "schedules", "workers", "pools", "groups"}  # fmt: skip


@pytest.fixture
def evil(shell):
    """A namespace with such text wherever a program may leave it."""
    (shell.folder / "evil.py").write_text(TASKS)
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    words = json.dumps({"words": EVIL})
    for name, job_id in (("fail", "0-failed"), ("echo", "0-done")):
        shell.ok("submit", name, words, "--queue", "mail", "--id", job_id, "--max-attempts", "1")
    shell.ok("work", "evil:app", "--drain")
    for name in ("p", "p2"):
        shell.ok("pools", "set", name, "--queues", "mail", "--invoker", "none")
    shell.ok("schedules", "add", "s", "echo", words, "--every", "1h")
    shell.ok("submit", "fail", words, "--queue", "mail", "--max-attempts", "1")
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"]) as raw:
        now = int(1000 * time.time())
        raw.hset(keys.pool(base, "p"), mapping={"failed": 1, "failed_at": now, "reason": EVIL, "ready": EVIL})
        raw.zadd(keys.workers(base), {"w": now})
        about = json.dumps({"host": EVIL, "platform": EVIL, "pid": 3, "version": EVIL, "queues": [EVIL]})
        raw.hset(keys.worker(base, "w"), mapping={"life": "l", "about": about, "enlisted_at": now})
        raw.hset(keys.queues(base), mapping={EVIL: ""})
        raw.hset(keys.backlog(base), mapping={f"{EVIL} jobs": 3})
        raw.rpush(keys.queue(base, "wrong"), EVIL)
        raw.hset(keys.workflow(base, "0-flow"), mapping={"created_at": now, "state": "sealed"})
        raw.zadd(keys.members(base, "0-flow"), {"0-failed": 2})
        raw.hset(base, mapping={"maintenance": f"{now} {EVIL}"})
        raw.zadd(keys.queue(base, EVIL), {EVIL: 1})
        yield shell, raw, base


def remainders(text):
    return sorted({c for c in OURS.sub("", text) if c != "\n" and not c.isprintable()})


def test_a_command_prints_stored_text_without_control_characters(evil):
    shell, _, _ = evil
    for name, words in LINES:
        done = shell.run(*words)
        output = done.stdout + done.stderr
        assert "a bug in Sublet" not in output
        assert [c for c in output if c != "\n" and not c.isprintable()] == [], words
        if words != ["stream", "0-failed"]:  # it prints text as it is, with its line ends
            assert not [line for line in output.splitlines() if line.startswith("next")], words
        if name in SHOWS:
            assert "[8m" in output, (words, output)


def test_json_escapes_the_stored_text_and_keeps_it(evil):
    shell, _, _ = evil
    for name, words in LINES:
        done = shell.run(*words, "--json")
        output = done.stdout + done.stderr
        assert [c for c in output if c != "\n" and not c.isprintable()] == [], words
        texts = [text for line in done.stdout.splitlines() for text in strings(json.loads(line))]
        if name in SHOWS:
            assert any(EVIL.partition("\r")[0] in text for text in texts) or name == "doctor", (words, output)


def strings(value):
    if isinstance(value, str):
        yield value
    for one in (
        value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else ()
    ):
        yield from strings(one)


def test_a_terminal_gets_the_commands_colours_and_nothing_else(evil):
    shell, _, _ = evil
    for words in (["get", "0-failed", "--detail"], ["list"], ["stats"], ["workers"]):
        shown = on_a_terminal(shell, *words).replace("\r\n", "\n")
        assert "\x1b[" in shown
        assert remainders(shown) == [], words
        assert "\x1b[8m" not in shown


def test_a_bug_report_with_debug_is_cleaned(evil):
    shell, raw, base = evil
    raw.delete(keys.pools(base))
    raw.hset(keys.pools(base), EVIL, EVIL)
    for words in (["pools", "--debug"], ["get", f"0-{EVIL}", "--debug"], ["get", f"0-{EVIL}", "--json"]):
        done = shell.run(*words)
        output = done.stdout + done.stderr
        assert [c for c in output if c != "\n" and not c.isprintable()] == [], words


def test_every_command_is_in_one_of_the_lists():
    known = {one.name for command in COMMANDS.values() for one in (command, *command.verbs)}
    assert known == {*PRINTS} | NO_STORED_TEXT
    assert not {*PRINTS} & NO_STORED_TEXT


def test_only_put_writes_to_a_terminal():
    writes = re.compile(r"\bprint\(|print_exc\(|\b(std(out|err)|_?stream)\)?\.write\(")
    found = {
        module: writes.findall(path.read_text())
        for module, path in modules().items()
        if module.startswith("sublet.cli.")
    }
    assert {module: len(calls) for module, calls in found.items() if calls} == {"sublet.cli.output": 2}


def test_text_is_cleaned_and_json_escaped():
    assert clean(EVIL) == "evil ]0;t  [8m 31m      next"
    assert escaped(json.dumps({"a": EVIL + "é\ud800\U000e0001"}, ensure_ascii=False)).isprintable()
    assert json.loads(escaped(json.dumps(EVIL, ensure_ascii=False))) == EVIL
    assert escaped(json.dumps([1, 2], indent=2)) == json.dumps([1, 2], indent=2)
