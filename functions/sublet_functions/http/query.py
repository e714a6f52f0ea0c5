"""Parse queries; check path parameters."""

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError

from sublet_functions.http.problems import Problem, invalid_value, validation_problem
from sublet_functions.schemas.query import PathParams

FIELDS_MAX = 64

M = TypeVar("M", bound=BaseModel)


def parse_query(query: str, model: type[M]) -> M:
    """Return a query as `model`. Raises Problem for a field that is unknown (unless `model` ignores it),
    invalid, or repeated and no list, and for over 64 fields."""
    found: dict[str, Any] = {}
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
        found = {name: _value(model, name, values) for name, values in given.items()}
        return model.model_validate(found)
    except ValidationError as error:
        raise validation_problem(error, "query", value=found) from None
    except ValueError:
        raise Problem(
            "invalid", f"the query cannot be parsed: use at most {FIELDS_MAX} fields, percent-encoded UTF-8"
        ) from None


def _value(model: type[BaseModel], name: str, values: list[str]) -> Any:
    field = next((one for known, one in model.model_fields.items() if name == (one.alias or known)), None)
    is_list = field is not None and getattr(field.annotation, "__origin__", None) is list
    if field is not None and len(values) > 1 and not is_list:
        raise Problem(
            "invalid",
            f"query.{name}: given twice: give it once",
            errors=[invalid_value("give it once", "query", name)],
        )
    return values if is_list else values[0]


def check_path(params: Mapping[str, str]) -> None:
    """Raise Problem if a name or id in a path is invalid."""
    try:
        PathParams.model_validate(params)
    except ValidationError as error:
        raise validation_problem(error, "path", value=params) from None
