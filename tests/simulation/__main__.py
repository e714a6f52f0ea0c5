"""`python3 -m tests.simulation`: what `sublet simulate` runs."""

import argparse
import sys

from tests.simulation.campaign import Progress, campaign, report


def main(words: list[str]) -> int:
    """Run a campaign, or the small model, and say what came of it."""
    parser = argparse.ArgumentParser(prog="tests.simulation")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=10**9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exhaustive", action="store_true")
    args = parser.parse_args(words)
    if args.exhaustive:
        from tests.simulation.exhaustive import main as exhaustive

        try:
            return exhaustive(args.json)
        except KeyboardInterrupt:
            print("stopped before all orders were walked", file=sys.stderr)
            return 130
    progress = Progress(args.seed, args.seconds)
    found = campaign(args.seed, args.seconds, args.runs, progress)
    progress.done()
    return report(found, args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
