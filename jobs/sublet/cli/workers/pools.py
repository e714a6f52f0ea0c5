"""`pools`: manage pools of summoned workers; `scale`: how a pool's size is computed."""

from argparse import Namespace
from datetime import datetime
from typing import Any

from sublet.cli.output import Cell, document, duration, is_narrow, note, put, table, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, read, server_time, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Changed, Invalid, NotFound, did_you_mean
from sublet.operations import pools
from sublet.operations.pool import Pool, Sum
from sublet.protocol import keys
from sublet.scaling.pool_check import check_pool

HEADS = ("POOL", "QUEUES", "INVOKER", "TARGET", "READY", "HERE", "WANTED", "SUMMONED", "LAST FAILURE")
SPARE = ("TARGET", "INVOKER", "SUMMONED")
OPTIONS = ("queues", "invoker", "target", "min", "max", "wait", "slots", "linger", "arrive")
QUEUES = 24
ATTEMPTS = 5
TARGETS = {"http": "the URL of a function that answers POST /work", "lambda": "a function's name, or its ARN"}


def list_pools(args: Namespace) -> int:
    """Print all pools, the first 100 with figures."""
    with client_of(settings_of(args)) as client:
        found, now = read(client, pools.look_at_all(client.store.operations.bases), args), server_time(client)
    if args.json:
        document([_as_json(pool) for pool in found])
    elif found:
        table(HEADS, [_row(pool, now) for pool in found], SPARE)
    else:
        write(
            f"no pools: workers are not summoned here; {program()} pools set NAME --queues A,B --invoker http --target URL"
        )
    return 0


def _as_json(pool: Pool) -> dict[str, Any]:
    return pool.shown.model_dump(mode="json")


def _row(pool: Pool, now: datetime) -> list[Cell | str]:
    queues = ",".join(pool.queues)
    short = queues if len(queues) <= QUEUES or not is_narrow(120) else f"{queues[: QUEUES - 1]}…"
    numbers = [
        f"{getattr(pool.sum, name):,}" if pool.sum else "" for name in ("ready", "crew", "wanted", "summoned")
    ]
    return [pool.name, short, pool.invoker, pool.shown.target, *numbers, _failure(pool, now)]


def show(args: Namespace) -> int:
    """Print a pool: settings, computed size, last failure. Raises NotFound."""
    with client_of(settings_of(args)) as client:
        (pool,), now = _read_pools(client, args.name), server_time(client)
    if args.json:
        document(_as_json(pool))
        return 0
    write(f"{pool.name}: {_settings(pool)}")
    if pool.sum:
        put(*_computation(pool, pool.sum)[1:])
    write(
        f"  summoned in all: {pool.summoned:,}; registered: {pool.arrived:,}; not registered in time: {pool.lost:,}; not invoked: {pool.failures:,}"
    )
    if pool.failed_at:
        write(f"  last failure: {_failure(pool, now).text}")
    return 0


def _read_pools(client: SyncClient, name: str = "") -> list[Pool]:
    try:
        return read(client, pools.look_at_all(client.store.operations.bases, name))
    except NotFound as error:
        known = [pool.name for pool in read(client, pools.known(client.store.operations.bases))]
        raise NotFound(f"{error}{_hint(name, known)}") from None


def _hint(name: str, known: list[str]) -> str:
    return did_you_mean(name, known) or (f"; {program()} pools lists them" if known else ": there are none")


def _failure(pool: Pool, now: datetime) -> Cell:
    if pool.failed_at is None:
        return Cell("")
    ago = duration((now - pool.failed_at).total_seconds())
    return Cell(f"{ago} ago ({pool.failures:,} in all): {pool.failure}", "yellow")


def set_pool(args: Namespace) -> int:
    """Create a pool, or change the given options of one. Tries up to 5 times if it changes meanwhile."""
    given = {name: getattr(args, name) for name in OPTIONS if hasattr(args, name)}
    if "queues" in given:
        given["queues"] = tuple(given["queues"])
    with client_of(settings_of(args)) as client:
        answer, pool = _change(client, args.name, given)
    if args.json:
        document({"pool": args.name, "answer": answer})
    else:
        write(f"{args.name}: {answer}: {_settings(pool)}")
    if given.get("invoker") == "http":
        note(
            "SUBLET_SIGNING_SECRETS must be set where jobs are submitted, where `tick` runs, and in the function"
        )
    return 0


def _change(client: SyncClient, name: str, given: dict[str, Any]) -> tuple[str, Pool]:
    for attempts_left in reversed(range(ATTEMPTS)):
        before = _find(client, name)
        if before is None and "queues" not in given:
            raise Invalid(
                f"--queues is missing: pool {name[:130]} is new, or its settings cannot be read: name its queues"
            )
        try:
            # without a revision: it also replaces settings that cannot be read
            is_broken = before is None and name in read(client, pools.names(client.store.operations.bases))
            return _put(client, before or Pool(name=name, queues=()), given, is_broken)
        except Changed:
            if not attempts_left:
                raise
    raise AssertionError


def _put(client: SyncClient, before: Pool, changes: dict[str, Any], is_broken: bool) -> tuple[str, Pool]:
    if changes.get("invoker", before.invoker) != before.invoker:
        changes = {"target": "", **changes}
    wish = before.model_copy(update=changes)
    if wish.invoker in TARGETS and not wish.target:
        raise Invalid(f"--target is missing: give {TARGETS[wish.invoker]}")
    if (wish.settings, wish.target) == (before.settings, before.target) and before.revision:
        return "unchanged", wish
    check_pool(wish)
    revision = None if is_broken else before.revision
    return client.store.follow(pools.put(client.store.operations.bases, wish, revision)), wish


def _settings(pool: Pool) -> str:
    target = f" {pool.shown.target}" if pool.target else ""
    workers = f"{pool.min:,} to {pool.max:,} workers of {pool.slots:,} slots"
    times = ", ".join(f"{name} {duration(getattr(pool, name))}" for name in ("wait", "linger", "arrive"))
    return f"queues {','.join(pool.queues)}, invoker {pool.invoker}{target}, {workers}, {times}"


def remove(args: Namespace) -> int:
    """Delete pools. Return 1 if one does not exist."""
    answers: list[dict[str, Any]] = []
    with client_of(settings_of(args)) as client:
        known = read(client, pools.names(client.store.operations.bases))
        for name in dict.fromkeys(args.names):
            answer: dict[str, Any] = {"pool": name}
            if name in known:
                answer["answer"] = client.store.follow(pools.remove(client.store.operations.bases, name))
            else:
                answer |= {"error": "NOT_FOUND", "message": f"no pool {name[:130]}{_hint(name, known)}"}
            answers.append(answer)
    if args.json:
        document(answers)
    else:
        table(["POOL", "ANSWER"], [[answer["pool"], _answer(answer)] for answer in answers])
    return 1 if any("error" in answer for answer in answers) else 0


def _answer(answer: dict[str, Any]) -> Cell:
    if "error" in answer:
        return Cell(f"refused: {answer['message']}", "red")
    return Cell("removed: no more workers are summoned; those that run finish their jobs and stop", "green")


def _find(client: SyncClient, name: str) -> Pool | None:
    keys.check_name("pool", name)
    return next(
        (pool for pool in read(client, pools.known(client.store.operations.bases)) if pool.name == name), None
    )


def scale(args: Namespace) -> int:
    """Print how the wanted number of workers is computed, for POOL or the first 100 pools."""
    with client_of(settings_of(args)) as client:
        found = _read_pools(client, args.pool)
    if args.json:
        document([_as_json(pool) for pool in found])
        return 0
    for i, pool in enumerate(found):
        if pool.sum:
            put(*[""] * bool(i), *_computation(pool, pool.sum))
    if not found:
        write(f"no pools: {program()} pools set NAME --queues A,B makes one")
    return 0


def _computation(pool: Pool, sum: Sum) -> tuple[str, ...]:
    wait, run = duration(pool.wait), duration(sum.run)
    by_load = sum.rate * sum.run + sum.ready * sum.run / pool.wait
    words = "but no more than there are" if sum.need < by_load else "but at least what runs"
    capped = f", {words}: {sum.need:.3g}" if abs(sum.need - by_load) > 0.01 else ""
    limits = f" (from {pool.min:,} to {pool.max:,})"
    return (
        f"{pool.name}: queues {', '.join(pool.queues)}; invoker {pool.invoker}",
        f"  ready: {sum.ready:,}; running: {sum.running:,}; arrive per second: {sum.rate:.3g}; mean run time: {run}; "
        f"target wait: {wait}; slots: {pool.slots:,}",
        f"  jobs at a time: {sum.rate:.3g}/s x {run} + {sum.ready:,} x {run} / {wait} = {by_load:.3g}{capped}",
        f"  workers wanted: {sum.need:.3g} / {pool.slots:,} slots: {sum.wanted:,}{limits}; here: {sum.crew:,}; "
        f"summoned: {sum.summoned:,}; owed: {sum.owed:,}",
    )
