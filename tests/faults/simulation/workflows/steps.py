"""The promises to steps: each is kept once and as it was, and an event before, at or after the wait is not lost. No job
waits for a called one that has ended.

The account is of kept steps and waits, by the answers of the scripts. After each script the stored steps must equal it.
"""

from typing import TYPE_CHECKING, Any

from tests.faults.simulation.history import Life
from tests.faults.simulation.request import Request, must, rules_of

if TYPE_CHECKING:
    from tests.faults.simulation.invariants import Checker
    from tests.faults.simulation.server import Look

ENDED = ("completed", "dead", "cancelled")
ENDS = {"sleep": ("sleep", "null"), "signal": ("timeout", "")}
"""Kind of a wait → kind and value of the step that is kept when its time is over."""


class Steps:
    """The kept steps of each job, and what suspended jobs wait for."""

    def __init__(self, checker: "Checker") -> None:
        self.checker = checker
        self.kept: dict[str, dict[str, tuple[str, str]]] = {}
        """Job → step → its kind and value."""
        self.awaits: dict[str, tuple[str, str]] = {}
        """Suspended job → the kind and name of its wait."""
        self.children: dict[str, str] = {}
        """Called job → the edge to its caller."""

    def save(self) -> tuple[Any, ...]:
        """A copy of the account, to compare and to restore."""
        kept = tuple((i, tuple(steps.items())) for i, steps in self.kept.items())
        return kept, tuple(self.awaits.items()), tuple(self.children.items())

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore this account."""
        self.kept, self.awaits = {i: dict(steps) for i, steps in saved[0]}, dict(saved[1])
        self.children = dict(saved[2])

    def wanted(self, request: Request, life: Life | None) -> str:
        """The code with which a step or a signal must be refused; empty if it must be accepted."""
        if life is None or life.state is None:
            return "NOT_FOUND"
        if request.verb in ("step", "call"):
            return "" if life.state == "running" and life.token == request.one["token"] else "LEASE_LOST"
        before = self.kept.get(life.id, {}).get(request.one["name"])
        if before:
            return "" if before == ("signal", request.one["value"]) else "WRONG_STATE"
        return "WRONG_STATE" if life.state in ("completed", "dead", "cancelled") else ""

    def moved(self, life: Life, cause: str, request: Request) -> None:
        """Follow one change of state: a wait begins, or ends with a kept step, and the tries begin again."""
        if cause == "suspend" and life.state == "scheduled":
            kind, name = next(group[2:4] for group in request.groups if group[:2] == (life.id, life.token))
            known = self.kept.get(life.id, {}).get(name, ("call" if kind == "call" else "",))[0]
            must(known == ("call" if kind == "call" else ""), f"{life.id} waits for {name}, which has come")
            self.awaits[life.id] = kind, name
        elif life.state == "queued" and life.id in self.awaits:
            kind, name = self.awaits.pop(life.id)
            if kind == "call":  # the step itself is followed by `called`
                life.left = life.tries if cause == "called" else life.left
                return
            ends = ("signal", request.one["value"]) if cause == "signal" else ENDS[kind]
            self.kept.setdefault(life.id, {})[name] = ends
            life.left = life.tries
        elif life.state != "scheduled":
            self.awaits.pop(life.id, None)
            if life.state in ("completed", None):
                self.kept.pop(life.id, None)

    # calls of other jobs

    def known(self, request: Request, reply: Any) -> None:
        """Begin the history of a called job, unless the call is a repeat."""
        i, name, queue = (request.one[word] for word in ("id", "name", "queue"))
        kind, child = step_of(reply.decode())
        life = self.checker.lives.get(child)
        if kind == "call" and (life is None or life.state is None):
            must(self.checker.has_room(queue, 0), f"{child} was added to a full queue")
            rules = rules_of(f"{queue} t 0 {request.one['rules']}")
            size = len(request.one["payload"].encode())
            self.checker.lives[child] = Life(child, queue, int(rules.get("tries", 3)), size=size)
            self.children[child] = f"{i} {name}"

    def called(self) -> None:
        """Follow the steps of called jobs that have ended, or were retried: each change must have its reason."""
        look = self.checker.look
        for i, own in self.kept.items():
            for name, (kind, value) in own.items():
                if kind not in ("call", "called") or i not in look.jobs:
                    continue
                child, found = value.split(" ")[0], step_of(look.jobs[i].get(f"step:{name}", ""))
                life = self.checker.lives[child]
                if (kind, found[0]) == ("call", "called"):
                    must(life.state in ENDED, f"{name} of {i} has ended, and {child} is {life.state}")
                    body = life.result if life.state == "completed" else look.jobs[child].get("error", "")
                    own[name] = "called", f"{child} {life.state}\n{body}"
                elif (kind, found[0]) == ("called", "call"):
                    must(life.state not in ENDED, f"{name} of {i} waits again, and {child} is {life.state}")
                    own[name] = "call", child

    def edges(self, look: "Look") -> None:
        """Check that each open call has one edge, and each other edge was a call. (`Edges` checks that those of jobs that have
        ended are due.)
        """
        found = [
            (child, edge, kind)
            for kind in ("downstream", "broken")
            for child, edges in look.edges[kind].items()
            for edge in edges
            if " " in edge
        ]
        for child, edge, kind in found:
            must(
                self.children.get(child) == edge, f"{child} has the edge {edge} ({kind}), which no call made"
            )
            must(found.count((child, edge, kind)) == 1, f"{child} has the edge {edge} twice")
        there = {(edge, child): kind for child, edge, kind in found}
        for i, own in self.kept.items():
            for name, (kind, value) in own.items():
                edge = there.get((f"{i} {name}", value.split(" ")[0]), "")
                must(
                    kind != "call" or edge == "downstream",
                    f"{name} of {i} waits for {value}, with the edge {edge}",
                )
                must(kind != "called" or edge != "downstream", f"{name} of {i} has ended, and has an edge")

    def forget(self, i: str) -> None:
        """Other arguments have replaced those of a job: it begins anew."""
        self.kept.pop(i, None)
        self.awaits.pop(i, None)

    def answered(self, request: Request, reply: Any, moved: dict[str, str]) -> None:
        """Check the answer to a step or a signal that was accepted, and keep what it has brought."""
        i = request.one["id"]
        own = self.kept.setdefault(i, {})
        if request.verb == "signal":
            name, value = request.one["name"], request.one["value"]
            must(reply == b"kept" and moved.keys() <= {i}, f"{request} returned {reply}, and moved {moved}")
            own.setdefault(name, ("signal", value))
            return
        if request.verb == "call":
            self.stored_call(request, reply.decode(), moved)
            return
        must(not moved, f"a step moved {moved}")
        words = [word.decode() for word in reply]
        if not request.groups:
            found = {words[n]: step_of(words[n + 1]) for n in range(0, len(words), 2)}
            must(found == own, f"{i} has kept {own}, and a task was given {found}")
            return
        for (name, value), word in zip(request.groups, words, strict=True):
            before = own.get(name, ("signal", ""))
            if before[0] != "signal":
                must(
                    word != "kept" and step_of(word) == before,
                    f"{name} of {i} was done twice: {word} after {before}",
                )
                continue
            must(word == "kept", f"{name} of {i} was not kept: {word}")
            own[name] = "step", value
            self.checker.lives[i].left = self.checker.lives[i].tries - 1

    def stored_call(self, request: Request, reply: str, moved: dict[str, str]) -> None:
        """Check the answer to a call: the kept step, a new one, or no room."""
        i, name = request.one["id"], request.one["name"]
        before = self.kept[i].get(name, ("signal", ""))
        if reply.startswith("QUEUE_FULL"):
            must(not self.checker.has_room(request.one["queue"], 0), f"{request} was refused: {reply}")
            must(before[0] == "signal" and not moved, f"{request} was refused, and moved {moved}")
            return
        found = step_of(reply)
        if before[0] != "signal":
            must(found == before and not moved, f"{name} of {i} was called again: {reply}, and moved {moved}")
            return
        must(
            found[0] == "call" and moved.keys() == {found[1]},
            f"{request} returned {reply}, and moved {moved}",
        )
        self.kept[i][name] = found

    def stored(self, look: "Look") -> None:
        """Check that all jobs have exactly these steps, and wait for what they should."""
        self.edges(look)
        for i, job in look.jobs.items():
            own = self.kept.get(i, {})
            if not own and "steps" not in job and i not in self.awaits:
                continue
            found = {name[5:]: step_of(text) for name, text in job.items() if name.startswith("step:")}
            must(found == own, f"{i} has the steps {found}, expected {own}")
            size = sum(len(name) + len(value) for name, (_, value) in own.items())
            must(
                not own or job["steps"] == f"{len(own)} {size}", f"{i} counts its steps as {job.get('steps')}"
            )
            if i in self.awaits:
                kind, name = self.awaits[i]
                waits = name not in own if kind != "call" else own.get(name, ("",))[0] == "call"
                must(waits, f"{i} waits for {name}, which is kept")
                must(
                    job.get("awaits", "").startswith(f"{kind} {name} "),
                    f"{i} waits for {job.get('awaits')}, not {name}",
                )


def step_of(text: str) -> tuple[str, str]:
    """The kind and value of a stored step."""
    head, _, value = text.partition("\n")
    return head.partition(" ")[2], value
