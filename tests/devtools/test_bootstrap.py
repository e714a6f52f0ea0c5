"""A fresh checkout runs with Python and pip alone, whatever the state of its `.venv`.

The checkouts are tiny, with a generated wheel as their only dependency: no network.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest

from sublet.devtools import bootstrap
from tests.support.paths import ROOT

PROJECT = """
[project]
name = "sublet"
dependencies = ["tinydep>=1.0"]
[project.optional-dependencies]
demo = ["tiny.extra>=1"]
test = ["sublet[demo]"]
"""
MAIN = """
import json, os, sys
from sublet.devtools.bootstrap import ensure

def main():
    ensure(sys.argv[1:2])
    import tinydep
    print(json.dumps({"prefix": sys.prefix, "argv": sys.argv[1:], "guard": os.environ.get("SUBLET_SET_UP")}))
"""


# ── requirements ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_groups_are_expanded_without_duplicates() -> None:
    project = {
        "dependencies": ["a>=1", "b[x,y]"],
        "optional-dependencies": {
            "one": ["c", "Sublet[two]"],
            "two": ["d ; python_version > '3'", "a>=1", "sublet[one,two]"],
        },
    }
    assert bootstrap.requirements(project, []) == ["a>=1", "b[x,y]"]
    assert bootstrap.requirements(project, ["one"]) == ["a>=1", "b[x,y]", "c", "d ; python_version > '3'"]
    assert bootstrap.requirements(project, ["two", "one"]) == [
        "a>=1",
        "b[x,y]",
        "d ; python_version > '3'",
        "c",
    ]


def test_the_test_group_includes_the_demo_group() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    demo, tests = (bootstrap.requirements(project, [group]) for group in ("demo", "test"))
    assert set(project["dependencies"]) < set(demo) < set(tests)
    assert not [line for line in tests if line.startswith("sublet")]
    assert not [line for line in tests if ";" in line], "markers are not understood by bootstrap.missing"


def test_a_fingerprint_covers_the_requirements_and_the_python_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = bootstrap.fingerprint(["a>=1", "b"])
    assert one == bootstrap.fingerprint(["b", "a>=1"])
    assert one != bootstrap.fingerprint(["a>=2", "b"])
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert one != bootstrap.fingerprint(["a>=1", "b"])


@pytest.mark.parametrize(
    ("line", "is_missing"),
    [
        ("tiny-dep", False),
        ("Tiny.Dep[extra]>=6.0", False),
        ("tiny_dep >= 6.0.0, <9", False),
        ("tiny-dep>=5.10", False),
        ("tiny-dep>=6.0.1", True),
        ("tiny-dep>=6.1", True),
        ("tiny-dep>=10", True),
        ("tiny", True),
        ("half", True),
    ],
)
def test_missing_requirements_are_found_by_name_and_minimum_version(
    tmp_path: Path, line: str, is_missing: bool
) -> None:
    for name in ("tiny_dep-6.0.dist-info", "half-1.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "tiny_dep-6.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-dep\nVersion: 6.0rc1\n"
    )
    assert bootstrap.missing([line], [str(tmp_path)]) == ([line] if is_missing else [])


def test_bootstrap_imports_only_the_standard_library() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sublet.devtools.bootstrap; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(ROOT / "jobs")],
        capture_output=True,
        text=True,
        check=True,
    )
    outside = {name.partition(".")[0] for name in done.stdout.split()} - set(sys.stdlib_module_names)
    assert outside == {"sublet", "__main__"} - set(sys.stdlib_module_names)


def test_bootstrap_returns_at_once_if_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("this must not be needed")

    monkeypatch.setattr(os, "execve", never)
    monkeypatch.setattr(bootstrap, "_set_up", never)
    monkeypatch.setenv("SUBLET_SET_UP", str(tmp_path / ".venv"))
    bootstrap._ensure(tmp_path, ["demo"])  # not a checkout
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'another'\ndependencies = ['no-such-thing']\n"
    )
    bootstrap._ensure(tmp_path, ["demo"])  # the checkout of another project
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'sublet'\ndependencies = ['pytest>=1']\n")
    bootstrap._ensure(tmp_path, [])
    assert "SUBLET_SET_UP" not in os.environ, "its child processes must not inherit the guard"


def test_an_old_python_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    with pytest.raises(SystemExit) as stop:
        bootstrap.ensure([])
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("sublet: Python 3.11 or newer is needed")


@pytest.mark.parametrize(
    ("says", "told"), [("pip 22.2.1 from x", "pip 22.2.1 is too old"), ("", "apt-get install python3-pip")]
)
def test_an_old_pip_is_refused(monkeypatch: pytest.MonkeyPatch, says: str, told: str) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, says, "")
    )
    with pytest.raises(bootstrap._Stopped, match=told):
        bootstrap._find_pip()


# ── real runs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_wheel(folder: Path, name: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            f"{info}/RECORD",
            "".join(f"{file},,\n" for file in (f"{name}.py", f"{info}/METADATA", f"{info}/RECORD")),
        )


class Checkout:
    """A tiny project with the wheels that it needs."""

    def __init__(self, root: Path) -> None:
        self.root, self.venv, self.stamp = root, root / ".venv", root / ".venv" / "sublet-stamp"

    def begin(self, *words: str, **env: str) -> "subprocess.Popen[str]":
        home = self.root.parent
        fixed = {
            "PATH": os.defpath,
            "HOME": str(home / "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
        }
        return subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", "jobs", *words],
            cwd=self.root,
            env=fixed | {"PIP_FIND_LINKS": str(home / "wheels")} | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **env: str) -> tuple[dict[str, Any], str]:
        """Its stdout and stderr."""
        process = self.begin(*words, **env)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return json.loads(out), err

    def fail(self, *words: str, **env: str) -> str:
        process = self.begin(*words, **env)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        assert "Traceback" not in err
        return err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first run."""
    try:
        bootstrap._find_pip()
    except bootstrap._Stopped as stopped:
        pytest.skip(str(stopped))
    home = tmp_path_factory.mktemp("bootstrap")
    root = home / "checkout"
    for folder in (root / "jobs", home / "wheels", home / "home"):
        folder.mkdir(parents=True)
    for name in ("tinydep", "tiny_extra"):
        make_wheel(home / "wheels", name)
    package = root / "jobs" / "sublet"
    (package / "devtools").mkdir(parents=True)
    for name in ("__init__.py", "devtools/__init__.py"):
        (package / name).touch()
    for name in ("source_tree.py", "devtools/bootstrap.py"):
        shutil.copy(ROOT / "jobs" / "sublet" / name, package / name)
    shutil.copy(ROOT / "jobs" / "__main__.py", root / "jobs")
    (package / "__main__.py").write_text(MAIN)
    (root / "pyproject.toml").write_text(PROJECT)
    checkout = Checkout(root)
    answer, output = checkout.run("demo", "--flag", "two words")
    assert answer == {"prefix": str(checkout.venv), "argv": ["demo", "--flag", "two words"], "guard": None}
    assert output.startswith("first run: making .venv with 2 packages … ready in ")
    assert output.count("\n") == 1
    return checkout


@pytest.fixture
def checkout(made: Checkout, tmp_path: Path) -> Checkout:
    shutil.copytree(made.root.parent, tmp_path / "home", symlinks=True)
    return Checkout(tmp_path / "home" / "checkout")


def test_the_second_run_needs_no_pip_and_prints_nothing(checkout: Checkout) -> None:
    answer, output = checkout.run("demo", PIP_FIND_LINKS="/nowhere")
    assert (answer["prefix"], output) == (str(checkout.venv), "")


def test_a_second_group_is_added_and_the_first_stays_installed(checkout: Checkout) -> None:
    path = checkout.root / "pyproject.toml"
    path.write_text(
        PROJECT.replace('["tiny.extra>=1"]', "[]").replace(
            '"sublet[demo]"', '"sublet[demo]", "tiny_extra==1.0"'
        )
    )
    stamps = len(checkout.stamp.read_text().split())
    assert checkout.run("test")[1].startswith("bringing .venv up to date … ready in ")
    assert checkout.run("test")[1] == ""
    assert len(checkout.stamp.read_text().split()) == stamps + 1


def test_an_interrupted_set_up_is_repaired(checkout: Checkout) -> None:
    checkout.stamp.write_text("unfinished")
    next(checkout.venv.glob("lib/*/site-packages/tinydep.py")).unlink()  # pip would consider it installed
    assert checkout.run("demo")[1].startswith("first run")
    assert "unfinished" not in checkout.stamp.read_text()


def test_an_environment_of_a_deleted_python_is_recreated(checkout: Checkout) -> None:
    for name in os.listdir(checkout.venv / "bin"):
        if name.startswith("python"):
            (checkout.venv / "bin" / name).unlink()
    (checkout.venv / "bin" / "python").symlink_to("/nowhere/python3")
    assert checkout.run("demo")[1].startswith("first run")


def test_an_own_environment_of_another_python_is_recreated(checkout: Checkout) -> None:
    (checkout.venv / "pyvenv.cfg").write_text("home = /nowhere\nversion = 3.2.0\n")
    checkout.stamp.write_text("0123456789abcdef")
    assert checkout.run("demo")[1].startswith("first run")


def test_an_environment_of_another_tool_is_completed_and_not_recreated(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    EnvBuilder(with_pip=False, symlinks=True).create(checkout.venv)
    (checkout.venv / "theirs").touch()
    assert checkout.run("demo")[1].startswith("bringing .venv up to date")
    assert checkout.run("demo")[1] == ""
    assert (checkout.venv / "theirs").exists()
    assert not checkout.stamp.exists()


def test_two_concurrent_first_runs_create_one_environment(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    both = [checkout.begin("demo"), checkout.begin("demo")]
    output = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], output
    assert "".join(output).count("making .venv") == 1


def test_a_failure_of_pip_is_reported_with_the_end_of_its_output(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    output = checkout.fail("demo", PIP_FIND_LINKS="/nowhere")
    assert "No matching distribution found for tinydep>=1.0" in output
    assert output.splitlines()[-1].startswith("sublet: pip failed: check the network")
    assert checkout.stamp.read_text() == "unfinished"


def test_a_read_only_checkout_is_reported_in_one_line(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    shutil.rmtree(checkout.root / ".sublet")
    (checkout.root / ".sublet").touch()  # also for root
    output = checkout.fail("demo")
    assert output.startswith("sublet: cannot set up ")
    assert output.count("\n") == 1


def test_bootstrap_restarts_at_most_once(checkout: Checkout) -> None:
    checkout.stamp.unlink()
    next(checkout.venv.glob("lib/*/site-packages/tinydep-1.0.dist-info/METADATA")).unlink()
    output = checkout.fail("demo", SUBLET_SET_UP=str(checkout.venv))
    assert "still lacks tinydep>=1.0" in output
