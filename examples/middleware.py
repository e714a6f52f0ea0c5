"""Middleware around each attempt: a timer, and a database session that commits or rolls back.

python3 -m examples.middleware
"""

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar

from sublet import App, Context, Discard, JobFailed
from sublet_functions.work import work

app = App()
DATABASE = "file:bank?mode=memory&cache=shared"
session: ContextVar[sqlite3.Connection] = ContextVar("session")
attempts: Counter[str] = Counter()
seconds: dict[str, float] = defaultdict(float)


@app.middleware
@contextmanager
def measured(ctx: Context) -> Iterator[None]:
    """Count an attempt by its outcome, and add up its time. Declared first, so it is the outermost middleware."""
    began, outcome = time.perf_counter(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        attempts[f"{ctx.task} {outcome}"] += 1
        seconds[ctx.task] += time.perf_counter() - began


@app.middleware
@contextmanager
def in_a_session(ctx: Context) -> Iterator[None]:
    """Open a database session for an attempt; commit when the task returns, roll back when it raises."""
    with closing(sqlite3.connect(DATABASE, uri=True)) as connection, connection:
        token = session.set(connection)
        try:
            yield
        finally:
            session.reset(token)


@app.task
async def transfer(source: str, target: str, cents: int) -> int:
    """Move money, and return the source's balance. The balance is checked after the update: an exception rolls
    an overdraft back.
    """
    rows = session.get()
    rows.execute("UPDATE account SET cents = cents + ? WHERE name = ?", (cents, target))
    rows.execute("UPDATE account SET cents = cents - ? WHERE name = ?", (cents, source))
    (left,) = rows.execute("SELECT cents FROM account WHERE name = ?", (source,)).fetchone()
    if left < 0:
        raise Discard(f"{source} is {-left} cents short")
    return int(left)


async def main() -> None:
    """Run two transfers, of which the second would overdraw the account."""
    with closing(sqlite3.connect(DATABASE, uri=True)) as bank:
        with bank:
            bank.execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER)")
            bank.executemany("INSERT INTO account VALUES (?, ?)", [("ann", 100), ("bob", 0)])
        handles = [await transfer.submit("ann", "bob", 30), await transfer.submit("bob", "ann", 500)]
        await work(app, queues=["default"], slots=1, drain=True)
        for handle in handles:
            try:
                print("left:", await handle.result())
            except JobFailed as error:
                print("undone:", error.message)
        print("accounts:", dict(bank.execute("SELECT name, cents FROM account ORDER BY name")))
    print("attempts:", dict(attempts), "- all of them timed:", seconds["transfer"] > 0)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
