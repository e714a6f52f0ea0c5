"""Mutants of the commands of operators: which jobs they reach."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "purge does not look at a job's state",
        "jobs/sublet/cli/jobs/purge.py",
        "    if job.state is not state:\n",
        "    if False:\n",
        "jobs that a worker claims during a purge are stopped, half done",
        "cli/test_purge.py::test_a_job_that_a_worker_has_claimed_since_is_not_cancelled",
    ),
    Mutant(
        "purge does not send the revision that it read",
        "jobs/sublet/cli/jobs/purge.py",
        "client.cancel(job.id, job.revision)",
        "client.cancel(job.id)",
        "jobs that a worker claims during a purge are stopped, half done",
        "cli/test_purge.py::test_a_job_that_a_worker_has_claimed_since_is_not_cancelled",
    ),
    Mutant(
        "a short end of an id counts as unique among some ids",
        "jobs/sublet/cli/jobs/ids.py",
        "if not complete and len(word) < SURE:",
        "if False:",
        "another job than the one meant is cancelled",
        "cli/test_job_ids.py::test_an_end_that_may_name_another_job_is_refused",
    ),
    Mutant(
        "the first of several ids with an end is taken",
        "jobs/sublet/cli/jobs/ids.py",
        "        if len(ids) == 1:\n",
        "        if ids:\n",
        "another job than the one meant is cancelled",
        "cli/test_job_ids.py::test_an_end_that_may_name_another_job_is_refused",
    ),
    Mutant(
        "a quote in a comment of a script counts",
        "jobs/sublet/tasks/programs/shell_quoting.py",
        'char == "#" and self._at_start and not self._braces',
        "False",
        "a field that the author quoted is split into words, and a value can become an option",
        "execution/test_command.py::test_a_field_of_a_script_is_one_word_after_comments_and_quotes[a comment]",
    ),
    Mutant(
        "quotes within $(…) within quotes count as one pair",
        "jobs/sublet/tasks/programs/shell_quoting.py",
        'if text.startswith(("${", "$(", "`"), at):',
        "if False:",
        "a field that the author quoted is split into words, and a value can become an option",
        "execution/test_command.py::test_an_invalid_template_is_refused_when_it_is_declared[nested quotes]",
    ),
)
