"""The promises to jobs that wait for others, and to workflows, checked after each script.

- No job waits for one that has ended: the edges that are left are due, and marked.
- A job counts the outstanding edges: each of its edges is in one list, once.
- A job starts when all its upstreams have ended as they should, and no edge is fulfilled for another reason.
- A member is counted as it ended, and a workflow ends with its last member.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.simulation.history import Life
from tests.faults.simulation.request import Request, must, rules_of

if TYPE_CHECKING:
    from tests.faults.simulation.invariants import Checker
    from tests.faults.simulation.server import Look

UNFINISHED = ("scheduled", "queued", "running")
ENDED_AS = {"completed": 1, "dead": 2, "cancelled": 3}
REFUSALS = ("QUEUE_FULL", "NOT_FOUND", "WRONG_STATE", "INVALID")


class Edges:
    """The edges of each job and the members of each workflow, by the calls that stored them."""

    def __init__(self, checker: "Checker") -> None:
        self.checker = checker
        self.after: dict[str, dict[str, str]] = {}
        """Downstream job → upstream (a workflow after `/`) → `waits`, `broken`, or how it is over: `done` or `dropped`."""
        self.members: dict[str, frozenset[str]] = {}
        """Workflow → its jobs."""

    def save(self) -> tuple[Any, ...]:
        """A copy of the account, to compare and to restore."""
        return tuple((i, tuple(edges.items())) for i, edges in self.after.items()), tuple(
            self.members.items()
        )

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Restore this account."""
        self.after, self.members = {i: dict(edges) for i, edges in saved[0]}, dict(saved[1])

    # calls

    def known(self, request: Request, reply: Any, before: "Look", leaves: str = "") -> None:
        """Begin the histories of the jobs that a call has stored: all of them, or none. `leaves`: the queue of a job that
        is completed by the same call, and leaves room.
        """
        flow, words = request.one["workflow"], [word.decode() for word in reply]
        if words and not words[0].startswith(("created", "exists ")):
            self.turned_away(request, words, before)
            return
        new = Counter({leaves: -1}) if leaves else Counter[str]()
        for (i, queue, _, text, payload, after, into), word in zip(request.groups, words, strict=True):
            life, rules = self.checker.lives.get(i), rules_of(f"{queue} t 0 {text}")
            if life and life.state:
                must(word == f"exists {i}", f"the existing {i} was answered with {word}")
                continue
            must(word == "created", f"the new {i} was answered with {word}")
            must(self.checker.has_room(queue, new[queue]), f"{i} was added to a full queue")
            new[queue] += 1
            self.checker.lives[i] = Life(i, queue, int(rules.get("tries", 3)), size=len(payload.encode()))
            self.added(i, flow if request.one["how"] == "open" else "", after.split(), into.split(), flow)
            if flow:
                self.members[flow] = self.members.get(flow, frozenset()) | {i}
        if flow:
            self.members.setdefault(flow, frozenset())

    def added(self, i: str, opened: str, after: list[str], into: list[str], flow: str) -> None:
        """Record the edges of a new job. In an open workflow it waits for that, unless one of its upstreams does."""
        edges = dict.fromkeys(after, "waits")
        if opened and not self.members.get(flow, frozenset()) & set(after):
            edges[f"/{opened}"] = "waits"
        if edges:
            self.after[i] = edges
        for other in into:
            self.after[other][i] = "waits"

    def turned_away(self, request: Request, words: list[str], before: "Look") -> None:
        """A call that was refused has changed nothing, and names a reason that there is."""
        look, (word, *_) = self.checker.look, words
        must(len(words) == 1 and word.startswith(REFUSALS), f"{request} was answered with {words}")
        same = (before.jobs, before.shelves, before.edges) == (look.jobs, look.shelves, look.edges)
        must(same, f"{request} was refused ({word}) and changed stored data")
        new = {group[0] for group in request.groups}
        ended = [
            j for group in request.groups for j in group[5].split()
            if j not in new and before.jobs.get(j, {}).get("state") not in UNFINISHED
        ]  # fmt: skip
        idle = [j for group in request.groups for j in group[6].split() if not waits(before.jobs.get(j, {}))]
        state = before.edges["workflow"].get(request.one["workflow"], {}).get("state")
        late = state == "cancelled" or (state == "sealed" and (request.one["how"] != "seal" or bool(new)))
        full = any(not self.checker.has_room(queue, 0) for _, queue, *_ in request.groups) or len(new) > 1
        fits = {
            "QUEUE_FULL": full, "NOT_FOUND": bool(ended or idle) or state is None,
            "WRONG_STATE": bool(ended or idle) or late, "INVALID": bool(request.groups and any(g[6] for g in request.groups)),
        }  # fmt: skip
        must(fits[word.split(" ")[0]], f"{request} was refused without a reason: {word}")

    # after each script

    def executed(self, before: "Look", started: set[str]) -> None:
        """Follow each edge, and check the stored data. `started`: jobs queued as all their upstreams ended."""
        if not self.after and not self.members and not self.checker.steps.children:
            return
        look = self.checker.look
        lists = {
            kind: {u: Counter(ids) for u, ids in look.edges[kind].items()}
            for kind in ("downstream", "broken")
        }
        for i, edges in self.after.items():
            life, stored = self.checker.lives[i], look.jobs.get(i, {})
            counts = "needs" in stored
            for upstream, was in edges.items():
                if was in ("waits", "broken"):
                    edges[upstream] = self.became(i, upstream, was, lists, counts or i in started)
            over = {"done", "dropped", "broken"} if self.runs(i) else {"done", "dropped"}
            must(i not in started or set(edges.values()) <= over, f"{i} was started, with the edges {edges}")
            self.one(life, stored, lists)
        due = {u for u in look.edges["downstream"] if not self.lives(u)} | {
            u for u in look.edges["broken"] if self.lives(u) or self.is_done(u)
        }
        due |= {f"/{flow}" for flow in self.open_workflows()}
        must(
            look.unsettled.keys() == due,
            f"the edges of {sorted(due)} are due, marked are those of {sorted(look.unsettled)}",
        )
        must(look.marked == due, f"{sorted(look.marked)} are counted as marks, expected {sorted(due)}")
        self.flows(look)

    def lives(self, upstream: str) -> bool:
        """Whether a job has not ended, or a workflow is open."""
        if upstream.startswith("/"):
            return bool(self.checker.look.edges["workflow"].get(upstream[1:], {}).get("state") == "open")
        life = self.checker.lives.get(upstream)
        return life is not None and life.state in UNFINISHED

    def is_done(self, upstream: str) -> bool:
        """Whether a job is completed: its edges that are broken are due, as it was retried."""
        life = self.checker.lives.get(upstream)
        return life is not None and life.state == "completed"

    def became(
        self, i: str, upstream: str, was: str, lists: dict[str, dict[str, Counter[str]]], counts: bool
    ) -> str:
        """The new state of an edge: every change must have its reason in the state of the upstream."""
        stands = {kind for kind in lists if lists[kind].get(upstream, {}).get(i)}
        must(len(stands) < 2, f"the edge from {upstream} to {i} is in two lists")
        now = (
            {"downstream": "waits", "broken": "broken"}[stands.pop()]
            if stands
            else "done"
            if counts
            else "dropped"
        )
        life = self.checker.lives.get(upstream)
        state = life.state if life else None
        if upstream.startswith("/"):
            state = {"sealed": "completed", "open": "scheduled"}.get(
                self.checker.look.edges["workflow"].get(upstream[1:], {}).get("state", ""), "cancelled"
            )
        if (was, now) == ("waits", "broken"):
            fits = state not in (*UNFINISHED, "completed")
            must(fits, f"the edge from {upstream} ({state}) to {i} was broken")
        elif (was, now) == ("broken", "waits"):
            must(
                state in (*UNFINISHED, "completed", None),
                f"the edge from {upstream} ({state}) to {i} was mended",
            )
        elif now == "done":
            fits = was == "waits" and state == "completed"
            must(fits, f"the edge from {upstream} ({state}) to {i} was fulfilled ({was} before)")
        return now

    def runs(self, i: str) -> bool:
        """Whether a job runs even if its upstreams failed."""
        return "on_failure=run" in self.checker.look.jobs.get(i, {}).get("spec", "").partition("\n")[0]

    def one(self, life: Life, stored: dict[str, str], lists: dict[str, dict[str, Counter[str]]]) -> None:
        """Check what one job counts, and why it waits."""
        outstanding, failed = (
            sum(ids[life.id] for ids in lists[kind].values()) for kind in ("downstream", "broken")
        )
        if "needs" in stored:
            found = int(stored["needs"]), int(stored.get("broken", 0))
            must(
                found == (outstanding + failed, failed),
                f"{life.id} counts {found}, and {outstanding + failed} edges are there, {failed} broken",
            )
            must(life.state in ("scheduled", "cancelled"), f"{life.id} is {life.state}, and counts edges")
            waits_for = outstanding if self.runs(life.id) else outstanding + failed
            must(life.state != "scheduled" or waits_for, f"{life.id} waits for nothing")
            bears = "on_failure=hold" in stored["spec"] or self.runs(life.id)
            must(life.state != "scheduled" or not failed or bears, f"{life.id} waits in vain")
        must("cause" not in stored or failed, f"{life.id} has a cause, and no broken edge")

    def flows(self, look: "Look") -> None:
        """Check the members of each workflow, and whether it has ended."""
        for flow, ids in [*self.members.items()]:
            stored = look.edges["workflow"].get(flow)
            members = look.edges["members"].get(flow, {})
            if stored is None:
                left = [i for i in ids if self.checker.lives[i].state in UNFINISHED]
                must(not left, f"workflow {flow} is gone, and {left} are not")
                del self.members[flow]
                continue
            states = {i: self.checker.lives[i].state for i in ids}
            must(
                members.keys() == ids,
                f"workflow {flow} has the members {sorted(members)}, expected {sorted(ids)}",
            )
            wrong = {
                i: score
                for i, score in members.items()
                if states[i] and ENDED_AS.get(states[i] or "", 0) != score
            }
            must(not wrong, f"members of {flow} are counted as {wrong}, and are {states}")
            is_over = stored["state"] != "open" and not any(state in UNFINISHED for state in states.values())
            is_over = is_over and not any(
                i in look.unsettled and self.is_done(i) and look.edges["broken"].get(i) for i in ids
            )
            must(("ended_at" in stored) == is_over, f"workflow {flow} is {stored}, its members {states}")

    # the end of a run

    def holders(self) -> list[str]:
        """The jobs that hold others until they are retried."""
        jobs = self.checker.look.jobs.values()
        return sorted({job["cause"] for job in jobs if job["state"] == "scheduled" and "cause" in job})

    def open_workflows(self) -> list[str]:
        """The workflows that are not sealed."""
        return [flow for flow in self.members if self.lives(f"/{flow}")]

    def left(self) -> list[str]:
        """Unfinished parts: workflows, and edges that are to be settled."""
        flows = [flow for flow in self.members if "ended_at" not in self.checker.look.edges["workflow"][flow]]
        return [f"workflow {flow}" for flow in flows] + [
            f"the edges of {u}" for u in self.checker.look.unsettled
        ]


def waits(job: dict[str, str]) -> bool:
    """Whether this is a job that waits for others."""
    return job.get("state") == "scheduled" and "needs" in job
