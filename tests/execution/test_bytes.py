"""`bytes` in arguments and results: base64 at any depth, and the same bytes at the other end."""

import asyncio
import base64
import enum
import json
import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from sublet import App, Invalid, JobFailed, Settings
from sublet.client.client import Client
from sublet.options import Options
from sublet.tasks.arguments import Arguments
from sublet.testing import Sandbox
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import bytes_tasks
from tests.support.bytes_tasks import Model, Record, arguments
from tests.support.http_server import ask, serving
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.job_sources", "tests.support.command_line"]

DATA = b"\x00\xff" + bytes(range(256)) + b"plain"
WIRE = base64.urlsafe_b64encode(DATA).decode()


@pytest.fixture
def app():
    return App(settings=Settings())


class Pair(NamedTuple):
    data: bytes
    number: int


class OwnSettings(BaseModel):
    model_config = ConfigDict(ser_json_bytes="utf8", val_json_bytes="hex", extra="allow")

    data: bytes
    loose: Any = None


@dataclass
class Node:
    data: bytes
    next: "Node | None" = None


class Entries(BaseModel):
    """Its fields are named like entries of pydantic's schemas."""

    default: OwnSettings
    function: bytes


TYPES = [
    bytes, bytes | None, list[bytes], set[bytes], tuple[bytes, ...], dict[bytes, bytes], dict[str, list[bytes]], Model,
    Record, Pair, OwnSettings, Entries, Node, list[Node | None], bytes | int, int | bytes | None, float | bytes, bool | bytes,
    bytes | list[int], bytes | Model, Annotated[bytes, Field(max_length=100)],
]  # fmt: skip


def value_of(hint, data):
    made = {
        list[bytes]: [data], set[bytes]: {data}, tuple[bytes, ...]: (data, b""), dict[bytes, bytes]: {data: data},
        dict[str, list[bytes]]: {"a": [data]}, Model: Model(data=data, parts=[Model(data=data)]),
        Record: Record(data, Model(data=data)), Pair: Pair(data, 1), OwnSettings: OwnSettings(data=data),
        Node: Node(data, Node(data)), list[Node | None]: [Node(data), None],
        Entries: Entries(default=OwnSettings(data=data), function=data),
    }  # fmt: skip
    return made.get(hint, data)


TASKS = {}
for _hint in TYPES:

    def _same(a: _hint) -> _hint:
        return a

    TASKS[str(_hint)] = _hint, Arguments("same", _same)


@pytest.mark.parametrize("name", TASKS)
@given(
    data=st.one_of(
        st.binary(max_size=60),
        st.sampled_from([base64.b64decode(word) for word in ("true", "1234", "Infinity", "null")]),
    )
)
def test_every_value_arrives_unchanged(name, data):
    hint, task = TASKS[name]
    value = value_of(hint, data)
    (argument,) = task.load(task.dump((value,), {})).values()
    result = task.load_result(task.dump_result(value))
    assert (argument, result) == (value, value)
    assert type(argument) is type(result) is type(value)


def test_bytes_are_written_in_the_alphabet_for_urls_and_read_in_both(app):
    @app.task
    async def f(a: bytes) -> None: ...

    payload = f.job(DATA).payload
    assert json.loads(payload) == {"a": WIRE}
    standard = json.dumps({"a": base64.b64encode(DATA).decode()}).encode()
    assert f.arguments.load(payload) == f.arguments.load(standard) == {"a": DATA}
    with pytest.raises(Invalid, match="a: Data should be valid base64"):
        f.arguments.load(b'{"a":"not base64!"}')


def test_text_given_for_bytes_is_not_taken_for_base64(app):
    @app.task
    async def f(a: bytes) -> None: ...

    assert f.arguments.load(f.job("YWJj").payload) == {"a": b"YWJj"}


@pytest.mark.parametrize("kind", [bytearray, memoryview])
@pytest.mark.parametrize("hint", [bytes, bytes | None])
def test_other_kinds_of_bytes_are_converted(app, kind, hint):
    @app.task
    async def f(a: hint) -> hint: ...

    assert f.arguments.load(f.job(kind(DATA)).payload) == {"a": DATA}
    assert f.arguments.load_result(f.arguments.dump_result(kind(DATA))) == DATA


def test_a_result_of_another_type_is_named_without_its_value(app):
    @app.task
    async def f() -> bytes: ...

    @app.task
    async def g() -> Model: ...

    @app.task
    async def h(a: str) -> str: ...

    words = "task f returned a value that does not match its return annotation: bytes is expected, not "
    with pytest.raises(Invalid) as text:
        f.arguments.dump_result("secret")
    assert str(text.value) == f"{words}str: encode the text, as in text.encode()"
    with pytest.raises(Invalid, match=f"^{words}int$"):
        f.arguments.dump_result(5)
    with pytest.raises(Invalid, match=r"bytes is expected in its field 'data', not str: encode"):
        g.arguments.dump_result(Model.model_construct(data="secret", parts=[]))
    for kind in (bytes, bytearray, memoryview):
        with pytest.raises(
            Invalid, match=r"task h returned a value that does not match .*: str is expected, not "
        ):
            h.arguments.dump_result(kind(DATA))
    with pytest.raises(Invalid, match="task h: a: use valid Unicode"):
        h.job(memoryview(DATA))


def test_bytes_in_a_field_without_a_type_are_base64_text(app):
    @app.task
    async def f(a: OwnSettings) -> None: ...

    assert json.loads(f.job(OwnSettings(data=b"", loose=b"\xff", more=b"\xff")).payload)["a"] == {
        "data": "", "loose": "_w==", "more": "_w==",
    }  # fmt: skip


class Colour(enum.Enum):
    RED = b"\xff"


class Foreign:
    pass


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    picture: bytes = b""


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

AMBIGUOUS = [
    bytes | str, list[bytes] | list[str], bytes | datetime, bytes | Any, dict[str, bytes] | Model, dict[str, bytes | Literal["auto"]],
    Annotated[int | bytes, Field(union_mode="left_to_right")], list[str | bytes] | None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        *(
            (hint, "bytes beside a type that looks the same in JSON .* a dataclass with")
            for hint in AMBIGUOUS
        ),
        (Literal[b"x"], "a Literal or an Enum of bytes"),
        (Colour, "a Literal or an Enum of bytes"),
        (Foreign, "Foreign'> cannot be written as JSON: use built-in types .* or pass an id"),
        (list[Foreign], "Foreign'> cannot be written as JSON"),
        (bytearray, r"bytearray'> cannot be written as JSON: use built-in types \(bytes, not bytearray\)"),
    ],
    ids=str,
)
def test_a_type_that_cannot_come_back_is_refused_at_the_declaration(app, hint, words):
    def takes(first: int, second: hint) -> None: ...

    def gives(first: int) -> hint: ...

    with pytest.raises(Invalid, match=f"task takes: parameter 'second': .*{words}"):
        app.task(takes)
    with pytest.raises(Invalid, match=f"task gives: the return annotation: .*{words}"):
        app.task(gives)
    assert app.tasks == {}


def test_a_tagged_union_in_another_union_is_accepted(app):
    @app.task
    async def f(a: Pet | str) -> None: ...

    assert json.loads(f.job(Cat(picture=b"\xff")).payload)["a"] == {"kind": "cat", "picture": "_w=="}
    assert json.loads(f.job("cat").payload)["a"] == "cat"


def test_bytes_without_an_annotation_are_refused(app):
    @app.task
    async def f(a, b: Any = None): ...

    for args, name in (((b"x",), "a"), ((1, bytearray(b"x")), "b"), ((memoryview(b"x"),), "a")):
        with pytest.raises(
            Invalid, match=f"task f: {name}: without an annotation for them, .* declare `{name}: bytes`"
        ):
            f.job(*args)
    with pytest.raises(
        Invalid, match=r"task f returned bytes without a return annotation.* declare `-> bytes`"
    ):
        f.arguments.dump_result(b"x")


def test_an_argument_that_cannot_be_written_is_named(app):
    @app.task
    async def f(a, b=None): ...

    with pytest.raises(Invalid, match="task f: b cannot be written as JSON"):
        f.job(1, Foreign())


def test_a_name_known_to_type_checkers_only_is_refused_at_the_declaration(app):
    async def f(a: "Missing") -> None: ...  # noqa: F821  # as under TYPE_CHECKING

    with pytest.raises(Invalid, match=r"task f: .*'Missing' is not defined.* not only under TYPE_CHECKING"):
        app.task(f)


def test_a_class_that_is_missing_at_the_first_use_is_named_with_the_place_for_it(app):
    class Unfinished(BaseModel):
        other: "Missing"  # noqa: F821  # defined nowhere

    @app.task
    async def f(a: Unfinished) -> None: ...

    with pytest.raises(
        Invalid, match=r"task f: an annotation cannot be read: .*Missing.* in the task's module"
    ):
        f.job({"other": 1})


def test_a_generator_function_is_refused_at_the_declaration(app):
    async def pages():
        yield 1

    def rows():
        yield 1

    for function in (pages, rows):
        with pytest.raises(
            Invalid, match=f"task {function.__name__}: a generator function .* return a list, or submit a job"
        ):
            app.task(function)
    assert app.tasks == {}


# with a worker


@pytest.fixture
async def work(source):
    """Run a worker of the tasks beside the test."""
    worker = Worker(bytes_tasks.app, source, WorkerConfig(slots=2, grace=0.0, name="w1", processes=1))
    running = asyncio.create_task(worker.run())
    yield worker
    worker.stop()
    await asyncio.wait_for(running, 15)


@pytest.mark.parametrize("task", ["on_loop", "in_process", "in_thread"])
async def test_a_worker_gives_and_gets_the_same_bytes(task, store, work):
    task, client = bytes_tasks.app.tasks[task], Client(store=store)
    (submitted,) = await client.submit_all([task.job(**arguments(DATA))])
    result = await client.result(submitted.id, 30, task.arguments.load_result)
    assert result == arguments(DATA)["record"]


@pytest.mark.parametrize("over", ["redis"])
async def test_a_submit_by_name_writes_bytes_as_base64(store, work):
    handle = await Client(store=store).submit("echo", {"data": DATA}, Options(max_attempts=1))
    assert await handle.result(30) == WIRE


@pytest.mark.parametrize("over", ["redis"])
async def test_bytes_returned_without_an_annotation_fail_the_job(store, work):
    handle = await Client(store=store).submit("untyped", {})
    with pytest.raises(JobFailed, match="task untyped returned bytes without a return annotation"):
        await handle.result(30)


@pytest.mark.real_server
async def test_bytes_over_http_are_base64(place, store, raw):
    async with serving(place.settings) as url:
        sent = {"task": "echo", "payload": {"data": WIRE}}
        job_id = json.loads((await ask(url, "POST", "/jobs", sent)).body)["id"]
        bad = {"task": "echo", "payload": {"data": "no base64!"}}
        bad_id = json.loads((await ask(url, "POST", "/jobs", bad)).body)["id"]
        summary = await Worker(bytes_tasks.app, store, WorkerConfig(slots=2, grace=0.0, name="w1")).run(
            drain=True
        )
        assert (summary.completed, summary.released) == (1, 1)
        assert json.loads((await ask(url, "GET", f"/jobs/{job_id}")).body)["result"] == WIRE
        (attempt,) = json.loads((await ask(url, "GET", f"/jobs/{bad_id}")).body)["attempts"]
        assert "data: Data should be valid base64" in attempt["message"]


def test_the_commands_take_and_print_base64(shell):
    shutil.copy(ROOT / "tests" / "support" / "bytes_tasks.py", shell.folder / "tasks.py")
    payload = json.dumps({"data": WIRE})
    job_id = shell.ok("submit", "echo", payload, "--app", "tasks:app")
    shell.ok("schedules", "add", "often", "scheduled", payload, "--every", "1h")
    shell.ok("schedules", "sync", "tasks:app")
    run_id, _ = [run["id"] for run in shell.json("schedules", "run", "often", "nightly")]
    assert shell.work()[-1]["completed"] == 3
    assert shell.json("get", job_id)["result"] == shell.json("get", run_id)["result"] == WIRE
    assert shell.json("schedules", "show", "nightly")["payload"] == {"data": "AP8="}
    refusal = shell.no(2, "submit", "echo", '{"data": "no base64!"}', "--app", "tasks:app")
    assert refusal.startswith("task echo: data: Data should be valid base64")


@pytest.mark.parametrize("plain", ["thread", "inline"])
async def test_the_sandbox_writes_bytes_too(plain):
    with Sandbox(bytes_tasks.app, plain=plain) as sandbox:
        data = os.urandom(100)
        handles = [
            await bytes_tasks.app.tasks[name].submit(**arguments(data))
            for name in ("on_loop", "in_process", "in_thread")
        ]
        assert (await sandbox.drain(raising=True)).completed == 3
        assert [await handle.result() for handle in handles] == [arguments(data)["record"]] * 3
