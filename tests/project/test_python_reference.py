"""The Python reference has every public name, option and parameter, with its meaning, default and range."""

import importlib
import inspect
import re

import pytest

import sublet
import sublet.large_payloads
import sublet.testing
from sublet import Backoff, Invalid, Options
from sublet.errors import JobsError
from tests.support.paths import ROOT
from tests.support.python_meanings import MEANINGS, RANGES
from tests.support.python_objects import describe, load
from tests.support.python_pages import GROUPS, INTERNAL, PAGES
from tests.support.python_reference import PYTHON_PAGES, callees, paths, unexplained
from tests.support.reference_pages import FOLDER

ENTRY_POINTS = ("work", "tick", "serve", "asgi", "wsgi", "aws", "google")
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize(
    "module", [sublet, sublet.testing, sublet.large_payloads], ids=lambda one: one.__name__
)
def test_every_exported_name_has_an_entry(module):
    described = [load(path) for path in paths()]
    exported = {name: getattr(module, name) for name in module.__all__}
    missing = [name for name, one in exported.items() if one not in described]
    errors = (FOLDER / "errors.md").read_text()
    assert [name for name in missing if not issubclass(exported[name], JobsError)] == []
    assert [
        name for name in missing if f"| `{name}` |" not in errors and name not in ("JobsError", "Refused")
    ] == []


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_of_the_functions_has_an_entry(name):
    module = importlib.import_module(f"sublet_functions.{name}")
    own = {
        member
        for member, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__
    }
    own |= {"app"} & set(vars(module)) if name in ("asgi", "wsgi") else set()
    described = {path.split(":")[1] for path in paths() if path.startswith(f"{module.__name__}:")}
    public = {member for member in own if member[0] != "_" and f"{name}.{member}" not in INTERNAL}
    assert public == described


def test_every_field_and_parameter_has_a_meaning():
    assert unexplained() == [], "write it in the docstring, or in tests/support/python_meanings.py"


def test_every_meaning_belongs_to_a_field_or_parameter():
    known = set()
    for one in map(describe, paths()):
        known |= {f"{one.name}.{field.name}" for field in one.fields}
        for callee in callees(one):
            full = one.name if callee.name == one.name else f"{one.name}.{callee.name}"
            known |= {f"{full}.{name}" for name in callee.names}
    assert set(MEANINGS) <= known
    assert set(RANGES) <= known


@pytest.mark.parametrize("name", GROUPS)
def test_each_method_of_a_large_class_is_in_one_group(name):
    grouped = [method for methods in GROUPS[name].values() for method in methods]
    assert sorted(grouped) == sorted(method.name for method in describe(f"sublet:{name}").methods)


def _options(key, value):
    kind, name = key.split(".")
    if kind == "Backoff":
        return Options(backoff=Backoff(**{"cap": 1e9, name: value}))
    needed = {"window": {"key": "k"}, "debounce": {"key": "k"}, "at_most": {"key": "k", "debounce": 0.001}}
    return Options(**needed.get(name, {}), **{name: value})


@pytest.mark.parametrize("key", RANGES)
def test_the_ranges_on_the_pages_are_those_of_the_code(key):
    for value in RANGES[key]:
        _options(key, value).rules()
    low, high = RANGES[key]
    for value in (low - (0.0005 if isinstance(low, float) else 1), high + 1):
        with pytest.raises(Invalid):
            _options(key, value).rules()


def test_an_option_has_its_default_unit_and_range_on_the_page():
    page = (FOLDER / "python-tasks.md").read_text()
    assert (
        "| `timeout` | `Seconds \\| None` | `300.0` s | Most seconds of an attempt; None: no limit. From 0.001"
        in page
    )


def test_a_recurrence_has_its_ranges_on_the_page():
    page = (FOLDER / "python-schedules.md").read_text()
    assert "instead of cron. From 1 to 315,576,000. |" in page
    for name, (low, high) in {"jitter": (0, 86_400), "most": (1, 100), "late": (0, 315_576_000)}.items():
        assert f"From {low:,} to {high:,}. |" in re.search(rf"^\| `{name}` .*$", page, re.MULTILINE)[0]


@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_a_page_is_short_and_linked(name):
    assert len((FOLDER / name).read_text().split()) <= 3100
    if name in PAGES:
        assert f"]({name})" in (FOLDER / "python.md").read_text()
    assert "(reference/python.md)" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_names_that_a_page_imports_exist(path):
    for module, names in re.findall(
        r"^\s*from (sublet[\w.]*) import ([\w, ]+)", path.read_text(), re.MULTILINE
    ):
        found = importlib.import_module(module)
        for name in names.split(","):
            name = name.split(" as ")[0].strip()
            assert hasattr(found, name) or importlib.import_module(f"{module}.{name}"), name
