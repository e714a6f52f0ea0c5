"""`workers`: list the registered workers; `workers drain`: let workers finish and stop."""

from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sublet.cli.jobs.query import as_json
from sublet.cli.output import Cell, document, duration, is_narrow, table, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, server_time, settings_of
from sublet.cli.workers.worker_events import short
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, Refused, did_you_mean
from sublet.model import WorkerInfo
from sublet.operations.workers import everyone, with_leases
from sublet.protocol import keys

HEADS = (
    "NAME",
    "HOST",
    "PID",
    "PLATFORM",
    "SLOTS",
    "LEASES",
    "DONE",
    "LAST JOB",
    "LAST SEEN",
    "QUEUES",
    "JOBS",
)
SPARE = ("PLATFORM", "PID", "HOST", "LAST JOB", "QUEUES", "SLOTS")
LATE = 15.0
JOBS = QUEUES = 3
NAMED = 10


def list_workers(args: Namespace) -> int:
    """Print up to 1,000 registered workers, the latest seen first."""
    with client_of(settings_of(args)) as client:
        found, now = read(client, client.store.operations.workers(), args), server_time(client)
    if args.json:
        document([as_json(worker) for worker in found])
    elif found:
        table(HEADS, [_row(worker, now) for worker in found], SPARE)
    else:
        write(f"no workers: none is registered; {program()} work MODULE:APP starts one")
    return 0


def _row(worker: WorkerInfo, now: datetime) -> list[Cell | str]:
    reported = [_reported(worker.about.get(name)) for name in ("host", "pid", "platform")]
    done = f"{_count(worker.about.get('completed')):,}"
    return [
        _name(worker.name),
        *reported,
        _slots(worker),
        f"{worker.leases:,}",
        done,
        f"{duration((now - worker.last_job_at).total_seconds())} ago" if worker.last_job_at else "",
        last_seen_cell(worker, now),
        _queues(worker),
        _jobs(worker),
    ]


def _name(name: str) -> str:
    return _end(name, 20) if is_narrow(110) else _end(name, 30) if is_narrow(160) else name


def last_seen_cell(worker: WorkerInfo, now: datetime) -> Cell:
    """Return the time since a worker's last heartbeat; after 15 s as "silent for …", in yellow."""
    silent = (now - worker.seen_at).total_seconds()
    return (
        Cell(f"{duration(silent)} ago")
        if silent <= LATE
        else Cell(f"silent for {duration(silent)}", "yellow")
    )


def _slots(worker: WorkerInfo) -> str:
    slots, processes = _count(worker.about.get("slots")), _count(worker.about.get("processes"))
    return f"{slots:,}{f' + {processes:,} proc.' if processes else ''}" if slots else ""


def _queues(worker: WorkerInfo) -> str:
    queues = worker.about.get("queues")
    names = [name for name in queues if isinstance(name, str)] if isinstance(queues, list) else []
    more = max(_count(worker.about.get("queue_count")), len(names)) - QUEUES
    return ",".join(_end(name, 30) for name in names[:QUEUES]) + (f" and {more:,} more" if more > 0 else "")


def _jobs(worker: WorkerInfo) -> Cell:
    shown = [short(job_id).strip() for job_id in worker.jobs[:JOBS]]
    more = worker.leases - len(shown)
    words = " ".join([*shown, *([f"and {more:,} more"] if more > 0 else [])])
    if waiting := _count(worker.about.get("waiting")):
        words += f"; {waiting:,} wait for other jobs"
    return Cell(f"draining  {words}".rstrip(), "yellow") if worker.draining else Cell(words)


def _reported(value: Any) -> str:
    return _end(str(value), 20) if isinstance(value, str) or _count(value) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else 0


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _full_name(word: str, known: list[WorkerInfo]) -> str:
    keys.check_name("worker", word)
    names = [worker.name for worker in known]
    ways: tuple[Callable[[str], bool], ...] = (
        word.__eq__,
        lambda name: name.startswith(word) or name.endswith(word),
    )
    for way in ways:
        fitting = [name for name in names if way(name)]
        if len(fitting) > 1:
            raise Invalid(
                f"{word} matches {len(fitting)} workers: {_join_names(fitting)}; write more of the name"
            )
        if fitting:
            return fitting[0]
    return word


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")


def drain(args: Namespace) -> int:
    """Ask workers to finish their jobs and stop. Return 1 if one was refused or unknown. Raises Invalid for
    an ambiguous part of a name.
    """
    with client_of(settings_of(args)) as client:
        bases = client.store.operations.bases
        known = read(client, everyone(bases))
        names = dict.fromkeys(_full_name(name, known) for name in args.names)
        named = read(client, with_leases(bases, [worker for worker in known if worker.name in names]))
        answers, now = [_request_drain(client, known, name) for name in names], server_time(client)
    if args.json:
        document(answers)
    else:
        by_name = {worker.name: worker for worker in named}
        table(["WORKER", "ANSWER"], [[_name(each["worker"]), _cell(each, by_name, now)] for each in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _request_drain(client: SyncClient, known: list[WorkerInfo], name: str) -> dict[str, Any]:
    names = [worker.name for worker in known]
    if name not in names:
        near = did_you_mean(name, names) or (
            f"; there are: {_join_names(names)}" if names else ": none is registered"
        )
        return {"worker": name, "error": "NOT_FOUND", "message": f"no worker {name}{near}"}
    try:
        return {"worker": name, "answer": client.store.follow_existing(client.store.operations.drain(name))}
    except Refused as error:
        return {"worker": name, "error": error.code, "message": str(error)}


def _cell(answer: dict[str, Any], known: dict[str, WorkerInfo], now: datetime) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    worker = known[answer["worker"]]
    silent = last_seen_cell(worker, now)
    if silent.colour:
        return Cell(f"asked, but it may have crashed: {silent.text}", "yellow")
    held = f"finishes the {worker.leases:,} that it holds" if worker.leases else "holds nothing"
    return Cell(f"asked: it {held}, claims nothing more and stops", "green")
