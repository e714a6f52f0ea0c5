"""Each help page fits a small terminal, and is available before anything is installed."""

import importlib
import re
import subprocess
import sys

import pytest

from sublet.cli import main
from sublet.cli.commands import COMMANDS, OTHER_NAMES
from sublet.errors import Invalid
from tests.support.paths import ROOT

PARSED = {
    one.name: one
    for command in COMMANDS.values()
    if not command.passes_arguments
    for one in (command, *command.verbs)
}
"""Every command and verb whose arguments are parsed."""
PAGES = [[], ["--help"], *([*name.split(), "--help"] for name in (*PARSED, "test"))]


@pytest.mark.parametrize("words", PAGES, ids=lambda words: " ".join(words) or "alone")
def test_each_page_fits_a_screen(words, capsys):
    assert main.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_every_command_is_on_the_first_page_and_every_option_on_its_own(capsys):
    main.run(["help"])
    page = capsys.readouterr().out
    assert all(name in page for name in COMMANDS)
    main.run(["help", "submit"])
    page = capsys.readouterr().out
    flags = "wait key window delay at queue priority max-attempts timeout retention keep-payload durability id app redis-url namespace json"
    assert all(f"--{flag} " in page for flag in flags.split())


def test_each_group_adds_arguments_only_to_its_own_commands():
    groups = {name: one.handler.partition(".")[0] for name, one in PARSED.items()}
    for group in sorted({*groups.values()} - {""}):
        arguments = importlib.import_module(f"sublet.cli.{group}.arguments").ARGUMENTS
        assert {name for name in arguments if groups.get(name) != group} == set()


@pytest.mark.parametrize("name", PARSED)
def test_each_option_begins_a_word_of_its_page(name, capsys):
    main.run([*name.split(), "--help"])
    page = capsys.readouterr().out
    flags = PARSED[name].parser().flags()
    assert not [flag for flag in flags if not re.search(rf"(?<!\S){flag}(?![\w-])", page)]


def test_the_names_of_other_queues_lead_to_commands():
    assert {*OTHER_NAMES.values()} <= {*COMMANDS}
    assert not {*OTHER_NAMES} & {*COMMANDS}


@pytest.mark.parametrize("name", PARSED)
def test_each_command_that_takes_an_app_takes_it_as_an_option(name):
    parser = PARSED[name].parser()
    if any(action.metavar == "MODULE:APP" for action in parser._actions):
        assert "--app" in parser.flags()


@pytest.mark.parametrize("name", ["work", "dev", "schedules sync"])
def test_an_app_is_an_argument_or_an_option_or_in_the_environment(name, monkeypatch):
    monkeypatch.setenv("SUBLET_APP", "here:app")
    read = PARSED[name].read
    several = name == "work"
    assert read([]).app == (("here:app",) if several else "here:app")
    for words in (["a:app"], ["--app", "a:app"], ["a:app", "--app", "a:app"]):
        assert read(words).app == (("a:app",) if several else "a:app")
    if several:
        assert {*read(["a:app", "--app", "b:app"]).app} == {"a:app", "b:app"}
        return
    with pytest.raises(Invalid, match="MODULE:APP is given twice, as b:app and a:app: leave one out; see"):
        read(["a:app", "--app", "b:app"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tick", ["schedules", "summon"]),
        ("dev", ["a server of its own", "--redis-url", "SUBLET_REDIS_URL is\nignored"]),
    ],
)
def test_a_page_contains_the_essential_facts(name, words, capsys):
    main.run([name, "--help"])
    page = capsys.readouterr().out
    assert all(word in page for word in words)


def test_the_command_without_arguments_names_three_next_steps(capsys):
    main.run([])
    steps = [
        line.split()[1]
        for line in capsys.readouterr().out.replace("python3 -m jobs", "sublet").splitlines()
        if line[:2] == "  "
    ]
    assert steps == ["demo", "work", "submit"]


@pytest.mark.parametrize("words", PAGES[:3], ids=lambda words: " ".join(words) or "alone")
def test_help_needs_nothing_but_python(words):
    """-S: no site-packages, as in a fresh checkout. Help must not set up anything either."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "jobs", *words], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_short_commands_do_not_import_unused_modules():
    """Start-up is most of the time of `submit` and `tick`: a fifth of a second without these modules."""
    program = (
        "import sys, sublet.cli.jobs.submit, sublet.cli.schedules.tick, sublet.cli.jobs.query\n"
        "from sublet.cli.commands import COMMANDS\n"
        "COMMANDS['submit'].read(['t'])\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30
    ).stdout.split()
    assert "sublet.client.sync_client" in loaded
    assert "sublet.cli.jobs.arguments" in loaded
    assert "sublet.cli.workers.arguments" not in loaded
    assert not {"sublet.worker.worker", "sublet.app", "sublet.devtools.demo", "rich", "uvloop"} & set(loaded)
    assert not {
        "sublet.operations.history",
        "sublet.operations.orders.bulk",
        "sublet.operations.orders.audit",
    } & set(loaded)


def test_a_submit_does_not_import_what_other_commands_need():
    program = "import sys, sublet.cli.jobs.submit\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    unused = {"operations.groups", "operations.statistics", "operations.history", "protocol.flow"}
    assert "sublet.client.sync_client" in loaded.stdout.split()
    assert not {f"sublet.{name}" for name in unused} & set(loaded.stdout.split())


def test_options_may_stand_anywhere():
    for words in (
        ["--namespace", "n", "submit", "t", "{}", "--json", "--wait"],
        ["submit", "--json", "--wait", "t", "{}", "--namespace=n"],
        ["--json", "submit", "t", "--wait", "30s", "{}", "--namespace", "n"],
    ):
        name, rest = main.split(words)
        args = COMMANDS[name].read(rest)
        assert (args.task, args.payload, args.wait, args.json, args.namespace) == ("t", "{}", 30.0, True, "n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250ms", 0.25),
        ("50s", 50),
        ("5m", 300),
        ("1h", 3600),
        ("2d", 172_800),
        ("7", 7),
        ("1.5", 1.5),
        ("0", 0),
    ],
)
def test_durations(text, value):
    assert COMMANDS["submit"].read(["t", "--delay", text]).delay == value


@pytest.mark.parametrize("text", ["-5s", "-1", "soon", "5 min", "1e9", "", "1w", "nan", "inf"])
def test_invalid_durations(text):
    with pytest.raises(Invalid, match=r"write 250ms, 50s, 5m, 1h, 2d or plain seconds; see .* submit --help"):
        COMMANDS["submit"].read(["t", "--delay", text])
