"""Errors of an app that cannot be imported, if its environment lies inside the project folder."""

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
