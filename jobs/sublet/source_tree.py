"""Where the files of this package are: in an installed wheel or in a checkout. Needs the standard library only."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""The folder of the package `sublet`."""
CHECKOUT = PACKAGE.parent.parent
"""The folder of the checkout; meaningless in an installed package (see `is_checkout`)."""


def is_checkout() -> bool:
    """Return whether this package runs from a source checkout."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "jobs" / "sublet") == PACKAGE


def import_folders() -> list[str]:
    """Return the folders from which Python imports `sublet` and `sublet_functions`, for the path of another process."""
    return [str(CHECKOUT / "jobs"), str(CHECKOUT / "functions")] if is_checkout() else [str(PACKAGE.parent)]


def data_folder(name: str) -> Path:
    """Return the folder `lua` or `deploy`: inside an installed package, at the top of a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else CHECKOUT / name
