"""`tasks`: list the tasks that workers have published."""

from argparse import Namespace
from typing import Any

from sublet.cli.output import document, duration, table, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, settings_of
from sublet.tasks import catalogue
from sublet.tasks.catalogue import TaskInfo

HEADS = ("TASK", "QUEUE", "TRIES", "TIMEOUT", "ARGUMENTS", "SUMMARY")
SPARE = ("TRIES", "TIMEOUT", "QUEUE")
ARGUMENTS_MAX = 60


def tasks(args: Namespace) -> int:
    """Print the catalogue of tasks by name; with --json, with the JSON Schemas."""
    with client_of(settings_of(args)) as client:
        found = read(client, catalogue.published(client.store.operations.bases[0]), args)
    if args.json:
        document([info.model_dump(mode="json") for info in found.values()])
    elif found:
        table(HEADS, [_row(info) for info in found.values()], SPARE)
    else:
        write(f"no tasks: no worker has published one; {program()} work MODULE:APP does")
    return 0


def _row(info: TaskInfo) -> list[str]:
    options = info.options
    timeout = "none" if options.timeout is None else duration(options.timeout)
    return [
        info.name, options.queue, f"{options.max_attempts:,}", timeout, _arguments(info.arguments), info.summary,
    ]  # fmt: skip


def _arguments(schema: dict[str, Any] | None) -> str:
    properties = schema.get("properties", {}) if schema is not None else None
    if schema is None or not isinstance(properties, dict):
        return "…"
    required = schema.get("required")
    names = [f"{name}{'' if isinstance(required, list) and name in required else '?'}" for name in properties]
    text = ", ".join(names)
    return text if len(text) <= ARGUMENTS_MAX else text[: ARGUMENTS_MAX - 1] + "…"
