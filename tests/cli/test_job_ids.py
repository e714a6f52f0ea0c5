"""`get`, `cancel`, `retry` and `promote` take the unique end of an id."""

import json

import pytest
import redis

from sublet.cli.jobs.ids import IdFinder
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, NotFound
from sublet.operations.id_search import COMPARED
from sublet.protocol import keys

pytest_plugins = ["tests.support.command_line"]


def test_a_job_is_found_by_the_end_of_its_id(shell):
    job_id = shell.ok("submit", "add")
    shell.ok("submit", "add")
    assert shell.json("get", job_id[-6:])["id"] == job_id
    assert shell.ok("get", f"…{job_id[-11:]}").startswith(f"{job_id}   queued"), "as a worker prints it"
    assert shell.json("get", f"...{job_id[-11:]}")["id"] == job_id
    assert shell.json("get", job_id[-11:].lower())["id"] == job_id


def test_the_case_of_an_own_id_matters(shell):
    shell.ok("submit", "add", "--id", "an-ORDER-7")
    assert shell.json("get", "ORDER-7")["id"] == "0-an-ORDER-7"
    assert "no job" in shell.no(1, "get", "order-7")


def test_verbs_take_the_ends_of_ids_and_answer_with_whole_ids(shell):
    later, now = shell.ok("submit", "add", "--delay", "1h"), shell.ok("submit", "add")
    assert shell.json("promote", later[-8:]) == [{"id": later, "answer": "queued"}]
    both = [{"id": later, "answer": "cancelled"}, {"id": now, "answer": "cancelled"}]
    assert shell.json("cancel", later[-8:], f"…{now[-8:]}") == both
    assert shell.ok("retry", now[-8:]).splitlines()[1] == f"{now}  queued"


def test_an_own_id_needs_no_partition(shell):
    for own in ("order-7", "my-order-7", "9"):
        shell.ok("submit", "add", "--id", own)
    assert shell.json("get", "order-7")["id"] == "0-order-7"
    assert shell.json("cancel", "9") == [{"id": "0-9", "answer": "cancelled"}]


def test_an_end_of_several_ids_is_refused_and_changes_nothing(shell):
    for own in ("a-order", "b-order", "c-order", "d-order"):
        shell.ok("submit", "add", "--id", own)
    words = "4 ids end in order: 0-a-order, 0-b-order, 0-c-order and 1 more; write more of the id"
    assert shell.no(2, "get", "order") == words
    done = shell.run("cancel", "order", "a-order", "--json")
    refused, cancelled = json.loads(done.stdout)
    assert (done.returncode, refused) == (1, {"id": "order", "error": "INVALID", "message": words})
    assert cancelled == {"id": "0-a-order", "answer": "cancelled"}
    assert shell.json("stats")["states"]["queued"] == 3


def test_an_end_names_only_jobs_that_the_verb_can_change(shell):
    for own in ("a-order", "b-order"):
        shell.ok("submit", "add", "--id", own)
    shell.ok("cancel", "a-order")
    assert shell.json("cancel", "order") == [{"id": "0-b-order", "answer": "cancelled"}]
    assert shell.run("promote", "order").stdout.endswith("erase); no scheduled job's id ends so\n")


def test_an_end_that_is_not_found_or_too_short_is_named(shell):
    job_id = shell.ok("submit", "add")
    gone = "no job {}: it never existed, or was deleted (retention, erase); {}"
    assert shell.no(1, "get", "nowhere") == gone.format("nowhere", "no job's id ends so")
    short = gone.format(job_id[-3:], "write at least 4 characters of the end of an id")
    assert shell.no(1, "get", job_id[-3:]) == short


def test_only_the_last_jobs_of_each_state_and_queue_are_compared(shell):
    first = shell.ok("submit", "add")
    with SyncClient(Settings.read(shell.env["SUBLET_REDIS_URL"], shell.env["SUBLET_NAMESPACE"])) as client:
        make = client.store.operations.submission
        client.submit_all([make("add", b"{}", "default", "", f"{n}-in-between") for n in range(COMPARED - 1)])
        last = client.submit("add").id
    bound = "among the last 1,000 of each state and queue"
    assert shell.no(1, "get", first[-11:]).endswith(f"no job's id ends so {bound}")
    assert shell.no(2, "get", last[-10:]).startswith(
        f"{last} ends in {last[-10:]}, but only the last 1,000 jobs"
    )
    assert shell.json("get", last[-11:])["id"] == last
    assert shell.json("get", "7-in-between")["id"] == "0-7-in-between", "an own id needs no search"
    assert shell.json("get", first)["id"] == first


def test_all_partitions_are_searched(shell):
    env = {"SUBLET_PARTITIONS": "4"}
    ids = [shell.ok("submit", "add", "--queue", f"q{n}", **env) for n in range(6)]
    assert len({job_id.partition("-")[0] for job_id in ids}) > 1
    assert [shell.json("get", job_id[-8:], **env)["id"] for job_id in ids] == ids
    said = "(there already: .+\n)?"
    own = {
        shell.ok("submit", "add", "--id", "order-7", "--queue", f"q{n}", said=said, **env) for n in range(6)
    }
    error = shell.no(2, "get", "order-7", **env)
    assert error.startswith(f"{len(own)} ids end in order-7: ")


def test_an_end_that_may_name_another_job_is_refused(shell):
    """Several jobs have it; or not all jobs were compared, and it is short."""
    own, missing = [*(f"{n:03}-here" for n in range(COMPARED)), "a-long-way-off"], NotFound("no job")
    with SyncClient(Settings.read(shell.env["SUBLET_REDIS_URL"], shell.env["SUBLET_NAMESPACE"])) as client:
        make = client.store.operations.submission
        client.submit_all([make("add", b"{}", "default", "", one) for one in own])
        finder = IdFinder(client)
        assert finder.find("long-way-off", missing) == "0-a-long-way-off"
        with pytest.raises(Invalid, match="10 ids end in 99-here: 0-099-here, "):
            finder.find("99-here", missing)
        with pytest.raises(Invalid, match="0-a-long-way-off ends in way-off, but only the last 1,000 jobs"):
            finder.find("way-off", missing)


@pytest.fixture
def server(shell):
    with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"], decode_responses=True) as server:
        yield server


@pytest.mark.parametrize("own", ["order-7", None])
def test_a_job_whose_hash_is_gone_is_called_inconsistent(shell, server, own):
    """By its id, by the own id, and by the end of a generated one."""
    job_id = shell.ok("submit", "add", *(("--id", own) if own else ()))
    server.delete(keys.job(keys.base(shell.env["SUBLET_NAMESPACE"]), job_id))
    words = f"the data of job {job_id} are inconsistent: queue:default contains its id, but its hash is missing: sublet doctor --repair removes the id"
    assert shell.no(1, "get", job_id) == words
    assert shell.no(1, "get", own or job_id[-8:]) == words
    (answer,) = json.loads(shell.run("cancel", job_id, "--json").stdout)
    assert answer == {"id": job_id, "error": "NOT_FOUND", "message": words}
    shell.json("doctor", "--repair")
    assert shell.no(1, "get", job_id).startswith(f"no job {job_id}: it never existed")


@pytest.mark.parametrize("state", ["foo", None])
def test_a_job_whose_state_is_broken_is_called_malformed(shell, server, state):
    """Also by its own id, when no state or queue contains it."""
    base, job_id = keys.base(shell.env["SUBLET_NAMESPACE"]), shell.ok("submit", "add", "--id", "order-7")
    server.zrem(keys.queue(base, "default"), job_id)
    server.hset(keys.job(base, job_id), "state", state) if state else server.hdel(
        keys.job(base, job_id), "state"
    )
    for word in (job_id, "order-7"):
        refusal = shell.no(3, "get", word)
        assert refusal.startswith(f"a field of job {job_id} is malformed, so another program wrote to it (")
        assert refusal.endswith(
            f"look at it with HGETALL {keys.job(base, job_id)}, and correct or delete that field"
        )
