"""Defects around an attempt: middleware, and the traces that it makes."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "the last hook is outside of the first",
        "jobs/sublet/execution/runner.py",
        "await entered_on_loop(task.app.hooks, context)",
        "await entered_on_loop(task.app.hooks[::-1], context)",
        "a timer misses part of the attempt, and a session is closed before its log is written",
        "execution/test_middleware.py::test_the_first_hook_is_the_outermost[fakeredis]",
    ),
    Mutant(
        "an object that is not a context manager is skipped",
        "jobs/sublet/tasks/middleware.py",
        'if hasattr(manager, "__enter__") or not hasattr(manager, "__aenter__"):',
        'if hasattr(manager, "__enter__"):',
        "an invalid hook has no effect, and causes no error",
        "execution/test_middleware.py::test_a_hook_without_a_context_manager_fails_its_attempts_with_the_reason[fakeredis]",
    ),
    Mutant(
        "a generator is accepted as a context manager",
        "jobs/sublet/app.py",
        "if not callable(hook) or any(is_it(hook) for is_it in _NO_MANAGERS):",
        "if not callable(hook):",
        "a missing decorator is found by the first job, in production",
        "execution/test_middleware.py::test_an_object_that_is_not_a_context_manager_is_refused_when_declared[generator]",
    ),
    Mutant(
        "a task with an int result may return None",
        "jobs/sublet/tasks/arguments.py",
        "if value is None and not self._may_be_none:",
        "if False:",
        "the error appears only at the reader of the result",
        "execution/test_middleware.py::test_none_is_refused_as_a_result_of_another_type[fakeredis]",
    ),
    Mutant(
        "a hook does not get the reason why the attempt ends",
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
        "no trace connects a request with its job",
        "execution/test_tracing.py::test_a_submit_and_its_attempt_are_two_linked_spans[valkey]",
    ),
    Mutant(
        "an attempt is always its submitter's child",
        "jobs/sublet/tracing.py",
        "if self._parent and submit_span:",
        "if submitter:",
        "traces grow for days, and a job that is not sampled removes its retries from the traces",
        "execution/test_tracing.py::test_a_submit_and_its_attempt_are_two_linked_spans[valkey]",
    ),
    Mutant(
        "a snooze is an error in its trace",
        "jobs/sublet/tracing.py",
        "if isinstance(error, Snooze):",
        "if False:",
        "alerts fire for jobs that wait as intended",
        "execution/test_tracing.py::test_snoozed_and_discarded_are_outcomes_and_not_errors[valkey-snoozed]",
    ),
    Mutant(
        "an error that cannot be formatted fails the tracing",
        "jobs/sublet/tracing.py",
        "    except Exception:  # noqa",
        "    except ZeroDivisionError:  # noqa",
        "the job gets the error of the tracing instead of its own",
        "execution/test_tracing.py::test_an_error_that_cannot_be_read_changes_no_outcome[valkey]",
    ),
)
