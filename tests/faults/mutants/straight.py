"""Mutants of the conditions under which a call takes a straight path (`lua/straight/`)."""

from tests.faults.mutants.mutant import Mutant

_TEST = {
    "submit": "test_a_submit_with_this_is_not_plain",
    "claim": "test_a_claim_with_this_is_not_plain",
    "complete": "test_a_completion_with_this_is_not_plain",
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


MUTANTS = (
    _mutant("submit", "two jobs", "#ARGV == 5", "#ARGV >= 5"),
    _mutant("submit", "rules", "ARGV[4] == ''", "ARGV[4]"),
    _mutant("submit", "a long payload", "#payload <= 1024", "payload"),
    _mutant("submit", "a long id", "#id <= 64", "id"),
    _mutant("submit", "an invalid id", "find(id, '^[%w_.:-]+$')", "id"),
    _mutant("submit", "a long queue", "#queue <= 128", "queue"),
    _mutant("submit", "an invalid queue", "find(queue, '^[%w_.:-]+$')", "queue"),
    _mutant("submit", "a long task", "#task <= 128", "task"),
    _mutant("submit", "an invalid task", "find(task, '^[%w_.:-]+$')", "task"),
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
    _mutant("claim", "another layout", "namespace[1] == '1'", "namespace[1]"),
    _mutant("claim", "a repeated claim", "not call('GET', memo)", "memo"),
    _mutant("claim", "a lease that ends soon", "tonumber(first_end) < soon", "tonumber(first_end) < now"),
    _mutant("claim", "a job that is due soon", "tonumber(first_due) < soon", "tonumber(first_due) < now"),
    _mutant(
        "claim", "an occurrence that is due soon", "tonumber(occurrence) < soon", "tonumber(occurrence) < now"
    ),
    _mutant("claim", "very many counts", "call('HLEN', counts) < 20000", "call('HLEN', counts) < 30000"),
    _mutant("claim", "a paused queue", "not find(settings, ' paused=', 1, true)", "settings"),
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
    _mutant("complete", "a job that is watched", "(ops or watched or logged)", "(ops or logged)"),
    _mutant("complete", "a job with a log", "(ops or watched or logged)", "(ops or watched)"),
    _mutant(
        "complete", "a job with an operator's order", "(ops or watched or logged)", "(watched or logged)"
    ),
    _mutant("complete", "a job with rules", "'^(%S+) %S+ %d+\\n'", "'^(%S+) %S+ %d+[^\\n]*\\n'"),
    _mutant("complete", "a broken moment", "find(claimed_at, '^%d+$')", "claimed_at"),
    _mutant("complete", "a long moment", "#claimed_at <= 15", "claimed_at"),
)
