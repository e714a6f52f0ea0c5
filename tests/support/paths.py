"""Where the checkout is, and the import name of each of its source files."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder with pyproject.toml."""
SOURCE_FOLDERS = (ROOT / "jobs", ROOT / "functions")
"""The folders from which `sublet` and `sublet_functions` are imported."""
PYTHONPATH = os.pathsep.join(map(str, (*SOURCE_FOLDERS, ROOT)))
"""For subprocesses: they import this checkout, whichever tree the environment has installed."""
SOURCES = sorted(path for folder in SOURCE_FOLDERS for path in folder.rglob("*.py"))
"""Every module of the two packages, and `jobs/__main__.py`."""


def module_of(path: Path) -> str:
    """Return the import name of a source file, such as `sublet.store.claim`; a package's own for its `__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")
