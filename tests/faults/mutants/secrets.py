"""Defects of output, of the addresses that are called, and of the secrets of a process."""

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "stored text is printed with its control characters",
        "jobs/sublet/cli/output.py",
        'return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)',
        "return text",
        "a job's error controls an operator's terminal",
        "cli/test_printed_text.py::test_a_command_prints_stored_text_without_control_characters",
    ),
    Mutant(
        "JSON output loses unprintable characters",
        "jobs/sublet/cli/output.py",
        'put(*escaped(text).split("\\n"))',
        'put(*text.split("\\n"))',
        "a program that reads --json gets another text than the stored one",
        "cli/test_printed_text.py::test_json_escapes_the_stored_text_and_keeps_it",
    ),
    Mutant(
        "metadata services are addresses like others",
        "jobs/sublet/scaling/invokers/addresses.py",
        "    if any(form in network for form in forms for network in _NEVER):",
        "    if False:",
        "an admin of the API gets requests sent to the cloud's credentials",
        "scaling/test_invokers_addresses.py::test_metadata_services_of_clouds_are_never_called[169.254.169.254]",
    ),
    Mutant(
        "a failed call inside a private network is stored with its reason",
        "jobs/sublet/scaling/invokers/http.py",
        "            if self._guard.is_inside(request.target):",
        "            if False:",
        "pools are a port scanner of the network",
        "scaling/test_invokers_http.py::test_the_failure_of_a_private_call_does_not_reveal_which_ports_are_open[127.0.0.1]",
    ),
    Mutant(
        "secrets stay in the environment",
        "jobs/sublet/connection/held_secrets.py",
        "            os.environ.pop(name, None)\n",
        "",
        "a task reads the tokens of the API",
        "security/test_security_held.py::test_tasks_of_a_worker_do_not_get_its_token_and_signing_secrets",
    ),
    Mutant(
        "another server's environment keeps the secrets",
        "functions/sublet_functions/adapters/hosted.py",
        "            hold_secrets()\n",
        "",
        "a task under uvicorn, gunicorn or Lambda reads the tokens of the API",
        "platforms/test_hosted.py::test_tasks_in_the_same_process_find_no_secret_in_the_environment",
    ),
    Mutant(
        "a process with secrets can be read by others of its user",
        "jobs/sublet/connection/held_secrets.py",
        '    if _held and sys.platform == "linux":',
        "    if False:",
        "a task's program reads the tokens in /proc",
        "security/test_security_held.py::test_a_process_of_the_same_user_cannot_read_a_holders_memory[secret1]",
    ),
    Mutant(
        "users without EVAL have it",
        "jobs/sublet/cli/operations/acl.py",
        '    if verbs and (may_eval or "admin" in roles):',
        "    if verbs:",
        "one client's endless script stops the server for all",
        "cli/test_acl.py::test_no_eval_is_explained_and_refused_where_it_cannot_hold",
    ),
)
