"""The commands `demo`, `test` and `version`."""

import os
import platform
import sys
from argparse import Namespace
from importlib import metadata
from typing import NoReturn

from sublet.cli.output import document, write
from sublet.cli.parser import program
from sublet.devtools.bootstrap import missing
from sublet.errors import Invalid
from sublet.source_tree import CHECKOUT, VERSION, import_folders, install_command, is_checkout

NEEDED = ("rich>=13", "aiohttp>=3.14.1", "prometheus-client>=0.22")
KEPT = "SUBLET_TEST_"
SPREAD = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")


def demo(args: Namespace) -> int:
    """Run the demo and return its exit code. Raises Invalid for missing packages."""
    lacking = missing(NEEDED)
    if lacking:
        raise Invalid(f"the demo needs {' and '.join(lacking)}: {install_command('demo')}")
    from sublet.devtools.demo.run import run

    return run(once=args.once, json=args.json, call=program())


def test(args: Namespace) -> NoReturn:
    """Replace this process by pytest on the checkout's tests, without SUBLET_ variables except SUBLET_TEST_….
    Raises Invalid.
    """
    if not is_checkout():
        raise Invalid(
            "the tests are in the source checkout, not in the installed package: clone Sublet with git, and run `python3 -m jobs test` in the clone"
        )
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SUBLET_") or name.startswith(KEPT)
    }
    env["PYTHONPATH"] = os.pathsep.join([*import_folders(), *filter(None, [env.get("PYTHONPATH")])])
    os.chdir(CHECKOUT)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *SPREAD, *args.rest], env)


def version(args: Namespace) -> int:
    """Print the versions of Sublet, Python and redis-py."""
    found = {
        "sublet": VERSION,
        "python": platform.python_version(),
        "redis-py": metadata.version("redis"),
    }
    if args.json:
        document(found)
    else:
        write(" · ".join(f"{name} {number}" for name, number in found.items()))
    return 0
