"""Packages import from lower layers only, and no packages import each other in a circle.

Imports inside functions and imports for type checkers count, too.
"""

from itertools import pairwise

from tests.project.sources import imports, modules

LAYERS = """
sublet.source_tree
sublet.model  sublet.errors
sublet.outcome
sublet.protocol
sublet.steps
sublet.options  sublet.context  sublet.then
sublet.job_log
sublet.large_payloads
sublet.connection
sublet.tasks
sublet.submission
sublet.schedules  sublet.workflows
sublet.operations
sublet.store
sublet.scaling
sublet.client
sublet.app
sublet.tracing
sublet.execution
sublet.worker
sublet_functions
sublet.testing  sublet.contrib
sublet.devtools
sublet.cli
sublet.__main__
"""
"""The packages from the lowest layer to the highest. Names in one line do not import each other."""
LEVELS = {name: level for level, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def package(module: str) -> str:
    """The layer's name of a module: its top package in `sublet`, or `sublet_functions` as a whole."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "sublet" else parts[0]


def test_every_module_has_a_layer():
    assert {package(module) for module in modules()} - {"sublet"} <= LEVELS.keys()


def test_packages_import_from_lower_layers_only():
    upward = [
        f"{module} imports {imported}"
        for module, path in modules().items()
        for imported in imports(path)
        if package(imported) in LEVELS
        and package(module) in LEVELS
        and package(module) != package(imported)
        and LEVELS[package(imported)] >= LEVELS[package(module)]
    ]
    assert upward == [], "\n".join(upward)


def test_no_subpackages_import_each_other_in_a_circle():
    """Holds for the packages inside `sublet_functions`, `sublet.cli` and `sublet.devtools`, which are one layer each."""
    for root in ("sublet_functions", "sublet.cli", "sublet.devtools"):
        assert circle(inner_packages(root)) is None, circle(inner_packages(root))


def inner_packages(root: str) -> dict[str, set[str]]:
    """The imports among the packages directly inside `root`. A module of `root` itself counts as a package."""
    depth = root.count(".") + 2

    def inner(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    edges: dict[str, set[str]] = {}
    for module, path in modules().items():
        if module.startswith(f"{root}."):
            others = {inner(name) for name in imports(path) if name.startswith(f"{root}.")}
            edges.setdefault(inner(module), set()).update(others - {inner(module)})
    return edges


def circle(edges: dict[str, set[str]]) -> list[str] | None:
    """A circle of imports, as a list that ends with its first name, or None."""
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str] | None:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return None
        for other in sorted(edges.get(name, ())):
            if found := visit(other, [*way, name]):
                return found
        done.add(name)
        return None

    return next((found for name in sorted(edges) if (found := visit(name, []))), None)


def test_a_circle_is_found():
    found = circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})
    assert found == ["b", "c", "b"]
    assert all(second in {"b", "c"} for _, second in pairwise(found))
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
