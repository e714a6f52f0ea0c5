"""The part of the suite that a whole run tries, drawn by chance.

A whole run is spread over workers, which all draw the same. A file that is run alone, and a run with
`--all`, try everything; `--long 240` tries all of LONG, for 240 s, in an order by chance.
"""

import os
import sys
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
LONG = [
    "deploy_compose",
    "durability",
    "schemathesis",
    "worker_shutdown",
    "worker_frozen",
    "deploy_google",
    "deploy_aws",
    "growth",
    "many_queues_bench",
    "wheel",
    "conformance",
    "scaling",
    "own_packages",
    "leftovers",
    "cluster",
    "dashboard_looks",
    "dashboard_files::test_the_modules_have_correct_types",
    "dashboard_files::test_the_linter_finds_nothing_in_the_modules",
    "dashboard_jobs",
    "dashboard_views",
    "dashboard_hostile",
    "dashboard_guards",
    "dashboard_keys",
    "dashboard_workers",
    "dashboard_workflows",
    "dashboard_guide",
    "dashboard_pictures::test_the_script_takes_each_picture",
    "dashboard_live",
    "foreign_clients",
    "aws",
    "acl",
    "security_floods",
    "linger",
    "long_polls",
    "deploy_kubernetes",
    "simulation::test_a_planted_defect_is_found_and_shrunk",
    "demo::test_the_demo_runs_until_ctrl_c",
    "demo::test_a_worker_is_killed_a_late_result_is_refused_and_no_job_is_lost",
    "examples",
    "security_held::test_held_secrets_are_still_read",
    "security_held::test_tasks_in_another_server_do_not_get_its_secrets",
    "dev::test_the_first_submit_has_the_options_of_its_task",
    "dev::test_the_jobs_of_a_killed_platform_may_finish",
    "dev::test_the_commands_of_its_page_work",
    "dev::test_with_data_the_url_is_that_of_its_folder",
    "site",
    "instructions",
    "mutants::test_the_named_tests_exist_with_these_values",
    "asgi_ends",
    "bench_run",
    "demo::test_the_picture_of_the_demo_is_drawn_by_a_script",
    "deploy",
    "deploy_keda",
    "events",
    "work_wait",
    "command_line_page",
    "command_worker",
    "story_http",
    "invocation",
    "clock_storm",
    "full_memory",
    "drop",
    "security_mixups",
    "repair::test_after_the_loss_of_any_key_the_remaining_jobs_are_run",
    "middleware::test_hooks_are_typed",
    "schedule_verb::test_the_last_of_10_000_schedules_is_put_and_found_like_the_first",
    "demo::test_a_kill_leaves_no_process_and_a_second_demo_in_a_folder_is_refused",
    "chaos::test_no_key_or_setting_remains_on_the_users_server",
    "frameworks",
    "bootstrap",
    "group_audit",
    "chaos_limits::test_twenty_tenants_share_limits_while_everything_is_killed",
    "chaos_workflows::test_workflows_end_while_everything_is_killed",
    "chaos::test_a_defect_makes_its_scenario_fail",
    "mutants::test_a_stopped_run_leaves_no_file_and_no_process",
    "sentinel",
    "repair_live",
    "children_batches",
    "orphans",
    "mutants::test_a_surviving_mutant_and_one_without_proof_have_different_outcomes",
    "bench_parts",
    "testing",
    "replacement",
    "deploy_crontab",
    "init_todo",
    "performance_page",
    "chaos::test_real_workers_are_killed_and_the_promises_are_kept",
    "day",
    "deploy_knative",
    "gunicorn",
    "google",
    "chaos::test_a_signal_ends_all_processes",
    "simulation_resumed",
    "interleavings",
    "http_worker",
    "worker_death",
    "cli_work",
    "restart",
    "failure_hooks",
    "tick_workers",
    "stalls",
    "demo::test_a_signal_stops_the_demo_in_order_and_a_second_one_at_once",
    "typescript_client",
    "lending",
    "passwords",
    "schedules_docs",
    "asgi",
    "worker",
    "children",
    "security_canaries",
    "children_start",
    "work_http",
    "many_queues_worker",
    "durability_entries",
    "curl_worker",
    "large_s3",
    "wakeup_rules",
    "stateless",
    "cli_workers",
    "stall",
    "dev::test_two_apps_on_one_redis_have_separate_workers",
    "dev::test_frozen_processes_are_replaced",
    "dev::test_killed_processes_are_restarted_and_no_job_is_lost",
    "dev::test_the_users_own_redis_gets_no_second_server",
    "dev::test_a_valid_edit_replaces_the_workers_and_a_broken_edit_does_not",
    "dev::test_each_start_in_a_folder_has_the_same_url",
    "dev::test_a_submit_starts_a_worker_that_exits_when_idle",
    "dev::test_a_second_platform_of_a_folder_says_why_its_url_differs",
    "dev::test_a_second_signal_stops_the_platform_at_once",
]
"""Files, and tests, that take long and whose subject changes seldom, about the longest first. A whole run tries a sixtieth."""
PART = 60
if "--all" in sys.argv:
    os.environ["SUBLET_TEST_ALL"] = "1"  # inherited by the workers
ALL = os.environ.get("SUBLET_TEST_ALL") == "1"
RUN = "" if ALL else os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
"""Identifies a whole run, the same in all its workers; empty where everything is tried."""


def one_in(n: int, items: Sequence[T]) -> Sequence[T]:
    """Every n-th item, the first one by chance."""
    return items[int(RUN[:8], 16) % n :: n] if RUN else items


def few(n: int) -> int:
    """A sixth of n examples. For tests whose examples are drawn anew in each run."""
    return max(n // 6, 1) if RUN else n


def one_for(test: str, items: Sequence[T]) -> Sequence[T]:
    """One item, drawn anew for each test. For repetitions of a test that seldom fail alone."""
    return [items[by_chance(test) % len(items)]] if RUN else items


def long_name(path_stem: str, test: str) -> str:
    """The name in LONG of a test's file or of the test; empty for others."""
    file = path_stem.removeprefix("test_")
    return next((name for name in (file, f"{file}::{test}") if name in LONG), "")


def by_chance(name: str) -> int:
    """A number for a name, another one in each run."""
    return zlib.crc32(f"{RUN} {name}".encode())
