"""`TrialContext`: what one trial of the conformance run needs."""

import asyncio
import contextlib
import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sublet.connection.settings import Settings
from sublet.connection.transport import Transport
from sublet.devtools.conformance.client_process import POLL, SUBMIT_SECONDS, Client, Process
from sublet.devtools.conformance.proxy import Proxy, Seen
from sublet.devtools.conformance.rules import LEASE, Judge
from sublet.errors import JobsError
from sublet.model import FINISHED, Job, State, Submission
from sublet.protocol import keys, reads, verbs
from sublet.protocol.scripts import Call

PATIENCE = 12.0
KEPT = 0.2
ENDINGS = ("complete", "fail", "release")


class RuleBroken(Exception):
    """The client broke a rule; the message describes how."""


class WorkerEnded(RuleBroken):
    """The worker ended by itself: the trial cannot continue."""


class TrialContext:
    """One trial: a new namespace, a proxy in front of the server, the client's processes and the judge."""

    def __init__(self, client: Client, settings: Settings, judge: Judge) -> None:
        self.settings = replace(settings, namespace=f"conformance-{secrets.token_hex(6)}", partitions=1)
        self.base = keys.base(self.settings.namespace)
        self.proxy = Proxy(settings.redis_url)
        self.judge = judge
        self.queues = ["first", "second"]
        self.workers: list[Process] = []
        """Workers that must not end by themselves."""
        self.started = 0
        self._client = client
        self._folder = tempfile.TemporaryDirectory(prefix="sublet-", ignore_cleanup_errors=True)
        self._transport = Transport(self.settings)
        self._processes: list[Process] = []

    async def open(self, *, namespace: bool = True) -> None:
        """Open the proxy; with `namespace`, also create the namespace."""
        await self.proxy.listen()
        if namespace:
            await self.run(verbs.init(self.base))

    async def close(self) -> None:
        """Kill the client's processes, close the proxy and delete the namespace."""
        for process in self._processes:
            process.end()
        self._folder.cleanup()
        await self.proxy.leave()
        with contextlib.suppress(JobsError):
            await self.forget()
        await self._transport.aclose()

    def environment(self, slots: int = 1) -> dict[str, str]:
        """Return the environment variables for the client."""
        return {
            "SUBLET_REDIS_URL": self.proxy.url,
            "SUBLET_SOURCE": "",
            "SUBLET_NAMESPACE": self.settings.namespace,
            "SUBLET_QUEUES": ",".join(self.queues),
            "SUBLET_LEASE": str(LEASE),
            "SUBLET_SLOTS": str(slots),
            "SUBLET_PARTITIONS": "1",
            "TMPDIR": self._folder.name,
        }

    async def submit_by_client(self, task: str, payload: str) -> tuple[int, str, str]:
        """Run `CMD submit TASK JSON`. Return its exit code, its last word on stdout, and text to append to a
        message: the end of stderr, or else stdout. Raises RuleBroken if it does not end in 20 s.
        """
        process = await self.start(["submit", task, payload])
        code = await process.wait(SUBMIT_SECONDS)
        if code is None:
            raise RuleBroken(f"`submit` had not ended after {SUBMIT_SECONDS:g} s{process.words()}")
        lines = process.said().split()
        return code, lines[-1] if lines else "", process.words()

    async def start(self, words: Sequence[str], slots: int = 1) -> Process:
        """Start the client with these arguments. It is killed at the trial's end."""
        process = await self._client.start(words, self.environment(slots))
        self._processes.append(process)
        return process

    async def work(self, slots: int = 1, *, until_claim: bool = True) -> Process:
        """Start `CMD work` and return it; with `until_claim`, after its first claim. Raises RuleBroken
        without one in 12 s.
        """
        process = await self.start(["work"], slots)
        self.workers.append(process)
        self.started += 1
        if until_claim:
            before = len(self.seen("claim"))
            try:
                await self.until(lambda: len(self.seen("claim")) > before, "`work` has sent no claim")
            except RuleBroken as broken:
                raise type(broken)(f"{broken}{self._other_commands()}") from None
        return process

    def _other_commands(self) -> str:
        if any(seen.name in ("EVAL", "EVALSHA") and not seen.verb for seen in self.proxy.log):
            return "; the scripts that it sends are not those of this version's lua/"
        names = list(dict.fromkeys(seen.name for seen in self.proxy.log))
        return f"; it sent {', '.join(names[:9])}" if names else f"; it did not connect to {self.proxy.url}"

    def seen(self, *verbs: str) -> list[Seen]:
        """Return the recorded commands of these verbs, oldest first."""
        return [seen for seen in self.proxy.log if seen.verb in verbs]

    def claim_of(self, job_id: str) -> Seen | None:
        """Return the first claim whose reply gave this job to the client; None without one."""
        return next((seen for seen in self.seen("claim") if job_id in seen.given() and not seen.fate), None)

    def about(self, job_id: str, *verbs: str) -> list[Seen]:
        """Return the recorded commands of these verbs that name this job, oldest first."""
        return [seen for seen in self.seen(*verbs) if job_id in seen.args]

    async def run(self, call: Any) -> Any:
        """Send a call to the server, past the proxy, and return its result."""
        return await self._transport.run(call)

    async def raw(self, *words: Any) -> Any:
        """Send a command to the server, past the proxy, and return the reply."""
        return await self.run(Call((words,), lambda reply: reply))

    async def submit(self, task: str, payload: Any = None, rules: str = "", queue: str = "first") -> str:
        """Store a job, past the proxy, with the options `rules`, such as tries=1; return its id. A `payload`
        of bytes is stored unchanged.
        """
        job_id = f"0-{secrets.token_hex(12)}"
        body = (
            payload if isinstance(payload, bytes) else json.dumps(payload or {}, ensure_ascii=False).encode()
        )
        await self.run(verbs.submit(self.base, [Submission(job_id, queue, task, rules, body)]))
        return job_id

    async def job(self, job_id: str) -> Job:
        """Return a job. Raises NotFound."""
        found: Job = await self.run(reads.get(self.base, job_id))
        return found

    async def is_over(self, job_id: str) -> bool:
        """Whether the job has ended."""
        return (await self.job(job_id)).state in FINISHED

    async def completed(self, job_id: str, what: str, seconds: float = 0) -> Job:
        """Wait until a job, called `what` in messages, is completed; return it. Raises RuleBroken if it ends
        otherwise, or not within `seconds` (0: 12).
        """
        job = await self.ended(job_id, what, seconds)
        if job.state is not State.COMPLETED:
            raise RuleBroken(f"{what} was not completed: it ended as {describe(job)}")
        return job

    async def ended(self, job_id: str, what: str, seconds: float = 0) -> Job:
        """As `completed`, but also return a dead or cancelled job."""
        try:
            await self.until_async(lambda: self.is_over(job_id), f"{what} had not ended", seconds)
        except WorkerEnded:
            raise
        except RuleBroken as broken:
            raise RuleBroken(f"{broken}; it is {describe(await self.job(job_id))}") from None
        return await self.job(job_id)

    async def running(self, job_id: str) -> str:
        """Wait until the client has claimed a job; return the claim's token. Raises RuleBroken after 12 s."""
        await self.until(lambda: self.claim_of(job_id) is not None, "a queued job was not claimed")
        claim = self.claim_of(job_id)
        return claim.token() if claim else ""

    async def holding(self, job_id: str) -> str:
        """As `running`, for a job of the task `sleep`. Raises RuleBroken if the job does not run 0.2 s later."""
        token = await self.running(job_id)
        await asyncio.sleep(KEPT)
        if (job := await self.job(job_id)).state is not State.RUNNING:
            raise RuleBroken(
                f"the client did not go on running a job of the task `sleep`: it is {describe(job)}"
            )
        return token

    async def forget(self) -> None:
        """Delete all keys of the namespace."""
        cursor: Any = 0
        for _ in range(10_000):
            cursor, found = await self.raw("SCAN", cursor, "MATCH", f"{self.base}*", "COUNT", 1000)
            if found:
                await self.raw("DEL", *found)
            if int(cursor) == 0:
                return

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = 0) -> None:
        """Wait until `holds` returns True. Raises RuleBroken with the text `what` after `seconds` (0: 12),
        WorkerEnded if a worker ends.
        """

        async def check() -> bool:
            return holds()

        await self.until_async(check, what, seconds)

    async def until_async(self, holds: Callable[[], Awaitable[bool]], what: str, seconds: float = 0) -> None:
        """As `until`, with a coroutine function."""
        seconds = seconds or PATIENCE
        until = asyncio.get_running_loop().time() + seconds
        while not await holds():
            for worker in self.workers:
                if worker.exit is not None:
                    raise WorkerEnded(
                        f"`work` must run until SIGTERM; it ended by itself with exit code {worker.exit}{worker.words()}"
                    )
            if asyncio.get_running_loop().time() > until:
                raise RuleBroken(f"{what} within {seconds:g} s")
            await asyncio.sleep(POLL)

    @contextlib.contextmanager
    def rule(self, name: str) -> Iterator[None]:
        """Record whether the `with` block keeps a rule: a RuleBroken in it breaks the rule and ends the
        block. WorkerEnded is raised again.
        """
        try:
            yield
        except RuleBroken as broken:
            self.judge.note(name, str(broken))
            if isinstance(broken, WorkerEnded):
                raise
        else:
            self.judge.note(name)


def describe(job: Job) -> str:
    """Return a job's state, last outcome and attempt for a message."""
    last = job.attempts[-1] if job.attempts else None
    how = f" ({last.code}{': ' if last.message else ''}{last.message[:120]})" if last else ""
    return f"{job.state}{how}, attempt {job.attempt}"
