"""The wheel is built, installed in an empty environment, and used there."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol.scripts import LIBRARIES, NAMES
from sublet_functions.dashboard.files import static_files
from tests.support.paths import ROOT

OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""The environment without the checkout's import folders, which `python3 -m jobs test` adds."""


def run(*words, env=None, **how):
    words, env = [str(word) for word in words], {**OUTSIDE, **(env or {})}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=env, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel and its dependencies alone."""
    folder = tmp_path_factory.mktemp("installed")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    pip = [sys.executable if has_pip() else "python3", "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--quiet", wheel)
    return folder / "bin"


def has_pip():
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


def test_the_wheel_has_two_top_level_names_and_every_script(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "sublet",
        "sublet_functions",
    }
    assert {f"sublet/lua/{name}.lua" for name in (*NAMES, *LIBRARIES)} <= set(names)
    assert {"sublet/py.typed", "sublet_functions/py.typed"} <= set(names)
    static = "sublet_functions/dashboard/static/"
    assert {f"{static}{name}" for name in static_files()} <= set(names)


def templates():
    """The templates of the checkout, by their names below `deploy/`."""
    paths = (
        path for path in (ROOT / "deploy").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(ROOT / "deploy")) for path in paths}


def test_the_wheel_and_the_sdist_have_every_template_and_no_other_files_of_deploy(wheel, dist):
    packed = {
        name.removeprefix("sublet/deploy/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("sublet/deploy/")
    }
    assert packed == templates()
    assert "compose/.dockerignore" in packed
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        inside = {name.partition("/deploy/")[2] for name in archive.getnames() if name.count("/") > 1}
    assert templates() <= inside


def test_the_sdist_has_the_files_that_the_suite_needs(dist):
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {"/".join(name.split("/")[1:]) for name in archive.getnames()}
    assert {"lua/claim.lua", "tests/conftest.py", "README.md", "LICENSE", "pyproject.toml"} <= names


def test_an_installed_sublet_finds_every_script_and_runs_the_doctor(installed, tmp_path):
    scripts = run(installed / "sublet", "scripts", cwd=tmp_path)
    assert all(f"{name} " in scripts for name in NAMES)
    with EmbeddedServer.start(tmp_path / "data") as server:
        url = ("--redis-url", server.url)
        assert "valkey" in run(installed / "sublet", "doctor", *url, cwd=tmp_path).lower()
        job_id = run(installed / "sublet", "submit", "t", *url, cwd=tmp_path).strip()
        assert "queued" in run(installed / "sublet", "get", job_id, *url, cwd=tmp_path)


@pytest.mark.parametrize("command", ["simulate", "chaos"])
def test_suites_of_the_checkout_are_not_in_the_wheel(command, installed, tmp_path):
    words = [installed / "sublet", command]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=OUTSIDE, timeout=60)
    assert done.returncode == 2
    assert "is in the source checkout, not in the installed package" in done.stderr


@pytest.mark.parametrize("how", ["installed", "from the wheel itself"])
def test_a_shipped_sublet_writes_a_template_into_an_empty_folder(how, installed, wheel, tmp_path):
    """A wheel is a zip file, from which Python can also run."""
    words = [installed / "sublet"] if how == "installed" else [installed / "python", "-m", "sublet"]
    env = {} if how == "installed" else {"PYTHONPATH": str(wheel)}
    where = run(installed / "python", "-c", "import sublet; print(sublet.__file__)", cwd=tmp_path, env=env)
    assert (".whl" in where) == (how != "installed")
    assert "wrote compose.yaml\n" in run(*words, "init", "compose", cwd=tmp_path, env=env)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written.pop("tasks.py").startswith("from sublet import App")
    packed = {path.name: path.read_text() for path in (ROOT / "deploy" / "compose").iterdir()}
    assert written == {"compose.md": packed.pop("README.md"), **packed}
    assert run(*words, "init", "compose", cwd=tmp_path, env=env).count("there already: ") == len(written)


def test_an_installed_sublet_is_typed_for_its_users(installed, tmp_path):
    program = "from sublet import App\napp = App()\n@app.task\nasync def f(a: int) -> str: return str(a)\nf.job('words')\n"
    (tmp_path / "program.py").write_text(program)
    words = [sys.executable, "-m", "mypy", "--python-executable", str(installed / "python"), "program.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=OUTSIDE, timeout=120)
    assert 'incompatible type "str"; expected "int"' in done.stdout, done.stdout
