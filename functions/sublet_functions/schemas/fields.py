"""Types of the models' fields, with their limits."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from sublet.options import LONGEST, TAGS_MAX

WAIT_MAX = 20
"""Most seconds that one request may wait: gateways cut requests at about 30 s."""

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _is_rfc3339(value: Any) -> Any:
    if not (isinstance(value, str) and _RFC_3339.fullmatch(value)):
        raise ValueError("use an RFC 3339 time with a time zone, e.g. 2026-01-31T12:00:00Z")
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,128}$")]
QueueName = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9_.:-]{1,128})$")]
QueueEntry = Annotated[str, Field(pattern=r"^([A-Za-z0-9_.:-]{1,128}|[A-Za-z0-9_.:-]{0,127}\*)$")]
"""A queue's name, or a pattern such as `tenant-*`."""
OnDead = Annotated[str, Field(pattern=r"^([A-Za-z0-9_.:-]{1,128}/)?[A-Za-z0-9_.:-]{1,128}$")]
"""A task to submit for each dead job: TASK or QUEUE/TASK."""
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
_MADE = r"^(\d+-)?[ei]\.[0-9a-f]{40}$"
"""Ids that the server makes for CloudEvents and Idempotency-Keys: a client may not choose one."""
_OCCURRENCE = r":\d{13,14}$"
"""End of the id of a schedule's job: its occurrence in ms. If a client chose such an id, that occurrence would
never fire."""


def _is_own(value: str) -> str:
    if re.search(_MADE, value):
        raise ValueError(
            "ids that consist of e. or i. and 40 hex digits are reserved for CloudEvents and Idempotency-Keys: choose another"
        )
    if re.search(_OCCURRENCE, value):
        raise ValueError(
            "ids that end in a colon and 13 or 14 digits are reserved for the jobs of schedules: choose another"
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
        description="Idempotency key of the claim, 22 to 64 random characters. Repeating it within 10 s returns the leases of "
        "the first claim that are still held.",
    ),
]
Claimer = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.:-]{1,128}$",
        description="Name of the worker. Default: the token's name, or `http` on a server without tokens.",
    ),
]
Token = Annotated[str, Field(min_length=1, max_length=128, description="The lease's token, from the claim.")]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_is_rfc3339)]
Delay = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, description="Seconds.")]


def _is_limit(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("use a number of seconds, or null for no limit")
    return value


Timeout = Annotated[
    Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)] | None,
    BeforeValidator(_is_limit),
    Field(description="Time limit of one attempt in seconds; null for none."),
]
Stall = Annotated[
    float,
    Field(
        ge=1,
        le=1e9,
        allow_inf_nan=False,
        description="Most seconds without a report of progress or a checkpoint; then the attempt ends as `stalled`.",
    ),
]
Retention = Annotated[
    float,
    Field(
        ge=60,
        le=LONGEST,
        allow_inf_nan=False,
        description="Seconds for which a completed job is kept; a dead or cancelled one at least 14 days.",
    ),
]
Priority = Annotated[int, Field(ge=-100, le=100, description="Jobs with a higher priority run first."), WHOLE]
Tries = Annotated[
    int,
    Field(ge=1, le=1_000_000, description="Tries: failed or lost attempts after which the job is dead."),
    WHOLE,
]
Key = Annotated[str, Field(min_length=1)]
Window = Annotated[
    float,
    Field(
        ge=0.001,
        le=LONGEST,
        allow_inf_nan=False,
        description="Seconds for which the key is held, instead of until the job ends.",
    ),
]
LeaseTime = Annotated[
    float,
    Field(
        ge=0.1,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds without a heartbeat after which the lease expires and the job is given to another worker.",
    ),
]
Wait = Annotated[float, Field(ge=0, le=WAIT_MAX, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=1024)]


def _different(values: list[str]) -> list[str]:
    if len(set(values)) < len(values):
        raise ValueError("a tag occurs twice: give each once")
    return values


Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,64}$")]
Tags = Annotated[
    list[Tag],
    Field(
        max_length=TAGS_MAX,
        description="Labels, shown with the job.",
        json_schema_extra={"uniqueItems": True},
    ),
    AfterValidator(_different),
]
Limit = Annotated[int, Field(ge=1, le=200, description="Page size.")]
Cursor = Annotated[str, Field(max_length=1024, description="Cursor of the previous page.")]
