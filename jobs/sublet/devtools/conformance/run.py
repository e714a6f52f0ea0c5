"""Run trials against a client, several at a time, and judge the rules."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sublet.connection.settings import Settings
from sublet.devtools.conformance import fault_trials, optional_trials, trials
from sublet.devtools.conformance.client_process import Client
from sublet.devtools.conformance.command_rules import check_commands
from sublet.devtools.conformance.context import ENDINGS, RuleBroken, TrialContext, WorkerEnded
from sublet.devtools.conformance.rules import CORE, TIMED, Judge, Verdict
from sublet.errors import JobsError, Refused

AT_ONCE = 6
TRIAL_SECONDS = 60.0
FIRST_SLEEP, TASKS_SECONDS = 0.5, 4.0
INTERFACE = (
    "The client is run as `CMD submit TASK JSON` and `CMD work`, with SUBLET_REDIS_URL, SUBLET_NAMESPACE, SUBLET_QUEUES (commas; "
    "submit uses the first), SUBLET_SLOTS, SUBLET_LEASE (seconds) and SUBLET_PARTITIONS=1 in its environment. Give it the three "
    'tasks `echo` (its result is its whole payload), `sleep` {"seconds": N} and `boom` {"message": M}, which fails with message M'
)
COMMAND_RULES = ("claim-ids", "own-name", "names-queues", "durations", "scripts-only")


class Trial(NamedTuple):
    """A trial, the rules that it checks, and whether its namespace exists at the start."""

    run: Callable[[TrialContext], Awaitable[None]]
    rules: tuple[str, ...]
    namespace: bool = True


TRIALS = (
    Trial(trials.slots, ("free-slots",)),
    Trial(optional_trials.register, ("enlists", "spares-the-living", "leaves")),
    Trial(fault_trials.leave, ("sigterm",)),
    Trial(fault_trials.idle, ("idle-rate", "wakes", "appointment")),
    Trial(trials.loss, ("hears-loss",)),
    Trial(fault_trials.forgotten, ("reloads-scripts",)),
    Trial(trials.cancel, ("hears-cancel",)),
    Trial(trials.beats, ("heartbeat",)),
    Trial(fault_trials.lost_heartbeat, ("lost-heartbeat",)),
    Trial(fault_trials.lost_ending, ("repeats-ending",)),
    Trial(fault_trials.away, ("server-away",)),
    Trial(fault_trials.busy, ("idle-rate",)),
    Trial(trials.endings, ("keeps-result", "tells-failure", "unknown-task", *COMMAND_RULES)),
    Trial(trials.timeout, ("timeout",)),
    Trial(
        trials.produce, ("prints-id", "keeps-payload", "repeats-submit", "makes-namespace"), namespace=False
    ),
    Trial(trials.awaken, ("makes-namespace",), namespace=False),
    Trial(fault_trials.lost_claim, ("repeats-claim",)),
    Trial(optional_trials.drain, ("drains",)),
    Trial(optional_trials.waiters, ("waits",)),
    Trial(optional_trials.count, ("keeps-checkpoint",)),
    Trial(optional_trials.errand, ("keeps-steps", "suspends")),
    Trial(optional_trials.schedules, ("fires", "leaves-unread")),
)


async def examine(
    command: Sequence[str],
    settings: Settings,
    names: set[str] | None = None,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> list[Verdict]:
    """Run the trials of these rules (None: all that are not optional); return a verdict per rule. Broken
    TIMED rules are tried again; the second verdict counts.

    `report` gets the numbers of finished and all trials. Raises Invalid for a missing command, or another URL
    than redis:// or unix://, JobsError if the client sends no claim, lacks a task or ends `sleep` too soon,
    Unavailable without a server.
    """
    client, judge = Client(command), Judge(names or CORE)
    chosen = [trial for trial in TRIALS if judge.wants(*trial.rules)]
    if any(trial.run is not trials.produce for trial in chosen):
        await _check_tasks(client, settings)
    await _run_trials(chosen, AT_ONCE, client, settings, judge, report)
    broken = {verdict.rule.name for verdict in judge.verdicts() if not verdict.kept} & TIMED
    again = Judge(broken)
    doubted = [trial for trial in chosen if again.wants(*trial.rules) or broken & set(COMMAND_RULES)]
    await _run_trials(doubted, 1, client, settings, again)
    second = {verdict.rule.name: verdict for verdict in again.verdicts()}
    return [second.get(verdict.rule.name, verdict) for verdict in judge.verdicts()]


async def _check_tasks(client: Client, settings: Settings) -> None:
    context = TrialContext(client, settings, Judge(set()))
    try:
        await context.open()
        await context.work()
        await _try_tasks(context)
    except RuleBroken as broken:
        raise JobsError(f"`{' '.join(client.words)}` cannot be tested: {broken}. {INTERFACE}") from None
    finally:
        await context.close()


async def _try_tasks(context: TrialContext) -> None:
    wanted = {"echo": {"value": 1}, "sleep": {"seconds": FIRST_SLEEP}, "boom": {"message": "words"}}
    ids = {task: await context.submit(task, payload, "tries=1") for task, payload in wanted.items()}
    with contextlib.suppress(RuleBroken):
        await context.until(
            lambda: all(context.about(job_id, *ENDINGS) for job_id in ids.values()), "", TASKS_SECONDS
        )
    for task, job_id in ids.items():
        end = next(iter(context.about(job_id, *ENDINGS)), None)
        if end and "unknown_task" in end.args:
            raise RuleBroken(f"the worker has no task `{task}`, or refuses its arguments")
    claim, ends = context.claim_of(ids["sleep"]), context.about(ids["sleep"], "complete")
    if claim and ends and ends[0].at - claim.at < FIRST_SLEEP / 2:
        raise RuleBroken(
            f"its task `sleep` ended {ends[0].at - claim.at:.1f} s after the claim, earlier than its payload asks: {wanted['sleep']}"
        )


async def _run_trials(
    chosen: Sequence[Trial],
    at_once: int,
    client: Client,
    settings: Settings,
    judge: Judge,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    turn, done = asyncio.Semaphore(at_once), 0

    async def run_one(trial: Trial) -> None:
        nonlocal done
        async with turn:
            await _run_trial(trial, client, settings, judge)
        done += 1
        report(done, len(chosen))

    try:
        async with asyncio.TaskGroup() as group:
            for trial in chosen:
                group.create_task(run_one(trial))
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def _run_trial(trial: Trial, client: Client, settings: Settings, judge: Judge) -> None:
    context, reason = TrialContext(client, settings, judge), "the trial ended before the rule was checked"
    try:
        await context.open(namespace=trial.namespace)
        async with asyncio.timeout(TRIAL_SECONDS):
            await trial.run(context)
            await check_commands(context)
    except RuleBroken as broken:
        reason = str(broken) if isinstance(broken, WorkerEnded) else f"not reached: {broken}"
    except Refused as refusal:
        reason = f"the server refused a call of the trial: {refusal}"
    except TimeoutError:
        reason = f"the trial was not over after {TRIAL_SECONDS:g} s"
    finally:
        await context.close()
    for name in trial.rules:
        if not judge.judged(name):
            judge.note(name, reason)
