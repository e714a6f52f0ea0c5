"""What a field of a body or a query may be: names, ids, moments, durations, each with its limits."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

WAIT_MAX = 20
"""Seconds that one request may wait: gateways cut at about 30."""

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _is_rfc3339(value: Any) -> Any:
    """Let pass what RFC 3339 calls a moment; numbers in quotes, which pydantic takes for seconds, it does not."""
    if not (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        raise ValueError("use a moment as RFC 3339 has it, with a time zone, e.g. 2026-01-31T12:00:00Z")
    return value


def _whole(value: Any) -> Any:
    """A number as JSON has it: 3.0 is 3, and some languages know no other way to write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,128}$")]
QueueName = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_.:-]{1,128})$")]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
_MADE = r"^(\d+-)?[ei]\.[0-9a-f]{40}$"
"""An id that the server makes, of an event or an Idempotency-Key: who could take it would take the place of another's job."""
_OCCURRENCE = r":\d{13,14}$"
"""How the id of a schedule's occurrence ends, its moment in ms: an occurrence whose ids are taken is never fired, nor any after it."""


def _is_own(value: str) -> str:
    if re.search(_MADE, value):
        raise ValueError(
            "an id of this form is made by the server, of an event or an Idempotency-Key: choose another"
        )
    if re.search(_OCCURRENCE, value):
        raise ValueError(
            "an id that ends in a colon and 13 or 14 digits is of a schedule's occurrence: choose another"
        )
    return value


OwnId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,58}$", json_schema_extra={"not": {"pattern": f"{_MADE}|{_OCCURRENCE}"}}
    ),
    AfterValidator(_is_own),
]
ClaimId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:-]{22,64}$",
        description="Random characters of your own: the same again within 10 s gives what a claim took whose answer was lost.",
    ),
]
Claimer = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,128}$",
        description="Who you are: unless said, your token's name; `http` where no token is needed.",
    ),
]
Token = Annotated[
    str, Field(min_length=1, max_length=128, description="The proof of the lease, from the claim.")
]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_rfc3339)]
Delay = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
LeaseTime = Annotated[
    float,
    Field(
        ge=0.1,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds that you may be silent before the job is given on.",
    ),
]
Wait = Annotated[float, Field(ge=0, le=WAIT_MAX, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=1024)]
Limit = Annotated[int, Field(ge=1, le=200, description="How many at most.")]
Cursor = Annotated[str, Field(max_length=1024, description="Where the page before ended.")]
