"""All commands with their help texts, in the order of docs/reference/cli.md."""

from sublet.cli.parser import Command

GROUPS = {
    "Jobs and queues": (
        Command(
            "submit",
            "TASK [JSON | - | @FILE] [options]",
            "Submit a job: a worker runs the task. Prints the job's id.",
            "jobs.submit:submit",
        ),
        Command(
            "get",
            "ID [--detail]",
            "Show one job: its state, its owner and the outcome of each attempt.",
            "jobs.query:get",
        ),
        Command(
            "list",
            "[options]",
            "List jobs by state, queue, task, tag and more; finished ones newest first.",
            "jobs.query:list_jobs",
        ),
        Command(
            "workflow",
            "ID [options]",
            "Show a workflow: how many of its jobs have ended, and what each one waits for.",
            "jobs.workflow:workflow",
        ),
        Command(
            "queues", "", "List the queues: waiting jobs, limits, and whether paused.", "jobs.query:queues"
        ),
        Command(
            "stats",
            "",
            "Count jobs by state, events since the creation, and jobs without a worker.",
            "jobs.query:stats",
        ),
        Command(
            "events",
            "[options]",
            "Follow the changes of jobs' states, until Ctrl-C (exit 130).",
            "jobs.events:events",
            details="The server keeps the last 10,000 events of each partition.",
        ),
        Command(
            "stream",
            "ID [options]",
            "Print what a job's task emits (ctx.emit), until the job has ended. Exit 1 unless\nit is completed.",
            "jobs.events:stream",
        ),
        Command(
            "cancel",
            "ID… | --task NAME …",
            "Cancel jobs. A running job ends at its worker's next heartbeat.",
            "jobs.actions:cancel",
        ),
        Command(
            "retry",
            "ID… [--anew] | --task NAME …",
            "Queue dead or cancelled jobs again, with all their tries.",
            "jobs.actions:retry",
        ),
        Command(
            "signal",
            "ID NAME [JSON]",
            "Send an event to a job that waits for it, or will: an approval, an answer.",
            "jobs.actions:signal",
        ),
        Command("promote", "ID… | --task NAME …", "Queue scheduled jobs now.", "jobs.actions:promote"),
        Command(
            "reschedule",
            "ID… [--at TIME | --in 10m] [--priority N]",
            "Move scheduled or queued jobs to another time, change their priority, or both.",
            "jobs.actions:reschedule",
            details="With --priority alone, a queued job keeps its turn: it goes before those of its\n"
            "new priority that came later.",
        ),
        Command(
            "erase",
            "ID… | --task NAME …",
            "Delete finished jobs for good: payload, result, log, attempts. Cancel unfinished\nones first.",
            "jobs.actions:erase",
        ),
        Command(
            "pause",
            "QUEUE…",
            "Stop handing out jobs of these queues. Running jobs continue, new ones wait.",
            "jobs.actions:pause",
        ),
        Command("resume", "QUEUE…", "Hand out jobs of paused queues again.", "jobs.actions:resume"),
        Command(
            "purge",
            "QUEUE [--scheduled] [--yes]",
            "Cancel the waiting jobs of a queue. Asks first. Running jobs continue, and jobs\n"
            "that are submitted meanwhile stay.",
            "jobs.purge:purge",
            details="Cancelled jobs are kept, as by `cancel`: `retry ID` queues one again.",
        ),
        Command(
            "configure",
            "[QUEUE] [options]",
            "Set limits of a queue or the namespace; others keep their values.\nPrints the limits in force.",
            "jobs.actions:configure",
        ),
        Command(
            "groups",
            "VERB QUEUE [options]",
            "Manage the groups of a queue: tenants, users, hosts.",
            verbs=(
                Command(
                    "groups list",
                    "QUEUE",
                    "List them: what waits, runs, is blocked.",
                    "jobs.groups:list_groups",
                ),
                Command(
                    "groups set",
                    "QUEUE GROUP",
                    "Change the given settings of a group.",
                    "jobs.groups:set_group",
                ),
            ),
        ),
    ),
    "Schedules": (
        Command(
            "schedules",
            "[VERB …] [options]",
            "Manage schedules, which submit jobs at given times. Without a verb: list.",
            verbs=(
                Command(
                    "schedules list",
                    "",
                    "List all: next occurrence and state.",
                    "schedules.schedules:list_schedules",
                ),
                Command("schedules show", "NAME", "Show one in full.", "schedules.schedules:show"),
                Command(
                    "schedules add",
                    "NAME TASK [JSON]",
                    "Create one or replace it as a whole.",
                    "schedules.schedules:add",
                ),
                Command("schedules remove", "NAME…", "Delete schedules.", "schedules.schedules:remove"),
                Command(
                    "schedules pause", "NAME…", "Submit no jobs until resumed.", "schedules.schedules:pause"
                ),
                Command(
                    "schedules resume", "NAME…", "Continue paused schedules.", "schedules.schedules:resume"
                ),
                Command("schedules run", "NAME…", "Submit one job of each now.", "schedules.schedules:run"),
                Command(
                    "schedules sync",
                    "MODULE:APP",
                    "Store what the app's code declares.",
                    "schedules.schedules:sync",
                ),
            ),
        ),
        Command(
            "tick",
            "[options]",
            "Run maintenance once: return expired leases, queue due jobs, fire due\n"
            "schedules, summon workers for pools, forget old data. Call it from any cron.",
            "schedules.tick:tick",
        ),
    ),
    "Workers and the HTTP API": (
        Command(
            "work",
            "MODULE:APP… [options]",
            "Run a worker: claim and run jobs until a signal. SUBLET_WORKER_ID: identity",
            "workers.work:work",
        ),
        Command(
            "serve",
            "[options]",
            "Serve the HTTP API, for curl and for workers.\nOn other addresses than loopback it requires tokens.",
            "workers.serve:serve",
            extras=("http",),
        ),
        Command(
            "workers",
            "[drain NAME…]",
            "List the registered workers: host, leases, last heartbeat.",
            verbs=(
                Command("workers list", "", "List them.", "workers.workers:list_workers"),
                Command(
                    "workers drain",
                    "NAME…",
                    "Let workers finish their jobs and stop.",
                    "workers.workers:drain",
                ),
            ),
        ),
        Command(
            "tasks",
            "",
            "List the tasks of the workers: queues, limits, arguments.",
            "workers.tasks:tasks",
        ),
        Command(
            "pools",
            "[VERB …] [options]",
            "Manage pools: for which queues workers are summoned. Without a verb: list.",
            verbs=(
                Command("pools list", "", "List all: sizes and last failures.", "workers.pools:list_pools"),
                Command("pools show", "NAME", "Show one in full.", "workers.pools:show"),
                Command(
                    "pools set", "NAME", "Create one, or change the given options.", "workers.pools:set_pool"
                ),
                Command(
                    "pools remove",
                    "NAME…",
                    "Delete pools: no more workers are summoned.",
                    "workers.pools:remove",
                ),
            ),
        ),
        Command(
            "scale",
            "[POOL]",
            "Show how many workers a pool should have, and how that is computed.\nSummons none.",
            "workers.pools:scale",
        ),
    ),
    "Operations": (
        Command(
            "doctor",
            "[--repair]",
            "Check whether the server and the namespace are fit to keep jobs.\nExit 1 if a check is bad.",
            "operations.doctor:doctor",
            details="With --repair: after an eviction, a bad restore or a DEL, make the stored data\n"
            "consistent again. Exit 1 if something cannot be repaired.",
        ),
        Command(
            "audit",
            "[--limit N] [--cursor CURSOR]",
            "List the orders that people gave, newest first: cancel, pause, drain and others.",
            "operations.audit:audit",
            details="The server keeps the last 1,000 of each partition, about. Orders by programs and\n"
            "workers are not recorded, nor are payloads.",
        ),
        Command(
            "acl",
            "[--role ROLES] [--no-eval] [--to FILE]",
            "Print users for Redis's ACL file: for each role its keys and commands, no more.",
            "operations.acl:acl",
            details="A user is named by namespace and role: `sublet-submit`, `sublet-work` and so on.\n"
            "`--role` prints one line, for a server that has an ACL file already; it leaves\n"
            "the user `default` (connections without a name) as it is.",
        ),
        Command(
            "scripts",
            "[--load | --text]",
            "List the Lua scripts with their SHA-1, and whether the server has them.",
            "operations.scripts:scripts",
        ),
        Command(
            "drop",
            "NAMESPACE [--yes] [--force]",
            "Delete a namespace: all its jobs, queues and settings. Asks first.",
            "operations.drop:drop",
        ),
    ),
    "Development": (
        Command(
            "dev",
            "MODULE:APP [options]",
            "Run a function platform on this machine: server, API, workers on demand.\n"
            "It starts a server of its own unless --redis-url names one. SUBLET_REDIS_URL is\n"
            "ignored, because it may name a production server.",
            "develop.dev:dev",
            extras=("dev",),
        ),
        Command(
            "init",
            "[TARGET] [--app MODULE:APP] [--to FOLDER]",
            "Write the files that a platform needs to run your app. No secrets.",
            "develop.init:init",
            details="If one of the files exists with other content, nothing is written. Your app,\n"
            "requirements.txt, Dockerfile and .dockerignore stay as they are.",
        ),
        Command(
            "conformance",
            "[--only RULES] [--with GROUPS] [--] CMD…",
            "Test a client in any language: which rules of the protocol does it keep?",
            "develop.conformance:conformance",
            details="The client is run as `CMD submit TASK JSON` and `CMD work`; its environment has\n"
            "  SUBLET_REDIS_URL  SUBLET_NAMESPACE  SUBLET_QUEUES (A,B; submit uses the first)\n"
            "  SUBLET_SLOTS (jobs at a time)  SUBLET_LEASE (seconds)  SUBLET_PARTITIONS (1)\n"
            'It needs the tasks `echo`, which returns its payload; `sleep` {"seconds": N}\n'
            'and `boom` {"message": M}, which fails with the message M.',
            extras=("demo",),
        ),
        Command(
            "demo",
            "[--once]",
            "Run jobs on a server of its own, kill a worker, and show that no job is lost.",
            "develop.project:demo",
            extras=("demo",),
        ),
        Command(
            "test",
            "[pytest's arguments]",
            "Run Sublet's own test suite (in a checkout). Arguments are passed on to pytest.",
            "develop.project:test",
            extras=("test",),
            passes_arguments=True,
        ),
        Command(
            "simulate",
            "[--for 10m] [--seed N] [--exhaustive]",
            "Look for defects: lose, repeat and delay calls in simulated worlds.",
            "develop.simulate:simulate",
            extras=("test",),
        ),
        Command(
            "chaos",
            "[--quick] [--only NAMES] [--list] [--seed N]",
            "Test the promises on real servers and processes: kill, freeze, cut, fill.\n"
            "Exit 1 if a promise is broken.",
            "develop.chaos:chaos",
            details="With --redis-url it runs, in a namespace of its own there, the scenarios that\n"
            "need no server of their own; it touches no other key.",
            extras=("demo",),
        ),
        Command(
            "version", "", "Print the versions of Sublet, Python and redis-py.", "develop.project:version"
        ),
    ),
}
COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}
ORDERS = {
    "cancel",
    "retry",
    "signal",
    "promote",
    "reschedule",
    "erase",
    "pause",
    "resume",
    "purge",
    "configure",
    "groups",
    "schedules",
    "workers",
    "pools",
    "doctor",
}
OTHER_NAMES = {
    "beat": "tick",
    "clear": "purge",
    "dashboard": "serve",
    "delete": "cancel",
    "empty": "purge",
    "enqueue": "submit",
    "flower": "serve",
    "info": "stats",
    "inspect": "get",
    "jobs": "list",
    "kill": "cancel",
    "monitor": "events",
    "push": "submit",
    "requeue": "retry",
    "revoke": "cancel",
    "run": "work",
    "scheduler": "tick",
    "send": "submit",
    "show": "get",
    "start": "work",
    "status": "stats",
    "watch": "events",
    "web": "serve",
    "worker": "work",
}
"""A command's name in Celery, RQ, Sidekiq and others → its name here, for errors."""
