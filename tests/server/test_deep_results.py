"""Results that are nested deeper than a message may be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from toolwire import Client, Limits, Server, ToolResult, types
from toolwire.protocol.jsonrpc import MAX_DEPTH
from toolwire.server.deep_results import LEFT_OUT, MAX_STRUCTURED_DEPTH

REVISIONS = ["2026-07-28", "2025-11-25"]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def deep_server() -> Server:
    server = Server("deep", limits=Limits(task_poll=0.05))

    @server.tool
    async def plain(depth: int) -> ToolResult:
        return ToolResult(structured={"receipt": nested(depth - 1)}, meta={"com.example/own": 1})

    @server.tool(output_schema={"type": "object"})
    async def promised(depth: int) -> dict[str, Any]:
        return {"receipt": nested(depth - 1)}

    @server.tool(task="required")
    async def slowly(depth: int) -> ToolResult:
        return ToolResult(structured={"receipt": nested(depth - 1)})

    return server


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("tool", ["plain", "slowly"])
async def test_result_nested_too_deep_leaves_as_text(tool: str, revision: str) -> None:
    async with Client(deep_server(), revision=revision) as client:
        for depth in (2, MAX_STRUCTURED_DEPTH):
            result = await client.call_tool(tool, {"depth": depth})
            assert result.structured == {"receipt": nested(depth - 1)}
            assert LEFT_OUT not in (result.meta or {})
        for depth in (MAX_STRUCTURED_DEPTH + 1, MAX_DEPTH, 500, 900):
            result = await client.call_tool(tool, {"depth": depth})
            assert not result.is_error
            assert result.structured is None
            first, note = (each.text for each in result.content if isinstance(each, types.TextContent))
            assert msgspec.json.decode(first) == {"receipt": nested(depth - 1)}
            assert "nested more than" in note
            assert (result.meta or {})[LEFT_OUT] == [""]
            assert ((result.meta or {}).get("com.example/own") == 1) is (tool == "plain")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_result_nested_too_deep_is_an_error_where_structured_content_is_promised(revision: str) -> None:
    async with Client(deep_server(), revision=revision) as client:
        assert not (await client.call_tool("promised", {"depth": MAX_STRUCTURED_DEPTH})).is_error
        result = await client.call_tool("promised", {"depth": MAX_STRUCTURED_DEPTH + 1})
        assert result.is_error
        first, text = (each.text for each in result.content if isinstance(each, types.TextContent))
        assert first.startswith("The call was carried out, but its result is nested more than 125 levels deep")
        assert msgspec.json.decode(text) == {"receipt": nested(MAX_STRUCTURED_DEPTH)}
