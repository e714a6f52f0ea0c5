"""The oldest accepted release of each dependency is free of known vulnerabilities that matter here. The test uses
no network."""

import importlib.metadata
import re
import tomllib

import pytest

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = {
    "aiohttp": ("3.14.1", "CVE-2026-50269, header injection (3.14.0); PYSEC-2026-2110, line sizes, pipelining and unpacking; a "
                "second Host; before 3.13.3, zip bombs"),
    "redis": ("4.5.5", "CVE-2023-28858 and CVE-2023-28859: after a cancellation, another caller got the reply"),
    "pydantic": ("2.4.0", "CVE-2024-3772: an e-mail address that takes minutes to validate"),
    "starlette": ("0.49.1", "CVE-2025-62727, ranges, and CVE-2025-54121, large files, which keep a loop busy (tests only)"),
    "uvicorn": ("0.11.7", "CVE-2020-7694 and CVE-2020-7695: text of a caller in the log and in headers (tests only)"),
    "gunicorn": ("22.0.0", "CVE-2024-1135 and CVE-2024-6827: request smuggling (tests only)"),
    "pyyaml": ("5.4", "CVE-2020-14343: execution of loaded data (tests only)"),
}  # fmt: skip
"""The first release without the named vulnerabilities."""
OPEN = {"tzdata": "it contains no code: any release will do"}
"""Dependencies of any age."""


def numbers(release):
    return [int(part) for part in re.findall(r"\d+", release)]


def requirements():
    """Each requirement as (name, oldest release, or "" without a floor)."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for word in (word for group in groups for word in group):
        name, _, rest = re.fullmatch(r"([A-Za-z0-9_.-]+)(\[[\w,]+\])?(.*)", word).groups()
        if name != "sublet":
            found = re.search(r">=([0-9.]+)", rest)
            yield name.lower(), found[1] if found else ""


@pytest.mark.parametrize("name", FLOORS)
def test_no_release_with_a_known_vulnerability_is_accepted(name):
    wanted, why = FLOORS[name]
    floors = [floor for own, floor in requirements() if own == name]
    assert floors, f"{name} is not a dependency any more: remove it here"
    assert min(map(numbers, floors)) >= numbers(wanted), why


def test_every_dependency_has_a_floor():
    """Without a floor, an old lock file or a small index may install any release."""
    assert {name for name, floor in requirements() if not floor} == set(OPEN)


@pytest.mark.parametrize(("name", "floor"), sorted(set(requirements())))
def test_the_installed_releases_satisfy_the_floors(name, floor):
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    assert numbers(installed) >= numbers(floor)
