"""Fork after connect: two processes never share a connection."""

import subprocess
import sys

from tests.support.processes import on_linux

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
EACH = 50
PROGRAM = """
import os, sys
from tests.support.misbehaving_tasks import naps

def submit(n):
    return [naps.submit_sync(0).id for _ in range(n)]

before = submit(1)
child = os.fork()
ids = submit(int(sys.argv[1]))
assert len(set(ids)) == len(ids)
print(*ids, flush=True)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    os._exit(0)
"""


def test_a_program_that_forks_after_a_submit_gets_only_its_own_replies(stage):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(EACH)],
        env=stage.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    mine, other = (line.split() for line in done.stdout.splitlines())
    assert len({*mine, *other}) == 2 * EACH
    assert stage.states(*mine, *other) == ["queued"] * 2 * EACH
