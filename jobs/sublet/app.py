"""`App` and `Task`: functions and programs as tasks, with names, options and schedules."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    overload,
)

from sublet.client.connections import Connections
from sublet.client.handle import Handle
from sublet.client.sync_handle import SyncHandle
from sublet.context import Context
from sublet.errors import Invalid
from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.storage import large_settings
from sublet.model import Submission
from sublet.options import Options, Seconds
from sublet.schedules.decorators import DeclaredSchedules, declaration
from sublet.tasks import naming
from sublet.tasks.arguments import Arguments
from sublet.tasks.error_rules import ErrorClasses, ErrorRules, error_rules
from sublet.tasks.failures import FailureHook, check_hook
from sublet.tasks.middleware import Hook
from sublet.tasks.programs import command
from sublet.tasks.programs.program import Output
from sublet.tasks.user_modules import include_module, is_module_name

if TYPE_CHECKING:
    from sublet.client.client import Client
    from sublet.connection.settings import Settings
    from sublet.operations.operations import Operations
    from sublet.outcome import Outcome

P = ParamSpec("P")
R = TypeVar("R")

H = TypeVar("H", bound=Hook)
F = TypeVar("F", bound=FailureHook)
S = TypeVar("S", bound=Callable[..., Any])
SubmitMiddleware = Callable[[Submission, str], AbstractContextManager[Submission]]
"""Called with a job and a word: "send" by `Task.submit` and `submit_sync`, "create" by `Task.job`. Returns a
context manager whose value is the job to use instead."""
_NO_MANAGERS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)

Run = Literal["loop", "process", "thread", "command"]
"""Where a task runs. An async function: on the worker's event loop ("loop"). A plain one: in a child process
("process"), or in a thread ("thread"), which cannot be killed. "command" is for tasks of `App.command`."""


class Task(Generic[P, R]):
    """A named function: call it in this process, or `submit` a job so that a worker calls it."""

    _job_id: str | None = None

    def __init__(
        self,
        app: "App",
        name: str,
        function: Callable[..., Any],
        options: Options,
        run: Run,
        rules: ErrorRules | None = None,
    ) -> None:
        self.app, self.name, self.function, self.run = app, name, function, run
        self.defaults, self.error_rules = options, rules
        self.arguments = Arguments(name, function)
        self._rules = options.declared_rules()

    @property
    def takes_process(self) -> bool:
        """Whether its jobs run in child processes or as programs, which the limit `processes` counts."""
        return self.run in ("process", "command")

    def __repr__(self) -> str:
        return f"<Task {self.name}: queue={self.defaults.queue}, run={self.run}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in this process, without a job. Return its value, or its coroutine."""
        return self.function(*args, **kwargs)

    def options(self, *, job_id: str | None = None, **changes: Any) -> "Task[P, R]":
        """Return a copy of the task with these `Options` changed. With `job_id`, each job of the copy has
        this id, behind its partition's number (`0-order-7`): only the first is stored. Raises Invalid, also
        for `retry_on` and `discard_on`."""
        if fixed := sorted({"retry_on", "discard_on"} & set(changes)):
            raise Invalid(
                f"task {self.name}: {' and '.join(fixed)}: exception classes are not stored with a job: give them to @app.task"
            )
        other = cast("Task[P, R]", object.__new__(Task))
        other.__dict__.update(self.__dict__)
        other.defaults = self.defaults.but(**changes)
        other._rules = other.defaults.declared_rules()
        other._job_id = self._job_id if job_id is None else job_id
        return other

    def job(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """Make a job with these arguments, without a submit. `App.client.submit_all` submits a list. Raises
        Invalid."""
        job, around = self._job(args, kwargs), self.app.submit_middleware
        if around is None:
            return job
        with around(job, "create") as changed:
            return changed

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> "Handle[R]":
        """Submit a job and return its handle, or the handle of an earlier job with its key or id. Raises
        Invalid (e.g. for arguments that do not match the parameters), Refused, Unavailable."""
        client = self.app.client
        job, around = self._job(args, kwargs), self.app.submit_middleware
        if around is None:
            submitted = await client.store.submit_one(job)
        else:
            with around(job, "send") as job:
                submitted = await client.store.submit_one(job)
        is_new = submitted.created or (self._job_id is None and submitted.id == job.id)
        return Handle(submitted.id, is_new, client, self.arguments.load_result, None, submitted.replaced)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        """Submit a job as `submit` does, for code without an event loop."""
        client = self.app.sync
        job, around = self._job(args, kwargs), self.app.submit_middleware
        if around is None:
            submitted = client.store.submit_one(job)
        else:
            with around(job, "send") as job:
                submitted = client.store.submit_one(job)
        is_new = submitted.created or (self._job_id is None and submitted.id == job.id)
        return SyncHandle(submitted.id, is_new, client, self.arguments.load_result, None, submitted.replaced)

    def handle(self, job_id: str) -> "Handle[R]":
        """Return the handle of a job, without asking Redis whether it exists. Raises Invalid for an invalid
        id."""
        self.app.operations.base_of_job(job_id)
        return Handle(job_id, False, self.app.client, self.arguments.load_result)

    def handle_sync(self, job_id: str) -> "SyncHandle[R]":
        """Return a handle as `handle` does, for code without an event loop."""
        self.app.operations.base_of_job(job_id)
        return SyncHandle(job_id, False, self.app.sync, self.arguments.load_result)

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Submission:
        payload, options, rules = self.arguments.dump(args, kwargs), self.defaults, self._rules
        if rules is None:
            rules = options.of(self.arguments.named(args, kwargs)).rules()
        return self.app.operations.submission(
            self.name, payload, options.queue, rules, self._job_id, options.durability
        )


class App(Connections):
    """The tasks, schedules and clients of a program.

    `settings` replaces `redis_url`, `namespace` and environment variables. Without it, a setting is the
    argument, else the variable (SUBLET_REDIS_URL, …), else the default. `include`: modules that `load`
    imports. With `qualified_names` a task's default name begins with its module: `shop.mail.send`."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        namespace: str | None = None,
        settings: "Settings | None" = None,
        include: Sequence[str] = (),
        qualified_names: bool = False,
        large_payloads: LargePayloads | None = None,
        large_above: int | None = None,
    ) -> None:
        """`large_payloads`: where to keep payloads and results of more than `large_above` bytes (default and
        maximum: 262,144). Each, unless None, replaces that of the settings. Raises Invalid."""
        if isinstance(include, str) or not all(map(is_module_name, include)):
            raise Invalid(f"include={include!r}: use a list of full module names, e.g. ['shop.mail']")
        self.include = tuple(include)
        self.qualified_names = qualified_names
        self._loaded = False
        self.loaded_by: tuple[str, ...] = ()
        """Each MODULE of a MODULE:APP by which this app was loaded. Child processes import these modules
        first."""
        self.tasks: dict[str, Task[..., Any]] = {}
        self.hooks: list[Hook] = []
        """The middleware, outermost first."""
        self.failure_hooks: list[FailureHook] = []
        """The functions under `@app.on_failure`, in their order."""
        self.schedules = DeclaredSchedules(self.load)
        """The declared schedules, which `client.sync` stores."""
        self.submit_middleware: SubmitMiddleware | None = None
        """Called for each `Task.submit`, `submit_sync` and `Task.job`, unless None."""
        super().__init__((redis_url, namespace), settings, large_settings(large_payloads, large_above))

    def __repr__(self) -> str:
        known = self._settings
        place = f", namespace {known.namespace} at {known.shown_url}" if known else ""
        return f"<App: {len(self.tasks)} tasks{place}>"

    def load(self) -> "App":
        """Import the modules of `include`, once; return the app. Raises Invalid if an import fails."""
        if not self._loaded:
            self._loaded = True  # an included module may call this
            try:
                for name in self.include:
                    include_module(self, name)
            except BaseException:
                self._loaded = False
                raise
        return self

    @property
    def client(self) -> "Client":
        """The client of the running event loop: made at first use, closed by `aclose` or at the loop's end."""
        latest, client = self._clients.latest  # a submit passes through fewer files
        if client is not None and latest is asyncio.get_running_loop():
            return client
        return self._clients.get()

    @property
    def operations(self) -> "Operations":
        """An object whose methods plan Redis calls, one per operation. The app's clients run these plans."""
        return self._operations or super().operations

    async def gather(
        self, handles: Sequence[Handle[Any]], timeout: float = 30.0, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait up to `timeout` seconds for all results; return them in the handles' order. Raises the first
        error at once, or TimeoutError; with `return_exceptions` both are in the list instead."""
        return await self.client.gather(handles, timeout, return_exceptions=return_exceptions)

    async def results(self, jobs: Sequence[Handle[Any] | str]) -> "list[Outcome]":
        """Return the present `Outcome` of each of `jobs` (ids or handles), in order: state and, if it has
        ended, result or error. An unknown job has the state None, and NotFound as error."""
        return await self.client.results(jobs)

    def as_completed(self, handles: Sequence[Handle[R]], timeout: float = 30.0) -> AsyncIterator[Handle[R]]:
        """Yield each handle when its job has ended, or is unknown. Raises TimeoutError if some are left after
        `timeout` seconds."""
        return self.client.as_completed(handles, timeout)

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, function: None = None, /, *, name: str = "", run: Run | None = None,
        retry_on: ErrorClasses | None = None, discard_on: ErrorClasses = (), **options: Any,
    ) -> "Declare": ...  # fmt: skip

    def task(
        self, function: Any = None, /, *, name: str = "", run: Run | None = None,
        retry_on: ErrorClasses | None = None, discard_on: ErrorClasses = (), **options: Any,
    ) -> Any:  # fmt: skip
        """Declare a function as a task, with or without `Options`: `@app.task`, `@app.task(timeout=60)`.

        `name` defaults to the function's (see `qualified_names`), `run` to "loop" for an async function, else
        "process". An exception of a class, or subclass, in `discard_on` makes the job dead at once; with
        `retry_on`, so does any that is not in it. The nearest class decides. Raises Invalid (e.g. name in use)."""
        if function is None:
            return lambda function: self.task(
                function, name=name, run=run, retry_on=retry_on, discard_on=discard_on, **options
            )
        name = name or naming.default_name(function, self.qualified_names)
        is_async = inspect.iscoroutinefunction(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise Invalid(
                f"task {name}: a generator function gives its values one by one, a job has one result: "
                "return a list, or submit a job for each value"
            )
        run = run or ("loop" if is_async else "process")
        naming.check_name(name, function, self.tasks)
        if run not in get_args(Run) or (run in ("loop", "command")) is not is_async:
            raise Invalid(
                f"task {name}: run={run!r} does not fit: use 'loop' for an async function, 'process' or 'thread' for a plain one"
            )
        rules = error_rules(name, retry_on, discard_on)
        self.tasks[name] = Task(self, name, function, _task_options(options), run, rules)
        self.schedules.attach(self.tasks[name])
        return self.tasks[name]

    def schedule(
        self, cron: str | None = None, /, *, every: Seconds | None = None, tz: str = "UTC", name: str = "",
        payload: Mapping[str, Any] | None = None, start: datetime | None = None, end: datetime | None = None, jitter: Seconds = 0,
        missed: Literal["latest", "skip", "all"] = "latest", late: Seconds = 300, most: int = 24,
        overlap: Literal["allow", "skip", "queue"] = "allow",
    ) -> Callable[[S], S]:  # fmt: skip
        """Declare a schedule, which submits a job of the task by a cron line or an interval. Use it above or
        below `@app.task`.

        `name` is by default the task's; `payload`: the job's arguments by name; others as in `Recurrence`.
        `client.sync(app)`, `sublet schedules sync` or `sublet work` (on Redis) stores it. Raises Invalid."""
        when = {"cron": cron, "every": every, "tz": tz, "start": start, "end": end}
        declared = declaration(
            name, payload, **when, jitter=jitter, missed=missed, late=late, most=most, overlap=overlap
        )

        def declare(target: S) -> S:
            if isinstance(target, Task) and target.app is not self:
                raise Invalid(f"task {target.name} belongs to another app: use the `schedule` of that app")
            if isinstance(target, Task):
                self.schedules.add(target, declared)
            else:
                self.schedules.defer(target, declared)
            return target

        return declare

    def middleware(self, hook: H) -> H:
        """Register `hook` and return it. Workers call it with the `Context` of each attempt, and run the task
        inside of the returned context manager; that of the first hook is outermost. If one swallows the
        task's exception, the result is None.

        Async context managers are entered for async tasks only. Raises Invalid."""
        if not callable(hook) or any(is_it(hook) for is_it in _NO_MANAGERS):
            raise Invalid(
                f"middleware {getattr(hook, '__name__', hook)!r}: give a function of a Context that returns a context manager, "
                "e.g. one under @contextmanager or @asynccontextmanager"
            )
        self.hooks.append(hook)
        return hook

    def on_failure(self, hook: F) -> F:
        """Register `hook` and return it. A worker calls it with an `AttemptFailure` after an attempt that
        failed, timed out, crashed, lost its lease or made its job dead, at most once.

        An async function runs on the event loop, a plain one in a thread. The worker awaits it for at most
        5 s and logs its exceptions. Raises Invalid for a generator function, or if `hook` is not callable."""
        check_hook(hook)
        self.failure_hooks.append(hook)
        return hook

    def command(
        self,
        template: str,
        /,
        *,
        name: str = "",
        shell: bool = False,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Task[..., Output]:
        """Declare a task that runs a program, from a template of its words: `"gzip --keep -- {path}"`. The
        job's argument `path` replaces `{path}`, and cannot become a second word or shell code.

        With `shell`, `/bin/sh` runs the template. `env`: more variables. `name`: by default the program's."""
        function = command.function(template, shell=shell, cwd=cwd, env=env)
        runs: Task[..., Output] = self.task(name=name or function.__name__, run="command", **options)(
            function
        )
        return runs

    def queues(self) -> list[str]:
        """Import the app's modules; return its tasks' default queues, sorted; without tasks `["default"]`."""
        self.load()
        return sorted({task.defaults.queue for task in self.tasks.values()} or {"default"})


def builtin(app: App) -> dict[str, Task[..., Any]]:
    """Return {"command": the task that runs any program}, for workers with `--commands` (`commands=True`).
    Raises Invalid if a task of the app has that name."""
    if command.NAME in app.tasks:
        raise Invalid(
            f"task {command.NAME}: the app has a task of this name: rename it, or start without --commands (in Python: commands=True)"
        )
    return {command.NAME: Task(app, command.NAME, command.any_program, Options(), "command")}


class Declare(Protocol):
    """The type of the decorator that `app.task(…)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


def _task_options(options: Mapping[str, Any]) -> Options:
    try:
        return Options().but(**options)
    except Invalid as error:
        raise Invalid(f"{error}, name, run, retry_on, discard_on") from None
