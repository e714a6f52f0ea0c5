"""An environment for each contestant: its latest release and what belongs to it, apart from all others. Made once, and kept.

Needs nothing but Python with pip, and npm for those that run on node: it is what makes everything else.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from venv import EnvBuilder

ROOT = Path(__file__).resolve().parents[2]
STAMP = "bench-stamp"
AT_ONCE = 4
"""Environments that are made side by side: most of it is waiting for the network."""
PATIENCE = 600.0
"""Seconds that one may take."""


def make(folder: Path, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Have an environment in `folder` for each of the wanted; by name why one is not there, in a few words.

    One that is there and complete is left as it is, so a second run needs no network; delete the folder to have the latest
    releases. Says on stderr what it does. Safe to be interrupted, and to be run twice at the same time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not _lacking(folder, wanted):
        return {}
    with holding(folder, alone=True):
        lacking = _lacking(folder, wanted)
        if not lacking:  # another run has made them meanwhile
            return {}
        say(f"making environments in {folder}: {', '.join(lacking)} …")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = pool.map(lambda item: _make(folder / item[0], item[1]), lacking.items())
            return {name: why for name, why in zip(lacking, made, strict=True) if why}


def command_of(folder: Path, program: Path) -> tuple[str, ...]:
    """The words that run a program in the environment of that folder."""
    return (shutil.which("node") or "node" if program.suffix == ".mjs" else str(folder / "bin" / "python"), str(program))


def say(words: str) -> None:
    """A line on stderr."""
    print(words, file=sys.stderr, flush=True)


def _lacking(folder: Path, wanted: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    return {name: packages for name, packages in wanted.items() if not _is_made(folder / name, packages)}


def _is_made(folder: Path, packages: Sequence[str]) -> bool:
    stamp = folder / STAMP
    return stamp.is_file() and stamp.read_text() == _key(folder.name, packages)


def _key(name: str, packages: Sequence[str]) -> str:
    """A short name for: these packages under this Python; for our own, also what the checkout needs."""
    lines = [str(ROOT), f"{sys.version_info[0]}.{sys.version_info[1]}", *packages, _project() if name == "sublet" else ""]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _project() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return json.dumps([project["dependencies"], project["optional-dependencies"]])


def _make(folder: Path, packages: Sequence[str]) -> str:
    """Make one anew; why it could not be, or nothing."""
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _install(folder, packages)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        say(f"  {folder.name}: FAILED, it is left out: {why}")
        return why
    (folder / STAMP).write_text(_key(folder.name, packages))
    say(f"  {folder.name}: ready in {time.monotonic() - began:.0f} s")
    return ""


def _install(folder: Path, packages: Sequence[str]) -> None:
    node = [package.removeprefix("npm:") for package in packages if package.startswith("npm:")]
    if node:
        if not shutil.which("npm") or not shutil.which("node"):
            raise ValueError("node and npm are not here: install them (`apt-get install nodejs npm`)")
        folder.mkdir(parents=True)
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *node], folder)
        return
    EnvBuilder(with_pip=False, symlinks=True).create(folder)
    here = ["-e", f"{ROOT}[fast,http]"] if folder.name == "sublet" else []
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--quiet", *here, *packages], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a program to its end. Raises ValueError with what it said when it fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        said = [line.strip() for line in lines if re.search(r"\bERROR:|npm error|npm ERR", line)]
        raise ValueError("; ".join(said[:2]) or "; ".join(lines[-3:]))


@contextmanager
def holding(folder: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold the folder's lock: as one of many that use what is there, or `alone`, to make or replace some of it."""
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(folder / "lock", "ab") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run {'uses' if alone else 'is making'} the environments in {folder}: waiting for it …")
            fcntl.flock(lock, kind)
        yield
