"""Types of the models' fields, with their limits."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from sublet.errors import Invalid
from sublet.options import LONGEST, TAG_MAX, TAGS_MAX
from sublet.protocol.keys import ID_MAX, entry_rule, name_rule
from sublet.schedules.definition import NAME_MAX as SCHEDULE_MAX
from sublet.schedules.durations import read_moment
from sublet_functions.schemas.names import CHARACTER, DOTS, Checked, pattern_of

WAIT_MAX = 20
"""Most seconds that one request may wait; gateways cut requests at about 30 s."""


def _read_moment(value: Any) -> Any:
    try:
        return read_moment(value)
    except Invalid as error:
        raise ValueError(str(error)) from None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
_NAME = pattern_of()
Name = Annotated[str, Checked(_NAME, name_rule(), f"{CHARACTER}{{1,128}}")]
ScheduleName = Annotated[
    str, Checked(pattern_of(SCHEDULE_MAX), name_rule(SCHEDULE_MAX), f"{CHARACTER}{{1,{SCHEDULE_MAX}}}")
]
Place = Annotated[str, Checked(f"({_NAME})?", f"{name_rule()}, or nothing", f"{CHARACTER}{{0,128}}")]
QueueName = Annotated[str, Checked(rf"\*|{_NAME}", f"{name_rule()}, or *", rf"(\*|{CHARACTER}{{1,128}})")]
QueueEntry = Annotated[
    str,
    Checked(
        rf"{_NAME}|{CHARACTER}{{0,127}}\*",
        entry_rule(),
        rf"({CHARACTER}{{1,128}}|{CHARACTER}{{0,127}}\*)",
    ),
]
"""A queue's name, or a pattern such as `tenant-*`."""
OnDead = Annotated[
    str,
    Checked(
        f"(({_NAME})/)?({_NAME})",
        f"use TASK or QUEUE/TASK, for each name {name_rule()}",
        f"({CHARACTER}{{1,128}}/)?{CHARACTER}{{1,128}}",
    ),
]
"""A task to submit for each dead job: TASK or QUEUE/TASK."""
Id = Annotated[str, Checked(pattern_of(ID_MAX), name_rule(ID_MAX), f"{CHARACTER}{{1,{ID_MAX}}}")]
_MADE = r"^(\d+-)?[ei]\.[0-9a-f]{40}$"
"""Ids that the server makes for CloudEvents and Idempotency-Keys."""
_OCCURRENCE = r":\d{13,14}$"
"""End of the id of a schedule's job. If a client chose such an id, that occurrence would never fire."""


_OWN_MAX = ID_MAX - len("99999-")


def _is_own(value: str) -> str:
    if re.search(_MADE, value):
        raise ValueError(
            "ids of e. or i. and 40 hex digits, also behind a number and -, are reserved for CloudEvents and Idempotency-Keys: choose another"
        )
    if re.search(_OCCURRENCE, value):
        raise ValueError(
            "ids that end in a colon and 13 or 14 digits are reserved for the jobs of schedules: choose another"
        )
    return value


OwnId = Annotated[
    str,
    Checked(
        pattern_of(_OWN_MAX),
        name_rule(_OWN_MAX),
        f"{CHARACTER}{{1,{_OWN_MAX}}}",
        excluded=f"{_MADE}|{_OCCURRENCE}|{DOTS}",
    ),
    AfterValidator(_is_own),
]
ClaimId = Annotated[
    str,
    Checked(f"{CHARACTER}{{22,64}}", "use 22 to 64 of A-Z a-z 0-9 _ . : -, at random"),
    Field(
        description="Idempotency key of the claim, 22 to 64 random characters. Repeating it within 10 s returns the leases of "
        "the first claim that are still held.",
    ),
]
Claimer = Annotated[
    Name,
    Field(
        description="Name of the worker. Default: the token's name, or `http` on a server without tokens.",
    ),
]
Token = Annotated[str, Field(min_length=1, max_length=128, description="The lease's token, from the claim.")]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_read_moment)]
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
Group = Annotated[str, Field(pattern=r"^[!-~]{1,128}$")]
Cost = Annotated[int, Field(ge=1, lt=10**14), WHOLE]
Window = Annotated[
    float,
    Field(
        ge=0.001,
        le=LONGEST,
        allow_inf_nan=False,
        description="Seconds for which the key is held, instead of until the job ends.",
    ),
]
Debounce = Annotated[
    float,
    Field(
        ge=0.001,
        le=LONGEST,
        allow_inf_nan=False,
        description="Seconds from a submit of the key to the job's first attempt; each further submit begins them anew, with its "
        "arguments.",
    ),
]
AtMost = Annotated[
    float,
    Field(
        ge=0.001,
        le=LONGEST,
        allow_inf_nan=False,
        description="Most seconds of a `debounce`, from the first submit on; not less than `debounce`.",
    ),
]
OnConflict = Annotated[
    Literal["replace", "cancel_running"],
    Field(
        description="If jobs of the key are unfinished, the waiting one gets the arguments; beside a running one, a new job "
        "waits for its end. `cancel_running` also cancels the running one."
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


Tag = Annotated[str, Checked(pattern_of(TAG_MAX), name_rule(TAG_MAX), f"{CHARACTER}{{1,{TAG_MAX}}}")]
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
