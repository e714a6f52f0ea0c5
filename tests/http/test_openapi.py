"""The OpenAPI document: valid 3.1, complete, and as strict as the server."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.model import State
from sublet.operations.operations import Operations
from sublet_functions.api.dispatch import Api
from sublet_functions.api.openapi import REQUEST_HEADERS, RESPONSE_HEADERS, document
from sublet_functions.api.openapi_examples import EXAMPLES
from sublet_functions.api.operation_ids import IDS
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.auth import Tokens
from sublet_functions.http.problems import PREFIX, PROBLEMS, Problem
from sublet_functions.http.request import Request
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import NewJob
from tests.support.http_server import ADMIN

DOCUMENT = document(ROUTES)
OPERATIONS = {
    (path, method): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}

VERBS = {
    *("submit", "get", "list", "put", "update", "delete", "publish", "register", "run", "claim", "heartbeat", "complete"),
    *("finish", "fail", "release", "note", "keep", "emit", "suspend", "signal", "call", "proceed", "cancel", "retry", "promote", "reschedule", "erase", "pause", "resume", "reconcile", "retire", "drain"),
}  # fmt: skip


def resolved(node):
    """Resolve a reference in the document."""
    while "$ref" in node:
        _, *place = node["$ref"].split("/")
        node = DOCUMENT
        for name in place:
            node = node[name]
    return node


def is_valid(model, value):
    """Does a value match the schema of a model?"""
    schema = {"$ref": f"#/components/schemas/{model.__name__}", "components": DOCUMENT["components"]}
    return Draft202012Validator(schema).is_valid(value)


def test_the_document_is_valid_openapi_3_1():
    assert DOCUMENT["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


async def test_the_document_needs_no_token():
    api = Api(None, Tokens(ADMIN))
    reply = await api.answer(Request("GET", "/openapi.json"))
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(reply.body) == json.loads(json.dumps(DOCUMENT))


def test_the_document_contains_each_route_and_no_others():
    known = {(path, route.method.lower()) for route in ROUTES for path in (route.path, route.alias) if path}
    assert set(OPERATIONS) == known
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("place", OPERATIONS, ids=" ".join)
def test_each_operation_has_a_description(place):
    operation = OPERATIONS[place]
    assert operation["summary"]
    assert operation["description"].startswith(operation["summary"])
    assert {tag for tag in operation["tags"]} <= {tag["name"] for tag in DOCUMENT["tags"]}
    assert all(parameter.get("description") for parameter in operation["parameters"])
    for answer in operation["responses"].values():
        assert resolved(answer)["description"]


@pytest.mark.parametrize("place", OPERATIONS, ids=" ".join)
def test_each_operation_documents_its_roles_and_problems(place):
    operation = OPERATIONS[place]
    (route,) = [r for r in ROUTES if place[0] in (r.path, r.alias) and place[1] == r.method.lower()]
    assert {role for one in operation["security"] for role in one["bearer"]} == (
        {*route.roles, "admin"} if route.roles else set()
    )
    documented = {}
    for status, answer in operation["responses"].items():
        for kind, body in resolved(answer).get("content", {}).items():
            if kind == "application/problem+json":
                documented |= dict.fromkeys(
                    body["schema"]["allOf"][1]["properties"]["type"]["enum"], int(status)
                )
    assert {PREFIX + slug for slug in route.problems} <= set(documented)
    assert all(PROBLEMS[kind.removeprefix(PREFIX)].status == status for kind, status in documented.items())
    assert ("401" in operation["responses"]) == bool(route.roles)
    assert (
        ("415" in operation["responses"])
        == (route.body is not Empty or route.events)
        == ("requestBody" in operation)
    )


def test_the_id_of_each_operation_is_a_verb_and_a_noun():
    """Generated clients make functions of them: the same words for the same things, in camelCase."""
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    verbs = {re.match("[a-z]+", one)[0] for one in ids}
    assert [one for one in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", one)] == []
    assert verbs <= VERBS, verbs - VERBS
    assert IDS.keys() <= {route.handler.__name__ for route in ROUTES}


def test_no_schema_of_a_body_has_a_default():
    """Generators of TypeScript clients require each field with a default; its description has it instead."""
    fields = [
        (model, name, field)
        for model, schema in DOCUMENT["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
    ]
    assert [(model, name) for model, name, field in fields if "default" in field] == []
    described = DOCUMENT["components"]["schemas"]["NewJob"]["properties"]
    assert described["max_attempts"]["description"].endswith("the job is dead. Default: 3.")
    assert described["queue"]["description"] == 'Default: "default".'


def test_durations_are_numbers_whose_descriptions_say_seconds():
    """One rule for all: no field has a unit in its value, and the other numbers are counts and factors."""
    found = [
        (model, name, field)
        for model, schema in DOCUMENT["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
        if any(kind.get("type") == "number" for kind in (field, *field.get("anyOf", ())))
    ]
    found += [
        (place, parameter["name"], parameter)
        for place, operation in OPERATIONS.items()
        for parameter in operation["parameters"]
        if parameter["schema"].get("type") == "number"
    ]
    others = {name for _, name, field in found if not re.search("[Ss]econds", json.dumps(field))}
    assert others == {"factor", "rate", "need"}


def test_states_and_types_of_problems_are_enumerations():
    schemas = DOCUMENT["components"]["schemas"]
    for model in ("JobState", "BatchItem", "Job", "JobSummary", "Event"):
        state = schemas[model]["properties"]["state"]
        assert {"$ref": "#/components/schemas/State"} in (state, *state.get("anyOf", ()))
    assert schemas["State"]["enum"] == [state.value for state in State]
    for model in ("ProblemDocument", "BatchItem", "SubmittedItem"):
        kind = schemas[model]["properties"]["type"]
        assert kind.get("anyOf", [kind])[0]["enum"] == [PREFIX + slug for slug in PROBLEMS]


def test_all_headers_of_routes_are_described():
    assert {name for route in ROUTES for name in route.headers} <= {*REQUEST_HEADERS, *RESPONSE_HEADERS}


@pytest.mark.parametrize("slug", PROBLEMS)
def test_a_problem_has_the_documented_headers(slug):
    reply = Problem(slug, "why").response()
    assert ("Retry-After" in reply.headers) == (reply.status in RESPONSE_HEADERS["Retry-After"].statuses)


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_each_example_fits_its_model(model):
    read = model.model_validate_json(json.dumps(EXAMPLES[model]))
    assert read.model_dump(exclude_unset=True).keys() == EXAMPLES[model].keys()
    assert is_valid(model, EXAMPLES[model])


@pytest.mark.parametrize(
    ("options", "good"),
    [
        ({"delay": 0, "run_at": "2026-01-31T12:00:00Z"}, True),
        ({"delay": 5, "run_at": None}, True),
        ({"delay": 5, "run_at": "2026-01-31T12:00:00Z"}, False),
        ({"window": 5, "key": "k"}, True),
        ({"window": None}, True),
        ({"window": 5}, False),
        ({"window": 5, "key": None}, False),
        ({"key": "k", "debounce": 30, "at_most": 300}, True),
        ({"key": "k", "debounce": 30, "delay": 0, "run_at": None, "on_conflict": None, "window": None}, True),
        ({"debounce": 30}, False),
        ({"key": "k", "debounce": 0}, False),
        ({"key": "k", "debounce": -1}, False),
        ({"key": "k", "debounce": "30"}, False),
        ({"key": "k", "at_most": 300}, False),
        ({"key": "k", "debounce": 30, "delay": 5}, False),
        ({"key": "k", "debounce": 30, "run_at": "2026-01-31T12:00:00Z"}, False),
        ({"key": "k", "debounce": 30, "window": 5}, False),
        ({"key": "k", "debounce": 30, "on_conflict": "replace"}, False),
        ({"key": "k", "on_conflict": "replace", "delay": 5}, True),
        ({"key": "k", "on_conflict": "cancel_running"}, True),
        ({"key": "k", "on_conflict": "ignore"}, False),
        ({"key": "k", "on_conflict": "replace", "window": 5}, False),
        ({"on_conflict": "replace"}, False),
        ({"priority": 3.0}, True),
        ({"priority": 3.5}, False),
        ({"priority": "3"}, False),
        ({"priority": True}, False),
        ({"timeout": None}, True),
        ({"timeout": "none"}, False),
        ({"timeout": "never"}, False),
        ({"backoff": {"first": 1, "factor": 0.5}}, False),
        ({"id": "a" * 58}, True),
        ({"id": "a\r\nb"}, False),
        ({"payload": []}, False),
        ({"nonsense": 1}, False),
    ],
    ids=str,
)
async def test_the_server_refuses_exactly_the_jobs_that_the_schema_refuses(options, good):
    job = {"task": "t", **options}
    assert is_valid(NewJob, job) == good
    api = Api(Unreachable(), Tokens())
    headers = {"host": "localhost", "content-type": "application/json"}
    reply = await api.answer(Request("POST", "/jobs", "", headers, json.dumps(job).encode()))
    assert reply.status == (503 if good else 422)


class Unreachable:
    """A store that is unavailable for every call."""

    def __init__(self):
        self.operations = Operations(Settings(redis_url="redis://nowhere"))

    async def follow_existing(self, plan):
        raise Unavailable("no connection")

    async def submit_each(self, jobs):
        raise Unavailable("no connection")


def test_only_rfc_3339_timestamps_are_accepted():
    for text in (
        "1700000000",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "20260131T120000Z",
        1700000000,
        0.5,
        True,
    ):
        with pytest.raises(ValueError, match="RFC 3339"):
            NewJob.model_validate_json(json.dumps({"task": "t", "run_at": text}))
    for text in ("2026-01-31T12:00:00Z", "2026-01-31t12:00:00.123456789+02:00"):
        assert NewJob.model_validate_json(json.dumps({"task": "t", "run_at": text})).run_at is not None
