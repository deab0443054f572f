"""Let a framework for agents list the tools of a server, convert them for a model, and call some of them.

`python drive_agents.py FRAMEWORK COMMAND...` runs in the environment of a peer `agents` or `pydantic-ai`. It starts the
server with the command and reads the calls, `[[tool, arguments]]`, from standard input. It prints
`{"handed": {form: {tool: parameters}}, "refused": {form: {tool: reason}}, "answers": [text]}`. A form is one way in
which the framework describes tools to a model. No model takes part: the calls are made as if one had asked for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from types import SimpleNamespace
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]


class Report:
    """The tools as a model would see them, what could not be converted, and the answers to the calls."""

    def __init__(self) -> None:
        self.handed: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, dict[str, str]] = {}
        self.answers: list[str] = []

    def convert(self, form: str, tools: Iterable[Any], conversion: Callable[[Any], Any]) -> None:
        """Convert each tool and send it through JSON, as a request to a model would."""
        self.handed[form], self.refused[form] = {}, {}
        for tool in tools:
            try:
                self.handed[form][tool.name] = json.loads(json.dumps(conversion(tool)))
            except Exception as error:
                self.refused[form][tool.name] = f"{type(error).__name__}: {error}"[:300]


def smolagents(command: list[str], calls: Calls, report: Report) -> None:
    from mcp import StdioServerParameters
    from smolagents import MCPClient
    from smolagents.models import get_tool_json_schema

    server = StdioServerParameters(command=command[0], args=command[1:])
    with MCPClient(server, structured_output=False) as tools:
        report.convert("tools", tools, lambda tool: get_tool_json_schema(tool)["function"]["parameters"])
        report.convert("code", tools, lambda tool: tool.to_code_prompt())
        by_name = {tool.name: tool for tool in tools}
        # The code that a model writes calls a tool like this.
        report.answers = [by_name[name](**arguments) for name, arguments in calls]


def smolagents_json(command: list[str], calls: Calls, report: Report) -> None:
    """Call the tools like an agent whose model asks for calls in JSON, which checks the arguments itself."""
    from mcp import StdioServerParameters
    from smolagents import LogLevel, MCPClient, ToolCallingAgent
    from smolagents.utils import AgentError

    server = StdioServerParameters(command=command[0], args=command[1:])
    with MCPClient(server, structured_output=False) as tools:
        agent = ToolCallingAgent(tools=tools, model=SimpleNamespace(), verbosity_level=LogLevel.OFF)
        for name, arguments in calls:
            try:
                report.answers.append(agent.execute_tool_call(name, arguments))
            except AgentError as error:
                report.answers.append(f"{type(error).__name__}: {error.message}")


def langchain(command: list[str], calls: Calls, report: Report) -> None:
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    async def drive() -> None:
        server = {"transport": "stdio", "command": command[0], "args": command[1:]}
        async with MultiServerMCPClient({"it": server}).session("it") as session:
            tools = await load_mcp_tools(session)
            report.convert("tools", tools, lambda tool: convert_to_openai_tool(tool)["function"]["parameters"])
            report.convert(
                "strict", tools, lambda tool: convert_to_openai_tool(tool, strict=True)["function"]["parameters"]
            )
            by_name = {tool.name: tool for tool in tools}
            for name, arguments in calls:
                call = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
                report.answers.append((await by_name[name].ainvoke(call)).text)

    asyncio.run(drive())


def huggingface(command: list[str], calls: Calls, report: Report) -> None:
    from huggingface_hub import ChatCompletionStreamOutput, MCPClient

    async def model(*, tools: list[Any], **request: Any) -> AsyncIterator[ChatCompletionStreamOutput]:
        functions = [tool.function for tool in tools]
        report.convert("tools", functions, lambda function: function.parameters)
        return asked_for()

    async def asked_for() -> AsyncIterator[ChatCompletionStreamOutput]:
        asked = [
            {
                "index": index,
                "id": str(index),
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": asked}}
        chunk = {"choices": [choice], "created": 0, "id": "1", "model": "none", "system_fingerprint": ""}
        yield ChatCompletionStreamOutput.parse_obj_as_instance(chunk)

    async def drive() -> None:
        async with MCPClient(model="none", base_url="http://127.0.0.1:9") as client:
            await client.add_mcp_server("stdio", command=command[0], args=command[1:])
            remote = client.client
            client.client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=model)))
            try:
                messages = [{"role": "user", "content": "Call the tools."}]
                turn = [each async for each in client.process_single_turn_with_tools(messages)]
            finally:
                client.client = remote
            report.answers = [each.content for each in turn if getattr(each, "role", None) == "tool"]

    asyncio.run(drive())


def pydantic_ai(command: list[str], calls: Calls, report: Report) -> None:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.profiles.google import google_model_profile
    from pydantic_ai.profiles.openai import openai_model_profile

    forms = {"tools": None, "openai": openai_model_profile("gpt-5"), "google": google_model_profile("gemini-2.5-pro")}

    async def drive() -> None:
        toolset = MCPToolset(StdioTransport(command[0], command[1:]), tool_error_behavior="failed")
        async with toolset:
            for form, profile in forms.items():

                def model(messages: list[ModelMessage], info: AgentInfo, form: str = form) -> ModelResponse:
                    if len(messages) > 1:
                        return ModelResponse([TextPart("Done.")])
                    report.convert(form, info.function_tools, lambda tool: tool.parameters_json_schema)
                    return ModelResponse([ToolCallPart(name, arguments) for name, arguments in calls])

                agent = Agent(FunctionModel(model, profile=profile), toolsets=[toolset])
                done = await agent.run("Call the tools.")
                parts = [part for message in done.all_messages() for part in message.parts]
                answers = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
                assert report.answers in ([], answers), "the answers depend on the form"
                report.answers = answers

    asyncio.run(drive())


def main(framework: str, command: list[str]) -> None:
    logging.disable()
    report = Report()
    globals()[framework](command, json.load(sys.stdin), report)
    json.dump(vars(report), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
