"""The promises to steps: each is kept once and as it was, and an event before, at or after the wait is not lost.

The account is of kept steps and waits, by the answers of the scripts. After each script the stored steps must equal it.
"""

from typing import TYPE_CHECKING, Any

from tests.faults.simulation.history import Life
from tests.faults.simulation.request import Request, must

if TYPE_CHECKING:
    from tests.faults.simulation.invariants import Checker
    from tests.faults.simulation.server import Look

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

    def save(self) -> tuple[Any, ...]:
        """A copy of the account, to compare and to restore."""
        return tuple((i, tuple(steps.items())) for i, steps in self.kept.items()), tuple(self.awaits.items())

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore this account."""
        self.kept, self.awaits = {i: dict(steps) for i, steps in saved[0]}, dict(saved[1])

    def wanted(self, request: Request, life: Life | None) -> str:
        """The code with which a step or a signal must be refused; empty if it must be accepted."""
        if life is None or life.state is None:
            return "NOT_FOUND"
        if request.verb == "step":
            return "" if life.state == "running" and life.token == request.one["token"] else "LEASE_LOST"
        before = self.kept.get(life.id, {}).get(request.one["name"])
        if before:
            return "" if before == ("signal", request.one["value"]) else "WRONG_STATE"
        return "WRONG_STATE" if life.state in ("completed", "dead", "cancelled") else ""

    def moved(self, life: Life, cause: str, request: Request) -> None:
        """Follow one change of state: a wait begins, or ends with a kept step, and the tries begin again."""
        if cause == "suspend" and life.state == "scheduled":
            kind, name = next(group[2:4] for group in request.groups if group[:2] == (life.id, life.token))
            must(name not in self.kept.get(life.id, {}), f"{life.id} waits for {name}, which has come")
            self.awaits[life.id] = kind, name
        elif life.state == "queued" and life.id in self.awaits:
            kind, name = self.awaits.pop(life.id)
            ends = ("signal", request.one["value"]) if cause == "signal" else ENDS[kind]
            self.kept.setdefault(life.id, {})[name] = ends
            life.left = life.tries
        elif life.state != "scheduled":
            self.awaits.pop(life.id, None)
            if life.state in ("completed", None):
                self.kept.pop(life.id, None)

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

    def stored(self, look: "Look") -> None:
        """Check that all jobs have exactly these steps, and wait for what they should."""
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
                must(name not in own, f"{i} waits for {name}, which is kept")
                must(
                    job.get("awaits", "").startswith(f"{kind} {name} "),
                    f"{i} waits for {job.get('awaits')}, not {name}",
                )


def step_of(text: str) -> tuple[str, str]:
    """The kind and value of a stored step."""
    head, _, value = text.partition("\n")
    return head.partition(" ")[2], value
