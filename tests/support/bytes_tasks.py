"""Tasks that return their bytes as they got them: on the loop, in a child process and in a thread."""

from dataclasses import dataclass

from pydantic import BaseModel

from sublet import App

app = App()


class Model(BaseModel):
    data: bytes
    parts: "list[Model]" = []


@dataclass
class Record:
    data: bytes
    model: Model


@app.task(max_attempts=1)
async def on_loop(data: bytes, record: Record, by_name: dict[str, list[bytes]]) -> Record:
    assert by_name == {"x": [data]}
    assert record.model.parts[0].data == data
    return record


@app.task(max_attempts=1)
def in_process(data: bytes, record: Record, by_name: dict[str, list[bytes]]) -> Record:
    assert by_name == {"x": [data]}
    assert record.model.parts[0].data == data
    return record


@app.task(max_attempts=1, run="thread")
def in_thread(data: bytes, record: Record, by_name: dict[str, list[bytes]]) -> Record:
    assert by_name == {"x": [data]}
    assert record.model.parts[0].data == data
    return record


@app.task(max_attempts=1)
async def echo(data: bytes) -> bytes:
    return data


@app.schedule(every=3600, name="nightly", payload={"data": b"\x00\xff"})
@app.task(name="scheduled", max_attempts=1)
async def scheduled(data: bytes) -> bytes:
    return data


@app.task(max_attempts=1)
async def untyped():
    return b"\xff"


def arguments(data):
    model = Model(data=data, parts=[Model(data=data)])
    return {"data": data, "record": Record(data, model), "by_name": {"x": [data]}}
