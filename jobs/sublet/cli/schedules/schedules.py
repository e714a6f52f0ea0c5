"""`schedules`: list, show, add, sync; remove, pause, resume and run return 1 if one was refused."""

import os
import shlex
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from sublet.cli.argument_types import text_of
from sublet.cli.jobs.submit import checked_task
from sublet.cli.jobs.task_check import CheckedTask, check_task, policy_of
from sublet.cli.output import Cell, document, note, table, write
from sublet.cli.parser import program
from sublet.cli.schedules.schedule_view import row, show_schedule
from sublet.cli.session import client_of, read, server_time, settings_for, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, NotFound, Refused, did_you_mean
from sublet.options import OF_SINGLE_JOBS, Options
from sublet.protocol.payload import payload_of
from sublet.schedules import operations
from sublet.schedules.definition import NewSchedule, Schedule, check_name, new_schedule, recurrence
from sublet.schedules.recurrence import Recurrence

RECURRENCE_OPTIONS = ("cron", "every", "tz", "start", "end", "jitter", "missed", "late", "most", "overlap")
JOB_OPTIONS = ("queue", "priority", "max_attempts", "timeout", "stall", "retention", "tags", "keep_payload")
HEADS = ("NAME", "STATE", "NEXT", "IN", "LAST FIRED", "WHEN")
SPARE = ("LAST FIRED", "IN", "WHEN")
NEEDS = {"late": "skip", "most": "all"}


def list_schedules(args: Namespace) -> int:
    """Print one page of schedules; if another follows, also the command that shows it."""
    limit, after = args.limit or 100, args.cursor
    with client_of(settings_of(args)) as client:
        found, cursor = read(client, operations.page(client.store.operations, after, limit), args)
        now = server_time(client)
    if args.json:
        document({"schedules": [_as_json(one, "payload", "upcoming") for one in found], "cursor": cursor})
        return 0
    if found:
        table(HEADS, [row(one, now) for one in found], SPARE)
    else:
        write(
            f"no schedules{f' after {after}' if after else ''}; create one: {program()} schedules add --help"
        )
    if cursor:
        paged = f" --limit {limit}" if args.limit else ""
        note(f"more: {program()} schedules{paged} --cursor {shlex.quote(cursor)}")
    return 0


def _as_json(shown: Schedule, *without: str) -> dict[str, Any]:
    fields = shown.model_dump(mode="json", exclude={"payload", *without})
    return fields if "payload" in without else fields | {"payload": shown.payload}


def show(args: Namespace) -> int:
    """Print one schedule in full. Raises NotFound."""
    with client_of(settings_of(args)) as client:
        found, now = _find(client, args.name), server_time(client)
    if args.json:
        document(_as_json(found))
    else:
        show_schedule(found, now)
    return 0


def _find(client: SyncClient, name: str) -> Schedule:
    check_name(name)
    try:
        return read(client, operations.get(client.store.operations, name))
    except NotFound as error:
        raise _not_found(client, name, error) from None


def _not_found(client: SyncClient, name: str, error: NotFound) -> NotFound:
    known = [known for known, _ in read(client, operations.known(client.store.operations))]
    near = did_you_mean(name, known) or (
        f"; {program()} schedules lists them" if known else ": there are none"
    )
    return NotFound(f"{error}{near}")


def add(args: Namespace) -> int:
    """Create or replace a schedule, and print it. Options that are not given are the task's or defaults."""
    name, payload = check_name(args.name), payload_of(text_of(args.payload))
    place = getattr(args, "app", None) or os.environ.get("SUBLET_APP")
    app, task, policy = None, CheckedTask(args.task, Options()), policy_of(args.check_tasks)
    if place:
        from sublet.execution.app_loader import load_app

        app = load_app(place)
        declared = checked_task(app, place, args.task, payload)
        task = CheckedTask(declared.name, declared.defaults)
    wanted = _schedule(args, task, payload)
    with client_of(settings_for(args, app)) as client:
        if not place and policy != "off":
            task = check_task(client, args.task, payload, policy, "add")
            own = task.options.but(delay=0, **OF_SINGLE_JOBS)
            wanted = _schedule(args, task._replace(options=own), payload)
        answer = client.store.follow(operations.put(client.store.operations, wanted))
        found, now = _find(client, name), server_time(client)
    warning = {"warning": task.warning} if task.warning else {}
    if args.json:
        document({"answer": answer, "schedule": _as_json(found)} | warning)
        return 0
    if warning:
        note(task.warning)
    write(answer)
    show_schedule(found, now)
    return 0


def _schedule(args: Namespace, task: CheckedTask, payload: bytes) -> NewSchedule:
    given = {field: getattr(args, field) for field in JOB_OPTIONS if hasattr(args, field)}
    return new_schedule(args.name, _recurrence(args), task.name, payload, task.options.but(**given))


def _recurrence(args: Namespace) -> Recurrence:
    given = {field: getattr(args, field) for field in RECURRENCE_OPTIONS if hasattr(args, field)}
    if "cron" not in given and "every" not in given:
        raise Invalid(
            "--cron or --every is missing: write --cron LINE, e.g. '0 9 * * MON-FRI', or --every 30s"
        )
    for option, policy in NEEDS.items():
        if option in given and given.get("missed") != policy:
            raise Invalid(
                f"--{option} has an effect only with --missed {policy}: add that, or leave --{option} out"
            )
    return recurrence(given)


def remove(args: Namespace) -> int:
    """Delete schedules."""

    def call(client: SyncClient, name: str) -> dict[str, Any]:
        client.schedules.remove(name)
        return {"answer": "removed"}

    return _for_each(args, call)


def pause(args: Namespace) -> int:
    """Pause schedules: they submit no jobs."""
    return _for_each(args, lambda client, name: {"answer": client.schedules.pause(name)})


def resume(args: Namespace) -> int:
    """Resume paused schedules."""
    return _for_each(args, lambda client, name: {"answer": client.schedules.resume(name)})


def run(args: Namespace) -> int:
    """Submit one job of each schedule now."""
    if args.id is not None and len(args.names) > 1:
        raise Invalid("--id is for one job: name one schedule")

    def call(client: SyncClient, name: str) -> dict[str, Any]:
        submitted = client.schedules.run(name, args.id)
        return {"answer": "submitted" if submitted.created else "there already", "id": submitted.id}

    return _for_each(args, call)


def _for_each(args: Namespace, call: Callable[[SyncClient, str], dict[str, Any]]) -> int:
    for name in args.names:
        check_name(name)
    answers: list[dict[str, Any]] = []
    with client_of(settings_of(args)) as client:
        for name in dict.fromkeys(args.names):
            try:
                read(client, operations.find(client.store.operations, name))
                answers.append({"schedule": name} | call(client, name))
            except Refused as error:
                refusal = _not_found(client, name, error) if isinstance(error, NotFound) else error
                answers.append({"schedule": name, "error": error.code, "message": str(refusal)})
    if args.json:
        document(answers)
    else:
        table(["SCHEDULE", "ANSWER"], [[answer["schedule"], _cell(answer)] for answer in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _cell(answer: dict[str, Any]) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    return Cell(": ".join([answer["answer"], *([answer["id"]] if "id" in answer else [])]), "green")


def sync(args: Namespace) -> int:
    """Store the schedules that the app declares, and print what became of each (also `unchanged`); --remove
    deletes those that this MODULE:APP declares no more.
    """
    from sublet.execution.app_loader import load_app, target_of

    place = args.app
    if not place:
        raise Invalid("MODULE:APP is missing: name the app that declares the schedules, or set SUBLET_APP")
    app = load_app(place)
    with client_of(settings_for(args, app)) as client:
        done = client.sync(app, target_of(place), remove=args.remove)
        may_end = any(wanted.recurrence.end for wanted in app.schedules.all())
        page = operations.page(client.store.operations)
        shown = read(client, page).schedules if may_end and not args.json else []
        ended = {one.name for one in shown if one.state == "ended"}
    if args.json:
        document([one._asdict() for one in done])
    elif done:
        table(["SCHEDULE", "ANSWER"], [[one.name, _sync_cell(one, one.name in ended)] for one in done])
    else:
        write(f"{place} declares no schedules")
    return 0


def _sync_cell(one: operations.Synced, ended: bool) -> Cell:
    if ended:
        return Cell(f"{one.answer}; there is no occurrence before its end", "yellow")
    colour = {"unchanged": "", "removed": "yellow"}.get(one.answer, "green")
    if one.before is None:
        return Cell(one.answer, colour)
    whose = f"of {one.before}" if one.before else "put by hand"
    return Cell(f"{one.answer}; it was {whose} before", "yellow")
