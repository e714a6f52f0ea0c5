"""Measurements for `growth.py`: many jobs that are due at once, and jobs with a thousand attempts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import repeat

from standing import KEPT, PATIENCE, Site, Watch

from sublet.model import Failure
from sublet.protocol import keys, verbs

Row = dict[str, float | str]

SHARE = 50
"""Due jobs per job that is drained meanwhile, to measure the slowdown."""
LONGEST = 600.0


async def due_at_once(site: Site, number: int) -> list[Row]:
    moment = _now(site) + 1000 + number // 20
    await site.fill(2 * number // SHARE)
    await site.fill(number, lambda: f"at={moment}")
    return await _crowd(site, "scheduled", moment, number // SHARE)


async def leases_ended_at_once(site: Site, number: int) -> list[Row]:
    """Measure leases that expire at one moment. The jobs return to their old positions in the queue."""
    await site.fill(number)
    moment = _now(site) + 1000 + number // 10
    for _ in range(number // verbs.CLAIM_MAX):
        await site.claim(verbs.CLAIM_MAX, ["default"], lease=(moment - _now(site)) / 1000)
    await site.fill(2 * number // SHARE)
    return await _crowd(site, "running", moment, number // SHARE)


async def to_forget_at_once(site: Site, number: int) -> list[Row]:
    """Measure finished jobs above a lowered limit. A completion deletes two, a prune up to 200."""
    await site.keep(10 * number)
    await site.finish(number)
    await site.fill(number // SHARE)
    share = number // SHARE
    rows: list[Row] = []
    rows.append({"what": "before", **await _while_drained(site, share)})
    await site.limit(min(KEPT, number // 10))
    await site.fill(2 * share)
    rows.append({"what": "at first", **await _while_drained(site, share)})
    began, there = time.monotonic(), site.raw.zcard(keys.structure(site.base, "completed"))
    with Watch(site) as watch:
        while (await site.store.run(verbs.prune(site.base, limit=verbs.BATCH)))[1]:
            assert time.monotonic() - began < LONGEST
    gone = there - site.raw.zcard(keys.structure(site.base, "completed"))
    rows.append(
        {"what": "prune alone", **_rate("moved", gone, time.monotonic() - began), **_spent(watch, gone)}
    )
    rows.append({"what": "when none are left", **await _while_drained(site, share)})
    return rows


async def attempts(site: Site, number: int) -> list[Row]:
    """Measure 200 jobs with up to `number` attempts each. Redis keeps a job's first and last five."""
    jobs, tried = 200, 0
    rows: list[Row] = []
    await site.store.submit([site.new(rules="tries=5000 backoff=1:1:1") for _ in range(jobs)])
    for until in (10, 100, min(1000, number)):
        with Watch(site) as watch:
            for _ in range(tried, until):
                await _fail_all(site, jobs)
        tries = jobs * (until - tried)
        rows.append(
            {
                "what": f"attempts {tried + 1} to {until}",
                **_spent(watch, tries),
                "bytes": site.bytes_of_jobs(jobs),
            }
        )
        tried = until
    return rows


async def _fail_all(site: Site, jobs: int) -> None:
    left = jobs
    async with asyncio.timeout(PATIENCE):
        while left:
            claimed = await site.claim(min(left, verbs.FAIL_MAX), ["default"])
            await site.store.run(
                verbs.fail(site.base, [Failure(lease, "ValueError", "no", "") for lease in claimed.leases])
            )
            left -= len(claimed.leases)


async def _crowd(site: Site, state: str, moment: int, share: int) -> list[Row]:
    rows: list[Row] = [{"what": "before", **await _while_drained(site, share)}]
    assert _now(site) < moment, "filling took too long: the crowd is there before its time"
    await asyncio.sleep((moment - _now(site)) / 1000 + 0.01)
    there = _overdue(site, state)
    rows.append({"what": "claims alone", **await _while_drained(site, share)})
    rows[-1]["moved"] = there - _overdue(site, state)
    stop, moved = asyncio.Event(), [0]
    tick = asyncio.create_task(_tick(site, stop, moved))
    rows.append({"what": "claims, and a tick beside", **await _while_drained(site, share)})
    stop.set()
    await tick
    began, left = time.monotonic(), _overdue(site, state)
    with Watch(site) as watch:
        await _tick(site, asyncio.Event(), moved)
    rows.append(
        {"what": "a tick alone", **_rate("moved", left, time.monotonic() - began), **_spent(watch, left)}
    )
    rows.append({"what": "after", **await _while_drained(site, share)})
    return rows


async def _tick(site: Site, stop: asyncio.Event, moved: list[int]) -> None:
    until = time.monotonic() + LONGEST
    more = True
    while more and not stop.is_set() and time.monotonic() < until:
        reaped = await site.store.run(verbs.reap(site.base, limit=verbs.SETTLE_MAX, by="bench"))
        more = reaped.more
        moved[0] += reaped.ended + reaped.queued


async def _while_drained(site: Site, jobs: int) -> Row:
    began = time.monotonic()
    with Watch(site) as watch:
        await site.drain(jobs, repeat(["default"]))
    return _rate("drained", jobs, time.monotonic() - began) | _spent(watch, jobs)


def _rate(word: str, number: int, seconds: float) -> Row:
    return {word: number, f"{word}_per_s": number / seconds, "seconds": seconds}


def _spent(watch: Watch, jobs: int) -> Row:
    return {"redis_us": watch.cpu * 1e6 / jobs}


def _now(site: Site) -> int:
    seconds, micros = site.raw.time()
    return int(seconds * 1000 + micros // 1000)


def _overdue(site: Site, state: str) -> int:
    return int(site.raw.zcount(keys.structure(site.base, state), "-inf", _now(site)))


crowds: dict[str, Callable[[Site, int], Awaitable[list[Row]]]] = {
    one.__name__: one for one in (due_at_once, leases_ended_at_once, to_forget_at_once, attempts)
}
