"""`cancel`, `retry` and `promote`: an operator's verbs, on one job or several."""

from argparse import Namespace
from typing import Any

from jobs.cli.output import Cell, document, table
from jobs.cli.session import client_of, settings_of
from jobs.client import SyncClient
from jobs.errors import Refused
from jobs.transport import follow_sync

WORDS = {"requested": "requested: its worker hears of it at the next heartbeat"}


def cancel(args: Namespace) -> int:
    """Call jobs off."""
    return _each("cancel", args)


def retry(args: Namespace) -> int:
    """Revive dead or cancelled jobs."""
    return _each("retry", args)


def promote(args: Namespace) -> int:
    """Queue scheduled jobs now."""
    return _each("promote", args)


def _each(verb: str, args: Namespace) -> int:
    """Ask for each job, and say each answer. 1 if any was refused."""
    with client_of(settings_of(args)) as client:
        for job_id in args.ids:
            client.layout.of_id(job_id)  # an id that cannot be stops us before anything is done
        answers = [_ask(client, verb, job_id) for job_id in args.ids]
    if args.json:
        document(answers)
    else:
        table(["ID", "ANSWER"], [[answer["id"], _cell(answer)] for answer in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _ask(client: SyncClient, verb: str, job_id: str) -> dict[str, Any]:
    try:
        answer: str = follow_sync(client.transport.run, getattr(client.layout, verb)(job_id))
    except Refused as error:
        return {"id": job_id, "error": error.code, "message": str(error)}
    return {"id": job_id, "answer": answer}


def _cell(answer: dict[str, Any]) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    return Cell(WORDS.get(answer["answer"], answer["answer"]), "green")
