"""Files as a backend for large payloads: private, whole, in their directory, listed in pages."""

import os
import stat
import subprocess
import sys
import time

import pytest

from sublet.large_payloads import Files

NAME = "ns/" + "ab" * 32 + ".0-a:b_c.d"


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "large")


def objects(files):
    """All files of a backend."""
    return sorted(path for path in files.directory.rglob("*") if path.is_file())


def test_files_are_private_and_written_as_a_whole(files):
    before = os.umask(0)
    try:
        files.put(NAME, b"one")
    finally:
        os.umask(before)
    files.put(NAME, b"two")
    (path,) = objects(files)
    assert (path.relative_to(files.directory).as_posix(), path.read_bytes()) == (f"ns/ab/{NAME[3:]}", b"two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (files.directory, path.parent)} == {0o700}


def test_a_failed_write_leaves_the_object_and_no_other_file(files, monkeypatch):
    files.put(NAME, b"one")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.put(NAME, b"two")
    assert [path.read_bytes() for path in objects(files)] == [b"one"]


@pytest.mark.parametrize(
    "name", ["../a/b.c", "a/../../b", "/etc/passwd", "a/.hidden", "../aa", "a", "a/b/c", "a\0/bb"]
)
def test_names_stay_in_the_directory(files, name):
    with pytest.raises(ValueError, match="use NAMESPACE/NAME"):
        files.put(name, b"x")
    with pytest.raises(ValueError, match="use NAMESPACE/NAME"):
        files.get(name)


def test_a_scan_pages_in_order(files):
    names = sorted(f"ns/{i:02x}{'0' * 62}.0-{i}" for i in range(0, 256, 5))
    for name in reversed(names):
        files.put(name, b"")
    files.put("nsx/" + "0" * 64 + ".0-a", b"")
    found, after = [], ""
    while page := files.scan("ns/", after, 7):
        found += [name for name, _ in page]
        after = page[-1][0]
        assert all(0 <= age < 60 for _, age in page)
    assert found == names
    files.delete([*names, "ns/" + "ff" * 32 + ".0-missing"])
    assert list(files.scan("ns/", "", 7)) == []
    assert list(files.scan("missing/", "", 7)) == []


def test_a_scan_deletes_files_of_dead_writers_after_a_day(files):
    files.put(NAME, b"x")
    new, old = (objects(files)[0].with_name(f".new-{name}") for name in ("new", "old"))
    for path in (new, old):
        path.write_bytes(b"half")
    past = time.time() - 90_000
    os.utime(old, (past, past))
    assert [name for name, _ in files.scan("ns/", "", 10)] == [NAME]
    assert (new.exists(), old.exists()) == (True, False)


def test_a_killed_writer_leaves_no_object(files, tmp_path):
    code = (
        "import os, sys; from sublet.large_payloads import Files; "
        "os.fsync = lambda _: os.kill(os.getpid(), 9); Files(sys.argv[1]).put(sys.argv[2], b'x')"
    )
    files.directory.joinpath("ns", "ab").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", code, files.address, NAME],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -9
    with pytest.raises(KeyError):
        files.get(NAME)
