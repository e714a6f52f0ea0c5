"""The demo's task: measure a Python file's size and nesting."""

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator

from pydantic import BaseModel

from sublet.app import App

app = App()


class Report(BaseModel):
    """Measures of one file. If it is not valid Python, `problem` is the reason and the numbers are 0."""

    path: str
    lines: int = 0
    """Lines that are neither blank nor only a comment."""
    functions: int = 0
    classes: int = 0
    depth: int = 0
    """The deepest nesting of blocks (def, class, if, for, while, with, try, match)."""
    deepest: int = 0
    problem: str | None = None


@app.task
def analyse(path: str) -> Report:
    """Count a file's lines, functions and classes, and find its deepest block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with tokenize.open(path) as file:
                source = file.read()
            report = _structure(path, ast.parse(source, path))
        report.lines = _lines(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        return Report(path=path, problem=f"{type(error).__name__}: {error}"[:200])
    return report


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (
    *_FUNCTIONS, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _structure(path: str, tree: ast.Module) -> Report:
    """Count functions, classes and depth with a stack: generated code may exceed Python's recursion limit."""
    report = Report(path=path)
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        report.functions += isinstance(node, _FUNCTIONS)
        report.classes += isinstance(node, ast.ClassDef)
        for part in _PARTS:
            for inner in getattr(node, part, ()):
                deeper = depth + (isinstance(inner, _BLOCKS) and not _is_elif(node, inner))
                if deeper > report.depth:
                    report.depth, report.deepest = deeper, inner.lineno
                stack.append((inner, deeper))
    return report


def _is_elif(outer: ast.AST, inner: ast.AST) -> bool:
    return isinstance(outer, ast.If) and isinstance(inner, ast.If) and outer.col_offset == inner.col_offset


def _lines(source: str) -> int:
    return len(
        {
            line
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            for line in _lines_of(token)
        }
    )


def _lines_of(token: tokenize.TokenInfo) -> Iterator[int]:
    first, last = token.start[0], token.end[0]
    if token.type in _NO_CODE:
        return
    if first == last:
        yield first
    else:
        yield from (number for number, text in enumerate(token.string.split("\n"), first) if text.strip())
