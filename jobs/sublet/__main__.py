"""`python -m sublet …` is `sublet …`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """The console script: carry out sys.argv, and give the exit code. Imports little until the dependencies are there."""
    gc.disable()  # an import leaves nothing to collect, and looking for it is a sixth of a short command's time
    if sys.version_info < (3, 11):  # noqa: UP036  # what follows needs it; this says so, and exits
        from sublet.devtools.bootstrap import ensure

        ensure(())
    if os.getpid() == 1:
        _hear_of_the_end()
    from sublet.cli.main import run

    return run(sys.argv[1:])


def _hear_of_the_end() -> None:
    """Have SIGTERM end this process, the first of a container: the kernel keeps from it what it does not ask for."""
    import signal

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


if __name__ == "__main__":
    sys.exit(main())
