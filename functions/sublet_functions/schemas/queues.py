"""Bodies of requests for queues and their groups."""

from typing import Annotated, Literal

from pydantic import Field

from sublet_functions.schemas.fields import WHOLE, Group, OnDead
from sublet_functions.schemas.query import Query
from sublet_functions.schemas.requests import RequestModel

Most = Annotated[int, Field(ge=1, lt=10**14), WHOLE] | None
Per = Annotated[float, Field(ge=0.001, lt=10**11, allow_inf_nan=False)] | None


class QueuePatch(RequestModel):
    """Changes to a queue (RFC 7396): fields that are left out stay as they are."""

    paused: bool | None = Field(None, description="true: no job of the queue can be claimed.")
    limits: dict[
        Literal[
            "jobs",
            "bytes",
            "concurrency",
            "rate",
            "per",
            "burst",
            "group_concurrency",
            "group_rate",
            "group_per",
            "group_burst",
            "completed",
            "dead",
            "cancelled",
            "queues",
        ],
        Annotated[float, Field(ge=0, lt=10**14, allow_inf_nan=False)] | None,
    ] = Field(
        {},
        description="Maximum of each kind; null removes a limit. `concurrency`: jobs that run at once; `rate`: tokens in `per` "
        "seconds, of which `burst` may be saved up; the same of each group, with `group_`. `completed`, `dead`, `cancelled` and `queues` are limits of the "
        "namespace, queue `*`.",
    )
    on_dead: OnDead | None = Field(
        None,
        description="TASK, or QUEUE/TASK: a job of this task reports each dead job of the queue; of `*`, of the queues without "
        "an own one. null removes it.",
    )


class GroupSettings(RequestModel):
    """A group's own settings. What is left out or null is removed: the queue's settings for each group apply."""

    concurrency: Most = Field(None, description="Most jobs that run at once.")
    rate: Most = Field(None, description="Tokens that come in `per`; a job takes its `cost` when it starts.")
    per: Per = Field(None, description="Seconds, for `rate`.")
    burst: Most = Field(None, description="Tokens that may be saved up; those of 100 ms if left out.")
    share: Annotated[int, Field(ge=1, le=100), WHOLE] | None = Field(
        None, description="Turns that it gets for each one of another group; 1 if left out."
    )


class GroupsQuery(Query):
    """Query of a queue's groups: how many, or which."""

    limit: Annotated[int, Field(ge=1, le=1000, description="Groups at most.")] = 100
    group: Group | None = Field(
        None, description="Only the group of this name, also if it has no jobs and no settings."
    )
