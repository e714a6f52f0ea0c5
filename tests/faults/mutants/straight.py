"""Mutants of the conditions under which a call takes a straight path (`lua/straight/`)."""

from tests.faults.mutants.mutant import Mutant

_TEST = {
    "submit": "test_a_submit_with_this_is_not_plain",
    "claim": "test_a_claim_with_this_is_not_plain",
    "complete": "test_a_completion_with_this_is_not_plain",
    "submit_many": "test_a_submit_of_many_jobs_with_this_is_not_plain",
}


def _mutant(verb: str, what: str, old: str, new: str) -> Mutant:
    """The straight path of a verb without one of its conditions."""
    return Mutant(
        f"the straight path of {verb} is taken with {what}",
        f"lua/straight/{verb}.lua",
        old,
        new,
        "the call has another effect than the script documents",
        f"protocol/test_straight_paths.py::{_TEST[verb]}[valkey-{what}]",
    )


_STORES = {
    "async": ("a client", "jobs/sublet/store/store.py", "async-fakeredis"),
    "sync": ("a client without an event loop", "jobs/sublet/store/sync_store.py", "sync-fakeredis"),
}


def _submit(name: str, old: str, new: str, danger: str, test: str) -> tuple[Mutant, ...]:
    """A mutant of the straight submit of both stores."""
    return tuple(
        Mutant(
            f"the straight submit of {who} {name}",
            file,
            old,
            new,
            danger,
            f"client/test_straight_submit.py::test_{test}[{case}]",
        )
        for who, file, case in _STORES.values()
    )


def _condition(name: str, old: str, new: str, danger: str, test: str) -> Mutant:
    return Mutant(
        f"a straight submit {name}",
        "jobs/sublet/submission/submit.py",
        old,
        new,
        danger,
        f"client/test_straight_submit.py::test_{test}",
    )


CLIENTS = (
    *_submit(
        "does not check the namespace",
        "if self._ready and self._storage is None else",
        "if self._storage is None else",
        "with another partition count, jobs are stored where no worker looks",
        "the_first_submit_checks_the_namespace",
    ),
    *_submit(
        "stores large payloads in Redis",
        "if self._ready and self._storage is None else",
        "if self._ready else",
        "the server's memory is filled by payloads that belong elsewhere",
        "a_large_payload_is_stored_outside_redis",
    ),
    *_submit(
        "fails without a namespace",
        "        except NoNamespace:  # the general way creates it\n",
        "        except ZeroDivisionError:\n",
        "after a flush of the server no client works until it is started again",
        "a_deleted_namespace_is_created_again",
    ),
    *_submit(
        "does not say which job may be stored",
        "        except Unavailable as error:\n            raise_with_ids(error, [job])\n",
        "        except ZeroDivisionError:\n            raise\n",
        "who repeats a submit without a reply stores the job twice",
        "a_stored_job_starts_workers_and_is_not_in_flight",
    ),
    *_submit(
        "counts a lost job as in flight",
        "        finally:\n            self.operations.end(size)\n",
        "        self.operations.end(size)\n",
        "after lost replies a client refuses jobs that fit",
        "a_stored_job_starts_workers_and_is_not_in_flight",
    ),
    *_submit(
        "starts no worker",
        "            raise answer\n        self.nudge([job.queue])\n",
        "            raise answer\n",
        "pools without workers stay without workers until the next tick",
        "a_stored_job_starts_workers_and_is_not_in_flight",
    ),
    _condition(
        "ignores the durability of a job",
        'if (job.durability or self.settings.durability) != "none":',
        'if self.settings.durability != "none":',
        "a submit returns before another server has the job",
        "a_submit_that_waits_for_durability_goes_the_general_way[async-fakeredis-asked0]",
    ),
    _condition(
        "ignores the durability of the settings",
        'if (job.durability or self.settings.durability) != "none":',
        'if (job.durability or "none") != "none":',
        "a submit returns before another server has the job",
        "a_submit_that_waits_for_durability_goes_the_general_way[async-fakeredis-asked1]",
    ),
    _condition(
        "does not ask for the free memory",
        "            if not self.admission.admit(base, size):\n                return None\n",
        "            self.admission.admit(base, size)\n",
        "submits fill the server until it has no memory for results",
        "a_submit_without_a_report_of_free_memory_goes_the_general_way[async-fakeredis]",
    ),
    _condition(
        "takes a refusal for a job's id",
        "return _refusal(job, answer) if isinstance(answer, str) else answer",
        "return Submitted(str(answer), False)",
        "a refused job counts as stored",
        "random_jobs_are_sent_and_answered_alike[async-valkey]",
    ),
)

MUTANTS = (
    *CLIENTS,
    _mutant("submit", "rules", "ARGV[4] == ''", "ARGV[4]"),
    _mutant("submit", "a long payload", "#payload <= 1024", "payload"),
    _mutant("submit", "a long id", "#id <= 64", "id"),
    _mutant("submit", "an invalid id", "find(id, '^[%w_.:-]+$')", "id"),
    _mutant("submit", "a long queue", "#queue <= 128", "queue"),
    _mutant("submit", "an invalid queue", "find(queue, '^[%w_.:-]+$')", "queue"),
    _mutant("submit", "a long task", "#task <= 128", "task"),
    _mutant("submit", "an invalid task", "find(task, '^[%w_.:-]+$')", "task"),
    *(
        _mutant("submit", f"the {what} {dots}", f" and {what} ~= '{dots}'", "")
        for what in ("id", "queue", "task")
        for dots in (".", "..")
    ),
    _mutant("submit", "another layout", "namespace[1] == '1'", "namespace[1]"),
    _mutant("submit", "a worker that waits for a pattern", "not namespace[2]", "namespace"),
    _mutant(
        "submit",
        "a new queue",
        "call('HGET', base .. ':queues', queue) == ''",
        "call('HGET', base .. ':queues', queue) ~= 'x'",
    ),
    _mutant("submit", "a queue with settings", "':queues', queue) == ''", "':queues', queue)"),
    _mutant("submit", "a known id", "call('EXISTS', job) == 0", "job"),
    _mutant("submit", "a broken number in order of queueing", "type(seq) == 'number'", "seq"),
    _mutant("submit_many", "201 jobs", "#ARGV <= 1000", "#ARGV"),
    _mutant("submit_many", "a second job with half a job", "#ARGV % 5 == 0", "#ARGV"),
    *(
        _mutant("submit_many", f"a second job with {what}", old, new)
        for what, old, new in (
            ("rules", "ARGV[i + 3] == ''", "ARGV[i + 3]"),
            ("another queue", "ARGV[i + 1] == queue", "ARGV[i + 1]"),
            ("a long payload", "#payload <= 1024", "payload"),
            ("a known id", "call('EXISTS', jobs .. id) == 0", "id"),
            ("the id of the first", "not new[id]", "id"),
            ("an invalid id", "find(id, '^[%w_.:-]+$')", "id"),
            ("a long id", "#id <= 64", "id"),
            ("an invalid task", "find(task, '^[%w_.:-]+$')", "task"),
            ("a long task", "#task <= 128", "task"),
            *(
                (f"the {what} {dots}", f"{what} ~= '{dots}'", what)
                for what in ("id", "task")
                for dots in (".", "..")
            ),
        )
    ),
    _mutant("submit_many", "a new queue", "queue) == ''", "queue) ~= 'x'"),
    _mutant("submit_many", "a queue with settings", "queue) == ''", "queue)"),
    _mutant("submit_many", "an invalid queue", "find(queue, '^[%w_.:-]+$')", "queue"),
    _mutant("submit_many", "a long queue", "#queue <= 128", "queue"),
    *(_mutant("submit_many", f"the queue {dots}", f" and queue ~= '{dots}'", "") for dots in (".", "..")),
    _mutant("submit_many", "another layout", "namespace[1] == '1'", "namespace[1]"),
    _mutant("submit_many", "a worker that waits for a pattern", "not namespace[2]", "namespace"),
    _mutant("submit_many", "a broken number in order of queueing", "type(seq) == 'number'", "seq"),
    _mutant("claim", "no jobs wanted", "n >= 1", "n >= 0"),
    _mutant("claim", "too many jobs", "n <= 100", "n <= 101"),
    _mutant("claim", "half a job", "n % 1 == 0", "n"),
    _mutant("claim", "five queues", "#ARGV <= 8", "#ARGV <= 9"),
    _mutant("claim", "one queue twice", "not queues[queue.name]", "queues"),
    _mutant("claim", "a pattern", "find(queue.name, '^[%w_.:-]+$')", "queue.name"),
    _mutant("claim", "a long queue", "#queue.name <= 128", "queue.name"),
    _mutant("claim", "a worker that waits for a pattern", "not namespace[2]", "namespace"),
    _mutant("claim", "a worker that was replaced", "not namespace[3]", "namespace"),
    _mutant("claim", "a short lease", "tonumber(lease) >= 2000", "tonumber(lease)"),
    _mutant("claim", "an invalid lease", "find(lease, '^%d+$')", "lease"),
    _mutant("claim", "a long lease", "#lease <= 14", "lease"),
    _mutant("claim", "a short claim", "#claim_id >= 22", "claim_id"),
    _mutant("claim", "a long claim", "#claim_id <= 64", "claim_id"),
    _mutant("claim", "an invalid claim", "find(claim_id, '^[%w_.:-]+$')", "claim_id"),
    _mutant("claim", "an invalid worker", "find(worker, '^[%w_.:-]+$')", "worker"),
    _mutant("claim", "a long worker", "#worker <= 128", "worker"),
    *(
        _mutant("claim", f"the {what.removesuffix('.name')} {dots}", f" and {what} ~= '{dots}'", "")
        for what in ("queue.name", "worker")
        for dots in (".", "..")
    ),
    _mutant("claim", "another layout", "namespace[1] == '1'", "namespace[1]"),
    _mutant("claim", "a repeated claim", "not call('GET', memo)", "memo"),
    _mutant("claim", "a lease that ends soon", "tonumber(first_end) < soon", "tonumber(first_end) < now"),
    _mutant("claim", "a job that is due soon", "tonumber(first_due) < soon", "tonumber(first_due) < now"),
    _mutant(
        "claim", "an occurrence that is due soon", "tonumber(occurrence) < soon", "tonumber(occurrence) < now"
    ),
    _mutant("claim", "very many counts", "call('HLEN', counts) < 20000", "call('HLEN', counts) < 30000"),
    _mutant("claim", "a paused queue", "find(settings, ' paused=', 1, true) or ", ""),
    _mutant("claim", "a queue with limits of what runs", " or find(settings, ' flow=1', 1, true)", ""),
    _mutant("complete", "a job that holds a place", "logged or held)", "logged)"),
    _mutant("claim", "a job with rules", "'^%S+ %S+ (%d+)\\n'", "'^%S+ %S+ (%d+)'"),
    _mutant("claim", "a second attempt", "not attempt and not tries_left", "not tries_left"),
    _mutant("claim", "a retried job", "not attempt and not tries_left", "not attempt"),
    _mutant("claim", "a job that is in two places", "state == 'queued'", "state"),
    _mutant("complete", "too many leases", "#ARGV <= 192", "#ARGV <= 195"),
    _mutant("complete", "one lease twice", "not done[id]", "id"),
    _mutant("complete", "another token", "holder == token", "holder"),
    _mutant(
        "complete", "another layout", "call('HGET', base, 'layout') == '1'", "call('HGET', base, 'layout')"
    ),
    _mutant("complete", "a limit of finished jobs", "not call('HGET', known, '*')", "known"),
    _mutant("complete", "very many counts", "call('HLEN', counts) < 20000", "call('HLEN', counts) < 30000"),
    _mutant("complete", "as many completed jobs as are kept", "+ n <= 100000", "<= 100000"),
    _mutant("complete", "more dead jobs than are kept", "plain and kept <= 100000", "plain"),
    _mutant(
        "complete", "a dead job past its retention", "'WITHSCORES')[2]) > now)", "'WITHSCORES')[2]) > 0)"
    ),
    _mutant("complete", "a cancelled job past its retention", "plain and 2 or 0", "plain and 1 or 0"),
    _mutant("complete", "a second attempt", "attempt == '1'", "attempt"),
    _mutant(
        "complete", "a job that is watched", "(ops or watched or logged or held)", "(ops or logged or held)"
    ),
    _mutant("complete", "a job with a log", "(ops or watched or logged or held)", "(ops or watched or held)"),
    _mutant(
        "complete",
        "a job with an operator's order",
        "(ops or watched or logged or held)",
        "(watched or logged or held)",
    ),
    _mutant("complete", "a job with rules", "'^(%S+) %S+ %d+\\n'", "'^(%S+) %S+ %d+[^\\n]*\\n'"),
    _mutant("complete", "a broken moment", "find(claimed_at, '^%d+$')", "claimed_at"),
    _mutant("complete", "a long moment", "#claimed_at <= 15", "claimed_at"),
)
