"""The smallest program: one task, one job, one worker.

python3 -m jobs work examples.greet:app     in one terminal (or many, on many machines)
.venv/bin/python -m examples.greet Ada      in another
"""

import asyncio
import sys

from sublet import App

app = App()


@app.task
async def greet(name: str, greeting: str = "Hello") -> str:
    """The task. Arguments and result are validated against its annotations, by the client and by the worker."""
    return f"{greeting}, {name}!"


async def main(name: str, seconds: float = 30) -> None:
    """Submit one job, wait for its result, and print it."""
    handle = await greet.submit(name)
    print(f"submitted {handle.id}")
    try:
        print(await handle.result(timeout=seconds))
    except TimeoutError:  # the job stays queued for a worker
        sys.exit(
            f"no result after {seconds:g} s: does a worker run? In another terminal: python3 -m jobs work examples.greet:app"
        )
    finally:
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "world"))
