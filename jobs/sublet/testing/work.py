"""The sandbox's worker, which records exceptions and can pretend to die."""

import contextlib
import copy
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sublet.app import App, Task
from sublet.connection.settings import Settings
from sublet.context import Context, Discard, Snooze
from sublet.errors import JobFailed
from sublet.model import Ending, Failure, Lease, Release
from sublet.store.store import Store
from sublet.testing.inline import as_coroutine, plain_hooks
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Report, Worker

log = logging.getLogger("sublet.testing")

Plain = Literal["thread", "inline", "process"]
"""Where plain functions run: a thread, the test's thread, or (process) as in a real worker."""
PLAIN: tuple[str, ...] = get_args(Plain)


class WorkerDied(BaseException):
    """Raise WorkerDied in a task to pretend that its worker dies: no outcome is reported, and the job stays
    running until its lease expires (`Sandbox.travel`). Other attempts continue.

    `except Exception` does not catch it; `finally` blocks run. In a child process it is an ordinary failure;
    to let a child die, use `os.kill(os.getpid(), signal.SIGKILL)`.
    """


@dataclass
class FailedAttempt:
    """A failed attempt, or one of an unknown task. `raised`: the exception, if the task ran in this process; None for `Discard`."""

    lease: Lease
    code: str
    message: str
    detail: str
    raised: BaseException | None

    @property
    def error(self) -> Exception:
        """The exception, with a note that names the attempt; JobFailed without one (another process, timeout,
        `Discard`, unknown task).
        """
        if not isinstance(self.raised, Exception):
            return JobFailed(self.lease.id, self.code, self.message, self.detail)
        self.raised.add_note(
            f"in attempt {self.lease.attempt} of job {self.lease.id} (task {self.lease.task})"
        )
        return self.raised


class Recorder:
    """Records failed attempts, their exceptions, and pretended deaths."""

    def __init__(self) -> None:
        self.failures: list[FailedAttempt] = []
        self.deaths = 0
        self._raised: dict[tuple[str, int], BaseException] = {}

    @contextlib.contextmanager
    def middleware(self, context: Context) -> Iterator[None]:
        """Record an attempt's exception, except `Snooze` and `Discard`, and raise it again."""
        try:
            yield
        except (Snooze, Discard):
            raise
        except BaseException as error:
            self._raised[context.id, context.attempt] = error
            raise

    def record(self, ending: Ending) -> bool:
        """Record a failure, unknown task or pretended death. Return whether to send the outcome (not after a
        death).
        """
        lease = ending.lease
        raised = self._raised.pop((lease.id, lease.attempt), None)
        if isinstance(raised, WorkerDied):
            self.deaths += 1
            return False
        if isinstance(ending, Failure):
            self._add(FailedAttempt(lease, ending.code, ending.message, ending.detail, raised))
        elif isinstance(ending, Release) and ending.code == "unknown_task":
            self._add(FailedAttempt(lease, "unknown_task", ending.reason, "", raised))
        return True

    def _add(self, failure: FailedAttempt) -> None:
        self.failures.append(failure)
        lease, words = failure.lease, f"{failure.code} {failure.message}\n{failure.detail}".strip()
        log.warning("job %s (task %s), attempt %d failed: %s", lease.id, lease.task, lease.attempt, words)


class SandboxStore(Store):
    """A store whose `settle` omits pretended deaths."""

    def __init__(self, settings: Settings, recorder: Recorder) -> None:
        super().__init__(settings)
        self._recorder = recorder

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """Send the outcomes except of pretended deaths; return one answer each, `LEASE_LOST` for those not
        sent.
        """
        sent = [i for i, ending in enumerate(endings) if self._recorder.record(ending)]
        answers = await super().settle([endings[i] for i in sent])
        by_index = dict(zip(sent, answers, strict=True))
        return [by_index.get(i, "LEASE_LOST") for i in range(len(endings))]


def sandboxed_app(app: App, plain: Plain, recorder: Recorder) -> App:
    """Return a copy of the app: plain functions run where `plain` says, and the recorder is the innermost
    middleware.
    """
    copied = copy.copy(app)
    copied.hooks = [*app.hooks, recorder.middleware]
    inline = copy.copy(copied)
    inline.hooks = plain_hooks(copied.hooks)
    copied.tasks = {name: _sandboxed_task(task, copied, inline, plain) for name, task in app.tasks.items()}
    return copied


def _sandboxed_task(task: Task[..., Any], app: App, inline: App, plain: Plain) -> Task[..., Any]:
    copied = copy.copy(task)
    copied.app = app  # the runner enters this app's middleware
    if task.run in ("process", "thread") and plain == "inline":
        copied.app, copied.run, copied.function = inline, "loop", as_coroutine(task.function, task.app)
    elif task.run == "process" and plain == "thread":
        copied.run = "thread"
    return copied


@contextlib.asynccontextmanager
async def worker_of(
    app: App, recorder: Recorder, queues: list[str] | None, slots: int, report: Report | None
) -> AsyncIterator[Worker]:
    """Yield a worker of the app, not started, with its own store; then close the store."""
    store = SandboxStore(app.settings, recorder)
    try:
        yield Worker(
            app, store, WorkerConfig(queues=queues, slots=slots, grace=0.0), report=report or _ignore_report
        )
    finally:
        await store.aclose()


def _ignore_report(event: str, lease: Lease | None, detail: str) -> None:
    pass
