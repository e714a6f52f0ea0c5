"""Pods without a cluster: processes take the part of a kubelet.

A container is a process with the command and the environment of its template; secrets lie in folders as a
kubelet mounts them; probes are requested. Where this machine allows it, the process may write no file and has
no capability, as its template demands.
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import PYTHONPATH
from tests.support.processes import until

SECONDS = 60.0
READ_ONLY = 'mount -o remount,bind,ro / && cd "$1" && shift && exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"'
"""A shell line for a mount namespace of its own: no file can be written any more, and no capability is left.
"""

_Spec = dict[str, Any]


def confined(folder: Path) -> list[str]:
    """The words before a command that forbid it to write; empty where this machine does not allow that."""
    words = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(folder)]
    if sys.platform != "linux" or not shutil.which("setpriv") or not shutil.which("unshare"):
        return []
    tried = subprocess.run(
        [*words, sys.executable, "-c", "import redis"], capture_output=True, timeout=SECONDS
    )
    return words if tried.returncode == 0 else []


def secret_of(script: str) -> dict[str, str]:
    """The secret that a page's shell lines create, run by the shell itself with a `kubectl` that prints its
    arguments.
    """
    stand_in = 'kubectl() { [ "$3" = create ] && printf \'%s\\0\' "$@"; return 0; }; docker() { :; }\n'
    done = subprocess.run(["bash", "-c", stand_in + script], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    words = [
        word.removeprefix("--from-literal=")
        for word in done.stdout.split("\0")
        if word.startswith("--from-literal=")
    ]
    return dict(word.split("=", 1) for word in words)


class Mounted:
    """A secret as a volume: each file is a link into a folder that is replaced at once."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self._count = folder, itertools.count()
        folder.mkdir(parents=True)
        self.put(files)
        for name in files:
            (folder / name).symlink_to(Path("..data") / name)

    def put(self, files: dict[str, str]) -> None:
        """Replace its content."""
        fresh = self.folder / f"..{next(self._count)}"
        fresh.mkdir()
        for name, text in files.items():
            (fresh / name).write_text(text)
        (self.folder / "..next").symlink_to(fresh.name)
        (self.folder / "..next").replace(self.folder / "..data")


class Pod:
    """One pod of a template, with one container. `instead` replaces words of its command and its variables."""

    def __init__(self, node: "Node", spec: _Spec, instead: dict[str, str], more: tuple[str, ...]) -> None:
        self.spec, (self.container,) = spec, spec["containers"]
        self.place = node.new_place()
        self.mounts = {v["name"]: self._mounted(node, v) for v in spec.get("volumes", []) if "secret" in v}
        self.env = {e["name"]: self._value(node, e) for e in self.container.get("env", [])}
        words = [
            re.sub(r"\$\((\w+)\)", lambda found: self.env[found[1]], word)
            for word in self.container["command"]
        ]
        words = [instead.get(word, word) for word in [*words, *more]]
        self.env |= {name: instead[name] for name in self.env if name in instead}
        own = [sys.executable, "-m", "sublet"] if words[0] == "sublet" else [words[0]]
        plain = {
            name: value for name, value in os.environ.items() if name in ("PATH", "RUN_OF_THE_TESTS", "LANG")
        }
        env = {**plain, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1", **self.env}
        with (self.place / "out").open("wb") as out:
            command = [*([] if words[0] == "redis-server" else node.confined), *own, *words[1:]]
            self.process = subprocess.Popen(
                command, cwd=node.project, env=env, stdout=out, stderr=subprocess.STDOUT
            )

    def _mounted(self, node: "Node", volume: _Spec) -> Mounted:
        secret = node.secrets[volume["secret"]["secretName"]]
        return Mounted(
            self.place / volume["name"],
            {one["path"]: secret[one["key"]] for one in volume["secret"]["items"]},
        )

    def _value(self, node: "Node", entry: _Spec) -> str:
        if "valueFrom" in entry:
            ref = entry["valueFrom"]["secretKeyRef"]
            return node.secrets[ref["name"]][ref["key"]]
        for mount in self.container.get("volumeMounts", []):
            if entry["value"].startswith(f"{mount['mountPath']}/"):
                return entry["value"].replace(mount["mountPath"], str(self.mounts[mount["name"]].folder), 1)
        return str(entry["value"])

    def output(self) -> str:
        return (self.place / "out").read_text()

    def until(self, words: str) -> None:
        """Wait until its output contains a text."""
        until(lambda: words in self.output() or self.process.poll() is not None, lambda: self.output())
        assert words in self.output(), self.output()

    def probe(self, kind: str, port: str) -> int:
        """Request a probe as a kubelet does, by the pod's address; returns the status, 0 for no answer."""
        asked = self.container[kind]["httpGet"]
        assert asked["port"] in [port["name"] for port in self.container["ports"]]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{asked['path']}", headers={"Host": "10.1.2.3:8377"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.container[kind]["timeoutSeconds"]) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self) -> int:
        """SIGTERM, then the grace period less the time of `preStop`; returns the exit code."""
        (*_, before) = (
            self.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"])
        )
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(self.spec["terminationGracePeriodSeconds"] - float(before))

    def kill(self) -> None:
        """End it as an out-of-memory killer does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)


class Node:
    """Where pods run, with a project's files and some secrets, and nothing else."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.project, self.confined = folder, project, confined(project)
        self.secrets: dict[str, dict[str, str]] = {}
        self.pods: list[Pod] = []

    def new_place(self) -> Path:
        place = self.folder / f"pod-{len(self.pods)}"
        place.mkdir(parents=True)
        return place

    def start(self, spec: _Spec, *more: str, **instead: str) -> Pod:
        """Start a pod of this template. `more` are further words for its command."""
        self.pods.append(Pod(self, spec, instead, more))
        return self.pods[-1]

    def run(self, pod: Pod, line: str) -> str:
        """Run a command in a pod's container; returns its output."""
        env = {**os.environ, "PYTHONPATH": PYTHONPATH, **pod.env}
        words = [sys.executable, "-m", "sublet", *shlex.split(line)[1:]]
        done = subprocess.run(
            words, cwd=self.project, env=env, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextlib.contextmanager
def node(folder: Path, project: Path) -> Iterator[Node]:
    """A node; all its pods end with the block."""
    one = Node(folder, project)
    try:
        yield one
    finally:
        for pod in reversed(one.pods):
            pod.kill()
