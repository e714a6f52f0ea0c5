"""Trials of the optional rules: checkpoints, steps, registrations, schedules, and waiting for results."""

import json
import secrets
from collections.abc import Mapping
from itertools import pairwise

from sublet.devtools.conformance.context import RuleBroken, TrialContext, describe
from sublet.devtools.conformance.proxy import REPLY_LOST, Fault
from sublet.devtools.conformance.rules import LEASE
from sublet.model import State
from sublet.protocol import keys, verbs
from sublet.schedules import firing
from sublet.schedules.definition import recurrence
from sublet.schedules.recurrence import firing as firing_of
from sublet.steps import calls

RENEWED = 7.0
OBSERVED = 12.0
PROMPT = 5.0
EVERY, JITTER = 3600, 1800
PAUSE = 1.0


async def count(context: TrialContext) -> None:
    """Run a job of the task `count` through three attempts: each must continue from the last one's
    checkpoint.
    """
    with context.rule("keeps-checkpoint"):
        await context.work()
        job = await context.completed(
            await context.submit("count", {}, "tries=5 backoff=0:1:0"), "a job for `count`"
        )
        result = await context.raw("HGET", keys.job(context.base, job.id), "result")
        if json.loads(result) != 3 or job.attempt != 3:
            raise RuleBroken(
                f"`count` should end with 3 in its third attempt; it ended with {result!r} in attempt {job.attempt}"
            )


async def errand(context: TrialContext) -> None:
    """Run a job of the task `errand` through a step whose reply is lost, a sleep, and a wait for a signal."""
    context.proxy.faults.append(Fault("step", REPLY_LOST, lambda seen: "draw" in seen.args))
    await context.work()
    job_id = await context.submit("errand", {"seconds": PAUSE}, "tries=3")
    key, value = keys.job(context.base, job_id), {"by": "ü"}
    with context.rule("suspends"):
        await _suspended(context, job_id, "sleep", "pause")
        other = await context.submit("echo", {"value": 1})
        await context.completed(other, "a job beside one that sleeps", PROMPT)
        await _suspended(context, job_id, "signal", "go")
    await context.run(calls.signal(context.base, job_id, "go", json.dumps(value).encode()))
    result: list[object] = []
    with context.rule("keeps-steps"):
        stored = await context.raw("HGET", key, "step:draw")
        if stored is None:
            raise RuleBroken("the worker has not stored the step `draw` of `errand`")
        drawn = json.loads(calls.kept(stored).value)
        await context.completed(job_id, "a job for `errand`")
        text = await context.raw("HGET", key, "result")
        result = found if isinstance(found := json.loads(text), list) else [found]
        if result[:1] != [drawn]:
            raise RuleBroken(
                f"the result of `errand` should begin with its kept step {drawn!r}; it is {result}"
            )
        sent = [seen.args[2:] for seen in context.about(job_id, "step") if "draw" in seen.args]
        if any(words != sent[0] for words in sent):
            raise RuleBroken(f"`draw` was done again, and sent with other values: {sent}")
    with context.rule("suspends"):
        if result[1:] != [value]:
            raise RuleBroken(f"the result of `errand` should end with the signal {value}; it is {result}")


async def _suspended(context: TrialContext, job_id: str, kind: str, name: str) -> None:
    await context.until(
        lambda: any(seen.args[2:4] == [kind, name] for seen in context.about(job_id, "suspend")),
        f"`errand` did not suspend for the {kind} `{name}`",
    )


async def register(context: TrialContext) -> None:
    """Check that a worker registers before it claims, renews its registration, spares live workers' leases,
    and unregisters at its end.
    """
    worker = await context.work()
    name = context.seen("claim")[0].args[1]
    with context.rule("enlists"):
        calls = context.seen("enlist")
        if not calls or calls[0].at > context.seen("claim")[0].at or calls[0].args[0] != name:
            raise RuleBroken("the worker claimed before it enlisted under the same name")
        if not isinstance(_json(calls[0].args[3]), dict):
            raise RuleBroken(f"the worker's description is not a JSON object: {calls[0].args[3][:80]}")
    job_id = await context.submit("sleep", {"seconds": OBSERVED})
    await context.holding(job_id)
    with context.rule("spares-the-living"):
        await context.work()
        job = await context.completed(
            job_id, "a job beside which another worker was started", OBSERVED + LEASE
        )
        if job.attempt != 1:
            raise RuleBroken("a starting worker ended the lease of a live one")
    with context.rule("enlists"):
        moments = [seen.at for seen in context.seen("enlist") if seen.args[0] == name]
        if len(moments) < 2:
            raise RuleBroken(
                f"the worker did not renew its registration in {OBSERVED:g} s: enlist again every 5 s"
            )
        gap = max(b - a for a, b in pairwise(moments))
        if gap > RENEWED:
            raise RuleBroken(
                f"the worker renewed its registration only after {gap:.1f} s: enlist again every 5 s"
            )
    with context.rule("leaves"):
        context.workers.remove(worker)
        worker.ask_to_stop()
        await worker.wait(15)
        if await context.raw("EXISTS", keys.worker(context.base, name)):
            raise RuleBroken("the worker ended on SIGTERM, and is still registered")


async def drain(context: TrialContext) -> None:
    """Drain a worker with a job: it must finish the job, claim no other, unregister and exit 0."""
    with context.rule("drains"):
        worker = await context.work()
        name = context.seen("claim")[0].args[1]
        life = next(seen.args[1] for seen in context.seen("enlist"))
        job_id = await context.submit("sleep", {"seconds": RENEWED})
        await context.holding(job_id)
        await context.run(verbs.drain(context.base, name, life))
        await context.until(
            lambda: any(seen.reply == b"drain" for seen in context.seen("enlist")),
            "the worker did not enlist again",
        )
        context.workers.remove(worker)
        after = await context.submit("echo", {"value": 1})
        job = await context.completed(job_id, "the job of a draining worker", RENEWED + LEASE)
        code = await worker.wait(15)
        if code != 0 or job.attempt != 1:
            raise RuleBroken(
                f"a draining worker should finish its job in one attempt and exit 0; it took {job.attempt}, and its exit code is {code}"
            )
        if (await context.job(after)).state is not State.QUEUED:
            raise RuleBroken("the worker claimed another job after it was answered `drain`")
        if await context.raw("EXISTS", keys.worker(context.base, name)):
            raise RuleBroken("the worker has exited, and is still registered")


async def _put(context: TrialContext, name: str, when: Mapping[str, object], occurrence: int) -> None:
    await context.run(
        firing.schedule(
            context.base, name, 0, plan=json.dumps({"when": when}).encode(), queue="first", task="echo", rules="",
            overlap="allow", paused=False, occurrence=occurrence, due=occurrence, payload=b'{"value": 1}',
        )
    )  # fmt: skip


async def schedules(context: TrialContext) -> None:
    """Store two due schedules: the worker must fire the one that it can read, and leave the other."""
    seconds, _ = await context.raw("TIME")
    before = (int(seconds) // EVERY - 3) * EVERY * 1000
    when = {"every": EVERY, "jitter": JITTER}
    await _put(context, "unreadable", {"every": EVERY, "of-another-version": 1}, before)
    await _put(context, "readable", when, before)
    await context.work()
    with context.rule("fires"):
        await context.until(
            lambda: any("readable" in seen.args for seen in context.seen("fire")),
            "a due schedule was not fired",
        )
        sent = next(seen.args for seen in context.seen("fire") if "readable" in seen.args)
        got = sent[sent.index("readable") :][:7]
        now = next(int(seen.reply[0]) for seen in context.seen("pick") if seen.given_schedules("readable"))
        found = firing_of(recurrence(when), "readable", before, now)
        after = found.next
        wanted = ["readable", "1", str(before), " ".join(map(str, found.occurrences)), str(found.missed)]
        wanted += [str(after.occurrence), str(after.due)] if after else ["", ""]
        if got != wanted:
            raise RuleBroken(f"fire should have {wanted}, and has {got}")
    with context.rule("leaves-unread"):
        await context.until(
            lambda: any("unreadable" in seen.args for seen in context.seen("pick")),
            "a schedule whose plan has an unknown field was not named in a later pick",
        )
        if any("unreadable" in seen.args for seen in context.seen("fire")):
            raise RuleBroken("the worker fired a schedule whose plan has an unknown field")


async def waiters(context: TrialContext) -> None:
    """Check that `CMD wait ID` prints the job's result, or exits with an error if the job dies or is missing."""
    with context.rule("waits"):
        await context.work(slots=2)
        for task, payload, good in (
            ("sleep", {"seconds": 2.0}, True), ("echo", {"value": "ü"}, True), ("boom", {"message": "words"}, False),
        ):  # fmt: skip
            job_id = await context.submit(task, payload, "tries=1")
            waiter = await context.start(["wait", job_id])
            job = await context.ended(job_id, f"a job for `{task}`")
            code = await waiter.wait(PROMPT)
            if code is None or (code == 0) != good:
                raise RuleBroken(
                    f"`wait` of a job that is {describe(job)} should exit {'0' if good else 'with another code than 0'} within {PROMPT:g} s; its exit code is {code}{waiter.words()}"
                )
            printed = (waiter.said().splitlines() or [""])[-1]
            result = await context.raw("HGET", keys.job(context.base, job_id), "result")
            if good and _json(printed) != json.loads(result):
                raise RuleBroken(
                    f"the last line of `wait` must be the result {result!r} as JSON; it is {printed[:80]!r}"
                )
        missing = await context.start(["wait", f"0-{secrets.token_hex(12)}"])
        if not await missing.wait(2 * PROMPT):
            raise RuleBroken(
                "`wait` of a job that does not exist should exit with another code than 0, within 10 s"
            )


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
