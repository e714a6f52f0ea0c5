"""The tutorial and the recipe for nightly tasks: each command and each snippet runs, and prints the shown output."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.support.pages import blocks, check, free_port, need_curl, page_environment, run, served, steps
from tests.support.paths import ROOT


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text()


@pytest.fixture
def home(tmp_path):
    """A folder with the files of the tutorial."""
    for name in ("first-task", "first-schedule"):
        for file, text in blocks("python", page(f"tutorial/{name}")):
            (tmp_path / file).write_text(text)
    return tmp_path


@pytest.fixture
def env(home, place):
    return page_environment(home, place)


def follow(commands, folder, env):
    """Run the commands in one shell; each must succeed and print the shown output."""
    for step, answer in zip(commands, run(commands, folder, env), strict=True):
        check(step, *answer)


def commands(name):
    return [*steps(*(text for _, text in blocks("console", page(name))))]


@pytest.mark.real_server
def test_first_task(home, env, raw):
    export, *others = commands("tutorial/first-task")
    assert export.command.startswith("export SUBLET_REDIS_URL")
    follow(others, home, env)
    worker = subprocess.Popen(["sublet", "work", "tasks:app"], cwd=home, env=env, stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run(
            [sys.executable, "submit.py"], cwd=home, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "6 b.png@64.png\n", done.stderr
    finally:
        worker.terminate()
        assert worker.wait(20) == 0


@pytest.mark.real_server
def test_first_schedule(home, env, raw):
    follow(commands("tutorial/first-schedule"), home, env)


@pytest.mark.real_server
def test_first_worker_over_http(home, env, raw):
    """The worker has no address of Redis."""
    pytest.importorskip("aiohttp")
    need_curl()
    port = free_port()
    here = [
        step._replace(command=step.command.replace("8377", port))
        for step in commands("tutorial/first-http-worker")
    ]
    with served(home, env, port):
        follow(here, home, {name: value for name, value in env.items() if name != "SUBLET_REDIS_URL"})


def test_first_deploy(tmp_path, env):
    """The steps with Docker are tested by tests/platforms/test_deploy_compose.py."""
    (project := tmp_path / "project").mkdir()
    follow(commands("tutorial/first-deploy"), project, env)
    assert "SUBLET_TOKENS=me:admin:" in (project / "shop" / ".env").read_text()
    (build,) = [text for _, text in blocks("sh", page("tutorial/first-deploy")) if "pip wheel" in text]
    pip = "pip() { touch sublet-0.1.0-py3-none-any.whl; }"
    subprocess.run(["bash", "-ec", f"{pip}\n{build}"], cwd=project, env=env, check=True)
    assert (project / "shop" / "sublet-0.1.0-py3-none-any.whl").is_file()
    assert "whl[http]" in (project / "shop" / "requirements.txt").read_text()
    assert [path.name for path in project.iterdir()] == ["shop"]


@pytest.mark.real_server
def test_every_night_over_http(tmp_path, env, raw):
    """Without the cluster: the API answers here, with the token that the page has in its secret."""
    pytest.importorskip("aiohttp")
    need_curl()
    (project := tmp_path / "project").mkdir()
    port, token = free_port(), "0123456789abcdef" * 3
    mine = env | {"TOKEN": token, "SUBLET": f"http://127.0.0.1:{port}"}
    with served(project, env | {"SUBLET_TOKENS": f"me:admin:{token}"}, port):
        follow(commands("guides/nightly"), project, mine)
    assert (project / "k8s" / "tick.yaml").is_file()


@pytest.mark.real_server
@pytest.mark.parametrize("name", ["shop.py", "reports.py", "pages.py"])
def test_an_example_for_users_of_another_queue(tmp_path, env, raw, name):
    """Its job is submitted with the page's command, and a worker completes it."""
    files = dict(blocks("python", page("guides/migrate")))
    (tmp_path / name).write_text(files[name].replace("delay=60", "delay=0.1").replace("delay=5", "delay=0.1"))
    for command in (
        [sys.executable, name],
        ["sublet", "work", f"{name[:-3]}:app", "--max-jobs", "1", "--for", "50s"],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    (job,) = json.loads(
        subprocess.run(
            ["sublet", "list", "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        ).stdout
    )["jobs"]
    assert job["state"] == "completed"


@pytest.mark.real_server
def test_the_example_for_node_submits_a_job(home, env, raw):
    pytest.importorskip("aiohttp")
    if not shutil.which("node"):
        pytest.skip("no node on PATH")
    ((name, text),) = blocks("javascript", page("guides/migrate"))
    (home / name).write_text(text)
    port = free_port()
    with served(home, env, port):
        done = subprocess.run(
            ["node", name],
            cwd=home,
            env=env | {"SUBLET_SOURCE": f"http://127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout == "201\n", done.stderr


@pytest.mark.real_server
def test_the_code_of_the_readme_runs(tmp_path, env, raw):
    ((name, text),) = blocks("python", (ROOT / "README.md").read_text())
    (tmp_path / name).write_text(text)
    worker = subprocess.Popen(
        ["sublet", "work", "tasks:app"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL
    )
    try:
        done = subprocess.run(
            [sys.executable, name], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "b.png@64.png\n", done.stderr
    finally:
        worker.terminate()
        assert worker.wait(20) == 0
