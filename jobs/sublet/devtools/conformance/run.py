"""The whole run: which trials show which rules, a few of them at a time, each in a world of its own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sublet.connection.settings import Settings
from sublet.devtools.conformance import trials, troubles
from sublet.devtools.conformance.conduct import judge_conduct
from sublet.devtools.conformance.rules import BY_NAME, TIMED, Judge, Verdict
from sublet.devtools.conformance.stage import ENDINGS, Broken, Gone, Stage
from sublet.devtools.conformance.subject import Subject
from sublet.errors import JobsError, Refused

AT_ONCE = 6
"""Trials that run at the same time."""
TRIAL_SECONDS = 60.0
"""How long one may take: each wait in it is shorter, so this is the last resort."""
NAP, TASKS_SECONDS = 0.5, 4.0
"""Seconds that the task `sleep` is first tried with, and how long the three tasks may take then."""
INTERFACE = (
    "It is run as `CMD submit TASK JSON` and `CMD work`, and finds SUBLET_REDIS_URL, SUBLET_NAMESPACE, SUBLET_QUEUES (commas; "
    "submit uses the first), SUBLET_SLOTS, SUBLET_LEASE (seconds) and SUBLET_PARTITIONS=1 in its environment. Give it the three "
    'tasks `echo` (its result is its whole payload), `sleep` {"seconds": N} and `boom` {"message": M}, which fails with message M'
)
"""What a client must be like to be examined, for one that cannot be."""
CONDUCT = ("claim-ids", "own-name", "names-queues", "durations", "scripts-only")
"""Rules that every trial with a worker shows something of."""


class Trial(NamedTuple):
    """A trial, the rules that it shows, and whether the namespace is there when it begins."""

    play: Callable[[Stage], Awaitable[None]]
    rules: tuple[str, ...]
    namespace: bool = True


TRIALS = (
    Trial(trials.slots, ("free-slots",)),
    Trial(troubles.leave, ("sigterm",)),
    Trial(troubles.idle, ("idle-rate", "wakes", "appointment")),
    Trial(trials.loss, ("hears-loss",)),
    Trial(troubles.forgotten, ("reloads-scripts",)),
    Trial(trials.cancel, ("hears-cancel",)),
    Trial(trials.beats, ("heartbeat",)),
    Trial(troubles.lost_heartbeat, ("lost-heartbeat",)),
    Trial(troubles.lost_ending, ("repeats-ending",)),
    Trial(troubles.away, ("server-away",)),
    Trial(troubles.busy, ("idle-rate",)),
    Trial(trials.endings, ("keeps-result", "tells-failure", "unknown-task", *CONDUCT)),
    Trial(trials.timeout, ("timeout",)),
    Trial(
        trials.produce, ("prints-id", "keeps-payload", "repeats-submit", "makes-namespace"), namespace=False
    ),
    Trial(trials.awaken, ("makes-namespace",), namespace=False),
    Trial(troubles.lost_claim, ("repeats-claim",)),
)
"""The long ones first."""


async def examine(
    command: Sequence[str],
    settings: Settings,
    names: set[str] | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> list[Verdict]:
    """Put a client through the trials that show these rules (all), and say of each rule whether it keeps it.

    Takes under a minute for a client that keeps them. `report` hears how many trials are over, of how many. Whatever happens, no
    process of the client's is left. Raises Invalid for a command that is not there, JobsError for one that sends no claim at
    all, Unavailable when the server does not answer.
    """
    subject, judge = Subject(command), Judge(names or set(BY_NAME))
    chosen = [trial for trial in TRIALS if judge.asks(*trial.rules)]
    if any(trial.play is not trials.produce for trial in chosen):
        await _see_it_has_the_tasks(subject, settings)
    await _play(chosen, AT_ONCE, subject, settings, judge, report)
    broken = {verdict.rule.name for verdict in judge.verdicts() if not verdict.kept} & TIMED
    again = Judge(broken)
    doubted = [
        trial for trial in chosen if again.asks(*trial.rules) or broken & set(CONDUCT)
    ]  # any trial shows its conduct
    await _play(doubted, 1, subject, settings, again)
    second = {verdict.rule.name: verdict for verdict in again.verdicts()}
    return [second.get(verdict.rule.name, verdict) for verdict in judge.verdicts()]


async def _see_it_has_the_tasks(subject: Subject, settings: Settings) -> None:
    """Start the worker once, to tell a client that does nothing at all, or lacks a task, in one sentence."""
    stage = Stage(subject, settings, Judge(set()))
    try:
        await stage.open()
        await stage.work()
        await _try_tasks(stage)
    except Broken as broken:
        raise JobsError(f"cannot examine `{' '.join(subject.words)}`: {broken}. {INTERFACE}") from None
    finally:
        await stage.close()


async def _try_tasks(stage: Stage) -> None:
    """Have each of the agreed tasks run. What goes wrong beside is for the rules to tell."""
    wanted = {"echo": {"value": 1}, "sleep": {"seconds": NAP}, "boom": {"message": "words"}}
    ids = {task: await stage.submit(task, payload, "tries=1") for task, payload in wanted.items()}
    with contextlib.suppress(Broken):
        await stage.until(
            lambda: all(stage.about(job_id, *ENDINGS) for job_id in ids.values()), "", TASKS_SECONDS
        )
    for task, job_id in ids.items():
        end = next(iter(stage.about(job_id, *ENDINGS)), None)
        if end and any(word.startswith("unknown_task") for word in end.args):
            raise Broken(f"the worker has no task `{task}`")
    claim, ends = stage.claim_of(ids["sleep"]), stage.about(ids["sleep"], "complete")
    if claim and ends and ends[0].at - claim.at < NAP / 2:
        raise Broken(
            f"its task `sleep` was over {ends[0].at - claim.at:.1f} s after the claim, with {wanted['sleep']}"
        )


async def _play(
    chosen: Sequence[Trial],
    at_once: int,
    subject: Subject,
    settings: Settings,
    judge: Judge,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Play some trials, a few at a time."""
    turn, done = asyncio.Semaphore(at_once), 0

    async def take_part(trial: Trial) -> None:
        nonlocal done
        async with turn:
            await _perform(trial, subject, settings, judge)
        done += 1
        report(done, len(chosen))

    try:
        async with asyncio.TaskGroup() as group:
            for trial in chosen:
                group.create_task(take_part(trial))
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _perform(trial: Trial, subject: Subject, settings: Settings, judge: Judge) -> None:
    """One trial from its set-up to its clearing away. What it did not come to is told with the reason."""
    stage, reason = Stage(subject, settings, judge), "the trial ended before it could be seen"
    try:
        await stage.open(namespace=trial.namespace)
        async with asyncio.timeout(TRIAL_SECONDS):
            await trial.play(stage)
            await judge_conduct(stage)
    except Broken as broken:
        reason = str(broken) if isinstance(broken, Gone) else f"it was not come to: {broken}"
    except Refused as refusal:
        reason = f"the server has lost what the client must leave alone: {refusal}"
    except TimeoutError:
        reason = f"the trial was not over after {TRIAL_SECONDS:g} s"
    finally:
        await stage.close()
    for name in trial.rules:
        if not judge.judged(name):
            judge.note(name, reason)
