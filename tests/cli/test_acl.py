"""Redis users: on real servers, each role of `sublet acl` does all its work, has no right too many, and can
do nothing else."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import stat
import subprocess
import urllib.request
import uuid
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from redis.exceptions import NoPermissionError

from sublet.cli.operations.acl import MAINTENANCE, VERBS, commands, rights
from sublet.cli.operations.doctor import read_facts
from sublet.cli.progress import ProgressBar
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import Transport
from sublet.devtools.embedded_server import find_binary
from sublet.errors import Forbidden, Unavailable, Unconfirmed
from sublet.model import Card, Completion, Description, Submission
from sublet.operations import pools, statistics
from sublet.operations.consistency.recount import recount
from sublet.operations.consistency.repair import repair
from sublet.operations.drop import drop
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import NAMES, Call, script
from sublet.schedules import operations
from sublet.store.events import EventStream
from sublet.store.store import Store
from sublet.tasks import published
from sublet.tasks.programs.bound_process import spawn_bound
from sublet.worker.worker import Worker
from sublet.workflows import reading, storing
from tests.support import tasks
from tests.support.command_line import Shell
from tests.support.draws import few
from tests.support.http_server import serve_process
from tests.support.paths import ROOT
from tests.support.processes import until
from tests.support.program_runs import soon
from tests.support.verb_scenes import stage

pytest_plugins = ["tests.support.command_line"]
pytestmark = pytest.mark.real_server
QUEUES = 12_000
EVERY = b'{"when":{"every":60}}'


@pytest.fixture(scope="module")
def server_url(new_server):
    """Servers for this file alone: the tests create users there."""
    urls = {}
    return lambda name: urls.setdefault(name, new_server(name).url)


def as_user(settings, name, password):
    """The settings for this user."""
    return replace(settings, redis_url=settings.redis_url.replace("://", f"://{name}:{password}@", 1))


@pytest.fixture
def user(place, raw):
    """Create a user with some roles. Return the settings to connect as that user."""
    made = []

    def make(*roles, **changes):
        name = f"u{uuid.uuid4().hex[:8]}"
        raw.execute_command(
            "ACL",
            "SETUSER",
            name,
            "on",
            ">secret",
            *rights(replace(place.settings, **changes), roles).split(),
        )
        made.append(name)
        return as_user(place.settings, name, "secret")

    yield make
    for name in made:
        raw.execute_command("ACL", "DELUSER", name)


class Watched:
    """The commands that a server ran, those of scripts included, and the denied ones."""

    def __init__(self, raw):
        self.raw, self.used = raw, set()

    @contextlib.contextmanager
    def looking(self, may_be_denied=()):
        """A caller that was denied one of these commands must work without it."""
        self.raw.execute_command("ACL", "LOG", "RESET")
        before = self.counts()
        yield
        after = self.counts()
        self.used |= {name for name in after if after[name] > before.get(name, 0) + (name == "info")}
        denied = [self.entry(entry) for entry in self.raw.execute_command("ACL", "LOG")]
        assert not [
            entry for entry in denied if not entry["object"].startswith(tuple(may_be_denied) or "?")
        ], denied

    @staticmethod
    def entry(said):
        return said if isinstance(said, dict) else dict(zip(said[::2], said[1::2], strict=True))

    def counts(self):
        shown = self.raw.execute_command("INFO", "commandstats")
        return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in shown.items()}


def granted(settings, *roles):
    """The commands of a role's rules; `info|memory` counts as `info`."""
    words = rights(settings, roles).partition("-@all ")[2].split()
    assert all(re.fullmatch(r"\+[a-z|]+", word) for word in words), words
    return {word[1:].replace("info|memory", "info") for word in words}


# the work of each role, besides the scenes of its verbs


async def leave_in_a_hurry(settings):
    """Drop a connection that waits for a reply."""
    transport = Transport(settings)
    asked = asyncio.create_task(transport.run(verbs.init(keys.base(settings.namespace))))
    while not transport._pipeline._pending:
        await asyncio.sleep(0)
    await transport.aclose()
    assert await asked == "1"


def fill_tags(desk):
    """So many tags that the next one displaces another."""
    desk.raw.zadd(keys.tags(desk.base), {f"t{i}": i for i in range(10_002)})


async def submits(store, desk):
    """Submit a job whose key outlives it, wait for it, read it, and have workers summoned. Submit into a full group,
    replace a job that has kept a step, seal and cancel a workflow.
    """
    desk.raw.hset(keys.backlog(desk.base), "q jobs", -9)
    desk.raw.set(keys.lock(desk.base, "q", "k"), "gone", px=60_000)
    assert (await store.submit([Submission("0-a", "q", "t", "key=k window=60000", b"{}")]))[0].id == "gone"
    await store.submit([Submission("0-b", "q", "t", "", b"{}")])
    fill_tags(desk)
    await store.submit([Submission("0-c", "q", "t", "tags=x", b"{}")])
    assert (await store.watch("0-b", 0.1)).state == "queued"
    assert (await store.follow(store.operations.get("0-b"))).id == "0-b"
    desk.raw.hset(desk.base, "published", 1)
    assert await store.follow(published.find(desk.base, "t")) == ([],)
    await desk.pool("p", 0, "queues=q invoker=none max=1 linger=0")
    await desk.join("w")
    await desk.join("v")
    await store.follow(pools.look_at_all(store.operations.bases))
    await store.run(pools.summon(desk.base, "p", summons="s" * 22, n=0, leaver="w"))
    await new(desk)
    await fill_group(desk)
    await desk.claim(2)
    await store.submit([Submission("0-d", "q", "t", "group=g", b"{}")])
    await desk.submit("0-e", rules="key=e", payload=b"x" * 2000)
    lease = await desk.take("0-e")
    await desk.step(lease, paid=b"1")
    await desk.release(lease, 60)
    newer = Submission("0-f", "q", "t", "key=e on_conflict=replace", b"{}")
    assert (await store.submit([newer]))[0].id == "0-e"
    for how in ("seal", "cancel"):
        await store.run(storing.workflow(desk.base, how, "open", linked(how, 1)))
        assert desk.state(f"{how}-1") == "scheduled"
        await store.run(storing.workflow(desk.base, how, how))
    assert (desk.state("seal"), desk.state("seal-1")) == ("queued", "scheduled")
    assert desk.state("cancel") == "cancelled"


async def fill_group(desk):
    """Two jobs of a group of which one may run."""
    await desk.operate_queue("configure", "q", None, "group_concurrency=1")
    await desk.submit("g1", "g2", rules="group=g")


def linked(first, n, rules=""):
    """A job and `n` others that wait for it."""
    jobs = [Submission(first, "q", "t", rules, b"{}")]
    jobs += [Submission(f"{first}-{i}", "q", "t", "", b"{}") for i in range(1, n + 1)]
    return [storing.Linked(job, [first] if i else []) for i, job in enumerate(jobs)]


async def works(store, desk):
    """Act as a worker that is idle, repeats a claim, takes over a predecessor's jobs, has several queues, and works
    for groups and workflows.
    """
    await desk.pool("p", 0, "queues=q,r invoker=none max=9")
    about = b'{"queues": ["q", "r"]}'
    desk.raw.zadd(keys.summons(desk.base, "p"), {"s" * 22 + ".1": desk.now() + 10_000})
    desk.raw.hset(keys.pool(desk.base, "p"), "wanted", 5)
    await store.enlist(
        Card("w", "1", "", about, "p", "s" * 22 + ".2")
    )  # started for another summons than the outstanding one
    waiting = [
        asyncio.create_task(store.claim(worker="w", queues=[queue], n=1, lease=30, wait=2.5))
        for queue in ("q", "r", "s")
    ]
    await asyncio.gather(*waiting)
    await desk.submit("a")
    ask = {"worker": "w", "queues": ["q"], "n": 1, "lease": 30.0, "claim_id": "c" * 22}
    assert (await store.claim(**ask)).leases[0].id == (await store.claim(**ask)).leases[0].id
    assert await store.reconcile({"w": "1"}) == 1
    await desk.submit("b", queue="tenant-1")
    assert (await store.claim(**ask | {"queues": ["tenant-*"], "n": 2, "claim_id": None})).leases[0].id == "b"
    await store.publish([Description("t", "ab" * 8, b"{}")], starting=True)
    await new(desk)
    await fill_group(desk)
    (lease,) = (await store.claim(**ask | {"n": 2})).leases
    assert await store.settle([Completion(lease, b"1")]) == ["completed"]
    assert (await store.claim(**ask | {"claim_id": None})).leases[0].id == "g2"
    await desk.run(storing.workflow(desk.base, "f", "seal", linked("up", 1)))
    (lease,) = (await store.claim(**ask | {"claim_id": None})).leases
    assert await store.settle([Completion(lease, b"1")]) == ["completed"]
    assert desk.state("up-1") == "queued"
    await new(desk)
    await ticks(store, desk)


async def ticks(store, desk):
    """Run maintenance with everything that can be due: watched and locked jobs, edges of workflows, schedules, pools
    that are owed workers.
    """
    await break_and_mend(store, desk)
    await desk.running("lost", "tries=1 key=k window=60000", lease=0.001)
    await desk.watch("lost")
    desk.raw.zadd(keys.structure(desk.base, "running"), {"lost": 1})
    fill_tags(desk)
    await desk.put("s", plan=EVERY, rules="tags=x", payload=b"x" * 2000)
    await desk.put("z", plan=EVERY, payload=b"x" * 2000)
    await desk.pool("o", 0, "queues=q invoker=none")
    desk.raw.hset(
        keys.queues(desk.base), mapping={f"old{i}": "" for i in range(QUEUES)}
    )  # so many that some are pruned
    desk.raw.script_flush()
    done = await store.follow(store.operations.reap("tick"))
    assert done.ended
    assert await store.follow(store.operations.fire("tick")) >= 1
    await store.follow(store.operations.maintain("tick"))
    await store.follow(store.operations.prune())
    await store.follow(pools.look_at_all(store.operations.bases))
    await store.follow(pools.may_leave(store.operations.bases, "p", "w"))


async def break_and_mend(store, desk):
    """A job is lost, and retried, for which more others wait than one call settles."""
    await desk.run(storing.workflow(desk.base, "f", "seal", linked("up", 60, "tries=1")))
    await desk.take("up")
    desk.raw.zadd(keys.structure(desk.base, "running"), {"up": 1})
    for state in ("scheduled", "cancelled"):
        await store.follow(store.operations.reap("tick"))
        assert (desk.state("up"), desk.state("up-60")) == ("dead", state)
    await desk.operate("retry", "up")
    assert desk.state("up-60") == "cancelled"
    await store.follow(store.operations.reap("tick"))
    assert desk.state("up-60") == "scheduled"
    await new(desk)


async def until_blocked(raw):
    """Wait until a client is in a blocking read."""
    async with asyncio.timeout(30):
        while not raw.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.005)


async def looks(store, desk):
    """Read everything and follow the events. `follow_existing` creates no namespace."""
    await store.follow_existing(store.operations.keyed("q", "k"))
    layout, run = store.operations, store._transport.run
    await desk.complete(await desk.running("done"))
    await desk.fail(await desk.running("a", "retention=60000"))
    await desk.submit("b", "c", payload=b"x" * 2000)
    await desk.put("s")
    await desk.pool()
    await desk.join("w")
    for plan in (layout.get("a"), layout.list_jobs(), layout.queues(), layout.stats(), layout.history("day"), layout.workers(), layout.queue("q"),
                 pools.known(layout.bases), operations.page(layout), operations.get(layout, "s")):  # fmt: skip
        await store.follow_existing(plan)
    await desk.run(storing.workflow(desk.base, "f", "seal", linked("up", 1)))
    cursor = (await store.follow_existing(reading.get(layout, "f", 1))).cursor
    (member,) = (await store.follow_existing(reading.get(layout, "f", 1, cursor))).members
    assert (member.id, member.after) == ("up-1", ("up",))
    assert (await store.follow_existing(reading.upstream(layout, "up-1"))).upstream[0].id == "up"
    survey = await run(statistics.survey(desk.base))
    assert survey
    await store.follow_existing(statistics.queues(desk.base, ["q"]))
    event_stream = EventStream(store.settings, run)
    assert (await event_stream.read(event_stream.cursor("0-0"))).events
    assert await event_stream.wait(event_stream.version, 20)
    waiting = asyncio.create_task(event_stream.wait(event_stream.version, 20))
    await until_blocked(desk.raw)
    await desk.submit("d")
    assert await waiting
    await event_stream.aclose()
    with SyncClient(store.settings) as client:
        facts = await asyncio.to_thread(read_facts, client, ProgressBar())
    unknown = [
        name for name in ("loaded", "wrong_type_keys", "overdue", "workers") if getattr(facts, name) is None
    ]
    assert not unknown
    assert facts.info["maxmemory_policy"]
    assert facts.config == {"save": None, "appendfsync": None, "maxclients": None}, (
        "it contains passwords, too"
    )


async def directs(store, desk):
    for flow in (looks, submits, works):
        await new(desk)
        await flow(store, desk)
    await store.follow(pools.look_at_all(store.operations.bases))
    await store.run(Call((("SCRIPT", "LOAD", script("init").text),), bytes.decode))
    await new(desk)
    await desk.run(storing.workflow(desk.base, "f", "seal", linked("up", 1)))
    await desk.fail(await desk.take("up"), again=False)
    assert await store.erase("up") == "erased"
    for outcome in ("5 jobs found", "4 retried"):
        await store.run(verbs.audit(desk.base, "o" * 22, "anna", "retry", "task=t", "q", outcome))
    await new(desk)
    await desk.running("held", "key=k")
    desk.raw.zrem(keys.structure(desk.base, "running"), "held")
    await desk.run(storing.workflow(desk.base, "f", "seal", linked("up", 1)))
    desk.raw.zrem(keys.members(desk.base, "f"), "up")
    desk.raw.hset(keys.job(desk.base, "up-1"), "needs", 2)
    repaired = (await store.follow_existing(repair(store.operations.bases)))[1]
    assert sorted(fault.found.split()[0] for fault in repaired) == ["member", "needs", "placed"]
    await store.follow_existing(recount(desk.base))
    assert await store.follow_existing(drop(store.settings.namespace)) > 5
    assert not desk.raw.exists(desk.base)


SPARE = {
    "submit": {"persist", "pexpireat", "unsubscribe", "xrange", "zinter"},
    "work": {"pexpireat", "xrange", "xtrim"},
    "admin": {"pexpireat", "unsubscribe", "xtrim"},
    "tick": {"pexpireat"},
}
"""Granted and never run here. PERSIST: lib/edges asks for it before its first write, and runs it after a retry. ZINTER: of workflows
with unsettled jobs. The others: of jobs with a stream, which these flows do not make."""
FLOWS = {"submit": submits, "work": works, "read": looks, "admin": directs, "tick": ticks}


@pytest.mark.parametrize("role", VERBS)
async def test_a_role_does_all_its_work_and_has_no_right_too_many(role, user, desk, raw, base):
    """Fails for each command that is denied, and for each that is granted and was not used."""
    settings = user(role)
    transport, watched = Transport(settings), Watched(raw)
    for verb in VERBS[role]:
        await new(desk)
        call = (await stage(verb, desk)).call
        with watched.looking():
            await transport.run(call)
    await transport.aclose()
    await new(desk)
    store = Store(settings)
    with watched.looking(may_be_denied=("config", "evalsha", "scan") if role == "read" else ("config",)):
        await FLOWS[role](store, desk)
        await store.aclose()
        if VERBS[role]:
            await leave_in_a_hurry(settings)
    unused = granted(settings, role) - watched.used
    assert unused == SPARE.get(role, set()), "these commands are granted and unused"


async def new(desk):
    """An empty namespace, in which workers wait for all queues."""
    desk.raw.delete("nothing", *desk.raw.scan_iter(f"{desk.base}*", count=1000))
    await desk.run(verbs.init(desk.base))
    desk.raw.hset(desk.base, "patterns", f"* {desk.now() + 15_000}")


# denied to every role


def dumps(settings):
    """All stored data of a namespace, byte by byte, read by another user."""
    with redis.Redis.from_url(settings.redis_url, protocol=2) as own:
        return {key: own.dump(key) for key in own.scan_iter(match=f"{{{settings.namespace}:*", count=1000)}


@pytest.mark.parametrize("role", [role for role in VERBS if role != "admin"])
async def test_a_verb_of_another_role_changes_nothing_before_it_is_denied(role, user, desk, place):
    """No command is denied between two writes. A verb that needs no other command than the role's own is not
    denied.
    """
    settings, own, done = user(role), granted(place.settings, role), set()
    transport = Transport(settings)
    for verb in sorted(set(NAMES) - set(VERBS[role])):
        await new(desk)
        call = (await stage(verb, desk)).call
        before = dumps(place.settings)
        try:
            await transport.run(call)
        except Forbidden:
            assert dumps(place.settings) == before, verb
        else:
            done.add(verb)
    await transport.aclose()
    asks = {verb: {"publish"} if "lib/lifecycle" in script(verb).libraries else set() for verb in NAMES}
    reach = {verb for verb in NAMES if commands(verb) | asks[verb] <= own} if role != "read" else set()
    assert done >= reach - set(VERBS[role])


@pytest.mark.parametrize("lacks", ["RPUSH", "LTRIM", "PEXPIRE", "PERSIST", "ZCOUNT", "ZREM", "PUBLISH"])
async def test_a_workflow_is_denied_whole_if_one_right_is_missing(lacks, user, desk, raw, place):
    settings = user("submit")
    raw.execute_command("ACL", "SETUSER", urlsplit(settings.redis_url).username, f"-{lacks}")
    transport, before = Transport(settings), dumps(place.settings)
    with pytest.raises(Forbidden, match="change its rights"):
        await transport.run(storing.workflow(desk.base, "f", "open", linked("a", 1)))
    assert dumps(place.settings) == before
    await transport.aclose()


@pytest.mark.parametrize("role", ["submit", "tick"])
async def test_a_worker_without_the_rights_leaves_no_trace(role, user, store, desk, place):
    """It neither registers nor takes over a worker identity; the registered workers are still shown."""
    await desk.enlist("w", "1")
    stranger = Store(user(role))
    before = dumps(place.settings)
    for card in (Card("stranger", "1", "", b"{}"), Card("w", "2", "", b"{}"), Card("w", "1", "", b"new")):
        with pytest.raises(Forbidden, match="change its rights"):
            await stranger.enlist(card)
    assert dumps(place.settings) == before
    assert [worker.name for worker in await store.workers()] == ["w"]
    await stranger.aclose()


@pytest.mark.parametrize(
    ("denied", "asked"),
    [("command", "redis.call('FLUSHALL')"), ("key", "redis.call('HGET', 'another', 'f')"),
     ("channel", "redis.call('PUBLISH', 'another', 'x')")],
)  # fmt: skip
@pytest.mark.parametrize("caught", [False, True])
async def test_a_denial_within_a_script_raises_forbidden(denied, asked, caught, user, base):
    """Redis then replies with another text and without a code. A command, a key and a channel are denied in
    different words.
    """
    transport = Transport(user("work"))
    text = "return " + (asked.replace("call", "pcall") if caught else asked)
    with pytest.raises(
        Forbidden, match=r"Redis does not allow this user the command \(.+\): change its rights"
    ) as shown:
        await transport.run(Call((("EVAL", text, 1, base),), bytes.decode))
    assert "user_script" not in str(shown.value), denied
    await transport.aclose()


@pytest.mark.parametrize("role", ["submit", "tick", "read"])
def test_a_worker_as_the_wrong_user_exits_with_a_message(role, user, shell, place):
    """Exit code 3 and a message; the registered workers are unchanged."""
    env = {"SUBLET_REDIS_URL": user(role).redis_url, "SUBLET_NAMESPACE": place.settings.namespace}
    shell.ok("submit", "add", '{"a": 1}', **env | {"SUBLET_REDIS_URL": place.settings.redis_url})
    shown = shell.run("work", "tasks:app", "--drain", **env)
    assert shown.returncode == 3, shown.stderr
    assert "Redis does not allow this user the command" in shown.stderr
    assert "bug" not in shown.stderr
    assert shell.json("workers", **env | {"SUBLET_REDIS_URL": place.settings.redis_url}) == []


def test_a_worker_that_may_register_but_not_claim_exits_with_a_message(user, shell, place, raw):
    """It would retry for ever: exit code 3, a message, and the registration is removed."""
    settings = user("work")
    env = {"SUBLET_REDIS_URL": place.settings.redis_url, "SUBLET_NAMESPACE": place.settings.namespace}
    job_id = shell.ok("submit", "add", '{"a": 1}', **env)
    raw.execute_command(
        "ACL", "SETUSER", urlsplit(settings.redis_url).username, "-set"
    )  # needed by a claim, not by a registration
    shown = shell.run("work", "tasks:app", "--for", "10s", **env | {"SUBLET_REDIS_URL": settings.redis_url})
    assert shown.returncode == 3, shown.stderr
    assert shown.stderr.splitlines()[-1].startswith("sublet: Redis does not allow this user the command")
    assert shell.json("workers", **env) == []
    assert shell.json("get", job_id, **env)["state"] == "queued"


@pytest.mark.parametrize("back", [True, False])
async def test_a_worker_that_loses_its_rights_for_a_while_waits_for_them(
    back, user, desk, place, raw, caplog
):
    settings, store = user("work"), Store(place.settings)
    own, name = Store(settings), urlsplit(settings.redis_url).username
    worker = Worker(tasks.app, own)
    running = asyncio.create_task(worker.run())
    await store.submit([Submission("0-a", "default", "add", "", b'{"a":1}')])
    await soon(lambda: desk.counter("completed") == 1)
    raw.execute_command("ACL", "SETUSER", name, "-set")
    await store.submit([Submission("0-b", "default", "add", "", b'{"a":1}')])
    await soon(lambda: "cannot claim: Redis does not allow this user the command" in caplog.text)
    assert not running.done()
    if back:
        raw.execute_command("ACL", "SETUSER", name, "+set")
        await soon(lambda: desk.counter("completed") == 2)
    worker.stop()
    await running
    assert await store.workers() == [], "a refusal is not an outage: the worker removes its registration"
    await own.aclose()
    await store.aclose()


# denied to all roles


FORBIDDEN = (
    "FLUSHALL", "FLUSHDB", "CONFIG GET requirepass", "CONFIG SET save x", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE",
    "DEBUG SLEEP 0", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION LOAD x", "FUNCTION FLUSH", "FCALL x 0", "MONITOR",
    "SHUTDOWN NOSAVE", "ACL LIST", "ACL SETUSER x", "CLIENT LIST", "CLIENT KILL ID 1", "CLIENT PAUSE 1", "REPLICAOF NO ONE",
    "MODULE LIST", "SAVE", "BGREWRITEAOF", "SLOWLOG GET", "SWAPDB 0 1", "SELECT 1", "MIGRATE h 1 k 0 1", "RESTORE k 0 x",
    "DUMP {mine}", "COPY {mine} {mine}:x", "RENAME {mine} {mine}:x", "RENAME {mine} {other}:x", "UNLINK {mine}", "GET other", "SET other x",
    "HGETALL {other}", "HSET {other} f x", "DEL {other}:events", "HGET {beside} layout", "HGET {mine}x layout",
    "XRANGE {beside}:events - +", "SUBSCRIBE {other}:ended", "SUBSCRIBE {mine}", "PSUBSCRIBE *", "PUBLISH {other}:ended x",
    "SPUBLISH {other}:ended x",
)  # fmt: skip
"""Words of commands. {mine} is the role's own base; {beside} is the base of a namespace whose name has the
same beginning."""


ALLOWED = {
    "admin": ("SCAN 0", "UNLINK {mine}", "RENAME {mine} {mine}:x"),
    **dict.fromkeys(("submit", "work", "tick"), ("UNLINK {mine}",)),
}
"""Exceptions: whoever submits or ticks deletes indexes of tags that are no longer used; `erase` renames a list of edges."""


@pytest.mark.parametrize("role", VERBS)
def test_commands_outside_the_roles_are_denied(role, user, place, base, raw):
    names = {"mine": base, "other": "{another:0}", "beside": keys.base(place.settings.namespace + ":0")}
    with client(user(role)) as own:
        for words in [words for words in FORBIDDEN if words not in ALLOWED.get(role, ())]:
            command = [re.sub(r"\{(\w+)\}", lambda found: names[found[1]], word) for word in words.split()]
            with pytest.raises(
                (NoPermissionError, redis.ResponseError), match=r"permission|NOPERM|DEBUG command not allowed"
            ):
                own.execute_command(*command)
        for reach in ("other", names["other"], names["beside"]):
            text = "return redis.call('HSET', ARGV[1], 'f', 'x')"
            with pytest.raises(redis.ResponseError, match=r"permission|NOPERM|can't access"):
                own.eval(text, 1, base, reach)
        assert not raw.exists("other", names["other"], names["beside"])


def test_the_role_read_writes_nothing(user, base, raw):
    with client(user("read")) as own:
        for command in (["HSET", base, "f", "x"], ["DEL", base], ["LPUSH", f"{base}:wake:q", "1"], ["EVAL", "return 1", 1, base],
                        ["EVALSHA_RO", "0" * 40, 1, base], ["SUBSCRIBE", keys.ended(base)]):  # fmt: skip
            with pytest.raises(NoPermissionError):
                own.execute_command(*command)
    assert not raw.exists(base)
    places = [word for word in rights(Settings(), ["read"]).split() if "~" in word]
    assert places
    assert all(place.startswith("%R~") for place in places), "Redis would also deny a write to these keys"


@pytest.mark.parametrize("role", ["submit", "work"])
def test_a_role_may_run_its_scripts_commands_raw(role, user, base, raw):
    """The limit in `docs/guides/acl.md`: between roles that write, only HTTP separates."""
    with client(user(role)) as own:
        assert own.hset(base, "layout", "spoiled") == 1
        assert own.eval("return redis.call('DEL', KEYS[1])", 1, base) == 1
    assert not raw.exists(base)


def test_no_role_has_an_administrators_command(raw, place):
    """INFO is the only granted command of the category @dangerous: whole for readers, its section memory for
    other roles.
    """
    admins, dangerous = (set(raw.execute_command("ACL", "CAT", kind)) for kind in ("admin", "dangerous"))
    known = {
        word for kind in raw.execute_command("ACL", "CAT") for word in raw.execute_command("ACL", "CAT", kind)
    }
    for role in VERBS:
        own = granted(place.settings, role)
        assert own <= known, "the server would not load the file"
        assert not own & admins
        assert own & dangerous <= {"info"}
        assert ("+info " in rights(place.settings, [role])) is (role in ("read", "admin"))


NAME = st.text("ab01.:-_", min_size=1, max_size=4)


@examples(max_examples=few(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mine=NAME, other=NAME, partition=st.integers(0, 12), partitions=st.integers(1, 3))
def test_no_namespace_reaches_into_another(user, raw, place, mine, other, partition, partitions):
    """Also for names such as `a`, `a:0`, `a:0:0` or `a.b`: the server itself decides what the patterns match."""
    raw.execute_command(
        "ACL",
        "SETUSER",
        "trial",
        "reset",
        "on",
        *rights(Settings(namespace=mine, partitions=partitions), ["admin"]).split(),
    )
    base = keys.base(other, partition)
    is_own = mine == other and partition < partitions
    for key in (base, f"{base}:queue:q", f"{base}:"):
        shown = raw.execute_command("ACL", "DRYRUN", "trial", "HSET", key, "f", "x")
        assert (shown == "OK") is is_own, (mine, key, shown)
    raw.execute_command("ACL", "DELUSER", "trial")


def test_every_verb_has_a_role_and_a_list_of_its_commands():
    assert set(VERBS["admin"]) == set(NAMES)
    assert {verb for verbs_of in VERBS.values() for verb in verbs_of} == set(NAMES)
    assert commands("heartbeat") >= {"zadd", "hset", "hmget", "del", "time"}
    assert not commands("heartbeat") & {"xadd", "publish", "lpush"}, "none of its functions runs these"
    for verb in NAMES:
        assert commands(verb) <= {word.lower() for word in re.findall(r"'([A-Z]+)'", script(verb).text)}


def test_the_guide_lists_the_verbs_of_each_role():
    guide = (ROOT / "docs" / "guides" / "acl.md").read_text()
    listed = {role: set(re.findall(r"`(\w+)`", cell)) for role, cell in re.findall(r"^\| `(\w+)` \| ([^|]+) \|", guide, re.MULTILINE)}  # fmt: skip
    tick = set(MAINTENANCE) - {"init"}
    assert listed["tick"] == tick
    assert listed["submit"] == set(VERBS["submit"]) - {"init"}
    assert listed["work"] == set(VERBS["work"]) - {"init"} - tick | {"tick"}
    assert [*listed] == ["submit", "work", "read", "tick", "admin"]


def test_a_database_and_a_durability_have_their_commands():
    assert "+select|3" in rights(Settings(redis_url="redis://h/3"), ["submit"])
    assert "+select|4" in rights(Settings(redis_url="unix:///s?db=4"), ["submit"])
    assert "select" not in rights(Settings(redis_url="redis://h/0"), ["admin"])
    assert "+waitaof" in rights(Settings(durability="fsync"), ["submit"])
    assert "+waitaof" not in rights(Settings(durability="fsync"), ["work"])
    assert rights(Settings(durability="replicated"), ["submit"]).split().count("+wait") == 1
    assert "+cluster|slots" in rights(Settings(redis_url="redis+cluster://h"), ["work"])
    assert "+role" in rights(Settings(redis_url="rediss+sentinel://h/main"), ["work"]).split()
    assert "+role" not in rights(Settings(), ["admin"]).split()


async def test_a_submitter_may_wait_for_replicas_if_the_file_was_written_for_it(user, desk):
    """Without the right, the error names the stored job and the way to repair this."""
    lacks = (
        r"may not wait .*NOPERM: WAIT.*sublet acl.*SUBLET_DURABILITY=replicated.* under the same id 0-none$"
    )
    for durability, words in (("replicated", "only 0 of 1 replicas"), ("none", lacks)):
        store = Store(replace(user("submit", durability=durability), durability="replicated", timeout=0.5))
        with pytest.raises(Unconfirmed, match=words):
            await store.submit([Submission(f"0-{durability}", "q", "t", "", b"{}")])
        await store.aclose()
    assert desk.raw.zscore(keys.queue(desk.base, "q"), "0-none") is not None


# the file


def client(settings):
    return redis.Redis.from_url(settings.redis_url, protocol=2, decode_responses=True)


@pytest.fixture
def guarded(backend, tmp_path, tmp_path_factory):
    """A server that was started with the file of `acl`, and its passwords."""
    shell = Shell(tmp_path, "redis://127.0.0.1:1")
    passwords = {name: f"{name}/secret+word:{uuid.uuid4().hex}" for name in ("default", *VERBS)}
    given_file = tmp_path / "passwords"
    given_file.write_text(
        "# for the test\n" + "".join(f"{name}:{word}\n" for name, word in passwords.items())
    )
    assert shell.ok("acl", "--to", "users.acl", "--password-file", "passwords") == "wrote users.acl"
    path = tmp_path_factory.mktemp("s") / "s"
    words = [
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--aclfile",
        str(tmp_path / "users.acl"),
        "--save",
        "",
        "--dir",
        str(tmp_path),
    ]
    with open(tmp_path / "log", "wb") as log:
        server = spawn_bound(
            [find_binary("redis-server" if backend == "redis" else None), *words],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: listens(path) or server.poll() is not None, lambda: (tmp_path / "log").read_text())
        assert server.poll() is None, (tmp_path / "log").read_text()
        yield shell, path, passwords
    finally:
        server.kill()
        server.wait(10)


def listens(path):
    """Whether a client can connect: the socket's file exists a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def url_of(path, name, word):
    return f"unix://{urllib.request.quote(name, safe='')}:{urllib.request.quote(word, safe='')}@{path}"


def test_a_deployment_runs_with_the_written_file(guarded):
    """Each process is a user of its own: producer, worker, API, cron, reader. A connection without a name is
    refused.
    """
    shell, path, passwords = guarded
    namespace = shell.env["SUBLET_NAMESPACE"]
    for refused in (f"unix://{path}", url_of(path, f"{namespace}-admin", "wrong")):
        with redis.Redis.from_url(refused) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
    as_role = {role: url_of(path, f"{namespace}-{role}", passwords[role]) for role in VERBS}
    job_id = shell.ok("submit", "add", '{"a": 1}', SUBLET_REDIS_URL=as_role["submit"])
    shell.ok("submit", "add", '{"a": 5}', "--delay", "1ms", SUBLET_REDIS_URL=as_role["submit"])
    shell.ok("tick", SUBLET_REDIS_URL=as_role["tick"])
    shell.ok("work", "tasks:app", "--drain", "--queues", "default", SUBLET_REDIS_URL=as_role["work"])
    found = shell.json("get", job_id, SUBLET_REDIS_URL=as_role["read"])
    assert (found["state"], found["result"]) == ("completed", 2)
    events = ("events", "--after", "0", "--queue", "default", "--for", "2s")
    for words in (
        ("list",),
        ("queues",),
        ("stats",),
        ("workers",),
        ("schedules",),
        ("scripts",),
        ("get", job_id[-11:]),
        events,
    ):
        assert shell.run(*words, SUBLET_REDIS_URL=as_role["read"]).returncode == 0, words
    for role in ("read", "admin"):
        shown = shell.json("doctor", SUBLET_REDIS_URL=as_role[role])
        levels = {check["subject"]: check["level"] for check in shown["checks"]}
        hidden = {"pools", "consistency"} if role == "read" else set()
        assert {what for what, level in levels.items() if level == "unknown"} <= hidden, shown
    line = shell.no(3, "submit", "add", '{"a": 1}', SUBLET_REDIS_URL=as_role["read"])
    assert line.endswith(
        "(`sublet acl` writes them for each role), or use another user in SUBLET_REDIS_URL"
    ), "and the outcome is certain"
    assert "secret" not in line
    api = Settings(redis_url=as_role["admin"], namespace=namespace)
    with serve_process(api) as server:
        assert ask(server.url, "POST", "/jobs", {"task": "add", "payload": {"a": 2}})[0] == 201
        leased = ask(server.url, "POST", "/jobs/claim", {"worker": "w", "queues": ["default"]})[1]["jobs"][0]
        done = ask(
            server.url, "POST", f"/jobs/{leased['id']}/complete", {"token": leased["token"], "result": 3}
        )
        assert done[0] == 200, done
        for way in ("/jobs", "/queues", "/workers", "/pools", "/schedules", "/stats", "/metrics", "/readyz"):
            assert ask(server.url, "GET", way)[0] == 200, way
        assert ask(server.url, "POST", "/tick")[0] == 200


def test_an_admin_repairs_a_namespace_and_drops_it(guarded):
    """With a lost place, a wrong counter and a held key without a job."""
    shell, path, passwords = guarded
    namespace = shell.env["SUBLET_NAMESPACE"]
    shell.env["SUBLET_REDIS_URL"] = url_of(path, f"{namespace}-admin", passwords["admin"])
    job_id = shell.ok("submit", "add", '{"a": 1}', "--key", "k")
    base = keys.base(namespace)
    with redis.Redis.from_url(url_of(path, "default", passwords["default"])) as owner:
        assert owner.delete(keys.queue(base, "default")) == 1
        owner.hset(keys.backlog(base), "default jobs", 7)
        owner.set(keys.lock(base, "default", "nobody"), "0-gone")
        shown = shell.json("doctor", "--repair")
        assert {each["kind"] for each in shown["repaired"]} == {"placed", "recounted", "unlocked"}
        assert shown["left"] == []
        assert shell.json("get", job_id)["state"] == "queued"
        assert shell.run("purge", "default", "--scheduled", "--yes").returncode == 0
        assert shell.run("drop", namespace, "--yes").returncode == 0
        assert owner.keys(f"{base}*") == []


@pytest.mark.parametrize("role", ["submit", "work", "tick"])
def test_a_doctor_with_few_rights_still_reports_eviction(guarded, role):
    """They may run INFO memory alone, as a submit does, which is refused there."""
    shell, path, passwords = guarded
    shell.env["SUBLET_REDIS_URL"] = url_of(path, f"{shell.env['SUBLET_NAMESPACE']}-{role}", passwords[role])
    with redis.Redis.from_url(url_of(path, "default", passwords["default"])) as owner:
        for policy, level, code in ("noeviction", "ok", 0), ("allkeys-lru", "bad", 1):
            owner.config_set("maxmemory-policy", policy)
            done = shell.run("doctor", "--json", SUBLET_DURABILITY="replicated")
            levels = {check["subject"]: check["level"] for check in json.loads(done.stdout)["checks"]}
            assert (done.returncode, levels["eviction"], levels["memory"]) == (code, level, "ok"), done.stdout
            assert (levels["server"], levels["durability"]) == ("unknown", "unknown")


def test_an_api_without_operators_is_a_user_of_several_roles(user, place, desk):
    settings = user("submit", "work", "read", "tick")
    with serve_process(settings) as server:
        assert ask(server.url, "POST", "/jobs", {"task": "t", "payload": {}})[0] == 201
        leased = ask(server.url, "POST", "/jobs/claim", {"worker": "w", "queues": ["default"]})[1]["jobs"][0]
        assert ask(server.url, "POST", f"/jobs/{leased['id']}/release", {"token": leased["token"]})[0] == 200
        for way in ("/jobs", "/queues", "/workers", "/pools", "/stats", "/readyz"):
            assert ask(server.url, "GET", way)[0] == 200, way


def test_the_file_is_private_and_never_overwritten(shell):
    done = shell.run("acl", "--to", "users.acl")
    path = shell.folder / "users.acl"
    assert (done.returncode, done.stdout) == (0, "wrote users.acl\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text().splitlines()
    namespace = shell.env["SUBLET_NAMESPACE"]
    assert [line.split()[1] for line in lines] == ["default", *(f"{namespace}-{role}" for role in VERBS)]
    shown = dict(re.findall(r"^(\S+): \S+://[^:]+:(\w+)@", done.stderr, re.MULTILINE))
    for line in lines:
        _, name, on, digest, *_ = line.split()
        assert (on, digest) == ("on", "#" + hashlib.sha256(shown[name].encode()).hexdigest())
        assert len(shown[name]) == 48
        assert shown[name] not in path.read_text()
    assert len(set(shown.values())) == len(lines), "each user has its own password"
    assert "exists already" in shell.no(1, "acl", "--to", "users.acl")
    os.symlink("elsewhere", shell.folder / "link")
    assert "exists already" in shell.no(1, "acl", "--to", "link")
    assert path.read_text().splitlines() == lines
    assert not (shell.folder / "elsewhere").exists()


def test_one_user_of_some_roles_is_one_line(shell):
    namespace = shell.env["SUBLET_NAMESPACE"]
    done = shell.run("acl", "--role", "work,submit", "--json")
    shown = json.loads(done.stdout)
    (line,) = shown["lines"]
    assert line.startswith(f"user {namespace}-submit+work on #")
    assert [*shown["passwords"]] == [f"{namespace}-submit+work"]
    assert done.stderr == ""
    (shell.folder / "p").write_text("tick:0123456789abcdef\n")
    done = shell.run("acl", "--role", "tick", "--password-file", "p")
    assert hashlib.sha256(b"0123456789abcdef").hexdigest() in done.stdout
    assert done.stderr.startswith("default: not in this line."), "the user `default` is unchanged"
    assert done.stderr.count("\n") == 1
    assert "default: not" not in shell.run("acl").stderr
    assert "`sublet-submit`" in shell.ok("acl", "--help")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tick:short", "line 1 of p is malformed"),
        ("# a\n\ntick 0123456789abcdef", "line 3 of p is malformed"),
        ("tick:0123456789abcdeé", "line 1 of p is malformed"),
        ("tick:0123456789abcdef\ntick:0123456789abcdef", "line 2 of p is malformed"),
        (
            "boss:0123456789abcdef",
            "has a password for 'boss', which is not one of the users to make: tick; remove",
        ),
    ],
)
def test_an_invalid_password_is_refused_and_not_shown(shell, text, words):
    (shell.folder / "p").write_text(text)
    line = shell.no(2, "acl", "--role", "tick", "--password-file", "p", "--to", "f")
    assert words in line
    assert "0123456789" not in line
    assert "short" not in line
    assert not (shell.folder / "f").exists()


def test_an_unknown_role_is_refused_with_the_known_ones(shell):
    assert "there is no role 'boss'; there are submit, work, read, admin, tick; see" in shell.no(
        2, "acl", "--role", "boss"
    )
    assert "no such file" in shell.no(2, "acl", "--password-file", "none").lower()


def ask(url, method, path, body=None):
    """Status and body of one request."""
    sent = urllib.request.Request(
        url + path, method=method, data=json.dumps(body or {}).encode() if method == "POST" else None
    )
    sent.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(sent, timeout=30) as answer:
        text = answer.read()
    return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text


# users without EVAL


@pytest.fixture
def sealed(user, place, raw):
    """As `user`, without EVAL."""

    def make(*roles):
        settings = user(*roles)
        name = urlsplit(settings.redis_url).username
        raw.execute_command("ACL", "SETUSER", name, *rights(place.settings, roles, may_eval=False).split())
        return settings

    return make


def load(settings):
    """As `sublet scripts --load`."""
    with redis.Redis.from_url(settings.redis_url) as own:
        for name in NAMES:
            own.script_load(script(name).text)


MISSING = "Redis does not have this script .*run `sublet scripts --load` as a user with the role admin, and repeat the call"


@pytest.mark.parametrize("roles", [["submit"], ["work"], ["tick"], ["submit", "work", "read", "tick"]])
def test_a_user_without_eval_may_send_no_script(roles, sealed, raw, place):
    load(place.settings)
    endless = "while true do end"
    with client(sealed(*roles)) as own:
        for words in (
            ("EVAL", endless, 0),
            ("EVAL_RO", endless, 0),
            ("SCRIPT", "LOAD", endless),
            (
                "FUNCTION",
                "LOAD",
                "#!lua name=x\nredis.register_function('f', function() while true do end end)",
            ),
            ("FCALL", "f", 0),
        ):
            with pytest.raises(NoPermissionError):
                own.execute_command(*words)
    assert raw.ping()


@pytest.mark.parametrize("role", ["submit", "work", "tick"])
async def test_a_role_without_eval_does_all_its_work_once_the_scripts_are_loaded(role, sealed, desk, place):
    load(place.settings)
    transport = Transport(sealed(role))
    for verb in VERBS[role]:
        await new(desk)
        await transport.run((await stage(verb, desk)).call)
    await transport.aclose()


async def test_without_eval_missing_scripts_are_reported_and_a_worker_goes_on_after_the_load(
    sealed, desk, raw, place
):
    """After SCRIPT FLUSH, which has the effect of a restart. A worker that starts in between waits."""
    load(place.settings)
    submitter, settings = Store(sealed("submit")), sealed("work")
    sources = [Store(settings), Store(settings)]
    job = Submission("0-a", "default", "add", "", b'{"a":1}')
    await submitter.submit([job])
    running = [asyncio.create_task(Worker(tasks.app, sources[0]).run())]
    try:
        await soon(lambda: desk.counter("completed") == 1)
        raw.script_flush()
        with pytest.raises(Unavailable, match=MISSING):
            await submitter.submit([job._replace(id="0-b")])
        assert not raw.exists(keys.job(desk.base, "0-b"))
        running.append(asyncio.create_task(Worker(tasks.app, sources[1]).run()))
        load(place.settings)
        await submitter.submit([job._replace(id="0-b")])
        await soon(lambda: desk.counter("completed") == 2)
        assert not any(one.done() for one in running)
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for store in (submitter, *sources):
            await store.aclose()


def test_a_restarted_server_without_eval_needs_the_scripts_again(shell, backend, tmp_path, tmp_path_factory):
    done = shell.run("acl", "--no-eval", "--to", "users.acl", "--json")
    assert done.returncode == 0, done.stderr
    secrets = json.loads(done.stdout)["passwords"]
    namespace = shell.env["SUBLET_NAMESPACE"]
    path = tmp_path_factory.mktemp("s") / "s"
    words = [find_binary("redis-server" if backend == "redis" else None), "--port", "0", "--unixsocket", str(path),
             "--aclfile", str(tmp_path / "users.acl"), "--save", "", "--dir", str(tmp_path), "--appendonly", "yes"]  # fmt: skip

    def start():
        server = spawn_bound(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: listens(path))
        return server

    def url(role):
        return {"SUBLET_REDIS_URL": url_of(path, f"{namespace}-{role}", secrets[f"{namespace}-{role}"])}

    server = start()
    try:
        for number in (1, 2):
            line = shell.no(3, "submit", "add", '{"a": 1}', **url("submit"))
            assert re.search(MISSING, line), line
            assert "sublet-" not in line
            shell.run("scripts", "--load", **url("admin"))
            job_id = shell.ok("submit", "add", '{"a": 1}', **url("submit"))
            shell.ok("work", "tasks:app", "--drain", "--queues", "default", **url("work"))
            assert shell.json("get", job_id, **url("read"))["result"] == 2, number
            if number == 1:
                with redis.Redis.from_url(url_of(path, "default", secrets["default"])) as owner:
                    owner.shutdown(nosave=True)
                server.wait(20)
                server = start()
    finally:
        server.kill()
        server.wait(10)


def test_no_eval_is_explained_and_refused_where_it_cannot_hold(shell):
    done = shell.run("acl", "--no-eval")
    lines = {line.split()[1].rpartition("-")[2]: line.split() for line in done.stdout.splitlines()}
    assert {role for role in lines if "+evalsha" in lines[role]} == {"submit", "work", "tick", "admin"}
    assert {role for role in lines if "+eval" in lines[role]} == {"admin"}
    assert "--no-eval: load the scripts (`sublet scripts --load`)" in done.stderr
    assert "leave admin out" in shell.no(2, "acl", "--no-eval", "--role", "submit,admin")
    assert "needs EVAL" in shell.no(2, "acl", "--no-eval", SUBLET_DURABILITY="replicated")
