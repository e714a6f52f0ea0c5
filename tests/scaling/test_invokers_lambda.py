"""The invoker `lambda`: boto3's own client with a small fake of the Invoke API."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from urllib.parse import unquote

import pytest

from sublet.scaling import invokers as module
from sublet.scaling.invokers import Invocation, InvocationFailed
from sublet.scaling.invokers.aws import LambdaInvoker
from tests.support.paths import ROOT

TAKEN = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def refused(status, code):
    body = json.dumps({"Type": "User", "Message": "account 123456789012 may not"}).encode()
    head = f"HTTP/1.1 {status} No\r\nx-amzn-ErrorType: {code}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@contextlib.asynccontextmanager
async def aws(monkeypatch, answer):
    """Lambda's Invoke API on loopback; yields the requests: (method, path, headers, body)."""
    received = []

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:-2])
            }
            body = await reader.readexactly(int(headers["content-length"]))
            received.append((head.split()[0], unquote(head.split()[1]), headers, body))
            if answer is None:
                await reader.read(1)
            writer.write(answer or b"")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name, value in {
        "AWS_ENDPOINT_URL_LAMBDA": url,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "dummy-dummy-dummy",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        yield received
    finally:
        server.close()


def request_of(*summons, target="resize"):
    return Invocation("images", target, ("a",), 4, 2.5, summons or ("s.1",))


@pytest.fixture
async def invoker():
    pytest.importorskip("boto3")
    one = LambdaInvoker("eu-central-1")
    yield one
    await one.aclose()


async def test_a_function_is_invoked_asynchronously_once_for_each_summons(invoker, monkeypatch):
    async with aws(monkeypatch, TAKEN) as received:
        await invoker.invoke(request_of("s.1", "s.2"))
        await invoker.invoke(
            request_of("s.3", target="arn:aws:lambda:eu-central-1:123456789012:function:resize:live")
        )
    assert sorted(json.loads(body)["summons"] for *_, body in received) == ["s.1", "s.2", "s.3"]
    for method, path, headers, body in received:
        assert (method, path.startswith("/2015-03-31/functions/")) == ("POST", True)
        assert headers["x-amz-invocation-type"] == "Event"
        assert "Credential=AKIAIOSFODNN7EXAMPLE" in headers["authorization"]
        assert json.loads(body) | {"summons": ""} == {
            "pool": "images",
            "queues": ["a"],
            "slots": 4,
            "linger": 2.5,
            "summons": "",
        }
    assert (
        received[-1][1]
        == "/2015-03-31/functions/arn:aws:lambda:eu-central-1:123456789012:function:resize:live/invocations"
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refused(404, "ResourceNotFoundException"), "AWS refused the call: ResourceNotFoundException (404)"),
        (refused(403, "AccessDeniedException"), "AWS refused the call: AccessDeniedException (403)"),
        (refused(429, "TooManyRequestsException"), "AWS refused the call: TooManyRequestsException (429)"),
        (refused(500, "ServiceException"), "AWS refused the call: ServiceException (500)"),
        (TAKEN.replace(b"202 Accepted", b"200 OK"), "AWS answered 200 to an invocation, not 202"),
        (b"", "AWS cannot be called: ConnectionClosedError"),
        (b"no HTTP at all", "AWS cannot be called"),
    ],
)
async def test_an_error_answer_is_explained_and_not_retried(invoker, monkeypatch, answer, words):
    async with aws(monkeypatch, answer) as received:
        with pytest.raises(InvocationFailed, match=r"^AWS") as failed:
            await invoker.invoke(request_of())
    assert words in str(failed.value)
    assert "123456789012" not in str(failed.value)
    assert (failed.value.summons, len(received)) == (("s.1",), 1)


async def test_a_hanging_api_times_out(invoker, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 15.0)
    async with aws(monkeypatch, TAKEN) as received:
        await invoker.invoke(request_of())  # boto3 is imported, which takes a while
    monkeypatch.setattr(module, "SECONDS", 0.3)
    async with aws(monkeypatch, None) as received:
        invoker._client = None
        began = time.monotonic()
        with pytest.raises(InvocationFailed, match=r"no answer within 0\.3 s"):
            await invoker.invoke(request_of())
        assert time.monotonic() - began < 10
        assert len(received) <= 1


async def test_missing_credentials_are_named_in_the_error(invoker, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 30.0)  # boto3 is imported, which takes a while
    async with aws(monkeypatch, TAKEN) as received:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(InvocationFailed, match="AWS cannot be called: NoCredentialsError"):
            await invoker.invoke(request_of())
    assert not received


async def test_without_boto3_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvocationFailed, match=r"needs boto3: pip install 'PATH/TO/THE/CHECKOUT\[aws\]'"):
        await LambdaInvoker("eu-central-1").invoke(request_of())


def test_a_hanging_call_does_not_block_the_exit():
    script = (
        "import asyncio, threading\n"
        "from sublet.scaling.invokers.thread_call import run_in_thread\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.05): await run_in_thread(threading.Event().wait)\n"
        "    except TimeoutError: print('given up')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.returncode) == ("given up\n", 0), done.stderr
