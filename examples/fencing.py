"""Fencing: at-least-once execution without double effects.

    python3 -m examples.fencing

A frozen worker may resume after its job was given to another one. Sublet refuses the late result, but
cannot refuse the worker's writes to other stores. `ctx.fence` grows with each attempt, so that such a store
can refuse a late write.
"""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from sublet import App, Context
from sublet_functions.work import work

app = App()
TABLE = "CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents INTEGER, fence INTEGER)"
WRITE = """
    INSERT INTO balance VALUES (:account, :cents, :fence)
    ON CONFLICT (account) DO UPDATE SET cents = :cents, fence = :fence WHERE fence < :fence
"""


def write(database: str, account: str, cents: int, fence: int) -> bool:
    """Write an account's balance, unless a later attempt has written it. Returns whether it was written."""
    with sqlite3.connect(database) as connection:
        connection.execute(TABLE)
        return connection.execute(WRITE, {"account": account, "cents": cents, "fence": fence}).rowcount == 1


@app.task
async def set_balance(ctx: Context, database: str, account: str, cents: int) -> int:
    """Write the balance with the fence of this attempt, and return the fence."""
    write(database, account, cents, ctx.fence)
    return ctx.fence


async def main() -> None:
    """Run a job, then repeat its write with an older fence, as a late worker would."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "bank.db")
        handle = await set_balance.submit(database, "ada", 100)
        await work(app, drain=True)
        fence = await handle.result()
        print("the late write was", "accepted" if write(database, "ada", 0, fence - 1) else "refused")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
