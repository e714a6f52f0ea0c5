"""For tests of pools: an invoker and a job source that record their calls, and tasks to wait for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from sublet import App
from sublet.model import Submission
from sublet.operations.pool import Pool
from sublet.protocol import keys
from sublet.scaling.invokers import Invocation
from sublet.submission.submit import new_id

HOST = "https://workers.example.com/work"
POOL = Pool(name="p", queues=("q",), invoker="http", target=HOST, wait=1.0, slots=1)
SECONDS = 30.0
"""How long a test waits for a condition, in seconds."""


class Recorder:
    """An invoker of any kind that invokes nothing."""

    def __init__(self, does: Callable[[Invocation], None] = lambda request: None, kind: str = "http") -> None:
        self.kind, self._does = kind, does
        self.requests: list[Invocation] = []
        self.open = asyncio.Event()
        """Invocations wait for this."""
        self.open.set()
        self.closed = False

    async def invoke(self, request: Invocation) -> None:
        """Record the call, and do what the test wants."""
        self.requests.append(request)
        await self.open.wait()
        self._does(request)

    async def aclose(self) -> None:
        """It holds no resources."""
        self.closed = True

    @property
    def summons(self) -> list[str]:
        """The ids of all invocations."""
        return [summons for request in self.requests for summons in request.summons]


def jobs(n: int, queue: str = "q") -> Sequence[Submission]:
    """Some submissions."""
    return [Submission(new_id(0), queue, "t", "", b"{}") for _ in range(n)]


app = App()
GATE: dict[str, asyncio.Event] = {}


@app.task(queue="q")
async def quick(number: int = 0) -> int:
    return number


@app.task(queue="q")
async def gated() -> None:
    GATE["started"].set()
    await GATE["open"].wait()


@app.task(queue="plain")
def plain() -> None:
    pass


class Watched:
    """A job source that records its calls, and lets a test step in between."""

    def __init__(self, source):
        self._source, self.calls, self.retired = source, [], lambda may_go: None
        self.open = Counter()
        """Calls that have not returned, by name."""

    def __getattr__(self, name):
        method = getattr(self._source, name)

        async def call(*args, **how):
            self.calls.append((name, {**how, "args": args}))
            self.open[name] += 1
            try:
                answer = await method(*args, **how)
            finally:
                self.open[name] -= 1
            if name == "retire":
                found = self.retired(answer)
                answer = await found if found is not None else answer
            return answer

        return call

    def count(self, name):
        return len([call for call, _ in self.calls if call == name])


async def until(condition):
    """Wait for a condition."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def ended(running):
    """Wait for a worker's end; returns its summary."""
    async with asyncio.timeout(SECONDS):
        return await asyncio.shield(running)


def crew(raw, base):
    """The workers that the pool counts."""
    return raw.zrange(keys.crew(base, "p"), 0, -1)
