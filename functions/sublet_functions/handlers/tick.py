"""`/tick`: run a tick."""

import asyncio
import contextlib
import time
from dataclasses import asdict

from sublet.store.orphans import sweep
from sublet_functions.handlers.call import Call
from sublet_functions.http.cloudevents import ACCEPTED, Event
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, TickQuery
from sublet_functions.tick import TickSummary, one_round, pause_until_next_round


async def tick(call: Call[Empty | Event, TickQuery]) -> Response:
    """Do maintenance, fire due schedules and summon workers, again each `every` seconds until `for` seconds
    are over; then delete large payloads without jobs. Ticks may run concurrently.

    Any CloudEvent is a tick, answered with 202.
    """
    asked, store, summary, start = call.query, call.store, TickSummary(), time.monotonic()
    by = f"http:{call.principal.name}".rstrip(":")
    while True:
        done = await store.follow_existing(one_round(store.operations, by, summary))
        if done.pools and store.summoner:
            summary.add_summoned(await store.summoner.summon())
        if done.error:
            raise done.error
        pause = pause_until_next_round(start, asked.every, asked.seconds)
        if pause is None or store.hurried.is_set():
            if store.settings.storage:
                await sweep(store, store.settings.storage)
            return Response(ACCEPTED) if isinstance(call.body, Event) else json_response(asdict(summary))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await store.hurried.wait()
