"""The table of commands: what each takes, in which module its handler lives, and what must be installed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sublet.cli import takes
from sublet.cli.parser import Parser


class Command(NamedTuple):
    """One command. Its handler is `<module>.<function>` of this package, which is imported when it is called."""

    name: str
    usage: str
    summary: str
    handler: str
    takes: Callable[[Parser], None] = lambda parser: None
    groups: tuple[str, ...] = ()
    passes: bool = False
    """Its words are for another program, and are passed on as they are."""

    def parser(self) -> Parser:
        """A parser for its arguments."""
        parser = Parser(self.name, self.usage, self.summary)
        self.takes(parser)
        return parser


_TABLE = (
    Command("submit", "TASK [JSON | - | @FILE] [options]", "Have a worker run a task. Prints the job's id.",
            "jobs.submit.submit", takes.submit),
    Command("get", "ID [--detail]", "All about one job: where it is, who owns it, what became of each attempt.",
            "jobs.query.get", takes.get),
    Command("list", "[options]", "Jobs by state, queue and task; finished ones newest first.",
            "jobs.query.list_jobs", takes.listing),
    Command("queues", "", "The queues: how many jobs wait in each, their limits, whether they are paused.",
            "jobs.query.queues"),
    Command("stats", "", "How many jobs are in each state, and what happened since the namespace was made.",
            "jobs.query.stats"),
    Command("cancel", "ID…", "Call jobs off; one that runs hears of it at its worker's next heartbeat.",
            "jobs.actions.cancel", takes.ids),
    Command("retry", "ID…", "Revive dead or cancelled jobs, with all their tries.",
            "jobs.actions.retry", takes.ids),
    Command("promote", "ID…", "Queue scheduled jobs now, whatever they were waiting for.",
            "jobs.actions.promote", takes.ids),
    Command("pause", "QUEUE…", "Hand out no more jobs of these queues; those that run go on, and new ones wait.",
            "jobs.actions.pause", takes.queues),
    Command("resume", "QUEUE…", "Hand out the jobs of paused queues again.",
            "jobs.actions.resume", takes.queues),
    Command("configure", "[QUEUE] [options]", "Set how much a queue may hold; what is not named stays. Prints what holds now.",
            "jobs.actions.configure", takes.configure),
    Command("work", "MODULE:APP [options]", "Run a worker: take jobs and run them until a signal comes.",
            "workers.work.work", takes.work),
    Command("serve", "[options]",
            "Answer HTTP: the whole API, for curl and for workers.\nAway from loopback it takes tokens.",
            "workers.serve.serve", takes.serve, groups=("http",)),
    Command("workers", "[drain NAME…]", "The workers: where each runs, what it holds, and when it was last heard of.",
            "workers.workers.workers", takes.workers),
    Command("pools", "[VERB …] [options]",
            "For which queues workers are summoned, how many there are, and what went wrong.",
            "workers.pools.show_pools", takes.pools),
    Command("scale", "[POOL]", "How many workers a pool should have: the sum behind the number.\nNobody is summoned by looking.",
            "workers.pools.scale", takes.scale),
    Command("schedules", "[VERB …] [options]", "What is submitted by the clock: when it runs next, and how it stands.",
            "schedules.schedules.schedules", takes.schedules),
    Command("tick", "[options]", "Do what time has decided: give expired leases back, queue what is due, fire",
            "schedules.tick.tick", takes.tick),
    Command("scripts", "[--load]", "The Lua scripts, their SHA-1, and whether the server knows them.",
            "operations.scripts.scripts", takes.scripts),
    Command("acl", "[--role ROLES] [--to FILE]",
            "Users for Redis's ACL file: for each role its keys and commands, and no more.",
            "operations.acl.acl", takes.acl),
    Command("doctor", "[--repair]",
            "Look the server over: is it fit to keep jobs? Exit 1 if anything is bad.\n"
            "With --repair: after an eviction, a bad restore or a DEL, have all that is\n"
            "left agree again. Exit 1 if anything stays so.",
            "operations.doctor.doctor", takes.doctor),
    Command("drop", "NAMESPACE [--yes] [--force]", "Forget a namespace: all its jobs, queues and settings. Asks first.",
            "operations.drop.drop", takes.drop),
    Command("conformance", "[--only RULES] [--] CMD…",
            "Examine a client in any language: which rules of the protocol does it keep?",
            "develop.conformance.conformance", takes.conformance, groups=("demo",)),
    Command("dev", "MODULE:APP [options]", "Play the function platform here: server, API, workers that come and go.",
            "develop.dev.dev", takes.dev, groups=("dev",)),
    Command("init", "[TARGET] [--app MODULE:APP] [--to FOLDER]",
            "Write what a platform takes to run your app into your project: nothing secret.",
            "develop.init.init", takes.init),
    Command("demo", "[--once]", "Run jobs on a server of its own, kill a worker, and show that nothing is lost.",
            "develop.project.demo", takes.demo, groups=("demo",)),
    Command("test", "[pytest's arguments]", "Run the project's tests; what follows is passed on to pytest.",
            "develop.project.test", groups=("test",), passes=True),
    Command("simulate", "[--for 10m] [--seed N] [--exhaustive]",
            "Look for defects: lose, repeat and delay calls in simulated worlds.",
            "develop.simulate.simulate", takes.simulate, groups=("test",)),
    Command("chaos", "[--quick] [--only NAMES] [--list] [--seed N]",
            "Attack the promises on real servers and processes: kill, freeze, cut, fill.\nExit 1 if one did not hold.",
            "develop.chaos.chaos", takes.chaos, groups=("demo",)),
    Command("version", "", "What this is, and what it runs on.",
            "develop.project.version"),
)  # fmt: skip

COMMANDS = {command.name: command for command in _TABLE}
