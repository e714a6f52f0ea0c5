"""Make `python -m sublet …` the same as the command `sublet …`."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> int:
    """Run the command in sys.argv; return its exit code."""
    if was_default := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))  # no traceback
    gc.disable()  # collecting takes a sixth of a short command's time
    if sys.version_info < (3, 11):  # noqa: UP036  # prints which Python is needed, and exits
        from sublet.devtools.bootstrap import ensure

        ensure(())
    if os.getpid() == 1:
        _exit_on_sigterm()
    from sublet.cli.main import run

    return run(sys.argv[1:], _raise_on_sigint if was_default else int)


def _raise_on_sigint() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_on_sigterm() -> None:
    """Make SIGTERM end the process at once: an exception could be lost in a `__del__`."""
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))


if __name__ == "__main__":
    sys.exit(main())
