"""The prose of the project: docstrings and comments of its Python and Lua files, names of its tests, and pages."""

import ast
import os
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from tests.support.paths import ROOT

OUTSIDE = {".venv", ".git", ".bench", "tests", "node_modules", "build", "dist", "_build", "site"}
"""Folders that are not counted: tests are a kind of their own, and the rest is not written by hand."""


def files(suffix: str) -> list[Path]:
    """The files that are counted, by their suffix."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in OUTSIDE]
        found += [Path(folder, name) for name in names if name.endswith(suffix)]
    return sorted(found)


def of_python(path: Path) -> Iterator[str]:
    """A Python file's comments, docstrings and bare strings."""
    source = path.read_text()
    tree = ast.parse(source)
    yield from _comments(source, tree)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def _comments(source: str, tree: ast.AST) -> Iterator[str]:
    """What follows a # outside strings: `tokenize` takes twenty times as long."""
    strings: dict[int, list[tuple[int, int]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        ):
            first, last = node.lineno, node.end_lineno or node.lineno
            for line in range(first, last + 1):
                begin = node.col_offset if line == first else 0
                end = node.end_col_offset or 0 if line == last else 10**6
                strings.setdefault(line, []).append((begin, end))
    for number, line in enumerate(source.encode().split(b"\n"), 1):
        for found in re.finditer(b"#", line):
            if not any(begin <= found.start() < end for begin, end in strings.get(number, ())):
                text = line[found.start() :].decode()
                if not re.match(r"#\s*(noqa|type:|fmt|pragma|!)", text):
                    yield text.lstrip("# ")
                break


def of_lua(path: Path) -> Iterator[str]:
    """A script's comments."""
    yield from (line.split("--", 1)[1] for line in path.read_text().splitlines() if "--" in line)


def of_page(path: Path) -> Iterator[str]:
    """A page without its code blocks and tables."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    yield re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)


def files_of_tests() -> list[Path]:
    """The Python files of the tests."""
    return sorted((ROOT / "tests").rglob("*.py"))


def of_test(path: Path) -> Iterator[str]:
    """A test file's comments, docstrings and bare strings, and the names of its tests as sentences."""
    yield from of_python(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name.removeprefix("test_").replace("_", " ")


KINDS: dict[str, tuple[Callable[[], list[Path]], Callable[[Path], Iterator[str]]]] = {
    "code": (partial(files, ".py"), of_python),
    "scripts": (partial(files, ".lua"), of_lua),
    "pages": (partial(files, ".md"), of_page),
    "tests": (files_of_tests, of_test),
}
"""The texts that are counted together: their files, and the reader of one file."""


@cache
def prose(kind: str) -> dict[Path, str]:
    """The prose of each file of a kind."""
    find, read = KINDS[kind]
    return {path: " ".join(read(path)) for path in find()}
