"""Keep the steps of a running attempt: later attempts find a kept result by its name.

Plans yield questions to the source of jobs, and calls to make; `LoopSteps` follows them in async tasks,
`PlainSteps` in plain ones.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar, get_type_hints

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from sublet.errors import Invalid, JobCancelled, JobFailed, JobsError
from sublet.execution import frames
from sublet.execution.steps.emitter import encoded
from sublet.execution.steps.upstream import LoopUpstream, PlainUpstream, large_result
from sublet.large_payloads.storage import Storage, is_reference
from sublet.model import Lease, Submission
from sublet.protocol.keys import check_name
from sublet.steps.calls import STEP_MAX, Called, CalledJob, Kept
from sublet.steps.waits import Suspended
from sublet.tasks.arguments import InvalidResult
from sublet.tasks.json.codec import JsonCodec, mismatch, validation_faults

T = TypeVar("T")


class Ask(NamedTuple):
    """A question to the worker's source of jobs: the name of its method, and the argument after the lease."""

    what: str
    argument: Any


Plan = Generator[Ask | Callable[[], Any], Any, T]


CALLS = ("call", "called")


class _Plans:
    def __init__(self, lease: Lease, fetch: Callable[[str, bytes], Any]) -> None:
        self._fetch = fetch
        self._found: dict[str, Kept] | None = {} if lease.attempt == 1 else None
        self._used: set[str] = set()
        self.renewed = False

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Plan[Any]:
        self._use(name)
        try:
            found = yield from self._read()
            kept = found.get(name)
            if kept is None or kept.kind == "signal":  # a signal is no step
                result = yield partial(function, *args, **kwargs)
                kept = yield from self._keep(name, _dump(name, function, result))
            return _load(name, function, kept)
        except BaseException:
            self._used.discard(name)  # the task may try it again
            raise

    def sleep(self, name: str, seconds: float) -> Plan[None]:
        self._use(name)
        found = yield from self._read()
        if name not in found:
            raise Suspended("sleep", name, seconds)

    def wait_for(self, name: str, seconds: float | None) -> Plan[Any]:
        check_name("signal", name)
        if self._found is None or name not in self._found:
            self._found = yield Ask("step", {})
        kept = self._found.get(name)
        if kept is None:
            raise Suspended("signal", name, seconds)
        if kept.kind == "timeout":
            raise TimeoutError(f"the signal {name} did not come in time")
        if kept.kind in CALLS:
            raise Invalid(
                f"signal {name!r}: a ctx.call of this job has this name: give the signal another one"
            )
        return json.loads(kept.value)

    def call(self, name: str, job: Submission) -> Plan[Any]:
        self._use(name)
        try:
            if not isinstance(job, Submission):
                raise Invalid(
                    f"step {name!r}: {str(job)[:40]!r} is not a job: give ctx.call the result of Task.job(…)"
                )
            found = yield from self._read()
            kept = found.get(name)
            if kept is None or kept.kind in ("call", "signal"):
                own: Kept = yield Ask("call", CalledJob(name, job))
                kept = found[name] = own
            if kept.kind == "call":
                raise Suspended("call", name)
            if kept.kind != "called":
                raise Invalid(f"step {name!r} is not a call, but a {kept.kind}: give the call another name")
            called = Called.of(kept.value)
            if called.state == "completed" and is_reference(called.body):
                called = called._replace(body=(yield partial(self._fetch, called.id, called.body)))
            return _result(name, called)
        except Exception:
            self._used.discard(name)
            raise

    def _use(self, name: str) -> None:
        check_name("step", name)
        if name in self._used:
            raise Invalid(
                f"step {name!r} is used twice in this attempt: give each step its own name, as in f'{name}-{{n}}'"
            )
        self._used.add(name)

    def _read(self) -> Plan[dict[str, Kept]]:
        if self._found is None:
            self._found = yield Ask("step", {})
        return self._found

    def _keep(self, name: str, value: bytes) -> Plan[Kept]:
        there: dict[str, Kept] = yield Ask("step", {name: value})
        self.renewed = self.renewed or name not in there
        kept = there.get(name) or Kept(0, "step", value)
        assert self._found is not None
        self._found[name] = kept
        return kept


class LoopSteps:
    """The steps of an attempt of an async task."""

    def __init__(
        self, lease: Lease, ask: Callable[[str, Any], Awaitable[Any]], storage: Storage | None
    ) -> None:
        self._ask, self._storage = ask, storage
        self._plans = _Plans(lease, lambda *which: asyncio.to_thread(large_result, storage, *which))

    @property
    def renewed(self) -> bool:
        """Whether this attempt has kept a new step."""
        return self._plans.renewed

    async def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the kept result of a step; without one, first call the function and keep its result (JSON)."""
        return await self._follow(self._plans.step(name, function, args, kwargs))

    async def sleep(self, name: str, seconds: float) -> None:
        """Return if the sleep is over; else raise Suspended."""
        await self._follow(self._plans.sleep(name, seconds))

    async def wait_for(self, name: str, seconds: float | None) -> Any:
        """Return the value of a signal; raise Suspended until it arrives, TimeoutError after `seconds`."""
        return await self._follow(self._plans.wait_for(name, seconds))

    async def call(self, name: str, job: Submission) -> Any:
        """Submit a job once and return its result; raise Suspended until it has ended, JobFailed without one."""
        return await self._follow(self._plans.call(name, job))

    async def emit(self, chunk: Any) -> None:
        """Append a chunk to the job's stream."""
        await self._ask("emit", encoded(chunk))

    def upstream(self) -> LoopUpstream:
        """Return the outcomes of upstream jobs."""
        return LoopUpstream(partial(self._ask, "upstream"), self._storage)

    async def _follow(self, plan: Plan[T]) -> T:
        try:
            wanted = next(plan)
            while True:
                try:
                    if isinstance(wanted, Ask):
                        answer = await self._ask(*wanted)
                    else:
                        answer = wanted()
                        answer = await answer if inspect.isawaitable(answer) else answer
                except BaseException as error:  # noqa: BLE001  # the plan raises it again
                    wanted = plan.throw(error)
                else:
                    wanted = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


class PlainSteps:
    """The steps of an attempt of a plain function. `ask` blocks until the answer."""

    def __init__(self, lease: Lease, ask: Callable[[str, Any], Any], storage: Storage | None) -> None:
        self._ask, self._storage = ask, storage
        self._plans = _Plans(lease, partial(large_result, storage))

    @property
    def renewed(self) -> bool:
        """Whether this attempt has kept a new step."""
        return self._plans.renewed

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the kept result of a step; without one, first call the function and keep its result (JSON)."""
        return self._follow(self._plans.step(name, function, args, kwargs))

    def sleep(self, name: str, seconds: float) -> None:
        """Return if the sleep is over; else raise Suspended."""
        self._follow(self._plans.sleep(name, seconds))

    def wait_for(self, name: str, seconds: float | None) -> Any:
        """Return the value of a signal; raise Suspended until it arrives, TimeoutError after `seconds`."""
        return self._follow(self._plans.wait_for(name, seconds))

    def call(self, name: str, job: Submission) -> Any:
        """Submit a job once and return its result; raise Suspended until it has ended, JobFailed without one."""
        return self._follow(self._plans.call(name, job))

    def emit(self, chunk: Any) -> None:
        """Append a chunk to the job's stream."""
        self._ask("emit", encoded(chunk))

    def upstream(self) -> PlainUpstream:
        """Return the outcomes of upstream jobs."""
        return PlainUpstream(partial(self._ask, "upstream"), self._storage)

    def _follow(self, plan: Plan[T]) -> T:
        try:
            wanted = next(plan)
            while True:
                try:
                    answer = self._ask(*wanted) if isinstance(wanted, Ask) else wanted()
                except BaseException as error:  # noqa: BLE001  # the plan raises it again
                    wanted = plan.throw(error)
                else:
                    wanted = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


async def answer(
    ask: Callable[[Lease, str, Any], Awaitable[Any]], lease: Lease, number: int, what: str, argument: Any
) -> bytes:
    """Ask for a child process; return the frame with the answer or error."""
    try:
        return frames.answer(number, what, await ask(lease, what, argument))
    except Exception as error:  # noqa: BLE001  # the task gets it
        known = error if isinstance(error, JobsError) else JobsError(f"{type(error).__name__}: {error}")
        return frames.answer(number, what, known)


@lru_cache(256)
def _codec(function: Callable[..., Any]) -> JsonCodec:
    # `asyncio.to_thread` and a lambda have no annotation: any JSON
    plain = function.func if isinstance(function, partial) else function
    try:
        return JsonCodec(get_type_hints(plain, include_extras=True).get("return", Any), "a step's result")
    except (Invalid, TypeError, NameError, AttributeError):
        return JsonCodec(Any, "a step's result")


def _dump(name: str, function: Callable[..., Any], result: Any) -> bytes:
    try:
        value = _codec(function).dump(result, warnings="error")
    except PydanticSerializationError as error:
        raise InvalidResult(f"step {name} returned a value {mismatch(error)}") from None
    if len(value) > STEP_MAX:
        raise InvalidResult(
            f"step {name} returned {len(value):,} bytes (JSON): at most {STEP_MAX:,} are kept: store the data elsewhere, "
            "and return its address"
        )
    return value


def _result(name: str, called: Called) -> Any:
    if called.state == "completed":
        return json.loads(called.body or b"null")
    words = called.body.decode("utf-8", "replace")
    if called.state == "refused":
        raise Invalid(f"step {name!r}: job {called.id} is completed, but {words}")
    code, _, message = words.partition(" ")
    if called.state == "cancelled":
        raise JobCancelled(called.id, message)
    raise JobFailed(called.id, code or called.state, message)


def _load(name: str, function: Callable[..., Any], kept: Kept) -> Any:
    if kept.kind == "timeout":
        raise Invalid(f"step {name!r} is a wait that ended without its signal: give the step another name")
    if kept.kind in CALLS:
        raise Invalid(f"step {name!r}: a ctx.call of this job has this name: give the step another one")
    try:
        return _codec(function).load(kept.value)
    except ValidationError as error:
        raise Invalid(
            f"step {name}: the kept result does not match the annotation, give the changed step another name: {validation_faults(error)}"
        ) from None
