"""The two pages that introduce the program: three next steps, and all commands on one screen."""

from __future__ import annotations

from sublet.cli.parser import SHARED, program

_FIRST = """Sublet: a job scheduler with no master. The state is in Redis; any process may
die at any line.

  {program} demo                watch a worker die; brings its own server
  {program} work MODULE:APP     run a worker for the tasks of your app
  {program} submit TASK JSON    have a worker run a task

All commands: {program} --help
"""

_ALL = """usage: {program} COMMAND …   ({program} COMMAND --help says more)

  submit TASK [JSON]   have a worker run a task; --wait prints its result
  get ID               all about one job, attempt by attempt
  list                 jobs by state, queue and task
  queues   stats       how many jobs wait, run, are done
  cancel   ID…         call jobs off
  retry    promote     revive dead or cancelled jobs; queue scheduled ones now
  pause    QUEUE…      hand out no more jobs of a queue, until resume QUEUE…
  configure QUEUE      set how many jobs, or bytes, a queue may hold
  schedules            what the clock submits: show add remove pause run sync …

  work MODULE:APP      run a worker: until a signal or dry queues, or for a time
  workers  pools       who works, on what; whom to summon (scale: how many)
  serve                answer HTTP: the whole API;  tick  upkeep, from any cron
  doctor  acl  drop    is it fit? --repair; users; forget a namespace; scripts

  dev MODULE:APP       server, API and workers, here;  demo  see it run
  init TARGET          write what a platform takes: compose, kubernetes, …
  conformance  chaos   try a client; attack the promises;  simulate test version

{shared}
environment: SUBLET_REDIS_URL (redis://127.0.0.1) SUBLET_NAMESPACE SUBLET_APP
exit codes:  0 yes  1 no: refused, failed, not found  2 usage  3 Redis away
"""


def first_steps() -> str:
    """What `sublet` alone says."""
    return _FIRST.format(program=program())


def overview() -> str:
    """What `sublet --help` says."""
    return _ALL.format(program=program(), shared=SHARED)
