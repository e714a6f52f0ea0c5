"""The smallest program: one task, one job, one worker.

sublet work examples.greet:app         in one terminal (or many, on many machines)
python3 -m examples.greet Ada          in another
"""

import asyncio
import sys

from jobs import App

app = App()


@app.task
async def greet(name: str, greeting: str = "Hello") -> str:
    """Arguments and result are checked against these annotations, here and in the worker."""
    return f"{greeting}, {name}!"


async def main(name: str) -> None:
    """Submit a job and wait for what a worker makes of it."""
    handle = await greet.submit(name)
    print(f"submitted {handle.id}")
    print(await handle.result(timeout=30))
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "world"))
