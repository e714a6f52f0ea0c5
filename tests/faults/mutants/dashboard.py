"""Mutants of the dashboard's page and files."""

from tests.faults.mutants.mutant import Mutant

FILES = "functions/sublet_functions/dashboard/files.py"
SHARED = "functions/sublet_functions/http/shared_reads.py"
DISPATCH = "functions/sublet_functions/api/dispatch.py"
READS = "http/test_shared_reads.py::"
HTTP = "dashboard/test_dashboard_http.py::"

MUTANTS = (
    Mutant(
        "the dashboard runs inline scripts",
        FILES,
        "        \"script-src 'self'\",",
        "        \"script-src 'self' 'unsafe-inline'\",",
        "one slip in a view lets the text of a job run as a script with the user's token",
        f"{HTTP}test_the_policy_allows_nothing_inline_and_no_other_origin[script-src]",
    ),
    Mutant(
        "the dashboard has the policy of no page",
        FILES,
        ', "Content-Security-Policy": POLICY}',
        "}",
        "the browser loads none of the page's modules",
        f"{HTTP}test_the_page_is_served_for_each_view_with_a_strict_policy[core]",
    ),
    Mutant(
        "the dashboard's URLs begin at the root of the host",
        FILES,
        '_page("../" * depth or "./")',
        '_page("/")',
        "behind the prefix of a gateway the page is empty",
        f"{HTTP}test_the_page_and_its_links_work_below_a_base_path",
    ),
    Mutant(
        "an unchanged file of the dashboard is sent again",
        FILES,
        "    if any(tag.strip()",
        "    if not known and any(tag.strip()",
        "each view that is opened fetches all modules again",
        f"{HTTP}test_a_file_has_its_type_and_an_entity_tag[core]",
    ),
    Mutant(
        "the dashboard shows control characters as they are",
        "functions/sublet_functions/dashboard/static/format.js",
        "  text.replace(HIDDEN,",
        "  text.replace(/$^/,",
        "a payload turns the direction of the text and shows another name than it has",
        "dashboard/test_dashboard_files.py::test_durations_sizes_and_fingerprints_are_written_for_people",
    ),
    Mutant(
        "tokens limited to other queues share an answer",
        DISPATCH,
        "principal.scope is not None or route",
        "route",
        "a token sees the jobs of queues that it may not see",
        f"{READS}test_a_token_never_gets_the_answer_of_another_ones_queues",
    ),
    Mutant(
        "a read that began before what the caller knows is shared",
        SHARED,
        "now - one.began <= min(most, one.life) and",
        "(not one.task.done() or now - one.began <= min(most, one.life)) and",
        "an order is not visible to who gave it",
        f"{READS}test_an_answer_read_before_what_the_caller_knows_is_not_for_it",
    ),
    Mutant(
        "a failed read is kept",
        SHARED,
        "if self._reads.get(key) is one and failed:",
        "if not key:",
        "pages show an outage that is over",
        f"{READS}test_an_error_is_told_to_all_who_wait_and_not_kept",
    ),
    Mutant(
        "a client that leaves ends the read of the others",
        SHARED,
        "await asyncio.shield(one.task)",
        "await one.task",
        "one closed page makes errors in all others",
        f"{READS}test_a_caller_that_leaves_does_not_end_the_read_of_the_others",
    ),
    Mutant(
        "an erase leaves shared answers",
        DISPATCH,
        "self._shared.clear()",
        "pass",
        "an erased payload is shown for seconds",
        f"{READS}test_an_erased_job_is_in_no_shared_answer[core-/jobs/{{id}}/erase]",
    ),
    Mutant(
        "answers with payloads are kept as others",
        DISPATCH,
        "PAYLOAD_SECONDS if route.handler in WITH_PAYLOADS else SECONDS_MAX",
        "SECONDS_MAX",
        "a payload that another server has erased is shown for a minute",
        f"{READS}test_answers_with_payloads_are_kept_for_seconds_only",
    ),
    Mutant(
        "an answer made of an older read counts as new",
        SHARED,
        "if is_own or self._serves(one, patience, now):",
        "if one:",
        "a page shows numbers from before its own order",
        f"{READS}test_an_answer_that_is_made_of_an_older_read_is_as_old",
    ),
    Mutant(
        "patient subscribers delay the others",
        "jobs/sublet/store/events.py",
        "        self._arrival.set()\n",
        "",
        "a program gets events seconds late because a page is open",
        "client/test_event_stream.py::test_later_events_come_together_if_all_subscribers_accept_it[redis]",
    ),
    Mutant(
        "a submit names 200 queues",
        "jobs/sublet/submission/batches.py",
        "room -= QUEUE",
        "room -= 0",
        "one request holds Redis for ten milliseconds",
        "protocol/test_batches.py::test_a_submit_takes_fewer_jobs_of_many_queues_or_with_tags",
    ),
    Mutant(
        "a page reads the lengths of all queues",
        "jobs/sublet/protocol/queue_names.py",
        "step = len(queues) if room == math.inf else FIRST",
        "step = len(queues)",
        "each open list of jobs costs Redis a command for each queue",
        "client/test_many_names.py::test_a_page_reads_the_lengths_of_few_queues_if_they_have_enough_jobs[redis-1-8]",
    ),
)
