"""Make and keep an environment for each contestant, with its latest release. Needs only Python with pip, and
npm for Node."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from venv import EnvBuilder

ROOT = Path(__file__).resolve().parents[2]
STAMP = "bench-stamp"
AT_ONCE = 4
"""Environments made concurrently: most of the time is spent on the network."""
PATIENCE = 600.0
POLL = 0.2
NO_NODE = "node is not on the PATH"


def make(folder: Path, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Make the wanted environments in `folder`. Return the reasons of those that failed, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    left_out = {
        name: NO_NODE for name, packages in wanted.items() if _of_node(packages) and not shutil.which("node")
    }
    for name, why in left_out.items():
        say(f"  {name} is left out: {why}")
    wanted = {name: packages for name, packages in wanted.items() if name not in left_out}
    if not _lacking(folder, wanted):
        return left_out
    with holding(folder):
        lacking = _lacking(folder, wanted)
        if lacking:  # otherwise another run has made them meanwhile
            say(f"making environments in {folder}: {', '.join(lacking)} …")
        return left_out | _make_all(folder, lacking)


def _make_all(folder: Path, lacking: Mapping[str, Sequence[str]]) -> dict[str, str]:
    over = threading.Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            made = {
                name: pool.submit(_make, folder / name, packages, over) for name, packages in lacking.items()
            }
            return {name: why for name, future in made.items() if (why := future.result())}
        except KeyboardInterrupt:
            over.set()
            pool.shutdown(cancel_futures=True)
            say("interrupted: what was half made is gone again")
            raise


def command_of(folder: Path, program: Path) -> tuple[str, ...]:
    return (
        shutil.which("node") or "node" if program.suffix == ".mjs" else str(folder / "bin" / "python"),
        str(program),
    )


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _lacking(folder: Path, wanted: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    return {name: packages for name, packages in wanted.items() if not _is_made(folder / name, packages)}


def _is_made(folder: Path, packages: Sequence[str]) -> bool:
    stamp = folder / STAMP
    return stamp.is_file() and stamp.read_text() == _key(folder.name, packages)


def _key(name: str, packages: Sequence[str]) -> str:
    lines = [
        str(ROOT),
        f"{sys.version_info[0]}.{sys.version_info[1]}",
        *packages,
        _project() if name == "sublet" else "",
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _project() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return json.dumps([project["dependencies"], project["optional-dependencies"]])


def _of_node(packages: Sequence[str]) -> list[str]:
    return [package.removeprefix("npm:") for package in packages if package.startswith("npm:")]


def _make(folder: Path, packages: Sequence[str], over: threading.Event) -> str:
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _install(folder, packages, over)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = " ".join(str(error).split())[:300]
        if not over.is_set():
            say(f"  {folder.name}: FAILED{', it is left out' * (folder.name != 'sublet')}: {why}")
        return why
    (folder / STAMP).write_text(_key(folder.name, packages))
    say(f"  {folder.name}: ready in {time.monotonic() - began:.0f} s")
    return ""


def _install(folder: Path, packages: Sequence[str], over: threading.Event) -> None:
    if node := _of_node(packages):
        if not shutil.which("npm"):
            raise ValueError("npm is not on the PATH")
        folder.mkdir(parents=True)
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *node], folder, over)
        return
    EnvBuilder(with_pip=False, symlinks=True).create(folder)
    here = ["-e", f"{ROOT}[fast,http]"] if folder.name == "sublet" else []
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "--disable-pip-version-check",
        "--no-input",
    ]
    _run([*pip, "install", "--quiet", *here, *packages], folder, over)


def _run(command: Sequence[str], folder: Path, over: threading.Event) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    until = time.monotonic() + PATIENCE
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    with subprocess.Popen(
        command, cwd=folder, env=env, text=True, start_new_session=True, **streams
    ) as process:
        said = ""
        while process.returncode is None:
            try:
                said, _ = process.communicate(timeout=POLL)
            except subprocess.TimeoutExpired:
                if over.is_set() or time.monotonic() > until:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise
    if process.returncode:
        lines = said.splitlines()
        errors = [line.strip() for line in lines if re.search(r"\bERROR:|npm error|npm ERR", line)]
        raise ValueError("; ".join(errors[:2]) or "; ".join(lines[-3:]))


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder's environments; wait for a run that holds it."""
    with open(folder / "lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(
                f"another run measures with the environments in {folder}, or makes them: waiting until it has ended …"
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
