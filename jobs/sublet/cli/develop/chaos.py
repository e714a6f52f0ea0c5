"""`chaos`: attack the promises on real servers and processes, by the checkout's tests."""

import sys
from argparse import Namespace
from pathlib import Path

from sublet.errors import Invalid
from sublet.source_tree import CHECKOUT, is_checkout


def chaos(args: Namespace) -> int:
    """Run or list the chaos scenarios. Return 1 if a promise was broken or none ran. Raises Invalid."""
    if not is_checkout():
        raise Invalid(
            "the chaos suite is in the source checkout, not in the installed package: clone Sublet with git, and run `python3 -m jobs chaos` in the clone"
        )
    # the current folder may have its own package `tests`
    sys.path[:] = [str(CHECKOUT), *(entry for entry in sys.path if Path(entry).resolve() != Path.cwd())]
    from tests.faults.chaos.suite import run_suite

    return run_suite(args)
