"""Wait until clients of a server block on wake-ups, or for any other condition."""

import asyncio
import time


def blocked(raw):
    """How many clients wait for wake-ups."""
    return sum(one["cmd"] == "blpop" and "b" in one["flags"] for one in raw.client_list())


async def until(condition, seconds=20.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.005)
