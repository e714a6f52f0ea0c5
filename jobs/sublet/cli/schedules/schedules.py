"""`schedules`: what is submitted by the clock. A list of it, and verbs: show, add, remove, pause, resume, run, sync."""

import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from sublet.cli.jobs.submit import checked_options, text_of
from sublet.cli.output import Cell, document, note, table, write
from sublet.cli.parser import program, read_more
from sublet.cli.schedules.schedule_view import row, tell
from sublet.cli.session import client_of, clock, look, settings_for, settings_of
from sublet.client.client import SyncClient
from sublet.errors import Invalid, NotFound, Refused, did_you_mean
from sublet.options import Options
from sublet.protocol.payload import payload_of
from sublet.schedules import operations
from sublet.schedules.definition import Schedule, check_name, new_schedule, recurrence
from sublet.schedules.recurrence import Recurrence

WHEN = ("cron", "every", "tz", "start", "end", "jitter", "missed", "late", "most", "overlap")
"""The options that say when."""
HOW = ("queue", "priority", "max_attempts", "timeout", "retention")
"""Those of the jobs."""
HEADS = ("NAME", "STATE", "NEXT", "IN", "LAST FIRED", "WHEN")
SPARE = ("LAST FIRED", "IN", "WHEN")
"""What a narrow terminal is spared, in this order."""
NEEDS = {"late": "skip", "most": "all"}
"""Options that say something only with this policy of `--missed`."""
OF_VERBS = {"list": ("limit", "cursor"), "add": (*WHEN, *HOW, "app"), "run": ("id",), "sync": ("remove",)}
"""The options that a verb has; the others have none."""


def schedules(args: Namespace) -> int:
    """Carry out one verb. 1 if any of what was named was refused."""
    verb, *words = args.words or ["list"]
    if verb not in VERBS:
        raise Invalid(read_more(f"there is no {verb[:40]!r} here{did_you_mean(verb, VERBS)}", "schedules"))
    for option in (option for of, own in OF_VERBS.items() if of != verb for option in own):
        if hasattr(args, option):
            whose = next(of for of, own in OF_VERBS.items() if option in own)
            raise Invalid(f"--{option.replace('_', '-')} is for {program()} schedules {whose}")
    return VERBS[verb](args, words)


def _list(args: Namespace, words: Sequence[str]) -> int:
    _only(words, 0, "list")
    limit, after = getattr(args, "limit", 100), getattr(args, "cursor", "")
    with client_of(settings_of(args)) as client:
        found, cursor = look(client, operations.page(client.operations, after, limit), args)
        now = clock(client)
    if args.json:
        document({"schedules": [_as_json(one, "payload", "upcoming") for one in found], "cursor": cursor})
        return 0
    if found:
        table(HEADS, [row(one, now) for one in found], SPARE)
    else:
        write(
            f"no schedules{f' after {after}' if after else ''}; {program()} schedules --help says how to make one"
        )
    if cursor:
        paged = f" --limit {limit}" if hasattr(args, "limit") else ""
        note(f"more: {program()} schedules{paged} --cursor {shlex.quote(cursor)}")
    return 0


def _as_json(shown: Schedule, *without: str) -> dict[str, Any]:
    """A schedule as a JSON document. Its payload is JSON already, and may be nested deeper than pydantic cares to follow."""
    said = shown.model_dump(mode="json", exclude={"payload", *without})
    return said if "payload" in without else said | {"payload": shown.payload}


def _show(args: Namespace, words: Sequence[str]) -> int:
    (name,) = _only(words, 1, "show NAME")
    with client_of(settings_of(args)) as client:
        found, now = _find(client, name), clock(client)
    if args.json:
        document(_as_json(found))
    else:
        tell(found, now)
    return 0


def _find(client: SyncClient, name: str) -> Schedule:
    """The schedule. Raises NotFound, with the name that was probably meant."""
    check_name(name)
    try:
        return look(client, operations.get(client.operations, name))
    except NotFound as error:
        raise _unknown(client, name, error) from None


def _unknown(client: SyncClient, name: str, error: NotFound) -> NotFound:
    known = [known for known, _ in look(client, operations.known(client.operations))]
    near = did_you_mean(name, known) or (
        f"; {program()} schedules lists them" if known else ": there are none"
    )
    return NotFound(f"{error}{near}")


def _add(args: Namespace, words: Sequence[str]) -> int:
    """Put one, whole: what is not named has its default. It says what became of it, and when it runs next."""
    if not 2 <= len(words) <= 3:
        raise Invalid(
            read_more(
                f"write {program()} schedules add NAME TASK [JSON] --cron LINE, or --every 30s", "schedules"
            )
        )
    name, task, said = [*words, "{}"][:3]
    place = getattr(args, "app", None) or os.environ.get("SUBLET_APP")
    app, payload = None, payload_of(text_of(said))
    options = Options()
    if place:
        from sublet.execution.app_loader import load_app

        app = load_app(place)
        options = checked_options(app, place, task, payload)
    options = options.but(**{field: getattr(args, field) for field in HOW if hasattr(args, field)})
    when = _when(args)
    wanted = new_schedule(check_name(name), when, task, payload, options)
    with client_of(settings_for(args, app)) as client:
        answer = client.follow(operations.put(client.operations, wanted))
        found, now = _find(client, name), clock(client)
    if args.json:
        document({"answer": answer, "schedule": _as_json(found)})
    else:
        write(answer)
        tell(found, now)
    return 0


def _when(args: Namespace) -> Recurrence:
    """When it is to run. Raises Invalid, also for options that would say nothing."""
    said = {field: getattr(args, field) for field in WHEN if hasattr(args, field)}
    if "cron" not in said and "every" not in said:
        raise Invalid("when shall it run? Write --cron LINE, e.g. '0 9 * * MON-FRI', or --every 30s")
    if said.get("every", 1) < 1:
        raise Invalid(f"--every: at least 1 s, not {said['every']:g} s")
    for option, policy in NEEDS.items():
        if option in said and said.get("missed") != policy:
            raise Invalid(
                f"--{option} says something only with --missed {policy}: add that, or leave --{option} out"
            )
    return recurrence(said)


def _remove(args: Namespace, words: Sequence[str]) -> int:
    def remove(client: SyncClient, name: str) -> dict[str, Any]:
        look(
            client, operations.find(client.operations, name)
        )  # an unknown one is told of: it may be typed wrongly
        client.schedules.remove(name)
        return {"answer": "removed"}

    return _each(args, words, "remove", remove)


def _pause(args: Namespace, words: Sequence[str]) -> int:
    return _each(args, words, "pause", lambda client, name: {"answer": client.schedules.pause(name)})


def _resume(args: Namespace, words: Sequence[str]) -> int:
    return _each(args, words, "resume", lambda client, name: {"answer": client.schedules.resume(name)})


def _run(args: Namespace, words: Sequence[str]) -> int:
    own: str | None = getattr(args, "id", None)
    if own is not None and len(words) > 1:
        raise Invalid("--id is for one job: name one schedule")

    def run(client: SyncClient, name: str) -> dict[str, Any]:
        submitted = client.schedules.run(name, own)
        return {"answer": "submitted" if submitted.created else "there already", "id": submitted.id}

    return _each(args, words, "run", run)


def _each(
    args: Namespace, names: Sequence[str], verb: str, ask: Callable[[SyncClient, str], dict[str, Any]]
) -> int:
    """Ask for each schedule, and say each answer. 1 if any was refused."""
    if not names:
        raise Invalid(
            f"NAME is missing: {program()} schedules {verb} NAME…; {program()} schedules lists them"
        )
    for name in names:  # a name that cannot be stops us before anything is done
        check_name(name)
    answers: list[dict[str, Any]] = []
    with client_of(settings_of(args)) as client:
        for name in dict.fromkeys(names):
            try:
                look(client, operations.find(client.operations, name))
                answers.append({"schedule": name} | ask(client, name))
            except Refused as error:
                words = _unknown(client, name, error) if isinstance(error, NotFound) else error
                answers.append({"schedule": name, "error": error.code, "message": str(words)})
    if args.json:
        document(answers)
    else:
        table(["SCHEDULE", "ANSWER"], [[answer["schedule"], _cell(answer)] for answer in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _cell(answer: dict[str, Any]) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    return Cell(": ".join([answer["answer"], *([answer["id"]] if "id" in answer else [])]), "green")


def _sync(args: Namespace, words: Sequence[str]) -> int:
    """Have the schedules be as the app's code declares them."""
    from sublet.execution.app_loader import load_app, target_of

    if len(words) > 1:
        _only(words, 1, "sync MODULE:APP")
    place = words[0] if words else os.environ.get("SUBLET_APP")
    if not place:
        raise Invalid("MODULE:APP is missing: say where the schedules are declared, or set SUBLET_APP")
    app = load_app(place)
    with client_of(settings_for(args, app)) as client:
        done = client.sync(app, target_of(place), remove=hasattr(args, "remove"))
        may_end = any(wanted.recurrence.end for wanted in app.schedules.all())
        shown = (
            look(client, operations.page(client.operations)).schedules if may_end and not args.json else []
        )
        ended = {one.name for one in shown if one.state == "ended"}
    if args.json:
        document([one._asdict() for one in done])
    elif done:
        table(["SCHEDULE", "ANSWER"], [[one.name, _synced(one, one.name in ended)] for one in done])
    else:
        write(f"{place} declares no schedules")
    return 0


def _synced(one: operations.Synced, ended: bool) -> Cell:
    if ended:
        return Cell(f"{one.answer}; there is no occurrence before its end", "yellow")
    colour = {"unchanged": "", "removed": "yellow"}.get(one.answer, "green")
    if one.before is None:
        return Cell(one.answer, colour)
    whose = f"of {one.before}" if one.before else "put by hand"
    return Cell(f"{one.answer}; it was {whose} before", "yellow")


def _only(words: Sequence[str], count: int, usage: str) -> Sequence[str]:
    if len(words) < count:
        raise Invalid(f"NAME is missing: write {program()} schedules {usage}")
    if len(words) > count:
        raise Invalid(f"{words[count][:60]!r} is one word too many: write {program()} schedules {usage}")
    return words


VERBS = {
    "list": _list, "show": _show, "add": _add, "remove": _remove, "pause": _pause, "resume": _resume, "run": _run, "sync": _sync,
}  # fmt: skip
