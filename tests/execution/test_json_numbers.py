"""NaN and Infinity are refused wherever a user's value is written."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from sublet import App, Client, Context, State
from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.execution.steps.emitter import encoded
from sublet.protocol.payload import payload_of
from sublet.steps.calls import value_of
from sublet.tasks.arguments import Arguments, InvalidResult
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

pytest_plugins = ["tests.support.job_sources"]
app = App(settings=Settings())
NO_NUMBERS = (math.nan, math.inf, -math.inf)


class Model(BaseModel):
    value: float | None = None
    parts: "list[Model]" = []


class AsText(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")

    value: float


@dataclass
class Record:
    value: float


def inside(value):
    """Values of some types that have this number in them, with their types."""
    return [
        (float, value),
        (Any, value),
        (Any, {"a": [1, value]}),
        (dict[str, float], {"a": value}),
        (tuple[float, ...], (1.0, value)),
        (Model, Model.model_construct(parts=[Model.model_construct(value=value, parts=[])])),
        (Any, Record(value)),
        (Record, Record(value)),
        (list[Record], [Record(1.0), Record(value)]),
    ]


def task_of(hint):
    def f(a: hint, b: int = 1) -> hint:
        return a

    return Arguments("f", f)


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_no_argument_and_no_result_is_written_as_null(number):
    shown = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    for hint, value in inside(number):
        task = task_of(hint)
        with pytest.raises(
            Invalid, match=rf"task f: a cannot be written as JSON \({shown} is not a JSON number: use None"
        ):
            task.dump((value, 2), {})
        with pytest.raises(
            InvalidResult, match=f"task f returned a value that cannot be .*: {shown} is not a JSON number"
        ):
            task.dump_result(value)


def test_text_about_no_number_and_a_models_own_setting_are_written():
    text = 'NaN, "Infinity" and \\"-Infinity'
    for hint, value in [(str, text), (Any, [text, {"NaN": "\\"}]), (AsText, AsText(value=math.nan))]:
        task = task_of(hint)
        (argument, _) = task.load(task.dump((value, 1), {})).values()
        assert str(argument) == str(task.load_result(task.dump_result(value))) == str(value)
    assert task.dump_result(AsText(value=math.inf)) == b'{"value":"Infinity"}'


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_no_chunk_signal_checkpoint_or_payload_has_one(number):
    with pytest.raises(Invalid, match=r"emit: the chunk cannot be written as JSON: .* is not a JSON number"):
        encoded({"a": number})
    with pytest.raises(
        Invalid, match=r"signal: the value cannot be written as JSON: .*: use text, finite numbers"
    ):
        value_of([number])
    for payload in (
        {"a": number},
        f'{{"a": {str(number).replace("nan", "NaN").replace("inf", "Infinity")}}}',
    ):
        with pytest.raises(Invalid, match="payload"):
            payload_of(payload)


def measure() -> float:
    return math.nan


@app.task
async def in_a_step(ctx: Context) -> None:
    await ctx.step("measure", measure)


def password_as_number() -> int:
    return "swordfish"  # type: ignore[return-value]  # the mistake


def password_as_choice() -> Literal["x"]:
    return "swordfish"  # type: ignore[return-value]  # the mistake


@app.task(max_attempts=1)
async def in_a_step_of_choices(ctx: Context) -> None:
    await ctx.step("password", password_as_choice)


@app.task
async def in_a_mistyped_step(ctx: Context) -> None:
    await ctx.step("password", password_as_number)


@app.task
async def as_a_result() -> float:
    return measure()


@app.task
async def in_a_checkpoint(ctx: Context) -> str:
    try:
        ctx.checkpoint({"a": math.nan})
    except Invalid as error:
        return str(error)
    return "stored"


async def test_a_job_says_which_value_was_no_number(store):
    client = Client(store=store)
    jobs = [task.job() for task in (in_a_step, as_a_result, in_a_checkpoint)]
    await store.submit(jobs)
    await Worker(app, store, WorkerConfig(slots=1, lease=60)).run(drain=True)
    step, result, checkpoint = [await client.get(job.id) for job in jobs]
    assert (step.state, result.state) == (State.DEAD, State.DEAD)
    assert (step.last_error.code, step.last_error.message) == (
        "invalid_result",
        "step measure returned a value that cannot be written as JSON: NaN is not a JSON number: use None, or text",
    )
    assert result.last_error.message.endswith(": NaN is not a JSON number: use None, or text")
    assert checkpoint.result.startswith("checkpoint: the data cannot be written as JSON: ")


async def test_a_kept_result_that_does_not_match_is_not_shown(store):
    client = Client(store=store)
    job = in_a_step_of_choices.job()
    await store.submit([job])
    await Worker(app, store, WorkerConfig(slots=1, lease=60)).run(drain=True)
    found = await client.get(job.id)
    assert "the kept result does not match the annotation" in found.last_error.message
    assert "swordfish" not in repr(found)


async def test_a_step_of_another_type_is_refused_without_showing_its_value(store):
    client = Client(store=store)
    job = in_a_mistyped_step.job()
    await store.submit([job])
    await Worker(app, store, WorkerConfig(slots=1, lease=60)).run(drain=True)
    error = (await client.get(job.id)).last_error
    assert (error.code, error.message) == (
        "invalid_result",
        "step password returned a value that does not match its return annotation: int is expected, not str",
    )
