"""The habits of the house: layers that only point down, small files, few doors, and checks that stay clean."""

import ast
import re
import subprocess
import sys

import pytest

import sublet
from tests.support.paths import ROOT

SOURCES = sorted([*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")])
LAYERS = [
    {"sublet.schedules.cron", "sublet.schedules.durations"},
    {"sublet.schedules.cron_times"},
    {"sublet.schedules.recurrence"},
    {
        "sublet.errors",
        "sublet.protocol.keys",
        "sublet.devtools.bootstrap",
        "sublet.tasks.bound_process",
        "sublet.tasks.process_guard_main",
        "sublet.worker.timeouts",
        "sublet.connection.url",
    },
    {"sublet.scaling.secrets_file"},
    {"sublet.scaling.signing"},
    {
        "sublet.model",
        "sublet.options",
        "sublet.connection.settings",
        "sublet.connection.pipeline",
        "sublet.tasks.process_guard",
        "sublet.worker.host_identity",
        "sublet.store.outage_log",
    },
    {"sublet.operations.pool", "sublet.protocol.payload", "sublet.connection.wait_barrier"},
    {
        "sublet.protocol.scripts",
        "sublet.context",
        "sublet.tasks.program",
        "sublet.store.http_codec",
        "sublet.worker.summary",
    },
    {
        "sublet.protocol.verbs",
        "sublet.protocol.reads",
        "sublet.protocol.plan",
        "sublet.protocol.server_info",
        "sublet.devtools.embedded_server",
        "sublet.tracing",
        "sublet.store.http_endpoint",
        "sublet.connection.topology",
    },
    {"sublet.connection.transport", "sublet.scaling.invokers"},
    {"sublet.submission.partitions"},
    {
        "sublet.operations.workers",
        "sublet.operations.statistics",
        "sublet.operations.recount",
        "sublet.operations.inconsistencies",
        "sublet.operations.drop",
        "sublet.submission.admission",
        "sublet.submission.durability",
        "sublet.connection.routing",
    },
    {
        "sublet.schedules.firing",
        "sublet.operations.pools",
        "sublet.schedules.definition",
        "sublet.operations.repair",
        "sublet.connection.blocking",
    },
    {"sublet.schedules.moves"},
    {"sublet.operations.maintenance"},
    {"sublet.submission.submit"},
    {
        "sublet.operations.operations",
        "sublet.store.results",
        "sublet.store.wakeups",
        "sublet.store.source",
        "sublet.tasks.arguments",
        "sublet.tasks.command",
        "sublet.store.events",
        "sublet.store.http",
    },
    {"sublet.store.claim", "sublet.schedules.operations", "sublet.schedules.decorators"},
    {"sublet.store.store", "sublet.client.schedules", "sublet.client.handle"},
    {"sublet.scaling.summoner"},
    {"sublet.scaling.sync_summoner"},
    {"sublet.client.client"},
    {"sublet.app"},
    {"sublet.execution.app_loader"},
    {"sublet.execution.attempt", "sublet.execution.frames", "sublet.tasks.middleware"},
    {"sublet.execution.child_process", "sublet.execution.child_main", "sublet.execution.thread_pool"},
    {"sublet.execution.process_pool"},
    {
        "sublet.execution.runner",
        "sublet.worker.capacity",
        "sublet.worker.time_budget",
        "sublet.worker.registration",
        "sublet.worker.watchdog",
    },
    {"sublet.worker.settle_loop", "sublet.worker.heartbeat"},
    {"sublet.worker.claim_loop"},
    {"sublet.worker.worker"},
    {"sublet_functions.work", "sublet_functions.api.request", "sublet_functions.schemas.fields"},
    {"sublet_functions.schemas.requests"},
    {"sublet_functions.schemas.summons", "sublet_functions.schemas.pools"},
    {
        "sublet_functions.schemas.query",
        "sublet_functions.schemas.responses",
        "sublet_functions.api.response",
        "sublet_functions.api.auth",
    },
    {
        "sublet_functions.api.parsing",
        "sublet_functions.api.cursor",
        "sublet_functions.server.limits",
        "sublet_functions.server.writer",
        "sublet_functions.server.sockets",
        "sublet_functions.schemas.schedules",
        "sublet_functions.schemas.triggers",
        "sublet_functions.adapters.wsgi_environ",
        "sublet_functions.adapters.loop_thread",
    },
    {
        "sublet_functions.handlers.leases",
        "sublet_functions.handlers.statistics",
        "sublet_functions.api.openapi_examples",
        "sublet_functions.adapters.cloudevents",
    },
    {
        "sublet_functions.handlers.submit",
        "sublet_functions.handlers.claim",
        "sublet_functions.handlers.heartbeat",
        "sublet_functions.handlers.complete",
        "sublet_functions.handlers.fail",
        "sublet_functions.handlers.release",
        "sublet_functions.handlers.note",
        "sublet_functions.handlers.cancel",
        "sublet_functions.handlers.retry",
        "sublet_functions.handlers.promote",
        "sublet_functions.handlers.jobs",
        "sublet_functions.handlers.queues",
        "sublet_functions.handlers.workers",
        "sublet_functions.handlers.pools",
        "sublet_functions.tick",
        "sublet_functions.handlers.health",
        "sublet_functions.handlers.stats",
        "sublet_functions.handlers.prometheus",
        "sublet_functions.handlers.events",
        "sublet_functions.api.openapi",
        "sublet_functions.handlers.work",
    },
    {
        "sublet_functions.handlers.schedules",
        "sublet_functions.handlers.triggers",
        "sublet_functions.handlers.metrics",
    },
    {"sublet_functions.api.routes"},
    {"sublet_functions.api.dispatch"},
    {
        "sublet_functions.server.connection",
        "sublet_functions.adapters.asgi_exchange",
        "sublet_functions.adapters.summon_first",
    },
    {"sublet_functions.server.server"},
    {"sublet_functions.serve", "sublet_functions.adapters.hosted"},
    {"sublet_functions.aws", "sublet_functions.asgi", "sublet_functions.wsgi"},
    {"sublet_functions.google"},
    {"sublet.devtools.platform"},
    {"sublet.devtools.demo", "sublet.devtools.conformance", "sublet.testing"},
    {"sublet.cli"},
    {"sublet.__main__"},
]
"""From the ground up. A module imports from lower layers only; within one of the ROOMS it may look around."""
ROOMS = (
    "sublet.cli",
    "sublet.devtools.platform",
    "sublet.devtools.demo",
    "sublet.devtools.conformance",
    "sublet.testing",
    "sublet.scaling.invokers",
)
BUDGETS = {"function": 40, "python": 300, "script": 100, "library": 200}
DOORS = {
    "redis": {
        "sublet.connection.settings",
        "sublet.connection.pipeline",
        "sublet.connection.wait_barrier",
        "sublet.connection.transport",
        "sublet.store.results",
        "sublet.devtools.embedded_server",
    },
    "hiredis": {"sublet.connection.pipeline"},
    "aiohttp": {
        "sublet_functions.server.connection",
        "sublet_functions.server.server",
        "sublet.store.http",
        "sublet.scaling.invokers.http",
    },
    "boto3": {"sublet.scaling.invokers.aws"},
    "botocore": {"sublet.scaling.invokers.aws"},
    "prometheus_client": {"sublet_functions.handlers.prometheus"},
    "rich": {"sublet.devtools.demo"},
    "watchfiles": {"sublet.devtools.platform"},
    "fakeredis": {"sublet.testing"},
    "cronsim": {"sublet.schedules.cron"},
    "pytest": {"sublet.testing"},
    "opentelemetry": {"sublet.tracing"},
}
"""Which modules may import a dependency that has few doors."""


def module_of(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def level(module):
    name = next((m for m in ROOMS if module == m or module.startswith(m + ".")), module)
    return next((i for i, layer in enumerate(LAYERS) if name in layer), None)


def imports(path):
    """All modules that a file imports, also those inside functions, but not those for type checkers alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and getattr(test.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_layers_point_downward(path):
    own = module_of(path)
    if own in ("sublet", "sublet_functions", "jobs.__main__"):
        return
    assert level(own) is not None, f"{own} has no layer: say in LAYERS where it stands"
    for imported in imports(path):
        other = level(imported)
        same_room = own.split(".")[:2] == imported.split(".")[:2]
        if other is not None and imported != own and not same_room:
            assert other < level(own), f"{own} imports {imported}, which is not below it"


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_each_dependency_has_few_doors(path):
    own = module_of(path)
    for imported in imports(path):
        package = imported.split(".")[0]
        if package in DOORS:
            assert any(own == door or own.startswith(door + ".") for door in DOORS[package]), (
                f"{own} imports {package}"
            )


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= BUDGETS["python"]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (
                node.end_lineno
                - node.lineno
                + 1
                - (len(ast.get_docstring(node).splitlines()) if ast.get_docstring(node) else 0)
            )
            assert lines <= BUDGETS["function"], f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", sorted((ROOT / "lua").rglob("*.lua")), ids=lambda path: path.stem)
def test_scripts_are_small(path):
    kind = "library" if path.parent.name == "lib" else "script"
    assert len(path.read_text().splitlines()) <= BUDGETS[kind]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nothing_is_imported_or_run_by_a_name_from_data(path):
    """JSON only: no pickle, no eval; modules are imported by name where a person or our own code named them."""
    text, own = path.read_text(), module_of(path)
    assert not re.search(r"\b(pickle|marshal|shelve)\b|yaml\.load|(?<!\w)(eval|exec)\(", text)
    if "import_module" in text:
        assert own in (
            "jobs",
            "sublet.execution.child_main",
            "sublet.execution.app_loader",
        ) or own.startswith("sublet.cli")


@pytest.mark.parametrize("name", ["bootstrap", "__main__"])
def test_what_runs_before_the_dependencies_needs_none(name):
    """Imports at the top of these files are of the standard library, or of this package's own such files."""
    tree = ast.parse((ROOT / "jobs" / "sublet" / f"{name}.py").read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [n.name for node in top if isinstance(node, ast.Import) for n in node.names]
    named += [node.module for node in top if isinstance(node, ast.ImportFrom)]
    assert {n.split(".")[0] for n in named} <= sys.stdlib_module_names | {"sublet"}
    assert [n for n in named if n.startswith("sublet") and n != "sublet.source_tree"] == []


def test_the_public_names_are_these():
    tree = ast.parse((ROOT / "jobs" / "sublet" / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    for_types = sorted(
        name.name for node in guarded.body if isinstance(node, ast.ImportFrom) for name in node.names
    )
    assert for_types == sorted(sublet.__all__)
    for name in sublet.__all__:
        assert getattr(sublet, name).__doc__, f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = sublet.Nonsense


def test_the_code_is_typed_strictly():
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_the_code_is_clean(words):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, "."], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout


def test_lint_exceptions_carry_a_reason():
    for path in [
        *SOURCES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "bench").glob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    ]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = re.search(r"# (noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*|type: ignore\[[a-z-]+\])(.*)", line)
            assert not mark or mark[2].strip(" #"), f"{path.name}:{number} gives no reason"


def test_the_fixtures_of_plugins_have_names_of_their_own():
    """A plugin's fixtures are everybody's: one of the same name elsewhere would take its place in whoever runs later."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        if not path.stem.startswith("test_"):
            for name in re.findall(r"@pytest\.fixture[^\n]*\n(?:async )?def (\w+)", path.read_text()):
                found.setdefault(name, set()).add(path.name)
    assert not {name: files for name, files in found.items() if len(files) > 1}
