"""What other libraries send besides the letter of the specification, and what is harmless to take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, WireClient, connect

from toolwire import Context, Server

INFO = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def exchange(client: WireClient, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message exactly as it is, and wait for the answer."""
    future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    client._waiting[message["id"]] = future
    client.send({"jsonrpc": "2.0", **message})
    return await future


def make_server() -> Server:
    server = Server("s")

    @server.tool
    async def meta(ctx: Context, text: str = "") -> str:
        return f"{sorted(ctx.meta)} {ctx.client and ctx.client.name}"

    return server


@cases("revision", LEGACY)
async def test_null_stands_for_params_and_metadata_that_are_not_there(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        for method in ("tools/list", "ping"):
            for params in (None, {"_meta": None}):
                answer = await exchange(client, {"id": 7, "method": method, "params": params})
                assert "result" in answer, (method, params, answer)
        call = {"name": "meta", "arguments": {}, "_meta": None}
        answer = await exchange(client, {"id": 8, "method": "tools/call", "params": call})
        assert answer["result"]["content"][0]["text"].startswith("[]")
        call["_meta"] = {"progressToken": None, "mine": None}
        answer = await exchange(client, {"id": 9, "method": "tools/call", "params": call})
        assert answer["result"]["content"][0]["text"].startswith("['mine']"), "what is not ours is left as it is"


@pytest.mark.parametrize("params", [{"clientInfo": None}, {"clientInfo": {"name": "c", "version": "1", "title": None}}])
async def test_a_handshake_may_have_nulls(params: dict[str, Any]) -> None:
    async with connect(make_server(), None) as client:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "_meta": None, **params}
        answer = await exchange(client, {"id": 1, "method": "initialize", "params": opening})
        assert answer["result"]["protocolVersion"] == "2025-11-25"


@cases("method", ["tools/list", "tools/call", "server/discover", "no/such"])
@cases("nulls", [{INFO: None}, {LEVEL: None}, {INFO: None, LEVEL: None, "progressToken": None}])
async def test_null_stands_for_metadata_that_a_modern_request_may_leave_out(method: str, nulls: dict[str, Any]) -> None:
    async with connect(make_server(), MODERN) as client:
        meta = {VERSION: MODERN, CAPABILITIES: {}, **nulls}
        answer = await exchange(client, {"id": 7, "method": method, "params": {"name": "meta", "_meta": meta}})
    if method == "no/such":
        assert answer["error"]["code"] == -32601
    else:
        assert "result" in answer, answer


@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
async def test_null_is_not_enough_for_what_a_modern_request_must_have(missing: str) -> None:
    async with connect(make_server(), MODERN) as client:
        meta = {VERSION: MODERN, CAPABILITIES: {}, missing: None}
        answer = await exchange(client, {"id": 7, "method": "tools/list", "params": {"_meta": meta}})
    assert answer["error"] == {"code": -32602, "message": f"Missing {missing} in params._meta"}


@cases("revision", REVISIONS)
async def test_what_is_wrong_is_still_refused(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        for params in ({"name": None}, {"name": 7, "arguments": None}, {"name": 7, "_meta": {}}):
            assert (await client.error("tools/call", params))["code"] == -32602


@pytest.mark.covers("PAG-1")
@cases("revision", REVISIONS)
async def test_an_empty_cursor_is_no_cursor(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        for cursor in ("", None):
            assert [tool["name"] for tool in (await client.result("tools/list", {"cursor": cursor}))["tools"]] == [
                "meta"
            ]
        assert (await client.error("tools/list", {"cursor": "nonsense"}))["code"] == -32602


@cases("revision", REVISIONS)
@cases("identifier", [2**63, 2**64, 2**64 + 1, -(2**70), 10**100])
async def test_an_id_may_be_any_integer(revision: str, identifier: int) -> None:
    async with connect(make_server(), revision) as client:
        answer = await client.request("tools/list", {}, id=identifier)
    assert answer["id"] == identifier
