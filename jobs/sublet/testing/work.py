"""A sandbox's worker: a real one, that keeps plain functions at home, hears what tasks raise, and is able to die."""

import contextlib
import copy
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sublet.app import App, Task
from sublet.connection.settings import Settings
from sublet.context import Context, Discard, Snooze
from sublet.errors import JobFailed
from sublet.model import Ending, Failure, Lease, Release
from sublet.store.store import Store
from sublet.worker.worker import Report, Worker, WorkerConfig

log = logging.getLogger("sublet.testing")

Plain = Literal["thread", "inline", "process"]
"""Where plain functions run: in a thread of this process, in the very thread of the test, or in child processes."""
PLAIN: tuple[str, ...] = get_args(Plain)


class WorkerDied(BaseException):
    """Raise it in a task (by a monkeypatch, say), and its worker is gone at that line: it tells nothing, the lease runs out.

    No `except Exception` stops it; what stands in a `finally` still runs. Only workers of a sandbox die of it, and not of what
    happens in a child process: there, `os.kill(os.getpid(), signal.SIGKILL)` is the real thing.
    """


@dataclass
class Mishap:
    """An attempt that failed: the words for it, and what the task raised, if it ran in this process."""

    lease: Lease
    code: str
    message: str
    detail: str
    raised: BaseException | None

    @property
    def error(self) -> Exception:
        """What to raise in the test."""
        if not isinstance(self.raised, Exception):
            return JobFailed(self.lease.id, self.code, self.message, self.detail)
        self.raised.add_note(
            f"in attempt {self.lease.attempt} of job {self.lease.id} (task {self.lease.task})"
        )
        return self.raised


class Ear:
    """Hears what tasks raise (as a middleware), and how their attempts end."""

    def __init__(self) -> None:
        self.mishaps: list[Mishap] = []
        self.deaths = 0
        self._raised: dict[tuple[str, int], BaseException] = {}

    @contextlib.contextmanager
    def middleware(self, context: Context) -> Iterator[None]:
        """Entered around each attempt that runs in this process."""
        try:
            yield
        except (Snooze, Discard):
            raise
        except BaseException as error:
            self._raised[context.id, context.attempt] = error
            raise

    def hear(self, ending: Ending) -> bool:
        """Note an ending. False when nobody may learn of it, for the worker died."""
        lease = ending.lease
        raised = self._raised.pop((lease.id, lease.attempt), None)
        if isinstance(raised, WorkerDied):
            self.deaths += 1
            return False
        if isinstance(ending, Failure):
            self._note(Mishap(lease, ending.code, ending.message, ending.detail, raised))
        elif isinstance(ending, Release) and ending.reason.startswith("unknown_task"):
            self._note(Mishap(lease, "unknown_task", ending.reason.partition(": ")[2], "", raised))
        return True

    def _note(self, mishap: Mishap) -> None:
        self.mishaps.append(mishap)
        lease, words = mishap.lease, f"{mishap.code} {mishap.message}\n{mishap.detail}".strip()
        log.warning("job %s (task %s), attempt %d: %s", lease.id, lease.task, lease.attempt, words)


class MortalStore(Store):
    """The store of a worker that is able to die."""

    def __init__(self, settings: Settings, ear: Ear) -> None:
        super().__init__(settings)
        self._ear = ear

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """End attempts, but not those whose worker died: their leases run out."""
        told = [i for i, ending in enumerate(endings) if self._ear.hear(ending)]
        answers = await super().settle([endings[i] for i in told])
        by_place = dict(zip(told, answers, strict=True))
        return [by_place.get(i, "LEASE_LOST") for i in range(len(endings))]


def at_home(app: App, plain: Plain, ear: Ear) -> App:
    """The app as a sandbox's worker sees it: plain functions stay in this process, and the ear is the innermost middleware."""
    seen = copy.copy(app)
    seen.hooks = [*app.hooks, ear.middleware]
    seen.tasks = {name: _at_home(task, seen, plain) for name, task in app.tasks.items()}
    return seen


def _at_home(task: Task[..., Any], app: App, plain: Plain) -> Task[..., Any]:
    seen = copy.copy(task)
    seen.app = app  # whose middleware is entered around it
    if task.run != "loop" and plain == "inline":
        seen.run, seen.function = "loop", _awaited(task.function)
    elif task.run == "process" and plain == "thread":
        seen.run = "thread"
    return seen


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run_here(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return run_here


@contextlib.asynccontextmanager
async def worker_of(
    app: App, ear: Ear, queues: list[str] | None, slots: int, report: Report | None
) -> AsyncIterator[Worker]:
    """A worker of the app, with a store of its own."""
    store = MortalStore(app.settings, ear)
    try:
        yield Worker(
            app, store, WorkerConfig(queues=queues, slots=slots, grace=0.0), report=report or _say_nothing
        )
    finally:
        await store.aclose()


def _say_nothing(event: str, lease: Lease | None, words: str) -> None:
    pass
