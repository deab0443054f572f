"""The client under test for the official conformance suite: one scenario a run, named by the environment.

The suite starts it with the URL of its mock server as the last argument, and looks at what the mock server saw. How the
run itself ended is written to the folder that TOOLWIRE_CONFORMANCE_STATUS names, because the suite keeps it to itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from toolwire.client import Client
from toolwire.client.skills import SkillRejected
from toolwire.protocol.errors import ToolwireError, Unauthorized

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or None
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

Run = Callable[[str], Awaitable[None]]
SCENARIOS: dict[str, Run] = {}


def scenario(*names: str) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        SCENARIOS.update(dict.fromkeys(names, run))
        return run

    return register


def connect(url: str, **options: Any) -> Client:
    # All scenarios start at once, and the mock servers of all of them are one process, which starts the clients too.
    return Client(url, revision=REVISION, timeout=100.0, probe_timeout=100.0, **options)


def accept(message: str, params: Any) -> dict[str, Any]:
    """Fields with defaults are filled in by the client; a plain confirmation is given."""
    properties = params.requested_schema.get("properties", {})
    return {
        name: True for name, field in properties.items() if field.get("type") == "boolean" and "default" not in field
    }


@scenario("initialize")
async def initialize(url: str) -> None:
    async with connect(url) as client:
        # The mock declares no capability and answers all the same.
        await client.request("tools/list")


@scenario("json-schema-ref-no-deref")
async def list_tools(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()


@scenario("tools_call")
async def call_tools(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


@scenario("elicitation-sep1034-client-defaults")
async def elicit_defaults(url: str) -> None:
    async with connect(url, elicit=accept) as client:
        await client.list_tools()
        await client.call_tool("test_client_elicitation_defaults")


@scenario("sse-retry")
async def reconnect(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection")


@scenario("request-metadata")
async def metadata(url: str) -> None:
    async with connect(url, elicit=accept, sample=refuse, roots=["file:///tmp"]) as client:
        # The mock declares no capability and answers all the same.
        await client.request("tools/list")
        await client.request("tools/call", {"name": "test_tool", "arguments": {}})


def refuse(params: Any) -> Any:
    raise ToolwireError("nobody is here to sample")


@scenario("http-standard-headers")
async def standard_headers(url: str) -> None:
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name)
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def custom_headers(url: str) -> None:
    async with connect(url) as client:
        await client.list_tools()
        for call in CONTEXT.get("toolCalls", []):
            await client.call_tool(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def invalid_headers(url: str) -> None:
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {"region": "eu"})


@scenario("sep-2322-client-request-state")
async def request_state(url: str) -> None:
    async with connect(url, elicit=accept) as client:
        await client.list_tools()
        for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
            await client.call_tool(f"test_mrtr_{name}")


@scenario("json-schema-2020-12-preservation")
async def keep_schemas(url: str) -> None:
    async with connect(url) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        schema = tools["json_schema_2020_12_tool"].input_schema
        await client.call_tool("json_schema_echo", {"schema": schema})


@scenario("sep-2640-client-no-prefetch")
async def list_skills(url: str) -> None:
    async with connect(url) as client:
        listed = await client.skills.list()
        assert [skill.name for skill in listed] == ["pdf-processing"]


@scenario(*(f"sep-2640-client-verify-{reason}" for reason in ("digest", "size", "frontmatter")))
async def refuse_skill(url: str) -> None:
    """The skill is refused when its SKILL.md is read. Otherwise its other file would be read, and the suite sees it."""
    async with connect(url) as client:
        for listed in await client.skills.list():
            try:
                skill = await client.skills.load(listed)
            except SkillRejected as error:
                assert SCENARIO.endswith(error.reason), error
            else:
                await skill.read("references/FORMS.md")
                raise AssertionError("this should have been refused")


async def sign_in(url: str) -> None:
    """Every scenario of authorization is the same to a client: it is let in, or it refuses to go on and says so."""
    # Imported here because signing is what takes the longest to load.
    from client_auth import REFUSED, oauth_for

    try:
        async with connect(url, auth=oauth_for(SCENARIO, CONTEXT)) as client:
            for tool in await client.list_tools():
                await client.call_tool(tool.name)
    except Unauthorized:
        if SCENARIO not in REFUSED:
            raise
    else:
        assert SCENARIO not in REFUSED, "this should have been refused"


def main() -> int:
    run = sign_in if SCENARIO.startswith("auth/") else SCENARIOS.get(SCENARIO)
    if run is None:
        print(f"no such scenario: {SCENARIO}", file=sys.stderr)
        return 2
    try:
        asyncio.run(run(sys.argv[-1]))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def report(status: int) -> None:
    folder = os.environ.get("TOOLWIRE_CONFORMANCE_STATUS")
    if folder is not None:
        Path(folder, SCENARIO.replace("/", "+")).write_text(str(status))


if __name__ == "__main__":
    ended = main()
    report(ended)
    sys.exit(ended)
