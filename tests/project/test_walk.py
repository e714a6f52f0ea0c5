"""How many files a reader opens to follow one request, and the page that shows them (see `tests.support.walk`)."""

import pytest

from tests.support.walk import PAGE, both, http_walk, page, plain, submit_walk

pytestmark = pytest.mark.real_server


@pytest.mark.parametrize(
    ("settings_of", "files", "moves"),
    [(plain, 7, 14), (lambda settings: settings, 8, 16)],
    ids=["plain", "guarded"],
)
async def test_a_submit_passes_through_few_files(place, settings_of, files, moves):
    """The memory guard adds `submission/admission.py`."""
    walk = await submit_walk(settings_of(place.settings))
    assert len(walk.files) <= files, walk
    assert walk.moves <= moves, walk


async def test_a_submit_over_http_passes_through_few_files(place):
    walk = await http_walk(plain(place.settings))
    assert len(walk.files) <= 14, walk


async def test_the_page_shows_the_current_walks(place):
    """`.venv/bin/python -m tests.support.walk --write` updates the page."""
    assert PAGE.read_text("utf-8") == page(await both(plain(place.settings)))
