"""Invokers: what calls a worker into being. A pool names one by its kind, and the target that is called.

`http` posts a signed request to a function's URL, `lambda` invokes an AWS Lambda function, `process` starts workers on this
machine, and `none` leaves it to others. Who was called comes by itself, or not: a summons that nobody obeys expires, and is owed
again. So an invocation is sent once, for a bounded time, and its failure is told, not retried.
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

from sublet.errors import Invalid, JobsError
from sublet.operations.pool import Pool, check
from sublet.scaling.invokers.addresses import check_url
from sublet.scaling.signing import Secrets

KINDS = ("http", "lambda", "process", "none")
"""What a pool's invoker may be."""
SECONDS = 5.0
"""How long one `invoke` may take, however many workers it is to call."""
AT_ONCE = 16
"""Calls that one invoker has under way at once; others wait for their turn, within the same seconds."""
PRIVATE = "SUBLET_INVOKE_PRIVATE"
"""The variable that allows private addresses, and http without TLS."""
_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")

_FUNCTION = re.compile(
    r"(arn:(aws[a-zA-Z-]*):lambda:)?([a-z]{2}(-[a-z]+)+-\d:)?(\d{12}:)?(function:)?[a-zA-Z0-9_-]{1,140}(:(\$LATEST|[a-zA-Z0-9_-]{1,128}))?"
)
"""How AWS spells a function: its name or its ARN, and perhaps a version or alias."""


class InvocationFailed(JobsError):
    """A call did not get through, or not to all. `summons` are those that nobody will obey now: they expire by themselves."""

    def __init__(self, words: str, summons: tuple[str, ...] = ()) -> None:
        super().__init__(words)
        self.summons = summons


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a pool is owed: one worker for each summons, and what each is to be started with."""

    pool: str
    target: str
    """Where to: a URL, the name of a function; empty for this machine."""
    queues: tuple[str, ...]
    slots: int
    """Jobs that a worker runs at a time."""
    linger: float
    """Seconds that it stays when there is nothing to do."""
    summons: tuple[str, ...]

    def body(self, summons: str) -> bytes:
        """What one worker is told, as JSON."""
        said = {
            "pool": self.pool,
            "queues": self.queues,
            "slots": self.slots,
            "linger": self.linger,
            "summons": summons,
        }
        return json.dumps(said, separators=(",", ":")).encode()


class Invoker(Protocol):
    """Calls workers into being. Belongs to one event loop."""

    @property
    def kind(self) -> str:
        """By what name pools ask for it."""
        ...

    async def invoke(self, request: Invocation) -> None:
        """Call one worker for each summons, within 5 s. Raises InvocationFailed with the summonses that did not get through."""
        ...

    async def aclose(self) -> None:
        """Let go of all that it holds. Workers elsewhere go on."""
        ...


class Nobody:
    """The invoker `none`: workers are started by others, who look at what is owed (KEDA, a person)."""

    kind = "none"

    async def invoke(self, request: Invocation) -> None:
        """Leave it to others."""

    async def aclose(self) -> None:
        """It holds nothing."""


def allows_private(environment: Mapping[str, str] | None = None) -> bool:
    """Does SUBLET_INVOKE_PRIVATE allow addresses that are not public? Raises Invalid if it says neither yes nor no."""
    raw = (os.environ if environment is None else environment).get(PRIVATE, "")
    said = raw.strip().lower()
    if said not in _YES + _NO:
        raise Invalid(f"{PRIVATE}={raw[:40]!r}: use 1 to allow private addresses, or 0")
    return said in _YES


def check_pool(pool: Pool) -> None:
    """Check a pool's settings, its invoker and its target before it is stored. Raises Invalid."""
    check(pool)
    check_target(pool.invoker, pool.target)


def check_target(kind: str, target: str, *, private: bool | None = None) -> None:
    """Look at a pool's invoker and its target before they are kept. Raises Invalid for what cannot be, or must not be called.

    `private` is what the environment allows, unless it is said here.
    """
    if kind not in KINDS:
        raise Invalid(f"invoker {kind[:40]!r}: use one of {', '.join(KINDS)}")
    if kind == "http":
        check_url(target, private=allows_private() if private is None else private)
    elif kind == "lambda":
        if len(target) > 170 or not _FUNCTION.fullmatch(target):
            raise Invalid(
                "the target must be the name of a Lambda function, or its ARN, e.g. resize or resize:live"
            )
    elif target:
        raise Invalid(f"the invoker {kind} takes no target: {_why_none(kind)}")


def _why_none(kind: str) -> str:
    return (
        "it runs the app that this machine was told, and nothing that stands in Redis"
        if kind == "process"
        else "it calls nobody"
    )


def invokers_of(
    environment: Mapping[str, str] | None = None, app_target: str | None = None
) -> dict[str, Invoker]:
    """The invokers that this process may use, by their kind.

    `none` always; `http` where the environment has a signing secret; `lambda` where boto3 is installed and a region is set;
    `process` only where the caller says which app the workers run (MODULE:APP), for no name of code comes out of Redis. None
    of them imports or opens anything before it is used. Raises Invalid for secrets that cannot be, and for what
    SUBLET_INVOKE_PRIVATE cannot say.
    """
    found = os.environ if environment is None else environment
    invokers: dict[str, Invoker] = {"none": Nobody()}
    secrets = Secrets.read(found)
    if secrets:
        from sublet.scaling.invokers.http import HttpInvoker

        invokers["http"] = HttpInvoker(secrets, private=allows_private(found))
    region = found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION")
    if region and importlib.util.find_spec("boto3"):
        from sublet.scaling.invokers.aws import LambdaInvoker

        invokers["lambda"] = LambdaInvoker(region)
    if app_target:
        from sublet.scaling.invokers.process import ProcessInvoker

        invokers["process"] = ProcessInvoker(app_target)
    return invokers


def lacking(kind: str, environment: Mapping[str, str] | None = None) -> str:
    """Why `invokers_of` has no invoker of this kind here, in words."""
    found = os.environ if environment is None else environment
    if kind == "http":
        return "no SUBLET_SIGNING_SECRETS"
    if kind == "lambda":
        region = found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION")
        return (
            "no boto3: pip install 'sublet[aws]' (from a checkout: '.[aws]')" if region else "no AWS_REGION"
        )
    return (
        "only sublet dev starts those, on its own machine"
        if kind == "process"
        else f"nothing here calls by {kind[:40]}"
    )


async def call_each(
    request: Invocation, call: Callable[[str], Awaitable[None]], *turns: asyncio.Semaphore
) -> None:
    """Call one worker for each summons, side by side, all within 5 s. Raises InvocationFailed: which failed, and why.

    Each call waits for its turn in all of `turns`, one after the other.
    """
    failed: dict[str, str] = {}

    async def one(summons: str) -> None:
        words = f"it had no turn within {SECONDS:g} s: others were under way, as many as may be"
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
