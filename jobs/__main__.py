"""`python3 -m jobs …` is `sublet …`."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """The console script: carry out sys.argv, and give the exit code. Imports little until the dependencies are there."""
    gc.disable()  # an import leaves nothing to collect, and looking for it is a sixth of a short command's time
    if sys.version_info < (3, 11):  # noqa: UP036  # what follows needs it; this says so, and exits
        from jobs.bootstrap import ensure

        ensure(())
    from jobs.cli.dispatch import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
