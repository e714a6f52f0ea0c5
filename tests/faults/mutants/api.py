"""Mutants of the conventions of the HTTP API: ids, versions, preconditions, errors, times and links."""

from tests.faults.mutants.mutant import Mutant

DISPATCH = "functions/sublet_functions/api/dispatch.py"
CONVENTIONS = "http/test_http_conventions.py::"

MUTANTS = (
    Mutant(
        "a precondition is ignored",
        DISPATCH,
        '    if given and request.method not in ("GET", "HEAD"):',
        "    if False:",
        "a job is cancelled although it has changed since the client read it",
        f"{CONVENTIONS}test_a_precondition_is_refused_and_nothing_changes[core-If-Match]",
    ),
    Mutant(
        "another version of the API is served as this one",
        DISPATCH,
        "    if version != VERSION:",
        "    if False:",
        "a client that relies on another version stores jobs with another meaning",
        f"{CONVENTIONS}test_a_request_may_name_the_version_of_the_api[core]",
    ),
    Mutant(
        "an id is not found without its partition",
        DISPATCH,
        "        if full == given:",
        "        if True:",
        "the submitter of order-7 reads a 404",
        f"{CONVENTIONS}test_a_job_is_found_by_the_id_that_its_submitter_chose[core]",
    ),
    Mutant(
        "a pointer names types",
        "jobs/sublet/tasks/arguments.py",
        "        if fits:\n            path.append(part)\n",
        "        path.append(part)\n        if fits:\n",
        "a client finds no value at the pointer of an error",
        f"{CONVENTIONS}test_a_pointer_follows_the_value_and_not_the_types",
    ),
    Mutant(
        "links ignore the base path",
        DISPATCH,
        "        return replace(request, path=path, prefix=base + request.prefix)",
        "        return replace(request, path=path)",
        "a client behind a gateway follows a link to another application",
        f"{CONVENTIONS}test_links_begin_with_the_base_path_of_the_server[kept by the gateway]",
    ),
    Mutant(
        "whole seconds have no milliseconds",
        "jobs/sublet/model.py",
        '    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")',
        '    return moment.isoformat().replace("+00:00", "Z")',
        "a client that compares times as text sorts jobs wrongly",
        f"{CONVENTIONS}test_all_times_are_rfc_3339_with_milliseconds[GET /schedules/{{name}}]",
    ),
    Mutant(
        "schemas of bodies have defaults",
        "functions/sublet_functions/api/openapi.py",
        'if key != "default"}',
        "}",
        "a generated TypeScript client does not compile without all fields",
        "http/test_openapi.py::test_no_schema_of_a_body_has_a_default",
    ),
    Mutant(
        "the state of Redis needs the right to CONFIG",
        "jobs/sublet/operations/diagnosis/server_report.py",
        "except (Forbidden, Unfit):",
        "except Unfit:",
        "with a user made by `sublet acl`, the dashboard shows nothing about Redis",
        "http/test_server_http.py::test_a_server_without_config_is_described_as_far_as_info_goes[error0]",
    ),
    Mutant(
        "the state of Redis names its host",
        "jobs/sublet/operations/diagnosis/server_report.py",
        "dict(info), config)",
        "dict(info), config, url=settings.shown_url)",
        "each token with the role read learns where Redis is",
        "http/test_server_http.py::test_no_answer_names_a_host_a_user_or_a_password",
    ),
)
