"""A run as text: the calls, and their replies."""

from collections.abc import Callable
from typing import Any

from tests.faults.simulation.request import Request


def as_text(request: Request) -> str:
    """A request as text."""
    one, groups, words = request.one, request.groups, request.verb
    if words == "claim":
        wanted = f"up to {one['n']} jobs of" if int(one["n"]) else "no jobs, maintenance of"
        return f"claim {_claim(one['claim_id'])}: {wanted} {' and '.join(queue for (queue,) in groups)}, for {_s(one['lease'])}"
    if words == "submit":
        return "submit " + ", ".join(
            f"{i[2:]} in {queue}{f' ({rules})' * bool(rules)}" for i, queue, _, rules, _ in groups
        )
    if words == "heartbeat":
        return "heartbeat of " + ", ".join(_lease(*group) for group in groups)
    if words in _ENDINGS:
        return f"{words} " + ", ".join(f"{_lease(*group)}{_ENDINGS[words](*group[2:])}" for group in groups)
    if words == "reconcile":
        return f"reconcile {one['worker']}: " + (
            ", ".join(f"{i[2:]}, attempt {n}" for i, n in groups) or "its registration is removed"
        )
    if words == "fire":
        shots = [(name, occurrences, after) for name, _, _, occurrences, _, after, _ in groups]
        return "fire " + ", ".join(
            f"{name}: {occurrences or 'no occurrence'}, next {after or 'none'}"
            for name, occurrences, after in shots
        )
    if words == "schedule":
        return f"schedule {one['name']} from {one['occurrence']}"
    if words == "workflow":
        jobs = [_linked(*group) for group in groups]
        return f"{one['how']} {one['workflow'] or 'no workflow'}: {', '.join(jobs) or 'no jobs'}"
    if words == "step":
        return f"step of {_lease(one['id'], one['token'])}: {', '.join(name for name, _ in groups) or 'which are kept?'}"
    if words == "emit":
        return f"emit of {_lease(one['id'], one['token'])}: {' '.join(chunk for (chunk,) in groups)}"
    if words == "call":
        return f"call of a job in {one['queue']} for {one['name']} of {_lease(one['id'], one['token'])}"
    if words == "proceed":
        following = ", ".join(_linked(*group) for group in groups) or "no jobs"
        return f"proceed {_lease(one['id'], one['token'])} to {one['workflow']}: {following}"
    if words == "signal":
        return f"signal {one['name']} to {one['id'][2:]}: {one['value']}"
    if "worker" in one:
        return f"{words} {one['worker']}"
    if "id" in one:
        return f"{words} {one['id'][2:]} as of revision {one['revision']}"
    if "queue" in one:
        group = f", group {one['group']}," if "group" in one else ""
        return f"{words} queue {one['queue']}{group} as of revision {one['revision']}: {one.get('settings', '')}".rstrip(
            ": "
        )
    return f"{words} {', '.join(group[0].rpartition(':')[2].removeprefix('0-') for group in groups)}".rstrip()


_ENDINGS: dict[str, Callable[..., str]] = {
    "complete": lambda result: f" with {result}",
    "fail": lambda code, message, detail, again: f" with {code}{', final' * (again == 'no')}",
    "spend": lambda cost: f" for a cost of {cost}",
    "note": lambda checkpoint, log: f": {checkpoint}",
    "release": lambda delay, code, reason: f" for {_s(delay)}: {code} {reason}",
    "suspend": lambda kind, name, delay: (
        f" for the {kind} {name}" + (f", up to {_s(delay)}" if delay else "")
    ),
}


def answered(request: Request, reply: Any) -> str:
    """A reply as text."""
    if isinstance(reply, Exception):
        return f"refused: {reply}".replace("0-", "")
    if request.verb != "claim":
        words = reply if isinstance(reply, list) else [reply]
        return ", ".join(
            word.decode().removeprefix("0-") if isinstance(word, bytes) else str(word) for word in words
        )
    wait, leases = int(reply[1]) / 1000, [reply[i : i + 6] for i in range(3, len(reply) - 5, 6)]
    got = [
        f"{i.decode()[2:]}, attempt {attempt}{f' (before: {why.decode()})' * bool(why)}"
        for i, attempt, *_, why in leases
    ]
    return f"{'; '.join(got) or 'nothing'}; next claim within {wait:g} s"


def _linked(job_id: str, queue: str, _task: str, rules: str, _payload: str, after: str, into: str) -> str:
    edges = f"{f' after {after}' * bool(after)}{f' into {into}' * bool(into)}".replace("0-", "")
    return f"{job_id[2:]} in {queue}{f' ({rules})' * bool(rules)}{edges}"


def _claim(claim_id: str) -> str:
    worker, _, number = claim_id.rpartition(".")
    return f"{worker}#{int(number)}"


def _lease(job_id: str, token: str, *_: str) -> str:
    return f"{job_id[2:]} (lease of {_claim(token.partition('.')[2])})"


def _s(ms: str) -> str:
    return f"{int(ms) / 1000:g} s"
