"""`simulate`: run simulated worlds of lost, repeated and delayed calls and crashing callers."""

import os
import sys
import time
from argparse import Namespace
from typing import NoReturn

from sublet.errors import Invalid
from sublet.source_tree import CHECKOUT, import_folders, is_checkout


def simulate(args: Namespace) -> NoReturn:
    """Replace this process by the checkout's simulation, without the caller's SUBLET_ variables. Raises
    Invalid.
    """
    if not is_checkout():
        raise Invalid(
            "the simulation is in the source checkout, not in the installed package: clone Sublet with git, and run `python3 -m jobs simulate` in the clone"
        )
    if args.exhaustive and (args.seed is not None or args.seconds is not None):
        raise Invalid("--exhaustive tries every order of calls: leave --seed and --for out")
    seed = args.seed if args.seed is not None else int(time.time())
    seconds = args.seconds if args.seconds is not None else 60.0
    words = ["--seed", str(seed), "--seconds", str(seconds)]
    words += ["--exhaustive"] if args.exhaustive else []
    words += ["--json"] if args.json else []
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
    env["PYTHONPATH"] = os.pathsep.join([*import_folders(), *filter(None, [env.get("PYTHONPATH")])])
    os.chdir(CHECKOUT)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "tests.faults.simulation", *words], env)
