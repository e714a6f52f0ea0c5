"""Tasks: a name, a function, its arguments as JSON and back, checked against its own annotations."""

from dataclasses import dataclass
from datetime import date

import pytest
from pydantic import BaseModel

from sublet import App, Context, Invalid, Settings


class Image(BaseModel):
    path: str
    width: int = 128


@dataclass
class Thumb:
    path: str
    on: date


@pytest.fixture
def app():
    return App(settings=Settings())


def test_a_task_is_callable_as_the_function(app):
    @app.task
    def double(a: int) -> int:
        return 2 * a

    assert double(4) == 8
    assert app.tasks["double"] is double


def test_arguments_are_stored_by_name(app):
    @app.task
    async def f(a: int, b: str = "x", *, c: float = 1.0) -> None: ...

    assert f.job(1).payload == b'{"a":1}'
    assert f.job(1, "y", c=2).payload == b'{"a":1,"b":"y","c":2.0}'
    assert f.arguments.load(b'{"c":3,"a":"7"}') == {"a": 7, "c": 3.0}


def test_models_and_dates_are_encoded_and_decoded(app):
    @app.task
    async def f(image: Image, day: date) -> Thumb: ...

    payload = f.job(Image(path="a.png"), date(2026, 1, 2)).payload
    assert payload == b'{"image":{"path":"a.png","width":128},"day":"2026-01-02"}'
    assert f.arguments.load(payload) == {"image": Image(path="a.png"), "day": date(2026, 1, 2)}
    result = f.arguments.dump_result(Thumb("t.png", date(2026, 1, 3)))
    assert f.arguments.load_result(result) == Thumb("t.png", date(2026, 1, 3))


def test_arguments_may_have_names_of_model_methods(app):
    @app.task
    async def f(_under: int, model_config: int, json: str, schema: str, self: int) -> None: ...

    assert f.arguments.load(f.job(1, 2, "j", "s", 3).payload)["model_config"] == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("no number",), "task f: a: use a whole number"),
        ((), "task f: missing a required argument: 'a'"),
        ((1, 2), "task f: too many positional arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_submit(app, args, words):
    @app.task
    async def f(a: int) -> None: ...

    with pytest.raises(Invalid, match=words):
        f.job(*args)


def test_arguments_by_name_are_written_in_the_order_of_the_signature(app):
    @app.task
    async def f(a: int, b: int = 0, *, c: int) -> None: ...

    assert f.job(1, c=3).payload == b'{"a":1,"c":3}'
    assert f.job(c=3, b=2, a=1).payload == f.job(1, 2, c=3).payload == b'{"a":1,"b":2,"c":3}'
    for args, named, words in [
        ((1,), {"a": 1, "c": 3}, "multiple values for argument 'a'"),
        ((1, 2, 3), {}, "too many positional"),
    ]:
        with pytest.raises(Invalid, match=f"task f: {words}"):
            f.job(*args, **named)


def test_a_payload_of_another_version_is_refused(app):
    @app.task
    async def f(a: int) -> None: ...

    for payload, words in [
        (b'{"a":1,"b":2}', "b: unknown"),
        (b"{}", "a: missing: add it"),
        (b"[1]", "use an object"),
    ]:
        with pytest.raises(Invalid, match=words):
            f.arguments.load(payload)


def test_error_messages_do_not_contain_values(app):
    @app.task
    async def f(a: int) -> None: ...

    with pytest.raises(Invalid) as refused:
        f.job("a secret")
    assert "secret" not in str(refused.value)


def test_a_too_large_payload_is_refused(app):
    @app.task
    async def f(text: str) -> str: ...

    with pytest.raises(
        Invalid,
        match=r"task f: arguments of 300,011 bytes \(JSON\): at most 262,144 are allowed: store the data elsewhere",
    ):
        f.job("x" * 300_000)
    with pytest.raises(Invalid, match="returned 300,002 bytes \\(JSON\\): at most 262,144"):
        f.arguments.dump_result("x" * 300_000)


def test_a_context_is_not_part_of_the_payload(app):
    @app.task
    async def f(ctx: Context, a: int) -> None: ...

    assert f.arguments.takes_context
    assert f.job(1).payload == b'{"a":1}'


def _context_second(a: int, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda app: app.task(lambda *args: None), "use 1 to 128 of A-Z a-z 0-9"),
        (
            lambda app: app.task(name="f")(lambda *args: None),
            "parameter 'args': a job's arguments are passed by name: use no `\\*args`",
        ),
        (
            lambda app: app.task(name="f")(lambda a, /: None),
            "parameter 'a': a job's arguments are passed by name",
        ),
        (
            lambda app: [app.task(name="f")(lambda a: None), app.task(name="f")(lambda a: None)],
            "the app has a task of this name: pass another name=",
        ),
        (
            lambda app: app.task(name="f", run="loop")(lambda a: None),
            "run='loop' does not fit: use 'loop' for an async function, 'process' or 'thread' for a plain one",
        ),
        (lambda app: app.task(name="f", run="proces")(lambda a: None), "run='proces' does not fit"),
        (
            lambda app: app.task(name="f", color="red")(lambda a: None),
            "unknown option color: use queue, .*, tags, group, cost, name, run, retry_on, discard_on",
        ),
        (
            lambda app: app.task(_context_second),
            "task _context_second: parameter 'ctx' is the Context: make it the first parameter",
        ),
        (lambda app: app.task(name="f", queue="no spaces")(lambda a: None), "queue 'no spaces'"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(app, declare, words):
    with pytest.raises(Invalid, match=words):
        declare(app)


def test_options_return_another_task_and_keep_the_first(app):
    @app.task(queue="a", max_attempts=5)
    async def f() -> None: ...

    other = f.options(queue="b", delay=10)
    assert (other.job().queue, other.job().rules) == ("b", "delay=10000 tries=5")
    assert (f.job().queue, f.job().rules) == ("a", "tries=5")
    assert app.queues() == ["a"]


class Order(BaseModel):
    lines: "list[Line]"


async def _ship(order: Order) -> Order:
    return order


_EARLY = App()
_EARLY.task(name="ship")(_ship)  # at this moment `Line` is not defined yet


class Line(BaseModel):
    sku: str


def test_a_task_may_refer_to_a_class_defined_later():
    arguments = _EARLY.tasks["ship"].arguments
    payload = arguments.dump((Order(lines=[Line(sku="a")]),), {})
    assert payload == b'{"order":{"lines":[{"sku":"a"}]}}'
    assert arguments.load(payload) == {"order": Order(lines=[Line(sku="a")])}
    assert arguments.dump_result(Order(lines=[])) == b'{"lines":[]}'
