"""`chaos`: run the checkout's fault tests, which check Sublet's promises, on real servers and processes."""

import sys
from argparse import Namespace
from pathlib import Path

from sublet.errors import Invalid
from sublet.source_tree import CHECKOUT, is_checkout


def chaos(args: Namespace) -> int:
    """Run or list the chaos scenarios. Return 1 if a promise was broken, or no scenario could run. Raises
    Invalid.
    """
    if not is_checkout():
        raise Invalid(
            "the chaos suite is in the source checkout, not in the installed package: clone Sublet with git, and run `python3 -m jobs chaos` in the clone"
        )
    # the current folder may have its own package `tests`
    sys.path[:] = [str(CHECKOUT), *(entry for entry in sys.path if Path(entry).resolve() != Path.cwd())]
    from tests.faults.chaos.suite import run_suite

    return run_suite(args)
