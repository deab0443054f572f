"""Members that we do not know, and `_meta`: byte for byte the same on every way through a server.

The table: where the member stands, the revision, the transport, a mounted server or not. The member comes from another
server, as our client reads it in a gateway, or from a handler that has its JSON. It is cut out of the bytes that leave,
and compared with the bytes that came.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.httpwire import HttpLine
from tests.server.reaching import WAYS, reach
from tests.server.tasks.talking import begin, outcome, talk
from tests.wireclient import MODERN, WireClient

from toolwire import Context, Policy, Server, ToolResult, types

REVISIONS = ("2025-06-18", "2025-11-25", MODERN)
BIG = "9" * 400
#: JSON that Python writes differently: numbers, escapes, blanks, the order and the depth of objects.
EXACT = (
    b'{"price": 1.10, "exp":1E5,"big":' + BIG.encode() + b',"minus":-0,"text":"\\u00e9\\/\\ud83d\\ude00",'
    b'"z":null,"a":[[], {},[[[[{"deep":[1.0, 2.50]}]]]]]}'
)
RAW = Raw(EXACT)
Path: TypeAlias = tuple[str | int, ...]


def cut_out(message: bytes, *path: str | int) -> bytes:
    """The JSON of a member, as it stands in the message."""
    part: Any = Raw(message)
    for step in path:
        part = msgspec.json.decode(part, type=dict[str, Raw] if isinstance(step, str) else list[Raw])[step]
    return bytes(part)


def foreign(kind: Any, text: str, *, wire_name: str = "x-unknown") -> Any:
    """A value as our client reads it from another server, with a member that nobody knows and with `_meta`."""
    members = msgspec.json.decode(text, type=dict[str, Raw])
    members |= {wire_name: RAW, "_meta": Raw(b'{"org.example/sign":' + EXACT + b"}")}
    return types.decode(kind, msgspec.json.encode(members))


def _result() -> types.CallToolResult:
    result: types.CallToolResult = foreign(types.CallToolResult, '{"content":[{"type":"text","text":"a"}]}')
    return result


def _block() -> Any:
    return foreign(types.TextContent, '{"type":"text","text":"a"}')


def _block_as_dict() -> Any:
    return {"type": "text", "text": "a", UNKNOWN: RAW, "_meta": {META[1]: RAW}}


def _unknown_block() -> types.CallToolResult:
    return types.decode(types.CallToolResult, b'{"content":[{"type":"hologram","x":' + EXACT + b"}]}")


def _contents() -> Any:
    return foreign(types.ResourceContents, '{"uri":"note://work","text":"a"}')


def _message() -> Any:
    return foreign(types.PromptMessage, '{"role":"user","content":{"type":"text","text":"a"}}')


UNKNOWN, META = "x-unknown", ("_meta", "org.example/sign")
BLOCK = [("content", 0, UNKNOWN), ("content", 0, *META)]
CONTENTS = [("contents", 0, UNKNOWN), ("contents", 0, *META)]
#: What a tool, a prompt or a resource returns, and where the members stand in the result.
TOOLS: dict[str, tuple[Callable[[], Any], list[Path]]] = {
    "result": (_result, [(UNKNOWN,), META]),
    "tool_result": (lambda: ToolResult.from_wire(_result()), [(UNKNOWN,), META]),
    "block": (_block, BLOCK),
    "blocks": (lambda: [_block(), "b"], BLOCK),
    "block_as_dict": (_block_as_dict, BLOCK),
    "unknown_block": (_unknown_block, [("content", 0, "x")]),
    "embedded": (
        lambda: types.EmbeddedResource(_contents()),
        [("content", 0, "resource", UNKNOWN), ("content", 0, "resource", *META)],
    ),
}
PROMPTS: dict[str, tuple[Callable[[], Any], list[Path]]] = {
    "prompt_result": (lambda: foreign(types.GetPromptResult, '{"messages":[]}'), [(UNKNOWN,), META]),
    "message": (lambda: [_message()], [("messages", 0, UNKNOWN)]),
    "message_as_dict": (lambda: [{"role": "user", "content": "a", UNKNOWN: RAW}], [("messages", 0, UNKNOWN)]),
    "prompt_block": (
        lambda: [types.PromptMessage("user", _block())],
        [("messages", 0, "content", UNKNOWN), ("messages", 0, "content", *META)],
    ),
}
RESOURCES: dict[str, tuple[Callable[[], Any], list[Path]]] = {
    "contents": (_contents, [*CONTENTS, ("contents", 0, "_meta", "org.example/more")]),
    "text": (lambda: "a", [("contents", 0, "_meta", "org.example/more")]),
}
MORE = {"org.example/more": RAW}
#: Every request, and where the members stand in its result.
REQUESTS: list[tuple[str, dict[str, Any], list[Path]]] = [
    *(("tools/call", {"name": name}, paths) for name, (_, paths) in TOOLS.items()),
    *(("prompts/get", {"name": name}, paths) for name, (_, paths) in PROMPTS.items()),
    *(("resources/read", {"uri": f"note://{name}"}, paths) for name, (_, paths) in RESOURCES.items()),
    ("tools/list", {}, [("tools", 0, "_meta", "org.example/more")]),
    ("prompts/list", {}, [("prompts", 0, "_meta", "org.example/more")]),
    ("resources/list", {}, [("resources", 0, "_meta", "org.example/more")]),
]
LOW_LEVEL: list[tuple[str, dict[str, Any], list[Path]]] = [
    ("tools/list", {}, [("tools", 0, UNKNOWN), ("tools", 0, *META)]),
    ("tools/list", {}, [("tools", 1, UNKNOWN)]),
    ("tools/call", {"name": "a"}, [(UNKNOWN,), META]),
]


def returning(make: Callable[[], Any]) -> Callable[[], Any]:
    async def handler():  # type: ignore[no-untyped-def]
        return make()

    return handler


def high_level(**options: Any) -> Server:
    server = Server("s", **options)
    for name, (make, _) in TOOLS.items():
        server.tool(returning(make), name=name, meta=MORE)
    for name, (make, _) in PROMPTS.items():
        server.prompt(returning(make), name=name, meta=MORE)
    for name, (make, _) in RESOURCES.items():
        server.resource(f"note://{name}", meta=MORE)(returning(make))
    return server


def low_level(**options: Any) -> Server:
    """A gateway: it lists and calls what it has from another server."""
    server = Server("s", **options)
    tool = '{"name":"a","inputSchema":{"type":"object"}}'
    as_dict = {"name": "b", "inputSchema": {"type": "object"}, UNKNOWN: RAW}
    server.on_list_tools(lambda: [foreign(types.Tool, tool), as_dict])
    server.on_call_tool(lambda name, arguments: ToolResult.from_wire(_result()))
    return server


def lines_of(client: WireClient) -> list[bytes]:
    """Everything that came, as it came."""
    if not isinstance(client.channel, HttpLine):
        return client.lines
    answers = client.channel.answers
    bodies = [[event.data.encode() for event in each.events] if each.is_stream else [each.body] for each in answers]
    return [line for body in bodies for line in body]


async def check(client: WireClient, requests: list[tuple[str, dict[str, Any], list[Path]]]) -> None:
    """Send the requests, and compare the members of the results with what was put into them."""
    for number, (method, params, paths) in enumerate(requests):
        await client.request(method, params, id=f"asked {number}")
        (line,) = [each for each in lines_of(client) if f'"id":"asked {number}"'.encode() in each]
        for path in paths:
            assert cut_out(line, "result", *path) == EXACT, (method, params, path)


@pytest.mark.pairwise
@pytest.mark.covers("EXT-12")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("server", ["own", "mounted", "low-level"])
@pytest.mark.parametrize("way", WAYS)
async def test_what_we_do_not_know_passes_byte_for_byte(revision: str, way: str, server: str) -> None:
    served = low_level() if server == "low-level" else high_level()
    if server == "mounted":
        served = Server("outer").mount(Server("middle").mount(served))
    async with reach(served, way, revision) as client:
        await check(client, LOW_LEVEL if server == "low-level" else REQUESTS)


async def watch(ctx: Context, call_next: Any) -> Any:
    return await call_next(ctx)


@pytest.mark.covers("EXT-12")
@cases("revision", REVISIONS)
@cases("server", ["own", "mounted", "low-level"])
async def test_middleware_and_policies_keep_it(revision: str, server: str) -> None:
    options: dict[str, Any] = {"middleware": watch, "policy": Policy(mask=["secret-[0-9]+"])}
    served = low_level(**options) if server == "low-level" else high_level(**options)
    if server == "mounted":
        served = Server("outer", **options).mount(served)
    async with reach(served, "memory", revision) as client:
        await check(client, LOW_LEVEL if server == "low-level" else REQUESTS)


async def test_a_server_reads_its_own_result() -> None:
    server = high_level()
    assert (await server.call_tool("result")).text == "a"
    assert (await server.get_prompt("prompt_result")).extra[UNKNOWN]["big"] == int(BIG)
    (contents,) = await server.read_resource("note://contents")
    assert contents.extra[UNKNOWN]["price"] == 1.1


async def test_a_changed_member_is_sent_as_it_is_now() -> None:
    result = _result()
    assert isinstance(result.meta, dict)
    result.extra["x-unknown"]["price"] = 2
    result.meta["org.example/sign"] = 1
    data = types.encode(result)
    assert json.loads(data)["x-unknown"]["price"] == 2
    assert json.loads(data)["_meta"] == {"org.example/sign": 1}
    assert result.extra["x-unknown"]["big"] == int(BIG)


def test_a_number_that_python_cannot_hold_is_kept() -> None:
    data = b'{"content":[],"x":1e400,"y":{"z":-1e999}}'
    result = types.decode(types.CallToolResult, data)
    assert result.extra == {"x": Raw(b"1e400"), "y": Raw(b'{"z":-1e999}')}
    assert cut_out(types.encode(result), "x") == b"1e400"


# --- Params ---


@pytest.mark.pairwise
@pytest.mark.covers("EXT-12")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_mounted", [False, True], ids=["own", "mounted"])
async def test_unknown_params_reach_the_handler(revision: str, way: str, is_mounted: bool) -> None:
    seen: list[Any] = []
    server = Server("s")

    def look(ctx: Context) -> str:
        seen.append((dict(ctx.params.extra), ctx.meta["org.example/sign"], types.encode(ctx.params)))
        return "a"

    @server.tool(name="work")
    async def work(ctx: Context) -> str:
        return look(ctx)

    @server.resource("note://work")
    async def note(ctx: Context) -> str:
        return look(ctx)

    @server.prompt(name="work")
    async def prompt(ctx: Context) -> str:
        return look(ctx)

    outer = Server("outer").mount(server) if is_mounted else server
    value = json.loads(EXACT)
    named = {"tools/call": {"name": "work"}, "prompts/get": {"name": "work"}, "resources/read": {"uri": "note://work"}}
    async with reach(outer, way, revision) as client:
        for method, params in named.items():
            await client.result(method, {**params, UNKNOWN: value, "_meta": {META[1]: value}})
    assert len(seen) == 3
    for extra, meta, data in seen:
        assert (extra, meta) == ({UNKNOWN: value}, value)
        assert cut_out(data, UNKNOWN) == json.dumps(value).encode()


# --- Tasks ---


@pytest.mark.covers("EXT-12")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_the_stored_result_of_a_task_keeps_it(revision: str) -> None:
    server = Server("s")

    @server.tool(task="required")
    async def work() -> types.CallToolResult:
        return _result()

    async with talk(server, revision) as client:
        await outcome(client, await begin(client, "work"))
        result = cut_out(client.lines[-1], "result", *(("result",) if revision == MODERN else ()))
    assert (cut_out(result, UNKNOWN), cut_out(result, *META)) == (EXACT, EXACT)
