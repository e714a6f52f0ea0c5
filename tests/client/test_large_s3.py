"""S3 as a backend for large payloads, on a real server that speaks its API (moto)."""

import asyncio
import sys
from dataclasses import replace

import pytest

from sublet import Invalid
from sublet.errors import PayloadLost
from sublet.large_payloads import S3
from sublet.large_payloads.storage import PAGE, Storage, backend_at
from sublet.store import orphans
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import large_tasks as tasks

pytest_plugins = ["tests.support.http_settings"]

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")
BIG = "x" * 300_000


@pytest.fixture(scope="module")
def endpoint():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch):
    """An empty bucket; the environment directs boto3, also of child processes, to the server."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="jobs")
    yield "jobs"
    for item in client.list_objects_v2(Bucket="jobs").get("Contents", ()):
        client.delete_object(Bucket="jobs", Key=item["Key"])


def keys_of(bucket):
    return [item["Key"] for item in boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", ())]


@pytest.mark.parametrize("prefix", ["", "large/of-jobs/"])
def test_objects_are_put_read_listed_and_deleted(bucket, prefix):
    s3 = S3(bucket, prefix)
    names = [f"ns/{i:064x}.0-{i}" for i in range(5)]
    for name in names:
        s3.put(name, name.encode())
    s3.put("nsx/" + "0" * 64 + ".0-a", b"")
    s3.put(names[0], b"again")
    assert keys_of(bucket)[0] == prefix + names[0]
    assert s3.get(names[0]) == b"again"
    found, after = [], ""
    while page := s3.scan("ns/", after, 2):
        found += [name for name, _ in page]
        after = page[-1][0]
        assert all(-60 < age < 60 for _, age in page)
    assert found == names
    s3.delete([*names, "ns/" + "f" * 64 + ".0-missing"])
    assert list(s3.scan("ns/", "", PAGE)) == []
    with pytest.raises(KeyError):
        s3.get(names[0])


def test_a_sweep_lists_and_deletes_more_than_a_page_of_s3(bucket):
    storage = Storage(S3(bucket), "ns", 1)
    client = boto3.client("s3")
    for i in range(1005):
        client.put_object(Bucket=bucket, Key=f"ns/{i:064x}.0-{i}", Body=b"")
    names = [name for name, _ in storage.backend.scan("ns/", "", 2000)]
    assert len(names) == 1005
    storage.delete(names[:1000])
    assert len(storage.backend.scan("ns/", "", 2000)) == 5


@pytest.mark.parametrize(
    "task", [tasks.loop_task, tasks.thread_task, tasks.process_task], ids=lambda task: task.name
)
async def test_large_arguments_and_results_pass_s3(bucket, settings, task):
    large = replace(settings, large_payloads=backend_at(f"s3://{bucket}/jobs"))
    with tasks.app.using(large):
        handle = await task.submit(BIG)
        store = Store(large)
        await Worker(tasks.app, store, WorkerConfig(slots=1, processes=1, name="w")).run(drain=True)
        assert await handle.result() == BIG
        assert [key.rpartition(".")[2] for key in keys_of(bucket)] == [handle.id] * 2 or len(
            keys_of(bucket)
        ) == 1
        assert all(key.startswith(f"jobs/{settings.namespace}/") for key in keys_of(bucket))
        await store.aclose()
        await tasks.app.aclose()


async def test_lost_objects_and_a_sweep(bucket, settings, monkeypatch):
    large = replace(settings, large_payloads=S3(bucket))
    monkeypatch.setattr(orphans, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr("sublet.large_payloads.storage.ORPHAN_SECONDS", -3600.0)
    store = Store(large)
    await store.prepare()
    await asyncio.to_thread(large.storage.put, "0-gone", b"x")
    assert await orphans.sweep(store, large.storage) == 1
    with pytest.raises(PayloadLost, match="has no object"):
        large.storage.get("0-gone", b'{"sublet:large":{"bytes":1,"sha256":"' + b"ab" * 32 + b'"}}')
    await store.aclose()


def test_without_boto3_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Invalid, match=r"large payloads in S3 need boto3: pip install '.*\[aws\]'"):
        S3("bucket")
