"""Check a job of `submit` or `schedules add` against the catalogue."""

import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from sublet.cli.parser import program
from sublet.client.sync_client import SyncClient
from sublet.errors import Forbidden, Invalid, did_you_mean
from sublet.options import Options
from sublet.tasks.published import PublishedTask, Unpublished, find

SETTING = "SUBLET_CHECK_TASKS"
POLICIES = ("refuse", "warn", "off")
COMMAND = "command"
SHOWN = 3


class CheckedTask(NamedTuple):
    """The task of a job to submit: its name and options, and a warning or ""."""

    name: str
    options: Options
    """The task's own options if it is in the catalogue; else the defaults."""
    warning: str = ""


def policy_of(flag: str | None) -> str:
    """Return the value of --check-tasks, else of SUBLET_CHECK_TASKS, else an empty text. Raises Invalid."""
    word = flag or os.environ.get(SETTING, "")
    if word and word not in POLICIES:
        raise Invalid(f"{SETTING}={word[:40]!r}: use {', '.join(POLICIES)}")
    return word


def check_task(
    client: SyncClient, name: str, payload: bytes, policy: str, verb: str = "submit"
) -> CheckedTask:
    """Return the task of a job. By default, raises Invalid for wrong arguments or a misspelt or ambiguous
    name, and returns a warning for any other unknown name. The policy `refuse` raises Invalid for such a name, too;
    `warn` only returns warnings, but raises Invalid for wrong arguments of `command` if it is not in the catalogue. `verb`:
    for messages.

    With an empty or unreadable catalogue, no name is unknown.
    """
    try:
        found = client.store.follow_existing(find(client.store.operations.bases[0], name))
    except Forbidden:  # to read the catalogue
        found = Unpublished(())
    if isinstance(found, PublishedTask):
        wrong, is_sure = _misfits(found, payload), True
        checked = CheckedTask(found.name, found.options)
    else:
        if name == COMMAND:
            _check_command(payload)
        wrong, is_sure = _unknown(name, found.others)
        checked = CheckedTask(name, Options())
    if not wrong:
        return checked
    if policy == "refuse" or (is_sure and not policy):
        end = f" To {verb} it anyway: " if wrong.endswith("?") else f"; to {verb} it anyway: "
        raise Invalid(f"{wrong}{end}--check-tasks warn")
    return checked._replace(warning=wrong)


def _unknown(name: str, others: Sequence[str]) -> tuple[str, bool]:
    if not others:
        return "", False
    longer = sorted(each for each in others if each.endswith(f".{name}"))
    near = did_you_mean(name, others)
    if longer:
        return (
            f"task {name!r}: workers have published {len(longer)} of this name: use one of {', '.join(longer)}",
            True,
        )
    advice = near or f": check the name ({program()} tasks lists those that are)"
    return f"task {name!r}: no worker has published it{advice}", bool(near)


def _misfits(task: PublishedTask, payload: bytes) -> str:
    if task.arguments is None:
        return ""
    from sublet.tasks.json.schema import misfits

    found = misfits(task.arguments, json.loads(payload))
    if not found:
        return ""
    words = [f"{'.'.join(map(str, path)) or 'the payload'}: {message}" for path, message in found[:SHOWN]]
    more = f" (and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
    return f"task {task.name}: {'; '.join(words)}{more}"


def _check_command(payload: bytes) -> None:
    from sublet.tasks.json.schema import misfits
    from sublet.tasks.programs.command import NEEDS

    for path, message in misfits(NEEDS, json.loads(payload)):
        where = f"{'.'.join(map(str, path))}: " if path else "the payload "
        raise Invalid(
            f"task {COMMAND}: {where}{message}; for your own task of this name, give --app MODULE:APP"
        )
