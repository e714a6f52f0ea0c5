"""Erase jobs with a client: also what a backend of large payloads has of them."""

from dataclasses import replace

import pytest

from sublet import Client, Invalid, NotFound, SyncClient, WrongState
from sublet.large_payloads import Files
from sublet.model import Completion
from sublet.protocol import verbs

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]
BIG = "x" * 300_000


@pytest.fixture
def large(settings, tmp_path):
    return replace(settings, large_payloads=Files(tmp_path / "large"))


@pytest.fixture
async def client(large):
    async with Client(large) as client:
        yield client


def objects(tmp_path):
    return [path for path in (tmp_path / "large").rglob("*") if path.is_file()]


async def test_a_large_payload_is_erased_with_its_job(client, tmp_path):
    job = await client.submit("t", {"text": BIG})
    other = await client.submit("t", {"text": BIG})
    await client.cancel(job.id)
    assert len(objects(tmp_path)) == 2
    assert await client.erase(job.id) == "erased"
    (left,) = objects(tmp_path)
    assert left.name.endswith(other.id)


async def test_a_large_result_is_erased_with_its_job(client, tmp_path):
    store = client.store
    job = await client.submit("t", {})
    (lease,) = (await store.claim(worker="w", queues=["default"], n=1, lease=30)).leases
    reference = store.settings.storage.put(job.id, b"[1]")
    await store.run(verbs.complete(store.operations.base_of_job(job.id), [Completion(lease, reference)]))
    assert len(objects(tmp_path)) == 1
    await client.erase(job.id)
    assert objects(tmp_path) == []


async def test_without_the_backend_nothing_is_erased(client, settings, tmp_path):
    job = await client.submit("t", {"text": BIG})
    await client.cancel(job.id)
    async with Client(settings) as other:
        with pytest.raises(Invalid, match="large_payloads"):
            await other.erase(job.id)
    assert (await client.get(job.id)).state == "cancelled"
    assert len(objects(tmp_path)) == 1


async def test_an_erase_is_refused_for_an_unfinished_job_and_found_once(client):
    job = await client.submit("t", {})
    with pytest.raises(WrongState, match=r"is queued: erase takes .* cancel it first"):
        await client.erase(job.id)
    await client.cancel(job.id)
    assert await client.erase(job.id) == "erased"
    with pytest.raises(NotFound, match="or was deleted"):
        await client.erase(job.id)


def test_the_sync_client_erases_too(large, tmp_path):
    with SyncClient(large) as client:
        job = client.submit("t", {"text": BIG})
        client.cancel(job.id)
        assert client.erase(job.id) == "erased"
        assert objects(tmp_path) == []
