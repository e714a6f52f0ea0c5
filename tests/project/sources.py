"""The project's own Python files and their imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

FOLDERS = {"sublet": ROOT / "jobs", "sublet_functions": ROOT / "functions"}
"""The import packages, each with the folder that holds it."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the import packages by its dotted name."""
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for package, folder in FOLDERS.items()
        for path in sorted((folder / package).rglob("*.py"))
    }


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """All modules that a file imports, including those inside functions and those for type checkers alone.

    `from a import b` counts as `a.b` where that is a module of the project, else as `a`.
    """
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{name.name}" for name in node.names]
            yield from (name if name in modules() else node.module for name in inner)
