"""What the code may not do, read from the code itself: nothing is run, imported or unpacked because data says so."""

import ast

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
"""Modules that run what they read, or are for running it. (multiprocessing pickles what it sends, so it is none of ours.)"""
RUNNERS = {"eval", "exec", "compile", "__import__", "system", "popen", "literal_eval", "get_type_hints"}
BY_NAME = {
    "sublet": ["importlib.import_module"],
    "sublet.execution.child_main": ["importlib.import_module"],
    "sublet.execution.app_loader": ["importlib.import_module"],
    "sublet.cli.main": ["importlib.import_module"],
    "sublet.cli.workers.event_loop": ["importlib.import_module"],
}
"""Who imports by a name: our own public names, the app that a person names, the modules of the commands, and uvloop."""
REACHES = {
    "sublet": "our own public names",
    "sublet.schedules.definition": "options of our own table",
    "sublet.operations.pool": "fields of our own table",
    "sublet.worker.worker": "counts of our own",
    "sublet.worker.summary": "counts of our own",
    "sublet.execution.frames": "the parts of a task's own name, where its module must have that very task",
    "sublet.execution.child_main": "likewise: the tasks that the worker has named at the start, by their numbers",
    "sublet.execution.app_loader": "the app's name, from whoever starts the process",
    "sublet_functions.handlers.worker_host": "fields of our own model",
    "sublet_functions.handlers.schedules": "fields of our own model",
}
"""Which modules read or set an attribute by a name that is not written there, and where that name comes from."""
TOOLS = (
    "sublet.cli",
    "sublet.devtools.platform",
    "sublet.devtools.demo",
    "sublet.devtools.conformance",
    "sublet.testing",
)
"""What a person runs on a machine of their own: the names come from the command line, or from a table."""


own = module_of


def called(node):
    return (
        node.func.id
        if isinstance(node.func, ast.Name)
        else node.func.attr
        if isinstance(node.func, ast.Attribute)
        else ""
    )


def calls(path):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", SOURCES, ids=own)
def test_nothing_unpacks_what_could_run(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & (UNPACKERS | {"multiprocessing"}), names
        assert "multiprocessing" not in [name.split(".")[-1] for name in names]


@pytest.mark.parametrize("path", SOURCES, ids=own)
def test_nothing_runs_text(path):
    for node in calls(path):
        bare = isinstance(node.func, ast.Name) or ast.unparse(node.func).split(".")[0] in (
            "os",
            "builtins",
            "ast",
            "importlib",
        )
        assert not (bare and called(node) in RUNNERS - {"get_type_hints"}), ast.unparse(node)
        shell = (
            any(word.arg == "shell" for word in node.keywords) or called(node) == "create_subprocess_shell"
        )
        assert not shell or own(path) == "sublet.app", (
            "there it is the author's word for a command of the app's own"
        )
        if called(node) == "import_module":
            assert ast.unparse(node.func) in BY_NAME.get(own(path), []), ast.unparse(node)
        if called(node) in ("loads", "load", "JSONDecoder"):
            hooks = {"object_hook", "object_pairs_hook", "cls"}
            assert not hooks & {word.arg for word in node.keywords}, "JSON makes dicts, and nothing else"


@pytest.mark.parametrize("path", SOURCES, ids=own)
def test_an_attribute_is_read_by_a_name_only_where_that_is_ours(path):
    """`getattr(x, name)` with a name from data is how a task's name becomes `os.system`."""
    for node in calls(path):
        assert called(node) not in ("attrgetter", "methodcaller", "__getattribute__"), ast.unparse(node)
        if called(node) in ("getattr", "setattr", "delattr") and not isinstance(node.args[1], ast.Constant):
            known = own(path) in REACHES or own(path).startswith(TOOLS)
            assert known, f"where does this name come from? {ast.unparse(node)}"


def test_where_a_name_is_not_written_somebody_has_said_where_it_comes_from():
    """…and nobody who needs no more to say so."""
    found = {own(path) for path in SOURCES for node in calls(path)
             if called(node) in ("getattr", "setattr") and not isinstance(node.args[1], ast.Constant)}  # fmt: skip
    assert set(REACHES) - found == set()


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
async def test_a_task_is_found_by_its_name_in_the_apps_own_list_or_not_at_all(name, settings):
    app, ran = App(settings=settings), []

    @app.task
    async def fn(x: int = 0) -> None:
        ran.append(x)

    try:
        handle = await app.client.submit(
            name, {"py/object": "os.system", "__reduce__": ["os.system", ["true"]]}
        )
    except Invalid:
        handle = None  # no such name can be
    if handle is not None:
        await work(app, drain=True, seconds=20)
        job = await app.client.get(handle.id)
        assert job.state != "completed"
    assert not ran
    await app.aclose()


@pytest.mark.parametrize("target", ["os:system", "tasks:app", "$(id)", "; id", "../../bin/sh"])
def test_no_name_of_code_comes_out_of_redis(target):
    """A pool says how many workers are wanted, never what they run."""
    with pytest.raises(Exception, match=r"takes no target|must be"):
        check_target("process", target)
    with pytest.raises(Exception, match="must be"):
        check_target("lambda", target + "/")
