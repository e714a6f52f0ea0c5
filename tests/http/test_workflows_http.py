"""Workflows over HTTP: store them, read them, cancel and retry them."""

import pytest

from sublet.model import State
from sublet.operations.orders import bulk
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers import new_workflows
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

DIAMOND = {
    "jobs": [
        {"name": "index", "task": "index", "after": ["a", "b"], "on_failure": "run"},
        {"name": "a", "task": "fetch", "payload": {"page": 1}},
        {"name": "b", "task": "fetch", "payload": {"page": 2}, "max_attempts": 1},
        {"task": "publish", "after": ["index"], "give_up": 60, "priority": 7},
    ]
}


async def stored(asked, body, **headers):
    answer = await asked("POST", "/workflows", body, **headers)
    assert answer.status == 201, answer.body
    return answer.json()


async def take(asked, n=10):
    answer = await asked("POST", "/jobs/claim", {"n": n})
    return answer.json()["jobs"] if answer.status == 200 else []


async def end(asked, lease, how="complete", **more):
    answer = await asked("POST", f"/jobs/{lease['id']}/{how}", {"token": lease["token"], **more})
    assert answer.status == 200, answer.body


async def test_a_workflow_is_stored_run_and_read(asked):
    answer = await asked("POST", "/workflows", DIAMOND)
    made = answer.json()
    assert (answer.status, answer.headers["location"]) == (201, f"/workflows/{made['id']}")
    assert [job["name"] for job in made["jobs"]] == ["index", "a", "b", None]
    index, a, b, publish = (job["id"] for job in made["jobs"])
    seen = (await asked("GET", f"/workflows/{made['id']}")).json()
    assert (seen["state"], seen["ended_at"], seen["unfinished"], seen["completed"]) == ("sealed", None, 4, 0)
    shown = {job["id"]: job for job in seen["members"]}
    assert (shown[index]["after"], shown[index]["after_count"]) == ([a, b], 2)
    assert (shown[publish]["state"], shown[publish]["after"]) == ("scheduled", [index])
    assert "payload" not in shown[a]
    whole = (await asked("GET", f"/jobs/{publish}")).json()
    assert (whole["workflow"], whole["priority"], whole["awaits"]) == (made["id"], 7, "upstream 1")
    assert whole["due_at"] is not None
    leases = {lease["id"]: lease for lease in await take(asked)}
    assert leases.keys() == {a, b}
    await end(asked, leases[a], result=[1])
    await end(asked, leases[b], "fail", code="Gone", message="no page")
    (lease,) = await take(asked)
    assert lease["id"] == index
    upstream = (await asked("GET", f"/jobs/{index}/upstream")).json()
    ends = [(await asked("GET", f"/jobs/{one}")).json()["finished_at"] for one in (a, b)]
    assert None not in ends
    assert upstream == {
        "upstream": [
            {
                "id": a,
                "state": "completed",
                "task": "fetch",
                "queue": "default",
                "finished_at": ends[0],
                "error": None,
                "result": [1],
            },
            {
                "id": b,
                "state": "dead",
                "task": "fetch",
                "queue": "default",
                "finished_at": ends[1],
                "error": {"code": "Gone", "message": "no page"},
                "result": None,
            },
        ],
        "count": 2,
        "cursor": None,
    }
    assert (await asked("POST", f"/jobs/{a}/erase")).status == 200
    upstream = (await asked("GET", f"/jobs/{index}/upstream")).json()["upstream"]
    assert (upstream[0]["state"], upstream[0]["result"]) == ("deleted", None)
    await end(asked, lease)
    await end(asked, (await take(asked))[0])
    seen = (await asked("GET", f"/workflows/{made['id']}?state=dead")).json()
    assert (seen["completed"], seen["dead"], seen["ended_at"] is None) == (3, 1, False)
    assert [job["id"] for job in seen["members"]] == [b]


async def test_pages_of_a_workflow_and_of_upstreams_have_links(core):
    jobs = [{"name": f"p{n}", "task": "t"} for n in range(7)]
    made = await stored(core, {"jobs": [*jobs, {"task": "t", "after": [job["name"] for job in jobs]}]})
    for path, kind, many in (
        (f"/workflows/{made['id']}?limit=3", "members", 8),
        (f"/jobs/{made['jobs'][-1]['id']}/upstream?limit=3", "upstream", 7),
    ):
        found, link = [], path
        while link:
            answer = await core("GET", link)
            assert answer.status == 200
            page = answer.json()
            found += [one["id"] for one in page[kind]]
            link = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
            assert bool(link) == (page["cursor"] is not None)
        assert len(found) == len({*found}) == many
        assert (await core("GET", f"{path}&cursor=e")).status == 422


async def test_jobs_are_listed_and_ordered_by_workflow(core):
    made = await stored(core, DIAMOND)
    await core("POST", "/jobs", {"task": "other"})
    jobs = (await core("GET", f"/jobs?workflow={made['id']}")).json()["jobs"]
    assert {job["id"] for job in jobs} == {job["id"] for job in made["jobs"]}
    body = {"filter": {"workflow": made["id"]}, "dry_run": True}
    assert (await core("POST", "/jobs/cancel", body)).json()["found"] == 4
    assert (await core("POST", "/jobs/cancel", {"filter": {"workflow": "0-no"}})).problem == "not-found"


@pytest.mark.parametrize("path", ["/workflows/0-no", "/workflows/no"])
async def test_an_unknown_workflow_is_404(core, path):
    answer = await core("GET", path)
    assert (answer.status, answer.problem) == (404, "not-found")
    assert answer.json()["detail"] == "no workflow 0-no: it never existed, or ended over 14 days ago"
    for verb in ("cancel", "retry"):
        assert (await core("POST", f"{path}/{verb}")).status == 404


async def test_the_upstream_of_an_unknown_job_is_404(core):
    assert (await core("GET", "/jobs/0-no/upstream")).problem == "not-found"
    job = (await core("POST", "/jobs", {"task": "t"})).json()["id"]
    assert (await core("GET", f"/jobs/{job}/upstream")).json() == {"upstream": [], "count": 0, "cursor": None}


# sent again


async def test_with_an_id_the_same_request_stores_nothing_again(core):
    first = await core("POST", "/workflows", DIAMOND | {"id": "nightly"})
    again = await core("POST", "/workflows", DIAMOND | {"id": "nightly"})
    assert (first.status, again.status, first.json() == again.json()) == (201, 200, True)
    assert first.json()["id"] == "0-nightly"
    assert (await core("GET", "/workflows/nightly")).json()["unfinished"] == 4
    more = await core("POST", "/workflows", {"id": "nightly", "jobs": [{"task": "more"}]})
    assert more.status == 201
    assert (await core("GET", "/workflows/nightly")).json()["unfinished"] == 5


async def test_with_an_idempotency_key_another_body_is_refused(core):
    header = {"idempotency_key": '"a-key"'}
    first = await core("POST", "/workflows", DIAMOND, **header)
    again = await core("POST", "/workflows", DIAMOND, **header)
    assert (first.status, again.status, first.json() == again.json()) == (201, 200, True)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    longer = {"jobs": [*DIAMOND["jobs"], {"task": "more"}]}
    other = await core("POST", "/workflows", longer, **header)
    assert (other.status, other.problem) == (422, "idempotency-mismatch")
    assert (await core("GET", f"/workflows/{first.json()['id']}")).json()["unfinished"] == 4
    assert len((await core("GET", "/jobs")).json()["jobs"]) == 4
    for body in (DIAMOND | {"id": "x"}, {"jobs": [{"task": "t", "id": "x"}]}):
        answer = await core("POST", "/workflows", body, **header)
        assert answer.json()["detail"].endswith("id: not together with an Idempotency-Key: send one of them")


async def test_own_ids_of_jobs_are_kept_and_name_edges_too(core):
    jobs = [{"id": "one", "task": "t"}, {"task": "t", "after": ["0-one"]}]
    made = await stored(core, {"jobs": jobs})
    assert made["jobs"][0] == {"name": None, "id": "0-one"}
    assert (await core("GET", f"/jobs/{made['jobs'][1]['id']}")).json()["state"] == "scheduled"
    late = await stored(core, {"jobs": [{"task": "t", "after": ["0-one"], "into": [made["jobs"][1]["id"]]}]})
    assert (await core("GET", f"/jobs/{late['jobs'][0]['id']}/upstream")).json()["upstream"][0][
        "id"
    ] == "0-one"
    upstream = (await core("GET", f"/jobs/{made['jobs'][1]['id']}/upstream")).json()["upstream"]
    assert [one["id"] for one in upstream] == ["0-one", late["jobs"][0]["id"]]


# refusals


@pytest.mark.parametrize(
    ("jobs", "pointer", "words"),
    [
        ([{"task": "t", "name": "a", "after": ["c"]}, {"task": "t", "name": "b", "after": ["a"]},
          {"task": "t", "name": "c", "after": ["b"]}], "#/jobs", "the workflow has a cycle: a → b → c → a"),
        ([{"task": "t", "name": "a", "into": ["a"]}], "#/jobs", "the workflow has a cycle: a → a"),
        ([{"task": "t", "name": "a", "after": ["0-no"]}], "#/jobs/0/after/0",
         "edge 0-no to a: 0-no is neither above it nor stored"),
        ([{"task": "t"}, {"task": "t", "name": "b", "into": ["0-no"]}], "#/jobs/1/into/0",
         "edge b to 0-no: 0-no is not stored"),
        ([{"task": "t"}, {"task": "t", "after": ["0-no"]}], "#/jobs/1/after/0", "edge 0-no to jobs.1: "),
        ([{"task": "t", "name": "fetch"}, {"task": "t", "after": ["fetsh"]}], "#/jobs/1/after/0",
         "'fetsh' is neither the name of a job in this request nor a whole id, such as 0-fetsh, did you mean fetch?"),
        ([{"task": "t", "after": ["7-other"]}], "#/jobs", "job 7-other is in another partition"),
        ([{"task": "t", "name": "a"}, {"task": "t", "name": "a"}], "#/jobs/1/name", "a is given twice"),
        ([{"task": "t", "id": "a"}, {"task": "t", "id": "0-a"}], "#/jobs/1/id", "0-a is given twice"),
        ([{"task": "t", "key": "k"}], "#/jobs/0/key", "a job of a workflow has none"),
        ([{"task": "t", "after": ["a b"]}], "#/jobs/0/after/0", "use 1 to 64 of"),
        ([{"task": "t", "on_failure": "skip"}], "#/jobs/0/on_failure", "use"),
        ([{"task": "t", "give_up": 0.5}], "#/jobs/0/give_up", "use 1 or more"),
        ([{"task": "t", "give_up": 60, "delay": -1}], "#/jobs/0/delay", "use 0 or more"),
        ([], "#/jobs", ""),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_named_by_the_callers_names_and_nothing_is_stored(core, jobs, pointer, words):
    answer = await core("POST", "/workflows", {"jobs": jobs})
    assert (answer.status, answer.problem) == (422, "invalid")
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert words in error["detail"]
    assert words in answer.json()["detail"]
    listed = await core("GET", "/jobs")
    assert listed.status == 404 or listed.json()["jobs"] == []


async def test_an_edge_to_a_job_that_has_ended_or_does_not_wait_is_named(core):
    ended = (await core("POST", "/jobs", {"task": "t"})).json()["id"]
    await core("POST", f"/jobs/{ended}/cancel")
    queued = (await core("POST", "/jobs", {"task": "t"})).json()["id"]
    for edge, pointer, words in (
        ({"after": [queued, ended]}, "#/jobs/0/after/1", f"edge {ended} to a: {ended} is cancelled"),
        ({"into": [queued]}, "#/jobs/0/into/0", f"edge a to {queued}: {queued} does not wait for jobs"),
    ):
        answer = await core("POST", "/workflows", {"jobs": [{"task": "t", "name": "a", **edge}]})
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, pointer)
        assert words in answer.json()["detail"]


async def test_a_full_queue_refuses_the_whole_workflow(core):
    await core("PATCH", "/queues/default", {"limits": {"jobs": 3}})
    answer = await core("POST", "/workflows", DIAMOND)
    assert (answer.status, answer.problem, answer.headers["retry-after"]) == (429, "queue-full", "5")
    assert (await core("GET", "/jobs")).json()["jobs"] == []


async def test_an_ended_workflow_takes_no_jobs(core):
    await stored(core, {"id": "w", "jobs": [{"task": "t"}]})
    await end(core, (await take(core))[0])
    answer = await core("POST", "/workflows", {"id": "w", "jobs": [{"task": "other"}]})
    assert (answer.status, answer.problem) == (409, "wrong-state")
    assert answer.json()["detail"].startswith("workflow 0-w has ended")


async def test_too_many_edges_are_refused_before_anything_is_stored(core, monkeypatch):
    monkeypatch.setattr(new_workflows, "EDGES_MAX", 2)
    answer = await core("POST", "/workflows", DIAMOND)
    assert (answer.status, answer.json()["detail"]) == (422, "3 edges: a request takes up to 2")


async def test_a_workflow_of_many_calls_is_stored_by_one_request(core):
    jobs = [{"name": f"p{n}", "task": "t"} for n in range(900)]
    made = await stored(core, {"jobs": [{"task": "t", "after": [job["name"] for job in jobs]}, *jobs]})
    assert len(made["jobs"]) == 901
    seen = (await core("GET", f"/workflows/{made['id']}")).json()
    assert (seen["state"], seen["unfinished"]) == ("sealed", 901)
    index = (await core("GET", f"/jobs/{made['jobs'][0]['id']}")).json()
    assert index["awaits"] == "upstream 900"


# orders


async def test_a_workflow_is_cancelled_and_retried(core):
    made = await stored(core, {"jobs": [job | {"on_failure": "cancel"} for job in DIAMOND["jobs"]]})
    answer = await core("POST", f"/workflows/{made['id']}/cancel")
    outcomes = answer.json()["outcomes"]
    assert (answer.json()["refused"], answer.json()["cursor"]) == (0, None)
    assert (outcomes.keys() <= {"cancelled", "cascaded"}, sum(outcomes.values())) == (True, 4)
    seen = (await core("GET", f"/workflows/{made['id']}")).json()
    assert (seen["unfinished"], seen["cancelled"]) == (0, 4)
    assert (await core("POST", f"/workflows/{made['id']}/cancel")).json()["outcomes"] == {}
    answer = (await core("POST", f"/workflows/{made['id']}/retry")).json()
    assert answer["refused"] == 0
    await core("POST", "/tick")  # edges of edges are settled a call later
    seen = (await core("GET", f"/workflows/{made['id']}")).json()
    assert (seen["unfinished"], seen["cancelled"]) == (4, 0)
    assert {lease["task"] for lease in await take(core)} == {"fetch"}
    entries = (await core("GET", "/audit")).json()["entries"]
    assert [(one["verb"], one["what"]) for one in entries] == [
        ("retry", f"workflow={made['id']}"),
        ("cancel", f"workflow={made['id']}"),
    ]
    wrong = await core("POST", f"/workflows/{made['id']}/retry", {"cursor": "eA"})
    assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "#/cursor")


CHAIN = [{"task": "t", "id": "0-a", "name": "a", "delay": 60}] + [
    {"task": "t", "id": f"0-{name}", "after": ["a"]} for name in ("b", "c")
]


@pytest.mark.parametrize("order", ["workflow", "filter"])
async def test_jobs_that_a_cancel_cancels_with_the_job_that_they_wait_for_are_told_apart(core, order):
    made = await stored(core, {"jobs": CHAIN})
    if order == "workflow":
        answer = (await core("POST", f"/workflows/{made['id']}/cancel")).json()
        assert (answer["outcomes"], answer["refused"]) == ({"cancelled": 1, "cascaded": 2}, 0)
    else:
        answer = (await core("POST", "/jobs/cancel", {"filter": {"task": "t"}})).json()
        told = {job["id"]: (job["status"], job["state"]) for job in answer["jobs"]}
        assert told == {"0-a": (200, "cancelled"), "0-b": (200, "cascaded"), "0-c": (200, "cascaded")}
    (entry,) = (await core("GET", "/audit")).json()["entries"]
    assert entry["outcome"] == "cancelled 1, cascaded 2 of 3"
    assert (await core("GET", f"/workflows/{made['id']}")).json()["cancelled"] == 3


async def test_a_job_that_ended_during_an_order_is_not_told_as_cancelled(core, monkeypatch):
    made = await stored(core, {"jobs": CHAIN[:1]})
    monkeypatch.setitem(bulk.STATES, "cancel", tuple(State))
    await core("POST", "/jobs/0-a/cancel")
    answer = (await core("POST", f"/workflows/{made['id']}/cancel")).json()
    assert answer["outcomes"] == {"unchanged": 1}


async def test_an_order_for_many_jobs_takes_several_requests(core):
    made = await stored(core, {"jobs": [{"task": "t"} for _ in range(450)]})
    cursor, counts = None, []
    while not counts or cursor:
        answer = (await core("POST", f"/workflows/{made['id']}/cancel", {"cursor": cursor})).json()
        counts.append(answer["outcomes"]["cancelled"])
        cursor = answer["cursor"]
    assert counts == [200, 200, 50]


# tokens


BOSS, IN, READER = "the-secret-of-the-boss-0123", "the-secret-of-the-insider", "the-secret-of-the-reader"


@pytest.fixture
async def limited(settings):
    tokens = f"boss:admin:{BOSS} in:submit,read,admin@a,b:{IN} reader:read:{READER}"
    api = Api(Store(settings), Tokens(tokens))
    yield asker(api)
    await api.aclose()


async def test_a_token_without_payloads_sees_no_results(limited):
    jobs = [{"name": "a", "task": "t", "payload": {"secret": 1}}, {"task": "t", "after": ["a"]}]
    made = (await limited("POST", "/workflows", {"jobs": jobs}, token=BOSS)).json()
    (lease,) = (await limited("POST", "/jobs/claim", {}, token=BOSS)).json()["jobs"]
    await limited("POST", f"/jobs/{lease['id']}/complete", {"token": lease["token"], "result": 1}, token=BOSS)
    path = f"/jobs/{made['jobs'][1]['id']}/upstream"
    for token, result in ((BOSS, 1), (READER, None)):
        assert (await limited("GET", path, token=token)).json()["upstream"][0]["result"] == result


async def test_a_limited_token_reaches_no_job_of_other_queues(limited):
    theirs = (await limited("POST", "/jobs", {"task": "t", "queue": "c"}, token=BOSS)).json()["id"]
    for edge in ({"after": [theirs]}, {"into": [theirs]}):
        jobs = [{"task": "t", "queue": "a", **edge}]
        answer = await limited("POST", "/workflows", {"jobs": jobs}, token=IN)
        assert (answer.status, answer.json()["errors"][0]["detail"]) == (422, f"there is no job {theirs}")
    answer = await limited("POST", "/workflows", {"jobs": [{"task": "t", "queue": "c"}]}, token=IN)
    assert answer.problem == "forbidden"
    mixed = [{"name": "c", "task": "t", "queue": "c"}, {"name": "a", "task": "t", "queue": "a"}]
    index = {"task": "t", "queue": "a", "after": ["c", "a"]}
    made = (await limited("POST", "/workflows", {"id": "w", "jobs": [*mixed, index]}, token=BOSS)).json()
    seen = (await limited("GET", f"/jobs/{made['jobs'][2]['id']}/upstream", token=IN)).json()
    assert [one["id"] for one in seen["upstream"]] == [made["jobs"][1]["id"]]
    listed = (await limited("GET", f"/jobs?workflow={made['id']}", token=IN)).json()["jobs"]
    assert {job["queue"] for job in listed} == {"a"}
    taken = await limited("POST", "/workflows", {"id": "w", "jobs": [{"task": "t", "queue": "a"}]}, token=IN)
    assert (taken.status, taken.problem) == (409, "key-taken")
    body = {"filter": {"workflow": made["id"]}}
    done = (await limited("POST", "/jobs/cancel", body, token=IN)).json()
    assert {job["id"] for job in done["jobs"]} == {job["id"] for job in made["jobs"][1:]}
    job = (await limited("GET", f"/jobs/{made['jobs'][0]['id']}", token=BOSS)).json()
    assert job["state"] == "queued"


async def test_a_limited_token_may_repeat_its_own_workflow(limited):
    body = {"id": "own", "jobs": [{"task": "t", "queue": "a"}]}
    for status in (201, 200):
        assert (await limited("POST", "/workflows", body, token=IN)).status == status


@pytest.mark.parametrize("more", [{"key": "k"}, {"key": "k", "debounce": 1}])
async def test_a_completion_whose_jobs_can_never_be_stored_ends_the_job(core, more):
    await core("POST", "/jobs", {"id": "x", "task": "t"})
    (lease,) = (await core("POST", "/jobs/claim", {"worker": "w"})).json()["jobs"]
    body = {"token": lease["token"], "result": 1, "workflow": "0-flow", "jobs": [{"task": "next", **more}]}
    answer = await core("POST", f"/jobs/{lease['id']}/proceed", body)
    reason = answer.json()["reason"]
    assert (answer.status, answer.json()) == (200, {"id": lease["id"], "state": "dead", "reason": reason})
    assert "its id is unique, so leave out key" in reason
    job = (await core("GET", f"/jobs/{lease['id']}")).json()
    assert job["attempts"][-1]["code"] == "invalid_result"
