"""Mutants of the claim that an idle worker sends ahead, behind its blocking read."""

from tests.faults.mutants.mutant import Mutant

WAKEUPS = "jobs/sublet/store/waiting/wakeups.py"
AHEAD = "jobs/sublet/store/waiting/claim_ahead.py"

MUTANTS = (
    Mutant(
        "an idle worker sends no claim ahead",
        "jobs/sublet/worker/claim_loop.py",
        'order["ahead"] = True',
        "pass",
        "each job on an idle queue waits for one more round trip",
        "client/test_wakeup_rules.py::test_an_idle_worker_sends_its_next_claim_ahead[valkey]",
    ),
    Mutant(
        "a claim sent ahead takes as many jobs as fit",
        AHEAD,
        "n=1, queues=queues",
        "n=100, queues=queues",
        "a suspended worker holds a whole burst of jobs until their leases end",
        "client/test_claim_ahead.py::test_one_job_comes_with_the_wake_up_and_leaves_one_for_the_next_worker[valkey]",
    ),
    Mutant(
        "a stopped worker leaves its claim on the server",
        WAKEUPS,
        "            self._withdraw(self._ahead[1])\n",
        "",
        "the next job is leased by a worker that has ended",
        "client/test_claim_ahead.py::test_a_caller_that_leaves_withdraws_its_claim[valkey]",
    ),
    Mutant(
        "a claim that was answered as its caller left keeps its job",
        WAKEUPS,
        "            self._withdraw(answered)\n",
        "            pass\n",
        "a worker that stops at that moment leaves a job for the length of a lease",
        "client/test_claim_ahead.py::test_a_caller_that_leaves_with_the_answer_gives_the_job_back[valkey]",
    ),
    Mutant(
        "a broken connection forgets its claim",
        WAKEUPS,
        "        elif isinstance(reply, Exception):\n            self._withdraw(sent)\n",
        "        elif isinstance(reply, Exception):\n",
        "a lost answer costs a job its try, and the length of a lease",
        "client/test_claim_ahead.py::test_a_lost_answer_gives_the_job_back[valkey]",
    ),
    Mutant(
        "a withdrawal overwrites the memo of a claim that ran",
        AHEAD,
        '"-", "NX", "PX"',
        '"-", "PX"',
        "the jobs that it took cannot be found, and wait for the end of their leases",
        "client/test_claim_ahead.py::test_a_job_that_came_before_the_withdrawal_is_released[valkey]",
    ),
    Mutant(
        "a withdrawal without an answer is not repeated",
        "jobs/sublet/store/claim.py",
        "if self._closing or time.monotonic() > until:",
        "if True:",
        "after a partition the server runs a claim that nobody reads",
        "client/test_claim_ahead.py::test_a_claim_whose_outcome_is_unknown_is_withdrawn_when_the_server_is_back[valkey]",
    ),
    Mutant(
        "a withdrawn claim uses up the wake-up",
        WAKEUPS,
        "        if waiter is None:  # it was withdrawn\n            self._on_reply(sent.read)\n",
        "        if waiter is None:  # it was withdrawn\n            self._on_reply(sent.read, is_used=True)\n",
        "a job waits for a poll while workers wait for it",
        "client/test_claim_ahead.py::test_a_withdrawn_claim_returns_the_wake_up[valkey]",
    ),
    Mutant(
        "a refused claim is not repeated",
        WAKEUPS,
        "is_error_reply(reply) and waiter.idle",
        "False",
        "after SCRIPT FLUSH an idle worker polls in vain",
        "client/test_claim_ahead.py::test_a_poll_without_the_script_sends_its_text[valkey]",
    ),
    Mutant(
        "each read of an outage carries a claim",
        WAKEUPS,
        "            self._broke\n            or not waiter.prepare\n",
        "            not waiter.prepare\n",
        "a server that stays away leaves dozens of claims to withdraw",
        "client/test_claim_ahead.py::test_after_an_outage_one_read_carries_no_claim[valkey]",
    ),
    Mutant(
        "one of several waiting claims is sent ahead",
        WAKEUPS,
        "            or len(self._waiters) > 1\n",
        "",
        "it uses up the wake-ups of the others",
        "client/test_claim_ahead.py::test_a_second_claim_of_the_process_shares_the_read[valkey]",
    ),
    Mutant(
        "a wait goes on after its end",
        WAKEUPS,
        "if waiter.answered or (waiter.prepare and seconds <= 0):",
        "if waiter.answered:",
        "a draining worker stays for ever",
        "client/test_claim_ahead.py::test_a_wait_ends_in_time_and_leaves_nothing_on_the_server[valkey]",
    ),
)
