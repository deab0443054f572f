"""Let an agent of a framework, with a model that follows a script, use servers through our adapter for it.

`python drive_adapters.py FRAMEWORK` runs in the environment of a peer that has the framework. It forbids to import
`mcp` where the framework does without. It prints what the model was given, what it got back, and what is left at the
end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolwire import Context, Server, Tool, ToolError
from toolwire.client import ToolCall
from toolwire.errors import NotSupported
from toolwire.types import ImageContent, TextContent, ToolAnnotations

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
READS = ToolAnnotations(read_only_hint=True)
FILES = """
from toolwire import Server

server = Server("files")


@server.tool
def add(a: int) -> str:
    return f"files {a}"


server.run()
"""
#: The calls that the model makes in each turn; then it is done.
SCRIPT: list[list[tuple[str, dict[str, Any]]]] = [
    [
        ("shop_add", {"a": 1}),
        ("files_add", {"a": 2}),
        ("shop_fail", {}),
        ("shop_picture", {}),
        ("shop_add", {"a": "x"}),
        ("shop_write", {"number": 1}),
        ("shop_write", {"number": 2}),
        ("shop_refund", {}),
    ],
    [("shop_reveal", {})],
    [("shop_aaa", {})],
]
#: The frameworks that import it by themselves.
NEED_MCP = ("openai_agents",)
#: How many seconds a thing may take that another task or process does.
PATIENCE = 60.0


class Scenario:
    """The servers, what happened in them, and what the model saw."""

    def __init__(self) -> None:
        self.listed: list[list[str]] = []
        self.schemas: dict[str, Any] = {}
        self.answers: list[tuple[str, str, bool, list[str]]] = []
        self.text = ""
        self.writes: list[str] = []
        self.waiting = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.toolset: Any = None
        self.shop = self._make_shop()
        # A process that a client starts gets few variables of the environment.
        files = {"command": sys.executable, "args": ["-c", FILES], "env": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
        self.servers: dict[str, Any] = {"shop": self.shop, "files": files}
        self.options: dict[str, Any] = {"approve": self._approve, "timeout": PATIENCE}

    def _make_shop(self) -> Server:
        shop = Server("shop")

        @shop.tool(annotations=READS)
        async def add(a: int) -> str:
            """Add."""
            return f"shop {a}"

        @shop.tool(annotations=READS)
        async def fail() -> str:
            raise ToolError("sold out")

        @shop.tool(annotations=READS)
        async def picture() -> list[Any]:
            return [TextContent("a dot"), ImageContent(PNG, "image/png")]

        @shop.tool
        async def write(number: int) -> str:
            self.writes.append(f"begin {number}")
            await asyncio.sleep(0.02)
            self.writes.append(f"end {number}")
            return f"written {number}"

        @shop.tool
        async def refund() -> str:
            raise AssertionError("it is denied")

        @shop.tool
        async def reveal() -> str:
            shop.add(Tool(lambda: "found", name="aaa", annotations=READS))
            # The next list has it once the announcement has arrived.
            await until(lambda: any(source.needs_listing for source in self.toolset._sources))
            return "revealed"

        @shop.tool
        async def wait() -> str:
            self.waiting.set()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
            return "too late"

        return shop

    def _approve(self, call: ToolCall) -> bool | str:
        return (call.server, call.name) != ("shop", "refund") or "ask a person"

    def see(self, tools: Sequence[tuple[str, Any]]) -> None:
        """Note the tools that the model is given in a turn: names and schemas."""
        self.listed.append([name for name, _ in tools])
        self.schemas = dict(tools)

    def calls(self, turn: int) -> list[tuple[str, str, dict[str, Any]]]:
        """Return the calls of a turn, with ids."""
        calls = SCRIPT[turn] if turn < len(SCRIPT) else []
        return [(f"id_{turn}_{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]

    async def cancel(self, run: Awaitable[Any]) -> None:
        """Cancel an agent while its tool runs."""
        task = asyncio.ensure_future(run)
        begun = asyncio.ensure_future(self.waiting.wait())
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            begun.cancel()
            raise AssertionError(f"the agent ended before its tool began: {task.result()!r}")
        task.cancel()
        await asyncio.wait({task})
        async with asyncio.timeout(PATIENCE):
            await self.was_cancelled.wait()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another task or process does."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def pydantic_ai(scenario: Scenario) -> None:
    from pydantic_ai import Agent, models
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.models.test import TestModel

    from toolwire.agents import pydantic_ai_toolset

    models.ALLOW_MODEL_REQUESTS = False
    toolset = pydantic_ai_toolset(scenario.servers, **scenario.options)
    scenario.toolset = toolset._tools.toolset

    # A function that is not `async` would run in a thread, which outlives the run.
    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        scenario.see([(tool.name, tool.parameters_json_schema) for tool in info.function_tools])
        calls = scenario.calls(sum(isinstance(each, ModelResponse) for each in messages))
        return ModelResponse(
            [ToolCallPart(name, arguments, id) for id, name, arguments in calls] or [TextPart("Done.")]
        )

    done = await Agent(FunctionModel(model), toolsets=[toolset]).run("Go.")
    scenario.text = done.output
    for message in done.all_messages():
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                images = [file.media_type for file in part.files]
                text = part.content if isinstance(part.content, str) else str(part.content[0])
                scenario.answers.append((part.tool_name, text, part.outcome != "success", images))

    async def waiting(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("shop_wait", {})])

    await scenario.cancel(Agent(FunctionModel(waiting), toolsets=[toolset]).run("Wait."))
    # The model of the framework that calls every tool by its schema.
    shop = Server("other")

    @shop.tool
    async def double(number: int) -> int:
        return 2 * number

    tested = await Agent(TestModel(), toolsets=[pydantic_ai_toolset(shop)]).run("Go.")
    assert tested.output == '{"double":"0"}', tested.output


async def langchain(scenario: Scenario) -> None:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    from toolwire.agents import LangChainTools

    class Model(BaseChatModel):
        """Makes the calls of the scenario, or those that it was made with in its first turn."""

        first: list[Any] = []
        tools: list[Any] = []

        @property
        def _llm_type(self) -> str:
            return "script"

        def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
            return self.model_copy(update={"tools": [convert_to_openai_tool(tool)["function"] for tool in tools]})

        def _generate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
            turn = sum(isinstance(each, AIMessage) for each in messages)
            if self.first:
                calls = self.first if turn == 0 else []
            else:
                scenario.see([(tool["name"], tool["parameters"]) for tool in self.tools])
                calls = scenario.calls(turn)
            made = [{"id": id, "name": name, "args": arguments} for id, name, arguments in calls]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("" if made else "Done.", tool_calls=made))])

        async def _agenerate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
            return self._generate(messages)

    def read(message: ToolMessage) -> tuple[str, str, bool, list[str]]:
        blocks = message.content_blocks
        images = [block["mime_type"] for block in blocks if block["type"] == "image"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        return str(message.name), text, message.status == "error", images

    async with LangChainTools(scenario.servers, **scenario.options) as tools:
        scenario.toolset = tools.toolset
        agent: Any = create_agent(Model(), middleware=[tools.middleware()])
        done = await agent.ainvoke({"messages": "Go."})
        scenario.text = done["messages"][-1].content
        scenario.answers = [read(message) for message in done["messages"] if isinstance(message, ToolMessage)]

        # The tools of one moment, without a middleware.
        listed: list[BaseTool] = await tools.list_tools()
        plain: Any = create_agent(Model(first=[("1", "shop_add", {"a": 3})]), listed)
        assert (await plain.ainvoke({"messages": "Go."}))["messages"][-2].content == "shop 3"
        by_name = {tool.name: tool for tool in listed}
        assert await by_name["files_add"].ainvoke({"a": 4}) == "files 4"

        waits: Any = create_agent(Model(first=[("1", "shop_wait", {})]), listed)
        await scenario.cancel(waits.ainvoke({"messages": "Wait."}))

    # Questions of servers of both eras are interrupts, also two in one turn; a write beside them is not held up.
    for revision in (None, "2025-06-18"):
        booked: list[str] = []
        saver = InMemorySaver()
        async with LangChainTools({"travel": travel(booked)}, revision=revision) as tools:
            calls = [("1", "book", {"city": "Oslo"}), ("2", "book", {"city": "Rome"}), ("3", "note", {"text": "x"})]
            model = Model(first=calls)
            agent = create_agent(model, await tools.list_tools(), checkpointer=saver)
            thread: Any = {"configurable": {"thread_id": "1"}}
            (book,) = [tool for tool in await tools.list_tools() if tool.name == "book"]
            try:
                await book.ainvoke({"city": "Oslo"})
            except NotSupported as error:
                assert "run it in a graph" in str(error), error
            else:
                raise AssertionError("there is no graph to interrupt")
            state = await agent.ainvoke({"messages": "Book."}, thread)
            rounds = 0
            while "__interrupt__" in state:
                rounds += 1
                state = await agent.ainvoke(Command(resume=agree(state)), thread)
            texts = [read(message)[1] for message in state["messages"] if isinstance(message, ToolMessage)]
            assert texts == ["2 nights in Oslo", "not to Rome", "noted x"], texts
            assert booked == ["noted x", "2 nights in Oslo"], booked
            assert rounds == 2, rounds

            # A graph that nothing resumes leaves no call behind when the tools are closed.
            thread = {"configurable": {"thread_id": "2"}}
            state = await agent.ainvoke({"messages": "Book."}, thread)
        # Another process that resumes it makes the calls again.
        async with LangChainTools({"travel": travel(booked)}, revision=revision) as tools:
            agent = create_agent(model, await tools.list_tools(), checkpointer=saver)
            for _ in range(2):
                state = await agent.ainvoke(Command(resume=agree(state)), thread)
            assert "__interrupt__" not in state, state
            assert state["messages"][-1].content == "Done."
            assert booked[-2:] == ["noted x", "2 nights in Oslo"], booked


def agree(state: Any) -> dict[str, Any]:
    """Return what resumes each interrupt of a graph: two nights, and yes; but not to Rome."""
    answers: dict[str, Any] = {}
    for each in state["__interrupt__"]:
        (question,) = each.value["requests"]
        assert each.value["type"] == "mcp_elicitation" and question["mode"] == "form", each.value
        content = {"nights": 2} if "nights" in question["requested_schema"]["properties"] else {"value": True}
        answer = {"action": "decline"} if "Rome" in question["message"] else {"action": "accept", "content": content}
        answers[each.id] = {"responses": {question["key"]: answer}}
    return answers


def travel(booked: list[str]) -> Server:
    """A server that asks two questions, one after the other."""
    server = Server("travel")

    @server.tool
    async def book(city: str, ctx: Context) -> str:
        nights = await ctx.elicit(f"How many nights in {city}?", Nights)
        if not nights.accepted or nights.data is None:
            return f"not to {city}"
        sure = await ctx.elicit(f"Sure of {city}?", bool)
        text = f"{nights.data.nights} nights in {city}" if sure.data else "no"
        booked.append(text)
        return text

    @server.tool
    async def note(text: str) -> str:
        booked.append(f"noted {text}")
        return f"noted {text}"

    return server


@dataclass
class Nights:
    nights: int


async def openai_agents(scenario: Scenario) -> None:
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from toolwire.agents import openai_agents_server

    set_tracing_disabled(True)

    class Script(Model):
        def __init__(self, first: list[Any] | None = None) -> None:
            self.first = first

        async def get_response(self, *, input: Any, tools: Any, **options: Any) -> Any:
            outputs = sum(each.get("type") == "function_call_output" for each in input if isinstance(each, dict))
            turn = sum(outputs >= sum(map(len, SCRIPT[: number + 1])) for number in range(len(SCRIPT)))
            if self.first is None:
                scenario.see([(tool.name, tool.params_json_schema) for tool in tools])
            calls = scenario.calls(turn) if self.first is None else self.first
            made: list[Any] = [
                ResponseFunctionToolCall(type="function_call", call_id=id, name=name, arguments=json.dumps(arguments))
                for id, name, arguments in calls
            ]
            text = ResponseOutputText(type="output_text", text="Done.", annotations=[])
            done = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
            return ModelResponse(output=made or [done], usage=Usage(), response_id=None)

        def stream_response(self, *arguments: Any, **options: Any) -> Any:
            raise NotImplementedError

    async with openai_agents_server(scenario.servers, **scenario.options) as server:
        scenario.toolset = server._tools.toolset
        agent: Any = Agent(name="it", model=Script(), mcp_servers=[server])
        done = await Runner.run(agent, "Go.")
        scenario.text = done.final_output
        names = {id: name for turn in range(len(SCRIPT)) for id, name, _ in scenario.calls(turn)}
        for item in done.to_input_list():
            if item.get("type") == "function_call_output":
                parts: Any = item["output"]
                parts = [{"type": "input_text", "text": parts}] if isinstance(parts, str) else parts
                text = "".join(part["text"] for part in parts if part["type"] == "input_text")
                images = [part["image_url"][5:].partition(";")[0] for part in parts if part["type"] == "input_image"]
                is_error = text.startswith("Error: ")
                scenario.answers.append((names[item["call_id"]], text.removeprefix("Error: "), is_error, images))
        waiting: Any = Agent(name="it", model=Script([("1", "shop_wait", {})]), mcp_servers=[server])
        await scenario.cancel(Runner.run(waiting, "Wait."))


async def google_adk(scenario: Scenario) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types as google

    from toolwire.agents import adk_toolset

    toolset = adk_toolset(scenario.servers, **scenario.options)
    scenario.toolset = toolset._tools.toolset

    class Script(BaseLlm):
        first: list[Any] | None = None

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
            parts = [part for content in llm_request.contents for part in content.parts]
            outputs = sum(part.function_response is not None for part in parts)
            turn = sum(outputs >= sum(map(len, SCRIPT[: number + 1])) for number in range(len(SCRIPT)))
            declared = [each for tool in llm_request.config.tools for each in tool.function_declarations]
            if self.first is None:
                scenario.see([(each.name, each.parameters_json_schema) for each in declared])
            calls = scenario.calls(turn) if self.first is None else self.first
            made = [
                google.Part(function_call=google.FunctionCall(id=id, name=name, args=arguments))
                for id, name, arguments in calls
            ]
            yield LlmResponse(content=google.Content(role="model", parts=made or [google.Part(text="Done.")]))

    async def run(model: Any) -> None:
        agent = LlmAgent(name="it", model=model, tools=[toolset])
        runner = InMemoryRunner(agent=agent, app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="ann")
        message = google.Content(role="user", parts=[google.Part(text="Go.")])
        try:
            async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=message):
                for part in event.content.parts if event.content else ():
                    if part.text:
                        scenario.text = part.text
                    if part.function_response:
                        note(part.function_response)
        finally:
            await runner.close()

    def note(answer: Any) -> None:
        images = [part.inline_data.mime_type for part in answer.parts or ()]
        text = answer.response.get("error", answer.response.get("output"))
        text = text if isinstance(text, str) else text[0]
        scenario.answers.append((answer.name, text, "error" in answer.response, images))

    await run(Script(model="script"))
    await scenario.cancel(run(Script(model="script", first=[("1", "shop_wait", {})])))


async def llama_index(scenario: Scenario) -> None:
    from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ImageBlock
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    from toolwire.agents import LlamaIndexTools

    class Script(MockFunctionCallingLLM):
        first: list[Any] | None = None

        def _prepare_chat_with_tools(self, tools: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
            if self.first is None:
                functions = [tool.metadata.to_openai_tool()["function"] for tool in tools]
                scenario.see([(each["name"], each["parameters"]) for each in functions])
            return {"messages": options.get("chat_history") or []}

        async def achat(self, messages: Any, **options: Any) -> Any:
            turn = sum(message.role == "assistant" for message in messages)
            calls = scenario.calls(turn) if self.first is None else self.first
            message = ChatMessage(role="assistant", content="" if calls else "Done.")
            return ChatResponse(message=message, raw={"calls": calls})

        def get_tool_calls_from_response(self, response: Any, *arguments: Any, **options: Any) -> list[Any]:
            return [
                ToolSelection(tool_id=id, tool_name=name, tool_kwargs=arguments)
                for id, name, arguments in response.raw["calls"]
            ]

    assert issubclass(Script, FunctionCallingLLM)
    async with LlamaIndexTools(scenario.servers, **scenario.options) as tools:
        scenario.toolset = tools.toolset
        agent = FunctionAgent(tool_retriever=tools.retriever(), llm=Script(), streaming=False)
        handler = agent.run("Go.")
        found = {}
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                output = event.tool_output
                images = [block.image_mimetype for block in output.blocks if isinstance(block, ImageBlock)]
                found[event.tool_id] = (event.tool_name, output.content, output.is_error, images)
        scenario.text = str(await handler)
        scenario.answers = [found[id] for turn in range(len(SCRIPT)) for id, _, _ in scenario.calls(turn)]

        # The tools of one moment.
        listed = await tools.list_tools()
        by_name = {tool.metadata.name: tool for tool in listed}
        assert (await by_name["files_add"].acall(a=4)).content == "files 4"
        waits = FunctionAgent(tools=listed, llm=Script(first=[("1", "shop_wait", {})]), streaming=False)

        async def wait() -> None:
            handler = waits.run("Wait.")
            try:
                await handler
            except asyncio.CancelledError:
                await handler.cancel_run()
                raise

        await scenario.cancel(wait())


def left_over(before: set[threading.Thread]) -> dict[str, list[str]]:
    """Return the tasks, threads and processes that are still there."""
    tasks = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    threads = [thread.name for thread in threading.enumerate() if thread not in before]
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return {"tasks": tasks, "threads": threads, "processes": children.read_text().split() if children.exists() else []}


async def main(framework: str) -> dict[str, Any]:
    before = set(threading.enumerate())
    scenario = Scenario()
    await globals()[framework](scenario)
    # Frameworks have the loop's own threads do small things.
    await asyncio.get_running_loop().shutdown_default_executor()
    try:
        # Tasks that were cancelled end in the next rounds of the loop.
        await until(lambda: not any(left_over(before).values()))
    except TimeoutError:
        pass
    return {
        "listed": scenario.listed,
        "schema": scenario.schemas["shop_add"],
        "answers": scenario.answers,
        "text": scenario.text,
        "writes": scenario.writes,
        "left": left_over(before),
    }


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    if sys.argv[1] not in NEED_MCP:
        sys.modules["mcp"] = None  # type: ignore[assignment]
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
