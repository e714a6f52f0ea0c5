"""submit: store jobs, queued or scheduled."""

import pytest

from sublet.errors import Invalid, TooMany
from sublet.model import Submission, Submitted
from sublet.protocol import keys, reads, verbs


def created(*ids):
    return [Submitted(i, True) for i in ids]


def exists(*ids):
    return [Submitted(i, False) for i in ids]


# what is stored


async def test_a_pending_job_is_its_state_and_one_string(desk):
    assert await desk.submit("a", payload=b'{"x": 1}') == created("a")
    assert desk.state("a") == "queued"
    job = desk.job("a")
    at = job["spec"].split("\n")[0].split(" ")[2]
    assert job == {"state": "queued", "spec": f'q t {at}\n{{"x": 1}}'}
    assert abs(int(at) - desk.now()) < 5000


async def test_an_ordinary_header_is_as_short_as_promised(desk):
    await desk.submit("a", queue="default", task="send_welcome_email_to_user")
    header = desk.job("a")["spec"].split("\n")[0]
    assert len(header) + 1 == len("default send_welcome_email_to_user ") + 13 + 1
    assert len(header) + 1 <= 52


async def test_rules_are_kept_in_the_header(desk):
    await desk.submit("a", rules="priority=5 tries=7 timeout=none retention=90000 backoff=1:2.5:3 key=k")
    assert (
        desk.job("a")["spec"]
        .split("\n")[0]
        .endswith(" priority=5 tries=7 timeout=none retention=90000 backoff=1:2.5:3 key=k")
    )


@pytest.mark.parametrize("size", [0, 1024, 1025, 256 * 1024])
async def test_a_payload_over_1_kib_is_a_field_of_its_own(desk, size):
    await desk.submit("a", payload=b"x" * size)
    job = desk.job("a")
    assert set(job) == ({"state", "spec", "payload"} if size > 1024 else {"state", "spec"})
    assert (await desk.take("a")).payload == b"x" * size


@pytest.mark.parametrize(
    "payload", [b"", b"\n", b"a\nb\n", b"\x00\xff\xfe \r\n", "“ünïcode”".encode(), b"\n" * 1025]
)
async def test_a_payload_is_opaque_bytes(desk, transport, payload):
    await transport.run(verbs.submit(desk.base, [Submission("a", "q", "t", "", payload)]))
    assert (await desk.take("a")).payload == payload


async def test_the_queue_is_listed_once_it_had_a_job(desk):
    await desk.submit("a", queue="one")
    await desk.submit("b", queue="two", rules="delay=1000")
    assert sorted(desk.raw.hkeys(keys.queues(desk.base))) == ["one", "two"]


async def test_submits_are_counted(desk):
    await desk.submit("a", "b")
    await desk.submit("b", "c")
    assert desk.counter("submitted") == 3


# order


async def test_first_come_first_served(desk):
    await desk.submit("a", "b", "c")
    await desk.submit("d")
    assert [lease.id for lease in await desk.claim(4)] == ["a", "b", "c", "d"]


async def test_higher_priority_goes_first_and_is_fifo_inside(desk):
    for job_id, priority in [("a", 0), ("low", -100), ("b", 0), ("c", 1), ("top", 100), ("d", 1)]:
        await desk.submit(job_id, rules=f"priority={priority}")
    assert [lease.id for lease in await desk.claim(6)] == ["top", "c", "d", "a", "b", "low"]


async def test_priority_holds_across_one_batch(desk):
    jobs = [Submission(f"p{p}", "q", "t", f"priority={p}", b"") for p in (-1, 0, 1)]
    await desk.run(verbs.submit(desk.base, jobs))
    assert desk.members("queue:q") == ["p1", "p0", "p-1"]


# delays


async def test_a_delayed_job_waits_in_scheduled_until_it_is_due(desk):
    await desk.submit("a", rules="delay=10000")
    assert desk.state("a") == "scheduled"
    at = int(desk.job("a")["spec"].split(" ")[2])
    assert desk.score("scheduled", "a") == at + 10000
    desk.elapse(9)
    assert await desk.claim() == []
    desk.elapse(1)
    assert (await desk.take("a")).attempt == 1


async def test_a_job_with_a_due_time_waits_for_it(desk):
    moment = desk.now() + 60_000
    await desk.submit("a", rules=f"at={moment}")
    assert desk.score("scheduled", "a") == moment


@pytest.mark.parametrize("rules", ["delay=0", "at=0", "at=1600000000000"])
async def test_a_due_time_in_the_past_means_now(desk, rules):
    await desk.submit("a", rules=rules)
    assert desk.state("a") == "queued"


# refusals


@pytest.mark.parametrize(
    "names",
    [
        ("", "q", "t"), ("a b", "q", "t"), ("a", "q{x}", "t"), ("a", "", "t"), ("a", "q", "t\n"), ("a", "q", "é"),
        ("x" * 65, "q", "t"), ("a", "q" * 129, "t"), ("a", "q", "t" * 129),
    ],
)  # fmt: skip
async def test_an_invalid_name_is_refused(desk, names):
    before = desk.everything()
    (answer,) = await desk.run(verbs.submit(desk.base, [Submission(*names, "", b"")]))
    assert str(answer).startswith("INVALID names must be ")
    assert desk.everything() == before


async def test_the_submitters_trace_is_passed_to_every_attempt(desk):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await desk.submit("a", rules=f"tries=2 trace={trace} timeout=5000")
    await desk.submit("b")
    a, b = await desk.claim(2)
    assert ((a.trace, a.timeout_ms), (b.trace, b.timeout_ms)) == ((trace, 5000), ("", 300_000))
    await desk.release(a)
    assert (await desk.take("a")).trace == trace
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.trace, (await desk.run(reads.get(desk.base, "b"))).trace) == (trace, None)


async def test_tags_may_be_longer_together_than_another_rule(desk):
    tags = [letter * 64 for letter in "abcde"]
    await desk.submit("a", rules=f"tags={','.join(tags)} tries=2")
    lease = await desk.take("a")
    assert (lease.tags, lease.max_attempts) == (tuple(tags), 2)
    assert (await desk.run(reads.get(desk.base, "a"))).tags == tuple(tags)


@pytest.mark.parametrize(
    "rules",
    [
        "unknown=1", "delay", "delay=", "=5", "delay=-1", "delay=1.5", "delay=soon", "at=-5", "priority=x", "priority=101",
        "priority=-101", "priority=999", "tries=0", "tries=-1", "timeout=never", "timeout=-1", "retention=none",
        "backoff=1", "backoff=1:2", "backoff=a:b:c", "backoff=1:-2:3", "window=0 key=k", "window=x key=k",
        "window=99999999999999999999 key=k", "delay=5 ; tries=2",
        "tags=", "tags=a,", "tags=,a", "tags=a,,b", "tags=a,b,a", "tags=a,b,c,d,e,f", "tags=a/b", "tags=" + "t" * 65,
        "trace=", "trace=no-trace", "trace=-00", "trace=00-ab cd", "trace=" + "0" * 129,
    ],
)  # fmt: skip
async def test_an_invalid_rule_is_refused(desk, rules):
    before = desk.everything()
    (answer,) = await desk.submit("a", rules=rules)
    assert isinstance(answer, str), answer
    assert answer.startswith("INVALID rule ")
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("rules", "advice"),
    [
        ("delay", "use name=value, the name one of priority delay at key window tries"),
        ("colour=red", "use name=value, the name one of priority delay at key window tries"),
        ("priority=101", "use -100 to 100"),
        ("tries=0", "use a number from 1, at most 14 digits"),
        ("delay=soon", "use ms, at most 14 digits"),
        ("tries=2 tries=2", "give it once"),
        ("key=" + "k" * 129, "use 1 to 128 of ! to ~"),
        (
            "tags=a,a",
            "use 1 to 5 different ones, each 1 to 64 of A-Z a-z 0-9 _ . : -, but not . or .. alone, with commas in between",
        ),
    ],
)
async def test_the_refusal_of_a_rule_states_the_allowed_values(desk, rules, advice):
    (answer,) = await desk.submit("a", rules=rules)
    assert answer.startswith(f"INVALID rule {rules.rpartition(' ')[2][:80]}: {advice}")


@pytest.mark.parametrize(
    "rules",
    [
        "tries=5\npriority=1",
        "tries=5\n",
        "\ntries=5",
        "tries=5  priority=1",
        " tries=5",
        "tries=5\tpriority=1",
    ],
)
async def test_unusual_whitespace_between_rules_is_not_stored(desk, store, rules):
    (answer,) = await desk.submit("a", rules=rules, payload=b'{"x": 1}')
    if isinstance(answer, Submitted):
        job = await store.follow(store.operations.get("a"))
        assert (job.max_attempts, job.payload) == (5, {"x": 1})
        assert (await desk.take("a")).payload == b'{"x": 1}'
    else:
        assert answer.startswith("INVALID ")


async def test_a_call_takes_at_most_200_jobs(desk):
    with pytest.raises(TooMany, match="201 items"):
        await desk.submit(*(f"j{i}" for i in range(201)))
    assert desk.everything() == {desk.base: {"layout": "1", "partitions": "1"}}
    assert len(await desk.submit(*(f"j{i}" for i in range(200)))) == 200
    assert desk.members("queue:q") == [f"j{i}" for i in range(200)]


async def test_a_submit_without_jobs_succeeds(desk):
    assert await desk.submit() == []


# events and wake-ups


async def test_a_queue_has_at_most_one_wake_up(desk):
    await desk.submit("a", "b")
    await desk.submit("c")
    assert desk.wake_ups() == 1


async def test_each_queue_gets_its_own_wake_up(desk):
    await desk.run(verbs.submit(desk.base, [Submission(q, q, "t", "", b"") for q in ("one", "two")]))
    assert (desk.wake_ups("one"), desk.wake_ups("two")) == (1, 1)


async def test_a_scheduled_job_wakes_a_worker_only_if_it_is_the_next_one_due(desk):
    await desk.submit("a", rules="delay=5000")
    assert desk.wake_ups() == 1
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.submit("later", rules="delay=6000")
    assert desk.wake_ups() == 0
    await desk.submit("sooner", rules="delay=4000")
    assert desk.wake_ups() == 1


async def test_an_entry_of_the_stream_lists_up_to_ten_jobs(desk):
    await desk.submit(*(f"j{i}" for i in range(12)))
    await desk.submit("late", rules="delay=1000")
    assert desk.events() == [
        (" ".join(f"j{i}" for i in range(10)), "queued", "submitted"),
        ("j10 j11", "queued", "submitted"),
        ("late", "scheduled", "submitted"),
    ]


async def test_the_stream_is_capped(desk):
    with desk.raw.pipeline(transaction=False) as pipe:
        for _ in range(10_500):
            pipe.execute_command(
                "XADD", keys.events(desk.base), "*", "jobs", "a", "state", "queued", "code", "submitted"
            )
        pipe.execute()
    await desk.submit("a")
    assert 10_000 <= desk.raw.xlen(keys.events(desk.base)) <= 10_100


# the store


async def test_a_store_splits_a_large_submit_into_calls(store, raw, base):
    jobs = [store.operations.submission("t", b"{}", "q", "", f"0-{i:03}") for i in range(450)]
    assert [s.id for s in await store.submit(jobs)] == [f"0-{i:03}" for i in range(450)]
    assert not any(s.created for s in await store.submit(jobs))
    assert raw.zrange(keys.queue(base, "q"), 0, -1) == [f"0-{i:03}" for i in range(450)]


async def test_a_store_sends_at_most_512_kib_in_one_call(store):
    jobs = [store.operations.submission("t", b"x" * 200_000, "q", "") for _ in range(12)]
    sizes = [sum(len(job.payload) for job in batch) for _, batch in store.operations._batches(jobs, 1)]
    assert sizes == [400_000] * 6
    assert all(s.created for s in await store.submit(jobs))


async def test_a_store_raises_invalid_for_a_refused_item(store):
    with pytest.raises(Invalid, match=r"^rule nonsense=1: use name=value.* known; refused: job x of task t$"):
        await store.submit([Submission("x", "q", "t", "nonsense=1", b"")])


async def test_a_store_refuses_invalid_jobs_before_they_are_sent(store):
    with pytest.raises(Invalid, match="task 'no good'"):
        store.operations.submission("no good", b"{}", "q", "")
    with pytest.raises(Invalid, match="262,145 bytes"):
        store.operations.submission("t", b"x" * (256 * 1024 + 1), "q", "")
    with pytest.raises(Invalid, match="id "):
        store.operations.submission("t", b"{}", "q", "", "x" * 63)
