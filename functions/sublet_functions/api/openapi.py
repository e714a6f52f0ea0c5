"""The OpenAPI 3.1 document, from routes, handlers' docstrings and models."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from sublet_functions.api.openapi_examples import EXAMPLES
from sublet_functions.api.operation_ids import operation_id
from sublet_functions.api.route import Route
from sublet_functions.http import cloudevents
from sublet_functions.http.auth import Role
from sublet_functions.http.problems import PREFIX, PROBLEM_JSON, PROBLEMS
from sublet_functions.http.request import VERSION
from sublet_functions.http.response import JSON
from sublet_functions.schemas.query import PathParams
from sublet_functions.schemas.responses import ProblemDocument

Schema = dict[str, Any]

ABOUT = """\
Submit, run, read and manage jobs. The API keeps no state: any server may answer any request. A repeated request with the same \
id, key, claim id or token has no second effect.

Times are RFC 3339 in UTC, with milliseconds; durations are numbers of seconds. Errors are problem documents (RFC 9457), whose \
`type` is stable and meant for programs. A method that a path does not support is answered with 405 and `Allow`. GET routes support HEAD, except those that claim \
a job or run a tick. Unknown fields of requests are refused; a client must ignore those of responses.

This is version 1. New routes, optional fields, values and problems do not change the version. A request may name its version in the \
header `Sublet-Version: 1`: a server that does not support it answers 400 `unsupported-version`."""
ROLES = """\
A token has one or more of these roles. `sublet serve` without tokens serves only loopback addresses, and needs none.

- `submit`: submit jobs, send signals, read the catalogue of tasks
- `work`: claim jobs, and everything else that a worker needs
- `read`: read everything except the audit, tokens of leases, payloads, results, checkpoints and chunks' values
- `payloads`: with `read`, read payloads, results, checkpoints and chunks' values, too; `submit`, `work` and `admin` include this
- `metrics`: read statistics and queues
- `tick`: run ticks, from a cron
- `admin`: everything, such as cancel, retry, promote, reschedule, pause, limits, schedules and drain

A token may be limited to queues: a job outside them is a 404, a request that names another queue a 403."""

ALWAYS = (
    "bad-request",
    "unsupported-version",
    "forbidden",
    "uri-too-long",
    "invalid",
    "too-many-headers",
    "internal",
    "busy",
)
OF_BODIES = ("not-json", "timeout", "too-large", "unsupported-media-type")
OF_TOKENS = ("unauthorized",)
OF_PROBLEMS = ("ProblemDocument", "SubmittedItem", "BatchItem")
OF_REDIS = ("no-namespace", "wrong-layout", "unavailable", "oom")


class Header(NamedTuple):
    """A header of some requests or responses, in the OpenAPI document."""

    description: str
    schema: Schema
    always: bool = False
    """Whether every response with one of these `statuses` has it."""
    statuses: tuple[int, ...] = (200, 201, 202, 204)


REQUEST_HEADERS = {
    "Idempotency-Key": Header(
        "A string of your own in double quotes (draft-ietf-httpapi-idempotency-key-header): repeating the request with the same "
        "key returns the same job. Not together with an `id`.",
        {"type": "string", "pattern": r'^("[ !#-\[\]-~]{1,255}"|[!#-~]{1,255})$'},
    ),
    "Last-Event-ID": Header(
        "Id of the last event received, instead of `after`: browsers send it by themselves.",
        {"type": "string", "maxLength": 4096},
    ),
    "Sublet-Shared": Header(
        "Seconds: an answer that the server has read for another client so long ago will do. After a comma those for an answer that "
        "is expensive to read. Of a stream of events: seconds after an event for which later ones may be gathered.",
        {"type": "string", "pattern": r"^[0-9]{1,2}(\.[0-9]{1,3})?(, ?[0-9]{1,2}(\.[0-9]{1,3})?)?$"},
    ),
}
RESPONSE_HEADERS = {
    "Location": Header(
        "Path of the job or workflow.", {"type": "string", "format": "uri-reference"}, True, (200, 201, 202)
    ),
    "Idempotent-Replayed": Header(
        "Present if the response repeats the one to an earlier request with this Idempotency-Key.",
        {"const": "true"},
        False,
        (200,),
    ),
    "Link": Header(
        'The next page, as `<…>; rel="next"`; absent on the last one.', {"type": "string"}, False, (200,)
    ),
    "Sublet-Next-In": Header(
        "Seconds after which to claim again at the latest.", {"type": "number", "minimum": 0}, True
    ),
    "Sublet-Dead": Header(
        "Jobs that this claim made dead because their leases had expired, `<id> <attempt> <queue> <task> <code>` each, at most 16, "
        "separated by commas; absent without any.",
        {"type": "string"},
        False,
    ),
    "Age": Header(
        "Seconds since the answer was read, after a request with Sublet-Shared.",
        {"type": "integer", "minimum": 0},
        False,
        (200,),
    ),
    "ETag": Header("Entity tag of the file, for If-None-Match.", {"type": "string"}, True, (200, 304)),
    "Vary": Header("Request headers on which the response depends.", {"type": "string"}, True, (200,)),
    "Retry-After": Header(
        "Seconds after which a retry makes sense.",
        {"type": "integer", "minimum": 1},
        True,
        (429, 503, 507),
    ),
    "WWW-Authenticate": Header("The authentication scheme.", {"type": "string"}, True, (401,)),
}
PROBLEM_HEADERS = ("Retry-After", "WWW-Authenticate")

TAGS = {
    "jobs": "Submit, claim, settle, read and control jobs.",
    "queues": "Counts, limits and pauses of queues.",
    "schedules": "Jobs at recurring times: each occurrence makes at most one job.",
    "tasks": "The tasks that workers run, with JSON Schemas of their arguments.",
    "workers": "Registered workers.",
    "tick": "Maintenance, schedules and summoning, for deployments in which no worker runs all the time.",
    "ui": "The dashboard: a page that reads and orders everything by this API.",
    "server": "Health, statistics and description of the server.",
}


Mode = Literal["validation", "serialization"]


class _Schemas(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: titles repeat the names."""
        return False


def document(routes: Sequence[Route[Any, Any]]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a table of routes."""
    schemas = _ModelSchemas(routes)
    paths: dict[str, Any] = {}
    responses: dict[str, Any] = {}
    for route in routes:
        for path in filter(None, (route.path, route.alias)):
            made = _operation(route, path, schemas, responses)
            paths.setdefault(path, {})[route.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sublet",
            "version": VERSION,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "./"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.all,
            "responses": responses,
            "headers": {name: _header(header) for name, header in RESPONSE_HEADERS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": ROLES}},
        },
    }


class _ModelSchemas:
    def __init__(self, routes: Sequence[Route[Any, Any]]) -> None:
        wanted: dict[tuple[type[BaseModel], Mode], None] = {
            (PathParams, "validation"): None,
            (ProblemDocument, "serialization"): None,
        }
        for route in routes:
            wanted[route.body, "validation"] = wanted[route.query, "validation"] = None
            wanted |= {(model, "serialization"): None for model in _models(route)}
        self._places, made = models_json_schema(
            list(wanted), ref_template="#/components/schemas/{model}", schema_generator=_Schemas
        )
        self._all: Schema = made["$defs"]
        queries: list[type[BaseModel]] = [PathParams, *(route.query for route in routes)]
        known = {self._name(model, "validation") for model in queries}
        self.all = {
            name: _clear(name, schema) for name, schema in sorted(self._all.items()) if name not in known
        }

    def _name(self, model: type[BaseModel], mode: Mode) -> str:
        return str(self._places[model, mode]["$ref"]).rpartition("/")[2]

    def body(self, model: type[BaseModel]) -> Schema:
        return dict(self._places[model, "validation"])

    def response(self, model: type[BaseModel]) -> Schema:
        return dict(self._places[model, "serialization"])

    def query(self, model: type[BaseModel]) -> Schema:
        return dict(self._all[self._name(model, "validation")])


def _clear(name: str, schema: Schema) -> Schema:
    is_request = schema.get("additionalProperties") is False
    fields = {key: _field(field, is_request) for key, field in schema.get("properties", {}).items()}
    if name in OF_PROBLEMS:
        kind = fields["type"].get("anyOf", [fields["type"]])[0]
        kind["enum"] = [PREFIX + slug for slug in PROBLEMS]
    return schema | ({"properties": fields} if fields else {})


def _field(field: Schema, is_request: bool) -> Schema:
    rest = {key: value for key, value in field.items() if key != "default"}
    default, text = field.get("default"), rest.get("description", "")
    if default is None or not is_request or "Default" in text:
        return rest
    return rest | {"description": f"{text} Default: {json.dumps(default)}.".strip()}


def _models(route: Route[Any, Any]) -> Iterator[type[BaseModel]]:
    for body in route.responses.values():
        yield from (one for one in _each(body) if not isinstance(one, str))


def _each(body: Any) -> tuple[Any, ...]:
    if body is None:
        return ()
    return body if isinstance(body, tuple) else (body,)


def _operation(
    route: Route[Any, Any], path: str, schemas: _ModelSchemas, responses: dict[str, Any]
) -> dict[str, Any]:
    text = inspect.getdoc(route.handler) or ""
    summary = re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(".:")
    first = path.split("/")[1]
    made: dict[str, Any] = {
        "operationId": operation_id(route, path),
        "summary": summary,
        "description": text,
        "tags": [first if first in TAGS else "server"],
        "parameters": [
            *_path_params(path, schemas),
            *_fields(schemas.query(route.query)),
            *_request_headers(route),
        ],
        "security": [{"bearer": [role]} for role in [*sorted(route.roles - {Role.ADMIN}), Role.ADMIN]]
        if route.roles
        else [],
    }
    content = dict(_content(route, schemas))
    if content:
        one_at_least = "anyOf" in (route.body.model_config.get("json_schema_extra") or ())
        required = one_at_least or any(field.is_required() for field in route.body.model_fields.values())
        made["requestBody"] = {"required": required, "content": content}
    made["responses"] = {
        str(status): _response(route, status, body, schemas)
        for status, body in sorted(route.responses.items())
    }
    made["responses"] |= _problems(route, schemas, responses)
    return made


def _content(route: Route[Any, Any], schemas: _ModelSchemas) -> Iterator[tuple[str, Schema]]:
    if route.body.model_fields:
        yield JSON, {"schema": schemas.body(route.body), "example": EXAMPLES[route.body]}
    if route.events:
        yield cloudevents.STRUCTURED, {"schema": cloudevents.SCHEMA, "example": cloudevents.EXAMPLE}


def _path_params(path: str, schemas: _ModelSchemas) -> Iterator[Schema]:
    for field in _fields(schemas.query(PathParams)):
        if f"{{{field['name']}}}" in path:
            yield field | {"in": "path", "required": True}


def _fields(query: Schema) -> Iterator[Schema]:
    for name, field in query.get("properties", {}).items():
        others = {key: value for key, value in field.items() if key not in ("anyOf", "description")}
        kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        if kinds:
            others = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        text = field.get("description") or others.get("description")
        made = {"name": name, "in": "query", "required": name in query.get("required", ())}
        schema = {key: value for key, value in others.items() if key != "description"}
        yield made | ({"description": text} if text else {}) | {"schema": schema}


def _request_headers(route: Route[Any, Any]) -> Iterator[Schema]:
    for name in route.headers:
        if name in REQUEST_HEADERS:
            header = REQUEST_HEADERS[name]
            yield {
                "name": name,
                "in": "header",
                "required": False,
                "description": header.description,
                "schema": header.schema,
            }


def _response(route: Route[Any, Any], status: int, body: Any, schemas: _ModelSchemas) -> dict[str, Any]:
    text = "No body."
    content: dict[str, Any] = {}
    for one in _each(body):
        if isinstance(one, str):
            text = "The document."
            content[one] = {"schema": {"type": "object" if one == JSON else "string"}}
        elif JSON in content:
            text = f"{text} Or: {inspect.getdoc(one)}"
            content[JSON] = {"schema": {"anyOf": [content[JSON]["schema"], schemas.response(one)]}}
        else:
            text = inspect.getdoc(one) or ""
            content[JSON] = {"schema": schemas.response(one)}
    headers = _headers(
        name
        for name in route.headers
        if name in RESPONSE_HEADERS and status in RESPONSE_HEADERS[name].statuses
    )
    return {"description": text, "headers": headers, "content": content}


def _problems(route: Route[Any, Any], schemas: _ModelSchemas, responses: dict[str, Any]) -> dict[str, Any]:
    slugs = {*ALWAYS, *route.problems}
    slugs |= {*OF_TOKENS, *OF_REDIS} if route.roles else set()
    slugs |= {"precondition-failed"} if route.method != "GET" else set()
    slugs |= set(OF_BODIES) if route.body.model_fields or route.events else set()
    by_status: dict[int, list[str]] = {}
    for slug, kind in PROBLEMS.items():
        if slug in slugs:
            by_status.setdefault(kind.status, []).append(slug)
    made = {}
    for status, alike in sorted(by_status.items()):
        name = ".".join(alike)
        responses.setdefault(name, _problem(status, alike, schemas))
        made[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return made


def _problem(status: int, slugs: Sequence[str], schemas: _ModelSchemas) -> dict[str, Any]:
    headers = _headers(name for name in PROBLEM_HEADERS if status in RESPONSE_HEADERS[name].statuses)
    kinds = {
        "type": {"enum": [PREFIX + slug for slug in slugs]},
        "status": {"type": "integer", "enum": [status]},
    }
    schema = {"allOf": [schemas.response(ProblemDocument), {"type": "object", "properties": kinds}]}
    text = "; or: ".join(PROBLEMS[slug].title for slug in slugs) + "."
    return {"description": text, "headers": headers, "content": {PROBLEM_JSON: {"schema": schema}}}


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(header: Header) -> Mapping[str, Any]:
    return {"description": header.description, "required": header.always, "schema": header.schema}
