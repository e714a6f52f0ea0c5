"""The habits of the house: layers that only point down, small files, few doors, and checks that stay clean."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jobs
from jobs.scripts import LIBRARIES

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")])
LAYERS = [
    {"jobs.cron", "jobs.moments"},
    {"jobs.slots"},
    {"jobs.schedule"},
    {"jobs.errors", "jobs.keys", "jobs.bootstrap", "jobs.orphans", "jobs.near", "jobs.deadlines", "jobs.urls"},
    {"jobs.secrets_file"},
    {"jobs.signing"},
    {"jobs.model", "jobs.options", "jobs.config", "jobs.line", "jobs.keeper", "jobs.host", "jobs.outage"},
    {"jobs.pool", "jobs.payload", "jobs.together"},
    {"jobs.scripts", "jobs.context", "jobs.program", "jobs.wire", "jobs.summary"},
    {"jobs.verbs", "jobs.reads", "jobs.machine", "jobs.embedded", "jobs.tracing", "jobs.endpoint", "jobs.nodes"},
    {"jobs.transport", "jobs.invokers"},
    {"jobs.partitions"},
    {
        "jobs.roster",
        "jobs.counts",
        "jobs.recount",
        "jobs.odd",
        "jobs.drop",
        "jobs.admission",
        "jobs.durability",
        "jobs.routes",
    },
    {"jobs.schedules", "jobs.pools", "jobs.recurring", "jobs.repair", "jobs.ears"},
    {"jobs.moves"},
    {"jobs.upkeep"},
    {"jobs.intake"},
    {"jobs.plans", "jobs.waiter", "jobs.markers", "jobs.source", "jobs.arguments", "jobs.command", "jobs.tail", "jobs.http"},
    {"jobs.claims", "jobs.timetable", "jobs.declared"},
    {"jobs.store", "jobs.planner", "jobs.handle"},
    {"jobs.summoner"},
    {"jobs.summons"},
    {"jobs.client"},
    {"jobs.registry"},
    {"jobs.load"},
    {"jobs.attempt", "jobs.pipe", "jobs.hooks"},
    {"jobs.process", "jobs.child", "jobs.threads"},
    {"jobs.children"},
    {"jobs.runner", "jobs.room", "jobs.budget", "jobs.register", "jobs.watchdog"},
    {"jobs.settling", "jobs.pulse"},
    {"jobs.claiming"},
    {"jobs.worker"},
    {"functions.work", "functions.call", "functions.fields"},
    {"functions.bodies"},
    {"functions.summons", "functions.pool_bodies"},
    {"functions.queries", "functions.answers", "functions.reply", "functions.tokens"},
    {
        "functions.reading",
        "functions.cursor",
        "functions.gate",
        "functions.outlet",
        "functions.listening",
        "functions.timetable",
        "functions.trigger_bodies",
        "functions.environ",
        "functions.beside",
    },
    {"functions.held", "functions.numbers", "functions.examples", "functions.cloudevents"},
    {
        "functions.submit",
        "functions.claim",
        "functions.heartbeat",
        "functions.complete",
        "functions.fail",
        "functions.release",
        "functions.note",
        "functions.cancel",
        "functions.retry",
        "functions.promote",
        "functions.look",
        "functions.queues",
        "functions.workers",
        "functions.pools",
        "functions.tick",
        "functions.health",
        "functions.stats",
        "functions.exposition",
        "functions.events",
        "functions.openapi",
        "functions.invoked",
    },
    {"functions.schedules", "functions.triggers", "functions.metrics"},
    {"functions.app"},
    {"functions.api"},
    {"functions.connection", "functions.exchange", "functions.prompt"},
    {"functions.front"},
    {"functions.serve", "functions.hosted"},
    {"functions.aws", "functions.asgi", "functions.wsgi"},
    {"functions.google"},
    {"jobs.dev"},
    {"jobs.demo", "jobs.chaos", "jobs.conformance", "jobs.testing"},
    {"jobs.cli"},
    {"jobs.__main__"},
]
"""From the ground up. A module imports from lower layers only; within one of the ROOMS it may look around."""
ROOMS = ("jobs.cli", "jobs.dev", "jobs.demo", "jobs.chaos", "jobs.conformance", "jobs.testing", "jobs.invokers")
BUDGETS = {"function": 40, "python": 300, "script": 80, "library": 160}
DOORS = {
    "redis": {"jobs.config", "jobs.line", "jobs.together", "jobs.transport", "jobs.waiter", "jobs.embedded", "jobs.chaos"},
    "hiredis": {"jobs.line", "jobs.chaos.proxy"},
    "aiohttp": {"functions.connection", "functions.front", "jobs.http", "jobs.invokers.http"},
    "boto3": {"jobs.invokers.aws"},
    "botocore": {"jobs.invokers.aws"},
    "prometheus_client": {"functions.exposition"},
    "rich": {"jobs.demo"},
    "watchfiles": {"jobs.dev"},
    "fakeredis": {"jobs.testing"},
    "cronsim": {"jobs.cron"},
    "pytest": {"jobs.testing"},
    "opentelemetry": {"jobs.tracing"},
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
    if own in ("jobs", "functions"):
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
            assert any(own == door or own.startswith(door + ".") for door in DOORS[package]), f"{own} imports {package}"


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= BUDGETS["python"]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (
                node.end_lineno - node.lineno + 1 - (len(ast.get_docstring(node).splitlines()) if ast.get_docstring(node) else 0)
            )
            assert lines <= BUDGETS["function"], f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", sorted((ROOT / "lua").glob("*.lua")), ids=lambda path: path.stem)
def test_scripts_are_small(path):
    kind = "library" if path.stem in LIBRARIES else "script"
    assert len(path.read_text().splitlines()) <= BUDGETS[kind]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nothing_is_imported_or_run_by_a_name_from_data(path):
    """JSON only: no pickle, no eval; modules are imported by name where a person or our own code named them."""
    text, own = path.read_text(), module_of(path)
    assert not re.search(r"\b(pickle|marshal|shelve)\b|yaml\.load|(?<!\w)(eval|exec)\(", text)
    if "import_module" in text:
        assert own in ("jobs", "jobs.child", "jobs.load") or own.startswith("jobs.cli")


@pytest.mark.parametrize("name", ["bootstrap", "__main__"])
def test_what_runs_before_the_dependencies_needs_none(name):
    """Imports at the top of these files are of the standard library, or of this package's own such files."""
    tree = ast.parse((ROOT / "jobs" / f"{name}.py").read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [n.name for node in top if isinstance(node, ast.Import) for n in node.names]
    named += [node.module for node in top if isinstance(node, ast.ImportFrom)]
    assert {n.split(".")[0] for n in named} <= sys.stdlib_module_names | {"jobs"}
    assert [n for n in named if n.startswith("jobs") and n not in ("jobs", "jobs.bootstrap")] == []


def test_the_public_names_are_these():
    tree = ast.parse((ROOT / "jobs" / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    for_types = sorted(name.name for node in guarded.body if isinstance(node, ast.ImportFrom) for name in node.names)
    assert for_types == sorted(jobs.__all__)
    for name in jobs.__all__:
        assert getattr(jobs, name).__doc__, f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = jobs.Nonsense


def test_the_code_is_typed_strictly():
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_the_code_is_clean(words):
    done = subprocess.run([sys.executable, "-m", "ruff", *words, "."], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_lint_exceptions_carry_a_reason():
    for path in [*SOURCES, *(ROOT / "tests").glob("*.py"), *(ROOT / "bench").glob("*.py"), *(ROOT / "examples").glob("*.py")]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = re.search(r"# (noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*|type: ignore\[[a-z-]+\])(.*)", line)
            assert not mark or mark[2].strip(" #"), f"{path.name}:{number} gives no reason"


def test_the_fixtures_of_plugins_have_names_of_their_own():
    """A plugin's fixtures are everybody's: one of the same name elsewhere would take its place in whoever runs later."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").glob("*.py"):
        if not path.stem.startswith("test_"):
            for name in re.findall(r"@pytest\.fixture[^\n]*\n(?:async )?def (\w+)", path.read_text()):
                found.setdefault(name, set()).add(path.name)
    assert not {name: files for name, files in found.items() if len(files) > 1}
