"""Mutants of tokens: their roles, their queues, and their workers."""

from tests.faults.mutants.mutant import Mutant

_HANDLERS = "functions/sublet_functions/handlers"
_REACHES = "http/test_token_scopes.py::test_a_limited_token_reaches_nothing_outside_its_queues"

MUTANTS = (
    Mutant(
        "a limited token may use every route",
        "functions/sublet_functions/api/dispatch.py",
        "route.handler not in WITHIN_QUEUES:",
        "False:",
        "a token for one queue changes pools and reads the metrics of all queues",
        f"{_REACHES}[PUT /pools/{{name}}]",
    ),
    Mutant(
        "a limited token submits to every queue",
        f"{_HANDLERS}/submit.py",
        "        call.principal.check(queue)",
        "        pass",
        "a token for one queue fills all others",
        f"{_REACHES}[POST /jobs]",
    ),
    Mutant(
        "a limited token claims from every queue",
        f"{_HANDLERS}/claim.py",
        "        principal.check(*queues)",
        "        pass",
        "a worker for one queue gets the payloads of all others",
        f"{_REACHES}[POST /jobs/claim]",
    ),
    Mutant(
        "a pattern that begins like a queue of the token is within it",
        "functions/sublet_functions/http/scope.py",
        'entry.removesuffix("*").startswith(self.beginnings)',
        'entry.removesuffix("*").startswith((*self.beginnings, *self.names))',
        "a token for the queue `mail` claims from `mail-of-others`",
        "http/test_token_scopes.py::test_a_claim_takes_from_the_tokens_queues_and_patterns_within_them[elsewhere*-False]",
    ),
    Mutant(
        "a limited token reads every job",
        f"{_HANDLERS}/within.py",
        "    if await outside(call, [job_id]):",
        "    if False:",
        "whoever knows or computes an id reads its payload, or cancels it",
        f"{_REACHES}[GET /jobs/{{id}}]",
    ),
    Mutant(
        "a lost lease shows that a job exists",
        f"{_HANDLERS}/within.py",
        "    hidden = await outside(call, lost)",
        "    hidden: set[str] = set()",
        "a token for one queue learns which ids others use",
        f"{_REACHES}[POST /jobs/{{id}}/complete]",
    ),
    Mutant(
        "a limited token gets the events of all jobs",
        f"{_HANDLERS}/events.py",
        "if scope is None or not page.events:",
        "if True:",
        "a token for one queue learns the ids and states of all jobs",
        f"{_REACHES}[GET /events]",
    ),
    Mutant(
        "a limited token replaces the schedules of others",
        "jobs/sublet/schedules/operations.py",
        "        if seen:\n            guard(seen)\n        return",
        "        return",
        "a token for one queue moves the schedules of all others to it",
        "http/test_token_scopes.py::test_a_schedule_outside_the_queues_is_not_replaced",
    ),
    Mutant(
        "two tokens share the workers of a name",
        "functions/sublet_functions/http/auth.py",
        "else self.prefix + name",
        "else name",
        "a token ends the leases of another's worker by registering its name",
        "http/test_http_roles.py::test_each_token_has_its_own_workers_of_a_name",
    ),
    Mutant(
        "a token for every queue changes the namespace's limits",
        f"{_HANDLERS}/queues.py",
        'if name == "*" and principal.scope is not None:',
        "if False:",
        "a tenant's administrator deletes the finished jobs of all others",
        "http/test_token_scopes.py::test_the_namespace_is_not_a_queue_of_a_token_for_every_queue",
    ),
    Mutant(
        "registrations over HTTP count for no token",
        "functions/sublet_functions/handlers/workers.py",
        "body.summons, principal.name)",
        'body.summons, "")',
        "one token registers 10,000 workers, and no other can register any",
        "security/test_security_bounds.py::test_a_token_registers_at_most_a_thousand_live_workers",
    ),
)
