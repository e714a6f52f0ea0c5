"""Static checks of the source: no code is run, imported or unpickled because data names it."""

import ast
from functools import cache

import pytest

from sublet import App
from sublet.errors import Invalid
from sublet.scaling.invokers import check_target
from sublet_functions.work import work
from tests.support.paths import SOURCES, module_of

pytest_plugins = ["tests.support.http_settings"]

UNPACKERS = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "yaml",
    "jsonpickle",
    "code",
    "runpy",
    "imp",
    "telnetlib",
}
"""Modules that execute the data that they load. (multiprocessing pickles its messages, so it is not used.)"""
RUNNERS = {"eval", "exec", "compile", "__import__", "system", "popen", "literal_eval", "get_type_hints"}
BY_NAME = {
    "sublet": ["importlib.import_module"],
    "sublet.execution.child_main": ["importlib.import_module"],
    "sublet.tasks.user_modules": ["importlib.import_module"],
    "sublet.cli.main": ["importlib.import_module"],
    "sublet.cli.parser": ["importlib.import_module"],
    "sublet.cli.workers.event_loop": ["importlib.import_module"],
}
"""The modules that import by name: our own public names, the user's app, the commands' modules, and uvloop."""
REACHES = {
    "sublet": "our own public names",
    "sublet.schedules.definition": "options of our own table",
    "sublet.operations.pool": "fields of our own table",
    "sublet.operations.job_list": "fields of our own filter",
    "sublet.operations.orders.bulk": "fields of our own filter",
    "sublet.worker.worker": "counts of our own",
    "sublet.worker.summary": "counts of our own",
    "sublet.workflows.reading": "fields of our own model",
    "sublet.execution.attempt": "what tasks ask of their worker, one of the FORMS of execution.frames",
    "sublet.execution.frames": "the parts of a task's own name, where its module must have that very task",
    "sublet.execution.child_main": "likewise: the tasks that the worker named at the start, by their numbers",
    "sublet.execution.app_loader": "the app's name, from the user who starts the process",
    "sublet_functions.handlers.worker_host": "fields of our own model",
    "sublet_functions.handlers.schedules": "fields of our own model",
    "sublet_functions.handlers.submit": "fields of our own model",
}
"""The modules that get or set an attribute by a variable name, and the origin of that name."""
TOOLS = (
    "sublet.cli",
    "sublet.devtools.platform",
    "sublet.devtools.demo",
    "sublet.devtools.conformance",
    "sublet.testing",
)
"""Programs that a user runs on their own machine: the names come from the command line, or from a table."""


own = module_of


@cache
def trees():
    """The syntax tree of each module."""
    return {own(path): ast.parse(path.read_text()) for path in SOURCES}


@cache
def calls():
    """Every call in the code, with its module."""
    return [
        (name, node)
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def called(node):
    function = node.func
    return getattr(function, "id", getattr(function, "attr", ""))


def imported(node):
    """The modules that a node of the syntax tree imports."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def found(module, node):
    return f"{module}, line {node.lineno}: {ast.unparse(node)}"


def test_no_module_imports_a_library_that_runs_loaded_data():
    forbidden = UNPACKERS | {"multiprocessing"}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            names = imported(node)
            assert (
                not {part for name in names for part in (name.split(".")[0], name.split(".")[-1])} & forbidden
            ), found(module, node)


def test_no_call_runs_text():
    for module, node in calls():
        owner = ast.unparse(node.func).split(".")[0]
        bare = isinstance(node.func, ast.Name) or owner in ("os", "builtins", "ast", "importlib")
        assert not (bare and called(node) in RUNNERS - {"get_type_hints"}), found(module, node)


def test_only_the_apps_own_commands_run_in_a_shell():
    for module, node in calls():
        shell = "shell" in {word.arg for word in node.keywords} or called(node) == "create_subprocess_shell"
        assert not shell or module == "sublet.app", found(module, node)


def test_only_listed_modules_import_by_name():
    for module, node in calls():
        if called(node) == "import_module":
            assert ast.unparse(node.func) in BY_NAME.get(module, []), found(module, node)


def test_json_is_read_without_hooks():
    hooks = {"object_hook", "object_pairs_hook", "cls"}
    for module, node in calls():
        if called(node) in ("loads", "load", "JSONDecoder"):
            assert not hooks & {word.arg for word in node.keywords}, found(module, node)


def by_variable(node):
    """Whether a call gets or sets an attribute by a variable name."""
    return called(node) in ("getattr", "setattr", "delattr") and not isinstance(node.args[1], ast.Constant)


def test_only_listed_modules_get_attributes_by_variable_names():
    """`getattr(x, name)` with a name from data turns a task's name into `os.system`."""
    for module, node in calls():
        assert called(node) not in ("attrgetter", "methodcaller", "__getattribute__"), found(module, node)
        if by_variable(node):
            assert module in REACHES or module.startswith(TOOLS), (
                f"document the name's source: {found(module, node)}"
            )


def test_every_listed_module_gets_attributes_by_variable_names():
    assert set(REACHES) - {module for module, node in calls() if by_variable(node)} == set()


ODD_NAMES = [
    "os.system",
    "builtins:eval",
    "__import__",
    "jobs.App",
    "__class__",
    "tasks:app.client",
    "{}:job:x",
    "fn.__globals__",
]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_only_registered_tasks_are_run(name, settings):
    app, ran = App(settings=settings), []

    @app.task
    async def fn(x: int = 0) -> None:
        ran.append(x)

    try:
        handle = await app.client.submit(
            name, {"py/object": "os.system", "__reduce__": ["os.system", ["true"]]}
        )
    except Invalid:
        handle = None  # the name is not valid
    if handle is not None:
        await work(app, drain=True, seconds=20)
        job = await app.client.get(handle.id)
        assert job.state != "completed"
    assert not ran
    await app.aclose()


@pytest.mark.parametrize("target", ["os:system", "tasks:app", "$(id)", "; id", "../../bin/sh"])
def test_a_pools_target_cannot_name_code(target):
    """A pool contains the number of workers, never the code that they run."""
    with pytest.raises(Exception, match=r"takes no target|must be"):
        check_target("process", target)
    with pytest.raises(Exception, match="must be"):
        check_target("lambda", target + "/")
