"""This package's files, in a wheel or a checkout. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

VERSION = "0.1.0"
"""As in pyproject.toml. It is here because a copied package has no metadata."""
PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent.parent
"""The top folder of the checkout; in a wheel without meaning."""


def is_checkout() -> bool:
    """Whether this package runs from a checkout."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "jobs" / "sublet") == PACKAGE


def import_folders() -> list[str]:
    """Return the folders that let another process import `sublet` and `sublet_functions`."""
    return [str(CHECKOUT / "jobs"), str(CHECKOUT / "functions")] if is_checkout() else [str(PACKAGE.parent)]


def install_command(extra: str) -> str:
    """Return the shell command that installs Sublet with an extra (an optional set of dependencies)."""
    return f"pip install 'PATH/TO/THE/CHECKOUT[{extra}]'"


def data_folder(name: str) -> Traversable:
    """Return the folder `name` (`lua` or `deploy`) of the checkout or the installed wheel, which may be a zip file."""
    for folder in (PACKAGE / name, CHECKOUT / name):
        if folder.is_dir():
            return folder
    from importlib.resources import files  # only for a zip file: it takes a command's start 10 ms

    return files("sublet") / name
