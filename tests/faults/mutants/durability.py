"""Mutants of durability: which replicas are counted, on which connection, and after which write."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "no write precedes a wait",
        "jobs/sublet/connection/wait_barrier.py",
        "return redis.call('HINCRBY', KEYS[1], 'seq', 0)",
        "return 0",
        "a repeated submit is acknowledged while no replica has the job",
        "client/test_durability.py::test_a_cut_stream_is_unconfirmed_in_bounded_time_and_a_repeat_is_acknowledged_once[valkey-async]",
    ),
    Mutant(
        "a wait creates a partial namespace",
        "jobs/sublet/connection/wait_barrier.py",
        "if redis.call('HEXISTS', KEYS[1], 'seq') == 0 then return 0 end\n",
        "",
        "a server that must not be used gets keys of Sublet",
        "client/test_durability.py::test_a_wait_creates_no_namespace[valkey]",
    ),
    Mutant(
        "a wait needs memory",
        "jobs/sublet/connection/wait_barrier.py",
        "redis.call('DEL', KEYS[1] .. ':')\n",
        "",
        "on a full server no job can be confirmed as durable",
        "client/test_durability.py::test_a_full_server_confirms_stored_jobs[valkey-async]",
    ),
    Mutant(
        "one partition's write counts for all",
        "jobs/sublet/connection/wait_barrier.py",
        "for base in dict.fromkeys(command[3] for command in scripts)]",
        "for base in [scripts[-1][3]]]",
        "if one partition is lost, jobs of another are acknowledged while no replica has them",
        "client/test_durability.py::test_an_unavailable_partition_does_not_confirm_for_another[valkey]",
    ),
    Mutant(
        "the number of copies is not checked",
        "jobs/sublet/submission/durability.py",
        "    if got < wait[1]:",
        "    if got < 0:",
        "acknowledged jobs are lost in a failover",
        "client/test_durability.py::test_a_failover_loses_no_replicated_job[valkey]",
    ),
    Mutant(
        "the reply to WAITAOF is used without a check of the server's settings",
        "jobs/sublet/submission/durability.py",
        'if "always" not in str(counted):',
        "if False:",
        "acknowledged jobs are lost with the machine's power",
        "client/test_durability.py::test_a_server_is_asked_once_a_minute_and_again_after_a_failed_wait",
    ),
    Mutant(
        "a wait uses the connection of all other calls",
        "jobs/sublet/connection/transport.py",
        "                pipeline = Pipeline(self.client.connection_pool, waiting(call))",
        "                pipeline = self._pipeline",
        "a lagging replica stops every submit and claim of the process",
        "client/test_durability.py::test_an_ordinary_submit_is_not_delayed_by_a_wait[valkey]",
    ),
    Mutant(
        "a demoted primary's refusal is ignored",
        "jobs/sublet/connection/wait_barrier.py",
        "[wrong or reply for reply in behind[-waits:]]",
        "[reply for reply in behind[-waits:]]",
        "the same call is repeated to a server that is not a primary any more",
        "client/test_durability.py::test_a_demoted_primary_acknowledges_nothing[valkey]",
    ),
)
