"""The compose files and Dockerfiles: checked with their schemas, and executed here without containers."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import yaml

from sublet.cli.commands import COMMANDS
from sublet.operations.diagnosis.server_checks import first_fixed
from sublet_functions.serve import CLOSE_SECONDS, GRACE
from tests.support.containers import SECONDS, build, instructions, interpolated, seconds, sent, up
from tests.support.pages import blocks, check, command_on_path, need_curl, run, steps
from tests.support.paths import ROOT
from tests.support.processes import until

MINE, YOURS = ROOT, ROOT / "deploy" / "compose"
"""The folders with a compose.yaml and a Dockerfile: that of the checkout, and that for a user's project."""
CONTAINERS = [ROOT / "deploy" / target for target in ("compose", "kubernetes", "knative", "cloud-run")]
BOTH = pytest.mark.parametrize("folder", [MINE, YOURS], ids=["checkout", "project"])
PAGE = (ROOT / "docs" / "platforms" / "compose.md").read_text()


def exec_lines(page: str) -> Iterator[tuple[str, list[str]]]:
    for line in re.findall(r"docker compose exec (\w+ [^\n`]+)", page):
        yield line.partition(" ")[0], shlex.split(line.partition(" ")[2])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The image of the checkout."""
    return build(MINE, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def executed(checkout, tmp_path_factory):
    """The page's first section without containers: the stack, and the output of each command."""
    need_curl()
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server on PATH")
    folder = tmp_path_factory.mktemp("story")
    first, rest, *_ = [list(steps(console)) for _, console in blocks("console", PAGE)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    for step, answer in zip(first, run(first, folder, plain), strict=True):
        check(step, *answer)
    env = dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())
    with up(MINE, checkout, env, folder / "stack") as stack:
        here = [step._replace(command=stack.here(step.command)) for step in rest]
        yield stack, folder, list(zip(here, run(here, folder, plain), strict=True))


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_checkouts_files_differ_from_the_templates_only_where_needed():
    assert (MINE / "compose.yaml").read_text().replace("examples.greet:app", "tasks:app") == (
        YOURS / "compose.yaml"
    ).read_text()
    own = (MINE / "Dockerfile").read_text().replace("COPY . .", "COPY requirements.txt *.whl ./")
    own = own.replace("install '.[http]'", "install -r requirements.txt")
    assert own.replace("COPY examples examples", "COPY . .") == (YOURS / "Dockerfile").read_text()


@pytest.mark.parametrize("name", ["Dockerfile", ".dockerignore", "requirements.txt"])
def test_all_targets_with_an_image_have_the_same_files(name):
    """A project may use several of them: `sublet init` keeps existing files."""
    assert len({(folder / name).read_text() for folder in CONTAINERS}) == 1


def test_a_change_of_code_does_not_reinstall_dependencies():
    """The dependencies are installed from the requirements alone. BuildKit's syntax is not used."""
    lines = instructions(YOURS / "Dockerfile")
    last = max(number for number, (word, rest) in enumerate(lines) if word == "RUN" and "install" in rest)
    assert [rest for word, rest in lines[:last] if word == "COPY"] == ["requirements.txt *.whl ./"]
    assert not [rest for _, rest in lines if "--mount" in rest]
    (env,) = [rest for word, rest in lines if word == "ENV"]
    assert "PORT=8377" in env.split()  # a platform's own PORT overrides it


def test_the_compose_files_match_the_schema(tmp_path):
    """A misspelt word is found."""
    (tmp_path / "wrong.yaml").write_text(
        (MINE / "compose.yaml").read_text().replace("depends_on:", "dependson:")
    )
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    good, wrong = [subprocess.run([*words, *paths], capture_output=True, text=True, timeout=SECONDS)
                   for paths in ([MINE / "compose.yaml", YOURS / "compose.yaml"], [tmp_path / "wrong.yaml"])]  # fmt: skip
    assert good.returncode == 0, good.stdout
    assert wrong.returncode == 1
    assert "dependson" in wrong.stdout


@BOTH
def test_hadolint_accepts_the_dockerfile(folder, tmp_path):
    (tmp_path / "Dockerfile").write_text((folder / "Dockerfile").read_text().replace("CMD [", "CMD sublet ["))
    words = [
        Path(sys.executable).with_name("hadolint"),
        "--no-color",
        "--ignore",
        "DL3013",
    ]  # the versions are those of the build time
    good, bad = [subprocess.run([*words, place / "Dockerfile"], capture_output=True, text=True, timeout=SECONDS)
                 for place in (folder, tmp_path)]  # fmt: skip
    assert (good.returncode, good.stdout) == (0, "")
    assert "DL3025" in bad.stdout


@BOTH
def test_without_a_token_compose_fails_with_instructions(folder):
    services = yaml.safe_load((folder / "compose.yaml").read_text())
    with pytest.raises(LookupError, match=r"make the file \.env first"):
        interpolated(services, {})
    assert "openssl rand -hex 24" in (folder / "compose.yaml").read_text().partition("services:")[0]


@BOTH
def test_services_are_unprivileged_read_only_and_on_loopback(folder):
    spec = yaml.safe_load((folder / "compose.yaml").read_text())
    for name, service in spec["services"].items():
        assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True)
        assert service["restart"] == "unless-stopped"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert ("SUBLET_TOKENS" in service.get("environment", {})) == (name == "api")
    redis_ = spec["services"]["redis"]
    assert (redis_["user"], redis_["networks"], spec["networks"]["data"]) == (
        "redis",
        ["data"],
        {"internal": True},
    )
    *_, image = redis_["image"].rpartition(":")
    assert first_fixed("redis", (int(image), 99, 0)) == ""


@BOTH
def test_the_api_is_reachable_and_tasks_may_write_to_tmp(folder):
    spec = yaml.safe_load((folder / "compose.yaml").read_text())
    open_ones = {
        name
        for name in ("default", *spec["networks"])
        if not (spec["networks"].get(name) or {}).get("internal")
    }
    for name in ("api", "tick", "worker"):
        service = spec["services"][name]
        assert "data" in service["networks"], "Redis is in this network"
        assert [one for one in service["tmpfs"] if one.split(":")[0] == "/tmp"], name
        assert open_ones & {*service["networks"]}, (
            "ports of an internal network cannot be reached, and its containers reach no other host"
        )
    assert [port for port in spec["services"]["api"]["ports"] if port.endswith(":8377")]
    _, command, *words = spec["services"]["tick"]["command"]
    assert COMMANDS[command].read(words).every <= 10


@BOTH
def test_the_stop_grace_period_is_longer_than_a_stop(folder):
    spec = yaml.safe_load((folder / "compose.yaml").read_text())
    for name in ("api", "tick", "worker"):
        assert seconds(spec["services"][name]["stop_grace_period"]) > GRACE + 2 * CLOSE_SECONDS, name


def test_secret_and_large_files_are_not_in_the_build_context(tmp_path):
    assert {path.parts[0] for path in sent(MINE)} == {
        "pyproject.toml", "README.md", "LICENSE", "jobs", "functions", "lua", "deploy", "examples"
    }  # fmt: skip
    secret = [
        f"{folder}{name}"
        for folder in ("", "sub/", "sub/deep/")
        for name in (".env", ".env.old", "tick.header")
    ]
    large = [
        ".git/config",
        ".venv/bin/python",
        "sub/.venv/bin/python",
        "sub/.git/config",
        "sub/__pycache__/a.pyc",
    ]
    for name in (*secret, *large, "tasks.py", "sub/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(YOURS / ".dockerignore", tmp_path)
    assert {str(path) for path in sent(tmp_path)} == {"tasks.py", "sub/b.py", ".dockerignore"}


def test_typed_commands_name_existing_services_and_options():
    """The blocks that no test can run: their services and commands exist."""
    services = yaml.safe_load((MINE / "compose.yaml").read_text())["services"]
    pages = [PAGE, (YOURS / "README.md").read_text()]
    typed = [line.split() for page in pages for _, block in blocks("sh", page) for line in block.splitlines()]
    assert len(typed) > 8
    for verb, words in [(line[2], line[3:]) for line in typed if line[:2] == ["docker", "compose"]]:
        named = (
            {"exec": words[0], "logs": words[-1], "up": words[-1].partition("=")[0]}.get(verb)
            if words
            else None
        )
        assert named is None or named in services or named.startswith("--"), (verb, words)
    for _, (program, command, *words) in exec_lines("\n".join(pages)):
        assert program == "sublet"
        COMMANDS[command].read(words)


# ── the running stack ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_image_is_small_and_unprivileged(checkout):
    assert (checkout.stages, checkout.user, checkout.command) == (2, "10001:10001", ["sublet", "serve"])
    assert checkout.env["SUBLET_HOST"] == "0.0.0.0"
    assert {path.name for path in checkout.at("/opt/sublet/bin").glob("[ps][iu]*")} == {"sublet"}
    installed = {path.name for path in checkout.at("/opt/sublet").glob("lib/python*/site-packages/*")}
    assert {"sublet", "sublet_functions", "aiohttp"} <= installed
    assert not {"hatchling", "pip", "setuptools"} & installed


def test_the_commands_of_the_page_print_the_shown_output(executed):
    _, folder, shown = executed
    assert (folder / ".env").stat().st_mode & 0o077 == 0
    for step, answer in shown:
        check(step, *answer)


def test_submitting_from_a_container_works_as_documented(executed):
    stack, *_ = executed
    (service, words), *_ = exec_lines(PAGE)
    done = stack.run(service, words)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, '"Hello, Grace!"', "")


def test_redis_has_the_required_settings_and_the_doctor_agrees(executed):
    stack, *_ = executed
    with redis.Redis(port=int(stack.ports["redis"]), decode_responses=True) as client:
        config = client.config_get("maxmemory-policy", "appendonly", "appendfsync", "save", "maxmemory")
    assert config == {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": "",
                    "maxmemory": str(512 << 20)}  # fmt: skip
    done = stack.run("api", ["sublet", "doctor", "--json"])
    found = {
        (one["subject"], one["level"]) for one in json.loads(done.stdout)["checks"] if one["level"] != "ok"
    }
    assert found <= {("security", "warn")}, done.stdout  # this machine's Redis may be older than the image


def is_written(persistence):
    """Has everything been written to the file? On a slow disk `everysec` may be late by a second or two."""
    return not persistence["aof_buffer_length"] and not persistence["aof_pending_bio_fsync"]


def test_acknowledged_jobs_survive_a_kill_of_redis(executed):
    """Redis is killed while workers, API and tick run; they continue after its restart."""
    stack, *_ = executed
    submit = ["sublet", "submit", "greet", '{"name": "Bob"}', "--delay", "1h", "--id", "later"]
    assert stack.run("api", submit).returncode == 0
    with redis.Redis(port=int(stack.ports["redis"])) as client:
        until(lambda: is_written(client.info("persistence")))
    (server,) = stack.processes("redis")
    server.kill()
    server.wait(SECONDS)
    stack.running.remove(("redis", server))
    assert not stack.is_healthy("redis")
    assert not stack.is_healthy("api")
    stack.start("redis")
    until(lambda: stack.is_healthy("redis") and stack.is_healthy("api"))
    assert stack.run("api", ["sublet", "promote", "0-later"]).returncode == 0
    done = stack.run(
        "api", ["sublet", "submit", "greet", '{"name": "Bob"}', "--id", "later", "--wait", "30s"]
    )
    assert done.stdout.strip() == '"Hello, Bob!"', done
    assert [process.poll() for name in ("api", "worker") for process in stack.processes(name)] == [None] * 3


def test_all_processes_end_on_sigterm(executed):
    """The last test of this stack: all processes end within the stop grace period, and without SIGKILL."""
    stack, *_ = executed
    codes, output = stack.stop(), stack.output("tick")
    assert codes | {"tick": 0} == {"api": 0, "tick": 0, "worker": 0, "redis": 0}
    # a tick that Redis did not answer in time has ended before, and its restart policy would have started another
    assert codes["tick"] == -signal.SIGTERM or (codes["tick"] == 3 and "no answer from Redis" in output), (
        output
    )
    assert "Traceback" not in "".join(stack.output(name) for name in stack.services)


def test_a_users_project_works_as_documented(checkout, tmp_path):
    """Its files, its image with our wheel, its job. The wheel's dependencies are those of the previous image."""
    *_, console = [list(steps(console)) for _, console in blocks("console", PAGE)]
    project = tmp_path / "project"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": command_on_path(tmp_path), "LC_ALL": "C"}
    project.mkdir()
    for step, answer in zip(console, run(console, project, env), strict=True):
        check(step, *answer)
    words = ["pip", "wheel", "-q", "--no-deps", "--wheel-dir", project, checkout.at("/src")]
    subprocess.run(
        words,
        check=True,
        timeout=300,
        env={**os.environ, "PATH": f"{checkout.at('/tools')}:{os.environ['PATH']}"},
    )
    (wheel,) = project.glob("*.whl")
    asked = (project / "requirements.txt").read_text()
    (project / "requirements.txt").write_text(asked.replace("sublet[http]", f"./{wheel.name}[http]"))
    image = build(project, tmp_path / "image", PIP_NO_DEPS="1")
    (packages,) = image.at("/opt/sublet").glob("lib/python*/site-packages")
    (others,) = checkout.at("/opt/sublet").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{others}\n")
    with up(project, image, {"SUBLET_TOKENS": "me:admin:" + "s" * 24}, tmp_path / "stack") as stack:
        *_, (service, words) = exec_lines(PAGE)
        done = stack.run(service, words)
        assert (done.stdout.strip(), done.stderr) == ('"hello, Ada"', "")
        stack.stop()
