"""The description of the API: valid OpenAPI 3.1, complete, and no stricter or looser than what it describes."""

import json

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.operations.operations import Operations
from sublet_functions.api.dispatch import Api
from sublet_functions.api.openapi import REQUEST_HEADERS, RESPONSE_HEADERS, document
from sublet_functions.api.openapi_examples import EXAMPLES
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.auth import Tokens
from sublet_functions.http.problems import PREFIX, PROBLEMS, Problem
from sublet_functions.http.request import Request
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import NewJob
from tests.support.http_server import ADMIN

DOCUMENT = document(ROUTES)
OPERATIONS = {
    (path, method): said for path, methods in DOCUMENT["paths"].items() for method, said in methods.items()
}


def resolved(node):
    """What a reference in the document leads to."""
    while "$ref" in node:
        _, *place = node["$ref"].split("/")
        node = DOCUMENT
        for name in place:
            node = node[name]
    return node


def is_valid(model, value):
    """Does a value fit what the document says of a body?"""
    schema = {"$ref": f"#/components/schemas/{model.__name__}", "components": DOCUMENT["components"]}
    return Draft202012Validator(schema).is_valid(value)


def test_it_is_openapi_3_1():
    assert DOCUMENT["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


async def test_it_is_there_for_everybody():
    api = Api(None, Tokens(ADMIN))
    reply = await api.answer(Request("GET", "/openapi.json"))
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(reply.body) == json.loads(json.dumps(DOCUMENT))


def test_each_route_is_in_it_and_nothing_else():
    known = {(path, route.method.lower()) for route in ROUTES for path in (route.path, route.alias) if path}
    assert set(OPERATIONS) == known
    names = [said["operationId"] for said in OPERATIONS.values()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("place", OPERATIONS, ids=" ".join)
def test_each_operation_says_what_it_is_for(place):
    said = OPERATIONS[place]
    assert said["summary"]
    assert said["description"].startswith(said["summary"])
    assert {tag for tag in said["tags"]} <= {tag["name"] for tag in DOCUMENT["tags"]}
    assert all(parameter.get("description") for parameter in said["parameters"])
    for answer in said["responses"].values():
        assert resolved(answer)["description"]


@pytest.mark.parametrize("place", OPERATIONS, ids=" ".join)
def test_each_operation_documents_its_roles_and_problems(place):
    said = OPERATIONS[place]
    (route,) = [r for r in ROUTES if place[0] in (r.path, r.alias) and place[1] == r.method.lower()]
    assert {role for one in said["security"] for role in one["bearer"]} == (
        {*route.roles, "admin"} if route.roles else set()
    )
    told = {}
    for status, answer in said["responses"].items():
        for kind, body in resolved(answer).get("content", {}).items():
            if kind == "application/problem+json":
                told |= dict.fromkeys(body["schema"]["allOf"][1]["properties"]["type"]["enum"], int(status))
    assert {PREFIX + slug for slug in route.problems} <= set(told)
    assert all(PROBLEMS[kind.removeprefix(PREFIX)].status == status for kind, status in told.items())
    assert ("401" in said["responses"]) == bool(route.roles)
    assert (
        ("415" in said["responses"]) == (route.body is not Empty or route.events) == ("requestBody" in said)
    )


def test_all_headers_of_routes_are_described():
    assert {name for route in ROUTES for name in route.headers} <= {*REQUEST_HEADERS, *RESPONSE_HEADERS}


@pytest.mark.parametrize("slug", PROBLEMS)
def test_a_problem_has_the_headers_that_the_document_promises(slug):
    reply = Problem(slug, "why").response()
    assert ("Retry-After" in reply.headers) == (reply.status in RESPONSE_HEADERS["Retry-After"].statuses)


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_the_examples_are_what_they_are_examples_of(model):
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
        ({"priority": 3.0}, True),
        ({"priority": 3.5}, False),
        ({"priority": "3"}, False),
        ({"priority": True}, False),
        ({"timeout": "none"}, True),
        ({"timeout": "never"}, False),
        ({"backoff": {"first": 1, "factor": 0.5}}, False),
        ({"id": "a" * 58}, True),
        ({"id": "a\r\nb"}, False),
        ({"payload": []}, False),
        ({"nonsense": 1}, False),
    ],
    ids=str,
)
async def test_a_job_that_the_document_refuses_is_refused_and_no_other(options, good):
    job = {"task": "t", **options}
    assert is_valid(NewJob, job) == good
    api = Api(Refusing(), Tokens())
    headers = {"host": "localhost", "content-type": "application/json"}
    reply = await api.answer(Request("POST", "/jobs", "", headers, json.dumps(job).encode()))
    assert reply.status == (503 if good else 422)


class Refusing:
    """A store that would take the job, if only it could."""

    def __init__(self):
        self.operations = Operations(Settings(redis_url="redis://nowhere"))

    async def submit_each(self, jobs):
        raise Unavailable("nobody there")


def test_moments_are_those_of_rfc_3339_alone():
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
