"""An empty project for `sublet init`, and its calls: a plugin."""

import pytest

from sublet.cli import main


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.delenv("SUBLET_APP", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ask(capsys):
    """Call `sublet init …`; returns the exit code and the output."""

    def call(*words):
        code = main.run(["init", *words])
        output = capsys.readouterr()
        return code, output.out, output.err

    return call
