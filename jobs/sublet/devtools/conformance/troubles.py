"""The trials in which something goes wrong, or nothing happens: what is lost, forgotten or away, idle hours, the end."""

import asyncio
from collections import Counter
from itertools import pairwise

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
from sublet.devtools.conformance.stage import ENDINGS, Broken, Stage, tell
from sublet.model import State
from sublet.protocol import keys

LULL = 6.0
"""Seconds for which an idle worker is listened to."""
SPARE = 1
"""Commands that it may send in this time beside one a second."""
PROMPT = 1.0
"""Seconds after which a job that was announced should have been claimed; one that falls due, half of it."""
STOP_SECONDS = 15.0
AWAY = 1.1
"""Seconds for which the server is away."""
BUSY, HAMMER = 2.0, 10
"""Seconds for which a worker that can do nothing is listened to, and how many script calls a second it may send."""


async def forgotten(stage: Stage) -> None:
    """Every script is forgotten after each call."""
    stage.proxy.forgetful = True
    with stage.rule("reloads-scripts"):
        code, job_id, words = await stage.submit_by_client("echo", '{"value": 1}')
        if code:
            raise Broken(f"on NOSCRIPT `submit` exits {code}{words}")
        await stage.work()
        await stage.completed(job_id, "a job, with NOSCRIPT before every verb,")
        long = await stage.completed(
            await stage.submit("sleep", {"seconds": LEASE + 1}),
            "a long job, with NOSCRIPT before every verb,",
        )
        boom = await stage.ended(
            await stage.submit("boom", {"message": "words"}, "tries=1"),
            "a failing job, with NOSCRIPT before every verb,",
        )
        if long.attempt != 1 or boom.attempt != 1:
            raise Broken("with NOSCRIPT before every verb a job took more than one attempt")
        unknown = await stage.submit("conformance-no-such-task")
        await stage.until(
            lambda: _was_answered(stage, unknown, "release"),
            "with NOSCRIPT before every verb a job was not released",
        )


def _was_answered(stage: Stage, job_id: str, verb: str) -> bool:
    return any(seen.replied_at and not seen.refused for seen in stage.about(job_id, verb))


async def lost_claim(stage: Stage) -> None:
    """The reply of a claim that brought jobs is lost; then that of another one is kept back, on a connection that stays open."""
    with stage.rule("repeats-claim"):
        stage.proxy.faults.append(Fault("claim", REPLY_LOST, lambda seen: bool(seen.given())))
        ids = [await stage.submit("sleep", {"seconds": 0.5}) for _ in range(2)]
        await stage.work(slots=2)
        jobs = [await stage.completed(job_id, "a job whose claim's reply was lost") for job_id in ids]
        lost = next(seen for seen in stage.seen("claim") if seen.fate)
        again = [seen for seen in stage.seen("claim") if seen.args[0] == lost.args[0]]
        if len(again) < 2:
            raise Broken("after a claim's reply was lost, no claim with the same id came")
        if any(seen.args != lost.args for seen in again):
            raise Broken("it repeated the claim's id, but with other arguments")
        if any(job.attempt != 1 for job in jobs):
            raise Broken("a job whose claim's reply was lost took more than one attempt")
        twice = [job_id for job_id in ids if len(stage.about(job_id, "complete")) > 1]
        if twice:
            raise Broken("it ran a job twice that a repeated claim brought again")
        stage.proxy.faults.append(Fault("claim", SILENT, lambda seen: bool(seen.given())))
        await stage.completed(
            await stage.submit("echo"),
            "a job whose claim's reply was kept back on an open connection",
            LEASE * 2,
        )


async def lost_heartbeat(stage: Stage) -> None:
    """The reply of one heartbeat is kept back, that of another one is lost, and a third one is lost on its way."""
    kept_back = Fault("heartbeat", SILENT)
    reply = Fault("heartbeat", REPLY_LOST, lambda seen: kept_back.spent)
    stage.proxy.faults += [kept_back, reply, Fault("heartbeat", REQUEST_LOST, lambda seen: reply.spent)]
    with stage.rule("lost-heartbeat"):
        await stage.work()
        job_id = await stage.submit("sleep", {"seconds": LEASE * 1.7})
        job = await stage.completed(job_id, "a job, a heartbeat of which was lost,")
        if job.attempt != 1:
            raise Broken(f"a job, a heartbeat of which was lost, took {job.attempt} attempts")
        if not kept_back.spent:
            raise Broken("no heartbeat came that could be lost")
        claim, end = stage.claim_of(job_id), stage.about(job_id, "complete")[0]
        beats = [
            seen.at
            for seen in stage.about(job_id, "heartbeat")
            if seen.fate != REQUEST_LOST and seen.at < end.at
        ]
        gap = max(
            later - earlier for earlier, later in pairwise([claim.at if claim else 0.0, *beats, end.at])
        )
        if gap > LEASE:
            raise Broken(
                f"after a heartbeat's reply was kept back none came through for {gap:.1f} s: the lease ran out"
            )


async def lost_ending(stage: Stage) -> None:
    """Of each kind of ending one is lost on its way, and then the reply of the next."""
    stage.proxy.faults += [Fault(verb, fate) for verb in ENDINGS for fate in (REQUEST_LOST, REPLY_LOST)]
    with stage.rule("repeats-ending"):
        ids = {
            "complete": await stage.submit("echo", {"value": 1}),
            "fail": await stage.submit("boom", {"message": "words"}, "tries=1"),
            "release": await stage.submit("conformance-no-such-task"),
        }
        await stage.work()
        for verb, job_id in ids.items():
            await _see_it_repeated(stage, job_id, verb)
        for verb, wanted in (("complete", State.COMPLETED), ("fail", State.DEAD)):
            job = await stage.job(ids[verb])
            if job.state is not wanted or job.attempt != 1:
                raise Broken(f"a job whose {verb} was lost is {tell(job)}")


async def _see_it_repeated(stage: Stage, job_id: str, verb: str) -> None:
    """Wait until an ending has been answered at last; it must have been the same each time."""
    await stage.until(
        lambda: any(not seen.fate and seen.replied_at for seen in stage.about(job_id, verb)),
        f"a lost {verb} was not sent again",
    )
    sent = stage.about(job_id, verb)
    if any(seen.args != sent[0].args for seen in sent):
        raise Broken(f"it repeated {verb} with other arguments")


async def away(stage: Stage) -> None:
    """The server breaks all connections, and refuses new ones for a second: a heartbeat and an ending fall into it."""
    with stage.rule("server-away"):
        await stage.work()
        job_id = await stage.submit("sleep", {"seconds": LEASE / 3 + 0.3})
        await stage.running(job_id)
        claim, now = stage.claim_of(job_id), asyncio.get_running_loop().time()
        await asyncio.sleep((claim.at if claim else now) + LEASE / 3 - 0.2 - now)
        await _go_away(stage)
        job = await stage.completed(job_id, "a job that ended while the server was away")
        if job.attempt != 1:
            raise Broken(f"a job that ended while the server was away took {job.attempt} attempts")
        await stage.until(
            lambda: bool(_blocked(stage)) or len(stage.seen("claim")) > 3, "it did not claim again"
        )
        await _go_away(stage)
        await stage.completed(await stage.submit("echo"), "a job submitted after the server was away")


async def _go_away(stage: Stage) -> None:
    await stage.proxy.leave()
    await asyncio.sleep(AWAY)
    await stage.proxy.listen()


async def busy(stage: Stage) -> None:
    """Nothing that it can do: every call is answered with LOADING; then its only slot is taken."""
    with stage.rule("idle-rate"):
        await stage.work()
        stage.proxy.loading = True
        job_id = await stage.submit("sleep", {"seconds": 60})
        await stage.until(
            lambda: any(seen.fate == REFUSED for seen in stage.seen("claim")), "it did not claim again"
        )
        await _hammers(stage, "the server answers LOADING")
        stage.proxy.loading = False
        await stage.holding(job_id)
        await _hammers(stage, "its only slot is taken")


async def _hammers(stage: Stage, when: str) -> None:
    begin = len(stage.proxy.log)
    await asyncio.sleep(BUSY)
    calls = sum(seen.name in ("EVAL", "EVALSHA") for seen in stage.proxy.log[begin:])
    if calls > HAMMER * BUSY:
        raise Broken(f"{calls / BUSY:.0f} script calls a second while {when}")


async def idle(stage: Stage) -> None:
    """Nothing to do; then a job, now and then; then one that falls due."""
    await stage.work()
    if stage.judge.asks("idle-rate"):
        with stage.rule("idle-rate"):
            await asyncio.sleep(1)
            begin = len(stage.proxy.log)
            await asyncio.sleep(LULL)
            said = Counter(
                seen.verb or seen.name for seen in stage.proxy.log[begin:] if seen.name not in HANDSHAKE
            )
            if said.total() > LULL + SPARE:
                words = ", ".join(f"{count} × {name}" for name, count in said.most_common())
                raise Broken(f"{said.total()} commands in {LULL:g} idle seconds: {words}")
    if stage.judge.asks("wakes"):
        with stage.rule("wakes"):
            for queue in (*stage.queues, stage.queues[0]):
                await _wake(stage, queue)
    if stage.judge.asks("appointment"):
        with stage.rule("appointment"):
            submitted = asyncio.get_running_loop().time()
            job_id = await stage.submit("echo", {}, "delay=1000")
            await stage.running(job_id)
            claim = stage.claim_of(job_id)
            late = (claim.at if claim else 0.0) - submitted - 1
            if late > PROMPT / 2:
                raise Broken(
                    f"a job that fell due was claimed {late:.1f} s late, though the claim's reply had said when"
                )


async def _wake(stage: Stage, queue: str) -> None:
    """Submit while the client is blocked on all its markers, and see it come."""
    markers = {keys.wake(stage.base, name) for name in stage.queues}
    await stage.until(lambda: any(markers <= set(seen.args) for seen in _blocked(stage)),
                      "an idle worker did not block on the markers of all its queues", 4)  # fmt: skip
    submitted = asyncio.get_running_loop().time()
    job_id = await stage.submit("echo", queue=queue)
    await stage.running(job_id)
    claim = stage.claim_of(job_id)
    took = (claim.at if claim else 0.0) - submitted
    if took > PROMPT:
        raise Broken(f"a job in an empty queue waited {took:.1f} s for a worker that was idle")
    await stage.completed(job_id, "a job for an idle worker")


def _blocked(stage: Stage) -> list[Seen]:
    """The blocking reads that have no answer yet."""
    return [seen for seen in stage.proxy.log if seen.name in ("BLPOP", "BRPOP") and seen.replied_at is None]


async def leave(stage: Stage) -> None:
    """SIGTERM, to an idle worker and to one that holds a job."""
    with stage.rule("sigterm"):
        for busy in (False, True):
            worker = await stage.work()
            job_id = await stage.submit("sleep", {"seconds": 60}) if busy else ""
            if busy:
                await stage.holding(job_id)
            stage.workers.remove(worker)
            worker.ask_to_stop()
            code, whose = await worker.wait(STOP_SECONDS), "a worker with a job" if busy else "an idle worker"
            if code != 0:
                how = "goes on" if code is None else f"exits {code}{worker.words()}"
                raise Broken(f"{whose} that gets SIGTERM {how}")
            if worker.left_behind():
                raise Broken(
                    f"{whose} that gets SIGTERM exits, and leaves {len(worker.left_behind())} processes behind"
                )
            if busy and (job := await stage.job(job_id)).state is State.RUNNING:
                raise Broken(f"it exits without a word of the job that it held, which is {tell(job)}")
