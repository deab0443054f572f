"""Members that we do not know, and `_meta`: a client keeps them, and writes them byte for byte as they came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.client.json_server import JsonServer
from tests.client.test_extensions import ERAS, LEGACY
from tests.server.test_unknown_members import EXACT, cut_out

from toolwire import Client
from toolwire.protocol import types as t

RAW = Raw(EXACT)
ODD: dict[str, Any] = {"x-unknown": RAW, "_meta": {"org.example/sign": RAW}}
TEXT: dict[str, Any] = {"type": "text", "text": "a", **ODD}
CAPABILITIES: dict[str, Any] = {"resources": {}, "prompts": {}, "logging": {}}


def page(member: str, definition: dict[str, Any]) -> dict[str, Any]:
    return {member: [{**definition, **ODD}], "ttlMs": 0, "cacheScope": "private"}


ANSWERS: dict[str, Any] = {
    "tools/list": page("tools", {"name": "a", "inputSchema": {"type": "object"}}),
    "resources/list": page("resources", {"name": "a", "uri": "a:"}),
    "resources/templates/list": page("resourceTemplates", {"name": "a", "uriTemplate": "a:{b}"}),
    "prompts/list": page("prompts", {"name": "a"}),
    "resources/read": page("contents", {"uri": "a:", "text": "b"}),
    "prompts/get": {"messages": [{"role": "user", "content": TEXT}], **ODD},
    "tools/call": {"content": [TEXT, {"type": "hologram", **ODD}], **ODD},
}


async def first(listed: Awaitable[list[Any]]) -> Any:
    return (await listed)[0]


async def called(client: Client) -> Any:
    return (await client.call_tool("a")).to_wire()


async def block(client: Client) -> Any:
    return (await client.call_tool("a")).content[0]


async def unknown_block(client: Client) -> Any:
    return (await client.call_tool("a")).content[1]


async def message(client: Client) -> Any:
    return (await client.get_prompt("a")).messages[0].content


READS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "tool": lambda client: first(client.list_tools()),
    "resource": lambda client: first(client.list_resources()),
    "template": lambda client: first(client.list_resource_templates()),
    "prompt": lambda client: first(client.list_prompts()),
    "contents": lambda client: first(client.read_resource("a:")),
    "prompt result": lambda client: client.get_prompt("a"),
    "prompt content": message,
    "tool result": called,
    "tool content": block,
    "unknown content": unknown_block,
    "request": lambda client: client.request("tools/call", {"name": "a"}, returns=t.CallToolResult),
}


def serving(revision: str) -> JsonServer:
    answers = {method: lambda params, method=method: ANSWERS[method] for method in ANSWERS}
    return JsonServer(answers, revision=revision, capabilities=CAPABILITIES)


@pytest.mark.covers("EXC-11")
@ERAS
@pytest.mark.parametrize("kind", READS)
async def test_what_we_do_not_know_survives_byte_for_byte(kind: str, revision: str) -> None:
    async with Client(serving(revision)) as client:
        written = t.encode(await READS[kind](client))
    assert cut_out(written, "x-unknown") == EXACT
    assert cut_out(written, "_meta", "org.example/sign") == EXACT


@pytest.mark.covers("EXC-11")
@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "a"}]},
        {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}], "isError": False},
        {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        {"content": [{"type": "resource", "resource": {"uri": "a:", "text": "b"}}]},
        {"content": [{"type": "resource_link", "uri": "a:", "name": "b", "size": 3, "title": "c"}]},
        {"content": [], "structuredContent": {"a": [1.5]}, "_meta": {t.SERVER_INFO_KEY: {"name": "s", "version": "1"}}},
    ],
)
@pytest.mark.parametrize("odd", ["nothing", "result", "block", "annotations"])
@ERAS
async def test_every_kind_of_content_is_read_whole(result: dict[str, Any], odd: str, revision: str) -> None:
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    if odd == "result":
        whole["x-unknown"] = {"a": 1}
    for each in whole["content"]:
        if odd == "block":
            each["x-unknown"] = {"a": 1}
        elif odd == "annotations":
            each["annotations"] = {"priority": 1, "x-unknown": {"a": 1}}
    server = JsonServer({"tools/call": lambda params: whole}, revision=revision)
    async with Client(server) as client:
        read = (await client.call_tool("a")).to_dict()
    assert {name: member for name, member in read.items() if name != "resultType"} == {
        name: member for name, member in whole.items() if name != "isError"
    }


@pytest.mark.covers("EXC-11")
@ERAS
async def test_questions_and_log_messages_are_shown_whole(revision: str) -> None:
    shown: list[t.Wire] = []
    question = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}, "x-unknown": RAW}

    async def call(params: dict[str, Any]) -> dict[str, Any]:
        server.notify("notifications/message", {"level": "info", "data": 1, **ODD})
        if revision == LEGACY:
            await server.ask("elicitation/create", {**question, "_meta": {"org.example/sign": RAW}})
        elif "inputResponses" not in params:
            asked = {"a": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
        return {"content": []}

    def elicit(message: str, params: t.ElicitRequestParams) -> dict[str, Any]:
        shown.append(params)
        return {}

    server = JsonServer({"tools/call": call}, revision=revision, capabilities=CAPABILITIES)
    async with Client(server, elicit=elicit, on_log=shown.append) as client:
        await client.call_tool("a")
    assert len(shown) >= 2
    for params in shown:
        assert cut_out(t.encode(params), "x-unknown") == EXACT
