"""Measure Sublet and its peers on the same work, in one run: jobs per second, latency, and the load of Redis.

Needs Python 3.11 with pip, a redis-server on the PATH (else it uses Valkey from a wheel), and node with
npm for BullMQ. Each contestant has an environment with its latest release, set up as its documentation
recommends for throughput. Figures are medians. The whole takes half an hour: run nothing else meanwhile.
Ctrl-C prints the figures so far.
"""

import argparse
import datetime
import json
import math
import os
import platform
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from contest import environments
from contest.contestants import CONTESTANTS, ENVIRONMENTS, Contestant, named

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench" / "peers"
QUICK = ("enqueue_one", "enqueue_bulk", "drain_1", "latency")
ALL = (*QUICK[:2], "ordinary", "drain_1", "drain_2", "latency", "backlog", "crash", "sweeps")
LEFT_OUT = "BENCH_LEFT_OUT"
"""Variable that passes to the second start of this program which environments could not be made."""
BUSY = 0.5
"""Load of the last minute, above which another program is probably running."""


def main(words: Sequence[str] | None = None) -> int:
    """Make environments, run, print the table. Returns 1 without a contestant, 2 for wrong arguments, 130 when interrupted."""
    asked = _parser().parse_args(words)
    try:
        contestants = named(asked.only)
        _check(asked)
    except ValueError as error:
        environments.say(f"run.py: {error}")
        return 2
    folder = asked.environments.resolve()
    signal.signal(signal.SIGTERM, interrupt)
    try:
        left_out = prepare(folder, contestants)
        if "sublet" in left_out:
            environments.say("run.py: without its own environment the bench cannot run.")
            return 1
        with environments.holding(folder):
            return _run(asked, folder, contestants, left_out)
    except KeyboardInterrupt:
        return 130


def _check(asked: argparse.Namespace) -> None:
    if asked.json not in (None, "-"):
        path = Path(asked.json)
        if (
            (path.exists() and not path.is_file())
            or not os.access(path.parent, os.W_OK)
            or not path.parent.is_dir()
        ):
            raise ValueError(
                f"--json {path}: no file can be written there: use a writable folder that exists"
            )
    try:
        asked.environments.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--environments {asked.environments}: there can be no such folder ({error.strerror})"
        ) from None
    if not os.access(asked.environments, os.W_OK):
        raise ValueError(
            f"--environments {asked.environments}: nothing can be written there: use a writable folder"
        )
    if asked.server == "redis" and not shutil.which("redis-server"):
        raise ValueError(
            "--server redis: redis-server is not on the PATH: install Redis, or use --server valkey"
        )


def count(word: str) -> int:
    if not word.isdecimal() or not int(word):
        raise argparse.ArgumentTypeError(f"{word} is not a number of at least 1")
    return int(word)


def _seconds(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{word} is not a number above 0")
    return number


def _parser() -> argparse.ArgumentParser:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round without persistence, of fewer jobs: two minutes"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all figures there as they come; - is the output, in the end"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help=f"of {', '.join(c.word for c in CONTESTANTS)}"
    )
    parser.add_argument("--workloads", nargs="+", choices=ALL, metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=count, help="how often (3)")
    parser.add_argument(
        "--persistence", nargs="+", choices=("off", "aof"), help="one of them alone (off aof)"
    )
    parser.add_argument("--seconds", type=_seconds, help="about how long a phase takes (1.2)")
    parser.add_argument(
        "--server", choices=("redis", "valkey"), help="what to start (redis-server, if it is on the PATH)"
    )
    parser.add_argument(
        "--settings", action="store_true", help="show also what each is made of, and how it is set up"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="FOLDER",
        default=ROOT / ".bench",
        help="where they are kept (.bench)",
    )
    return parser


def prepare(folder: Path, contestants: Sequence[Contestant]) -> dict[str, str]:
    """Make the contestants' environments, and start this program again in Sublet's. Returns why others are missing."""
    ours = folder / "sublet"
    if LEFT_OUT in os.environ:
        left_out: dict[str, str] = json.loads(os.environ.pop(LEFT_OUT))
        return left_out
    wanted = dict.fromkeys(["sublet", *(contestant.environment for contestant in contestants)])
    left_out = environments.make(folder, {name: ENVIRONMENTS[name] for name in wanted})
    if "sublet" not in left_out and Path(sys.prefix) != ours:
        python, _ = environments.command_of(ours, Path())
        os.execve(python, [python, *sys.orig_argv[1:]], {**os.environ, LEFT_OUT: json.dumps(left_out)})
    return left_out


def _run(
    asked: argparse.Namespace, folder: Path, contestants: Sequence[Contestant], left_out: dict[str, str]
) -> int:
    from contest import (
        rounds,  # these need the packages of the environment
        servers,
    )
    from contest.arena import Program
    from contest.record import Progress, Record
    from contest.table import table

    from sublet.errors import Unavailable

    try:
        servers.binary_of(kind := asked.server or servers.kind_here())
    except Unavailable as error:
        environments.say(f"run.py: {error}")
        return 2
    plan = rounds.Plan(
        contestants=[contestant for contestant in contestants if contestant.environment not in left_out],
        workloads=asked.workloads or (QUICK if asked.quick else ALL),
        rounds=asked.rounds or (1 if asked.quick else 3),
        persistences=asked.persistence or (["off"] if asked.quick else ["off", "aof"]),
        seconds=asked.seconds or (0.4 if asked.quick else 1.2),
        samples=60 if asked.quick else 300,
        server=kind,
    )
    programs = {
        each.name: Program(
            environments.command_of(folder / each.environment, PEERS / each.program),
            folder / each.environment,
        )
        for each in plan.contestants
    }
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    here = machine()
    if os.getloadavg()[0] > BUSY:
        environments.say(
            f"CAUTION: this machine is busy (load {here['load']}); what else runs here makes all figures worse"
        )
    record = Record(
        {"machine": here, "server": plan.server, "began": began, "rounds": plan.rounds},
        Path(asked.json) if asked.json not in (None, "-") else None,
    )
    for name in (each.name for each in contestants if each.environment in left_out):
        record.leave_out(name, left_out[next(each.environment for each in contestants if each.name == name)])
    ended = 0
    try:
        rounds.run(plan, programs, record, Progress(plan.steps))
    except KeyboardInterrupt:
        environments.say("\ninterrupted: this is what there is until now")
        record.found["interrupted"] = True
        ended = 130
    record.save()
    print(
        table(record.found, settings=asked.settings),
        file=sys.stderr if asked.json == "-" else sys.stdout,
        flush=True,
    )
    if asked.json == "-":
        print(record.text(), end="")
    return ended or int(not record.found["results"])


def machine() -> dict[str, object]:
    """Return the machine's processor, cores, memory, system, Python version and load."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
