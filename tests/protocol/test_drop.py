"""drop: delete only the named namespace, completely, while other clients call it."""

import json
import os
import pty
import signal
import subprocess

import pytest
import redis

from sublet.connection.transport import follow
from sublet.errors import Changed, Invalid, NoNamespace, TooMany, WrongLayout
from sublet.model import Submission
from sublet.operations.drop import contents, drop, widest
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import script
from tests.support.processes import until

pytest_plugins = ["tests.support.command_line"]


def namespace(desk):
    return desk.base[1:].rpartition(":")[0]


async def several(desk, base):
    """A partition with data of every kind."""
    await desk.run(verbs.init(base))
    jobs = [Submission(f"j{i}", "q", "t", f"key=k{i}", b"{}") for i in range(5)]
    await desk.run(verbs.submit(base, [*jobs, Submission("late", "q", "t", "delay=60000", b"{}")]))
    await desk.run(verbs.claim(base, claim_id="c" * 22, worker="w", lease=30, n=2, queues=["q"]))


def deleted_by(call):
    """The keys that this call deletes."""
    words = call.commands[0]
    return list(words[5:]) if words[:2] == ("EVALSHA", script("drop").sha) else []


def those_of(desk, *names):
    return sorted(
        key for key in desk.raw.scan_iter(count=1000) if key.startswith(tuple(f"{{{name}:" for name in names))
    )


async def test_the_drop_mark_makes_every_verb_refuse_and_can_be_set_again(desk, each_verb):
    lease = await desk.running("a")
    assert await desk.run(verbs.drop(desk.base, 1)) == "dropped"
    assert await desk.run(verbs.drop(desk.base, 1)) == "dropped"
    before = desk.everything()
    for verb, call in each_verb(desk.base, lease).items():
        if verb != "drop":
            with pytest.raises(WrongLayout, match="a drop was interrupted"):
                await desk.run(call)
    with pytest.raises(WrongLayout):
        await desk.run(verbs.init(desk.base))
    assert desk.everything() == before


async def test_a_namespace_created_again_is_not_marked(desk):
    await desk.submit("a")
    with pytest.raises(Changed, match="created again"):
        await desk.run(verbs.drop(desk.base, 2))
    with pytest.raises(Invalid):
        await desk.run(verbs.drop(desk.base, "many"))
    assert desk.raw.hget(desk.base, "layout") == "1"
    with pytest.raises(NoNamespace):
        await desk.run(verbs.drop(keys.base(namespace(desk), 5), 0))


def lasting(desk):
    """All keys of the server that do not expire by themselves, as memos of claims do."""
    return [key for key in desk.raw.scan_iter(count=1000) if desk.raw.pttl(key) == -1]


async def test_all_partitions_of_only_the_named_namespace_are_deleted(desk):
    """Any number of namespaces with any names: a name may be a prefix of another, and contain colons and digits."""
    name = namespace(desk)
    others = [f"{name}2", f"{name}:0", f"{name}:0:1", f"{name}:", name[:-1], f"{name}.0", f"x{name}"]
    for other in others:
        await several(desk, keys.base(other))
    theirs = [
        f"{{{name}}}:0",
        f"{{{name}:0",
        f"{name}:0",
        f"{{{name}:x}}",
        f"{{{name}:y}}x",
        f"{{{name}:}}:a",
    ]
    for key in theirs:
        desk.raw.set(key, "foreign")
    before = {key: desk.raw.dump(key) for key in lasting(desk) if not key.startswith(desk.base)}
    for partition in (0, 1, 12):
        await several(desk, keys.base(name, partition))
    desk.raw.lpush(keys.wake(desk.base, "|" + "b" * 22), "1")
    desk.raw.delete(keys.base(name, 12))
    there = await follow(desk.run, contents(name))
    assert list(there.keys) == [keys.base(name, 0), keys.base(name, 1), keys.base(name, 12)]
    assert there.jobs == {
        "queued": 9,
        "scheduled": 3,
        "running": 6,
        "completed": 0,
        "dead": 0,
        "cancelled": 0,
    }
    assert await follow(desk.run, drop(name)) == sum(there.keys.values()) + 1
    after = {key: desk.raw.dump(key) for key in lasting(desk)}
    desk.raw.delete(*theirs, *those_of(desk, *others))
    assert after.keys() == before.keys()
    assert after == before
    assert (await follow(desk.run, contents(name))).keys == {}
    assert await follow(desk.run, drop(name)) == 0


@pytest.mark.parametrize("name", ["", "a*", "a?", "[ab]", "a b", "{a", "a}", "a\\", "ä"])
async def test_an_invalid_name_is_refused_by_drop(desk, name):
    for plan in (contents(name), drop(name)):
        with pytest.raises(Invalid):
            await follow(desk.run, plan)


async def test_metadata_created_for_the_mark_has_the_partition_count_of_the_others(desk):
    """Otherwise a client with the right partition count would be refused if the drop were interrupted there."""
    first, second = bases = [keys.base(namespace(desk), partition) for partition in (0, 1)]
    for base in bases:
        await several(desk, base)
    desk.raw.hset(first, "partitions", 4)
    desk.raw.delete(second)
    made = []

    async def run(call):
        answer = await desk.run(call)
        made.append(desk.raw.hget(second, "partitions"))
        return answer

    await follow(run, drop(namespace(desk)))
    assert [*filter(None, made)][:1] == ["4"]


async def test_calls_during_a_drop_write_nothing(desk):
    """Between any two calls a client submits, claims and creates the namespace: no key stays behind."""
    name = namespace(desk)
    for partition in (0, 1):
        await several(desk, keys.base(name, partition))
    refused = 0

    async def run(call):
        nonlocal refused
        answer = await desk.run(call)
        if any(name.endswith(b"}") for name in deleted_by(call)):  # the drop mark, and a complete deletion
            return answer
        for other in (
            verbs.submit(desk.base, [Submission("new", "q", "t", "", b"{}")]),
            verbs.init(desk.base),
        ):
            try:
                await desk.run(other)
            except (WrongLayout, NoNamespace):
                refused += 1
        return answer

    await follow(run, drop(name))
    assert those_of(desk, name) == []
    assert refused >= 4


@pytest.mark.parametrize("last", [False, True])
async def test_a_delayed_drop_deletes_nothing_of_a_namespace_created_again(desk, last):
    """Before its first delete, or before its last, which deletes the mark: meanwhile another drop deletes
    everything, and jobs are submitted.
    """
    name = namespace(desk)
    await several(desk, desk.base)
    before = None

    async def run(call):
        nonlocal before
        names = deleted_by(call)
        if names and before is None and (names == [desk.base.encode()]) == last:
            await follow(desk.run, drop(name))
            assert those_of(desk, name) == []
            await several(desk, desk.base)
            before = desk.everything()
        return await desk.run(call)

    with pytest.raises(Changed, match="created again"):
        await follow(run, drop(name))
    assert desk.everything() == before
    await follow(desk.run, drop(name))
    assert those_of(desk, name) == []


async def test_a_partition_created_meanwhile_is_marked_before_its_keys_are_deleted(desk):
    name = namespace(desk)
    new = keys.base(name, 1)
    await several(desk, desk.base)
    made = False

    async def run(call):
        nonlocal made
        names = deleted_by(call)
        if names and not made:
            made = True
            await several(desk, new)
        if any(each.startswith(new.encode()) for each in names):
            assert desk.raw.hget(new, "layout") == "dropped"
        return await desk.run(call)

    await follow(run, drop(name))
    assert made
    assert those_of(desk, name) == []


async def test_only_keys_of_a_marked_namespace_are_deleted(desk):
    lease = await desk.running("a")
    job = keys.job(desk.base, "a")
    before = desk.everything()
    with pytest.raises(Changed, match="nothing more is deleted"):
        await desk.run(verbs.drop(desk.base, 0, [job]))
    assert desk.everything() == before
    assert await desk.run(verbs.drop(desk.base, 1)) == "dropped"
    before = desk.everything()
    for other in (keys.job(keys.base(namespace(desk), 1), "a"), f"{desk.base}x", "", lease.id):
        with pytest.raises(Invalid):
            await desk.run(verbs.drop(desk.base, 0, [job, other]))
    with pytest.raises(TooMany):
        await desk.run(verbs.drop(desk.base, 0, [job] * 1001))
    assert desk.everything() == before
    assert await desk.run(verbs.drop(desk.base, 0, [job, job])) == "deleted 1"
    desk.raw.hset(desk.base, "layout", "2")
    with pytest.raises(WrongLayout):
        await desk.run(verbs.drop(desk.base, 0, [desk.base]))


async def test_metadata_of_a_wrong_type_is_deleted_with_the_rest(desk):
    """No verb writes if the base is not a hash."""
    await several(desk, desk.base)
    desk.raw.delete(desk.base)
    desk.raw.set(desk.base, "foreign")
    assert await follow(desk.run, drop(namespace(desk))) > 5
    assert those_of(desk, namespace(desk)) == []


async def test_metadata_of_a_wrong_type_does_not_prevent_other_marks(desk):
    """A partition without metadata gets some for the mark, with the other partitions' count; a base that is
    not a hash is ignored.
    """
    name = namespace(desk)
    first, second = bases = [keys.base(name, partition) for partition in (0, 1)]
    for base in bases:
        await several(desk, base)
    desk.raw.delete(first, second)
    desk.raw.set(first, "foreign")
    assert list((await follow(desk.run, contents(name))).keys) == bases

    async def run(call):
        if any(each.startswith(second.encode()) for each in deleted_by(call)):
            assert desk.raw.hget(second, "layout") == "dropped"
        return await desk.run(call)

    await follow(run, drop(name))
    assert those_of(desk, name) == []


@pytest.mark.parametrize("spoiled", ["-5", "9" * 20, "many", "1.5", "inf"])
async def test_an_invalid_job_count_does_not_stop_a_drop(desk, spoiled):
    await several(desk, desk.base)
    desk.raw.hset(desk.base, "submitted", spoiled)
    await follow(desk.run, drop(namespace(desk)))
    assert those_of(desk, namespace(desk)) == []


async def test_in_a_cluster_the_partition_count_is_read_from_the_metadata(desk):
    """So no partition is left behind if this process is configured with fewer. The mark of the first one is deleted last."""
    name = namespace(desk)
    for partition in (0, 70):
        await several(desk, keys.base(name, partition))
        desk.raw.hset(keys.base(name, partition), "partitions", 71)
    desk.raw.set(keys.base(name, 3), "foreign")
    assert await follow(desk.run, widest(name, 1)) == 71
    assert await follow(desk.run, widest(name, 100)) == 100
    marks = []

    async def run(call):
        marks.extend(each for each in deleted_by(call) if each.endswith(b"}"))
        return await desk.run(call)

    await follow(run, drop(name, 71))
    assert marks == [keys.base(name, partition).encode() for partition in (70, 3, 0)]
    assert those_of(desk, name) == []


async def test_keys_without_a_valid_partition_number_are_kept(desk):
    name = namespace(desk)
    theirs = [f"{{{name}:{number}}}:x" for number in ("9" * 4301, "007", "00", "1000000")]
    for key in theirs:
        desk.raw.set(key, "foreign")
    await several(desk, keys.base(name, 999_999))
    assert list((await follow(desk.run, contents(name))).keys) == [desk.base, keys.base(name, 999_999)]
    await follow(desk.run, drop(name))
    assert sorted(those_of(desk, name)) == sorted(theirs)
    desk.raw.delete(*theirs)


@pytest.mark.parametrize("after", range(1, 11))
async def test_an_interrupted_drop_leaves_a_namespace_that_refuses_and_can_be_dropped(desk, after):
    name = namespace(desk)
    for partition in (0, 1):
        await several(desk, keys.base(name, partition))
    calls = 0

    class Killed(Exception):
        pass

    async def run(call):
        nonlocal calls
        calls += call.commands[0][0] != "SCAN"  # there are more of these if the server has more keys
        if calls > after + 3:
            raise Killed
        return await desk.run(call)

    try:
        await follow(run, drop(name))
    except Killed:
        for base in (keys.base(name, 0), keys.base(name, 1)):
            assert (
                desk.raw.hget(base, "layout") == "dropped"
                or calls < 7
                or not list(desk.raw.scan_iter(f"{base}*", 1000))
            )
    await follow(desk.run, drop(name))
    assert those_of(desk, name) == []


async def test_a_namespace_of_another_version_is_not_dropped(desk):
    await desk.submit("a")
    desk.raw.hset(desk.base, "layout", "0")
    before = desk.everything()
    with pytest.raises(WrongLayout):
        await follow(desk.run, drop(namespace(desk)))
    assert desk.everything() == before


@pytest.mark.real_server
async def test_a_drop_works_on_a_full_server(desk, place):
    if place.is_given:
        pytest.skip("SUBLET_TEST_REDIS_URL is a foreign server: the test must not change its memory limit")
    await several(desk, desk.base)
    await several(desk, keys.base(namespace(desk), 1))
    desk.raw.delete(keys.base(namespace(desk), 1))
    desk.raw.config_set("maxmemory", 1)
    try:
        await follow(desk.run, drop(namespace(desk)))
    finally:
        desk.raw.config_set("maxmemory", 0)
    assert those_of(desk, namespace(desk)) == []


async def test_in_a_cluster_each_partition_is_read_by_its_own_call(desk):
    """No node has all keys: each call names its partition, so that it is routed to the right node."""
    name = namespace(desk)
    for partition in (0, 1, 3, 12):
        await several(desk, keys.base(name, partition))
    desk.raw.delete(keys.base(name, 1))
    await several(desk, keys.base(f"{name}2"))

    async def run(call):
        assert call.tag.startswith(f"{{{name}:") or call.commands[0][0] == "TIME"
        return await desk.run(call)

    assert len((await follow(run, contents(name, 2))).keys) == 4
    assert await follow(run, drop(name, 2)) > 40
    assert those_of(desk, name) == []
    assert those_of(desk, f"{name}2")


@pytest.mark.real_server
async def test_no_step_deletes_more_than_a_thousand_keys(desk):
    for n in range(15):
        await desk.submit(*(f"{n}j{i}" for i in range(200)))
    sizes = []

    async def run(call):
        sizes.append(len(deleted_by(call)))
        assert call.commands[0][0] in ("SCAN", "HGET", "EVALSHA")
        return await desk.run(call)

    assert await follow(run, drop(namespace(desk))) == sum(sizes) > 3000
    assert max(sizes) <= 1000


# the command


@pytest.fixture
def own(shell):
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"], decode_responses=True) as client:
        yield client


@pytest.fixture
def name(shell):
    shell.ok("submit", "add", '{"a": 1}')
    shell.ok("submit", "add", '{"a": 2}', "--delay", "1h")
    return shell.env["SUBLET_NAMESPACE"]


def test_the_command_prints_the_deleted_counts(shell, name):
    done = shell.run("drop", name, "--yes", SUBLET_NAMESPACE="another")
    assert done.returncode == 0, done.stderr
    assert f"{name}: 1 scheduled, 1 queued; " in done.stderr
    assert "live workers: 0" in done.stderr
    assert done.stdout.startswith(f"dropped {name}: ")
    assert done.stdout.endswith("keys of 1 partition\n")
    again = shell.run("drop", name, "--yes")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"there is no namespace {name}: nothing was deleted" in again.stderr


def test_the_command_finds_all_partitions_with_any_configured_count(shell, own):
    """This holds also after an interrupted drop, and if a base is not a hash."""
    name = f"{shell.env['SUBLET_NAMESPACE']}x"
    for queue in "abcdefgh":
        shell.ok("submit", "add", "--queue", queue, SUBLET_NAMESPACE=name, SUBLET_PARTITIONS="4")
    own.hset(keys.base(name, 2), "layout", "dropped")
    own.delete(keys.base(name, 1))
    own.set(keys.base(name, 1), "foreign")
    own.zadd(keys.workers(keys.base(name)), {"w": float("inf")})
    done = shell.run("drop", name, "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("keys of 4 partitions\n")
    assert "queued (without 1 partition that cannot be read); " in done.stderr
    assert list(own.scan_iter(f"{{{name}:*", 1000)) == []


def test_the_command_reports_an_empty_namespace_as_no_jobs(shell):
    name = shell.env["SUBLET_NAMESPACE"]
    shell.ok("schedules", "add", "hourly", "add", "--cron", "@hourly")
    done = shell.run("drop", name, "--yes")
    assert (done.returncode, done.stderr.partition(";")[0]) == (0, f"{name}: no jobs")


def test_the_command_has_json_output(shell, name):
    done = shell.run("drop", name, "--yes", "--json")
    output = json.loads(done.stdout)
    assert (output["namespace"], output["partitions"], output["jobs"]["queued"]) == (name, 1, 1)
    assert output["deleted"] > 5


def test_without_a_terminal_a_drop_is_not_confirmed(shell, name):
    done = shell.run("drop", name, stdin=f"{name}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"drop {name} --yes" in done.stderr
    assert shell.json("stats")["states"]["queued"] == 1


def answer(shell, name, words):
    """Run the command on a terminal, and type this answer. Return its exit code and its output."""
    master, slave = pty.openpty()
    process = subprocess.Popen([*shell.command, "drop", name], cwd=shell.folder, env=shell.env, stdin=slave, stdout=slave,
                               stderr=slave)  # fmt: skip
    os.close(slave)
    shown = ""
    try:
        while True:
            shown += os.read(master, 10_000).decode()
            if words and f"({name}): " in shown:
                os.write(master, words.encode())
                words = ""
    except OSError:  # its end has been closed
        pass
    finally:
        os.close(master)
    return process.wait(30), shown


@pytest.mark.parametrize("words", ["yes\n", "\n", "another\n", "\x04"])
def test_on_a_terminal_the_command_asks_for_the_name(shell, name, words):
    code, shown = answer(shell, name, words)
    assert code == 1
    assert "nothing was deleted" in shown
    assert shell.json("stats")["states"]["queued"] == 1


def test_typing_the_name_confirms_a_drop(shell, name):
    code, shown = answer(shell, name, f"{name}\n")
    assert code == 0
    assert f"dropped {name}" in shown


def test_a_namespace_with_live_workers_is_dropped_only_with_force(shell, name):
    worker = shell.start("work", "tasks:app", "--name", "here")
    try:
        until(lambda: shell.json("workers") or worker.poll() is not None, "a worker")
        assert worker.poll() is None
        done = shell.run("drop", name, "--yes")
        assert done.returncode == 1
        assert "1 worker is alive" in done.stderr
        assert "here" in done.stderr
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.communicate(timeout=30)
    assert shell.run("drop", name, "--yes").returncode == 1
    assert shell.run("drop", name, "--yes", "--force").returncode == 0
