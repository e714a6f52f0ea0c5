"""The tasks that a server knows, of its app and of the catalogue: jobs are checked against them, and get
their options.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from sublet.errors import Invalid, JobsError, did_you_mean
from sublet.options import Backoff, Options
from sublet.tasks import catalogue
from sublet.tasks.catalogue import TaskInfo
from sublet.tasks.json.schema import Misfit, misfits

if TYPE_CHECKING:
    from sublet.app import App, Task
    from sublet.store.store import Store

log = logging.getLogger(__name__)

SETTING = "SUBLET_CHECK_TASKS"
AGE = 10.0
"""Seconds after which the catalogue of tasks is read again."""
AGE_UNKNOWN = 0.2
"""Seconds after which the catalogue is read again if a name is unknown."""
FREE_ATTEMPTS = 100
"""Most attempts that a token without the role admin may request with a backoff below 1 s."""

Policy = Literal["refuse", "warn", "off"]


@dataclass(frozen=True, slots=True)
class KnownTask:
    """What a server knows of a task: its options, and how to check arguments."""

    options: Options
    rules: str
    """The task's options that differ from the defaults, in the protocol's form: `priority=5 tries=1`."""
    misfits: Callable[[bytes, Any], Sequence[Misfit]]
    """Returns the wrong arguments of a payload, which it gets as JSON and parsed."""
    by_arguments: bool = False
    """Whether its group or cost is a function of the arguments."""

    @classmethod
    def of_app(cls, task: Task[..., Any]) -> KnownTask:
        """Make one from a task of the server's app."""
        arguments = task.arguments
        return cls(
            task.defaults,
            task.defaults.rules(declared=True),
            lambda payload, _: arguments.misfits(payload),
            task.defaults.by_arguments,
        )

    @classmethod
    def of_catalogue(cls, info: TaskInfo) -> KnownTask | None:
        """Make one from an entry of the catalogue; None if its options are invalid."""
        try:
            options = info.options.options()
        except (Invalid, TypeError, ValueError):
            return None
        return cls(options, options.rules(declared=True), lambda _, value: misfits(info.arguments, value))


class KnownTasks:
    """The tasks of an app and of the catalogue. `policy` for a job whose task or arguments are wrong:
    `refuse` it, `warn`, or `off` (without checks and options); empty: SUBLET_CHECK_TASKS, else `refuse` with
    an app and `warn` without. Raises Invalid.
    """

    def __init__(self, store: Store, app: App | None = None, policy: str = "") -> None:
        word = policy or os.environ.get(SETTING) or ("warn" if app is None else "refuse")
        if word not in get_args(Policy):
            raise Invalid(f"{SETTING} (or check_tasks) {word[:40]!r}: use refuse, warn or off")
        self.policy = word
        self._store = store
        self._app: dict[str, Task[..., Any]] = app.tasks if app is not None and word != "off" else {}
        self._known: dict[str, KnownTask | None] = {}
        self._catalogue: dict[str, TaskInfo] = {}
        self._revision = 0
        self._next_read_at = self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def refresh(self, names: Iterable[str]) -> None:
        """Unless the policy is `off`, read the catalogue again if the app lacks one of these names: after 10 s, or
        0.2 s for unknown names. On an error keep the old one.
        """
        others = [name for name in names if name not in self._app]
        if self.policy == "off" or self._is_recent(others):
            return
        async with self._lock:
            if self._is_recent(others):
                return
            self._read_at = time.monotonic()
            self._next_read_at = self._read_at + AGE_UNKNOWN
            try:
                await self._read()
            except JobsError as error:
                self._next_read_at = self._read_at + AGE
                log.debug("the catalogue of tasks could not be read: %s", type(error).__name__)

    def _is_recent(self, names: Sequence[str]) -> bool:
        now = time.monotonic()
        if now < self._next_read_at or not names:
            return True
        return now < self._read_at + AGE and self._catalogue.keys() >= set(names)

    async def _read(self) -> None:
        base = self._store.operations.bases[0]
        revision = await self._store.follow_existing(_one(catalogue.revision(base)))
        if revision != self._revision:
            self._catalogue = await self._store.follow_existing(catalogue.published(base))
            self._revision = revision
            self._known.clear()

    def find(self, name: str) -> KnownTask | None:
        """Return a task; None if it is unknown or its options are invalid."""
        if name not in self._known:
            task, info = self._app.get(name), self._catalogue.get(name)
            if task is not None:
                self._known[name] = KnownTask.of_app(task)
            elif info is not None:
                self._known[name] = KnownTask.of_catalogue(info)
            else:
                return None
        return self._known[name]

    def unknown(self, name: str) -> str:
        """Return why a name is unknown; empty if it is known, or if this server knows no task."""
        if name in self._app or name in self._catalogue or not (self._app or self._catalogue):
            return ""
        near = did_you_mean(name, {*self._app, *self._catalogue})
        where = "this server's app does not have it, and " if self._app else ""
        return f"task {name!r}: {where}no worker has published it{near or ': check the name'}"

    def infos(self, published: dict[str, TaskInfo]) -> dict[str, TaskInfo]:
        """Return descriptions of the app's tasks and the other `published` ones, sorted by name."""
        own = {name: catalogue.describe(name, task) for name, task in self._app.items()}
        return dict(sorted((published | own).items()))


def exceeded(own: Options, asked: Options, given: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield `max_attempts`, `timeout` and `backoff` if `given` and beyond the task's own, each with a message."""
    if "max_attempts" in given and asked.max_attempts > own.max_attempts:
        yield "max_attempts", f"the task allows at most {own.max_attempts}"
    limit = _timeout(own)
    if "timeout" in given and _timeout(asked) > limit:
        yield "timeout", f"the task allows at most {limit:g} s"
    shortest = shortest_backoff(own)
    if "backoff" in given and shortest_backoff(asked) < shortest:
        yield "backoff", f"the task allows no delay below {shortest:g} s"


def _timeout(options: Options) -> float:
    return float("inf") if options.timeout is None else catalogue.seconds(options.timeout)


def shortest_backoff(options: Options) -> float:
    """Return the shortest delay after a failure, in seconds, without its random part."""
    backoff = options.backoff
    return min(backoff.first, backoff.cap) if isinstance(backoff, Backoff) else backoff


def _one(call: Any) -> Any:
    return (yield call)
