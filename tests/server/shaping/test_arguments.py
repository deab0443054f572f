"""Arguments that are fixed, hidden, defaulted and renamed: the schema and the call are rewritten together."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Recorded, behind
from tests.http.modernclient import ModernClient

from toolwire import Client, Context, Limits, Server, Tool, ToolResult, testing
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ServerError
from toolwire.server.header_arguments import Header
from toolwire.server.shaping.arguments import Arguments
from toolwire.server.shaping.schemas import argument_names, public_schema
from toolwire.shape import ArgumentShape, Shape, ToolShape
from toolwire.types import REVISIONS

HIDDEN = ArgumentShape(hidden=True)
FIXED = ArgumentShape(fixed="/srv")


def taker(schema: dict[str, Any] | None = None) -> tuple[Server, list[dict[str, Any]]]:
    """Make a server whose tool takes any arguments, and the list of those that it got."""
    server, got = Server("taker"), []

    def take(arguments: dict[str, Any]) -> str:
        got.append(arguments)
        return "taken"

    open_schema = {"type": "object", "properties": {"root": {"type": "string"}, "path": {"type": "string"}}}
    server.add(Tool(take, name="take", input_schema=schema or open_schema, validate_input=False))
    return server, got


def shaped(**arguments: ArgumentShape) -> Shape:
    return Shape(tools={"take": ToolShape(arguments=arguments)})


# The text of `arguments` on the wire: each tries to give `root`, which nobody can give.
SPELLINGS = {
    "plain": '{"path": "p", "root": "/etc"}',
    "twice": '{"root": "/etc", "path": "p", "root": "/etc"}',
    "escaped": '{"path": "p", "\\u0072oot": "/etc"}',
    "other case": '{"path": "p", "ROOT": "/etc"}',
    "folded case": '{"path": "p", "roo\\u0054": "/etc"}',
    "full width": '{"path": "p", "\\uff52oot": "/etc"}',
    "blank": '{"path": "p", "root ": "/etc"}',
    "null byte": '{"path": "p", "root\\u0000": "/etc"}',
    "pointer": '{"path": "p", "/root": "/etc"}',
    "list": '{"path": "p", "root[]": ["/etc"]}',
    "proto": '{"path": "p", "__proto__": {"root": "/etc"}}',
    "null": '{"path": "p", "root": null}',
    "near": '{"path": "p", "rooot": "/etc"}',
    "nested": '{"path": "p", "arguments": {"root": "/etc"}}',
}


@pytest.mark.covers("GW-8.4")
@cases("kind", ["fixed", "hidden", "hidden default", "behind a gateway"])
@cases("spelling", SPELLINGS)
async def test_nobody_gives_a_withheld_argument_by_any_spelling(spelling: str, kind: str) -> None:
    server, got = taker()
    host: Server = Gateway("front") if kind == "behind a gateway" else Server("host")
    shape = {
        "fixed": FIXED,
        "hidden": HIDDEN,
        "hidden default": ArgumentShape(hidden=True, default="/srv"),
        "behind a gateway": FIXED,
    }[kind]
    if isinstance(host, Gateway):
        host.add("b", server, prefix="", shape=shaped(root=shape))
    else:
        host.mount(server, shape=shaped(root=shape))
    meta = (
        '{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}, '
        '"io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}}'
    )
    # The members of params may be spelled in other ways, too. The last call is as it should be.
    for member in (f'"arguments": {SPELLINGS[spelling]}', f'"Arguments": {SPELLINGS[spelling]}', '"arguments": {}'):
        params = f'{{"name": "take", {member}, "_meta": {meta}}}'
        await host.process(f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}')
    assert got
    assert all(each.get("root") == (None if kind == "hidden" else "/srv") for each in got)
    assert all(each.keys() <= {"root", "path"} for each in got)
    assert all(each.get("path") in (None, "p") for each in got)


@pytest.mark.covers("GW-8.4")
async def test_the_last_value_of_a_name_that_is_there_twice_is_the_one_that_is_checked_and_sent() -> None:
    server, got = taker()
    host = Server("host")
    host.mount(server, shape=shaped(root=FIXED))
    async with Client(host) as client:
        await client.call_tool("take", {"path": "p"})
    recorded = Recorded()
    async with behind(server, "memory", recorded) as target:
        gateway = Gateway("front")
        gateway.add("b", target, shape=shaped(root=FIXED))
        async with Client(gateway) as client:
            await client.call_tool("b_take", {"path": "p"})
    (sent,) = recorded.sent("tools/call")
    assert {name: sent["params"][name] for name in ("name", "arguments")} == {
        "name": "take",
        "arguments": {"path": "p", "root": "/srv"},
    }
    assert got == [{"path": "p", "root": "/srv"}] * 2


@pytest.mark.covers("GW-8.4")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_unknown_members_of_params_do_not_cross(over: str) -> None:
    server, got = taker()
    recorded = Recorded()
    async with behind(server, over, recorded) as target:
        gateway = Gateway("front")
        gateway.add("b", target, shape=shaped(root=FIXED))
        async with Client(gateway) as client:
            params = {"name": "b_take", "arguments": {"path": "p"}, "ARGUMENTS": {"root": "/etc"}, "Name": "other"}
            await client.request("tools/call", params)
    (sent,) = recorded.sent("tools/call")
    assert sent["params"].keys() <= {"name", "arguments", "_meta"}
    assert got == [{"path": "p", "root": "/srv"}]


@pytest.mark.covers("GW-8.4")
@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
async def test_headers_do_not_give_a_withheld_argument(era: str) -> None:
    back = Server("back")
    seen: list[tuple[str, Any]] = []

    @back.tool
    async def take(
        ctx: Context, region: Annotated[str, Header("Region")] = "none", zone: Annotated[str, Header("Zone")] = "z"
    ) -> str:
        seen.append((region, {name: value for name, value in ctx.headers.items() if name.startswith("mcp-param")}))
        return region

    for shape, region, header in ((ArgumentShape(fixed="eu"), "eu", "eu"), (HIDDEN, "none", None)):
        seen.clear()
        async with behind(back, "http") as target:
            gateway = Gateway("front")
            gateway.add("b", target, prefix="", revision=era, shape=shaped(region=shape))
            app = gateway.http_app()
            client = ModernClient(app, headers={"mcp-param-region": "us", "mcp-param-other": "x"})
            answer = await client.call("take", {})
            assert answer.json()["result"].get("isError") is not True
            await client.close()
            await app.stop()
        (got,) = seen
        assert got[0] == region
        assert got[1].get("mcp-param-region") == (header if era == "2026-07-28" else None)
        assert "mcp-param-other" not in got[1]


@pytest.mark.covers("GW-8.4")
@cases("revision", ["2025-11-25", "2026-07-28"])
@cases("remote", [False, True])
async def test_a_task_does_not_get_a_withheld_argument(revision: str, remote: bool) -> None:
    limits = Limits(task_poll=0.05)
    inner = Server("inner", limits=limits)

    @inner.tool(task="required")
    async def take(path: str, root: str = "none") -> str:
        return f"{root}/{path}"

    host: Server = Gateway("front", limits=limits) if remote else Server("host", limits=limits)
    if isinstance(host, Gateway):
        host.add("b", inner, prefix="", shape=shaped(root=FIXED))
    else:
        host.mount(inner, shape=shaped(root=FIXED))
    async with testing.connect(host, revision=revision) as (client, _):
        task = await client.call_tool_as_task("take", {"path": "p"})
        assert (await task.wait()).text == "/srv/p"
        result: Any = await client.call_tool_as_task("take", {"path": "p", "root": "/etc"})
        if not isinstance(result, ToolResult):
            result = await result.wait()
        assert result.is_error
        assert "Unknown argument" in result.text


@pytest.mark.covers("GW-8.4")
@cases("revision", REVISIONS[-2:])
@cases("remote", [False, True])
async def test_a_call_that_asks_keeps_its_fixed_argument(revision: str, remote: bool) -> None:
    inner = Server("inner")

    @inner.tool
    async def take(path: str, ctx: Context, root: str = "none") -> str:
        answer = await ctx.elicit("Really?", bool)
        return f"{root}/{path} {answer.data}"

    secret = "a secret of sixteen bytes or more"
    host: Server = Gateway("front", secret=secret) if remote else Server("host", secret=secret)
    if isinstance(host, Gateway):
        host.add("b", inner, prefix="", shape=shaped(root=FIXED, path=ArgumentShape(rename="file")))
    else:
        host.mount(inner, shape=shaped(root=FIXED, path=ArgumentShape(rename="file")))
    async with testing.connect(host, revision=revision, elicit=lambda *_: {"value": True}) as (client, _):
        assert (await client.call_tool("take", {"file": "p"})).text == "/srv/p True"


NESTED: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "Base": {
            "type": "object",
            "properties": {"root": {"type": "string"}, "n": {"$ref": "#/$defs/N"}},
            "required": ["root"],
        },
        "N": {"type": "integer"},
        "Unused": {"properties": {"root": {}}},
    },
    "allOf": [{"$ref": "#/$defs/Base"}, {"required": ["root", "path"]}],
    "properties": {"path": {"type": "string"}},
    "patternProperties": {"^r": {"type": "string"}},
    "additionalProperties": True,
    "dependentRequired": {"root": ["path"], "path": ["root"]},
    "not": {"required": ["root", "n"]},
    "default": {"root": "/"},
}

SCHEMAS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        {
            "$ref": "#/$defs/P",
            "$defs": {"P": {"type": "object", "properties": {"root": {}, "path": {}}, "required": ["root"]}},
        },
        {"root": HIDDEN},
        {"type": "object", "properties": {"path": {}}, "required": [], "additionalProperties": False},
    ),
    (
        {
            "type": "object",
            "properties": {"root": {"type": "string"}, "path": {"type": "string"}},
            "additionalProperties": True,
        },
        {"root": ArgumentShape(rename="path"), "path": ArgumentShape(rename="root")},
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "root": {"type": "string"}},
            "additionalProperties": False,
        },
    ),
    (
        {
            "type": "object",
            "properties": {"root": {}, "tree": {"$ref": "#"}},
            "oneOf": [{"required": ["root"]}, {"required": ["tree"]}],
        },
        {"root": HIDDEN},
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/original"}},
            "allOf": [{"anyOf": [{"required": []}, {"required": ["tree"]}]}],
            "additionalProperties": False,
            "$defs": {
                "original": {
                    "type": "object",
                    "properties": {"root": {}, "tree": {"$ref": "#/$defs/original"}},
                    "oneOf": [{"required": ["root"]}, {"required": ["tree"]}],
                }
            },
        },
    ),
]


@pytest.mark.covers("GW-8.3")
@cases(("schema", "shapes", "expected"), SCHEMAS)
def test_the_schema_is_rewritten_wherever_it_describes_arguments(
    schema: dict[str, Any], shapes: dict[str, ArgumentShape], expected: dict[str, Any]
) -> None:
    assert public_schema(schema, Arguments(argument_names(schema), shapes)) == expected


@pytest.mark.covers("GW-8.3")
async def test_no_part_of_a_schema_shows_a_withheld_argument() -> None:
    server, got = taker(NESTED)
    host = Server("host")
    host.mount(server, shape=shaped(root=FIXED))
    async with Client(host) as client:
        (tool,) = await client.list_tools()
        assert "root" not in json.dumps(tool.input_schema)
        assert set(tool.input_schema["properties"]) == {"path", "n"}
        assert not (await client.call_tool("take", {"path": "p", "n": 3})).is_error
        for wrong in ({"path": 1}, {"n": 3}, {"path": "p", "n": "x"}, {"path": "p", "rest": 1}):
            assert (await client.call_tool("take", wrong)).is_error
    assert got == [{"path": "p", "n": 3, "root": "/srv"}]


@cases(
    ("schema", "words"),
    [
        ({"$ref": "https://example.org/schema"}, "cannot be shaped"),
        ({"$ref": "#/$defs/None"}, "to nothing"),
        ({"$dynamicRef": "#x", "properties": {"root": {}}}, "dynamic"),
        ({"allOf": [{"$ref": "#"}], "properties": {"root": {}}}, "nested too deeply"),
    ],
)
def test_schemas_that_cannot_be_shaped_are_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(ServerError, match=words):
        public_schema(schema, Arguments(["root"], {"root": HIDDEN}))


async def test_numbers_keep_their_digits() -> None:
    recorded = Recorded()
    server, _ = taker({"type": "object", "properties": {"root": {}, "n": {}}})
    async with behind(server, "memory", recorded) as target:
        gateway = Gateway("front")
        gateway.add("b", target, prefix="", shape=shaped(root=FIXED))
        async with Client(gateway) as client:
            await client.call_tool("take", {"n": 1e300})
    (sent,) = recorded.sent("tools/call")
    assert sent["params"]["arguments"] == {"n": 1e300, "root": "/srv"}


async def test_arguments_that_are_nearly_right_are_read_as_meant() -> None:
    server = Server("s")

    @server.tool
    def take(count: int, root: str) -> str:
        return f"{root} {count}"

    host = Server("host")
    host.mount(server, shape=shaped(root=FIXED, count=ArgumentShape(rename="number")))
    async with Client(host) as client:
        assert (await client.call_tool("take", {"number": "3"})).text == "/srv 3"
        wrong = await client.call_tool("take", {"number": "three"})
        assert wrong.is_error
        assert "number" in str(wrong.text)
        assert "count" not in str(wrong.text)


def test_references_in_data_neither_move_nor_keep_definitions() -> None:
    data = {"$ref": "#/properties/a"}
    held = {"$ref": "#/$defs/Hidden"}
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "object", "default": data, "examples": [held]}},
        "$defs": {"Hidden": {"type": "integer"}},
    }
    public = public_schema(schema, Arguments(["a", "b"], {"a": HIDDEN}))
    assert public["properties"] == {"b": {"type": "object", "default": data, "examples": [held]}}
    assert "$defs" not in public
