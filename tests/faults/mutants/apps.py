"""Defects of apps with several modules, and of several apps in a worker."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a child process does not load its task's app",
        "jobs/sublet/execution/child_main.py",
        "found.app.load()",
        "pass",
        "middleware in a module of its own is missing in child processes",
        "cli/test_project_layout.py::test_a_child_process_has_the_middleware_of_an_included_module",
    ),
    Mutant(
        "an app counts as loaded after a module failed",
        "jobs/sublet/app.py",
        "self._loaded = False\n                raise",
        "raise",
        "the second start in the process is a worker without tasks",
        "cli/test_project_layout.py::test_a_module_that_cannot_be_included_is_named[include3-module shop.lacks cannot be imported: ModuleNotFoundError: No module named 'no_such_thing']",
    ),
    Mutant(
        "a second copy of the app is accepted",
        "jobs/sublet/tasks/user_modules.py",
        "if tasks and all(task.app is not app for task in tasks):",
        "if False:",
        "a script's app has no tasks, and nothing says so",
        "cli/test_project_layout.py::test_a_module_that_cannot_be_included_is_named[include5-module shop.other declares its tasks with another App object: import the app]",
    ),
    Mutant(
        "schedules are listed before the app is loaded",
        "jobs/sublet/schedules/decorators.py",
        "        self._load()\n",
        "",
        "a sync removes the schedules of included modules",
        "cli/test_project_layout.py::test_queues_and_schedules_load_the_app[<lambda>]",
    ),
    Mutant(
        "apps of different namespaces share a worker",
        "jobs/sublet/execution/app_loader.py",
        "if getattr(app.settings, field) != getattr(other.settings, field):",
        "if False:",
        "the second app's jobs wait for ever",
        "cli/test_project_layout.py::test_apps_of_one_worker_share_a_namespace[namespace='other'-flags1-shop:app and blog:app differ in namespace: a worker serves one namespace; give both the same]",
    ),
    Mutant(
        "the first of several names with the given end is taken",
        "jobs/sublet/tasks/naming.py",
        "if len(found) > 1:",
        "if False:",
        "a command submits another task than the one meant",
        "cli/test_project_layout.py::test_the_end_of_a_tasks_name_is_enough_where_one_task_has_it",
    ),
    Mutant(
        "a wait for many jobs misses the messages of their ends",
        "jobs/sublet/store/results.py",
        "self.called.append(self)",
        "pass",
        "each result arrives only at the end of the timeout",
        "client/test_handles.py::test_handles_come_as_their_jobs_end[valkey]",
    ),
)
