"""The protocol's rules that can be observed from outside, and advice for each."""

from typing import NamedTuple

LEASE = 3
"""The lease in seconds that the client must request."""


class Rule(NamedTuple):
    """A rule of the protocol. `level` is MUST or SHOULD; `advice` is for a client that breaks it."""

    name: str
    level: str
    sentence: str
    advice: str
    group: str = ""
    """The optional group that has this rule; empty: it is in CORE."""


RULES = (
    Rule("prints-id", "MUST", "submit stores one job, prints its id on its last line, and exits 0",
         "make an id ([A-Za-z0-9_.:-]{1,64}), send it with `submit`, print the id that the reply names"),
    Rule("keeps-payload", "MUST", "submit stores the payload unchanged: Unicode, quotes, newlines, 100 KB",
         "send the payload as bytes, as the fifth argument; let no shell and no template touch it"),
    Rule("repeats-submit", "MUST", "a submit whose request or reply is lost is sent again with the same id: one job, not two",
         "make the id before the first try, and repeat the same call until there is an answer"),
    Rule("makes-namespace", "MUST", "on NO_NAMESPACE the client runs `init` and repeats the call; a worker does not end",
         "run `init` (safe to repeat) when a reply begins with NO_NAMESPACE, then repeat the call"),
    Rule("claim-ids", "MUST", "each claim has an id of its own, of 22 or more random characters",
         "draw 16 or more random bytes for each new claim; keep the id only to repeat a claim that was not answered"),
    Rule("repeats-claim", "MUST", "a claim whose reply is lost is sent again with the same id; each of its jobs is run once",
         "repeat the same call, the same bytes, within 10 s: the server then gives the same jobs again"),
    Rule("own-name", "MUST", "a worker has one name, of 1 to 128 of A-Z a-z 0-9 _ . : -",
         "make a name of host, process id and random characters when the worker starts"),
    Rule("names-queues", "MUST", "a claim names the worker's queues, in their order",
         "split SUBLET_QUEUES at the commas; pass the queues to `claim` in this order"),
    Rule("free-slots", "MUST", "a worker never holds more jobs than it has slots",
         "ask for as many jobs as there are free slots, and count those that a claim under way may bring"),
    Rule("durations", "MUST", "a worker sends durations in ms, the configured lease, and never a moment of its own clock",
         "send `lease` as SUBLET_LEASE times 1000; a job's at= is the only moment that a client may name"),
    Rule("keeps-result", "MUST", "a result is JSON, and for `echo` equal to the payload: Unicode, quotes, newlines, 200 KB",
         "the payload is what follows the first newline of `spec`; without one, it is the field after it"),
    Rule("tells-failure", "MUST", "a failed task is reported with `fail`: a code of one word, and the message",
         "send fail(id, token, code, message, detail, yes|no), with the task's error as the message"),
    Rule("unknown-task", "MUST", "a job with an unknown task is released with the code unknown_task",
         "send release(id, token, 0, unknown_task, reason): the job waits longer each time, and is dead in the end"),
    Rule("timeout", "SHOULD", "a task is ended at its timeout, and `fail` with timed_out is sent before the lease expires",
         "read timeout= in the first line of `spec` (ms, or none; 300000 if absent) and end the task then"),
    Rule("heartbeat", "MUST", "while a job runs, heartbeats come every third of the lease, and never later than two thirds",
         "send `heartbeat` beside the running job, every third of the lease, from a timer that the task cannot hold up"),
    Rule("lost-heartbeat", "MUST", "a lost heartbeat, or lost reply to one, stops neither the job nor the worker",
         "send an unanswered heartbeat again; stop only on CANCEL_REQUESTED, LEASE_LOST or NOT_FOUND"),
    Rule("hears-cancel", "MUST", "on CANCEL_REQUESTED the worker stops the task, fails it as `cancelled`, and is free for another",
         "read each heartbeat's reply; stop the task, then fail(id, token, cancelled, …)"),
    Rule("hears-loss", "MUST", "on LEASE_LOST or NOT_FOUND the worker stops the task, sends nothing more about it, and is free for another",
         "read each heartbeat's reply; stop the task and send nothing more with that token"),
    Rule("reloads-scripts", "MUST", "NOSCRIPT at any moment does no harm",
         "on NOSCRIPT send the same call as EVAL with the script's text, or SCRIPT LOAD it and repeat"),
    Rule("repeats-ending", "MUST", "a lost outcome, or one whose reply is lost, is repeated unchanged: no job stays behind",
         "repeat complete, fail and release with the same arguments until there is an answer; the first answer is repeated"),
    Rule("server-away", "MUST", "a server that is unreachable for a second costs no job and no worker",
         "connect again, with a pause between the tries; repeat what was not answered"),
    Rule("idle-rate", "MUST", "an idle worker sends at most one command a second",
         "after an empty claim block on the wake-up lists (BLPOP) for as long as the claim's reply allows"),
    Rule("wakes", "SHOULD", "an idle worker blocks on the wake-up lists of all its queues, and claims on a wake-up",
         "BLPOP base:wake:<queue> for every queue, on a connection of its own, then claim"),
    Rule("appointment", "SHOULD", "an idle worker claims again at the moment that the claim's reply sets, and so starts due jobs in time",
         "wait no longer than the second word of the claim's reply (ms), also when every slot is taken"),
    Rule("scripts-only", "MUST", "a client writes only through the unchanged scripts; otherwise it only takes wake-ups, or puts one back",
         "leave every key to the scripts of lua/, byte for byte: the files that a header names (LIBS), then <verb>.lua"),
    Rule("sigterm", "MUST", "SIGTERM ends a worker within 15 s with exit code 0, its jobs released or finished, no process left",
         "on SIGTERM claim no more, stop or finish the tasks, release(id, token, 0, released, reason), end your children, exit 0"),
    Rule("keeps-checkpoint", "MUST", "a checkpoint is stored with `note`, and the next attempt continues from it",
         "split the last item of a job in the claim's reply at its first newline; send note before the ending", "notes"),
    Rule("keeps-steps", "MUST", "a step is kept with `step`; a later attempt uses its kept result",
         "begin a later attempt with a `step` that names no steps; skip those in its reply; repeat an unanswered call", "steps"),
    Rule("suspends", "MUST", "a task that sleeps, or waits for a signal, ends its attempt with `suspend`, and goes on after it",
         "send suspend(id, token, sleep|signal, name, delay) and free the slot; the ended wait is a kept step of its name", "steps"),
    Rule("enlists", "MUST", "a worker enlists before it claims, with a JSON object, and again at least every 5 s",
         "enlist under the name of your claims, from the timer of the heartbeats, with or without jobs", "register"),
    Rule("spares-the-living", "MUST", "a worker that starts ends no lease of a live one",
         "reconcile only a worker whose boot, pidns, pid and started say that it is gone", "register"),
    Rule("leaves", "MUST", "a worker that ends is not registered any more",
         "reconcile(name, life) without a lease, after the last outcome", "register"),
    Rule("drains", "MUST", "answered `drain`, a worker claims no more, finishes its jobs, leaves the register and exits 0",
         "read the reply of every enlist", "register"),
    Rule("fires", "MUST", "a due schedule is fired: the right occurrences, missed ones, next occurrence and its due moment",
         "compute them as docs/reference/protocol/schedules.md says; schedules.json beside it has test vectors", "schedules"),
    Rule("leaves-unread", "MUST", "a schedule whose plan cannot be read is not fired, and named in each later pick",
         "refuse a plan with an unknown field or value in `when`; pick(50, name, revision, …)", "schedules"),
    Rule("waits", "MUST", "CMD wait ID ends soon after the job; it prints the result and exits 0, or exits with another code",
         "subscribe to base:ended, then watch(id), and again when the id arrives or a second has passed", "waiters"),
)  # fmt: skip

BY_NAME = {rule.name: rule for rule in RULES}
CORE = {rule.name for rule in RULES if not rule.group}
"""Rules that are examined unless others are named."""
GROUPS = {
    group: {rule.name for rule in RULES if rule.group == group}
    for group in ("notes", "steps", "register", "schedules", "waiters")
}


TIMED = {
    "claim-ids",
    "free-slots",
    "heartbeat",
    "hears-cancel",
    "hears-loss",
    "timeout",
    "idle-rate",
    "wakes",
    "appointment",
    "enlists",
    "drains",
    "waits",
}
"""Rules that a busy machine may break: a broken one is tried again."""


class Verdict(NamedTuple):
    """The result for one rule. `seen`: what was observed against it, or why it was not checked; "" if the
    client kept it.
    """

    rule: Rule
    seen: str

    @property
    def kept(self) -> bool:
        """Whether `seen` is empty."""
        return not self.seen


class Judge:
    """Collects the observations about the rules in `names`; the first one against a rule decides."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self._seen: dict[str, str] = {}

    def wants(self, *names: str) -> bool:
        """Whether one of these rules is examined."""
        return bool(self.names & set(names))

    def note(self, name: str, seen: str = "") -> None:
        """Record the observation `seen` against a rule; if empty, that the rule was kept. Ignores rules
        outside of `names`.
        """
        if name in self.names:
            self._seen[name] = self._seen.get(name) or seen

    def judged(self, name: str) -> bool:
        """Whether `note` has recorded this rule, kept or broken."""
        return name in self._seen

    def verdicts(self) -> list[Verdict]:
        """Return one verdict per examined rule, in the order of RULES: broken for a rule without a record."""
        return [
            Verdict(rule, self._seen.get(rule.name, "no trial could observe the rule"))
            for rule in RULES
            if rule.name in self.names
        ]
