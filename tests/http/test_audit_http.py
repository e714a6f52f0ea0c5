"""`GET /audit`, `sublet audit` and `client.audit()`: who ordered what."""

from unittest.mock import Mock

import pytest

from sublet import Client, Invalid, Options, State, Unavailable
from sublet.operations.orders import bulk
from sublet.operations.orders.bulk import Selection
from sublet.protocol import keys, verbs
from sublet.protocol.person import acting_for
from sublet.protocol.scripts import Call
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker

pytest_plugins = [
    "tests.support.http_settings",
    "tests.support.api_fixtures",
    "tests.support.command_line",
]
BOSS, IN, PROGRAM = "secret-of-boss-01234567", "secret-of-in-0123456789", "secret-of-program-0123456"


@pytest.fixture
async def client(settings):
    async with Client(settings) as client:
        yield client


@pytest.fixture
async def core(client):
    eye = "eye:read:secret-of-eye-01234567"
    api = Api(client.store, Tokens(f"boss:admin:{BOSS} in:admin@a:{IN} {eye} program:submit:{PROGRAM}"))
    core = asker(api)
    return lambda *words, token=BOSS: core(*words, token=token)


def entries(page):
    return [(one["by"], one["verb"], one["what"], one["queue"], one["outcome"]) for one in page["entries"]]


async def test_orders_over_http_have_the_name_of_the_token(client, core):
    jobs = [(await client.submit("t", {"secret": 1}, job_id=f"0-{n}")).id for n in range(3)]
    schedule = {"task": "t", "every": 60, "payload": {"secret": 1}}
    assert (await core("POST", "/jobs/0/cancel")).status == 200  # found by its own id
    await core("POST", "/jobs/cancel", {"filter": {"task": "t"}, "dry_run": True})
    await core("POST", "/jobs/cancel", {"filter": {"task": "t", "message": None}})
    await core("POST", f"/jobs/{jobs[0]}/retry")
    await core("POST", f"/jobs/{jobs[0]}/reschedule", {"run_at": "2030-01-31T09:00:00Z", "priority": 5})
    await core("PATCH", "/queues/default", {"paused": True, "limits": {"jobs": 5}})
    await core("PUT", "/schedules/s", schedule)
    await core("PUT", "/schedules/s", schedule)  # nothing changes
    ran = (await core("POST", "/schedules/s/run")).json()["id"]
    await core("POST", "/schedules/s/pause")
    await core("DELETE", "/schedules/s")
    for put in (
        {"queues": ["default"], "max": 2},
        {"queues": ["default"], "max": 2},
    ):  # the second changes nothing
        await core("PUT", "/pools/p", put)
    await core("DELETE", "/pools/p")
    await core("DELETE", "/pools/p")
    assert (await core("POST", f"/jobs/{jobs[1]}/promote")).status == 409
    page = (await core("GET", "/audit")).json()
    assert entries(page) == [
        ("boss", *rest)
        for rest in (
            ("pool-remove", "p", "", "removed"),
            ("pool-put", "p", "", "created: queues=default max=2"),
            ("schedule-remove", "s", "default", "removed"),
            ("schedule-pause", "s", "default", "paused"),
            ("schedule-run", "s", "default", f"submitted {ran}"),
            ("schedule-put", "s", "default", "created: task t"),
            ("pause", "default", "default", "paused"),
            ("configure", "default", "default", "jobs=5"),
            ("reschedule", "0-0", "default", "scheduled 2030-01-31T09:00:00Z priority=5"),
            ("retry", "0-0", "default", "queued"),
            ("cancel", "task=t", "", "cancelled 2 of 2"),
            ("cancel", "0-0", "default", "cancelled"),
        )
    ]
    assert "secret" not in repr(page)


async def test_the_audit_has_pages_and_only_admins_see_it(client, core):
    for n in range(5):
        await core("PATCH", "/queues/a", {"paused": n % 2 == 0})
    await core("PATCH", "/queues/b", {"paused": True})
    seen, cursor = [], ""
    while not seen or cursor:
        page = (await core("GET", f"/audit?limit=2{cursor and '&cursor='}{cursor}")).json()
        seen += entries(page)
        cursor = page["cursor"] or ""
    assert seen == entries((await core("GET", "/audit")).json())
    assert len(seen) == 6
    assert {one[3] for one in entries((await core("GET", "/audit", token=IN)).json())} == {"a"}
    assert (await core("GET", "/audit", token="secret-of-eye-01234567")).status == 403
    assert (await core("GET", "/audit?cursor=nonsense")).status == 422


async def test_entries_of_several_partitions_are_in_order(settings, raw):
    from dataclasses import replace

    async with Client(replace(settings, partitions=3)) as client:
        with acting_for("anna"):
            for n in range(12):
                await client.pause(f"q{n}")
        seen, cursor = [], None
        while not seen or cursor:
            page = await client.audit(5, cursor)
            seen += page.entries
            cursor = page.cursor
        assert sorted(one.what for one in seen) == sorted(f"q{n}" for n in range(12))
        assert [one.at for one in seen] == sorted((one.at for one in seen), reverse=True)


async def test_a_program_leaves_no_entry_and_a_page_of_orders_one(client):
    for n in range(3):
        await client.submit("t", job_id=f"0-{n}")
    await client.cancel("0-0")
    assert (await client.audit()).entries == ()
    with acting_for("anna"):
        await client.order_page("cancel", Selection(queue="default", message=None))
    (entry,) = (await client.audit()).entries
    assert (entry.by, entry.what, entry.queue, entry.outcome) == (
        "anna",
        "queue=default",
        "default",
        "cancelled 2 of 2",
    )


async def test_a_signal_is_an_order_if_an_admin_sends_it(core):
    for job in ("a", "b"):
        await core("POST", "/jobs", {"task": "t", "id": f"0-{job}"})
    signal = {"name": "go", "value": {"secret": 1}}
    assert (await core("POST", "/jobs/0-a/signal", signal)).status == 200
    assert (await core("POST", "/jobs/0-b/signal", signal, token=PROGRAM)).status == 200
    page = (await core("GET", "/audit")).json()
    assert entries(page) == [("boss", "signal", "0-a", "default", "kept")]
    assert "secret" not in repr(page)


async def test_the_audit_says_how_many_of_a_page_were_refused(client):
    for n in range(3):
        await client.submit("t", {}, Options(key=f"k{n}"), job_id=f"0-{n}")
        await client.cancel(f"0-{n}")
    await client.submit("t", {}, Options(key="k1"), job_id="0-other")  # it holds the key of one of them
    with acting_for("anna"):
        await client.order_page("retry", Selection(state=State.CANCELLED))
    (entry,) = (await client.audit()).entries
    assert (entry.verb, entry.outcome) == ("retry", "queued 2 of 3; refused 1")


async def test_an_order_of_several_pages_is_one_entry(client):
    for n in range(450):
        await client.submit("t", {}, Options(key=f"k{n}"), job_id=f"0-{n}")
    with acting_for("anna"):
        cursor, outcomes = None, []
        while not outcomes or cursor:
            page = await client.order_page("cancel", Selection(queue="default"), cursor=cursor)
            cursor = page.cursor
            outcomes += [one.outcome for one in (await client.audit()).entries]
        await client.submit("t", {}, Options(key="k1"), job_id="0-other")
        await client.submit("t", {}, Options(key="k449"), job_id="0-another")
        cursor = None
        for _ in range(3):
            cursor = (
                await client.order_page("retry", Selection(state=State.CANCELLED), cursor=cursor)
            ).cursor
    assert outcomes == [
        "cancelled 200 of 200; not finished",
        "cancelled 400 of 400; not finished",
        "cancelled 450 of 450",
    ]
    second, first = (await client.audit()).entries
    assert (first.verb, second.verb, second.outcome) == ("cancel", "retry", "queued 448 of 450; refused 2")


async def test_an_order_that_is_cut_off_says_how_far_it_came(client, monkeypatch):
    for n in range(250):
        await client.submit("t", job_id=f"0-{n}")
    with acting_for("anna"):
        page = await client.order_page("cancel", Selection())
        monkeypatch.setitem(bulk.VERBS, "cancel", Mock(side_effect=Unavailable("gone")))
        with pytest.raises(Unavailable):
            await client.order_page("cancel", Selection(), cursor=page.cursor)
        (entry,) = (await client.audit()).entries
        assert entry.outcome == "cancelled 200 of 250; not finished; 50 more found"
        monkeypatch.undo()
        await client.order_page("cancel", Selection(), cursor=page.cursor)
    (entry,) = (await client.audit()).entries
    assert entry.outcome == "cancelled 250 of 250"


async def test_of_two_orders_at_once_the_audit_has_what_each_asked_for_and_did(client):
    async def page(cursor=None):
        how = {"expected": 450, "counted_at": counted.counted_at, "cursor": cursor}
        return (await client.order_page("cancel", Selection(queue="default"), **how)).cursor

    for n in range(450):
        await client.submit("t", job_id=f"0-{n}")
    counted = await client.order_page("cancel", Selection(queue="default"), dry_run=True)
    with acting_for("anna"):
        first = await page()
    with acting_for("ben"):
        assert not await page(await page())
        assert await page(None) is None
    with acting_for("anna"):
        assert not await page(first)
    entries = [(one.by, one.outcome) for one in (await client.audit()).entries]
    assert entries == [
        ("anna", "cancelled 200 of 450; skipped 250"),
        ("ben", "done 0 of 450; skipped 450"),
        ("ben", "cancelled 250 of 450; skipped 200"),
    ]


async def test_an_order_goes_on_where_it_was_though_another_took_jobs_of_its_page(client, monkeypatch):
    real, taken = bulk._give, []

    def give(order, jobs, order_id):
        for job in () if taken else jobs[:100]:
            taken.append(
                (yield verbs.cancel(client.store.operations.base_of_job(job.id), job.id, job.revision))
            )
        return (yield from real(order, jobs, order_id))

    for n in range(450):
        await client.submit("t", job_id=f"0-{n}")
    monkeypatch.setattr(bulk, "_give", give)
    with acting_for("anna"):
        page = await client.order_page("cancel", Selection(queue="default"), expected=450)
        while page.cursor:
            page = await client.order_page(
                "cancel", Selection(queue="default"), expected=450, cursor=page.cursor
            )
    (entry,) = (await client.audit()).entries
    assert (entry.outcome, len(taken)) == ("cancelled 350 of 450; skipped 100", 100)
    assert (await client.queue("default")).queued == 0


async def test_an_order_whose_entry_is_no_longer_there_tells_only_of_its_last_pages(client):
    for n in range(450):
        await client.submit("t", job_id=f"0-{n}")
    with acting_for("anna"):
        page = await client.order_page("cancel", Selection(queue="default"), expected=450)
        await client.store.run(Call((("DEL", keys.audit(client.store.operations.bases[0])),), int))
        page = await client.order_page("cancel", Selection(queue="default"), expected=450, cursor=page.cursor)
        (entry,) = (await client.audit()).entries
    assert entry.outcome == "cancelled 200 of 200; not finished"


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "0-0/0"}])
async def test_what_is_no_page_is_refused(client, wrong):
    with pytest.raises(Invalid, match="use"):
        await client.audit(**wrong)


def test_commands_have_the_name_of_user_and_host(shell):
    assert shell.ok("audit", said="there is no namespace .*\n") == "no orders by people"
    for n in range(3):
        shell.ok("submit", "add", "--id", f"0-{n}")
    shell.ok("cancel", "0-0")
    shell.ok("purge", "default", "--yes")
    shell.ok("pause", "default")
    found = shell.json("audit")["entries"]
    assert [(one["verb"], one["what"], one["outcome"]) for one in found] == [
        ("pause", "default", "paused"),
        ("purge", "default", "cancelled 2 of 2"),
        ("cancel", "0-0", "cancelled"),
    ]
    assert all("@" in one["by"] for one in found)
    shell.ok("pools", "set", "p", "--queues", "default")
    shell.ok("pools", "set", "p", "--max", "3")
    shell.ok("pools", "remove", "p")
    shell.ok("doctor", "--repair")
    shell.run("doctor")  # changes nothing
    named = [(one["verb"], one["what"], one["outcome"]) for one in shell.json("audit")["entries"][:4]]
    assert named == [
        ("repair", shell.env["SUBLET_NAMESPACE"], "started"),
        ("pool-remove", "p", "removed"),
        ("pool-put", "p", "changed: queues=default max=3"),
        ("pool-put", "p", "created: queues=default max=10"),
    ]
    shown = shell.ok("audit", "--limit", "1", said="more: .* --cursor .*\n").splitlines()
    assert shown[0].split() == ["TIME", "BY", "ORDER", "WHAT", "OUTCOME"]
    assert "repair" in shown[1]
    assert len(shown) == 2
