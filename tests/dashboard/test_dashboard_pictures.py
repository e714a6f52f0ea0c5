"""The documents' pictures of the dashboard: one script takes them, and they are small, whole and shown."""

import re
import struct
import subprocess
import sys

from bench import dashboard_pictures as script
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.browser"]
NAMES = {f"dashboard-{view}-{scheme}.webp" for view in script.VIEWS for scheme in script.SCHEMES}
BYTES = 150_000
SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)]*?(dashboard-[a-z-]+\.webp))\)")


def size_of(picture):
    """Width and height of a lossy WebP."""
    data = picture.read_bytes()
    assert (data[:4], data[8:12]) == (b"RIFF", b"WEBP")
    frame = data.index(b"\x9d\x01\x2a")
    return tuple(number & 0x3FFF for number in struct.unpack("<HH", data[frame + 3 : frame + 7]))


def check(folder):
    assert {path.name for path in folder.glob("dashboard-*")} == NAMES
    for name in NAMES:
        assert (folder / name).stat().st_size <= BYTES, name
        assert size_of(folder / name)[0] == script.SCALE * script.WIDTH, name


def test_each_picture_is_there_small_and_shown_with_a_text():
    check(script.PICTURES)
    page = ROOT / "docs" / "guides" / "dashboard.md"
    shown = {name for _, _, name in SHOWN.findall(page.read_text())}
    assert shown == NAMES
    for path in (page, ROOT / "README.md"):
        found = SHOWN.findall(path.read_text())
        assert found, path
        assert all((path.parent / target).is_file() for _, target, _ in found)


def test_the_script_takes_each_picture(chromium, tmp_path):
    words = [sys.executable, "bench/dashboard_pictures.py", "--to", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    check(tmp_path)
