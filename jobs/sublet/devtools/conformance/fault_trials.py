"""Trials with lost messages, with an absent server, of an idle or busy worker, and of SIGTERM."""

import asyncio
from collections import Counter
from itertools import pairwise

from sublet.devtools.conformance.context import ENDINGS, RuleBroken, TrialContext, describe
from sublet.devtools.conformance.proxy import (
    HANDSHAKE,
    REFUSED,
    REPLY_LOST,
    REQUEST_LOST,
    SILENT,
    Fault,
    Seen,
)
from sublet.devtools.conformance.rules import LEASE
from sublet.model import State
from sublet.protocol import keys

OBSERVED = 6.0
SPARE = 1
PROMPT = 1.0
STOP_SECONDS = 15.0
AWAY = 1.1
BUSY, MAX_CALLS = 2.0, 10


async def forgotten(context: TrialContext) -> None:
    """Answer NOSCRIPT as if the server forgot each script after one call: jobs must run as usual."""
    context.proxy.forgetful = True
    with context.rule("reloads-scripts"):
        code, job_id, words = await context.submit_by_client("echo", '{"value": 1}')
        if code:
            raise RuleBroken(f"on NOSCRIPT `submit` exits {code}{words}")
        await context.work()
        await context.completed(job_id, "a job, with NOSCRIPT before every verb,")
        long = await context.completed(
            await context.submit("sleep", {"seconds": LEASE + 1}),
            "a long job, with NOSCRIPT before every verb,",
        )
        boom = await context.ended(
            await context.submit("boom", {"message": "words"}, "tries=1"),
            "a failing job, with NOSCRIPT before every verb,",
        )
        if long.attempt != 1 or boom.attempt != 1:
            raise RuleBroken("with NOSCRIPT before every verb a job took more than one attempt")
        unknown = await context.submit("conformance-no-such-task")
        await context.until(
            lambda: _was_answered(context, unknown, "release"),
            "with NOSCRIPT before every verb a job was not released",
        )


def _was_answered(context: TrialContext, job_id: str, verb: str) -> bool:
    return any(seen.replied_at and not seen.refused for seen in context.about(job_id, verb))


async def lost_claim(context: TrialContext) -> None:
    """Lose a claim's reply: its jobs must run once. Then withhold one on an open connection: its job must be
    completed.
    """
    with context.rule("repeats-claim"):
        context.proxy.faults.append(Fault("claim", REPLY_LOST, lambda seen: bool(seen.given())))
        ids = [await context.submit("sleep", {"seconds": 0.5}) for _ in range(2)]
        await context.work(slots=2)
        jobs = [await context.completed(job_id, "a job whose claim's reply was lost") for job_id in ids]
        lost = next(seen for seen in context.seen("claim") if seen.fate)
        again = [seen for seen in context.seen("claim") if seen.args[0] == lost.args[0]]
        if len(again) < 2:
            raise RuleBroken("after a claim's reply was lost, no claim with the same id was sent")
        if any(seen.args != lost.args for seen in again):
            raise RuleBroken("the worker repeated the claim's id with other arguments")
        if any(job.attempt != 1 for job in jobs):
            raise RuleBroken(
                "the claim was repeated, yet a job of it took a second attempt: repeat it within 10 s, and run its jobs"
            )
        twice = [job_id for job_id in ids if len(context.about(job_id, "complete")) > 1]
        if twice:
            raise RuleBroken("the worker ran a job of a repeated claim twice")
        context.proxy.faults.append(Fault("claim", SILENT, lambda seen: bool(seen.given())))
        await context.completed(
            await context.submit("echo"),
            "a job whose claim's reply was withheld on an open connection",
            LEASE * 2,
        )


async def lost_heartbeat(context: TrialContext) -> None:
    """Withhold one heartbeat's reply, lose the next reply, and lose the request after it: the job must
    continue.
    """
    kept_back = Fault("heartbeat", SILENT)
    reply = Fault("heartbeat", REPLY_LOST, lambda seen: kept_back.spent)
    context.proxy.faults += [kept_back, reply, Fault("heartbeat", REQUEST_LOST, lambda seen: reply.spent)]
    with context.rule("lost-heartbeat"):
        await context.work()
        job_id = await context.submit("sleep", {"seconds": LEASE * 1.7})
        job = await context.completed(job_id, "a job with a lost heartbeat")
        if job.attempt != 1:
            raise RuleBroken(
                f"a job with a lost heartbeat took {job.attempt} attempts: repeat a heartbeat without a reply before the lease ends"
            )
        if not kept_back.spent:
            raise RuleBroken("no heartbeat was sent")
        claim, end = context.claim_of(job_id), context.about(job_id, "complete")[0]
        beats = [
            seen.at
            for seen in context.about(job_id, "heartbeat")
            if seen.fate != REQUEST_LOST and seen.at < end.at
        ]
        gap = max(
            later - earlier for earlier, later in pairwise([claim.at if claim else 0.0, *beats, end.at])
        )
        if gap > LEASE:
            raise RuleBroken(
                f"after a withheld heartbeat's reply no heartbeat arrived for {gap:.1f} s: the lease expired"
            )


async def lost_ending(context: TrialContext) -> None:
    """Of complete, fail and release, lose a request, then the next one's reply: the client must repeat it."""
    context.proxy.faults += [Fault(verb, fate) for verb in ENDINGS for fate in (REQUEST_LOST, REPLY_LOST)]
    with context.rule("repeats-ending"):
        ids = {
            "complete": await context.submit("echo", {"value": 1}),
            "fail": await context.submit("boom", {"message": "words"}, "tries=1"),
            "release": await context.submit("conformance-no-such-task"),
        }
        await context.work()
        for verb, job_id in ids.items():
            await _check_repeated(context, job_id, verb)
        for verb, wanted in (("complete", State.COMPLETED), ("fail", State.DEAD)):
            job = await context.job(ids[verb])
            if job.state is not wanted or job.attempt != 1:
                raise RuleBroken(
                    f"a job whose {verb} the worker repeated after its loss is {describe(job)}: it must be {wanted}, in attempt 1"
                )


async def _check_repeated(context: TrialContext, job_id: str, verb: str) -> None:
    await context.until(
        lambda: any(not seen.fate and seen.replied_at for seen in context.about(job_id, verb)),
        f"a lost {verb} was not sent again",
    )
    sent = context.about(job_id, verb)
    if any(seen.args != sent[0].args for seen in sent):
        raise RuleBroken(f"the worker repeated {verb} with other arguments")


async def away(context: TrialContext) -> None:
    """Break and refuse connections, during a heartbeat and an outcome, then when idle: jobs must still end."""
    with context.rule("server-away"):
        await context.work()
        job_id = await context.submit("sleep", {"seconds": LEASE / 3 + 0.3})
        await context.running(job_id)
        claim, now = context.claim_of(job_id), asyncio.get_running_loop().time()
        await asyncio.sleep((claim.at if claim else now) + LEASE / 3 - 0.2 - now)
        await _take_server_away(context)
        job = await context.completed(job_id, "a job that ended while the server was away")
        if job.attempt != 1:
            raise RuleBroken(f"a job that ended while the server was away took {job.attempt} attempts")
        await context.until(
            lambda: bool(_blocked(context)) or len(context.seen("claim")) > 3,
            "the worker did not claim again",
        )
        await _take_server_away(context)
        await context.completed(await context.submit("echo"), "a job submitted after the server was away")


async def _take_server_away(context: TrialContext) -> None:
    await context.proxy.leave()
    await asyncio.sleep(AWAY)
    await context.proxy.listen()


async def busy(context: TrialContext) -> None:
    """Answer every script call with LOADING, then occupy the only slot: at most 10 calls a second."""
    with context.rule("idle-rate"):
        await context.work()
        context.proxy.loading = True
        job_id = await context.submit("sleep", {"seconds": 60})
        await context.until(
            lambda: any(seen.fate == REFUSED for seen in context.seen("claim")),
            "the worker did not claim again",
        )
        await _check_call_rate(context, "the server answers LOADING")
        context.proxy.loading = False
        await context.holding(job_id)
        await _check_call_rate(context, "its only slot is taken")


async def _check_call_rate(context: TrialContext, when: str) -> None:
    begin = len(context.proxy.log)
    await asyncio.sleep(BUSY)
    calls = sum(seen.name in ("EVAL", "EVALSHA") for seen in context.proxy.log[begin:])
    if calls > MAX_CALLS * BUSY:
        raise RuleBroken(
            f"the worker made {calls / BUSY:.0f} script calls a second while {when}: pause between calls"
        )


async def idle(context: TrialContext) -> None:
    """Count an idle worker's commands; then submit to each queue, and a delayed job: claims must be prompt."""
    await context.work()
    if context.judge.wants("idle-rate"):
        with context.rule("idle-rate"):
            await asyncio.sleep(1)
            begin = len(context.proxy.log)
            await asyncio.sleep(OBSERVED)
            sent = Counter(
                seen.verb or seen.name for seen in context.proxy.log[begin:] if seen.name not in HANDSHAKE
            )
            if sent.total() > OBSERVED + SPARE:
                words = ", ".join(f"{count} × {name}" for name, count in sent.most_common())
                raise RuleBroken(f"{sent.total()} commands in {OBSERVED:g} idle seconds: {words}")
    if context.judge.wants("wakes"):
        with context.rule("wakes"):
            for queue in (*context.queues, context.queues[0]):
                await _wake(context, queue)
    if context.judge.wants("appointment"):
        with context.rule("appointment"):
            submitted = asyncio.get_running_loop().time()
            job_id = await context.submit("echo", {}, "delay=1000")
            await context.running(job_id)
            claim = context.claim_of(job_id)
            late = (claim.at if claim else 0.0) - submitted - 1
            if late > PROMPT / 2:
                raise RuleBroken(
                    f"a job that fell due was claimed {late:.1f} s late, although the claim's reply contained the time"
                )


async def _wake(context: TrialContext, queue: str) -> None:
    lists = {keys.wake(context.base, name) for name in context.queues}
    await context.until(lambda: any(lists <= set(seen.args) for seen in _blocked(context)),
                      "an idle worker did not block on the wake-up lists of all its queues", 4)  # fmt: skip
    submitted = asyncio.get_running_loop().time()
    job_id = await context.submit("echo", queue=queue)
    await context.running(job_id)
    claim = context.claim_of(job_id)
    took = (claim.at if claim else 0.0) - submitted
    if took > PROMPT:
        raise RuleBroken(
            f"a job in an empty queue waited {took:.1f} s for an idle worker: claim as soon as a wake-up arrives"
        )
    await context.completed(job_id, "a job for an idle worker")


def _blocked(context: TrialContext) -> list[Seen]:
    return [seen for seen in context.proxy.log if seen.name in ("BLPOP", "BRPOP") and seen.replied_at is None]


async def leave(context: TrialContext) -> None:
    """Send SIGTERM to an idle worker, and to one that holds a job: both must exit 0, and no job may run on."""
    with context.rule("sigterm"):
        for busy in (False, True):
            worker = await context.work()
            job_id = await context.submit("sleep", {"seconds": 60}) if busy else ""
            if busy:
                await context.holding(job_id)
            context.workers.remove(worker)
            worker.ask_to_stop()
            code, whose = await worker.wait(STOP_SECONDS), "a worker with a job" if busy else "an idle worker"
            if code != 0:
                how = "continues" if code is None else f"exits {code}{worker.words()}"
                raise RuleBroken(f"{whose} must exit 0 on SIGTERM: it {how}")
            if worker.left_behind():
                raise RuleBroken(
                    f"{whose} exits on SIGTERM and leaves {len(worker.left_behind())} processes behind"
                )
            if busy and (job := await context.job(job_id)).state is State.RUNNING:
                raise RuleBroken(f"the worker exits without releasing its job, which is {describe(job)}")
