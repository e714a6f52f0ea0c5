"""A worker counts as gone only if its death is certain."""

import json
import os
import signal
import subprocess
import sys

import pytest

from sublet.worker import host_identity
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


@pytest.fixture
def me():
    return host_identity.identity()


def test_the_current_process_is_not_gone(me):
    assert host_identity.is_here(me, me)
    assert not host_identity.is_gone(me, me)
    assert me["pid"] == os.getpid()


def test_a_killed_process_is_gone_even_as_a_zombie(me):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        about = {**me, "pid": child.pid, "started": host_identity.started(child.pid)}
        assert not host_identity.is_gone(about, me)
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
        assert host_identity.is_gone(about, me)
    assert host_identity.is_gone(about, me)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
def test_another_users_process_that_proc_hides_is_not_gone(me, tmp_path):
    """As on a machine whose /proc is mounted with hidepid=2, or in a unit of systemd with ProtectProc=invisible."""
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from sublet.worker import host_identity as host\n"
        "about, me = json.loads(sys.argv[2]), host.identity()\n"
        "os.setgroups([]), os.setgid(4712), os.setuid(4712)\n"
        "unknown = {**about, 'pid': 2**22 + 1}\n"
        "print(host.started(about['pid']), host.is_gone(about, me), host.is_gone(unknown, me))\n"
    )
    with subprocess.Popen(["sleep", "60"], user=4711) as other:
        about = {**me, "pid": other.pid, "started": host_identity.started(other.pid)}
        words = [sys.executable, str(program), str(ROOT), json.dumps(about)]
        mount = 'mount -t proc -o hidepid=2 proc /proc || exit 77; exec "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", mount, "sh", *words],
            capture_output=True,
            text=True,
            timeout=60,
        )
        other.kill()
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"/proc cannot be mounted on this machine: {done.stderr}")
    assert done.stdout == "None False True\n", done.stderr


def test_a_worker_whose_pid_was_reused_is_gone(me):
    assert host_identity.is_gone({**me, "started": me["started"] - 1}, me)


@pytest.mark.parametrize(
    "other",
    [
        {"boot": "another"},
        {"pidns": "pid:[1]"},
        {"host": "another"},
        {"pid": None},
        {"pid": "1"},
        {"started": None},
    ],
    ids=str,
)
def test_a_worker_that_is_not_visible_from_here_is_not_gone(me, other):
    assert not host_identity.is_gone({**me, "pid": 2**22 + 1, "started": 1, **other}, me)


def test_a_worker_without_a_description_is_not_gone(me):
    assert not host_identity.is_gone({}, me)


def test_clones_of_one_snapshot_are_never_gone_for_each_other(monkeypatch):
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "worker")
    me = host_identity.identity()
    assert (me["platform"], me["boot"]) == ("lambda", "")
    assert not host_identity.is_gone({**me, "pid": 2**22 + 1, "started": 1}, me)


@pytest.mark.parametrize(
    ("variable", "name"), [("K_SERVICE", "knative"), ("KUBERNETES_SERVICE_HOST", "kubernetes")]
)
def test_platforms_are_detected_by_their_variables(monkeypatch, variable, name):
    monkeypatch.setenv(variable, "x")
    assert host_identity.identity()["platform"] == name


def test_the_memory_of_a_worker_is_that_of_its_processes_that_run():
    alone = host_identity.resident_memory([])
    with subprocess.Popen([sys.executable, "-c", "print(); input()"], stdin=-1, stdout=-1) as child:
        child.stdout.read(1)  # Python has started
        assert host_identity.resident_memory([child.pid, 2**22 + 1]) > alone + 2_000_000
        child.stdin.close()


def test_without_proc_no_worker_is_gone(monkeypatch, tmp_path, me):
    monkeypatch.setattr(host_identity, "Path", lambda path: tmp_path / path.lstrip("/"))
    monkeypatch.setattr(
        host_identity.os, "readlink", lambda path: (_ for _ in ()).throw(FileNotFoundError(path))
    )
    blind = host_identity.identity()
    assert (blind["boot"], blind["pidns"], blind["started"]) == ("", "", None)
    assert host_identity.resident_memory([]) is None
    assert not host_identity.is_gone({**me, "pid": 2**22 + 1, "started": 1}, blind)
