"""The introduction: three next steps, and all commands on one screen."""

from __future__ import annotations

from sublet.cli.parser import SHARED, program

_FIRST_STEPS = """Sublet: a job scheduler without a master. All state is in Redis; any
process may crash at any time.

  {program} demo                kill a worker, lose no job; own server
  {program} work MODULE:APP     run a worker for the tasks of your app
  {program} submit TASK JSON    have a worker run a task

All commands: {program} --help
"""

_OVERVIEW = """usage: {program} COMMAND …   ({program} COMMAND --help says more)

  submit TASK [JSON]   submit a job; --wait prints its result
  get ID               show one job, attempt by attempt;  stream  its output
  list     workflow    list jobs by state, queue and task; show one workflow
  queues stats events  how many jobs wait, run, have finished; follow changes
  cancel  reschedule   cancel jobs; move those that wait;  erase  finished ones
  retry    promote     queue ended jobs again; scheduled ones now;  signal  one
  pause    QUEUE…      hand out no more jobs of a queue, until resume QUEUE…
  configure  groups    limit a queue, and its groups;  purge  cancel what waits
  schedules            submit jobs at given times: list show add run sync …

  work MODULE:APP      run a worker: until a signal, empty queues, or for a time
  workers tasks pools  registered workers; their tasks; workers on demand, scale
  serve                the HTTP API;  tick  maintenance, from any cron
  doctor audit acl     check, repair; people's orders; Redis users; drop scripts

  dev MODULE:APP       server, API, workers on this machine;  demo  see it run
  init TARGET          write what a platform needs: compose, kubernetes, …
  conformance  chaos   test a client; test the promises;  simulate test version

{shared}
environment: SUBLET_REDIS_URL (redis://127.0.0.1) SUBLET_NAMESPACE SUBLET_APP
exit codes:  0 success  1 refused, failed, not found  2 usage  3 Redis away
"""


def first_steps() -> str:
    """Return the text that `sublet` prints without arguments."""
    return _FIRST_STEPS.format(program=program())


def overview() -> str:
    """Return the text of `sublet --help`: all commands."""
    return _OVERVIEW.format(program=program(), shared=SHARED)
