"""Invariants that must hold after each script run, also after repeated and late requests.

The checker gets each request as Redis ran it, its answer, its events, and all data stored afterwards. It
passes the state changes to `history.follow`, and compares the stored data with the resulting histories.
"""

import json
from collections import Counter
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from sublet.operations.statistics import BOUNDS
from sublet.protocol.reads import TOTALS
from tests.faults.simulation.flow.promises import Flow
from tests.faults.simulation.history import (
    BY_LEASE,
    Life,
    Move,
    Settings,
    answer_to_lease,
    answer_to_order,
    answer_to_reconcile,
    arrange,
    follow,
)
from tests.faults.simulation.hook_ids import hook_id
from tests.faults.simulation.request import Request, Violation, must, rules_of
from tests.faults.simulation.server import Look, Redis
from tests.faults.simulation.streams import Streams
from tests.faults.simulation.workflows.edges import Edges
from tests.faults.simulation.workflows.steps import Steps

FINISHED = ("completed", "dead", "cancelled")
WAITING = ("scheduled", "queued")
ORDERS = ("cancel", "retry", "promote", "reschedule")
ARRANGEMENTS = ("pause", "resume", "configure", "group")
BY_TIME = {"due": "due", "lease_expired": "expire", "timed_out": "expire"}
COUNTED = {"submit": "submitted", "workflow": "submitted", "fire": "submitted", "on_dead": "submitted", "fail": "failed", "release": "released", "expire": "expired",
           "reconcile": "expired"}  # fmt: skip
HOOK_TRIES = 20
"""Tries of a job that reports a death."""
GRACE, MEMO, CAP = 5000, 10_000, 2000
"""In ms: a lease's grace after the timeout, the lifetime of a memo, and the longest wait of a worker."""


class Checker:
    """Checks after each step. Raises Violation."""

    def __init__(self, redis: Redis) -> None:
        self.redis, self.look = redis, redis.look()
        self.lives: dict[str, Life] = {}
        self.totals: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """The counts by queue that the scripts must have."""
        self.fence = 0
        self.claims: dict[str, tuple[int, str, frozenset[str]]] = {}
        self.settings: dict[str, Settings] = {}
        self.takers: dict[str, tuple[Any, int]] = {}
        self.register: dict[str, tuple[str, bool]] = {}
        """Worker → its life, and whether it was asked to drain."""
        self.promised: dict[str, str] = {}
        """The job of each occurrence that must be fired in the end → the message if it is not."""
        self.flow, self.edges, self.steps = Flow(self), Edges(self), Steps(self)
        self.streams = Streams(self)

    def save(self) -> tuple[Any, ...]:
        """A copy of the checker's state, to compare and to restore."""
        lives = tuple(tuple(vars(life).values()) for life in self.lives.values())
        claims, register = tuple((i, *rest) for i, rest in self.claims.items()), tuple(self.register.items())
        counted = tuple(sorted(self.totals.items())), tuple(sorted(self.counts.items()))
        linked = self.edges.save(), self.steps.save()
        return (
            lives,
            counted,
            self.fence,
            claims,
            register,
            tuple(self.settings.items()),
            self.flow.save(),
            linked,
        )

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore this state. Redis must be restored before."""
        lives, (totals, counts), self.fence, claims, register, settings, flow, (edges, steps) = saved
        self.register, self.settings = dict(register), dict(settings)
        self.flow.restore(flow)
        self.edges.restore(edges)
        self.steps.restore(steps)
        self.lives = {life[0]: Life(*life) for life in lives}
        self.totals, self.counts = Counter(dict(totals)), Counter(dict(counts))
        self.claims = {i: rest for i, *rest in claims}
        self.look = self.redis.look()

    def executed(self, process: Any, request: Request, reply: Any) -> None:
        """Check a request that Redis has run: its reply, its state changes, and all stored data."""
        before, self.look = self.look, self.redis.look()
        events = self.redis.events()
        if isinstance(reply, ResponseError):
            self.refused(request, reply, before)
            return
        wanted = self.wanted(request)
        self.known(request, reply, before)
        hooks, dead = self.hooked(before), set()
        moved: dict[str, str] = {}
        started: set[str] = set()
        for event in events:
            for i in event["jobs"].split():
                was, state = (
                    self.lives[i].state if i in self.lives else None,
                    self.moved(request, i, event, before),
                )
                dead |= {i} if state == "dead" else set()
                if event["code"] not in ("on_dead", "upstream", "called"):
                    moved[i] = state
                elif was == "scheduled" and event["code"] == "upstream" and state != "cancelled":
                    started.add(i)
        self.reported(dead, hooks)
        self.forgotten(request, before)
        self.steps.called()
        self.answered(request, reply, wanted, moved, before)
        self.stored()
        self.edges.executed(before, started)
        self.steps.stored(self.look)
        self.streams.executed(request, before, is_accepted=True)
        self.schedules(before)
        self.queues(process, request)
        self.flow.executed(request, reply, moved, before, self.repeats(request, before) and not moved)

    # replies

    def wanted(self, request: Request) -> list[str]:
        """The required reply to each item; empty for an item that must take effect."""
        if request.verb in ARRANGEMENTS:
            queue, one = request.one["queue"], request.one
            settings = self.settings.get(queue, Settings())
            words, own = one.get("settings", ""), self.flow.own.get((queue, one.get("group", "")), "")
            self.settings[queue], answer = arrange(settings, request.verb, one["revision"], words, own)
            if request.verb == "group" and answer != "CHANGED":
                self.flow.own[queue, one["group"]] = words
            return [answer]
        if request.verb in ORDERS:
            one = request.one
            life, rules = self.lives.get(one["id"]), one.get("rules", "")
            return [answer_to_order(life, request.verb, one["revision"], rules) or self.waits(request)]
        if request.verb in ("step", "call", "signal"):
            return [self.steps.wanted(request, self.lives.get(request.one["id"]))]
        if request.verb == "emit":
            return [answer_to_lease(self.lives.get(request.one["id"]), "emit", request.one["token"])]
        if request.verb == "proceed":
            return self.wanted(request.parts()[0])
        if request.verb in ("enlist", "drain"):
            return [self.registered(request.verb, request.one["worker"], request.one["life"])]
        if request.verb == "reconcile":
            return self.reconciled(request, request.one["worker"], request.one["life"])
        if request.verb in (*BY_LEASE, "heartbeat", "note", "spend"):
            return [
                answer_to_lease(self.lives.get(group[0]), request.verb, group[1]) for group in request.groups
            ]
        return []

    def waits(self, request: Request) -> str:
        """The code with which an order must be refused because of the wait of its job; else empty."""
        i, verb, rules = request.one["id"], request.verb, f" {request.one.get('rules', '')}"
        signal = verb == "promote" and self.steps.awaits.get(i, ("",))[0] == "signal"
        moves = (
            verb == "reschedule" and (" at=" in rules or " delay=" in rules) and "needs" in self.look.jobs[i]
        )
        return "WRONG_STATE" if signal or moves else ""

    def registered(self, verb: str, worker: str, life: str) -> str:
        """The required reply to an enlist or a drain."""
        known, drained = self.register.get(worker, ("", False))
        if verb == "drain" and known != life:
            return "CHANGED" if known else "NOT_FOUND"
        self.register[worker] = (life, verb == "drain" or (drained and known == life))
        return "drain" if self.register[worker][1] else "work"

    def reconciled(self, request: Request, worker: str, life: str) -> list[str]:
        """The required replies to the leases of a worker that is considered dead."""
        known = self.register.get(worker, ("", False))[0]
        if not request.groups and known == life:
            del self.register[worker]
        if known not in ("", life):
            return [
                answer_to_reconcile(self.lives.get(i), worker, n) and "LEASE_LOST" for i, n in request.groups
            ]
        return [answer_to_reconcile(self.lives.get(i), worker, n) for i, n in request.groups]

    def refused(self, request: Request, error: ResponseError, before: Look) -> None:
        """Check that a refusal is the required one, and has changed nothing."""
        if isinstance(error, NoScriptError):
            return
        code = str(error).split(" ")[0]
        must(
            request.verb in (*ORDERS, *ARRANGEMENTS, "drain", "step", "call", "signal", "emit"),
            f"{request.verb} was refused, and may not be: {error}",
        )
        (wanted,) = self.wanted(request)
        if code == "KEY_TAKEN" and not wanted:
            i = request.one["id"]
            wanted = code if before.locks.get(self.lives[i].key, (i,))[0] != i else ""
        must(code == wanted, f"refused with {error}, expected {wanted or 'no refusal'}")
        look = self.look
        # A rate's key expires by itself when all its tokens are there
        flow = {
            key: value for key, value in before.flow.items() if key in look.flow or not key.startswith("tat:")
        }
        same = (before.jobs, before.shelves, flow, before.hashes, before.edges) == (
            look.jobs,
            look.shelves,
            look.flow,
            look.hashes,
            look.edges,
        )
        must(same, f"{request.verb} was refused ({code}) and changed stored data")
        self.streams.executed(request, before, is_accepted=False)

    def answered(
        self, request: Request, reply: Any, wanted: list[str], moved: dict[str, str], before: Look
    ) -> None:
        """Check that each reply is the required one, with exactly the required effects."""
        if request.verb == "claim":
            self.claimed(request, reply, moved, before)
        elif request.verb in ORDERS:
            self.ordered(request, reply.decode(), wanted[0], moved, before)
        elif request.verb in ARRANGEMENTS:
            must(reply.decode() == wanted[0], f"{request} returned {reply.decode()}, expected {wanted[0]}")
        elif request.verb in ("enlist", "drain"):
            must(
                reply.decode() == wanted[0] and not moved,
                f"{request} returned {reply.decode()}, expected {wanted[0]}",
            )
        elif request.verb == "spend":
            words = [word.decode() for word in reply]
            must(words == [due or "spent" for due in wanted] and not moved, f"{request} returned {words}")
        elif request.verb in ("step", "call", "signal"):
            self.steps.answered(request, reply, moved)
        elif request.verb == "emit":
            must(reply == b"emitted" and wanted == [""] and not moved, f"{request} returned {reply.decode()}")
        elif request.verb == "proceed":
            self.proceeded(request, reply.decode(), wanted, moved, before)
        elif request.verb == "note":
            self.noted(request, [word.decode() for word in reply], wanted, moved)
        elif request.verb == "heartbeat":
            for (i, *_), word, due in zip(request.groups, reply, wanted, strict=True):
                self.beaten(request, i, word if isinstance(word, int) else word.decode(), due)
        elif request.verb in (*BY_LEASE, "reconcile"):
            live = {group[0] for group, due in zip(request.groups, wanted, strict=True) if not due}
            must(moved.keys() == live, f"{request.verb} moved {set(moved)}, expected {live}")
            self.totals["lease_lost"] += wanted.count("LEASE_LOST") * (request.verb in BY_LEASE)
            for (i, *_), word, due in zip(request.groups, reply, wanted, strict=True):
                self.ended(request, i, word.decode(), due, moved)

    def proceeded(
        self, request: Request, answer: str, wanted: list[str], moved: dict[str, str], before: Look
    ) -> None:
        """Check that a job was completed and those that follow were stored, or neither."""
        ended, _ = request.parts()
        if wanted == [""] and answer != "completed":
            must(not moved, f"{request} returned {answer}, and moved {moved}")
            return
        following = {group[0] for group in request.groups} if wanted == [""] else set()
        must(following <= moved.keys(), f"{request} stored {set(moved)}, expected {following}")
        own = {i: state for i, state in moved.items() if i not in following}
        self.answered(ended, [answer.encode()], wanted, own, before)

    def ended(self, request: Request, i: str, answer: str, due: str, moved: dict[str, str]) -> None:
        if due:
            must(answer == due, f"{request.verb} of {i} returned {answer}, expected {due}")
            return
        state = answer.split(" ")[0]
        must(
            moved.get(i) == state,
            f"{request.verb} of {i} returned {answer}, and the job moved to {moved.get(i)}",
        )
        if state == "scheduled":
            must(
                self.look.shelves["scheduled"][i] == int(answer.split(" ")[1]),
                f"{i} has another due time than the reply",
            )
        self.lives[i].ended = (request.verb, answer)

    def noted(self, request: Request, reply: list[str], wanted: list[str], moved: dict[str, str]) -> None:
        must(reply == [due or "noted" for due in wanted] and not moved, f"{request} returned {reply}")
        for (i, _, checkpoint, _), due in zip(request.groups, wanted, strict=True):
            if not due and checkpoint:
                self.lives[i].checkpoint = checkpoint

    def beaten(self, request: Request, i: str, answer: int | str, due: str) -> None:
        if due:
            must(answer == due, f"heartbeat of {i} returned {answer}, expected {due}")
            return
        flagged, end = self.lives[i].flagged, self.lease_end(i, int(request.one["lease"]))
        must(answer == ("CANCEL_REQUESTED" if flagged else end), f"heartbeat of {i} returned {answer}")
        must(self.look.shelves["running"][i] == end, f"the lease of {i} does not end at {end}")

    def lease_end(self, i: str, lease: int) -> int:
        """The required end of a lease that is granted or extended now."""
        stored = self.look.jobs[i]
        rules = rules_of(stored["spec"])
        return min(
            self.look.now + lease, int(stored["claimed_at"]) + int(rules.get("timeout", 300_000)) + GRACE
        )

    def ordered(self, request: Request, answer: str, due: str, moved: dict[str, str], before: Look) -> None:
        life, rules = self.lives[request.one["id"]], request.one.get("rules", "")
        if due:
            must(answer == due and not moved, f"{request} returned {answer}, expected {due}")
            return
        must(
            moved.get(life.id, "requested") == answer.split(" ")[0],
            f"{request} returned {answer}, and the job is {life.state}",
        )
        if request.verb == "reschedule":
            self.rescheduled(life.id, rules_of(f"q t 0 {rules}"), answer, before)
        life.flagged = life.flagged or answer == "requested"
        life.ops, life.op = life.ops + 1, (request.verb, request.one["revision"], rules, answer)

    def rescheduled(self, i: str, wanted: dict[str, str], answer: str, before: Look) -> None:
        """Check a job's moment, its priority, and its place among the queued jobs of that priority."""
        look, shelf = self.look, self.shelf_of(i)
        old, new = rules_of(before.jobs[i]["spec"]), rules_of(look.jobs[i]["spec"])
        is_moved = "schedule" not in old and ("at" in wanted or "delay" in wanted)
        changed = ("priority", "at", "delay") if is_moved else ("priority",)
        kept = {name: value for name, value in old.items() if name not in changed}
        must(kept.items() <= new.items(), f"{i} had {old}, and has {new}")
        priority = int(wanted.get("priority", old.get("priority", 0)))
        must(int(new.get("priority", 0)) == priority, f"{i} has {new}, expected priority {priority}")
        state, _, moment = answer.partition(" ")
        if state == "scheduled":
            must(look.shelves[state][i] == int(moment), f"{i} has another due time than the reply")
            at = before.shelves.get(state, {}).get(i, 0)
            at = look.now + int(wanted["delay"]) if "delay" in wanted else float(wanted.get("at", at))
            must(int(moment) == at > look.now, f"{i} is due at {moment}, expected {at}")
            return
        rank = look.shelves[shelf][i]
        must(rank // 2**44 == 100 - priority, f"{i} is queued at {rank}, with priority {priority}")
        turn = before.shelves.get(shelf, {}).get(i)
        must(turn is None or turn % 2**44 == rank % 2**44, f"{i} has lost its turn")

    def claimed(self, request: Request, reply: Any, moved: dict[str, str], before: Look) -> None:
        """A claim returns the jobs that it took, and a repeat those that are still held. No token occurs twice."""
        token, wait, ids = reply[0].decode(), int(reply[1]), {i.decode() for i in reply[3::6]}
        must(0 <= wait <= CAP, f"a claim returned a wait of {wait} ms, expected 0 to {CAP}")
        claim_id, taken = request.one["claim_id"], {i for i, state in moved.items() if state == "running"}
        _, first, had = self.claims.get(claim_id, (0, "", frozenset()))
        if self.repeats(request, before):
            held = {i for i in had if self.lives[i].state == "running" and self.lives[i].token == first}
            must(
                not moved and ids == held,
                f"repeated claim {claim_id} returned {ids or 'nothing'}, expected {held or 'nothing'}",
            )
            return
        must(ids == taken, f"claim {claim_id} returned {ids} and took {taken}")
        if taken:
            fence, _, rest = token.partition(".")
            must(int(fence) > self.fence and rest == claim_id, f"token {token} after fence {self.fence}")
            self.fence = int(fence)
            self.claims[claim_id] = (self.look.now, token, frozenset(taken))
        for i, before_it in zip(reply[3::6], reply[8::6], strict=True):
            kept = before_it.decode().partition("\n")[2]
            must(
                kept == self.lives[i.decode()].checkpoint,
                f"{i.decode()} was handed out with checkpoint {kept or 'missing'}",
            )
        for i in taken:
            must(not self.paused(self.lives[i].queue), f"{i} was taken from a paused queue")
            end = self.lease_end(i, int(request.one["lease"]))
            must(self.look.shelves["running"][i] == end, f"the lease of {i} does not end at {end}")

    def repeats(self, request: Request, before: Look) -> bool:
        """Whether this is a claim that took jobs before, and whose memo has not expired."""
        claim_id = request.one.get("claim_id", "")
        return claim_id in before.claims and self.look.now - self.claims[claim_id][0] <= MEMO

    # state changes

    def known(self, request: Request, reply: Any, before: Look) -> None:
        """Begin the histories of new jobs. A known id, or a held key, creates no job."""
        if request.verb == "fire":
            self.fired(reply, before)
        if request.verb == "workflow":
            self.edges.known(request, reply, before)
        if request.verb == "proceed" and self.wanted(request) == [""]:
            words = [b"created"] * len(request.groups) if reply == b"completed" else [reply]
            self.edges.known(request.parts()[1], words, before, self.lives[request.one["id"]].queue)
        if request.verb == "call":
            self.steps.known(request, reply)
        if request.verb != "submit":
            return
        new: Counter[str] = Counter()
        taken = set[str]()
        for (i, queue, _, words, payload), answer in zip(request.groups, reply, strict=True):
            rules, (word, _, there) = rules_of(f"{queue} t 0 {words}"), answer.decode().partition(" ")
            life = self.lives.get(i)
            lock = f"{queue}|{rules['key']}" if "key" in rules else ""
            if life and life.state:
                must(
                    (word, there) == ("exists", i),
                    f"submit of the existing {i} returned {answer.decode()}",
                )
            elif word == "exists":
                must(
                    there in self.holders(lock, before),
                    f"submit of {i} returned {there}, which does not hold its key",
                )
            elif word == "QUEUE_FULL":
                must(
                    not self.has_room(queue, new[queue]),
                    f"{i} was refused ({answer.decode()}), but the queue is not full",
                )
                self.totals["queue_full"] += 1
            elif word == "replaced":
                self.replaced(i, there, rules, lock, before)
            elif word == "created":
                must(self.has_room(queue, new[queue]), f"{i} was added to a full queue")
                if "debounce" in rules or "on_conflict" in rules:
                    held = before.locks.get(lock)
                    holder = self.lives.get(held[0]) if held and self.stands(held) else None
                    waits = holder is not None and holder.state in WAITING
                    must(not waits and lock not in taken, f"{i} was created, but a job of its key waits")
                    self.cancels(rules, lock, before)
                else:
                    must(
                        not (lock in before.locks and self.stands(before.locks[lock])),
                        f"{i} was created, but its key is held",
                    )
                taken.add(lock)
                window = int(rules.get("window", 0))
                self.lives[i] = Life(
                    i, queue, int(rules.get("tries", 3)), lock, window, len(payload.encode())
                )
                new[queue] += 1

    def replaced(self, i: str, there: str, rules: dict[str, str], lock: str, before: Look) -> None:
        """The waiting job of a key got the arguments of a submit, unless it or the running one had them before."""
        life, running = self.lives[there], self.running(lock, before)
        must("debounce" in rules or "on_conflict" in rules, f"{i} has no rule to replace {there}")
        must(there in self.holders(lock, before), f"{i} replaced {there}, which does not hold its key")
        if i in life.joined or (running is not None and i in running.joined):
            return
        must(life.state in (*WAITING, None), f"{i} replaced {there}, which is {life.state}")
        self.cancels(rules, lock, before)
        self.steps.forget(there)
        life.tries, life.window, life.joined = int(rules.get("tries", 3)), 0, (i, *life.joined)
        life.ops, life.op = life.ops + 1, ("", "", "", "")

    def holders(self, lock: str, before: Look) -> set[str]:
        """The jobs that held a key before and after a call: an item of a batch may have taken it."""
        return {look.locks[lock][0] for look in (before, self.look) if lock in look.locks}

    def running(self, lock: str, before: Look) -> Life | None:
        """The running job of a key: its holder, or the one whose end its holder waits for."""
        holder = before.locks.get(lock, ("",))[0]
        older = rules_of(before.jobs[holder]["spec"]).get("after", "") if holder in before.jobs else ""
        lives = [self.lives.get(i) for i in (holder, older)]
        return next((life for life in lives if life is not None and life.state == "running"), None)

    def cancels(self, rules: dict[str, str], lock: str, before: Look) -> None:
        """Record the cancel of the running job of a key."""
        life = self.running(lock, before)
        if rules.get("on_conflict") == "cancel_running" and life is not None and not life.flagged:
            revision = str(life.attempt + life.ops)
            life.flagged, life.ops, life.op = True, life.ops + 1, ("cancel", revision, "", "requested")

    def fired(self, reply: Any, before: Look) -> None:
        """Begin the histories of occurrences' jobs. Each occurrence has one, also if it is fired repeatedly."""
        self.totals["queue_full"] += sum(answer.startswith(b"QUEUE_FULL") for answer in reply)
        for i in sorted(self.look.jobs.keys() - before.jobs.keys()):
            must(i not in self.lives, f"{i} was fired twice")
            spec = self.look.jobs[i]["spec"]
            rules, queue = rules_of(spec), spec.split(" ")[0]
            occurrence = int(rules["at"])
            must(
                i == f"0-{rules['schedule']}:{occurrence}" and occurrence <= self.look.now,
                f"{i} is not the job of a due occurrence",
            )
            self.lives[i] = Life(
                i, queue, int(rules.get("tries", 3)), size=len(spec.partition("\n")[2].encode())
            )

    def hooked(self, before: Look) -> dict[str, str]:
        """Begin the histories of reports of deaths. Returns dead job → report."""
        found: dict[str, str] = {}
        for i in sorted(self.look.jobs.keys() - before.jobs.keys()):
            spec = self.look.jobs[i]["spec"]
            dead = rules_of(spec).get("death")
            if dead is not None:
                must(dead not in found, f"the death of {dead} was reported twice")
                must(i not in self.lives, f"{i} was submitted twice")
                found[dead] = i
                payload = spec.partition("\n")[2]
                self.lives[i] = Life(i, spec.split(" ")[0], HOOK_TRIES, size=len(payload))
        return found

    def reported(self, dead: set[str], hooks: dict[str, str]) -> None:
        """Each death in a queue with `on_dead` has one report, and no other has."""
        wanted = {i for i in dead if self.hook_of(i)}
        must(
            hooks.keys() == wanted,
            f"reported were the deaths of {set(hooks) or 'none'}, expected {wanted or 'none'}",
        )
        for i, hook in hooks.items():
            queue, task = self.hook_of(i)
            spec, life = self.look.jobs[hook]["spec"], self.lives[i]
            header, _, payload = spec.partition("\n")
            must(header.split(" ")[:2] == [queue, task], f"the death of {i} is reported by {header}")
            told = json.loads(payload)
            code = self.look.jobs[i]["error"].split(" ")[0]
            wanted_payload = {
                "id": i,
                "queue": life.queue,
                "task": "t",
                "code": code,
                "attempts": life.attempt,
            }
            must(told == wanted_payload, f"the death of {i} is reported as {told}, expected {wanted_payload}")
            must(hook == hook_id(i, life.token), f"the death of {i} is reported by {hook}")

    def hook_of(self, i: str) -> tuple[str, str] | None:
        """The queue and task of the report of a death; None if there must be none."""
        queue = self.lives[i].queue
        if "death" in rules_of(self.look.jobs[i]["spec"]):
            return None
        for name in (queue, "*"):
            words = self.settings.get(name, Settings()).limits.split()
            for word in words:
                if word.startswith("on_dead="):
                    other, slash, task = word.removeprefix("on_dead=").rpartition("/")
                    return other if slash else queue, task
        return None

    def schedules(self, before: Look) -> None:
        """Check that each schedule is complete, and that its next occurrence only grows and is fired once."""
        look = self.look
        half = look.schedules.keys() ^ look.occurrences.keys()
        must(not half, f"incomplete schedules: {half}")
        for name, stored in look.schedules.items():
            old = before.schedules.get(name, {}).get("occurrence")
            on = old is None or not stored["occurrence"] or (old and int(stored["occurrence"]) >= int(old))
            must(on, f"schedule {name} went back from occurrence {old} to {stored['occurrence']}")
            must(
                not stored["occurrence"] or f"0-{name}:{stored['occurrence']}" not in self.lives,
                f"{name} would fire {stored['occurrence']} again",
            )
        done = sum(int(stored.get("fired", 0)) for stored in look.schedules.values())
        made = sum("schedule" in rules_of(job["spec"]) for job in look.jobs.values())
        must(done >= made, f"{made} occurrences have a job, but {done} were fired")

    def paused(self, queue: str) -> bool:
        return self.settings.get(queue, Settings()).paused

    def has_room(self, queue: str, new: int) -> bool:
        """Whether one more job fits into a queue, besides `new` ones of the same call."""
        limits = dict(word.split("=") for word in self.settings.get(queue, Settings()).limits.split())
        there = [
            life
            for life in self.lives.values()
            if life.queue == queue and life.state not in (*FINISHED, None)
        ]
        return len(there) + new < int(limits.get("jobs", 1e9))

    def stands(self, lock: tuple[str, float | None]) -> bool:
        holder, ends = lock
        there = holder in self.lives and self.lives[holder].state is not None
        return there if ends is None else ends > self.look.now

    def moved(self, request: Request, i: str, event: dict[str, str], before: Look) -> str:
        """Follow one state change; moves by maintenance must be due."""
        state, code, token = event["state"], event["code"], ""
        request = request.parts()[i != request.one["id"]] if request.verb == "proceed" else request
        must(i in self.lives, f"an event for {i}, which was not submitted")
        life = self.lives[i]
        by_time = request.verb in ("claim", "reap")
        cause = BY_TIME.get(code, request.verb) if by_time else request.verb
        others = ("on_dead", "replaced", "upstream", "called")
        cause = code.replace("replaced", "replace") if code in others else cause
        cause = "workflow" if cause == "call" else cause
        own = [
            group for group in request.groups if group[0] == i
        ]  # two, if a caller has an old and a new lease of the job
        group = next(
            (group for group in own if life.token and group[1:2] == (life.token,)), own[0] if own else ()
        )
        newer = before.locks.get(life.key, ("",))[0]
        life.superseded = newer in before.jobs and rules_of(before.jobs[newer]["spec"]).get("after") == i
        if cause == "claim":
            older = self.lives.get(rules_of(self.look.jobs[i]["spec"]).get("after", ""))
            if older is not None and older.state == "running":
                must(
                    life.op[0] in ("promote", "reschedule"), f"{i} runs beside {older.id}, which has its key"
                )
                older.overtaken = True
            life.worker = request.one["worker"]
            token = self.look.jobs.get(i, {}).get("token", "")
        elif cause in BY_LEASE:
            token = group[1]
        elif cause in ("due", "expire"):
            moment = before.shelves.get(life.state or "", {}).get(i, 0)
            must(moment <= self.look.now, f"{i} was moved {moment - self.look.now:g} ms early")
        last = cause == "fail" and group[-1] == "no"
        was_stopped = life.flagged and cause == "fail" and group[2] == "cancelled"
        wrong = follow(life, Move(cause, state, token, last))
        must(not wrong, f"{i}: {wrong}")
        self.steps.moved(life, cause, request)
        if cause == "complete":
            life.result = group[2]
        for name in (None if was_stopped else COUNTED.get(cause), state if state in FINISHED else None):
            if name:
                self.totals[name] += 1
        if cause == "release" and group[-2] == "unknown_task":
            self.totals["unknown_task"] += 1
        if state in ("dead", "cancelled"):
            self.counts[f"{life.queue} {state} jobs"] += 1
        if cause == "claim" and life.attempt == 1:
            self.timed(life.queue, "wait", self.wanted_at(i))
        elif cause in ("complete", "fail") and not was_stopped:
            self.timed(life.queue, {"fail": "failed"}.get(cause, state), int(before.jobs[i]["claimed_at"]))
        return state

    def wanted_at(self, i: str) -> int:
        """The moment at which a job was first due, in ms."""
        spec = self.look.jobs[i]["spec"]
        rules, submitted_at = rules_of(spec), int(spec.split(" ")[2].split("\n")[0])
        return max(submitted_at, int(rules.get("at", submitted_at + int(rules.get("delay", 0)))))

    def timed(self, queue: str, what: str, since: int) -> None:
        """Count a duration from a moment until now."""
        took = max(0, self.look.now - since)
        bound = next((str(bound) for bound in BOUNDS if took <= bound), "inf")
        self.counts.update({f"{queue} {what} {bound}": 1, f"{queue} {what} ms": took})

    def forgotten(self, request: Request, before: Look) -> None:
        """Check that only finished jobs are deleted, after their retention, by complete and prune."""
        for i in before.jobs.keys() - self.look.jobs.keys():
            life = self.lives[i]
            must(request.verb in ("complete", "proceed", "prune"), f"{i} was lost in {request.verb}")
            must(
                before.shelves.get(life.state or "", {}).get(i, 1e18) <= self.look.now,
                f"{i} was deleted before its retention ended",
            )
            must(not (wrong := follow(life, Move("forget", None))), f"{i}: {wrong}")
            self.steps.moved(life, "forget", request)

    # stored data

    def stored(self) -> None:
        """Check that each job is only in its state's structure, with its fields, and that nothing else is stored."""
        look = self.look
        places: dict[str, str] = {}
        for shelf, members in look.shelves.items():
            for i in members:
                must(i not in places, f"{i} is in {shelf} and in {places.get(i)}")
                places[i] = shelf
        alive = {i: life for i, life in self.lives.items() if life.state}
        must(
            look.jobs.keys() == alive.keys(),
            f"extra or missing hashes: {look.jobs.keys() ^ alive.keys()}",
        )
        must(
            places.keys() == alive.keys(),
            f"entries without a hash, or hashes without an entry: {places.keys() ^ alive.keys()}",
        )
        for i, life in alive.items():
            shelf = self.shelf_of(i) if life.state == "queued" else life.state
            must(places[i] == shelf, f"{i} is {life.state}, but in {places[i]}")
            self.one(life, look.jobs[i])
        counted = Counter({name: int(look.hashes[""].get(name, 0)) for name in TOTALS})
        must(counted == self.totals, f"the totals are {counted}, expected {dict(self.totals)}")
        by_queue = Counter({name: int(count) for name, count in look.hashes.get("counts", {}).items()})
        must(
            by_queue == self.counts,
            f"counters by queue: {by_queue - self.counts} too many, {self.counts - by_queue} missing",
        )
        waiting: Counter[str] = Counter()
        for life in alive.values():
            if life.state not in FINISHED:
                waiting.update({f"{life.queue} jobs": 1, f"{life.queue} bytes": life.size})
                waiting[f"{life.queue} running"] += life.state == "running"
        backlog = {name: int(count) for name, count in look.hashes.get("backlog", {}).items() if int(count)}
        must(Counter(backlog) == waiting, f"the backlog is {backlog}, expected {dict(waiting)}")
        self.keys(alive)
        cards = {name: (card["life"], "drain" in card) for name, card in look.cards.items()}
        must(
            cards == self.register and look.register.keys() == cards.keys(),
            f"the registrations are {cards}, expected {self.register}",
        )

    def shelf_of(self, i: str) -> str:
        """The structure of a queued job."""
        return f"{'grouped' if 'group' in rules_of(self.look.jobs[i]['spec']) else 'queue'}:{self.lives[i].queue}"

    def one(self, life: Life, stored: dict[str, str]) -> None:
        """Check one job's hash."""
        wanted = {
            "state": str(life.state),
            "attempt": str(life.attempt),
            "ops": str(life.ops),
            "token": life.token,
        }
        if life.state == "completed":
            wanted["result"] = life.result
            must(
                "tries_left" in stored or life.left == life.tries - life.attempt,
                f"{life.id} lacks its tries_left",
            )
        if "tries_left" in stored:
            wanted["tries_left"] = str(life.left)
        found = {name: stored.get(name, "" if name == "token" else "0") for name in wanted}
        must(found == wanted, f"{life.id} has {found}, expected {wanted}")
        must(
            stored.get("checkpoint", "") == life.checkpoint,
            f"{life.id} has a missing or wrong checkpoint",
        )
        must(sum(name.startswith("log:") for name in stored) <= 6, f"{life.id} has too many logs")
        must(
            ("cancel_requested_at" in stored) == life.flagged,
            f"{life.id}: a cancel was set or removed without a request",
        )
        must(
            ("finished_at" in stored) == (life.state in FINISHED),
            f"{life.id} is {life.state}: finished_at disagrees",
        )

    def keys(self, alive: dict[str, Life]) -> None:
        """Check that unfinished jobs hold their keys without a window, and that finished jobs hold no key."""
        held = {
            (life.key, i)
            for i, life in alive.items()
            if life.key and not life.window and life.state not in FINISHED
        }
        for lock, i in held:
            life, holder = alive[i], self.look.locks.get(lock, ("no job",))[0]
            newer = self.look.jobs.get(holder, {"spec": ""})["spec"]
            follows = life.state == "running" and rules_of(newer or "q t 0").get("after") == i
            must(
                holder == i or follows or life.overtaken,
                f"{i} is {life.state}, but {holder} holds its key",
            )
        for lock, (holder, ends) in self.look.locks.items():
            life = alive.get(holder)
            is_over = life is None or life.state in FINISHED or life.key != lock
            must(ends is not None or not is_over, f"{holder} holds {lock} without end")

    # wake-ups

    def took_wake_up(self, process: Any, queue: str) -> None:
        """Record that a worker got a wake-up, and will claim."""
        self.takers[queue] = (process, process.claims)
        self.look.wake_ups.pop(queue, None)

    def queues(self, process: Any, request: Request) -> None:
        """Check the settings of queues, and that a queue with queued jobs has a wake-up, or its taker has not claimed since.

        (The taker may have died, or the wake-up was lost: idle workers claim again after at most 2 s, see `claimed`.)
        """
        look = self.look
        if request.verb == "claim" and int(request.one["n"]):
            number = int(request.one["claim_id"].rpartition(".")[2])
            for (queue,) in request.groups:
                taker, claims = self.takers.get(queue, (None, 0))
                if taker is process and number > claims:
                    self.takers.pop(queue, None)
        for queue, count in look.wake_ups.items():
            must(count <= 1, f"{queue} has {count} wake-ups, expected at most one")
            self.takers.pop(queue, None)
        for queue, settings in self.settings.items():
            revision, verb, *words = look.hashes["queues"][queue].split()
            limits = " ".join(word for word in words if not word.startswith(("paused=", "flow=")))
            found = Settings(int(revision), verb, limits, any(word.startswith("paused=") for word in words))
            must(found == settings, f"queue {queue} has {found}, expected {settings}")
        for shelf, members in look.shelves.items():
            queue = shelf.removeprefix("queue:")
            awake = look.wake_ups.get(queue) or queue in self.takers or self.paused(queue)
            awake = awake or "flow=1" in look.hashes["queues"].get(queue, "")  # see flow.promises
            if queue != shelf and members and not awake:
                raise Violation(
                    f"{queue} has {len(members)} jobs, but no wake-up, and no worker is about to claim them"
                )
