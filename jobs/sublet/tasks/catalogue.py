"""The catalogue: descriptions of the tasks that workers run, for submitters that do not have the app."""

import asyncio
import hashlib
import inspect
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from sublet.errors import Forbidden, JobsError, Refused
from sublet.model import Description, InSeconds
from sublet.options import Backoff, Options
from sublet.protocol import keys, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import pairs
from sublet.protocol.scripts import Call
from sublet.tasks.arguments import Arguments
from sublet.tasks.published import options_of

log = logging.getLogger(__name__)

TEXT_MAX = 8192
"""Most bytes of a task's description. A longer one loses the result's schema, then that of the arguments,
then all.
"""
SUMMARY_MAX = 200
RENEWAL = 3600.0
"""Seconds after which a worker publishes its tasks again, 10 % more or less."""
RETRY = 60.0
PATIENCE = 1.0
"""Most seconds that a worker's end waits for a publication under way."""


class TaskOptions(BaseModel):
    """A task's default options, in the form of `POST /jobs`."""

    model_config = ConfigDict(frozen=True)

    queue: str = "default"
    priority: int = 0
    delay: InSeconds = 0.0
    max_attempts: int = 3
    timeout: InSeconds | None = 300.0
    """Most seconds of an attempt; None: no limit."""
    stall: InSeconds | None = None
    retention: InSeconds = 86_400.0
    backoff: dict[str, float] = {"first": 1.0, "factor": 2.0, "cap": 300.0}
    durability: str | None = None
    key: str | None = None
    window: InSeconds | None = None
    debounce: InSeconds | None = None
    at_most: InSeconds | None = None
    on_conflict: str | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    """None also for a function of the arguments."""
    cost: int = 1
    keep_payload: bool = False

    def options(self) -> Options:
        """Convert to `Options`. Raises Invalid, TypeError or ValueError."""
        return options_of(self.model_dump())


class TaskInfo(BaseModel):
    """A task in the catalogue."""

    model_config = ConfigDict(frozen=True)

    name: str
    summary: str = ""
    """The first line of the function's docstring, at most 200 characters."""
    options: TaskOptions = TaskOptions()
    arguments: dict[str, Any] | None = None
    """JSON Schema of the payload; None if unknown."""
    result: dict[str, Any] | None = None
    """JSON Schema of the result; None if unknown."""


class DescribedTask(Protocol):
    """The attributes of a task that its description uses."""

    function: Callable[..., Any]
    defaults: Options
    arguments: Arguments


def describe(name: str, task: DescribedTask) -> TaskInfo:
    """Describe a task: its summary, options, and schemas of its arguments and result."""
    summary = (inspect.getdoc(task.function) or "").strip().partition("\n")[0][:SUMMARY_MAX]
    arguments, result = task.arguments.schemas()
    return TaskInfo(
        name=name, summary=summary, options=_options(task.defaults), arguments=arguments, result=result
    )


def description(info: TaskInfo) -> Description:
    """Encode a task for the catalogue in at most 8 KiB (see `TEXT_MAX`)."""
    shorter: tuple[dict[str, None], ...] = ({}, {"result": None}, {"result": None, "arguments": None})
    texts = (to_json(info.model_copy(update=less).model_dump(exclude={"name"})) for less in shorter)
    text = next((text for text in texts if len(text) <= TEXT_MAX), b"{}")
    return published_as(info.name, text)


def published_as(name: str, text: bytes) -> Description:
    """Make the catalogue's entry for a task from the JSON text of its description."""
    return Description(name, hashlib.sha256(text).hexdigest()[:32], text)


def _options(options: Options) -> TaskOptions:
    backoff = options.backoff
    policy = backoff if isinstance(backoff, Backoff) else Backoff(backoff, 1.0, backoff)
    return TaskOptions(
        queue=options.queue,
        priority=options.priority,
        delay=seconds(options.delay),
        max_attempts=options.max_attempts,
        timeout=None if options.timeout is None else seconds(options.timeout),
        stall=None if options.stall is None else seconds(options.stall),
        retention=seconds(options.retention),
        backoff={"first": policy.first, "factor": policy.factor, "cap": policy.cap},
        durability=options.durability,
        key=options.key,
        window=None if options.window is None else seconds(options.window),
        debounce=None if options.debounce is None else seconds(options.debounce),
        at_most=None if options.at_most is None else seconds(options.at_most),
        on_conflict=options.on_conflict,
        tags=tuple(options.tags),
        group=None if callable(options.group) else options.group,
        cost=1 if callable(options.cost) else options.cost,
        keep_payload=options.keep_payload,
    )


def seconds(value: float | timedelta) -> float:
    """Return a duration as a number of seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def publish(base: str, tasks: Sequence[Description], *, starting: bool) -> Plan[list[str]]:
    """Write tasks to the catalogue, or renew them there. Return per task `written`, `kept` or `full` (not
    stored). Unless `starting`, a task's different description that was renewed in the last 3 hours is kept.
    `base`: of partition 0.
    """
    answers: list[str] = []
    for batch in verbs.batches(tasks, lambda task: len(task.text), verbs.PUBLISH_MAX):
        answers += yield verbs.publish(base, batch, starting=starting)
    return answers


def revision(base: str) -> Call[int]:
    """Read a number that grows with each change of the catalogue; at first 0."""
    return Call((("HGET", base, "published"),), lambda number: int(number or 0))


def published(base: str) -> Plan[dict[str, TaskInfo]]:
    """Read the tasks in the catalogue, sorted by name, without unreadable ones. `base`: of partition 0."""
    found: dict[str, bytes] = yield Call((("HGETALL", keys.tasks(base)),), pairs)
    infos = ((name, _parse(name, text)) for name, text in sorted(found.items()))
    return {name: info for name, info in infos if info}


def _parse(name: str, text: bytes) -> TaskInfo | None:
    try:
        return TaskInfo.model_validate({**json.loads(text.partition(b" ")[2]), "name": name})
    except (ValueError, ValidationError, TypeError, RecursionError):
        return None


class Publication:
    """Publishes a worker's tasks in the background: at the worker's start, and about once an hour."""

    def __init__(
        self,
        send: Callable[[Sequence[Description], bool], Awaitable[Any]],
        tasks: Mapping[str, DescribedTask],
    ) -> None:
        self._send, self._tasks = send, tasks
        self._due = 0.0
        self._is_published = self._has_failed = False
        self._sending: asyncio.Task[None] | None = None

    def renew(self) -> None:
        """Begin to publish the tasks if that is due and not under way."""
        if self._tasks and time.monotonic() >= self._due and self._sending is None:
            self._due = time.monotonic() + RENEWAL * random.uniform(0.9, 1.1)
            self._sending = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        try:
            found = []
            for name, task in self._tasks.items():
                found.append(description(describe(name, task)))
                await asyncio.sleep(0)  # a schema may take a millisecond
            await self._send(found, not self._is_published)
            self._is_published = True
        except JobsError as error:
            if not isinstance(error, Refused | Forbidden):
                self._due = time.monotonic() + RETRY
            if not self._has_failed:
                log.warning("the tasks of this worker could not be published (sublet tasks): %s", error)
            self._has_failed = True
        finally:
            self._sending = None

    async def aclose(self) -> None:
        """Wait for a publication under way, for at most a second; then cancel it."""
        if self._sending:
            sending = self._sending
            await asyncio.wait([sending], timeout=PATIENCE)
            sending.cancel()
            await asyncio.wait([sending])
