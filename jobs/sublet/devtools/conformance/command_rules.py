"""Rules for every command, checked at the end of each trial."""

import re
from collections.abc import Awaitable, Callable

from sublet.devtools.conformance.context import TrialContext
from sublet.devtools.conformance.proxy import Seen, text
from sublet.devtools.conformance.rules import LEASE
from sublet.protocol import keys

ID_LENGTH, ID_CHANGE = 22, 8
DELAY_MAX = 86_400_000


async def check_commands(context: TrialContext) -> None:
    """Check the commands that a trial recorded, and record the verdicts. Without a claim, check nothing."""
    if not context.seen("claim"):
        return
    checks: dict[str, Callable[[TrialContext], Awaitable[str] | str]] = {
        "claim-ids": _claim_ids,
        "own-name": _own_name,
        "names-queues": _names_queues,
        "durations": _durations,
        "scripts-only": _scripts_only,
    }
    for name, check in checks.items():
        if context.judge.wants(name):
            seen = check(context)
            context.judge.note(name, seen if isinstance(seen, str) else await seen)


def _claim_ids(context: TrialContext) -> str:
    last: dict[str, Seen] = {}
    for seen in context.seen("claim"):
        claim_id = seen.args[0]
        if not re.fullmatch(rf"[A-Za-z0-9_.:-]{{{ID_LENGTH},64}}", claim_id):
            return f"claim id {claim_id[:80]!r} is not {ID_LENGTH} to 64 of A-Z a-z 0-9 _ . : -"
        before = last.get(claim_id)
        heard = before and before.replied_at and not before.fate and before.link not in context.proxy.broken
        gives_back = seen.args[3] == "0"  # its caller left, perhaps before the reply
        if before and heard and not before.refused and not gives_back:
            return f"claim id {claim_id!r} was used again for another claim after its reply"
        alike = next(
            (other for other in last if other != claim_id and _differ(other, claim_id) < ID_CHANGE), None
        )
        if alike:
            return f"claim ids {alike!r} and {claim_id!r} differ in only {_differ(alike, claim_id)} places: use random ids"
        last[claim_id] = seen
    return ""


def _differ(one: str, other: str) -> int:
    return abs(len(one) - len(other)) + sum(a != b for a, b in zip(one, other, strict=False))


def _own_name(context: TrialContext) -> str:
    names = {seen.args[1] for seen in context.seen("claim")}
    bad = next((name for name in names if not keys.is_name(name)), None)
    if bad is not None:
        return f"the worker's name {bad[:140]!r} is not 1 to 128 of A-Z a-z 0-9 _ . : -"
    return (
        f"one process used several names: {len(names)} names in {context.started} runs of `work`"
        if len(names) > context.started
        else ""
    )


def _names_queues(context: TrialContext) -> str:
    for seen in context.seen("claim"):
        if seen.args[4:] != context.queues:
            return f"with SUBLET_QUEUES={','.join(context.queues)} it claimed from {','.join(seen.args[4:])[:120]}"
    return ""


def _durations(context: TrialContext) -> str:
    for seen in context.seen("claim", "heartbeat"):
        lease = seen.args[2] if seen.verb == "claim" else seen.args[0]
        if lease != str(LEASE * 1000):
            return f"{seen.verb} requested a lease of {lease[:40]} ms, and SUBLET_LEASE is {LEASE} (seconds)"
    for seen in context.seen("release"):
        bad = next(
            (delay for delay in seen.args[2::5] if not delay.isdigit() or int(delay) > DELAY_MAX), None
        )
        if bad is not None:
            return f"release sent a delay of {bad[:40]} ms: use 0 to {DELAY_MAX}"
    if any(
        word.startswith("at=")
        for seen in context.seen("submit")
        for word in " ".join(seen.args[3::5]).split()
    ):
        return "submit sent a start time (at=) that was not asked for"
    return ""


async def _scripts_only(context: TrialContext) -> str:
    markers = {keys.wake(context.base, name) for name in context.queues}
    own = keys.wake(context.base, "|")  # the client's own list, which ends its blocking read
    claims = keys.claim(context.base, "")
    writes = {text(name).upper() for name in await context.raw("COMMAND LIST", "FILTERBY", "ACLCAT", "write")}
    taken = 0
    for seen in context.proxy.log:
        if seen.name in ("EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL"):
            if not seen.verb:
                return (
                    f"{seen.name} of a script that is not in this version's lua/ ({' '.join(seen.args)[:60]})"
                )
        elif seen.name in ("BLPOP", "BRPOP") and all(
            key in markers or key.startswith(own) for key in seen.args[:-1]
        ):
            taken += isinstance(seen.reply, list) and text(seen.reply[0]) in markers
        elif seen.name in ("LPUSH", "PEXPIRE") and seen.args[0].startswith(own):
            continue
        elif seen.name == "SET" and seen.args[0].startswith(claims) and seen.args[1:3] == ["-", "NX"]:
            continue  # withdraws a claim
        elif seen.name in ("LPUSH", "RPUSH") and seen.args[0] in markers and len(seen.args) == 2 and taken:
            taken -= 1  # returning a wake-up is allowed
        elif seen.name in writes:
            return f"{seen.name} {' '.join(seen.args)[:80]}"
    return ""
