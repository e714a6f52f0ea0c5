"""Progress bars of long commands: on a terminal only, with the number of all, and gone at the end."""

import io
import re

import pytest

from sublet.cli.progress import ProgressBar
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from tests.cli.test_cli import on_a_terminal

pytest_plugins = ["tests.support.command_line"]


@pytest.fixture
def filled(shell):
    """A shell on a namespace with 600 queued jobs."""
    with SyncClient(Settings.read(shell.env["SUBLET_REDIS_URL"], shell.env["SUBLET_NAMESPACE"])) as client:
        make = client.store.operations.submission
        client.submit_all([make("add", b'{"a":1}', "default", "") for _ in range(600)])
    return shell


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("doctor", "1,200 of 1,200 items checked"),
        ("doctor --repair", "1,200 of 1,200 items checked, 0 to repair"),
        ("purge default --yes", "600 of 600 jobs cancelled"),
        ("purge default --scheduled --yes", "600 of 600 jobs cancelled"),
    ],
)
def test_a_long_command_shows_its_progress(filled, command, last):
    shown = on_a_terminal(filled, *command.split(), codes=(0, 1))  # 1: this server does not keep its data
    drawn = [line for line in shown.split("\r\x1b[K") if " of " in line and "█" in line]
    assert re.fullmatch(f"█{{24}} {last}", drawn[-1])
    assert drawn[-1] + "\r\x1b[K" in shown, "it is cleared"


@pytest.mark.parametrize("command", ["doctor", "doctor --repair", "purge default --yes"])
def test_without_a_terminal_no_progress_is_shown(filled, command):
    done = filled.run(*command.split())
    assert "█" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_counts_are_shown_at_most_ten_times_a_second_and_the_last_one_always(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("sublet.cli.progress.time.monotonic", lambda: clock[0])
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar() as bar:
        for done in range(1001):
            bar.count(done, 1000, "jobs")
            clock[0] += 0.001
    lines = terminal.getvalue().split("\r\x1b[K")[1:-1]
    assert [line[24:] for line in lines] == [f" {n:,} of 1,000 jobs" for n in range(0, 1001, 100)]
    assert [line.count("█") for line in lines] == [24 * n // 10 for n in range(11)]
    bar.count(1500, 1000, "jobs")
    assert terminal.getvalue().endswith(" 1,500 of 1,500 jobs"), "the total is an estimate"
