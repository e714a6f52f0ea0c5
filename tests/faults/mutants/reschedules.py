"""Mutants of `reschedule`: another moment or priority for a waiting job."""

from tests.faults.mutants.mutant import Mutant

KILLER = "protocol/test_reschedule.py::test_"

MUTANTS = (
    Mutant(
        "a rescheduled job stays in its old structure",
        "lua/reschedule.lua",
        "if waits and state ~= 'scheduled' then call('ZREM', structure, id) elseif not waits and state ~= 'queued' then leave_queue(job) end",
        "",
        "a job is queued and scheduled at once",
        f"{KILLER}a_queued_job_is_scheduled[fakeredis]",
    ),
    Mutant(
        "a new priority costs a job its turn",
        "lua/reschedule.lua",
        "held or next_seq(1)",
        "next_seq(1)",
        "a job that gets the priority of others goes behind those that came later",
        f"{KILLER}a_new_priority_keeps_the_order_of_arrival[fakeredis]",
    ),
    Mutant(
        "a new priority is forgotten after the attempt",
        "lua/reschedule.lua",
        "job.rules = read_header(new_header())",
        "new_header()",
        "a job that fails is queued again by its old priority",
        f"{KILLER}a_later_attempt_has_the_new_priority[fakeredis]",
    ),
    Mutant(
        "another reschedule at the same revision gets the first answer",
        "lua/reschedule.lua",
        "'reschedule:' .. string.gsub(rules, ' ', ',')",
        "'reschedule:'",
        "of two people who move a job, the second believes that his time counts",
        f"{KILLER}another_reschedule_of_the_same_revision_is_refused[fakeredis]",
    ),
    Mutant(
        "a running job is rescheduled",
        "lua/reschedule.lua",
        "revision, 'scheduled', 'queued')",
        "revision, 'scheduled', 'queued', 'running')",
        "a job runs twice at once",
        f"{KILLER}only_waiting_jobs_are_rescheduled[fakeredis]",
    ),
    Mutant(
        "a rescheduled job of a schedule loses its occurrence",
        "lua/reschedule.lua",
        " and not job.rules.schedule then",
        " then",
        "the report of Monday is made for another day",
        f"{KILLER}a_job_of_a_schedule_keeps_its_occurrence[fakeredis]",
    ),
    Mutant(
        "a repair puts a rescheduled job where its failure did",
        "lua/lib/integrity.lua",
        "if seen and seen + 1 == (job.attempt or 0) + (job.ops or 0) then return moved_to end",
        "",
        "a job that was postponed to next week runs after a repair",
        f"{KILLER}a_repair_puts_a_job_where_the_last_reschedule_did[fakeredis-]",
    ),
    Mutant(
        "a limited token reschedules jobs of other queues",
        "functions/sublet_functions/handlers/reschedule.py",
        "    await check_job(call)\n",
        "",
        "one tenant postpones the jobs of another",
        "http/test_token_scopes.py::test_a_limited_token_reaches_nothing_outside_its_queues[POST /jobs/{id}/reschedule]",
    ),
)
