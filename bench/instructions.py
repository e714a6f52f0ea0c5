"""Count the instructions that redis-server runs for each verb, by valgrind: a figure that other load does not
change.

Several checkouts (TREE) are counted in turn, with the same calls. Prints thousands of instructions for
each job, the median of the rounds: one job a call, and 50 or 100 jobs a call. Needs valgrind and
redis-server on the PATH.
"""

import argparse
import json
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import redis

ROOT = Path(__file__).resolve().parents[1]
BASE = "{bench:0}"
PAYLOAD = '{"text":"' + "x" * 189 + '"}'
VERBS = ("init", "submit", "claim", "complete")
TEXTS = "import json, sys; from sublet.protocol.scripts import script; print(json.dumps({n: script(n).text for n in sys.argv[1:]}))"


class CountedServer:
    """A redis-server under valgrind, with the scripts of a tree."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self._dumps, self._folder, self._jobs = 0, folder, 0
        socket = folder / "socket"
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'counts'}"]
        server = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--hz", "1"]
        self.process = subprocess.Popen(
            [*tool, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._redis = redis.Redis(unix_socket_path=str(socket), socket_timeout=60)
        until = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit("instructions.py: redis-server does not start under valgrind")
            time.sleep(0.1)
        texts = json.loads(subprocess.check_output([sys.executable, "-c", TEXTS, *VERBS], cwd=tree / "jobs"))
        self._hashes = {verb: self._redis.script_load(text) for verb, text in texts.items()}
        self._call("init", 1)

    def _answers(self) -> bool:
        try:
            return bool(self._redis.ping())
        except redis.RedisError:
            return False

    def _call(self, verb: str, *words: object) -> list[bytes]:
        reply: list[bytes] = self._redis.evalsha(self._hashes[verb], 1, BASE, *words)  # type: ignore[arg-type]  # redis-py's types
        return reply

    def submit(self, n: int) -> None:
        words: list[str] = []
        for _ in range(n):
            self._jobs += 1
            words += [f"0-01M8BDPZA4TV2TQGX2{self._jobs:08}", "default", "noop", "", PAYLOAD]
        assert self._call("submit", *words) == [b"created"] * n

    def claim(self, n: int) -> list[tuple[bytes, bytes]]:
        """Claim `n` jobs in one call; return their ids and tokens."""
        reply = self._call("claim", secrets.token_urlsafe(16), "w", 30_000, n, "default")
        assert len(reply) == 3 + 6 * n
        return [(reply[i], reply[0]) for i in range(3, len(reply), 6)]

    def complete(self, leases: list[tuple[bytes, bytes]]) -> None:
        words = [word for lease in leases for word in (*lease, b"null")]
        assert self._call("complete", *words) == [b"completed"] * len(leases)

    def count(self, work: Callable[[], object]) -> int:
        self._dump()
        work()
        return self._dump()

    def _dump(self) -> int:
        self._dumps += 1
        control = ["callgrind_control", "--dump", str(self.process.pid)]
        subprocess.run(control, check=True, capture_output=True, timeout=60)
        found = re.search(
            r"^(?:summary|totals): (\d+)", (self._folder / f"counts.{self._dumps}").read_text(), re.MULTILINE
        )
        assert found
        return int(found[1])

    def end(self) -> None:
        self._redis.close()
        self.process.terminate()
        self.process.wait(60)


def measure(server: CountedServer, calls: int, size: int) -> dict[str, float]:
    """Return thousands of instructions for each job, by verb, of `calls` calls of `size` jobs."""
    leases: list[list[tuple[bytes, bytes]]] = []

    def submits() -> None:
        for _ in range(calls):
            server.submit(size)

    def claims() -> None:
        leases.extend(server.claim(size) for _ in range(calls))

    def completes() -> None:
        for some in leases:
            server.complete(some)

    counted = {
        "submit": server.count(submits),
        "claim": server.count(claims),
        "complete": server.count(completes),
    }
    return {f"{verb} {size}": n / calls / size / 1000 for verb, n in counted.items()}


def main() -> int:
    about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about[0], epilog=about[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT], metavar="TREE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for tool in ("valgrind", "callgrind_control", "redis-server"):
        if not shutil.which(tool):
            print(
                f"instructions.py: {tool} is not on the PATH: install valgrind and redis-server",
                file=sys.stderr,
            )
            return 1
    found = {}
    for tree in asked.trees:
        with tempfile.TemporaryDirectory() as folder:
            server = CountedServer(tree.resolve(), Path(folder))
            try:
                measure(server, 20, 1)  # the first calls compile and allocate
                rounds = [measure(server, 50, 1) | measure(server, 4, 50) for _ in range(asked.rounds)]
            finally:
                server.end()
        found[str(tree)] = {
            name: round(statistics.median(one[name] for one in rounds), 1) for name in rounds[0]
        }
        if not asked.json:
            print(
                f"{tree}: " + " · ".join(f"{name} {value}" for name, value in found[str(tree)].items()),
                flush=True,
            )
    if asked.json:
        print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
