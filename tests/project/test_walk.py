"""How many files a reader opens to follow one request (see `tests.support.walk`)."""

import pytest

from tests.support.walk import http_walk, plain, submit_walk

pytestmark = pytest.mark.real_server


async def test_a_submit_passes_through_few_files(place):
    walk = await submit_walk(plain(place.settings))
    assert len(walk.files) <= 14, walk
    assert walk.moves <= 35, walk


async def test_a_submit_over_http_passes_through_few_files(place):
    walk = await http_walk(plain(place.settings))
    assert len(walk.files) <= 23, walk
