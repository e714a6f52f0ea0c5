"""Make a fresh checkout run: install its dependencies into `.venv`, and rerun the command in it.

Needs only Python and pip. Imports late, for a fast start.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sublet.source_tree import CHECKOUT

PROJECT = "sublet"
OLDEST_PIP = (22, 3)
"""The oldest pip that can install into an environment without pip (`--python`)."""

_GUARD = "SUBLET_SET_UP"
_STAMP = "sublet-stamp"
_UNFINISHED = "unfinished"
_REQUIREMENT = r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*([^;]*)"
_MINIMUM = r">=\s*([0-9]+(?:\.[0-9]+)*)"


class _Stopped(Exception):
    def __init__(self, why: str, words: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.words = words


def ensure(groups: Sequence[str]) -> None:
    """Make sure that the dependencies, and those of the optional `groups`, are installed; outside of a
    checkout, do nothing.

    If any is missing, install them into `.venv`, and run the same command there instead of returning. A
    `.venv` without Python, or that an earlier run left unfinished or made for another Python, is emptied
    first. Several runs at once are safe. Raises SystemExit(1), or 130 after Ctrl-C.
    """
    try:
        _ensure(CHECKOUT, groups)
    except _Stopped as stopped:
        _say("".join([*(f"  {line}\n" for line in stopped.words), f"{PROJECT}: {stopped}\n"]))
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        _say(f"{PROJECT}: interrupted; the same command again starts over.\n")
        raise SystemExit(130) from None


def _ensure(root: Path, groups: Sequence[str]) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  a checkout is run by whatever Python is there
        raise _Stopped(
            f"Python 3.11 or newer is needed, and this is {sys.version.split()[0]}: run the same command with a newer one."
        )
    project = _read_project(root)
    if project is None:
        return
    needed = requirements(project, groups)
    venv, key = root / ".venv", fingerprint(needed)
    if (Path(sys.prefix) == venv and key in _stamps(venv)) or not missing(needed):
        os.environ.pop(_GUARD, None)
        return
    if os.environ.get(_GUARD) == str(venv):
        raise _Stopped(
            f"{venv} still lacks {', '.join(missing(needed))}. Delete that folder and run the same command again."
        )
    if not _is_ready(venv, key, needed):
        _set_up(root, venv, key, needed)
    sys.stdout.flush()
    python = str(venv / "bin" / "python")
    os.execve(python, [python, *sys.orig_argv[1:]], {**os.environ, _GUARD: str(venv)})


def requirements(project: dict[str, Any], groups: Sequence[str]) -> list[str]:
    """Return the requirements in the `[project]` table of pyproject.toml and in these optional groups, nested
    ones included.
    """
    waiting = [*project.get("dependencies", []), f"{PROJECT}[{','.join(groups)}]"]
    found: dict[str, None] = {}
    opened: set[str] = set()
    while waiting:
        line = waiting.pop(0)
        name, extras, _ = _parts(line)
        if name != PROJECT:
            found[line] = None
            continue
        for group in extras:
            if group not in opened:
                opened.add(group)
                waiting += project["optional-dependencies"][group]
    return list(found)


def fingerprint(needed: Sequence[str]) -> str:
    """Return a hash of these requirements and Python's version."""
    import hashlib

    lines = [f"{sys.version_info[0]}.{sys.version_info[1]}", *sorted(needed)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def missing(needed: Sequence[str], path: list[str] | None = None) -> list[str]:
    """Return the requirements that are not installed on `path` (default sys.path) in their minimum version or
    newer.
    """
    from importlib.metadata import distributions

    def is_here(line: str) -> bool:
        name, _, specifier = _parts(line)
        minimum = re.search(_MINIMUM, specifier)
        least = _numbers(minimum[1]) if minimum else ()
        found = (each.metadata for each in distributions(name=name, path=sys.path if path is None else path))
        return any("Version" in each and _numbers(each["Version"]) >= least for each in found)

    return [line for line in needed if not is_here(line)]


def _parts(line: str) -> tuple[str, list[str], str]:
    match = re.match(_REQUIREMENT, line.strip())
    if match is None:
        return line, [], ""
    extras = [extra.strip() for extra in (match[2] or "").split(",") if extra.strip()]
    return re.sub(r"[-_.]+", "-", match[1]).lower(), extras, match[3]


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", leading[0]).split(".")) if leading else ()


def _read_project(root: Path) -> dict[str, Any] | None:
    path = root / "pyproject.toml"
    if not path.is_file():
        return None
    import tomllib

    with open(path, "rb") as file:
        project: dict[str, Any] = tomllib.load(file).get("project", {})
    return project if project.get("name") == PROJECT else None


def _stamps(venv: Path) -> list[str]:
    try:
        return (venv / _STAMP).read_text().split()
    except OSError:
        return []


def _is_ready(venv: Path, key: str, needed: Sequence[str]) -> bool:
    if not (venv / "bin" / "python").exists():
        return False
    stamps = _stamps(venv)
    return (
        key in stamps
        if stamps
        else not missing(needed, [str(path) for path in venv.glob("lib/python*/site-packages")])
    )


def _must_be_made(venv: Path) -> bool:
    stamps = _stamps(venv)
    if _UNFINISHED in stamps or not (venv / "bin" / "python").exists():
        return True
    version = f"version = {sys.version_info[0]}.{sys.version_info[1]}."
    return bool(stamps) and version not in (venv / "pyvenv.cfg").read_text()


def _set_up(root: Path, venv: Path, key: str, needed: Sequence[str]) -> None:
    try:
        with _alone(root) as lock:
            if not _is_ready(venv, key, needed):
                _fill(venv, key, needed, lock)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise _Stopped(
            f"cannot set up {venv}: {why}. Make the checkout writable, free space on its disk, or install it with pip elsewhere."
        ) from None


@contextmanager
def _alone(root: Path) -> Iterator[int]:
    """Hold the lock of the set-up in the `with` block, and yield its file descriptor. Pip inherits it: the
    next run waits for a pip whose parent was killed.
    """
    import fcntl

    folder = root / ".sublet"
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "set-up.lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is setting up .venv: waiting for it …\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _fill(venv: Path, key: str, needed: Sequence[str], lock: int) -> None:
    made = _must_be_made(venv)
    stamps = [] if made else _stamps(venv)
    pip = _find_pip()
    with _told(
        f"first run: making .venv with {len(needed)} packages …" if made else "bringing .venv up to date …"
    ):
        if made:
            _make(venv)
        elif stamps:
            (venv / _STAMP).write_text(_UNFINISHED)
        _install([*pip, "--python", str(venv / "bin" / "python")], needed, lock)
        if made or stamps:
            (venv / _STAMP).write_text("\n".join([*stamps, key]))


def _make(venv: Path) -> None:
    """Empty `.venv`, and make it anew without pip. Its stamp, written first, marks the folder as ours."""
    import shutil
    from venv import EnvBuilder

    venv.mkdir(exist_ok=True)
    (venv / _STAMP).write_text(_UNFINISHED)
    for path in venv.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _STAMP:
            path.unlink()
    EnvBuilder(with_pip=False, symlinks=True).create(venv)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / f"{PROJECT}.pth").write_text(
        "".join(f"{venv.parent / folder}\n" for folder in ("jobs", "functions"))
    )


def _find_pip() -> list[str]:
    import subprocess

    for python in dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable))):
        pip = [python, "-P", "-m", "pip"]
        answer = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=False)
        version = re.match(r"pip (\S+)", answer.stdout)
        if version and _numbers(version[1]) < OLDEST_PIP:
            raise _Stopped(
                f"pip {version[1]} is too old, 22.3 or newer is needed: run `{python} -m pip install --upgrade pip`."
            )
        if version:
            return pip
    raise _Stopped(
        f"{sys.executable} has no pip: install it (`apt-get install python3-pip`) and run the same command again."
    )


def _install(pip: list[str], needed: Sequence[str], lock: int) -> None:
    import signal
    import subprocess
    import tempfile

    command = [*pip, "--disable-pip-version-check", "--no-input", "--quiet", "install", "--no-user", *needed]
    if not sys.dont_write_bytecode:
        command.insert(-len(needed), "--no-compile")  # half the time: imports compile
    env = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }  # the content of `.venv` would count as installed
    null = subprocess.DEVNULL
    with tempfile.TemporaryFile() as out:
        with subprocess.Popen(
            command, stdin=null, stdout=out, stderr=out, env=env, pass_fds=(lock,), process_group=0
        ) as process:
            try:
                process.wait()
            except BaseException:
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # the group: pip runs a second pip under the other Python
                raise
        out.seek(0)
        words = [line[:160] for line in out.read().decode(errors="replace").splitlines() if line.strip()]
    if process.returncode:
        raise _Stopped(
            "pip failed: check the network (or pip's index), and run the same command again.", words[-8:]
        )


@contextmanager
def _told(what: str) -> Iterator[None]:
    import threading
    import time

    begin = time.monotonic()
    over = threading.Event()

    def count() -> None:
        while not over.wait(0.2):
            _say(f"\r{what} {time.monotonic() - begin:.0f} s ")

    counter = threading.Thread(target=count, daemon=True)
    _say(f"{what} ")
    live = sys.stderr.isatty()
    if live:
        counter.start()
    end = "stopped after"
    try:
        yield
        end = "ready in"
    finally:
        over.set()
        if live:
            counter.join()
            _say(f"\r{what} ")
        _say(f"{end} {time.monotonic() - begin:.1f} s\n")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
