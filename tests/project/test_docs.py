"""The documents agree with the code: their snippets run, their commands work, and all named files exist."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import blocks, check, page_environment, run, steps
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
DOCS = [*TOP, ROOT / "lua" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def home(tmp_path, place):
    """A folder with the files of the first tutorial."""
    for name, text in blocks("python", (ROOT / "docs" / "tutorial" / "first-task.md").read_text()):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def env(home, place):
    return page_environment(home, place)


@pytest.mark.real_server
def test_the_commands_of_the_workers_page_work(home, env, raw):
    """Its commands run in their order: the first worker runs until the last command drains it."""
    page = (ROOT / "docs" / "guides" / "workers.md").read_text()
    lives, *others = [
        step.command.partition("#")[0] for _, console in blocks("console", page) for step in steps(console)
    ]
    worker = subprocess.Popen(lives.split(), cwd=home, env=env, stdout=subprocess.PIPE, text=True)
    try:
        name = json.loads(worker.stdout.readline())["detail"].split()[0]
        for command in others:
            words = command.replace("NAME", name).replace("50s", "2s").replace("1000", "1").split()
            running = subprocess.Popen(words, cwd=home, env=env, stdout=subprocess.DEVNULL)
            for _ in range(60 if "--max-jobs" in words else 0):  # two workers wait: either may get a job
                if running.poll() is None:
                    subprocess.run(
                        ["sublet", "submit", "word_count", '{"text": "a"}'],
                        cwd=home,
                        env=env,
                        check=True,
                        timeout=60,
                    )
            assert running.wait(60) == 0, command
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.real_server
def test_the_page_of_arguments_works_as_written(home, env, raw):
    page = (ROOT / "docs" / "guides" / "arguments.md").read_text()
    for name, text in blocks("python", page):
        (home / name).write_text(text)
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)


@pytest.mark.real_server
def test_the_page_of_queues_works_as_written(home, env, raw):
    page = (ROOT / "docs" / "guides" / "queues.md").read_text()
    for _, text in blocks("python report.py", page):
        (home / "report.py").write_text(text)
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    assert commands
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)


@pytest.mark.real_server
@pytest.mark.parametrize("name", ["flow-control.md", "hangs.md"])
def test_a_page_with_its_own_tasks_works_as_written(home, env, raw, name):
    page = (ROOT / "docs" / "guides" / name).read_text()
    for file, text in blocks("python", page):
        (home / file).write_text(text)
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    assert commands
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)


NEIGHBOUR = """
from sublet import App

app = App()


@app.task
async def orders(count: int) -> None: ...


@app.task
async def reindexed(count: int) -> None: ...
"""


@pytest.fixture(params=["an empty namespace", "beside another app"])
def neighbour(request, home, env, raw):
    """In one of two cases, another app has published tasks of similar names."""
    if request.param == "beside another app":
        (home / "neighbour.py").write_text(NEIGHBOUR)
        subprocess.run(
            ["sublet", "work", "neighbour:app", "--drain"], cwd=home, env=env, check=True, timeout=60
        )


@pytest.mark.real_server
def test_the_page_of_debounce_works_as_written(home, env, neighbour):
    page = (ROOT / "docs" / "guides" / "debounce.md").read_text()
    python = env | {"PYTHONPATH": str(ROOT / "jobs")}
    for name, text in blocks("python", page):
        (home / name).write_text(text)
        assert (
            subprocess.run([sys.executable, name], cwd=home, env=python, check=False, timeout=60).returncode
            == 0
        )
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    assert commands
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)


@pytest.mark.real_server
def test_the_page_of_steps_works_as_written(home, env, neighbour):
    page = (ROOT / "docs" / "guides" / "steps.md").read_text()
    for name, text in blocks("python", page):
        (home / name).write_text(text)
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)
    submitted = subprocess.run(
        ["sublet", "submit", "agent", '{"question": "why"}', "--app", "agent:app"],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    subprocess.run(["sublet", "work", "agent:app", "--drain"], cwd=home, env=env, check=True, timeout=60)
    shown = subprocess.run(
        ["sublet", "get", submitted.stdout.strip()],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'result      ["why","the result of search"]' in shown.stdout


@pytest.mark.real_server
@pytest.mark.parametrize("name", ["large-payloads", "streams"])
def test_a_page_with_programs_works_as_written(home, env, raw, name):
    page = (ROOT / "docs" / "guides" / f"{name}.md").read_text()
    for name, text in blocks("python", page):
        (home / name).write_text(text)
    env = env | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}  # python3 has Sublet
    commands = [*steps(*(text for _, text in blocks("console", page)))]
    for step, answer in zip(commands, run(commands, home, env), strict=True):
        check(step, *answer)


@pytest.mark.real_server
def test_a_function_works_for_the_duration_of_its_platform(home, env, raw):
    ((_, text),) = blocks("python", (ROOT / "docs" / "guides" / "workers.md").read_text())
    (home / "function.py").write_text(
        f"from tasks import app\n{text}\nimport asyncio, sys\nasyncio.run(handler(float(sys.argv[1])))\n"
    )
    submit = ["sublet", "submit", "word_count", '{"text": "a b"}', "--id", "mine"]
    subprocess.run(submit, cwd=home, env=env, check=True, timeout=60)
    for seconds in ("2", "30"):  # on a busy machine no child starts in two
        done = subprocess.run(
            [sys.executable, "function.py", seconds],
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        got = subprocess.run(
            ["sublet", "get", "0-mine", "--json"],
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if json.loads(got.stdout)["result"] == 2:
            return
    raise AssertionError(got.stdout)


def test_the_two_commands_are_in_the_readme():
    assert "python3 -m jobs demo" in README
    assert "python3 -m jobs test" in README


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_links_work(path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{target} does not exist"


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_and_commands_exist(path):
    text = path.read_text()
    for name in re.findall(r"`((?:jobs|functions|lua|tests|examples|bench|docs)/[\w./]+\.\w+)`", text):
        assert (ROOT / name).exists(), f"{name} does not exist"
    parser_help = subprocess.run(
        [sys.executable, "-m", "sublet", "--help"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    for command in set(re.findall(r"(?:`|\$ )(?:sublet|python3 -m jobs) ([a-z]+)", text)):
        assert re.search(rf"\b{command}\b", parser_help), f"unknown command {command}"


def test_install_instructions_include_the_command_for_a_checkout():
    """Sublet is not on a package index."""
    files = [
        *DOCS,
        *(path for folder in ("jobs", "functions", "examples") for path in (ROOT / folder).rglob("*.py")),
    ]
    for path in files:
        text = path.read_text()
        for found in re.finditer(r"pip install '?sublet\[(\w+)\]", text):
            assert re.search(
                rf"from a checkout: `?'\.\[{found[1]}\]'", text[found.end() : found.end() + 120]
            ), path


def test_the_page_of_promises_matches_the_readme():
    promise = re.compile(r"^\d\. (\*\*[^*]+\*\*)", re.MULTILINE)
    named = promise.findall((ROOT / "docs" / "explanation" / "promises.md").read_text())
    assert named == promise.findall(README.partition("## Promises")[2])
    assert len(named) == 6


def test_two_clicks_lead_from_the_readme_to_a_nightly_task_over_http_on_kubernetes():
    first = re.findall(r"\]\((docs/[^)#]+)\)", README)
    assert "docs/guides/nightly.md" in first
    assert "(guides/nightly.md)" in (ROOT / "docs" / "index.md").read_text()


def test_the_data_model_is_described_once():
    """The protocol page describes verbs, keys and fields (see test_protocol.py), and `lua/README.md` links to it."""
    text = (ROOT / "lua" / "README.md").read_text()
    assert "](../docs/reference/protocol/reference.md)" in text
    assert "base`:" not in text


# Pages that are read from start to end have at most 1,500 words; a table or a reference may be longer.
LONG = {"reference", "measurements", "protocol"}


@pytest.mark.parametrize(
    "path",
    [path for path in DOCS if path.is_relative_to(ROOT / "docs") and path.parent.name not in LONG],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_page_has_at_most_1500_words(path):
    assert len(path.read_text().split()) <= 1500


def test_the_readme_has_at_most_900_words():
    assert len(README.split()) <= 900
