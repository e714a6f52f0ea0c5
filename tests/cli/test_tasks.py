"""`sublet tasks` lists the published tasks; `sublet serve` checks jobs with them, or with its app."""

import pytest

from sublet.connection.settings import Settings
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
    assert "SUBLET_CHECK_TASKS='strict': use refuse, warn or off" in shop.no(
        2, "serve", "--port", "0", SUBLET_CHECK_TASKS="strict"
    )
