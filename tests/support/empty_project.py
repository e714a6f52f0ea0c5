"""An empty project for `sublet init`."""

import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.delenv("SUBLET_APP", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
