"""The API described by itself: an OpenAPI 3.1 document, made of the one table, the handlers' docstrings and the models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from sublet_functions.adapters import cloudevents
from sublet_functions.api.auth import Role
from sublet_functions.api.openapi_examples import EXAMPLES
from sublet_functions.api.response import JSON, KINDS, PREFIX, PROBLEM_JSON
from sublet_functions.schemas.query import Words
from sublet_functions.schemas.responses import ProblemDocument

if TYPE_CHECKING:
    from sublet_functions.api.routes import Route

Schema = dict[str, Any]

VERSION = "1"
"""Of the API, not of the package: another one when callers would have to change."""

ABOUT = """\
Jobs, and all that workers, submitters and operators do with them. It keeps nothing between two requests: any process that \
serves it may answer any of them, and each may safely be sent twice.

Times are RFC 3339 in UTC, durations are seconds. Errors are problem documents (RFC 9457): programs go by their `type`, which \
is stable. A path answers a method that it does not know with 405 and `Allow`; GET has its HEAD, except where it takes a job or \
does the upkeep. Unknown fields are refused."""
ROLES = """\
A token is for one or more of these roles; `admin` is for everything. A server without tokens serves its own machine alone, \
and asks for none.

- `submit`: store jobs, and look at one
- `work`: claim jobs, and all else that a worker needs
- `read`: see everything but the leases' tokens
- `tick`: the upkeep, from a cron
- `admin`: everything, such as cancel, retry, promote, pause, limit, schedule and drain"""

ALWAYS = ("bad-request", "forbidden", "uri-too-long", "invalid", "too-many-headers", "internal", "busy")
"""Problems that any route may have."""
OF_BODIES = ("not-json", "timeout", "too-large", "unsupported-media-type")
OF_TOKENS = ("unauthorized",)
OF_REDIS = ("no-namespace", "wrong-layout", "unavailable", "oom")
"""Problems of routes that ask Redis: all but those that are for everybody."""


class Header(NamedTuple):
    """A header of its own that a request or an answer may have."""

    says: str
    schema: Schema
    always: bool = False
    """Does every answer with these statuses have it?"""
    statuses: tuple[int, ...] = (200, 201, 202, 204)


ASKED = {
    "Idempotency-Key": Header(
        "Characters of your own in double quotes (draft-ietf-httpapi-idempotency-key-header): the same request again, with the "
        "same key, is the same job. Not beside an `id`.",
        {"type": "string", "pattern": r'^("[ !#-\[\]-~]{1,255}"|[!#-~]{1,255})$'},
    ),
    "Last-Event-ID": Header(
        "The event after which to go on, instead of `after`: browsers send it by themselves.",
        {"type": "string", "maxLength": 4096},
    ),
}
"""Headers of requests, for the routes that name them."""
SAID = {
    "Location": Header(
        "Where the job is.", {"type": "string", "format": "uri-reference"}, True, (200, 201, 202)
    ),
    "Idempotent-Replayed": Header(
        "The first answer to this Idempotency-Key, again.", {"const": "true"}, False, (200,)
    ),
    "Link": Header(
        'The next page, as `<…>; rel="next"`; missing on the last one.', {"type": "string"}, False, (200,)
    ),
    "Sublet-Next-In": Header(
        "Seconds after which to claim again, come what may.", {"type": "number", "minimum": 0}, True
    ),
    "Vary": Header("The answer depends on these headers of the request.", {"type": "string"}, True, (200,)),
    "Retry-After": Header(
        "Seconds after which trying again makes sense.",
        {"type": "integer", "minimum": 1},
        True,
        (429, 503, 507),
    ),
    "WWW-Authenticate": Header("Which kind of token is needed.", {"type": "string"}, True, (401,)),
}
"""Headers of answers; the last two, of problems."""
OF_PROBLEMS = ("Retry-After", "WWW-Authenticate")

TAGS = {
    "jobs": "Store jobs, take them, end them, look at them, steer them.",
    "queues": "What waits where, what may wait, and whether it is handed out.",
    "schedules": "What is submitted by the clock, at every occurrence exactly once.",
    "workers": "The register of those who run jobs.",
    "tick": "The upkeep, for where no worker does it.",
    "server": "What this server is, how it is, and what it has seen.",
}


Mode = Literal["validation", "serialization"]


class _Schemas(GenerateJsonSchema):
    """JSON schemas without a title for each field, which would only say its name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No."""
        return False


def document(routes: Sequence[Route[Any, Any]]) -> dict[str, Any]:
    """The table as an OpenAPI 3.1 document."""
    schemas = _Made(routes)
    paths: dict[str, Any] = {}
    responses: dict[str, Any] = {}
    named: set[str] = set()
    for route in routes:
        for path in filter(None, (route.path, route.alias)):
            made = _operation(route, path, schemas, responses)
            if made["operationId"] in named:
                made["operationId"] += f"_by_{route.method.lower()}"
            named.add(made["operationId"])
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
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.all,
            "responses": responses,
            "headers": {name: _header(header) for name, header in SAID.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": ROLES}},
        },
    }


class _Made:
    """The schemas of all models, and where each is."""

    def __init__(self, routes: Sequence[Route[Any, Any]]) -> None:
        wanted: dict[tuple[type[BaseModel], Mode], None] = {
            (Words, "validation"): None,
            (ProblemDocument, "serialization"): None,
        }
        for route in routes:
            wanted[route.body, "validation"] = wanted[route.query, "validation"] = None
            wanted |= {(model, "serialization"): None for model in _models(route)}
        self._places, made = models_json_schema(
            list(wanted), ref_template="#/components/schemas/{model}", schema_generator=_Schemas
        )
        self._all: Schema = made["$defs"]
        queries: list[type[BaseModel]] = [Words, *(route.query for route in routes)]
        known = {self._name(model, "validation") for model in queries}
        self.all = {name: schema for name, schema in sorted(self._all.items()) if name not in known}

    def _name(self, model: type[BaseModel], mode: Mode) -> str:
        return str(self._places[model, mode]["$ref"]).rpartition("/")[2]

    def body(self, model: type[BaseModel]) -> Schema:
        """Where the schema of a body is."""
        return dict(self._places[model, "validation"])

    def answer(self, model: type[BaseModel]) -> Schema:
        """Where the schema of an answer is."""
        return dict(self._places[model, "serialization"])

    def query(self, model: type[BaseModel]) -> Schema:
        """The schema of a query itself: its fields become parameters."""
        return dict(self._all[self._name(model, "validation")])


def _models(route: Route[Any, Any]) -> Iterator[type[BaseModel]]:
    for said in route.answers.values():
        yield from (one for one in _each(said) if not isinstance(one, str))


def _each(said: Any) -> tuple[Any, ...]:
    """What an answer's body may be: one model or media type, several, or none."""
    if said is None:
        return ()
    return said if isinstance(said, tuple) else (said,)


def _operation(
    route: Route[Any, Any], path: str, schemas: _Made, responses: dict[str, Any]
) -> dict[str, Any]:
    says = inspect.getdoc(route.handler) or ""
    summary = re.split(r"(?<=[.:])\s", says, maxsplit=1)[0].rstrip(".:")
    first = path.split("/")[1]
    made: dict[str, Any] = {
        "operationId": route.handler.__name__ if path == route.path else path.rpartition("/")[2],
        "summary": summary,
        "description": says,
        "tags": [first if first in TAGS else "server"],
        "parameters": [*_words(path, schemas), *_fields(schemas.query(route.query)), *_asked(route)],
        "security": [{"bearer": [role]} for role in [*sorted(route.roles - {Role.ADMIN}), Role.ADMIN]]
        if route.roles
        else [],
    }
    content = dict(_content(route, schemas))
    if content:
        required = any(field.is_required() for field in route.body.model_fields.values())
        made["requestBody"] = {"required": required, "content": content}
    made["responses"] = {
        str(status): _answer(route, status, said, schemas) for status, said in sorted(route.answers.items())
    }
    made["responses"] |= _problems(route, schemas, responses)
    return made


def _content(route: Route[Any, Any], schemas: _Made) -> Iterator[tuple[str, Schema]]:
    """What a body may be, by media type."""
    if route.body.model_fields:
        yield JSON, {"schema": schemas.body(route.body), "example": EXAMPLES[route.body]}
    if route.events:
        yield cloudevents.STRUCTURED, {"schema": cloudevents.SCHEMA, "example": cloudevents.EXAMPLE}


def _words(path: str, schemas: _Made) -> Iterator[Schema]:
    """The words of a path as parameters."""
    for field in _fields(schemas.query(Words)):
        if f"{{{field['name']}}}" in path:
            yield field | {"in": "path", "required": True}


def _fields(query: Schema) -> Iterator[Schema]:
    """The fields of a query as parameters. What may be left out is not there, rather than null."""
    for name, field in query.get("properties", {}).items():
        others = {key: value for key, value in field.items() if key not in ("anyOf", "description")}
        kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
        if kinds:
            others = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        says = field.get("description") or others.get("description")
        made = {"name": name, "in": "query", "required": name in query.get("required", ())}
        schema = {key: value for key, value in others.items() if key != "description"}
        yield made | ({"description": says} if says else {}) | {"schema": schema}


def _asked(route: Route[Any, Any]) -> Iterator[Schema]:
    for name in route.headers:
        if name in ASKED:
            header = ASKED[name]
            yield {
                "name": name,
                "in": "header",
                "required": False,
                "description": header.says,
                "schema": header.schema,
            }


def _answer(route: Route[Any, Any], status: int, said: Any, schemas: _Made) -> dict[str, Any]:
    says, content = "Nothing.", dict[str, Any]()
    for one in _each(said):
        if isinstance(one, str):
            says, content[one] = "What it says.", {"schema": {"type": "object" if one == JSON else "string"}}
        elif JSON in content:
            says, first = f"{says} Or: {inspect.getdoc(one)}", content[JSON]["schema"]
            content[JSON] = {"schema": {"anyOf": [first, schemas.answer(one)]}}
        else:
            says, content[JSON] = inspect.getdoc(one) or "", {"schema": schemas.answer(one)}
    headers = _headers(name for name in route.headers if name in SAID and status in SAID[name].statuses)
    return {"description": says, "headers": headers, "content": content}


def _problems(route: Route[Any, Any], schemas: _Made, responses: dict[str, Any]) -> dict[str, Any]:
    """What may go wrong, by status. Those that are alike for many routes are described once, in `responses`."""
    slugs = {*ALWAYS, *route.problems}
    slugs |= {*OF_TOKENS, *OF_REDIS} if route.roles else set()
    slugs |= set(OF_BODIES) if route.body.model_fields or route.events else set()
    by_status: dict[int, list[str]] = {}
    for slug, kind in KINDS.items():
        if slug in slugs:
            by_status.setdefault(kind.status, []).append(slug)
    made = {}
    for status, alike in sorted(by_status.items()):
        name = ".".join(alike)
        responses.setdefault(name, _problem(status, alike, schemas))
        made[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return made


def _problem(status: int, slugs: Sequence[str], schemas: _Made) -> dict[str, Any]:
    headers = _headers(name for name in OF_PROBLEMS if status in SAID[name].statuses)
    kinds = {
        "type": {"enum": [PREFIX + slug for slug in slugs]},
        "status": {"type": "integer", "enum": [status]},
    }
    schema = {"allOf": [schemas.answer(ProblemDocument), {"type": "object", "properties": kinds}]}
    says = "; or: ".join(KINDS[slug].title for slug in slugs) + "."
    return {"description": says, "headers": headers, "content": {PROBLEM_JSON: {"schema": schema}}}


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(header: Header) -> Mapping[str, Any]:
    return {"description": header.says, "required": header.always, "schema": header.schema}
