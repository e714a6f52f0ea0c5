"""Read one task of the catalogue without pydantic, which is slow to load."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid
from sublet.options import Backoff, Options
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call


class PublishedTask(NamedTuple):
    """A task of the catalogue. If its options cannot be read, all are the defaults."""

    name: str
    options: Options
    arguments: Any
    """JSON Schema of the payload; None if unknown."""


class Unpublished(NamedTuple):
    """What `find` returns if no task, or several, fit the name."""

    others: Sequence[str]
    """Names of all tasks in the catalogue; empty if none is published, or the caller may not read it."""


def find(base: str, name: str) -> Plan[PublishedTask | Unpublished]:
    """Find a task of the catalogue by its name, or by the end of the name, behind a dot, if only one fits.
    `base`: of partition 0.
    """
    text, revision = yield together(
        [("HGET", keys.tasks(base), name), ("HGET", base, "published")], lambda reply: reply
    )
    if text is not None:
        return _parse(name, text)
    names: list[str] = []
    if revision is not None:
        names = yield Call((("HKEYS", keys.tasks(base)),), lambda found: [shown(each) for each in found])
    longer = [each for each in names if each.endswith(f".{name}")]
    if len(longer) == 1:
        (name,) = longer
        text = yield Call((("HGET", keys.tasks(base), name),), lambda reply: reply)
        if text is not None:
            return _parse(name, text)
    return Unpublished(names)


def _parse(name: str, text: bytes) -> PublishedTask:
    try:
        said = json.loads(text.partition(b" ")[2])
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    try:
        options = options_of(said.get("options", {}))
    except (Invalid, TypeError, ValueError):
        options = Options()
    return PublishedTask(name, options, said.get("arguments"))


def options_of(own: dict[str, Any]) -> Options:
    """Make a task's options from their JSON form. Raises Invalid, TypeError or ValueError."""
    given = dict(own)
    if "backoff" in given:
        given["backoff"] = Backoff(**given["backoff"])
    found = Options(**given)
    found.rules()
    return found
