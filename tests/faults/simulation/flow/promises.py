"""What flow control promises, checked after each script against an account of its own: of places, tokens and appointments.

- No more jobs of a queue or a group run than their limit allows, unless it was lowered.
- Whatever runs by turns holds a place under its id, and nothing else does.
- A group with waiting jobs has a turn, or a limit holds it back now: no place is free, or its token has not come.
- Over any window a rate gives at most its burst and the tokens that came in it.
- A claim that could take more jobs leaves none that may start. When one may start later, or earlier than before, a worker
  is woken for it, or will claim by then.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from tests.faults.simulation.flow.limits import Bucket, Limits, limits_of, limits_of_group
from tests.faults.simulation.history import Settings
from tests.faults.simulation.request import Request, must, rules_of

if TYPE_CHECKING:
    from tests.faults.simulation.invariants import Checker
    from tests.faults.simulation.server import Look

BAND = 2**44
"""A turn's score has the priority of the group's first job above this."""
LATE = 50
"""Ms after its moment for which a worker may still come."""


@cache
def facts(header: str) -> tuple[str, int]:
    """A job's group and cost."""
    rules = rules_of(header)
    return rules.get("group", ""), int(rules.get("cost", 1))


def stored_bucket(look: "Look", name: str) -> float:
    """When all tokens of a queue or group are there again, as it is stored."""
    return float(look.flow.get(f"tat:{name}", 0))


class Flow:
    """The account of flow control, by queue."""

    def __init__(self, checker: "Checker") -> None:
        self.checker, self.before, self.now, self.repeated = checker, checker.look, 0, False
        self.slack = 0.0
        """By how many ms a script's moment may be earlier than `now`: 0 under a simulated clock."""
        self.own: dict[tuple[str, str], str] = {}
        """(queue, group) → its own settings."""
        self.buckets: dict[str, Bucket] = {}
        """Queue, or `<queue>|<group>` → its tokens."""
        self.held: dict[str, int] = {}
        """The jobs that hold a place, each with the cost that it took tokens for."""
        self.next: dict[str, float | None] = {}
        """Queue → the moment (ms) from which its next job may start; None if none may, whatever the time."""
        self.comes: dict[tuple[str, str], int] = {}
        """(queue, worker) → the moment by which it claims again."""
        self.outlived: dict[str, dict[str, float]] = {}
        """The waits for tokens, by their key, at which the clock was last set back: they last until these moments."""

    def save(self) -> tuple[Any, ...]:
        """A copy of the account, to compare and to restore."""
        buckets = tuple((name, one.rate, one.full_at, tuple(one.used)) for name, one in self.buckets.items())
        parts = (self.own, self.held, self.next, self.comes)
        return self.now, buckets, *(tuple(part.items()) for part in parts)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore this account."""
        self.now, buckets, *parts = saved
        self.buckets = {name: Bucket(rate, at, list(used)) for name, rate, at, used in buckets}
        self.own, self.held, self.next, self.comes = map(dict, parts)

    # what applies

    def settings(self, queue: str) -> str:
        """The limits that operators have set."""
        return self.checker.settings.get(queue, Settings()).limits

    def limits(self, queue: str, group: str | None = None) -> Limits:
        """The limits of a queue, or of a group of it."""
        text = self.settings(queue)
        return (
            limits_of(text)
            if group is None
            else limits_of_group(group, self.own.get((queue, group), ""), text)
        )

    def facts(self, i: str) -> tuple[str, int]:
        """A job's group and cost, by its header."""
        return facts(self.checker.look.jobs[i]["spec"].partition("\n")[0])

    def bucket(self, queue: str, group: str | None = None) -> Bucket:
        """The tokens of a queue or group, under the rate that applies now."""
        name = queue if group is None else f"{queue}|{group}"
        bucket = self.buckets.setdefault(name, Bucket())
        bucket.change(self.limits(queue, group).rate, stored_bucket(self.before, name))
        return bucket

    def members(self, queue: str, state: str) -> dict[str, list[str]]:
        """The jobs of a queue in a state, by group."""
        found: dict[str, list[str]] = {}
        for i, life in self.checker.lives.items():
            if life.state == state and life.queue == queue:
                found.setdefault(self.facts(i)[0], []).append(i)
        return found

    # after each script

    def executed(
        self, request: Request, reply: Any, moved: dict[str, str], before: "Look", repeated: bool
    ) -> None:
        """Follow a script, and check the stored data afterwards. A repeated claim promises nothing."""
        look, self.before, self.repeated = self.checker.look, before, repeated
        if look.now < self.now:  # a clock that was set back: tokens come later, or had been forgotten
            known = before if request.verb in ("claim", "spend") else look
            for name, bucket in self.buckets.items():
                bucket.full_at, bucket.used = stored_bucket(known, name), []
            self.outlived = {
                key: dict(waits) for key, waits in before.flow.items() if key.startswith("tokens:")
            }
            back = self.now - look.now  # workers wait by clocks of their own
            self.comes |= {
                (queue, f"{who}, by its own clock"): min(at - back, look.now)
                for (queue, who), at in self.comes.items()
            }
            self.next = {queue: at and at - back for queue, at in self.next.items()}
        self.now = look.now
        self.held = {i: cost for i, cost in self.held.items() if self.checker.lives[i].state == "running"}
        started = (
            []
            if request.verb != "claim"
            else [i.decode() for i in reply[3::6] if moved.get(i.decode()) == "running"]
        )
        for queue, text in look.hashes.get("queues", {}).items():
            if " flow=1" in text:
                self.started(queue, [i for i in started if self.checker.lives[i].queue == queue])
        if request.verb == "spend":
            self.spent(request, reply)
        for queue, text in look.hashes.get("queues", {}).items():
            if queue != "*":
                self.stored(queue, " flow=1" in text)
                self.told(queue, " flow=1" in text, request, reply, started)
        used = {name.partition(":")[2].partition("|")[0] for name in look.flow}
        must(used <= look.hashes.get("queues", {}).keys(), f"flow control of unknown queues: {used}")

    def started(self, queue: str, ids: list[str]) -> None:
        """Jobs start: a limit allows each, and they take places and tokens."""
        running = self.members(queue, "running") if ids else {}
        for i in ids:
            group, cost = self.facts(i)
            for owner, number in ((None, sum(map(len, running.values()))), (group, len(running[group]))):
                most = self.limits(queue, owner).concurrency
                must(
                    number <= most,
                    f"{i} starts, and {number} of {queue}{f'|{owner}' * (owner is not None)} run, at most {most:g} may",
                )
                self.bucket(queue, owner).start(
                    queue if owner is None else f"{queue}|{owner}", self.now, cost, self.slack
                )
            self.held[i] = cost

    def spent(self, request: Request, reply: Any) -> None:
        """Corrected costs: the differences are taken or given back."""
        for (i, _, cost), answer in zip(request.groups, reply, strict=True):
            if answer == b"spent" and i in self.held:
                queue, group = self.checker.lives[i].queue, self.facts(i)[0]
                for owner in (None, group):
                    self.bucket(queue, owner).charge(self.now, int(cost) - self.held[i])
                self.held[i] = int(cost)

    # the stored data

    def stored(self, queue: str, by_turns: bool) -> None:
        """Check places, turns and tokens of a queue."""
        flow, text = self.checker.look.flow, self.settings(queue)
        waiting, running = self.members(queue, "queued"), self.members(queue, "running")
        own = {group: words for (name, group), words in self.own.items() if name == queue and words}
        must(
            flow.get(f"groups:{queue}", {}) == own,
            f"groups of {queue} have {flow.get(f'groups:{queue}')}, expected {own}",
        )
        limited = bool(own) or "concurrency=" in text or "rate=" in text
        if not by_turns:
            kinds = ("waiting", "turns", "full", "tokens", "places")
            left = [
                name
                for name in flow
                if name.split(":")[0] in kinds and name.split(":")[1].split("|")[0] == queue
            ]
            must(
                not left and "concurrency=" not in text and "rate=" not in text,
                f"{queue} has limits or {left}, and no turns",
            )
            return
        self.places(queue, running, limited)
        for group, ids in waiting.items():
            home = (
                flow.get(f"waiting:{queue}|{group}", {})
                if group
                else self.checker.look.shelves.get(f"queue:{queue}", {})
            )
            must(
                home.keys() == set(ids), f"{queue}|{group} has {sorted(home)} waiting, expected {sorted(ids)}"
            )
        self.turns(queue, waiting, running)
        for name in [name for name in self.buckets if name.partition("|")[0] == queue]:
            bucket = self.bucket(queue, name.partition("|")[2] if "|" in name else None)
            if bucket.rate:
                found, spare = stored_bucket(self.checker.look, name), self.slack + 1
                same = abs(found - bucket.full_at) < spare or max(found, bucket.full_at) <= self.now + spare
                must(
                    same,
                    f"the tokens of {name} are there {found - self.now:g} ms from now, expected {bucket.full_at - self.now:g}",
                )
                bucket.full_at = found or bucket.full_at

    def places(self, queue: str, running: dict[str, list[str]], limited: bool) -> None:
        """Check that running jobs, and only they, hold places: all if there is a limit, else at least those taken by turns."""
        look = self.checker.look
        places = look.flow.get(f"places:{queue}", {})
        everyone = {i: group for group, ids in running.items() for i in ids}
        for i in everyone:
            if limited or i in places:
                self.held.setdefault(i, self.facts(i)[1])
        wanted = {i: group for i, group in everyone.items() if i in self.held}
        must(places == wanted, f"the places of {queue} are {places}, expected {wanted}")
        groups = {name.partition("|")[2] for name in look.flow if name.startswith(f"places:{queue}|")}
        for group in groups | set(wanted.values()) - {""}:
            held, due = (
                look.flow.get(f"places:{queue}|{group}", set()),
                {i for i in wanted if wanted[i] == group},
            )
            must(held == due, f"the places of {queue}|{group} are {held}, expected {due}")
        costs = {i: look.jobs[i].get("held") for i in everyone}
        due_costs = {i: str(self.held[i]) if i in self.held else None for i in everyone}
        must(costs == due_costs, f"the running jobs of {queue} hold {costs}, expected {due_costs}")

    def turns(self, queue: str, waiting: dict[str, list[str]], running: dict[str, list[str]]) -> None:
        """Check that each group with waiting jobs has a turn, unless a limit of its own holds it back now."""
        flow = self.checker.look.flow
        turns, full, tokens = (flow.get(f"{kind}:{queue}", {}) for kind in ("turns", "full", "tokens"))
        both = turns.keys() & full.keys()
        must(not both, f"{queue}|{both} have a turn and are held back")
        must(
            tokens.keys() <= full.keys(),
            f"{queue} waits for tokens of {tokens.keys() - full.keys()}, which are not held back",
        )
        must(
            turns.keys() | full.keys() == waiting.keys(),
            f"{queue} has turns of {[*turns, *full]}, expected {[*waiting]}",
        )
        for group, ids in waiting.items():
            score, head = self.head(queue, group, ids)
            if group in turns:
                must(
                    turns[group] // BAND == score // BAND,
                    f"the turn of {queue}|{group} has another priority than {head}",
                )
                continue
            limit, runs = self.limits(queue, group), len(running.get(group, ()))
            at = self.bucket(queue, group).allowed_at(self.facts(head)[1])
            if group in tokens and self.outlived.get(f"tokens:{queue}", {}).get(group) == tokens[group]:
                continue
            if group in tokens:
                must(
                    tokens[group] < at + 2 + self.slack,
                    f"{queue}|{group} waits until {tokens[group]:g}, its token comes at {at:g}",
                )
            else:
                must(
                    runs >= limit.concurrency,
                    f"{queue}|{group} has {len(ids)} waiting, {runs} of {limit.concurrency:g} running, and no turn",
                )

    def head(self, queue: str, group: str, ids: list[str]) -> tuple[float, str]:
        """The first job of a group, after its score."""
        shelf = self.checker.look.shelves[f"{'grouped' if group else 'queue'}:{queue}"]
        return min((shelf[i], i) for i in ids)

    # who comes when

    def next_at(self, queue: str) -> float | None:
        """The moment from which the queue's next job may start, whichever group has the turn; None if none may."""
        waiting, running = self.members(queue, "queued"), self.members(queue, "running")
        if self.checker.paused(queue) or sum(map(len, running.values())) >= self.limits(queue).concurrency:
            return None
        costs = {group: self.facts(self.head(queue, group, ids)[1])[1] for group, ids in waiting.items()}
        free = [
            group for group in waiting if len(running.get(group, ())) < self.limits(queue, group).concurrency
        ]
        moments = [self.bucket(queue, group).allowed_at(costs[group]) for group in free]
        return max(min(moments), self.bucket(queue).allowed_at(max(costs.values()))) if moments else None

    def told(self, queue: str, by_turns: bool, request: Request, reply: Any, started: list[str]) -> None:
        """Check that a worker comes for the next job: whenever one may start earlier than before, and after each claim."""
        at = self.next_at(queue) if by_turns else None
        before, self.next[queue] = self.next.get(queue), at
        is_claim = request.verb == "claim" and not self.repeated and (queue,) in request.groups
        if is_claim:
            wanted = int(request.one["n"]) - len(started)
            must(
                at is None or at > self.now - self.slack or wanted <= 0,
                f"a claim took {len(started)}, and left a job of {queue} that may start",
            )
            self.comes[queue, request.one["worker"]] = self.now + int(reply[1])
        if at is None or (not is_claim and before is not None and max(at, self.now) >= max(before, self.now)):
            return
        if self.checker.look.wake_ups.get(queue) or queue in self.checker.takers:
            return
        by = max(at, self.now)
        stored = self.checker.look.flow.get(f"flow:{queue}", {}).get("alarm", "0 ").split(" ", 1)
        kept = float(stored[0])
        comes = any(
            name == queue
            and moment <= by + 1 + self.slack
            and (
                moment + LATE >= self.now
                # It said that it comes before its appointment, and is late: after that moment another one comes
                or (who == stored[1] and moment <= kept + 1 and kept <= by + 1 and kept + LATE >= self.now)
            )
            for (name, who), moment in self.comes.items()
        )
        must(comes, f"a job of {queue} may start {by - self.now:g} ms from now, and no worker comes for it")
