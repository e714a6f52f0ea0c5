"""The command `submit`: submit one job."""

import contextlib
import json
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sublet.cli.argument_types import text_of
from sublet.cli.jobs.task_check import CheckedTask, check_task, policy_of
from sublet.cli.jobs.unserved import note_unserved
from sublet.cli.output import document, note, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, settings_for
from sublet.client.sync_client import SyncClient
from sublet.errors import Forbidden, Invalid, JobFailed, JobsError, Unavailable, Unconfirmed, Unfit
from sublet.model import State, Submission, Submitted
from sublet.options import Options
from sublet.protocol.payload import payload_of
from sublet.tasks.naming import resolve

if TYPE_CHECKING:
    from sublet.app import App, Task

OPTIONS = (
    "queue",
    "priority",
    "delay",
    "run_at",
    "key",
    "window",
    "debounce",
    "at_most",
    "on_conflict",
    "max_attempts",
    "timeout",
    "stall",
    "retention",
    "keep_payload",
    "durability",
    "tags",
    "group",
    "cost",
)
PATIENCE = 2.0


class Unfinished(TimeoutError):
    """The job did not end within --wait."""

    def __init__(self, job_id: str, words: str) -> None:
        super().__init__(words)
        self.job_id = job_id


class NotAsDurable(Unconfirmed):
    """The job is stored, but the requested durability was not confirmed."""

    def __init__(self, words: str, job_id: str) -> None:
        super().__init__(words)
        self.job_id = job_id


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@_sigterm_as_interrupt()
def submit(args: Namespace) -> int:
    """Submit one job and print its id, or wait for it (--wait) and print its result."""
    app = _app(args.app)
    settings = settings_for(args, app)
    payload = payload_of(text_of(args.payload))
    own_id: str | None = getattr(args, "id", None)
    given = _options(args)
    with client_of(settings) as client:
        task = _task(args, app, client, payload)
        options = task.options.but(**given)
        if options.by_arguments:
            options = options.of(json.loads(payload))
        job = client.store.operations.submission(
            task.name, payload, options.queue, options.rules(), own_id, options.durability
        )
        submitted = _send(client, job)
        created = submitted.created or (own_id is None and submitted.id == job.id)
        if not created:
            note(f"{'replaced' if submitted.replaced else 'there already'}: {_match(job, submitted.id)}")
        else:
            note_unserved(client, job.queue)
        answer: dict[str, Any] = {"id": submitted.id, "created": created}
        if submitted.replaced:
            answer["replaced"] = True
        if task.warning and args.json:
            answer["warning"] = task.warning
        elif task.warning:
            note(task.warning)
        if "wait" in args:
            with _naming_job(
                submitted.id, f"{submitted.id} is submitted and continues; see {program()} get {submitted.id}"
            ):
                answer |= {"state": State.COMPLETED.value, "result": _wait(client, submitted.id, args.wait)}
    with _naming_job(submitted.id, f"{submitted.id} is submitted; see {program()} get {submitted.id}"):
        _show(args, answer)
    return 0


def _task(args: Namespace, app: "App | None", client: SyncClient, payload: bytes) -> CheckedTask:
    policy = policy_of(args.check_tasks)
    if policy == "off" and not (app and args.check_tasks is None):
        return CheckedTask(args.task, Options())
    if app:
        found = checked_task(app, args.app, args.task, payload)
        return CheckedTask(found.name, found.defaults)
    unsent = client.store.operations.submission(
        args.task, payload, Options().queue, "", getattr(args, "id", None)
    )
    with _naming_id(unsent):
        return check_task(client, args.task, payload, policy)


def _show(args: Namespace, answer: dict[str, Any]) -> None:
    if args.json:
        document(answer)
    elif "wait" in args:
        document(answer["result"])
    else:
        write(answer["id"])
    sys.stdout.flush()


@contextlib.contextmanager
def _naming_job(job_id: str, words: str) -> Iterator[None]:
    try:
        yield
    except (JobFailed, Unfinished, NotAsDurable):
        raise
    except BaseException as error:
        error.add_note(words)
        vars(error)["job_id"] = job_id
        raise


def _options(args: Namespace) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in OPTIONS if name in args}
    if "run_at" in given and "delay" in given:
        raise Invalid("--at and --delay: use one of them")
    if "run_at" in given:
        given["delay"] = 0
    return given


def _app(place: str | None) -> "App | None":
    if not place:
        return None
    from sublet.execution.app_loader import load_app

    return load_app(place)


def checked_task(app: "App", place: str, name: str, payload: bytes) -> "Task[..., Any]":
    """Return the app's task `name`, else the only one whose name ends with a dot and `name`. Raises Invalid,
    also for wrong arguments in `payload`. `place`: MODULE:APP, for messages.
    """
    task = app.tasks[resolve(name, app.tasks, place)]
    try:
        task.arguments.load(payload)
    except Invalid as error:
        raise Invalid(f"task {task.name}: {error}") from None
    return task


def _match(job: Submission, there: str) -> str:
    return f"{there} has this id" if there == job.id else f"{there} holds this key"


def _send(client: SyncClient, job: Submission) -> Submitted:
    try:
        with _naming_id(job):
            return client.submit_all([job])[0]
    except Unconfirmed as error:
        there = error.job_id or job.id
        raise NotAsDurable(f"{error} (--id {there})", there) from error


@contextlib.contextmanager
def _naming_id(job: Submission) -> Iterator[None]:
    try:
        yield
    except (Unfit, Forbidden, Unconfirmed):
        raise
    except (Unavailable, KeyboardInterrupt) as error:
        if job.id in str(error):
            error.args = (f"{error} (--id {job.id})",)
        else:
            error.add_note(f"if in doubt whether the job was stored: repeating it with --id {job.id} is safe")
        vars(error)["job_id"] = job.id
        raise


def _wait(client: SyncClient, job_id: str, seconds: float) -> Any:
    if seconds > PATIENCE and sys.stderr.isatty():
        try:
            return client.result(job_id, PATIENCE)
        except TimeoutError:
            seconds -= PATIENCE
            state = client.get(job_id).state
            start = f": {_how_to_start(client, job_id)}" if state is State.QUEUED else ""
            note(f"{job_id} is {state}{start} …")
    try:
        return client.result(job_id, seconds)
    except TimeoutError as error:
        idle = "is still queued" in str(error)
        start = f" {_how_to_start(client, job_id)};" if idle else ""
        raise Unfinished(job_id, f"{error};{start} see {program()} get {job_id}") from None


def _how_to_start(client: SyncClient, job_id: str) -> str:
    with contextlib.suppress(JobsError):
        queue = client.get(job_id).queue
        if client.queue(queue).paused_at:
            return f"queue {queue} is paused: {program()} resume {shlex.quote(queue)}"
    return f"no worker has claimed it: {program()} work MODULE:APP starts one"
