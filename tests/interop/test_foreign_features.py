"""Our client against servers that we did not write: what a server may do besides answering, on each revision it has.

The server is `serve_features.py`, run with one library after the other. `make interop` installs them and runs this.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.interop import peers

from toolwire import Client
from toolwire.protocol import types as t

SERVERS = (
    ("mcp-1.9.4", "2025-03-26"),
    ("mcp-1.22.0", "2025-06-18"),
    ("mcp-1.30.0", "2025-11-25"),
    ("mcp-2.3.0", "2025-11-25"),
    ("mcp-2.3.0", "2026-07-28"),
    ("fastmcp-4.1.2", "2025-11-25"),
    ("fastmcp-4.1.2", "2026-07-28"),
)
# These servers ask and announce only on the back channel that 2026-07-28 does not have.
LEGACY = tuple((name, revision) for name, revision in SERVERS if revision != "2026-07-28")
FORMS = tuple((name, revision) for name, revision in LEGACY if revision != "2025-03-26")

every_server = pytest.mark.parametrize(("name", "revision"), SERVERS)
every_legacy_server = pytest.mark.parametrize(("name", "revision"), LEGACY)


@asynccontextmanager
async def connected(name: str, revision: str, **options: Any) -> AsyncIterator[Client]:
    command = [str(peers.needed(name).python), str(peers.SCRIPTS / "serve_features.py")]
    async with Client(command, revision=revision, **options) as client:
        assert client.revision == revision
        yield client


@every_server
async def test_tools_and_structured_results(name: str, revision: str) -> None:
    async with connected(name, revision) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert "point" in tools
        result = await client.call_tool("point", {"x": 3})
        # This library had no structured results before 2025-06-18.
        if revision != "2025-03-26":
            assert result.structured == {"x": 3, "y": 0}
        assert '"x"' in result.text
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert (await client.call_tool("point", {"x": "not a number"})).is_error


@every_server
async def test_resources_templates_and_prompts(name: str, revision: str) -> None:
    async with connected(name, revision) as client:
        assert {resource.uri for resource in await client.list_resources()} == {"memo://text", "memo://bytes"}
        assert [each.uri_template for each in await client.list_resource_templates()] == ["memo://day/{day}"]
        assert (await client.read_resource("memo://text"))[0].text == "words"
        assert (await client.read_resource("memo://bytes"))[0].blob == b"\x00\x01"
        assert (await client.read_resource("memo://day/monday"))[0].text == "note of monday"
        assert [prompt.name for prompt in await client.list_prompts()] == ["greet"]
        message = (await client.get_prompt("greet", {"who": "Ada"})).messages[0]
        assert isinstance(message.content, t.TextContent)
        assert message.content.text == "hello Ada"


@every_server
async def test_progress_and_cancellation(name: str, revision: str) -> None:
    progress: list[float] = []
    begun = asyncio.Event()
    async with connected(name, revision) as client:
        await client.call_tool("slow", on_progress=lambda report: progress.append(report.progress))
        assert progress == [1, 2, 3]
        if name == "mcp-1.9.4":
            return  # The server of this release ends when a call is cancelled.
        waiting = asyncio.create_task(client.call_tool("wait", on_progress=lambda report: begun.set()))
        await begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await client.call_tool("point", {"x": 1})).is_error is False


@every_legacy_server
async def test_logging(name: str, revision: str) -> None:
    arrived = asyncio.Event()
    logs: list[Any] = []

    def on_log(message: t.LoggingMessageNotificationParams) -> None:
        logs.append(message.data)
        arrived.set()

    async with connected(name, revision, on_log=on_log) as client:
        await client.call_tool("talk")
        await arrived.wait()
    assert "hello from the server" in str(logs[0])


@pytest.mark.parametrize(("name", "revision"), FORMS)
async def test_elicitation(name: str, revision: str) -> None:
    async with connected(name, revision, elicit=lambda message, params: {"ok": True}) as client:
        assert (await client.call_tool("ask")).text == "accept True"


@every_legacy_server
async def test_sampling_and_roots(name: str, revision: str) -> None:
    async with connected(name, revision, sample=lambda params: "It is.", roots=["file:///work"]) as client:
        assert (await client.call_tool("opinion")).text == "It is."
        assert (await client.call_tool("folders")).text == "file:///work"


async def test_list_changed() -> None:
    # The only one of these libraries that declares it.
    async with connected("fastmcp-4.1.2", "2025-11-25") as client:
        async with client.listen(tools=True) as changes:
            assert (await client.call_tool("grow")).is_error is False
            assert await anext(aiter(changes))
        assert "sprout" in [tool.name for tool in await client.list_tools()]
