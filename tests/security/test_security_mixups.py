"""Replies reach their callers: while other calls are cancelled at random, no call gets the reply of another."""

import asyncio
import json
import random

import pytest

from sublet.errors import JobsError
from tests.support.http_server import SECRET, ask, serving, wire

pytest_plugins = ["tests.support.job_sources"]
MANY = 1_000
SEED = 20_230_324
"""The date on which redis-py's own mix-up (CVE-2023-28858) was published."""


@pytest.mark.real_server
async def test_after_a_thousand_cancelled_calls_every_other_call_gets_its_own_reply(store, source):
    """Each payload contains the name of its job; each call is about one job, and half of the calls are
    cancelled midway.
    """
    jobs = [store.operations.submission(f"t.{n}", b'{"n": %d}' % n, "q", "") for n in range(200)]
    for start in range(0, len(jobs), 100):
        await store.submit(jobs[start : start + 100])
    dice, cancelled, answered = random.Random(SEED), 0, 0

    async def call():
        job = dice.choice(jobs)
        if dice.random() < 0.5:
            standing = await source.watch(job.id, 0)
            return job.task, standing.state, "queued"
        (made,) = await source.submit([job])
        return job.task, made.id, job.id

    for _ in range(MANY // 50):
        asking = [asyncio.create_task(call()) for _ in range(100)]
        victims = dice.sample(asking, 50)
        for victim in victims:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            victim.cancel()
        async with asyncio.timeout(60):
            ends = await asyncio.gather(*asking, return_exceptions=True)
        for end in ends:
            if isinstance(end, asyncio.CancelledError):
                cancelled += 1
                continue
            assert not isinstance(end, BaseException), end
            task, found, wanted = end
            assert found == wanted, task
            answered += 1
    assert cancelled > MANY // 10, "too few calls were cancelled while they waited"
    assert answered >= MANY


@pytest.mark.real_server
async def test_after_cancelled_claims_each_lease_has_its_own_payload(store, source):
    """A lease contains the task and payload of its own job, whichever claims were cancelled before."""
    dice = random.Random(SEED)
    await store.submit([store.operations.submission(f"t.{n}", b'{"n":%d}' % n, "q", "") for n in range(100)])
    seen = set()
    for _ in range(400):
        claiming = asyncio.create_task(source.claim(worker="w", queues=["q"], n=1, lease=60))
        if dice.random() < 0.4:
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            claiming.cancel()
        try:
            claimed = await asyncio.wait_for(claiming, 30)
        except (asyncio.CancelledError, JobsError):
            continue
        for lease in claimed.leases:
            assert lease.task == f"t.{json.loads(lease.payload)['n']}"
            assert lease.id not in seen
            seen.add(lease.id)
    assert len(seen) > 50


@pytest.mark.real_server
async def test_clients_that_disconnect_at_random_do_not_mix_up_responses(store, place):
    """With one server and its shared connections to Redis: every response contains the id of the requested
    job.
    """
    dice = random.Random(SEED)
    ids = [
        made.id
        for made in await store.submit([store.operations.submission("t", b"{}", "q", "") for _ in range(50)])
    ]
    async with serving(place.settings, tokens=f"boss:admin:{SECRET}") as url:

        async def one(job_id, disconnects):
            async with wire(url) as connection:
                head = f"GET /jobs/{job_id} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
                connection.write(head.encode() * 2)
                if disconnects:
                    await asyncio.sleep(dice.random() / 100)
                    connection.close(rudely=True)
                    return
                for _ in range(2):
                    assert (await connection.answer()).json()["id"] == job_id

        for _ in range(20):
            await asyncio.gather(*(one(dice.choice(ids), dice.random() < 0.5) for _ in range(50)))
        assert (await ask(url, "GET", "/readyz")).status == 200
