"""Errors of an app that cannot be imported, if its environment lies inside the project folder."""

import subprocess
import sys

import pytest

from sublet.errors import Invalid
from sublet.execution.app_loader import load_app


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_the_place_of_an_import_error_is_in_the_users_own_files(tmp_path, monkeypatch, folder):
    """…and not in a package that is installed in ./env, which only raised it."""
    installed = tmp_path / "env" / "lib" / folder
    installed.mkdir(parents=True)
    name = f"picky_{folder[:4]}"
    (installed / f"{name}.py").write_text("def check():\n    raise ValueError('no')\n")
    (tmp_path / f"own_{name}.py").write_text(f"import {name}\n\n{name}.check()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Invalid, match=rf"ValueError: no \(own_{name}.py:3\);"):
        load_app(f"own_{name}:app")


def test_what_an_import_prints_is_no_output_of_the_command(tmp_path):
    (tmp_path / "loud.py").write_text(
        "import subprocess\nfrom sublet import App\nprint('printed')\nsubprocess.run(['echo', 'by a program'])\napp = App()\n"
    )
    command = "from sublet.execution.app_loader import load_app; load_app('loud:app'); print('own')"
    ran = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, sorted(ran.stderr.splitlines())) == ("own\n", ["by a program", "printed"])


def test_a_file_is_refused_with_the_module_to_write(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    for file, advice in [
        ("mail.py", "write it as a module: mail:app"),
        (f"{tmp_path}/shop/sub/mail.py:mine", "write it as a module: sub.mail:mine"),
        (f"{tmp_path}/mail.py", f"change to the folder {tmp_path}, and write mail:app"),
    ]:
        with pytest.raises(Invalid) as caught:
            load_app(file)
        assert str(caught.value) == f"{file.partition(':')[0]} is a file; {advice}"
