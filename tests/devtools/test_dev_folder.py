"""The temporary folder of `sublet dev`: one path per project, never shared, never another user's."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from sublet.devtools import temporary_folder
from sublet.devtools.temporary_folder import LOCKS, temporary
from sublet.errors import Unavailable


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary_folder, "LOCK_SECONDS", 0.0)


def test_a_project_has_one_path_and_each_project_another(tmp_path: Path) -> None:
    with temporary(tmp_path / "a") as first, temporary(tmp_path / "b") as other:
        assert (first.reason, other.reason) == ("", "")
        assert first.path != other.path
        assert first.path.stat().st_mode & 0o777 == 0o700
    assert not first.path.exists()
    with temporary(tmp_path / "c" / ".." / "a") as again:
        assert again == first


def test_a_path_in_use_gets_a_number_and_a_reason(tmp_path: Path) -> None:
    with temporary(tmp_path) as first, temporary(tmp_path) as second, temporary(tmp_path) as third:
        assert [second.path, third.path] == [Path(f"{first.path}-{n}") for n in (2, 3)]
        assert (
            second.reason
            == third.reason
            == f"another `sublet dev` of this project, or its server, uses {first.path}"
        )


def test_the_files_of_a_killed_platform_are_removed_once_its_server_has_ended(tmp_path: Path) -> None:
    with temporary(tmp_path) as usual:
        pass
    usual.path.mkdir(mode=0o700)
    (usual.path / "appendonlydir").mkdir()
    (usual.path / "appendonlydir" / "data").touch()
    with open(usual.path / LOCKS[1], "ab") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        with temporary(tmp_path) as other:
            assert other.path != usual.path
            assert (usual.path / "appendonlydir" / "data").exists()
    with temporary(tmp_path) as again:
        assert again == usual
        assert {path.name for path in again.path.iterdir()} == set(LOCKS)


@pytest.mark.parametrize("files", [(), LOCKS[:1], LOCKS])
def test_another_project_removes_the_old_folder_of_a_killed_platform(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    """However early it was killed: before it made its lock, or that of its server."""
    with temporary(tmp_path / "a") as old:
        pass
    old.path.mkdir(mode=0o700)
    (old.path / "data").touch()
    for name in files:
        (old.path / name).touch()
    with temporary(tmp_path / "b"):
        assert old.path.exists(), "it is fresh: its platform may be starting"
    for path in (*old.path.iterdir(), old.path):
        os.utime(path, (0, 0))
    with temporary(tmp_path / "b"):
        assert not old.path.exists()


def test_an_old_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    with temporary(tmp_path / "a") as used:
        for path in (*used.path.iterdir(), used.path):
            os.utime(path, (0, 0))
        with temporary(tmp_path / "b"):
            assert used.path.exists()


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_that_others_may_have_made_is_not_used(kind: str, tmp_path: Path) -> None:
    with temporary(tmp_path) as usual:
        pass
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        usual.path.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        usual.path.touch(mode=0o600)
    else:
        usual.path.mkdir()
        usual.path.chmod(0o777)
    with temporary(tmp_path) as other:
        assert other.path != usual.path
        assert str(usual.path) in other.reason
    assert os.path.lexists(usual.path)
    assert not any((tmp_path / "elsewhere").glob("*"))


def test_without_a_usable_path_the_error_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_folder, "FOLDERS_MAX", 1)
    with temporary(tmp_path), pytest.raises(Unavailable, match="use --data DIR"), temporary(tmp_path):
        pass
