"""The invoker `process` of a tick: workers as processes of this machine, which outlive the tick."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from sublet.scaling.invokers import Invocation, InvocationFailed
from sublet.scaling.invokers.process import SECONDS, worker_command, worker_environment


class DetachedInvoker:
    """Starts workers as processes of this machine (`sublet work APP --drain --quiet …`), one for each
    summons.

    A worker ends when it is idle and its pool can spare it or is gone, or after `seconds`. Its errors go to
    this process's stderr. `arguments` are added to its command, `variables` to its environment.
    """

    kind = "process"

    def __init__(
        self, app: str, *, seconds: float = SECONDS, arguments: Sequence[str] = (), variables: Mapping[str, str] = {}
    ) -> None:  # fmt: skip
        self._app, self._seconds, self._arguments = app, seconds, ("--quiet", *arguments)
        self._variables = variables
        self._started: list[subprocess.Popen[bytes]] = []

    async def invoke(self, request: Invocation) -> None:
        """Start one worker per summons, until one fails: raises InvocationFailed for it and the rest."""
        self._started = [process for process in self._started if process.poll() is None]
        # Two workers must not have one exclusive identity
        environment = {**worker_environment(os.environ), **self._variables, "SUBLET_WORKER_ID": ""}
        for i, summons in enumerate(request.summons):
            command = worker_command(self._app, request, summons, self._seconds, self._arguments)
            try:
                self._started.append(_spawn(command, environment))
            except OSError as error:
                why = f"the worker process could not be started: {error.strerror or error}"
                raise InvocationFailed(why, request.summons[i:]) from None

    async def aclose(self) -> None:
        """Do nothing: the workers continue."""


def _spawn(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=nothing, stdout=nothing, env=dict(environment), start_new_session=True
    )
