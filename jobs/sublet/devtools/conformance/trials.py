"""Trials of a producer's submits, and of a worker whose connection has no faults."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from sublet.devtools.conformance.context import RuleBroken, TrialContext, describe
from sublet.devtools.conformance.proxy import REPLY_LOST, REQUEST_LOST, Fault
from sublet.devtools.conformance.rules import LEASE
from sublet.errors import NotFound
from sublet.model import State
from sublet.protocol import keys, reads, verbs

TRICKY: dict[str, Any] = {
    "words": "Grüße, 世界 🎈 \u2028 'single' \"double\" \\back\\slash\\ $HOME `date` %s %d {} {0} <&>;|*?~!#",
    "lines": "one\ntwo\r\nthree\ttab\n\n",
    "nothing": None, "truth": [True, False], "numbers": [0, -1, 1.5, 1000000], "empty": {"a": [], "o": {}, "s": ""},
}  # fmt: skip
HOLD_OVER = 0.3
SECOND_SLOT = 1.0
BEAT_MAX = LEASE * 2 / 3
"""Most seconds between heartbeats: a third of the lease, doubled for a busy machine."""


async def produce(context: TrialContext) -> None:
    """Submit to a missing namespace, with a tricky payload, with lost requests and replies, and jobs that the
    server rejects.
    """
    payload = {"value": {**TRICKY, "long": "ä" * 50_000}}
    with context.rule("makes-namespace"):
        code, _, words = await context.submit_by_client("echo", json.dumps(payload, ensure_ascii=False))
        if code or not await context.run(reads.layout(context.base)):
            raise RuleBroken(
                f"`submit` must create a missing namespace and exit 0; it exits {code}{'' if code else ', without a namespace'}{words}"
            )
    await context.run(verbs.init(context.base))
    with context.rule("prints-id"):
        code, job_id, words = await context.submit_by_client("echo", json.dumps(payload, ensure_ascii=False))
        if code or not await _is_there(context, job_id):
            raise RuleBroken(
                f"`submit` must exit 0 and print a stored job's id last: it exits {code}, its last word is {job_id[:70]!r}{words if code else ''}"
            )
    with context.rule("keeps-payload"):
        sent = context.seen("submit")
        if not sent or not await _is_there(context, sent[-1].args[0]):
            raise RuleBroken("no job was stored")
        stored = (await context.job(sent[-1].args[0])).payload
        if stored != payload:
            raise RuleBroken(f"the stored payload differs: {_difference(payload, stored)}")
    for fate in (REPLY_LOST, REQUEST_LOST):
        with context.rule("repeats-submit"):
            await _repeat(context, fate)
    with context.rule("prints-id"):
        await _refuse(context)


async def _refuse(context: TrialContext) -> None:
    code, line, _ = await context.submit_by_client("no name", '{"value": 1}')
    if code == 0:
        raise RuleBroken(
            f"a task named 'no name' is INVALID, and `submit` exits 0 (its last word is {line[:70]!r}): it must exit with another code"
        )
    await context.run(verbs.configure(context.base, "first", 0, "jobs=1"))
    code, line, _ = await context.submit_by_client("echo", '{"value": 1}')
    if code == 0:
        raise RuleBroken(
            f"the server answered QUEUE_FULL, and `submit` exits 0 (its last word is {line[:70]!r}): it must exit with another code"
        )


async def _is_there(context: TrialContext, job_id: str) -> bool:
    try:
        await context.job(job_id)
    except NotFound:
        return False
    return True


async def _repeat(context: TrialContext, fate: str) -> None:
    async def count() -> int:
        return int(await context.raw("ZCARD", keys.queue(context.base, "first")))

    before, sent = await count(), len(context.seen("submit"))
    context.proxy.faults.append(Fault("submit", fate))
    code, _, words = await context.submit_by_client("echo", '{"value": 1}')
    stored = await count() - before
    if stored != 1:
        ids = [seen.args[0] for seen in context.seen("submit")[sent:] if seen.args]
        raise RuleBroken(
            f"after one submit ({fate}) there are {stored} jobs; the client sent the ids {', '.join(ids)}"
        )
    if code:
        raise RuleBroken(
            f"`submit` must repeat a call whose request or reply is lost, and exit 0; after one ({fate}) it exits {code}{words}"
        )


def _difference(wanted: Any, found: Any) -> str:
    if not isinstance(wanted, dict) or not isinstance(found, dict):
        return f"{json.dumps(found)[:80]} for {json.dumps(wanted)[:80]}"
    for name in wanted:
        if name not in found or found[name] != wanted[name]:
            return f"{name!r} is {json.dumps(found.get(name), ensure_ascii=False)[:80]}"
    return f"{sorted(set(found) - set(wanted))} are extra"


async def awaken(context: TrialContext) -> None:
    """Start a worker, then create its namespace: the worker must run a job."""
    with context.rule("makes-namespace"):
        await context.work()
        await asyncio.sleep(0.5)
        await context.run(verbs.init(context.base))
        job_id = await context.submit("echo", {"value": 1})
        await context.completed(job_id, "a job in a namespace made after the worker's start")


async def endings(context: TrialContext) -> None:
    """Run jobs of `echo`, `boom` and an unknown task: the worker must complete, fail and release them."""
    await context.work(slots=2)
    pretty = json.dumps({"value": TRICKY}, ensure_ascii=False, indent=2).encode()
    large = {"value": 'ö\\"\n' * 25_000}
    payloads = [({"value": TRICKY}, "first"), (pretty, "first"), ({"value": ""}, "second"), (large, "second")]
    with context.rule("keeps-result"):
        for payload, queue in payloads:
            job = await context.completed(
                await context.submit("echo", payload, "tries=1", queue), "a job for `echo`"
            )
            wanted = json.loads(payload) if isinstance(payload, bytes) else payload
            await _result_is(context, job.id, wanted)
    with context.rule("tells-failure"):
        words = "the disk /dev/ünknown is gone"
        job = await context.ended(
            await context.submit("boom", {"message": words}, "tries=1"), "a job for `boom`"
        )
        last = job.attempts[-1] if job.attempts else None
        if (
            job.state is not State.DEAD
            or not last
            or words not in last.message
            or not context.about(job.id, "fail")
        ):
            raise RuleBroken(f"`boom` should fail with {words!r}; the job is {describe(job)}")
        sent = context.about(job.id, "fail")[0].args
        code = sent[sent.index(job.id) + 2]
        if not re.fullmatch(r"[A-Za-z0-9_.:-]+", code):
            raise RuleBroken(f"the code {code[:60]!r} is not one word of A-Z a-z 0-9 _ . : -")
    with context.rule("unknown-task"):
        job_id = await context.submit("conformance-no-such-task")
        await context.until(
            lambda: bool(context.about(job_id, "release", "fail", "complete")),
            "a job with an unknown task was not released",
        )
        ending = context.about(job_id, "release", "fail", "complete")[0]
        if ending.verb != "release" or "unknown_task" not in ending.args:
            raise RuleBroken(
                f"a job with an unknown task was not released with the code unknown_task, but ended with {ending.verb}"
            )


async def _result_is(context: TrialContext, job_id: str, wanted: Any) -> None:
    raw = await context.raw("HGET", keys.job(context.base, job_id), "result")
    try:
        found = json.loads(raw or b"")
    except ValueError:
        raise RuleBroken(f"a result is not JSON: {(raw or b'')[:80]!r}") from None
    if found != wanted:
        raise RuleBroken(f"the result of `echo` differs from its payload: {_difference(wanted, found)}")


async def slots(context: TrialContext) -> None:
    """Queue more jobs than slots: the worker must not hold more than it has slots for."""
    with context.rule("free-slots"):
        ids = [await context.submit("sleep", {"seconds": 0.7}) for _ in range(5)]
        await context.work(slots=2)
        for job_id in ids:
            await context.completed(job_id, "a job for `sleep`, behind others,", 20)
        most = max(_held(context, ids))
        if most > 2:
            raise RuleBroken(f"the worker held {most} jobs at a time, and SUBLET_SLOTS is 2")


def _held(context: TrialContext, ids: list[str]) -> list[int]:
    spans = []
    for job_id in ids:
        claim, (end, *_) = context.claim_of(job_id), context.about(job_id, "complete")
        spans.append((claim.at if claim else 0.0, end.at - HOLD_OVER))
    return [sum(begin <= at < end for begin, end in spans) for at, _ in spans]


async def beats(context: TrialContext) -> None:
    """Run two jobs that take longer than their lease: heartbeats must arrive."""
    with context.rule("heartbeat"):
        await context.work(slots=2)
        ids = [await context.submit("sleep", {"seconds": LEASE * 1.7}) for _ in range(2)]
        await context.until(lambda: any(map(context.claim_of, ids)), "a queued job was not claimed")
        await asyncio.sleep(SECOND_SLOT)
        for job_id in ids:
            if context.claim_of(job_id) is None:
                await context.run(verbs.cancel(context.base, job_id, 0))
            else:
                await _kept_alive(context, job_id)


async def _kept_alive(context: TrialContext, job_id: str) -> None:
    job = await context.completed(job_id, "a job that takes longer than its lease")
    claim, end = context.claim_of(job_id), context.about(job_id, "complete")[0]
    moments = [
        claim.at if claim else 0.0,
        *(seen.at for seen in context.about(job_id, "heartbeat") if seen.at < end.at),
        end.at,
    ]
    gap = max(later - earlier for earlier, later in pairwise(moments))
    if gap > BEAT_MAX:
        raise RuleBroken(
            f"a running job had no heartbeat for {gap:.1f} s: with a lease of {LEASE} s send one every {LEASE / 3:g} s"
        )
    if job.attempt != 1:
        raise RuleBroken(
            f"a job that takes longer than its lease took {job.attempt} attempts, though heartbeats arrived: each must extend the lease"
        )


async def cancel(context: TrialContext) -> None:
    """Cancel a running job: it must end, and the next one run."""
    with context.rule("hears-cancel"):
        await context.work()
        job_id = await context.submit("sleep", {"seconds": 60})
        await context.holding(job_id)
        await context.run(verbs.cancel(context.base, job_id, 1))
        job = await context.ended(job_id, "a running job that was cancelled", 2 * LEASE)
        if job.state is not State.CANCELLED or job.attempts[-1].code != "cancelled":
            raise RuleBroken(
                f"a running job that was cancelled did not fail as `cancelled`: it is {describe(job)}"
            )
        await context.completed(await context.submit("echo"), "the next job after a cancelled one", LEASE + 2)


async def loss(context: TrialContext) -> None:
    """Give a running job's lease to another worker, then delete a running job: the worker must stop only that
    job.
    """
    with context.rule("hears-loss"):
        await context.work(slots=2)
        await _lose_one(context, "LEASE_LOST", _give_to_another)
        await _lose_one(context, "NOT_FOUND", _delete)


async def _lose_one(
    context: TrialContext, answer: str, lose: Callable[[TrialContext, str], Awaitable[None]]
) -> None:
    job_id, other = (
        await context.submit("sleep", {"seconds": 60}),
        await context.submit("sleep", {"seconds": LEASE * 1.2}),
    )
    token = await context.holding(job_id)
    await lose(context, job_id)
    await context.until(lambda: _told(context, job_id, token, answer) is not None,
                      f"no heartbeat was answered {answer}", 2 * LEASE)  # fmt: skip
    told = _told(context, job_id, token, answer) or 0.0
    after = await context.submit("echo")
    beside = await context.completed(
        other, f"the other running job, after a heartbeat was answered {answer} for one", 2 * LEASE
    )
    if beside.attempt != 1:
        raise RuleBroken(
            f"after a heartbeat was answered {answer} for one job, the other running job took {beside.attempt} attempts instead of one"
        )
    await context.completed(after, f"the job submitted after a heartbeat was answered {answer}", LEASE + 2)
    held, followed = context.claim_of(other), context.claim_of(after)
    if held and followed and held.at < told and followed.at > context.about(other, "complete")[0].at:
        raise RuleBroken(
            f"after {answer} the slot was not freed: the next job was claimed only after the other running job had ended"
        )
    late = [
        seen.verb
        for seen in context.about(job_id, "complete", "fail", "release", "heartbeat")
        if token in seen.args and seen.at > told + (HOLD_OVER if seen.verb == "heartbeat" else 0)
    ]
    if late:
        raise RuleBroken(f"after {answer} the worker sent {', '.join(late)} with the lost token")


async def _give_to_another(context: TrialContext, job_id: str) -> None:
    for i in range(9):
        await context.raw("ZADD", keys.structure(context.base, "running"), 1, job_id)
        claim = verbs.claim(
            context.base, claim_id=f"rival-{i}-{job_id}", worker="rival", lease=60, n=1, queues=context.queues
        )
        if (await context.run(claim)).leases:
            return
    raise RuleBroken("the trial could not give the lease to another worker in 9 tries: run it again")


async def _delete(context: TrialContext, job_id: str) -> None:
    await context.raw("DEL", keys.job(context.base, job_id))
    await context.raw("ZREM", keys.structure(context.base, "running"), job_id)


def _told(context: TrialContext, job_id: str, token: str, answer: str) -> float | None:
    for seen in context.about(job_id, "heartbeat"):
        held, answers = list(zip(seen.args[1::3], seen.args[2::3], strict=False)), seen.reply
        told = (job_id, token) in held and isinstance(answers, list)
        if told and answers[held.index((job_id, token))] == answer.encode():
            return seen.replied_at
    return None


async def timeout(context: TrialContext) -> None:
    """Run a job longer than its timeout: it must end as timed_out."""
    with context.rule("timeout"):
        await context.work()
        job_id = await context.submit("sleep", {"seconds": 60}, "tries=1 timeout=1000")
        job = await context.ended(job_id, "a job with a timeout of 1 s", 1 + 5)
        if job.attempts[-1].code != "timed_out":
            raise RuleBroken(
                f"a job with a timeout of 1 s should have ended as timed_out, but is {describe(job)}"
            )
