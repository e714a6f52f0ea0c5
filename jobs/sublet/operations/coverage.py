"""Find waiting jobs that no worker runs: none serves their queue, or has their task."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sublet.operations import pools, statistics
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import json_of, shown, together
from sublet.protocol.scripts import Call

WORKERS = 1000
CHUNK = 250
SAMPLE = 100
"""Of so many scheduled jobs per partition the last error is read."""


class Gaps(NamedTuple):
    """Queues, tasks and `on_dead` settings without a worker."""

    queues: dict[str, int]
    """Queue that no worker and no pool serves → its queued jobs. Without paused queues, and those with a running
    job.
    """
    tasks: dict[str, int]
    """Task → how many scheduled jobs were last released as `unknown_task`, of the first 100 per partition."""
    hooks: Mapping[str, str] = MappingProxyType({})
    """Value of `on_dead` → `queue` if its queue is not served, `task` if its task is not in the catalogue."""


def gaps(bases: Sequence[str]) -> Plan[Gaps]:
    """Return the gaps; queues and hooks only of the 1,000 queues with the most unfinished jobs."""
    waiting: dict[str, int] = {}
    tasks: Counter[str] = Counter()
    surveys: dict[str, statistics.Survey] = {}
    hooks: set[tuple[str, str]] = set()
    for base in bases:
        surveys[base] = yield statistics.survey(base)
        tasks += yield from _unknown_tasks(base)
    for base, names in statistics.busiest(surveys).items():
        busy = [name for name in names if name in surveys[base].busy]
        for i in range(0, len(names) + 1, CHUNK):
            hooks |= yield _hooks(base, ["*", *names][i : i + CHUNK])
        for i in range(0, len(busy), CHUNK):
            waiting |= yield _waiting(base, busy[i : i + CHUNK])
    missing = (yield from _unserved_hooks(bases, hooks)) if hooks else {}
    return Gaps((yield from unserved(bases, waiting)), dict(tasks.most_common()), missing)


def unserved(bases: Sequence[str], waiting: Mapping[str, int]) -> Plan[dict[str, int]]:
    """Return the part of `waiting` (queue → queued jobs) that no worker and no pool serves, the most jobs
    first. Workers that drain or are silent for a minute, and pools with the invoker `none`, do not count.

    Empty if a worker has not named all its queues: it may serve any.
    """
    if not waiting:
        return {}
    names: list[str] = yield _live(bases[0])
    served = [
        name for pool in (yield from pools.known(bases)) if pool.invoker != "none" for name in pool.queues
    ]
    for queues in (yield _queues_of(bases[0], names)) if names else ():
        if queues is None:
            return {}
        served += queues
    known, beginnings = set(served), tuple(name[:-1] for name in served if name.endswith("*"))
    found = {
        queue: count
        for queue, count in waiting.items()
        if queue not in known and not queue.startswith(beginnings)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def waits_unclaimed(queues: Iterable[statistics.QueueNumbers]) -> dict[str, int]:
    """Return the number of queued jobs by queue, without paused queues and those with a running job."""
    return {each.name: each.queued for each in queues if each.queued and not each.running and not each.paused}


def _waiting(base: str, names: Sequence[str]) -> Call[dict[str, int]]:

    def read(reply: Sequence[Any]) -> dict[str, int]:
        settings, running, *queued = reply
        rows = zip(names, settings, running, map(int, queued[::2]), map(int, queued[1::2]), strict=True)
        return {
            name: plain + grouped
            for name, text, held, plain, grouped in rows
            if plain + grouped and int(held or 0) <= 0 and b" paused=" not in (text or b"")
        }

    commands: list[tuple[Any, ...]] = [("HMGET", keys.queues(base), *names)]
    commands.append(("HMGET", keys.backlog(base), *(f"{name} running" for name in names)))
    return together([*commands, *(("ZCARD", key) for name in names for key in keys.queued(base, name))], read)


def _hooks(base: str, names: Sequence[str]) -> Call[set[tuple[str, str]]]:
    def read(reply: Sequence[Any]) -> set[tuple[str, str]]:
        found = set()
        for name, text in zip(names, reply, strict=True):
            setting = re.search(rb" on_dead=([^ ]+)", text or b"")
            if setting:
                queue, slash, _ = shown(setting[1]).rpartition("/")
                found.add((shown(setting[1]), queue if slash else name.removeprefix("*")))
        return found

    return Call((("HMGET", keys.queues(base), *names),), read)


def _unserved_hooks(bases: Sequence[str], hooks: set[tuple[str, str]]) -> Plan[dict[str, str]]:
    published = yield Call((("HKEYS", keys.tasks(bases[0])),), lambda reply: {shown(name) for name in reply})
    alone = yield from unserved(bases, {queue: 1 for _, queue in hooks if queue})
    found = {}
    for setting, queue in sorted(hooks):
        if queue in alone:
            found[setting] = "queue"
        elif published and setting.rpartition("/")[2] not in published:
            found[setting] = "task"
    return found


def _live(base: str) -> Call[list[str]]:

    def read(reply: Sequence[Any]) -> list[str]:
        (seconds, micros), found = reply
        since = int(seconds) * 1000 + int(micros) // 1000 - statistics.SEEN
        pairs = (
            found
            if found and isinstance(found[0], list | tuple)
            else zip(found[::2], found[1::2], strict=True)
        )
        return [shown(name) for name, at in pairs if float(at) >= since]

    return together([("TIME",), ("ZRANGE", keys.workers(base), 0, WORKERS - 1, "REV", "WITHSCORES")], read)


def _queues_of(base: str, workers: Sequence[str]) -> Call[list[list[str] | None]]:

    def read(reply: Sequence[Any]) -> list[list[str] | None]:
        return [_listed(about) for life, about, drains in reply if life and drains is None]

    return together([("HMGET", keys.worker(base, name), "life", "about", "drain") for name in workers], read)


def _listed(about: bytes | None) -> list[str] | None:
    said = json_of(about)
    queues = said.get("queues") if isinstance(said, dict) and "queue_count" not in said else None
    return [name for name in queues if isinstance(name, str)] if isinstance(queues, list) else None


def _unknown_tasks(base: str) -> Plan[Counter[str]]:
    waiting = yield together(
        [("ZRANGE", keys.structure(base, "scheduled"), 0, SAMPLE - 1)], lambda reply: reply[0]
    )
    return (yield _tasks(base, [shown(job_id) for job_id in waiting])) if waiting else Counter()


def _tasks(base: str, ids: Sequence[str]) -> Call[Counter[str]]:

    def read(reply: Sequence[Any]) -> Counter[str]:
        headers = (
            spec.partition(b"\n")[0]
            for spec, error in reply
            if spec and (error or b"").startswith(b"unknown_task ")
        )
        return Counter(shown(header).split(" ")[1] for header in headers if b" " in header)

    return together([("HMGET", keys.job(base, job_id), "spec", "error") for job_id in ids], read)
