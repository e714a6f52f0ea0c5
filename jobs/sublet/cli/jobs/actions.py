"""Commands that change jobs or queues. All but `configure` return 1 if a change was refused. `cancel`, `retry`,
`promote` and `erase` take ids or a filter.
"""

from argparse import Namespace
from typing import Any

from sublet.cli.jobs import bulk
from sublet.cli.jobs.groups import rates
from sublet.cli.jobs.ids import IdFinder, typed
from sublet.cli.output import Cell, document, limits_of, table, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, NotFound, Refused, did_you_mean
from sublet.model import State
from sublet.options import waiting_rules
from sublet.protocol import reads
from sublet.steps.calls import value_of

KEPT = ("completed", "dead", "cancelled", "queues")
"""Names of limits of the namespace: how many finished jobs, and how many queues, are kept."""
FLOW = ("concurrency", "rate", "burst", "group_concurrency", "group_rate", "group_burst")
"""Names of limits on starts and running jobs."""
STATES = {
    "cancel": (State.SCHEDULED, State.QUEUED, State.RUNNING),
    "retry": (State.DEAD, State.CANCELLED),
    "signal": (State.SCHEDULED, State.QUEUED, State.RUNNING),
    "promote": (State.SCHEDULED,),
    "reschedule": (State.SCHEDULED, State.QUEUED),
    "erase": (State.COMPLETED, State.DEAD, State.CANCELLED),
}
"""The states of jobs that each command can name by the end of their ids."""
WORDS = {"requested": "requested: its worker ends it at the next heartbeat"}


def cancel(args: Namespace) -> int:
    """Cancel jobs, running ones at their worker's next heartbeat."""
    return _for_each("cancel", args)


def retry(args: Namespace) -> int:
    """Retry dead or cancelled jobs, with all their tries: they are queued, or wait again for their upstream jobs."""
    if args.anew and bulk.given(args):
        raise Invalid("--anew: name the jobs by their ids, not by a filter")
    return _for_each("retry", args, **({"anew": True} if args.anew else {}))


def signal(args: Namespace) -> int:
    """Send a signal to a job."""
    args.ids = [args.id]
    return _for_each("signal", args, name=args.name, value=value_of(args.value))


def promote(args: Namespace) -> int:
    """Queue scheduled jobs now."""
    return _for_each("promote", args)


def reschedule(args: Namespace) -> int:
    """Move waiting jobs to another time, change their priority, or both."""
    changes = {name: getattr(args, name) for name in ("run_at", "delay", "priority") if name in args}
    if not changes:
        raise Invalid("nothing to change: give --at, --in or --priority")
    if {"run_at", "delay"} <= changes.keys():
        raise Invalid("--at and --in: use one of them")
    waiting_rules(*map(changes.get, ("run_at", "delay", "priority")))
    return _for_each("reschedule", args, **changes)


def erase(args: Namespace) -> int:
    """Delete finished jobs for good."""
    return _for_each("erase", args)


def pause(args: Namespace) -> int:
    """Pause queues: workers claim no more of their jobs."""
    return _for_each("pause", args)


def resume(args: Namespace) -> int:
    """Let workers claim from paused queues again."""
    return _for_each("resume", args)


def _for_each(verb: str, args: Namespace, **changes: Any) -> int:
    if verb in bulk.DONE and bulk.given(args):
        return bulk.order(verb, args)
    kind = "queue" if verb in ("pause", "resume") else "id"
    names = args.queues if kind == "queue" else [typed(word) for word in args.ids]
    with client_of(settings_of(args)) as client:
        operations = client.store.operations
        for name in names:
            (operations.check_queue if kind == "queue" else operations.base_of_job)(name)
        client.store.follow_existing(operations.exists())
        if kind == "queue":
            answers = [_change_queue(client, verb, name) for name in names]
        else:
            finder = IdFinder(client, STATES[verb])
            answers = [_change_job(client, verb, name, finder, changes) for name in names]
    if args.json:
        document([{name: value for name, value in answer.items() if name != "near"} for answer in answers])
    else:
        table([kind.upper(), "ANSWER"], [[answer[kind], _cell(answer)] for answer in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _change_queue(client: SyncClient, verb: str, name: str) -> dict[str, Any]:
    plan = getattr(client.store.operations, verb)(name)
    try:
        known = [queue.name for queue in client.queues()]
        answer: str = client.store.follow(plan)
    except Refused as error:
        return _refusal("queue", name, error)
    new = {} if name in known else {"new": True, "near": did_you_mean(name, known)}
    return {"queue": name, "answer": answer, **new}


def _change_job(
    client: SyncClient, verb: str, word: str, finder: IdFinder, changes: dict[str, Any]
) -> dict[str, Any]:
    store, job_id = client.store, word

    def order(name: str) -> str:
        return (
            store.erase(name)
            if verb == "erase"
            else store.follow_existing(getattr(store.operations, verb)(name, **changes))
        )

    try:
        try:
            answer = order(word)
        except NotFound as error:
            job_id = finder.find(word, error)
            answer = order(job_id)
    except (Refused, Invalid) as error:
        return _refusal("id", job_id, error)
    state, _, due = answer.partition(" ")
    due_at = {"due_at": f"{reads.moment(due):%Y-%m-%dT%H:%M:%SZ}"} if due else {}
    priority = {"priority": changes["priority"]} if "priority" in changes else {}
    return {"id": job_id, "answer": state, **due_at, **priority}


def _refusal(kind: str, name: str, error: Refused | Invalid) -> dict[str, Any]:
    message = "; ".join([str(error), *getattr(error, "__notes__", ())])
    return {kind: name, "error": getattr(error, "code", "INVALID"), "message": message}


def _cell(answer: dict[str, Any]) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    if answer.get("new"):
        return Cell(f"{answer['answer']}; this queue never had a job{answer['near']}", "yellow")
    words = WORDS.get(answer["answer"], answer["answer"])
    due = f" for {answer['due_at']}" if "due_at" in answer else ""
    priority = f", priority {answer['priority']}" if "priority" in answer else ""
    return Cell(words + due + priority, "green")


def configure(args: Namespace) -> int:
    """Set given limits and `on_dead` of a queue or the namespace (`*`); print all that it has then."""
    limits = {name: getattr(args, name) for name in ("jobs", "bytes", *FLOW, *KEPT) if hasattr(args, name)}
    everywhere = args.queue == "*"
    for name in limits:
        if everywhere != (name in KEPT):
            whose = "a queue: name the queue" if everywhere else "the namespace: leave QUEUE out"
            raise Invalid(
                f"configure: --{name.replace('_', '-')} is a limit of {whose}, as in {program()} configure {'QUEUE ' if everywhere else ''}--{name.replace('_', '-')} …"
            )
    reports = (
        {"on_dead": None if args.on_dead == "none" else args.on_dead} if hasattr(args, "on_dead") else {}
    )
    with client_of(settings_of(args)) as client:
        if limits or reports:
            client.configure(args.queue, **rates(limits), **reports)
        held = read(client, client.store.operations.queue(args.queue))
    if args.json:
        document({"queue": held.name, "limits": held.limits, "on_dead": held.on_dead})
    else:
        hook = f"; dead jobs are reported by {held.on_dead}" if held.on_dead else ""
        write(f"{'the namespace' if everywhere else held.name}: {limits_of(held) or 'no limits'}{hook}")
    return 0
