"""How many files a reader opens to follow one request (see `tests.support.walk`)."""

import pytest

from tests.support.walk import http_walk, plain, submit_walk

pytestmark = pytest.mark.real_server


@pytest.mark.parametrize("settings_of", [lambda settings: settings, plain], ids=["guarded", "plain"])
async def test_a_submit_passes_through_few_files(place, settings_of):
    walk = await submit_walk(settings_of(place.settings))
    assert len(walk.files) <= 8, walk
    assert walk.moves <= 16, walk


async def test_a_submit_over_http_passes_through_few_files(place):
    walk = await http_walk(plain(place.settings))
    assert len(walk.files) <= 18, walk
