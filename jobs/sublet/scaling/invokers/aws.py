"""The invoker `lambda`: asynchronous invocations of an AWS Lambda function, by boto3 (the extra `aws`)."""

from __future__ import annotations

import asyncio
from typing import Any

from sublet.scaling.invokers import AT_ONCE, Invocation, InvocationFailed, call_each
from sublet.scaling.invokers.thread_call import run_in_thread
from sublet.source_tree import install_command

CONNECT, READ = 2.0, 3.0
"""Time limits of a call in seconds: to connect, and to get the answer."""


class LambdaInvoker:
    """Starts workers as asynchronous invocations of a Lambda function. boto3 finds the credentials."""

    kind = "lambda"

    def __init__(self, region: str) -> None:
        self._region = region
        self._client: Any = None
        self._making = asyncio.Lock()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def invoke(self, request: Invocation) -> None:
        """Invoke the function once per summons. Raises InvocationFailed with the summonses whose calls
        failed; those not answered in time may have started workers.
        """
        await call_each(request, lambda summons: self._call(request, summons), self._turns)

    async def _call(self, request: Invocation, summons: str) -> None:
        async with self._making:
            if self._client is None:
                self._client = await run_in_thread(self._made)
        words = {"FunctionName": request.target, "InvocationType": "Event", "Payload": request.body(summons)}
        try:
            answer = await run_in_thread(lambda: self._client.invoke(**words))
        except Exception as error:  # noqa: BLE001  boto3 creates its exception classes at run time
            raise InvocationFailed(_why(error)) from None
        status = answer.get("StatusCode")
        if status != 202:
            raise InvocationFailed(f"AWS answered {status} to an invocation, not 202")

    def _made(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            words = f"invoking a Lambda function needs boto3: {install_command('aws')}"
            raise InvocationFailed(words) from None
        how = Config(
            connect_timeout=CONNECT,
            read_timeout=READ,
            retries={"total_max_attempts": 1},  # a repeated call could start two workers
            max_pool_connections=AT_ONCE,
        )
        try:
            return boto3.session.Session().client("lambda", region_name=self._region, config=how)
        except Exception as error:  # noqa: BLE001  e.g. an invalid region or profile
            raise InvocationFailed(_why(error)) from None

    async def aclose(self) -> None:
        """Close all connections; the workers continue."""
        if self._client is not None:
            client, self._client = self._client, None
            client.close()


def _why(error: Exception) -> str:
    """Return why a call failed, without AWS's own message, which names accounts and roles."""
    if isinstance(error, InvocationFailed):
        return str(error)
    answer = getattr(error, "response", None) or {}
    code, status = (
        answer.get("Error", {}).get("Code"),
        answer.get("ResponseMetadata", {}).get("HTTPStatusCode"),
    )
    if code or status:
        return f"AWS refused the call: {code or 'no reason'} ({status})"
    return f"AWS cannot be called: {type(error).__name__}: check the credentials, the region and the network"
