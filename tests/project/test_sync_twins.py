"""The sync client, its handles and its schedules are generated from the async ones (see `tests.support.sync_twins`)."""

import pytest

from tests.support.sync_twins import FOLDER, TWINS, twin


@pytest.mark.parametrize("description", TWINS)
def test_a_sync_twin_is_up_to_date(description):
    assert (FOLDER / TWINS[description]).read_bytes() == twin(description).encode(), (
        "run: .venv/bin/python -m tests.support.sync_twins --write"
    )


def test_every_async_module_of_the_client_has_a_twin():
    only_async = {"connections.py"}  # clients of event loops
    assert {path.name for path in FOLDER.glob("*.py") if "async def" in path.read_text()} == {
        *TWINS
    } | only_async
