"""`sublet tasks` lists the published tasks; `sublet serve` checks jobs with them, or with its app."""

import re

import pytest

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import follow_sync
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.tasks import published as published_tasks
from tests.support.http_server import ask, serve_process

pytest_plugins = ["tests.support.command_line"]

APP = '''
from sublet import App

app = App()


@app.task(queue="images", max_attempts=5, timeout=None)
async def resize(path: str, width: int = 100) -> int:
    """Resize an image."""
    return width
'''


@pytest.fixture
def shop(shell):
    """A command line beside an app of its own."""
    (shell.folder / "shop.py").write_text(APP)
    return shell


def settings_of(shell):
    return Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])


def test_tasks_are_listed_after_a_worker_has_run(shop):
    empty = shop.ok("tasks", said=shop.none_yet)
    assert empty.endswith("work MODULE:APP does")
    shop.ok("work", "shop:app", "--drain")
    heads, row = shop.ok("tasks").splitlines()
    assert heads.split() == ["TASK", "QUEUE", "TRIES", "TIMEOUT", "ARGUMENTS", "SUMMARY"]
    assert row.split(maxsplit=6) == ["resize", "images", "5", "none", "path,", "width?", "Resize an image."]
    (info,) = shop.json("tasks")
    assert (info["name"], info["options"]["queue"]) == ("resize", "images")
    assert info["arguments"]["properties"]["width"] == {"title": "Width", "type": "integer", "default": 100}


def test_text_of_a_worker_does_not_control_the_terminal(shop):
    (shop.folder / "shop.py").write_text(APP.replace("Resize", "\\x1b[31mResize"))
    shop.ok("work", "shop:app", "--drain")
    assert "\x1b" not in shop.ok("tasks")


async def test_a_server_with_an_app_refuses_jobs_that_do_not_fit(shop):
    path = {"PYTHONPATH": f"{shop.env['PYTHONPATH']}:{shop.folder}"}
    with serve_process(settings_of(shop), "--app", "shop:app", **path) as server:
        unknown = await ask(server.url, "POST", "/jobs", {"task": "resise", "payload": {"path": "a"}})
        assert (unknown.status, unknown.problem) == (422, "unknown-task")
        unfit = await ask(server.url, "POST", "/jobs", {"task": "resize"})
        assert (unfit.status, unfit.json()["errors"][0]["pointer"]) == (422, "#/payload/path")
        stored = await ask(server.url, "POST", "/jobs", {"task": "resize", "payload": {"path": "a"}})
        job = await ask(server.url, "GET", f"/jobs/{stored.json()['id']}")
        assert (job.json()["queue"], job.json()["max_attempts"]) == ("images", 5)
        listed = await ask(server.url, "GET", "/tasks")
        assert [task["name"] for task in listed.json()["tasks"]] == ["resize"]
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "env", "status"),
    [
        ([], {}, 201),
        (["--check-tasks", "refuse"], {}, 422),
        ([], {"SUBLET_CHECK_TASKS": "refuse"}, 422),
        (["--check-tasks", "warn"], {"SUBLET_CHECK_TASKS": "refuse"}, 201),
    ],
)
async def test_a_server_without_an_app_checks_as_it_is_told(shop, words, env, status):
    shop.ok("work", "shop:app", "--drain")
    with serve_process(settings_of(shop), *words, **env) as server:
        answer = await ask(server.url, "POST", "/jobs", {"task": "resise"})
        assert answer.status == status
        assert ("warning" in answer.json()) is (status == 201)


def test_an_unknown_check_is_refused(shop):
    assert "'strict'" in shop.no(2, "serve", "--check-tasks", "strict")
    assert "SUBLET_CHECK_TASKS (or check_tasks) 'strict': use refuse, warn or off" in shop.no(
        2, "serve", "--port", "0", SUBLET_CHECK_TASKS="strict"
    )


# submit without --app


SHOP = """
from sublet import App

app = App(qualified_names=True)


@app.task(queue="mail", priority=3)
def send(to: str) -> None: ...
"""


@pytest.fixture
def published(shop):
    """A command line whose namespace has the catalogue of an app, and no worker."""
    shop.ok("work", "shop:app", "--drain")
    return shop


def jobs_of(shell):
    return shell.json("list")["jobs"]


def test_a_submit_has_the_options_of_the_published_task(published):
    job = published.json("get", published.ok("submit", "resize", '{"path": "a"}'))
    assert (job["queue"], job["max_attempts"]) == ("images", 5)
    own = published.ok("submit", "resize", '{"path": "a"}', "--queue", "vip", "--max-attempts", "2")
    job = published.json("get", own)
    assert (job["queue"], job["max_attempts"]) == ("vip", 2)


@pytest.mark.parametrize(
    ("task", "payload", "words"),
    [
        ("resise", '{"path": "a"}', "task 'resise': no worker has published it, did you mean resize? To submit it anyway: --check-tasks warn"),
        ("resize", "{}", "task resize: path: is missing; to submit it anyway: --check-tasks warn"),
        ("resize", '{"path": 1, "with": 2}', "task resize: path: use string, not integer; with: is unknown: use path, width; to"),
    ],
)  # fmt: skip
def test_a_submit_that_no_published_task_fits_is_refused(published, task, payload, words):
    assert published.no(2, "submit", task, payload).startswith(words)
    assert jobs_of(published) == []
    warning = words.partition(" To submit" if "?" in words else "; to")[0]
    job_id = published.ok("submit", task, payload, "--check-tasks", "warn", said=f"{re.escape(warning)}\n")
    assert [job["id"] for job in jobs_of(published)] == [job_id]
    assert published.json("submit", task, payload, SUBLET_CHECK_TASKS="warn")["warning"] == warning
    assert "warning" not in published.json("submit", task, payload, SUBLET_CHECK_TASKS="off")


def test_a_submit_of_a_task_of_another_program_is_only_warned_of(published):
    said = (
        r"task 'kopiere': no worker has published it: check the name \(sublet tasks lists those that are\)\n"
    )
    published.ok("submit", "kopiere", said=said)
    assert "check the name" in published.no(2, "submit", "kopiere", "--check-tasks", "refuse")


def test_a_submit_is_not_checked_against_an_app_if_the_flag_is_off(published):
    """The flag of a command goes before SUBLET_APP."""
    assert "has no task 'elsewhere'" in published.no(2, "submit", "elsewhere", SUBLET_APP="tasks:app")
    published.ok("submit", "elsewhere", "--check-tasks", "off", SUBLET_APP="tasks:app")
    assert [job["task"] for job in jobs_of(published)] == ["elsewhere"]


def test_a_submit_without_a_catalogue_is_not_checked(shell):
    assert shell.json("get", shell.ok("submit", "anything"))["queue"] == "default"


def test_a_submit_finds_a_task_by_the_last_part_of_its_name(shop):
    (shop.folder / "mail.py").write_text(SHOP)
    (shop.folder / "post.py").write_text(SHOP)
    shop.ok("work", "mail:app", "--drain")
    job = shop.json("get", shop.ok("submit", "send", '{"to": "a"}'))
    assert (job["task"], job["queue"], job["priority"]) == ("mail.send", "mail", 3)
    shop.ok("work", "post:app", "--drain")
    assert "use one of mail.send, post.send; to submit" in shop.no(2, "submit", "send", '{"to": "a"}')


def test_the_setting_of_the_check_is_checked(shop):
    line = shop.no(2, "submit", "resize", SUBLET_CHECK_TASKS="maybe")
    assert line == "SUBLET_CHECK_TASKS='maybe': use refuse, warn, off"


def test_descriptions_that_another_program_wrote_do_not_stop_a_submit(published):
    with SyncClient(settings_of(published)) as client:
        base = client.store.operations.bases[0]
        for name, text in (
            ("no-json", b"0 {"), ("no-object", b"0 []"), ("odd-options", b'0 {"options": {"queue": "a b"}}'),
            ("odd-backoff", b'0 {"options": {"backoff": 5}}'), ("odd-schema", b'0 {"arguments": {"$ref": "#", "type": 5}}'),
        ):  # fmt: skip
            client.store.transport.run(Call((("HSET", keys.tasks(base), name, text),), int))
            assert published.json("get", published.ok("submit", name))["queue"] == "default"


@pytest.mark.parametrize(("name", "trips"), [("resize", 1), ("resise", 2)])
def test_the_catalogue_costs_a_submit_one_round_trip(published, name, trips):
    """Its other calls are the same with and without."""
    with SyncClient(settings_of(published)) as client:
        plan = published_tasks.find(client.store.operations.bases[0], name)
        calls, run = [], client.store.transport.run
        follow_sync(lambda call: calls.append(call) or run(call), plan)
    assert len(calls) == trips


# schedules add without --app


def test_a_schedule_has_the_options_of_the_published_task(published):
    added = published.json("schedules", "add", "nightly", "resize", '{"path": "a"}', "--every", "1h")
    assert (added["schedule"]["queue"], added["schedule"]["max_attempts"]) == ("images", 5)
    words = ("--every", "1h", "--queue", "vip", "--max-attempts", "2")
    added = published.json("schedules", "add", "nightly", "resize", '{"path": "a"}', *words)
    assert (added["schedule"]["queue"], added["schedule"]["max_attempts"]) == ("vip", 2)


@pytest.mark.parametrize(
    ("task", "payload", "words"),
    [
        ("resise", '{"path": "a"}', "task 'resise': no worker has published it, did you mean resize?"),
        ("resize", '{"path": 5}', "task resize: path: use string, not integer"),
    ],
)
def test_a_schedule_that_no_published_task_fits_is_refused(published, task, payload, words):
    add = ("schedules", "add", "x", task, payload, "--every", "1h")
    end = " To add it anyway: " if words.endswith("?") else "; to add it anyway: "
    assert published.no(2, *add) == f"{words}{end}--check-tasks warn"
    assert published.json("schedules")["schedules"] == []
    published.ok(*add, "--check-tasks", "warn", said=f"{re.escape(words)}\n")
    assert published.json(*add, SUBLET_CHECK_TASKS="warn")["warning"] == words
    assert "warning" not in published.json(*add, SUBLET_CHECK_TASKS="off")


def test_a_schedule_of_a_task_with_a_delay_of_its_own_has_none(shop):
    (shop.folder / "late.py").write_text(APP.replace("max_attempts=5", "delay=60"))
    shop.ok("work", "late:app", "--drain")
    add = ("schedules", "add", "x", "resize", '{"path": "a"}', "--every", "1h")
    assert shop.json(*add)["schedule"]["queue"] == "images"
