"""A Redis in this process (fakeredis, running the real scripts) whose clock moves only by `advance`.

It uses internals of fakeredis: `dbs` and `lock` of a server, `_sock` of a connection.
"""

import warnings
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from sublet.errors import Unfit
from sublet.source_tree import install_command

TRIAL = """
redis.call('SET', KEYS[1], 1, 'PX', 1000)
redis.call('ZADD', KEYS[2], 7, 'member')
local time, scored = redis.call('TIME'), redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return {time[1], time[2], scored[2]}
"""
"""The self-test's script, with the features of the real ones."""


class Server:
    """An empty fake Redis with a clock of its own. Raises Unfit without a usable fakeredis."""

    def __init__(self, now: datetime) -> None:
        self._ms = round(now.timestamp() * 1000)
        try:
            import fakeredis
        except ImportError as error:
            raise Unfit(
                f"a sandbox needs fakeredis, which is not installed: {install_command('testing')}"
            ) from error
        self._fakeredis: Any = fakeredis
        self._fake: Any = fakeredis.FakeServer()
        self._take_expiry()
        self._self_test()

    @property
    def now(self) -> datetime:
        """The clock's time, in UTC."""
        return datetime.fromtimestamp(self._ms // 1000, UTC) + timedelta(milliseconds=self._ms % 1000)

    def advance(self, to: datetime) -> None:
        """Set the clock to `to`, unless that is earlier."""
        self._ms = max(self._ms, round(to.timestamp() * 1000))

    def client(self) -> Any:
        """Return a new asyncio client of this server."""
        return self._made(self._fakeredis.FakeAsyncRedis, self._greet)

    def sync_client(self) -> Any:
        """Return a new synchronous client of this server."""
        return self._made(self._fakeredis.FakeRedis, self._greet_sync)

    def _made(self, kind: Any, greet: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            client = kind(server=self._fake, protocol=2)
        client.connection_pool.connection_kwargs.update(redis_connect_func=greet, protocol=2)
        return client

    async def _greet(self, connection: Any) -> None:
        await connection.on_connect()
        self._take_time(connection)

    def _greet_sync(self, connection: Any) -> None:
        connection.on_connect()
        self._take_time(connection)

    def _take_time(self, connection: Any) -> None:
        sock: Any = getattr(connection, "_sock", None)
        if not callable(getattr(sock, "time", None)):
            raise self._unfit("its sockets have no method `time`")
        sock.time = lambda: [b"%d" % (self._ms // 1000), b"%d" % (self._ms % 1000 * 1000)]

    def _take_expiry(self) -> None:
        try:
            kind = type(self._fake.dbs[0])
            lock = self._fake.lock
        except (AttributeError, TypeError, KeyError) as error:
            raise self._unfit("its server has no `dbs`") from error
        own = type(
            kind.__name__, (kind,), {"time": property(lambda _: self._ms / 1000, lambda _, real: None)}
        )
        self._fake.dbs = defaultdict(lambda: own(lock))

    def _self_test(self) -> None:
        seconds, ms = divmod(self._ms, 1000)
        try:
            with self.sync_client() as raw:
                *time, score = raw.execute_command("EVAL", TRIAL, 2, "try", "tried")
                seen = raw.zrange("tried", 0, 0, withscores=True)
                raw.delete("tried")
                kept = raw.get("try")
                self._ms += 60_000
                gone = raw.get("try") is None
        except Unfit:
            raise
        except Exception as error:
            raise self._unfit(f"a script failed: {error}") from error
        finally:
            self._ms = seconds * 1000 + ms
        if score != b"7" or seen != [(b"member", 7.0)]:
            raise self._unfit("its answers differ from those of Redis")
        if [int(word) for word in time] != [seconds, ms * 1000] or not kept or not gone:
            raise self._unfit("its clock cannot be set")

    def _unfit(self, reason: str) -> Unfit:
        version = getattr(self._fakeredis, "__version__", "of this version")
        return Unfit(
            f"fakeredis {version} cannot run a sandbox ({reason}): install another version: {install_command('testing')}"
        )
