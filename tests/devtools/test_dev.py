"""`sublet dev`, with real processes that are killed and frozen."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from sublet.protocol.scripts import script
from tests.conftest import REAL
from tests.support.dev_process import IMPATIENT, NO_TICK, TASKS, Dev
from tests.support.pages import blocks, check, command_on_path, free_port, need_curl, steps
from tests.support.pages import run as run_steps
from tests.support.paths import ROOT
from tests.support.processes import is_alive, on_linux, plain_environment, until

pytest.importorskip("aiohttp")
pytestmark = on_linux
SCHEDULE = """
@app.schedule(every=3600)
@app.task
async def beat() -> None: ...
"""
SAME = "the same at each start in this folder"
SAME_DATA = "the same at each start with this --data"
PAGE = (ROOT / "docs" / "guides" / "dev.md").read_text()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*words: str, folder: Path = tmp_path, **how: Any) -> Dev:
        started.append(Dev(folder, *words, **how))
        return started[-1]

    yield start
    for each in started:
        each.close()


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def done(run: Dev, task: str = "add", nth: int = 1) -> dict[str, Any]:
    return run.until("job", "completed", nth, task=task)


def paste(run: Dev, *lines: str) -> str:
    """The output of a shell that runs these pasted lines."""
    script = "\n".join(["set -e", *lines]).replace("python3 ", f"{shlex.quote(sys.executable)} ")
    script = script.replace("\nsublet ", f"\n{shlex.quote(sys.executable)} -m sublet ")
    ran = subprocess.run(
        ["bash", "-c", script], cwd=run.folder, env=run.outside(), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_submit_starts_a_worker_that_exits_when_idle(dev: Callable[..., Dev]) -> None:
    run = dev("--linger", "1s", patch=NO_TICK)
    here = run.up()
    client = redis.Redis.from_url(here["redis_url"])  # a client that does not use pools
    client.eval(script("submit").text, 1, "{sublet:0}", "0-plain", "default", "add", "", '{"a": 5}')
    client.close()
    assert done(run)["id"] == "0-plain"
    job = ask(f"{here['url']}/jobs", {"task": "add", "payload": {"a": 1}})["id"]
    assert ask(f"{here['url']}/jobs/{job}?wait=20")["result"] == 2
    for worker in run.events_of("worker", "ready"):
        run.until("worker", "gone", pid=worker["pid"])
    run.until("pool", "load", workers=0)
    export, curl, submit = (line["detail"] for line in run.events_of("dev", "try"))
    assert paste(run, submit) == "2"  # in a terminal without the export
    assert paste(run, export, submit) == "2"
    if shutil.which("curl"):
        assert json.loads(paste(run, curl))["id"]
        done(run, nth=5)
    data = Path(here["redis_url"].removeprefix("unix://")).parent
    assert data.is_dir()
    assert (run.end(), run.errors, run.is_gone()) == (0, [], True)
    assert not data.exists()


OWN = """
from sublet import App

app = App()

@app.task(queue="mail", max_attempts=7)
async def send(to: str) -> str:
    return to
"""


def test_the_first_submit_has_the_options_of_its_task(dev: Callable[..., Dev]) -> None:
    run = dev(tasks=OWN)
    submit = run.until("dev", "try", 3)["detail"]
    assert "--queue" not in submit
    assert paste(run, submit) == '"hello"'
    (job,) = json.loads(run.sublet("list", "--json"))["jobs"]
    assert (job["queue"], job["max_attempts"]) == ("mail", 7)
    (run.folder / "tasks.py").write_text(OWN.replace("max_attempts=7", "max_attempts=8"))
    run.until("app", "reloaded")
    job_id = run.sublet("submit", "send", '{"to": "a"}').strip()
    assert json.loads(run.sublet("get", job_id, "--json"))["max_attempts"] == 8
    assert (run.end(), run.errors, run.is_gone()) == (0, [], True)


def test_an_app_without_a_simple_task_is_told_of_the_list_of_tasks(dev: Callable[..., Dev]) -> None:
    run = dev(tasks=OWN.replace("to: str", "to: tuple[int, int]"))
    look = run.until("dev", "try", 2)["detail"]
    assert paste(run, look).splitlines()[1].split()[:2] == ["send", "mail"]
    assert (run.end(), run.errors, run.is_gone()) == (0, [], True)


def test_killed_processes_are_restarted_and_no_job_is_lost(dev: Callable[..., Dev], tmp_path: Path) -> None:
    run = dev(
        "--data", "kept", "--linger", "1s", "--port", free_port()
    )  # another program may have taken the next free port
    here, go = run.up(), tmp_path / "go"
    run.sublet("submit", "hold", json.dumps({"path": str(go)}), "--id", "held")
    (holder,) = [line["pid"] for line in [run.until("job", "started", task="hold")]]
    os.kill(holder, signal.SIGKILL)
    run.until("worker", "died", pid=holder, exit=-9)
    assert (
        run.until("job", "started", 2, task="hold")["attempt"] == 2
    )  # at once, not at the end of the lease of 30 s
    os.kill(run.pid_of("api"), signal.SIGKILL)
    os.kill(run.pid_of("server"), signal.SIGKILL)
    assert run.until("server", "ready", 2)
    assert run.until("api", "ready", 2)["detail"] == here["url"]
    job = ask(f"{here['url']}/jobs", {"task": "add", "payload": {"a": 1}})["id"]
    assert ask(f"{here['url']}/jobs/{job}?wait=20")["result"] == 2
    go.touch()
    assert done(run, "hold")["id"] == "0-held"
    run.sublet("submit", "hold", json.dumps({"path": str(tmp_path / "never")}), "--id", "left")
    run.until("job", "started", id="0-left")
    assert len(run.family()) >= 4
    run.process.kill()
    assert (run.wait(), run.is_gone()) == (-signal.SIGKILL, True)
    (tmp_path / "never").touch()
    again = dev("--data", "kept")
    assert done(again, "hold")["attempt"] == 2
    assert json.loads(again.sublet("get", "0-held", "--json"))["state"] == "completed"
    second = dev("--data", "kept", "--port", "0")
    assert (second.wait(), len(second.errors)) == (3, 1)
    assert "already runs" in second.errors[0]
    assert "--data DIR" in second.errors[0]
    assert (again.end(signal.SIGTERM), again.errors, again.is_gone()) == (0, [], True)


def test_frozen_processes_are_replaced(dev: Callable[..., Dev], tmp_path: Path) -> None:
    run = dev("--lease", "1s", "--port", free_port(), patch=IMPATIENT)
    here, go = run.up(), tmp_path / "go"
    run.sublet("submit", "hold", json.dumps({"path": str(go)}))
    frozen = run.until("job", "started", task="hold")["pid"]
    api = run.pid_of("api")
    for pid in (api, frozen):
        os.kill(pid, signal.SIGSTOP)
    run.until("api", "died")
    assert run.until("api", "ready", 2)["detail"] == here["url"]
    run.until("worker", "died", pid=frozen)
    go.touch()
    assert done(run, "hold")["attempt"] > 1
    server = run.pid_of("server")
    os.kill(server, signal.SIGSTOP)
    run.until("server", "ready", 2)
    job = ask(f"{here['url']}/jobs", {"task": "add", "payload": {"a": 1}})["id"]
    assert ask(f"{here['url']}/jobs/{job}?wait=20")["result"] == 2
    assert not any(map(is_alive, (api, frozen, server)))
    assert (run.end(), run.is_gone()) == (0, True)


def test_a_valid_edit_replaces_the_workers_and_a_broken_edit_does_not(
    dev: Callable[..., Dev], tmp_path: Path
) -> None:
    pytest.importorskip("watchfiles")
    run = dev("--linger", "1s")
    run.up()
    tasks, go = tmp_path / "tasks.py", tmp_path / "go"
    payload = json.dumps({"path": str(go)})
    run.sublet("submit", "hold", payload)
    old = run.until("job", "started", task="hold")["pid"]
    tasks.write_text(TASKS + "oh no\n")
    assert "SyntaxError" in run.until("app", "broken")["detail"]
    assert is_alive(old)
    run.sublet("submit", "add", '{"a": 1}')
    assert done(run)["pid"] == old
    tasks.write_text(TASKS.replace('"one"', '"two"') + SCHEDULE)
    run.until("app", "reloaded")
    go.touch()
    until(lambda: "beat" in run.sublet("schedules", "--json"), run.story)
    result = json.loads(run.sublet("submit", "hold", payload, "--wait"))
    assert result == "two"
    assert run.until("worker", "gone", pid=old)
    new = run.until("job", "completed", 2, task="hold")["pid"]
    assert new != old
    run.until("worker", "gone", pid=new)
    tasks.write_text("import nothing_there\n")
    run.until("app", "broken", 2)
    run.sublet("submit", "add", '{"a": 2}', "--id", "waits")
    assert run.until("pool", "load", waiting=1, broken=True)["summoned"] == 0
    tasks.write_text(TASKS.replace("queue", "queue"))
    run.until("job", "completed", id="0-waits")
    assert (run.end(), run.errors, run.is_gone()) == (0, [], True)


def test_a_second_signal_stops_the_platform_at_once(dev: Callable[..., Dev], tmp_path: Path) -> None:
    run = dev("--no-reload")
    run.up()
    run.sublet("submit", "hold", json.dumps({"path": str(tmp_path / "never")}))
    run.until("job", "started", task="hold")
    run.process.send_signal(signal.SIGINT)
    run.until("dev", "stopping")
    assert (run.end(), run.errors, run.is_gone()) == (130, [], True)


def test_the_users_own_redis_gets_no_second_server(
    dev: Callable[..., Dev], server_url: Callable[[str], str]
) -> None:
    url = server_url("valkey" if "valkey" in REAL else "redis")
    run = dev("--redis-url", url, "--namespace", "test-dev-own")
    assert run.up()["redis_url"] == url
    run.until("dev", "try", detail="export SUBLET_NAMESPACE=test-dev-own")
    run.sublet("submit", "add", '{"a": 1}', "--namespace", "test-dev-own")
    done(run)
    assert run.events_of("server", "ready") == []
    assert (run.end(), run.errors, run.is_gone()) == (0, [], True)
    with redis.Redis.from_url(url) as client:
        assert (
            client.hlen("{test-dev-own:0}:pools") == 0
        )  # no other process may start the workers of this machine


def test_two_apps_on_one_redis_have_separate_workers(
    dev: Callable[..., Dev], server_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = server_url("valkey" if "valkey" in REAL else "redis")
    where = ("--redis-url", url, "--namespace", "test-dev-two", "--linger", "1s")
    runs = []
    for queue in ("default", "other"):
        (tmp_path / queue).mkdir()
        tasks = TASKS.replace("@app.task", f'@app.task(queue="{queue}")')
        runs.append(dev(*where, folder=tmp_path / queue, tasks=tasks))
        runs[-1].up()
    with redis.Redis.from_url(url) as client:
        pools = sorted(name.decode() for name in client.hkeys("{test-dev-two:0}:pools"))
    assert [name.rpartition(":")[0] for name in pools] == ["dev:tasks:app", "dev:tasks:app"]
    for run, queue in zip(runs, ("default", "other"), strict=True):
        run.sublet(
            "submit",
            "add",
            '{"a": 1}',
            "--queue",
            queue,
            "--id",
            queue,
            "--namespace",
            "test-dev-two",
            url=url,
        )
        assert done(run)["queue"] == queue
        run.until("worker", "gone")
    for run in runs:
        assert {line["queue"] for line in run.events_of("job", "started")} == {run.folder.name}
        assert (run.end(), run.errors, run.is_gone()) == (0, [], True)


def test_the_jobs_of_a_killed_platform_may_finish(dev: Callable[..., Dev], tmp_path: Path) -> None:
    """Its workers have their grace, and the server lives until they have ended."""
    run = dev("--data", "kept")
    run.up()
    go = tmp_path / "go"
    run.sublet("submit", "hold", json.dumps({"path": str(go)}), "--id", "held")
    run.until("job", "started", task="hold")
    server = run.pid_of("server")
    run.process.kill()
    run.wait()
    assert is_alive(server)
    go.touch()
    assert run.is_gone()
    again = dev("--data", "kept")
    again.up()
    job = json.loads(again.sublet("get", "0-held", "--json"))
    assert (job["state"], [attempt["code"] for attempt in job["attempts"]]) == ("completed", ["completed"])
    assert (again.end(), again.errors, again.is_gone()) == (0, [], True)


def test_each_start_in_a_folder_has_the_same_url(dev: Callable[..., Dev], tmp_path: Path) -> None:
    """Also after a kill; a client that was told the first URL reaches the last platform."""
    first = dev()
    url = first.up()["redis_url"]
    first.until("dev", "reach", detail=f"for your web process and other terminals ({SAME}):")
    export = first.until("dev", "try")["detail"]
    assert export == f"export SUBLET_REDIS_URL={url}"
    assert (first.end(), first.is_gone()) == (0, True)
    second = dev()
    assert second.up()["redis_url"] == url
    second.sublet("submit", "add", '{"a": 1}', "--queue", "unserved", "--id", "left-over")
    second.process.kill()
    second.wait()
    third = dev()
    assert third.up()["redis_url"] == url
    assert third.events_of("server", "warning") == []
    assert json.loads(third.sublet("list", "--json"))["jobs"] == [], (
        "a killed platform's data is not continued"
    )
    submit = third.until("dev", "try", 3)["detail"]
    assert paste(third, export, submit.replace(f" --redis-url {url}", "")) == "2"
    assert (third.end(), third.errors, third.is_gone()) == (0, [], True)


def test_a_second_platform_of_a_folder_says_why_its_url_differs(
    dev: Callable[..., Dev], tmp_path: Path
) -> None:
    first = dev()
    url = first.up()["redis_url"]
    second = dev()
    other = second.up()["redis_url"]
    assert other != url
    taken = Path(url.removeprefix("unix://")).parent
    second.until(
        "server",
        "warning",
        detail=f"the URL is not this folder's usual one, but {other}: another `sublet dev` of this project, or its server, uses {taken}",
    )
    second.until("dev", "reach", detail="for your web process and other terminals:")
    assert (second.end(), second.is_gone()) == (0, True)
    assert (first.end(), first.is_gone()) == (0, True)


def test_with_data_the_url_is_that_of_its_folder(dev: Callable[..., Dev]) -> None:
    urls = []
    for _ in range(2):
        run = dev("--data", "kept")
        urls.append(run.up()["redis_url"])
        run.until("dev", "reach", detail=f"for your web process and other terminals ({SAME_DATA}):")
        assert (run.end(), run.is_gone()) == (0, True)
    assert urls[0] == urls[1]


def test_a_taken_port_is_reported(dev: Callable[..., Dev]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = dev("--port", str(taken.getsockname()[1]))
        assert (run.wait(), len(run.errors), run.is_gone()) == (1, 1, True)
    assert "is in use: stop the program that listens there, or omit --port" in run.errors[0]
    assert run.events_of("api", "error") == []


@pytest.mark.parametrize(
    ("tasks", "words", "complaint"),
    [
        ("app = 1", (), "tasks:app is not an App"),
        ("import nothing_there", (), "No module named 'nothing_there'"),
        (TASKS, ("--redis-url", "redis://127.0.0.1:1", "--data", "x"), "leave one of them out"),
        (TASKS, ("--workers", "0"), "from 1 to 100"),
    ],
)
def test_an_invalid_request_is_reported_in_one_line(
    dev: Callable[..., Dev], tasks: str, words: tuple[str, ...], complaint: str
) -> None:
    run = dev(*words, tasks=tasks)
    assert (run.wait(), len(run.errors)) == (2, 1)
    assert complaint in run.errors[0]
    assert run.is_gone()


def test_the_commands_of_its_page_work(tmp_path: Path) -> None:
    """Run the commands of the page's two terminals, and compare the output."""
    need_curl()
    for name, text in blocks("python", PAGE):
        (tmp_path / name).write_text(text)
    (command, *_), others = ([*steps(console)] for _, console in blocks("console", PAGE))
    port = free_port()
    env = plain_environment("NO_COLOR")
    env |= {"PATH": command_on_path(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [*command.command.split(), "--port", port]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as platform:
        try:
            assert platform.stdout
            shown = re.sub(r"\d\d:\d\d:\d\d", "…", command.shown).replace("8377", port).strip().splitlines()
            printed = []
            for expected in shown:
                printed.append(platform.stdout.readline().rstrip())
                pattern = re.escape(expected.strip()).replace("…", ".*")
                assert re.fullmatch(pattern, printed[-1].strip().replace("python3 -m jobs", "sublet")), (
                    printed
                )
            threading.Thread(target=list, args=(platform.stdout,), daemon=True).start()
            url = next(line.split("=", 1)[1] for line in printed if "export" in line)
            here = [
                s._replace(command=re.sub(r"unix:///\S+", url, s.command).replace("8377", port))
                for s in others
            ]
            for step, answer in zip(here, run_steps(here, tmp_path, env), strict=True):
                check(step, *answer)
        finally:
            platform.send_signal(signal.SIGINT)
            assert platform.wait(30) == 0
