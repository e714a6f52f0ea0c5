"""Mutants of flow control: places, tokens and turns of groups."""

from tests.faults.mutants.mutant import Mutant

KILLER = "protocol/test_groups.py::test_"
EXIT = f"{KILLER}every_exit_gives_the_place_back_and_wakes_one_worker"
LEAK = "a queue with a limit of 5 stops for good after five lost places"


def _mutant(name: str, file: str, old: str, new: str, danger: str, test: str) -> Mutant:
    return Mutant(name, file, old, new, danger, test)


MUTANTS = (
    _mutant(
        "a completion keeps the job's place",
        "lua/complete.lua",
        "    return_place(job)\n",
        "",
        LEAK,
        f"{EXIT}[valkey-settle_complete-group_concurrency=1]",
    ),
    _mutant(
        "a failed, released or lost attempt keeps the job's place",
        "lua/lib/lifecycle.lua",
        "  return_place(job)\n",
        "",
        LEAK,
        f"{EXIT}[valkey-settle_reconcile-group_concurrency=1]",
    ),
    *(
        _mutant(
            f"{what} keeps the job's place",
            "lua/lib/lifecycle.lua",
            "  return_place(job)\n",
            f"  if {unless} then return_place(job) end\n",
            LEAK,
            f"{EXIT}[valkey-settle_{exit_}-concurrency=1]",
        )
        for what, unless, exit_ in (
            ("a failure", "ending.verb ~= 'fail'", "failed"),
            ("a release", "ending.verb ~= 'release'", "release"),
            ("a lease that ended unheard", "ending.verb ~= 'reap'", "reaped"),
            ("a reconciled lease", "ending.verb ~= 'reconcile'", "reconcile"),
            ("a death", "state ~= 'dead'", "dead"),
            ("a cancelled attempt", "state ~= 'cancelled'", "cancel"),
        )
    ),
    _mutant(
        "the short way of a completion keeps the job's place",
        "lua/straight/complete.lua",
        "logged or held)",
        "logged)",
        LEAK,
        f"{KILLER}a_queue_runs_as_many_jobs_as_its_limit[valkey]",
    ),
    _mutant(
        "the short way of a claim sees no limit",
        "lua/straight/claim.lua",
        " or find(settings, ' flow=1', 1, true)",
        "",
        "a limit holds for some jobs only",
        f"{KILLER}a_queue_runs_as_many_jobs_as_its_limit[valkey]",
    ),
    _mutant(
        "jobs that run when a limit is set take no place",
        "lua/lib/turns.lua",
        "    f:adopt(list(peek('ZRANGE', key('running'), 0, FIRST - 1)))\n",
        "",
        "more jobs run than the limit, until those have ended",
        f"{KILLER}a_job_taken_before_the_limit_holds_a_place[valkey]",
    ),
    _mutant(
        "a higher limit wakes nobody",
        "lua/lib/turns.lua",
        "    f:recheck(0, FIRST)\n    f:call_worker()\n",
        "    f:recheck(0, FIRST)\n",
        "jobs that may start wait for up to 2 s",
        f"{KILLER}a_lower_limit_drains_and_a_higher_one_wakes[valkey]",
    ),
    _mutant(
        "a higher limit gives a group no turn",
        "lua/lib/turns.lua",
        "    f:recheck(0, FIRST)\n    f:call_worker()\n",
        "    f:call_worker()\n",
        "a tenant waits for the audit",
        f"{KILLER}a_higher_limit_of_groups_lets_them_go_on[valkey-queue]",
    ),
    _mutant(
        "a worker that came keeps the moment for which it waited",
        "lua/lib/turns.lua",
        "if waits or keeper == worker then",
        "if waits then",
        "a job starts up to 2 s after its token came",
        f"{KILLER}a_worker_that_came_before_its_moment_does_not_keep_it[valkey]",
    ),
    _mutant(
        "a place that somebody left without its job is never found",
        "lua/lib/places.lua",
        "        f:give_back(id, group)\n",
        "",
        LEAK,
        f"{EXIT}[valkey-settle_deleted-concurrency=1]",
    ),
    _mutant(
        "a repair leaves the place of a job that does not run",
        "lua/lib/integrity.lua",
        "return flow(queue, true):give_back(job.id, group or '')",
        "return",
        LEAK,
        f"{EXIT}[valkey-settle_repaired-concurrency=1]",
    ),
    _mutant(
        "a place goes back to the queue and not to the group",
        "lua/lib/flow.lua",
        "    if group ~= '' then peek('SREM', g.places, id) end\n",
        "",
        "a tenant's jobs stop for good",
        f"{EXIT}[valkey-settle_complete-group_concurrency=1]",
    ),
    _mutant(
        "a place that goes back wakes nobody",
        "lua/lib/flow.lua",
        "    if rests or before and before >= f.concurrency then f:call_worker() end\n",
        "",
        "the next job of a limited queue starts up to 2 s late",
        f"{EXIT}[valkey-settle_complete-concurrency=1]",
    ),
    _mutant(
        "a group that may go on gets no turn",
        "lua/lib/flow.lua",
        "    if rests then f:settle(g) end\n",
        "",
        "a tenant waits for the audit",
        f"{EXIT}[valkey-settle_complete-group_concurrency=1]",
    ),
    _mutant(
        "a token is taken before the places are looked at",
        "lua/lib/turns.lua",
        "why, at = held_back(g, cost)",
        "F.charge(f, cost) why, at = held_back(g, cost)",
        "a job that cannot start uses up the rate of the others",
        f"{KILLER}a_job_that_may_not_start_takes_no_token[valkey]",
    ),
    _mutant(
        "a claim counts the places once a queue, and not each job that it takes",
        "lua/lib/turns.lua",
        "n, room, f.clock = n - 1, room - 1,",
        "n, room, f.clock = n - 1, room,",
        "a limit of 2 runs as many jobs as one claim takes",
        f"{KILLER}a_queue_runs_as_many_jobs_as_its_limit[valkey]",
    ),
    _mutant(
        "a group keeps its turn after a job",
        "lua/lib/turns.lua",
        "            turn = turn + g.step\n",
        "",
        "one tenant's backlog starves all others",
        f"{KILLER}groups_take_turns[valkey]",
    ),
    _mutant(
        "a group that comes starts at the beginning of all turns",
        "lua/lib/flow.lua",
        "or f.clock + g.step",
        "or g.step",
        "a tenant that comes late gets all turns until it has caught up",
        f"{KILLER}a_group_that_comes_later_neither_waits_for_the_others_nor_overtakes_them_all[valkey]",
    ),
    _mutant(
        "nobody keeps the moment of a token",
        "lua/claim.lua",
        "reply[2] = by_turns(name):appoint(worker, reply[2])",
        "by_turns(name):appoint(worker, reply[2])",
        "a job starts up to 2 s after its token came",
        f"{KILLER}a_rate_spaces_jobs_and_the_worker_waits_for_the_token[valkey]",
    ),
    _mutant(
        "the moment of another worker is kept after it has passed",
        "lua/lib/flow.lua",
        "(this and -1 or 50)",
        "50",
        "a job starts up to 2 s after its token came, if another worker claimed at the moment",
        f"{KILLER}a_worker_that_claims_after_anothers_moment_keeps_the_next_one[valkey]",
    ),
    _mutant(
        "jobs that a limit holds back are ready",
        "lua/summon.lua",
        "line and line:startable() or",
        "",
        "a pool invokes 100 workers for one licence",
        f"{KILLER}a_pool_is_owed_workers_for_jobs_that_may_start[valkey-group_concurrency=5-group=a-5]",
    ),
    _mutant(
        "the real cost of a job is charged in addition",
        "lua/lib/turns.lua",
        "F.charge(f, cost - job.held)",
        "F.charge(f, cost)",
        "a correction takes the tokens a second time",
        "protocol/test_spend.py::test_the_difference_is_charged_to_the_queue_and_the_group[valkey]",
    ),
    _mutant(
        "an HTTP server ignores a group that is a function of the arguments",
        "functions/sublet_functions/handlers/submit.py",
        " and not (task and task.by_arguments)",
        "",
        "jobs that come over HTTP are free of their tenant's limits",
        "http/test_groups_http.py::test_a_server_with_the_app_computes_the_group_of_each_job",
    ),
)
