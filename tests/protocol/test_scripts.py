"""Script calls: by SHA, with the text if the server does not have the script; and the exceptions for refusals."""

import asyncio

import pytest
import redis

from sublet.connection.transport import SyncTransport
from sublet.errors import REFUSALS, Demoted, Forbidden, Moved, NotFound, Unavailable, Unfit
from sublet.model import Submission, Submitted
from sublet.protocol import verbs
from sublet.protocol.scripts import NAMES, Call, refusal, script


@pytest.fixture(params=["async", "sync"])
def run(request, place, desk):
    """Sends a call with either transport."""
    if request.param == "async":
        yield desk.run
        return
    transport = SyncTransport(place.settings, place.sync_client())

    async def run_sync(call):
        return await asyncio.to_thread(transport.run, call)

    yield run_sync
    transport.close()


def job(job_id):
    return Submission(job_id, "q", "t", "", b"{}")


async def test_a_server_without_the_scripts_gets_them_again(run, desk):
    await run(verbs.submit(desk.base, [job("a")]))
    desk.raw.script_flush()
    assert await run(verbs.submit(desk.base, [job("b")])) == [Submitted("b", True)]
    claimed = await run(verbs.claim(desk.base, claim_id="c" * 22, worker="w", lease=30, n=5, queues=["q"]))
    assert [lease.id for lease in claimed.leases] == ["a", "b"]


async def test_a_loaded_script_is_called_by_its_sha_only(run, desk):
    await run(verbs.reap(desk.base, limit=1, by="w"))
    assert desk.raw.script_exists(script("reap").sha) == [True]
    assert (
        await run(
            Call(verbs.reap(desk.base, limit=1, by="w").commands, len, text="error('the text was sent')")
        )
        == 6
    )


async def test_of_two_calls_in_one_round_trip_only_the_unknown_one_is_sent_again(desk):
    await desk.submit("a")
    desk.raw.script_flush()
    await desk.submit("b")
    submitted, claimed = await asyncio.gather(desk.submit("c"), desk.ask(5))
    assert submitted == [Submitted("c", True)]
    assert [lease.id for lease in claimed.leases] == ["a", "b", "c"]
    assert desk.counter("submitted") == 3


async def test_a_refusal_in_a_shared_round_trip_reaches_only_its_caller(desk):
    await desk.submit("a")
    answers = await asyncio.gather(
        desk.submit("b"),
        desk.operate("cancel", "nobody"),
        desk.claim(-1),
        desk.submit("c"),
        return_exceptions=True,
    )
    assert answers[0] == [Submitted("b", True)]
    assert isinstance(answers[1], NotFound)
    assert type(answers[2]) is REFUSALS["TOO_MANY"]
    assert answers[3] == [Submitted("c", True)]


async def test_a_cancelled_call_does_not_cancel_others_of_its_packet(desk):
    leaving, staying = asyncio.create_task(desk.submit("a")), asyncio.create_task(desk.submit("b"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == [Submitted("b", True)]
    assert leaving.cancelled()


async def test_many_calls_at_once_are_all_answered(desk):
    answers = await asyncio.gather(*(desk.submit(f"j{i}") for i in range(300)))
    assert [answer for (answer,) in answers] == [Submitted(f"j{i}", True) for i in range(300)]
    assert len(desk.members("queue:q")) == 300


async def test_a_refusal_is_raised_with_the_text_of_redis(run, desk):
    with pytest.raises(NotFound) as caught:
        await run(verbs.cancel(desk.base, "nobody", 0))
    assert (caught.value.code, str(caught.value)) == (
        "NOT_FOUND",
        "no job nobody: it never existed, or was deleted (retention, erase)",
    )


async def test_an_error_outside_the_scripts_stays_an_error_of_redis(run, desk):
    with pytest.raises(redis.ResponseError, match="not an integer"):
        await run(Call((("HINCRBY", desk.base, "layout", "x"),), int))


async def test_a_key_of_a_wrong_type_is_a_clear_error(run, desk):
    desk.raw.set(f"{desk.base}:running", "no sorted set")
    with pytest.raises(Unfit, match=r"a key of this namespace has a wrong type.*\(WRONGTYPE\)"):
        await run(verbs.reap(desk.base, limit=1, by="w"))


async def test_several_reads_are_of_the_same_moment(run, desk):
    both = Call((("HGET", desk.base, "layout"), ("ZCARD", f"{desk.base}:running")), tuple)
    assert await run(both) == (b"1", 0)


@pytest.mark.parametrize("code", REFUSALS)
def test_every_code_raises_its_exception(code):
    error = refusal(f"{code} some words")
    assert type(error) is REFUSALS[code]
    assert error.code == code
    assert ("some words" in str(error)) is (code != "OOM"), "a full Redis has our own message"


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", REFUSALS["OOM"], "maxmemory"),
        ("LOADING Redis is loading the dataset in memory", Unavailable, "cannot serve now"),
        ("READONLY You can't write against a read only replica.", Demoted, "cannot serve now"),
        ("CLUSTERDOWN The cluster is down", Demoted, "cannot serve now"),
        ("MOVED 1 127.0.0.1:7000", Moved, "use redis+cluster://"),
        ("BUSY Redis is busy running a script.", Unavailable, "cannot serve now"),
        ("MISCONF Redis is configured to save RDB snapshots", Unavailable, "cannot serve now"),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable, "cannot serve now"),
        ("NOAUTH Authentication required.", Unavailable, "user and password"),
        ("Protocol error: unauthenticated multibulk length", Unavailable, "user and password"),
        ("Protocol error: unauthenticated bulk length", Unavailable, "user and password"),
        ("NOPERM this user has no permissions", Forbidden, "change its rights"),
        ("ERR unknown command 'EVALSHA'", Unfit, "Redis 7.0 or newer, or Valkey"),
    ],
)
def test_refusals_of_redis_get_messages_for_operators(message, kind, words):
    error = refusal(message)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize("message", ["ERR value is not an integer", "something else", ""])
def test_an_unknown_code_is_not_a_refusal(message):
    assert refusal(message) is None


@pytest.mark.parametrize("name", NAMES)
async def test_every_script_runs_by_its_sha_on_every_server(desk, name):
    text = script(name).text
    assert desk.raw.script_load(text) == script(name).sha
