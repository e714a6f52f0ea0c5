"""The commands of docs/guides/command-line.md print what the page shows, and its numbers are those of the code."""

import pytest

from sublet.cli.jobs import ids, job_view, purge
from sublet.operations import id_search
from tests.support.pages import blocks, check, page_environment, run, steps
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "command-line.md").read_text()


@pytest.mark.real_server
def test_the_commands_of_the_page_work(tmp_path, place, raw):
    tutorial = (ROOT / "docs" / "tutorial" / "first-task.md").read_text()
    for name, text in blocks("python", tutorial):
        (tmp_path / name).write_text(text)
    commands = [*steps(*(text for _, text in blocks("console", PAGE)))]
    answers = run(commands, tmp_path, page_environment(tmp_path, place))
    for step, answer in zip(commands, answers, strict=True):
        check(step, *answer)


@pytest.mark.parametrize(
    "words",
    [
        f"the last {ids.SURE} characters",
        f"must have {ids.SURE}\ncharacters",
        f"shorter than {ids.SHORTEST} characters",
        f"the last {id_search.COMPARED:,} jobs of each state and queue are compared, in up to {id_search.STRUCTURES:,} states",
        f"more than {job_view.SHORT} characters",
        f"{purge.BATCH} at a time",
    ],
)
def test_the_numbers_of_the_page_are_those_of_the_code(words):
    assert words in PAGE
