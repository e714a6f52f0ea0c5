"""An agent of pydantic-ai whose model requests and tool calls are kept steps: an attempt after a crash repeats none of them.

    python3 -m pip install pydantic-ai-slim
    python3 -m jobs work examples.agent:app                           # in one terminal
    python3 -m examples.agent "Is it warmer in Oslo or in Rome?"      # in another one

`KeptSteps` is all that an agent of yours needs. The model here is a function, so that no API key is needed.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sublet import App, Context

app = App()
LOG = os.environ.get("AGENT_LOG", os.devnull)


@dataclass
class KeptSteps(AbstractCapability[Any]):
    """Makes each model request and each tool call of one run a step of the job. Results of tools must be JSON."""

    job: Context

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        """Return the kept response to this request of the run; without one, send it."""

        async def request() -> ModelResponse:
            response: ModelResponse = await handler(request_context)
            return response

        return await self.job.step(f"model-{ctx.run_step}", request)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Return the kept result of this call; without one, run the tool. Its id is part of the kept response."""

        async def execute() -> Any:
            return await handler(args)

        return await self.job.step(f"tool-{call.tool_call_id}", execute)


def log(line: str) -> None:
    """Note a request or a call that is really made."""
    with open(LOG, "a") as file:
        file.write(f"{line}\n")


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The model: ask the thermometer of one city after the other, then answer."""
    log(f"model {len(messages)}")
    read = [
        part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]
    cities = ["Oslo", "Rome"]
    if len(read) < len(cities):
        return ModelResponse([ToolCallPart("temperature", {"city": cities[len(read)]})])
    return ModelResponse([TextPart(f"{max(zip(read, cities, strict=True))[1]} is warmer.")])


agent = Agent(FunctionModel(think), instructions="Answer in one sentence.")  # or Agent("anthropic:…")


@agent.tool_plain
async def temperature(city: str) -> int:
    """Return the temperature of a city, in °C."""
    log(f"tool {city}")
    await asyncio.sleep(float(os.environ.get(f"AGENT_WAITS_IN_{city.upper()}", "0")))
    return {"Oslo": 4, "Rome": 19}.get(city, 10)


@app.task(timeout=300)
async def answer(ctx: Context, question: str) -> str:
    """Run the agent. Each attempt goes through all steps, and carries out those that are not kept."""
    run = await agent.run(question, capabilities=[KeptSteps(ctx)])
    return run.output


async def main(question: str) -> None:
    """Submit a question, and wait for the answer."""
    handle = await answer.submit(question)
    print(await handle.result(timeout=60))
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Is it warmer in Oslo or in Rome?"))
