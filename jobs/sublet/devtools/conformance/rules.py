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


RULES = (
    Rule("prints-id", "MUST", "submit stores one job, prints its id on its last line, and exits 0",
         "make an id ([A-Za-z0-9_.:-]{1,64}), send it with `submit`, print the id that the reply names"),
    Rule("keeps-payload", "MUST", "submit stores the payload as it was given: Unicode, quotes, newlines, 100 KB",
         "send the payload as bytes, as the fifth argument; let no shell and no template touch it"),
    Rule("repeats-submit", "MUST", "a submit whose request or reply is lost is sent again with the same id: one job, not two",
         "make the id before the first try, and repeat the same call until there is an answer"),
    Rule("makes-namespace", "MUST", "on NO_NAMESPACE it runs `init` and goes on, and a worker lives on",
         "run `init` (safe to repeat) when a reply begins with NO_NAMESPACE, then repeat the call"),
    Rule("claim-ids", "MUST", "each claim has an id of its own, of 22 or more random characters",
         "draw 16 or more random bytes for each new claim; keep the id only to repeat a claim that was not answered"),
    Rule("repeats-claim", "MUST", "a claim whose reply is lost is sent again with the same id; each job it brings is run once",
         "repeat the same call, the same bytes, within 10 s: the server then gives the same jobs again"),
    Rule("own-name", "MUST", "a worker names itself, always the same, in 1 to 128 of A-Z a-z 0-9 _ . : -",
         "make a name of host, process id and chance when the worker starts"),
    Rule("names-queues", "MUST", "a claim names the queues that the worker was told, in their order",
         "split SUBLET_QUEUES at the commas; `claim` takes the queues from the first to the last"),
    Rule("free-slots", "MUST", "it never holds more jobs than it has slots",
         "ask for as many jobs as there are free slots, and count those that a claim under way may bring"),
    Rule("durations", "MUST", "it sends durations in ms, the lease that it was told, and never a moment of its own clock",
         "send `lease` as SUBLET_LEASE times 1000; a job's at= is the only moment that a client may name"),
    Rule("keeps-result", "MUST", "a result is JSON, and for `echo` equal to the payload: Unicode, quotes, newlines, 200 KB",
         "the payload is what follows the first newline of `spec`; without one, it is the field after it"),
    Rule("tells-failure", "MUST", "a task that fails is told with `fail`: a code of one word, and the message",
         "send fail(id, token, code, message, detail, yes|no), with what the task said as the message"),
    Rule("unknown-task", "MUST", "a task that it does not have is given back with a reason that begins with unknown_task",
         "send release(id, token, 0, \"unknown_task …\"): the server waits longer each time and buries it in the end"),
    Rule("timeout", "SHOULD", "a task is ended at its timeout, and `fail` says timed_out before the lease ends by itself",
         "read timeout= in the first line of `spec` (ms, none; 300000 where it is not said) and end the task then"),
    Rule("heartbeat", "MUST", "while a job runs, heartbeats come every third of the lease: never none for two thirds",
         "send `heartbeat` beside the running job, every third of the lease, from a timer that the task cannot hold up"),
    Rule("lost-heartbeat", "MUST", "a heartbeat that is lost, or its reply, neither stops the job nor the worker",
         "take an unanswered heartbeat for unknown: send it again, and stop only when the server says so"),
    Rule("hears-cancel", "MUST", "on CANCEL_REQUESTED it stops the task, fails it as `cancelled`, and is free for another",
         "look at each heartbeat's reply; stop the task, then fail(id, token, cancelled, …)"),
    Rule("hears-loss", "MUST", "on LEASE_LOST or NOT_FOUND it stops the task, says no more of it, and is free for another",
         "look at each heartbeat's reply; stop the task and send nothing more with that token"),
    Rule("reloads-scripts", "MUST", "NOSCRIPT at any moment does no harm",
         "on NOSCRIPT send the same call as EVAL with the script's text, or SCRIPT LOAD it and repeat"),
    Rule("repeats-ending", "MUST", "an ending that is lost, or its reply, is sent again, the same: no job stays behind",
         "repeat complete, fail and release with the same arguments until there is an answer; the first answer is repeated"),
    Rule("server-away", "MUST", "a server that is away for a second costs no job and no worker",
         "connect again, with a pause between the tries; repeat what was not answered"),
    Rule("idle-rate", "MUST", "an idle worker sends at most one command a second",
         "after an empty claim wait on the markers (BLPOP) for as long as the claim's reply said"),
    Rule("wakes", "SHOULD", "an idle worker blocks on the markers of all its queues, and claims when one comes",
         "BLPOP base:wake:<queue> for every queue, on a connection of its own, then claim"),
    Rule("appointment", "SHOULD", "it claims again when the claim's reply said, and so starts a job that falls due in time",
         "wait no longer than the second word of the claim's reply (ms), also when every slot is taken"),
    Rule("scripts-only", "MUST", "it writes by the scripts alone, as they are; beside that it takes markers, or puts one back",
         "leave every key to the scripts of lua/, byte for byte: the files that a header names (LIBS), then <verb>.lua"),
    Rule("sigterm", "MUST", "SIGTERM ends it within 15 s with exit code 0, what it held given back or finished, no process left",
         "on SIGTERM claim no more, stop or finish the tasks, release(id, token, 0, reason), end your children, exit 0"),
)  # fmt: skip
"""In the order in which they are reported."""

BY_NAME = {rule.name: rule for rule in RULES}


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
}
"""Rules that a busy machine may break: a failed one is tried a second time."""


class Verdict(NamedTuple):
    """The result for one rule. `seen` is the observation against it, "" if the client kept it."""

    rule: Rule
    seen: str

    @property
    def kept(self) -> bool:
        """Return whether nothing was observed against the rule."""
        return not self.seen


class Judge:
    """Collects observations on the rules in `names`. The first observation against a rule decides."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self._seen: dict[str, str] = {}

    def wants(self, *names: str) -> bool:
        """Return whether one of these rules is examined."""
        return bool(self.names & set(names))

    def note(self, name: str, seen: str = "") -> None:
        """Record the observation `seen` against a rule, or, if empty, that it was kept. Ignores other rules."""
        if name in self.names:
            self._seen[name] = self._seen.get(name) or seen

    def judged(self, name: str) -> bool:
        """Return whether `note` has recorded this rule, kept or broken."""
        return name in self._seen

    def verdicts(self) -> list[Verdict]:
        """Return one verdict per examined rule, in the order of RULES. A rule without a record is not kept."""
        return [
            Verdict(rule, self._seen.get(rule.name, "it was never seen"))
            for rule in RULES
            if rule.name in self.names
        ]
