"""`.venv/bin/python -m tests.faults.simulation`: what `sublet simulate` runs.

A million simulated operations, in several resumed runs: `.venv/bin/python -m tests.faults.simulation --calls 1000000 --resume FILE`.
"""

import argparse
import sys
from pathlib import Path

from tests.faults.simulation.campaign import Campaign, Progress, campaign, report


def main(words: list[str]) -> int:
    """Run a campaign, or the small model, and print the result."""
    parser = argparse.ArgumentParser(prog="tests.faults.simulation")
    parser.add_argument("--seconds", type=float, help="time limit (60; none with --calls)")
    parser.add_argument("--calls", type=int, default=10**12, help="end after this number of calls")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="save the totals in this file, and continue from it"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exhaustive", action="store_true")
    args = parser.parse_args(words)
    if args.exhaustive:
        from tests.faults.simulation.exhaustive import main as exhaustive

        try:
            return exhaustive(args.json)
        except KeyboardInterrupt:
            print("stopped before all orders were tried", file=sys.stderr)
            return 130
    seconds = args.seconds or (60.0 if args.calls == 10**12 else 10.0**9)
    before = Campaign.resumed(args.resume) if args.resume else None
    progress = Progress(before.first + before.runs if before else args.seed, seconds, args.resume)
    found = campaign(args.seed, seconds, args.runs, progress, calls=args.calls, before=before)
    progress.done()
    if args.resume:
        found.save(args.resume)
    return report(found, args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
