"""Packages from npm, for tests that need them. Where the registry cannot be reached, such a test skips within
seconds."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRED = "npm" in os.environ.get("SUBLET_TEST_REQUIRE", "").split(",")
"""Whether a test fails where it would otherwise skip: set in CI, where a constant skip would hide a failure.
"""
PROBE_SECONDS = 10
"""How long the registry may take to answer a small request before a test skips."""
INSTALL_SECONDS = 180


def packages(folder: Path, *names: str) -> Path:
    """The folder `node_modules` with these packages (`NAME` or `NAME@VERSION`): one named by NODE_PATH, or else made
    in `folder`.

    Skips the test where node or npm is missing or the registry does not answer; fails it where REQUIRED.
    """
    for path in filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)):
        if all((Path(path) / re.sub(r"(?<=.)@.*", "", name)).is_dir() for name in names):
            return Path(path).resolve()
    if reason := unreachable():
        _skip(f"{', '.join(names)} come from npm: {reason}")
    words = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *names]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    assert done.returncode == 0, done.stderr
    return folder / "node_modules"


@functools.cache
def unreachable() -> str:
    """Why packages cannot be installed; empty where they can. Tries it once per process."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "no node and npm on PATH"
    words = ["npm", "view", "redis", "version", "--fetch-retries=0", f"--fetch-timeout={PROBE_SECONDS}000"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the registry did not answer within {PROBE_SECONDS} s"
    first = done.stderr.strip().partition("\n")[0]
    return "" if done.returncode == 0 else f"the registry cannot be reached ({first})"


def _skip(reason: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(f"SUBLET_TEST_REQUIRE=npm does not allow a skip: {reason}")
    pytest.skip(reason)
