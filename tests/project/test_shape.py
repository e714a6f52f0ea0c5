"""Files, functions and folders stay small enough to be read at a glance; few modules import each dependency."""

import ast
import re
import sys
from pathlib import Path

import pytest

import sublet
from tests.project.sources import imports, modules, tree
from tests.support.paths import ROOT

LINES = {"python": 400, "function": 40, "script": 130, "library": 215}
DOORS = {
    "redis": {
        "sublet.connection",
        "sublet.store.results",
        "sublet.devtools.embedded_server",
    },
    "hiredis": {"sublet.connection.pipeline"},
    "aiohttp": {"sublet_functions.server", "sublet.store.http", "sublet.scaling.invokers.http"},
    "boto3": {"sublet.scaling.invokers.aws", "sublet.large_payloads.s3"},
    "botocore": {"sublet.scaling.invokers.aws", "sublet.large_payloads.s3"},
    "prometheus_client": {"sublet_functions.handlers.prometheus"},
    "rich": {"sublet.devtools.demo"},
    "watchfiles": {"sublet.devtools.platform"},
    "fakeredis": {"sublet.testing"},
    "cronsim": {"sublet.schedules.cron"},
    "pytest": {"sublet.testing"},
    "opentelemetry": {"sublet.tracing"},
}
"""The modules, or packages, that may import a dependency."""
FILES = 13
"""How many files a folder holds, `__init__.py` not counted, unless all are of one kind."""
OF_ONE_KIND = {"sublet_functions.handlers": "one file per verb"}


def test_files_and_functions_are_short():
    long = []
    for module, path in modules().items():
        lines = len(path.read_text().splitlines())
        if lines > LINES["python"]:
            long.append(f"{module} has {lines} lines")
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                described = len((ast.get_docstring(node) or "").splitlines())
                body = (node.end_lineno or 0) - node.lineno + 1 - described
                if body > LINES["function"]:
                    long.append(f"{module}: {node.name} has {body} lines")
    assert long == [], "\n".join(long)


def test_scripts_are_short():
    scripts = {path: LINES["script"] for path in (ROOT / "lua").glob("*.lua")}
    scripts |= {path: LINES["script"] for path in (ROOT / "lua" / "straight").glob("*.lua")}
    scripts |= {path: LINES["library"] for path in (ROOT / "lua" / "lib").glob("*.lua")}
    lengths = {path: len(path.read_text().splitlines()) for path in scripts}
    assert [(path.name, n) for path, n in lengths.items() if n > scripts[path]] == []


def test_a_folder_contains_few_files():
    folders: dict[str, int] = {}
    for module, path in modules().items():
        folder = module if path.stem == "__init__" else module.rpartition(".")[0]
        folders[folder] = folders.get(folder, 0) + (path.stem != "__init__")
    full = {name: n for name, n in folders.items() if n > FILES and name not in OF_ONE_KIND}
    assert full == {}


def test_few_modules_import_each_dependency():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules().items()
        for imported in imports(path)
        if (doors := DOORS.get(imported.split(".")[0]))
        and not any(module == door or module.startswith(f"{door}.") for door in doors)
    ]
    assert wrong == [], "\n".join(wrong)


def test_no_module_is_imported_or_run_by_a_name_from_data():
    """No pickle and no eval. A module is imported by a name that a person or our own code wrote."""
    importers = ("sublet.execution.child_main", "sublet.tasks.user_modules", "sublet.cli.", "sublet")
    for module, path in modules().items():
        text = path.read_text()
        assert not re.search(r"\b(pickle|marshal|shelve)\b|yaml\.load|(?<!\w)(eval|exec)\(", text), module
        if "import_module" in text:
            assert module == "sublet" or module.startswith(importers[:3]), module


@pytest.mark.parametrize("module", ["sublet.devtools.bootstrap", "sublet.__main__", "sublet.source_tree"])
def test_modules_that_run_before_the_dependencies_import_the_standard_library_only(module):
    top = [node for node in tree(modules()[module]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [name.name for node in top if isinstance(node, ast.Import) for name in node.names]
    names += [node.module or "" for node in top if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {"sublet"}
    assert [name for name in names if name.startswith("sublet") and name != "sublet.source_tree"] == []


def test_every_public_name_has_a_docstring():
    for name in sublet.__all__:
        assert getattr(sublet, name).__doc__, f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = sublet.Nonsense


def test_fixtures_in_plugins_have_unique_names():
    """A fixture in a plugin is global: a second one of the same name would replace it in tests that run later."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        if not path.stem.startswith("test_"):
            for name in re.findall(r"@pytest\.fixture[^\n]*\n(?:async )?def (\w+)", path.read_text()):
                found.setdefault(name, set()).add(path.name)
    assert not {name: files for name, files in found.items() if len(files) > 1}


def python_files() -> list[Path]:
    """All Python files of the checkout that a person wrote."""
    folders = ("tests", "bench", "examples")
    return [*modules().values(), *(path for name in folders for path in (ROOT / name).rglob("*.py"))]


def test_lint_exceptions_carry_a_reason():
    mark = re.compile(r"# (noqa: [A-Z]+[0-9]+(?:, ?[A-Z]+[0-9]+)*|type: ignore\[[a-z-]+\])(.*)")
    for path in python_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = mark.search(line)
            assert not found or found[2].strip(" #"), f"{path.name}:{number} gives no reason"
