"""At least once, and still no double effect: the fence of a lease, passed on to whatever must refuse a late writer.

    python3 -m examples.fencing

A worker that was frozen may wake up when its job was long given to another. Sublet refuses its result; but what about the
row that it writes elsewhere? `ctx.fence` grows from attempt to attempt, so the store that is written to can refuse too.
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
    """Write a balance, unless a later attempt has already done so."""
    with sqlite3.connect(database) as connection:
        connection.execute(TABLE)
        return connection.execute(WRITE, {"account": account, "cents": cents, "fence": fence}).rowcount == 1


@app.task
async def set_balance(ctx: Context, database: str, account: str, cents: int) -> int:
    """The effect carries the fence; a ghost's write changes nothing."""
    write(database, account, cents, ctx.fence)
    return ctx.fence


async def main() -> None:
    """Run a job, then play the ghost: the same write with an older fence."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "bank.db")
        handle = await set_balance.submit(database, "ada", 100)
        await work(app, drain=True)
        fence = await handle.result()
        print("the ghost's write was", "accepted" if write(database, "ada", 0, fence - 1) else "refused")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
