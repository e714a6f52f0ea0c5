"""Defects around an attempt: middleware, and the traces that it makes."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "the last hook stands outside of the first",
        "jobs/sublet/execution/runner.py",
        "await entered_on_loop(task.app.hooks, context)",
        "await entered_on_loop(task.app.hooks[::-1], context)",
        "what measures does not see what it should, and a session is closed before its log is written",
        "execution/test_middleware.py::test_the_first_hook_is_the_outermost[fakeredis]",
    ),
    Mutant(
        "what is no context manager is passed over",
        "jobs/sublet/tasks/middleware.py",
        'if hasattr(manager, "__enter__") or not hasattr(manager, "__aenter__"):',
        'if hasattr(manager, "__enter__"):',
        "a hook that was written wrongly protects nothing, and nobody hears of it",
        "execution/test_middleware.py::test_a_hook_without_a_context_manager_fails_its_attempts_with_the_reason[fakeredis]",
    ),
    Mutant(
        "a generator is taken for a context manager",
        "jobs/sublet/app.py",
        "if not callable(hook) or any(is_it(hook) for is_it in _NO_MANAGERS):",
        "if not callable(hook):",
        "a forgotten decorator is found by the first job, in production",
        "execution/test_middleware.py::test_an_object_that_is_not_a_context_manager_is_refused_when_declared[generator]",
    ),
    Mutant(
        "a task that promised a number may return nothing",
        "jobs/sublet/tasks/arguments.py",
        "if value is None and not self._may_be_none:",
        "if False:",
        "whoever waits for the result is the first to learn that it is none",
        "execution/test_middleware.py::test_none_is_refused_as_a_result_of_another_type[fakeredis]",
    ),
    Mutant(
        "a hook is not told why the attempt ends",
        "jobs/sublet/execution/attempt.py",
        "self.context.ending = why.value",
        "pass",
        "a deploy looks like a failure in every trace and log",
        "execution/test_middleware.py::test_a_stopping_worker_ends_middleware_with_the_reason[fakeredis]",
    ),
    Mutant(
        "a job does not carry its submitter's trace",
        "jobs/sublet/tracing.py",
        "    PROPAGATOR.inject(carried)\n",
        "",
        "no trace leads from a request to its job",
        "execution/test_tracing.py::test_a_submit_and_its_attempt_are_two_linked_spans[valkey]",
    ),
    Mutant(
        "an attempt is always its submitter's child",
        "jobs/sublet/tracing.py",
        "if self._parent and submit_span:",
        "if submitter:",
        "traces grow for days, and a job that is sampled out takes its retries along",
        "execution/test_tracing.py::test_a_submit_and_its_attempt_are_two_linked_spans[valkey]",
    ),
    Mutant(
        "a snooze is an error in its trace",
        "jobs/sublet/tracing.py",
        "if isinstance(error, Snooze):",
        "if False:",
        "alarms go off for jobs that wait as they should",
        "execution/test_tracing.py::test_snoozed_and_discarded_are_outcomes_and_not_errors[valkey-snoozed]",
    ),
    Mutant(
        "an error that cannot be read fails the tracing",
        "jobs/sublet/tracing.py",
        "    except Exception:  # noqa",
        "    except ZeroDivisionError:  # noqa",
        "the job's failure is told as another than it was",
        "execution/test_tracing.py::test_an_error_that_cannot_be_read_changes_no_outcome[valkey]",
    ),
)
