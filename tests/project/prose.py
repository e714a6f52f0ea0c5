"""The prose of the project: docstrings and comments of its Python and Lua files, and the text of its pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

OUTSIDE = {".venv", ".git", ".bench", "tests", "node_modules", "build", "dist", "_build", "site"}
"""Folders that are not counted: tests have their own habits, and the rest is not written by hand."""


def files(suffix: str) -> list[Path]:
    """The files that are counted, by their suffix."""
    found = (path for path in ROOT.rglob(f"*{suffix}") if path.is_file())
    return sorted(path for path in found if not OUTSIDE & set(path.relative_to(ROOT).parts))


def of_python(path: Path) -> Iterator[str]:
    """A Python file's comments, docstrings and bare strings."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|fmt|pragma|!)", token.string):
            yield token.string.lstrip("# ")
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def of_lua(path: Path) -> Iterator[str]:
    """A script's comments."""
    yield from (line.split("--", 1)[1] for line in path.read_text().splitlines() if "--" in line)


def of_page(path: Path) -> Iterator[str]:
    """A page without its code blocks and tables."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    yield re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)


KINDS = {"code": (".py", of_python), "scripts": (".lua", of_lua), "pages": (".md", of_page)}
"""What is counted together: the suffix of its files, and how their prose is read."""


def prose(kind: str) -> dict[Path, str]:
    """The prose of each file of a kind."""
    suffix, read = KINDS[kind]
    return {path: " ".join(read(path)) for path in files(suffix)}
