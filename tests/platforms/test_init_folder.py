"""`sublet init TARGET --to FOLDER` writes the absolute path of the folder into the files that need it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest_plugins = ["tests.support.empty_project"]
pytestmark = pytest.mark.usefixtures("project")
TARGETS = sorted(readme.parent.name for readme in (ROOT / "deploy").glob("*/README.md"))
SECONDS = 60.0
UNSEEN = "the units do not see"


def program_in(folder):
    """A program at the path that the units name."""
    program = folder / ".venv" / "bin" / "sublet"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$PWD: $*" > ran\n')
    program.chmod(0o700)
    return program


@pytest.mark.parametrize("to", ["shop", "shops/my shop é", ".", "./a/../shop"])
def test_the_units_name_the_folder(to, ask, project):
    folder = Path(os.path.normpath(project / to))
    assert ask("systemd", "--to", to)[0] == 0
    program = program_in(folder)
    for name, arguments in (
        ("api", "serve"),
        ("worker@", "work tasks:app"),
        ("tick", "tick --for 55s --every 5s"),
    ):
        text = (folder / f"sublet-{name}.service").read_text()
        assert "/srv/sublet" not in text
        assert re.findall(r"^WorkingDirectory=(.*)$", text, re.MULTILINE) == [str(folder)] * (name != "tick")
        shown = f'"{program}"' if " " in to else str(program)
        assert f"\nExecStart={shown} {arguments}\n" in text
    assert f"`{folder}/.venv`" in (folder / "systemd.md").read_text()
    if shutil.which("systemd-analyze"):
        units = [path for path in folder.glob("sublet*") if path.suffix != ".env"]
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=SECONDS
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("to", ["shop", "my shop é"])
def test_the_crontab_changes_to_the_folder(to, ask, project):
    folder = project / to
    assert ask("crontab", "--to", to)[0] == 0
    program_in(folder)
    (folder / ".env").touch()
    for name in ("crontab", "crontab-http"):
        for line in (folder / name).read_text().splitlines():
            if line.startswith("* "):
                command = line.split(None, 5)[5].replace("exec curl", "exec .venv/bin/sublet")
                (folder / "ran").unlink(missing_ok=True)
                env = {"HOME": "/", "PATH": "/usr/bin:/bin"}
                subprocess.run(
                    ["/bin/sh", "-c", command.replace(">/dev/null", "")], env=env, cwd="/", timeout=SECONDS
                )
                assert (folder / "ran").read_text().startswith(f"{folder}: "), command
    assert "~/sublet" not in (folder / "crontab").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_no_file_names_the_example_folder(target, ask, project):
    ask(target, "--to", "here")
    for path in (project / "here").rglob("*"):
        assert not path.is_file() or not re.search(r"(/srv|\$HOME|~)/sublet\b", path.read_text()), path


@pytest.mark.parametrize("target", ["systemd", "crontab"])
@pytest.mark.parametrize("name", ["50%", "a$b", 'a"b', "a'b", "a\\b", "a`b", "a\nb", "a\udcffb", "a "])
def test_a_folder_that_would_need_quotes_is_refused(target, name, ask, project):
    code, _, error = ask(target, "--to", name)
    assert code == 2
    assert "cannot be written into the files of this target" in error
    assert "use another (--to)" in error
    assert list(project.iterdir()) == []
    assert ask("compose", "--to", name)[0] == 0, "no file of this target names the folder"


@pytest.mark.parametrize(
    "folder", ["/home/me/shop", "/root/shop", "/run/user/1000/shop", "/tmp/shop-not-there", "link"]
)
def test_a_folder_that_units_do_not_see_is_reported(folder, ask, project, monkeypatch):
    (project / "link").symlink_to("/home/me/shop")
    monkeypatch.setattr("sublet.cli.develop.init._write", lambda folder, new: None)
    monkeypatch.setattr("sublet.cli.develop.init._project", Path)
    _, output, _ = ask("systemd", "--to", folder, "--json")
    assert [UNSEEN in step for step in json.loads(output)["first"]].count(True) == 1
    _, output, _ = ask("systemd", "--to", "/srv/home/shop", "--json")
    assert UNSEEN not in output
    _, output, _ = ask("crontab", "--to", folder, "--json")
    assert UNSEEN not in output
