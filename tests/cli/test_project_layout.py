"""Apps of several modules, several apps in one worker, and names of tasks that do not clash."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sublet import App, Invalid
from sublet.execution.app_loader import load_app, load_apps, merged
from sublet.tasks import naming
from sublet.testing import Sandbox
from tests.support.command_line import Shell
from tests.support.pages import blocks, check, page_environment, run, steps
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]

PAGE = (ROOT / "docs" / "guides" / "project-layout.md").read_text()
HOOKS = """
import os
from contextlib import contextmanager
from {app} import app

@app.middleware
@contextmanager
def mark(ctx):
    os.environ["MARK"] = "{app}"
    yield
    del os.environ["MARK"]
"""
MARKED = """
import os
from {app} import app

@app.{decorator}
def {name}() -> str:
    return os.environ.get("MARK", "none")

@app.task
async def {name}_on_loop() -> str:
    return os.environ.get("MARK", "none")
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write modules into the current folder; their names are forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**files):
        for name, text in files.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(str(tmp_path) in (place or "") for place in places):
            del sys.modules[name]


def marked_app(app, name, more="", decorator="task"):
    """The files of an app whose middleware is in a module of its own; its tasks return the mark of the middleware."""
    return {
        app: f"from sublet import App\napp = App(include=['{app}_hooks', '{app}_tasks'], {more})\n",
        f"{app}_hooks": HOOKS.format(app=app),
        f"{app}_tasks": MARKED.format(app=app, name=name, decorator=decorator),
    }


def results(shell, ids):
    return [shell.json("get", job_id)["result"] for job_id in ids]


@pytest.mark.real_server
def test_the_page_works_as_written(tmp_path, place):
    for name, text in blocks("python", PAGE):
        if name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    (tmp_path / "shop" / "__init__.py").touch()
    commands = [*steps(*(text for _, text in blocks("console", PAGE)))]
    env = page_environment(tmp_path, place)
    own, _, others = env["PATH"].partition(os.pathsep)
    env["PATH"] = os.pathsep.join([own, str(Path(sys.executable).parent), others])
    answers = run(commands, tmp_path, env)
    for step, answer in zip(commands, answers, strict=True):
        check(step, *answer)


def test_the_page_shows_the_error_of_a_circular_import(project):
    project(
        shop__app="from shop import mail\nfrom sublet import App\napp = App()\n",
        shop__mail="from shop.app import app\n",
    )
    with pytest.raises(Invalid) as error:
        load_app("shop.app:app")
    shown = re.search(r'"(cannot import name [^"]+)"', PAGE.replace("\n", " "))
    assert shown[1] in str(error.value)
    assert str(error.value).count("list their modules in App(include=[…])") == 1


def test_included_modules_are_imported_by_load_and_once(project):
    project(
        shop__app="from sublet import App\napp = App(include=['shop.mail', 'shop.images'])\n",
        shop__mail="from shop.app import app\n@app.task(queue='mail')\nasync def send(): ...\n",
        shop__images="from shop.mail import send\nfrom shop.app import app\n@app.schedule(every=60)\n@app.task\nasync def label(): ...\n",
    )
    from shop.app import app

    assert not app.tasks
    assert "shop.mail" not in sys.modules
    assert app.load() is app
    assert [*app.tasks] == ["send", "label"]
    assert load_app("shop.app:app") is app
    assert load_app("shop.app") is app


@pytest.mark.parametrize("read", [App.queues, lambda app: [one.queue for one in app.schedules.all()]])
def test_queues_and_schedules_load_the_app(project, read):
    project(
        solo="from sublet import App\napp = App(include=['solo_tasks'])\n",
        solo_tasks="from solo import app\n@app.schedule(every=60)\n@app.task(queue='mail')\nasync def send(): ...\n",
    )
    from solo import app

    assert read(app) == ["mail"]


async def test_a_sandbox_and_its_worker_load_the_app(project):
    project(
        solo="from sublet import App\napp = App(include=['solo_tasks'])\n",
        solo_tasks="from solo import app\n@app.task\nasync def send() -> str:\n    return 'sent'\n",
    )
    from solo import app

    async with Sandbox(app) as sandbox:
        handle = await app.tasks["send"].submit()
        await sandbox.drain()
        assert await handle.result() == "sent"


@pytest.mark.parametrize(
    ("include", "message"),
    [
        (["shop.mial"], r"App\(include=\['shop.mial'\]\): there is no module shop.mial in .*, did you mean shop.mail\?"),
        (["shop.mail", "nowhere"], "there is no module nowhere in "),
        (["shop.broken"], r"module shop.broken cannot be imported: ValueError: no \(shop/broken.py:1\)"),
        (["shop.lacks"], "module shop.lacks cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
        (["shop.twice"], r"module shop.twice cannot be imported: Invalid: task 'send': .* \(shop.mail.send has it; e.g. 'twice.send' for shop.twice.send\)"),
        (["shop.other"], "module shop.other declares its tasks with another App object: import the app"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_included_is_named(project, include, message):
    send = "from shop.app import app\n@app.task\nasync def send(): ...\n"
    project(
        shop__app=f"from sublet import App\napp = App(include={include!r})\n",
        shop__mail=send,
        shop__twice=f"import shop.mail\n{send}",
        shop__broken="raise ValueError('no')\n",
        shop__lacks="import no_such_thing\n",
        shop__other="from sublet import App\napp = App()\n@app.task\nasync def send(): ...\n",
    )
    for _ in range(2):  # the second try fails as well
        with pytest.raises(Invalid, match=message):
            load_app("shop.app:app")


@pytest.mark.parametrize("include", ["shop.mail", ["shop/mail.py"], [".mail"], [""], [None]])
def test_include_is_a_list_of_full_module_names(include):
    with pytest.raises(Invalid, match=r"use a list of full module names, e.g. \['shop.mail'\]"):
        App(include=include)


def test_a_child_process_has_the_middleware_of_an_included_module(shell):
    write(shell, marked_app("shop", "mark"))
    ids = [shell.ok("submit", name, "--app", "shop:app") for name in ("mark", "mark_on_loop")]
    shell.ok("work", "shop:app", "--drain")
    assert results(shell, ids) == ["shop", "shop"]


def test_a_worker_runs_several_apps_each_with_its_own_middleware(shell):
    write(shell, marked_app("shop", "mark") | marked_app("blog", "post", decorator='task(queue="feed")'))
    names = ("mark", "mark_on_loop", "post", "post_on_loop")
    ids = [shell.ok("submit", name, "--queue", "feed" if name == "post" else "default") for name in names]
    ready, *_, summary = shell.ok("work", "shop:app", "blog:app", "--app", "shop:app", "--drain").splitlines()
    assert json.loads(ready)["detail"].endswith("queues=default,feed")
    assert json.loads(summary)["completed"] == 4
    assert results(shell, ids) == ["shop", "shop", "blog", "blog"]


def test_each_app_of_a_worker_owns_its_schedules(shell):
    declared = (
        "from sublet import App\napp = App()\n@app.schedule(every=3600)\n@app.task\nasync def {}(): ...\n"
    )
    write(shell, {name: declared.format(f"of_{name}") for name in ("shop", "blog")})
    shell.ok("work", "shop:app", "blog:app", "--drain")
    found = shell.json("schedules")["schedules"]
    assert {one["name"]: one["source"] for one in found} == {"of_shop": "shop:app", "of_blog": "blog:app"}


@pytest.mark.parametrize(
    ("more", "flags", "message"),
    [
        ("redis_url='redis://other:1'", (), "shop:app and blog:app differ in redis_url: a worker serves one namespace"),
        ("namespace='other'", (), "shop:app and blog:app differ in namespace: a worker serves one namespace; give both the same"),
        ("namespace='other'", ("--namespace", "third"), ""),
        ("", (), ""),
    ],
)  # fmt: skip
def test_apps_of_one_worker_share_a_namespace(shell, more, flags, message):
    write(shell, marked_app("shop", "mark") | marked_app("blog", "post", more))
    words = ("work", "shop:app", "blog:app", "--drain", *flags)
    if message:
        assert shell.no(2, *words).startswith(message)
    else:
        assert '"ready"' in shell.ok(*words)


def test_a_name_in_two_apps_of_a_worker_is_refused_with_both_places(project):
    task = "from sublet import App\napp = App()\n@app.task({})\nasync def send(): ...\n"
    timed = "app.schedule(every=60, name='hourly')(send)\n"
    project(shop=task.format(""), blog=task.format(""), third=task.format("name='a'") + timed)
    project(fourth=task.format("name='b'") + timed)
    with pytest.raises(
        Invalid, match=r"task 'send' is in shop:app \(shop.send\) and in blog:app \(blog.send\)"
    ):
        merged(load_apps(["shop:app", "blog:app"]))
    with pytest.raises(Invalid, match="schedule 'hourly' is in third:app and in fourth"):
        merged(load_apps(["third:app", "fourth"]))
    assert [*load_apps(["shop:app", "shop"])] == ["shop:app"]


def test_qualified_names_cannot_clash(project):
    send = "from shop.app import app\n@app.task\nasync def send(): ...\n"
    project(
        shop__app="from sublet import App\napp = App(include=['shop.mail', 'shop.sms'], qualified_names=True)\n",
        shop__mail=send + "@app.task(name='check')\nasync def f(): ...\n",
        shop__sms=send + "@app.task\nasync def ring(): ...\n",
    )
    app = load_app("shop.app:app")
    assert [*app.tasks] == ["shop.mail.send", "check", "shop.sms.send", "shop.sms.ring"]
    assert app.tasks["shop.sms.ring"].job().task == "shop.sms.ring"


def test_the_end_of_a_tasks_name_is_enough_where_one_task_has_it():
    names = ["send", "shop.mail.send", "shop.sms.send", "shop.sms.ring"]
    for given, full in (("send", "send"), ("mail.send", "shop.mail.send"), ("ring", "shop.sms.ring")):
        assert naming.resolve(given, names, "a:app") == full
    with pytest.raises(Invalid, match=r"a:app has 2 tasks 'send': use one of shop.mail.send, shop\.sms"):
        naming.resolve("send", names[1:], "a:app")
    with pytest.raises(Invalid, match="a:app has no task 'end'"):
        naming.resolve("end", names, "a:app")


def test_commands_store_the_full_name(shell):
    write(
        shell,
        {
            "own": "from sublet import App\napp = App(qualified_names=True)\n@app.task\nasync def send(): ...\n"
        },
    )
    job_id = shell.ok("submit", "send", "--app", "own:app")
    shell.ok("schedules", "add", "hourly", "send", "--every", "1h", "--app", "own:app")
    assert shell.json("get", job_id)["task"] == "own.send"
    assert shell.json("schedules", "show", "hourly")["task"] == "own.send"
    shell.ok("work", "own:app", "--drain")
    assert shell.json("get", job_id)["state"] == "completed"


def test_a_script_names_its_tasks_after_its_file(shell):
    text = "from sublet import App\napp = App(qualified_names=True)\n@app.task\nasync def f(): ...\nprint(*app.tasks)\n"
    write(shell, {"own": text})
    for how in (["own.py"], ["-m", "own"], ["-c", "import own"]):
        command = [sys.executable, *how]
        printed = subprocess.run(command, cwd=shell.folder, env=shell.env, capture_output=True, timeout=60)
        assert printed.stdout == b"own.f\n", printed.stderr


def write(shell: Shell, files):
    for name, text in files.items():
        (shell.folder / f"{name}.py").write_text(text)
