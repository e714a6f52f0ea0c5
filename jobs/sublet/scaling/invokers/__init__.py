"""Invokers start workers through a platform.

An invocation is not retried: if no worker arrives, the summons expires and the worker is owed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sublet.connection import held_secrets
from sublet.errors import Invalid, JobsError
from sublet.scaling.invokers.addresses import Reach, check_url
from sublet.scaling.signing import Secrets
from sublet.source_tree import install_command

KINDS = ("http", "lambda", "process", "none")
SECONDS = 5.0
"""Time limit of one `invoke` in seconds, for any number of workers."""
AT_ONCE = 16
"""Most calls of one invoker at once; further ones wait, within SECONDS."""
PRIVATE = "SUBLET_INVOKE_PRIVATE"
"""The environment variable that allows the invoker `http` more than public addresses with TLS: with `1`
`Reach.PRIVATE`, with `local` `Reach.LOCAL`.
"""
_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")

_FUNCTION = re.compile(
    r"(arn:(aws[a-zA-Z-]*):lambda:)?([a-z]{2}(-[a-z]+)+-\d:)?(\d{12}:)?(function:)?[a-zA-Z0-9_-]{1,140}(:(\$LATEST|[a-zA-Z0-9_-]{1,128}))?"
)


class InvocationFailed(JobsError):
    """Workers could not be invoked: those with the ids `summons`, or all if that is empty.
    The message is stored with the pool; `detail` is for the log.
    """

    def __init__(self, words: str, summons: tuple[str, ...] = (), detail: str = "") -> None:
        super().__init__(words)
        self.summons, self.detail = summons, detail or words


@dataclass(frozen=True, slots=True)
class Invocation:
    """Workers of a pool to start: one for each id in `summons`."""

    pool: str
    target: str
    """What is called: a URL or the name of a function; empty for the invokers `process` and `none`."""
    queues: tuple[str, ...]
    slots: int
    linger: float
    """How many seconds a worker without a job waits before it asks to leave the pool."""
    summons: tuple[str, ...]

    def body(self, summons: str) -> bytes:
        """Return the settings for the worker `summons` as JSON: all but the target, with only its id."""
        options = {
            "pool": self.pool,
            "queues": self.queues,
            "slots": self.slots,
            "linger": self.linger,
            "summons": summons,
        }
        return json.dumps(options, separators=(",", ":")).encode()


class Invoker(Protocol):
    """Starts workers through one kind of platform. For one event loop."""

    @property
    def kind(self) -> str:
        """The invoker's name in a pool's settings: `http`, `lambda`, `process` or `none`."""
        ...

    async def invoke(self, request: Invocation) -> None:
        """Start one worker for each summons, within 5 s. Raises InvocationFailed with the summonses that failed."""
        ...

    async def aclose(self) -> None:
        """Close all connections. The workers may end, depending on the invoker."""
        ...


class NoInvoker:
    """The invoker `none`: another system starts the owed workers (KEDA, an operator)."""

    kind = "none"

    async def invoke(self, request: Invocation) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


def allowed_reach(environment: Mapping[str, str] | None = None) -> Reach:
    """Return what SUBLET_INVOKE_PRIVATE allows (PUBLIC if unset). Raises Invalid for an unknown value."""
    raw = (os.environ if environment is None else environment).get(PRIVATE, "")
    value = raw.strip().lower()
    if value not in (*_YES, *_NO, "local"):
        raise Invalid(
            f"{PRIVATE}={raw[:40]!r}: use 1 to allow private networks, local to allow this machine and "
            "link-local addresses, too, or 0"
        )
    return Reach.LOCAL if value == "local" else Reach.PRIVATE if value in _YES else Reach.PUBLIC


def check_target(kind: str, target: str, *, reach: Reach | None = None) -> None:
    """Raise Invalid unless `kind` is in KINDS, and `target` suits it: an allowed URL for `http`, a function's
    name or ARN for `lambda`, else "". `reach`: which URLs are allowed; None: the environment decides.
    """
    if kind not in KINDS:
        raise Invalid(f"invoker {kind[:40]!r}: use one of {', '.join(KINDS)}")
    if kind == "http":
        check_url(target, reach=allowed_reach() if reach is None else reach)
    elif kind == "lambda":
        if len(target) > 170 or not _FUNCTION.fullmatch(target):
            raise Invalid(
                "the target must be the name or ARN of a Lambda function, e.g. resize or resize:live"
            )
    elif target:
        raise Invalid(f"the invoker {kind} takes no target: {_why_none(kind)}")


def _why_none(kind: str) -> str:
    return (
        "it runs the app that is configured on the machine, never code that is named in Redis; leave the target empty"
        if kind == "process"
        else "it invokes nothing; leave the target empty"
    )


def invokers_of(
    environment: Mapping[str, str] | None = None, app_target: str | None = None
) -> dict[str, Invoker]:
    """Return the invokers that this process may use, by kind. Imports and connections wait for the first use.

    - `none`: always.
    - `http`: with a signing secret configured.
    - `lambda`: with boto3 installed and a region set.
    - `process`: only with the workers' app (`app_target`, MODULE:APP): Redis names no code.

    Raises Invalid for invalid secrets and, with a secret, an invalid SUBLET_INVOKE_PRIVATE.
    """
    found = held_secrets.environment() if environment is None else environment
    invokers: dict[str, Invoker] = {"none": NoInvoker()}
    secrets = Secrets.read(found)
    if secrets:
        from sublet.scaling.invokers.http import HttpInvoker

        invokers["http"] = HttpInvoker(secrets, allowed_reach(found))
    region = found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION")
    if region and importlib.util.find_spec("boto3"):
        from sublet.scaling.invokers.aws import LambdaInvoker

        invokers["lambda"] = LambdaInvoker(region)
    if app_target:
        from sublet.scaling.invokers.process import ProcessInvoker

        invokers["process"] = ProcessInvoker(app_target)
    return invokers


def why_missing(kind: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the reason why this process has no invoker of this kind. Call it only for a missing one."""
    found = held_secrets.environment() if environment is None else environment
    if kind == "http":
        return "SUBLET_SIGNING_SECRETS is not set"
    if kind == "lambda":
        region = found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION")
        return f"boto3 is missing: {install_command('aws')}" if region else "AWS_REGION is not set"
    return (
        "only `sublet tick --app MODULE:APP` and `sublet dev` start workers as processes, on their machine"
        if kind == "process"
        else f"this process has no invoker {kind[:40]}"
    )


async def call_each(
    request: Invocation, call: Callable[[str], Awaitable[None]], *turns: asyncio.Semaphore
) -> None:
    """Await `call` for each summons, concurrently, within 5 s. Each call first acquires the semaphores
    `turns`, in order. Raises InvocationFailed with the summonses whose calls were late or raised InvocationFailed.
    """
    failed: dict[str, str] = {}

    async def one(summons: str) -> None:
        words = f"not sent within {SECONDS:g} s: too many other calls were under way"
        try:
            async with asyncio.timeout(SECONDS), contextlib.AsyncExitStack() as had:
                for turn in turns:
                    await had.enter_async_context(turn)
                words = f"no answer within {SECONDS:g} s"
                await call(summons)
        except TimeoutError:
            failed[summons] = words
        except InvocationFailed as error:
            failed[summons] = str(error)

    await asyncio.gather(*map(one, request.summons))
    if failed:
        lost = tuple(summons for summons in request.summons if summons in failed)
        more = f" ({len(lost)} of {len(request.summons)} calls failed)" if len(request.summons) > 1 else ""
        raise InvocationFailed(failed[lost[0]] + more, lost)
