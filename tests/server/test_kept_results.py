"""Bytes and texts that are kept for their caller."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Client, Context, Server, testing
from toolwire.auth import ApiKeys, Principal
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ProtocolError
from toolwire.server.call import CURRENT
from toolwire.server.kept_results import KeptResult, KeptResults
from toolwire.server.policy import Policy
from toolwire.shape import Shape
from toolwire.stores import MemoryKV, StoreFailed, Stores
from toolwire.types import CallToolResult, ResourceLink

KEYS = {
    "a-key-with-the-scope": Principal("alice", scopes=frozenset({"admin"})),
    "a-key-without-scopes": Principal("alice"),
}


async def test_bytes_stay_bytes_and_text_stays_text() -> None:
    kept = KeptResults("keeper")
    server = Server("keeper").add(KeptResult(kept.place))
    wholes: list[tuple[str | bytes, str]] = [
        (b"\x00\n\xff bytes\n", "image/png"),
        (b"", "application/octet-stream"),
        ("text bytes\n", "text/plain"),
        ("{}", "application/json\nx: 1"),
    ]

    @server.tool
    async def keep(number: int) -> CallToolResult:
        whole, mime_type = wholes[number]
        uri = await kept.keep(CURRENT.get(), whole, mime_type)
        assert uri is not None
        return CallToolResult(content=[ResourceLink(uri=uri, name="kept")])

    async with Client(server) as client:
        for number, (whole, mime_type) in enumerate(wholes):
            link = (await client.call_tool("keep", {"number": number})).content[0]
            assert isinstance(link, ResourceLink)
            (contents,) = await client.read_resource(link.uri)
            assert contents.mime_type == mime_type.replace("\n", " ")
            assert whole in (contents.text, contents.blob)
        assert await client.list_resource_templates() == []


def replica(stores: Stores, mount: Shape | None = None, **options: Any) -> Server:
    """Make a server that mounts another one, whose tool keeps its results."""
    kept = KeptResults("keeper")
    back = Server("keeper").add(KeptResult(kept.place))

    @back.tool(**options)
    async def keep(is_binary: bool) -> CallToolResult:
        uri = await kept.keep(CURRENT.get(), b"\xff" if is_binary else "text", "text/plain")
        assert uri is not None
        return CallToolResult(content=[ResourceLink(uri=uri, name="kept")])

    server = Server("front", auth=ApiKeys(KEYS), stores=stores, secret="s" * 40)
    return server.mount(back, "b", shape=mount)


async def keep_one(server: Server, is_binary: bool = False) -> str:
    app = server.http_app()
    client = ModernClient(app, headers={"authorization": "Bearer a-key-with-the-scope"})
    try:
        answer = (await client.call("b_keep", {"is_binary": is_binary})).json()
        return str(answer["result"]["content"][0]["uri"])
    finally:
        await client.close()
        await app.stop()


async def read_with(server: Server, key: str, uri: str) -> str:
    """Read an address; return "" for success, and the message of the error otherwise."""
    app = server.http_app()
    client = ModernClient(app, headers={"authorization": f"Bearer {key}"})
    try:
        answer = (await client.request("resources/read", {"uri": uri})).json()
        return str(answer["error"]["message"]) if "error" in answer else ""
    finally:
        await client.close()
        await app.stop()


@cases(
    "options, mount, refusal",
    [
        ({"scopes": ["admin"]}, None, "This needs the scope admin"),
        ({"visible_to": ["admin"]}, None, "Resource not found"),
        ({"visible_to": lambda who: "admin" in who.scopes}, None, "Resource not found"),
        ({}, Shape(scopes=["admin"]), "This needs the scope admin"),
        ({}, Shape(visible_to=["admin"]), "Resource not found"),
    ],
    ids=["scopes", "audience", "predicate", "scopes of the mount", "audience of the mount"],
)
async def test_kept_result_needs_what_its_tool_asked_for(options: Any, mount: Any, refusal: str) -> None:
    stores = Stores.memory()
    first, second = (replica(stores, mount, **options) for _ in range(2))
    for is_binary in (False, True):
        uri = await keep_one(first, is_binary)
        for server in (first, second):
            assert await read_with(server, "a-key-with-the-scope", uri) == ""
            assert await read_with(server, "a-key-without-scopes", uri) == refusal


async def test_kept_result_needs_the_scopes_of_its_tool_after_the_tool_is_gone() -> None:
    stores = Stores.memory()
    uri = await keep_one(replica(stores, scopes=["admin"]))
    later = Server("front", auth=ApiKeys(KEYS), stores=stores, secret="s" * 40)
    later.mount(Server("keeper").add(KeptResult(KeptResults("keeper").place)), "b")
    assert await read_with(later, "a-key-with-the-scope", uri) == ""
    assert await read_with(later, "a-key-without-scopes", uri) == "This needs the scope admin"


async def test_kept_result_is_hidden_when_the_predicate_turns_or_its_tool_is_gone() -> None:
    stores = Stores.memory()
    admits = True
    server = replica(stores, visible_to=lambda who: admits)
    uri = await keep_one(server)
    assert await read_with(server, "a-key-with-the-scope", uri) == ""
    open_now = replica(stores)
    later = Server("front", auth=ApiKeys(KEYS), stores=stores, secret="s" * 40)
    later.mount(Server("keeper").add(KeptResult(KeptResults("keeper").place)), "b")
    for each in (open_now, later):
        assert await read_with(each, "a-key-with-the-scope", uri) == "Resource not found"
    admits = False
    assert await read_with(server, "a-key-with-the-scope", uri) == "Resource not found"


async def test_kept_result_counts_the_scopes_that_others_imply() -> None:
    stores = Stores.memory()
    server = replica(stores, scopes=["read"])
    implying = Server(
        "front", auth=ApiKeys(KEYS), stores=stores, secret="s" * 40, policy=Policy(implies={"admin": ["read"]})
    )
    (mount,) = server.catalog.mounts
    implying.mount(mount.catalog.owner, "b")
    uri = await keep_one(implying)
    assert await read_with(implying, "a-key-with-the-scope", uri) == ""
    assert await read_with(implying, "a-key-without-scopes", uri) == "This needs the scope read"
    assert await read_with(server, "a-key-with-the-scope", uri) == "This needs the scope read"


class Failing(MemoryKV):
    """A store of which some values cannot be reached."""

    prefix = "nothing"

    async def get(self, key: str) -> bytes | None:
        if key.startswith(self.prefix):
            raise StoreFailed("The store redis://10.0.0.7:6379/0 cannot be used: it is not reached")
        return await super().get(key)

    async def put(self, key: str, *given: Any, **named: Any) -> Any:
        if key.startswith(self.prefix):
            raise StoreFailed("The store redis://10.0.0.7:6379/0 cannot be used: it is not reached")
        return await super().put(key, *given, **named)


def failing_stores() -> tuple[Failing, Stores]:
    kv, memory = Failing(), Stores.memory()
    return kv, Stores(kv, memory.log, memory.bus, memory.queue)


LATER = "not available now; try again later"


@cases("revision", ["2026-07-28", "2025-11-25"])
async def test_kept_result_is_said_to_be_there_later_while_the_store_is_away(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    kv, stores = failing_stores()
    async with Client(replica(stores), revision=revision) as client:
        link = (await client.call_tool("b_keep", {"is_binary": False})).content[0]
        assert isinstance(link, ResourceLink)
        kv.prefix = "kept-results/"
        with pytest.raises(ProtocolError, match=LATER) as refused:
            await client.read_resource(link.uri)
        assert refused.value.data == {"retryAfterMs": 1000}
        assert "redis" not in str(refused.value) and "error id" not in str(refused.value)
        assert "redis" in caplog.text
        kv.prefix = "nothing"
        (contents,) = await client.read_resource(link.uri)
        assert contents.text == "text"


async def test_kept_result_of_an_upstream_is_said_to_be_there_later_while_the_store_is_away() -> None:
    kv, stores = failing_stores()
    back, secret = replica(Stores.memory()), "a secret of at least sixteen bytes"
    one, two = (
        Gateway("front", stores=stores, secret=secret).add("b", back, policy=Policy(mask=["secret"])) for _ in range(2)
    )
    async with Client(one) as first, Client(two) as second:
        link = (await first.call_tool("b_b_keep", {"is_binary": False})).content[0]
        assert isinstance(link, ResourceLink)
        await second.list_tools()
        kv.prefix = "toolwire:judgement:"
        with pytest.raises(ProtocolError, match=LATER):
            await second.read_resource(link.uri)
        kv.prefix = "nothing"
        (contents,) = await second.read_resource(link.uri)
        assert contents.text == "text"


@cases("part", ["asking", "answering"])
async def test_question_with_much_to_carry_is_asked_later_while_the_store_is_away(part: str) -> None:
    kv, stores = failing_stores()
    server, ran = Server("asking", stores=stores), []

    @server.tool
    async def sign(ctx: Context) -> str:
        text = await ctx.step("long", lambda: "x" * 40_000)
        named = await ctx.elicit("Your name?", str)
        ran.append(named.data)
        return f"{len(text)} {named.data}"

    async with testing.connect(server, elicit=lambda message, params: {"value": "Anna"}) as (client, _):
        call: dict[str, Any] = {"name": "sign", "arguments": {}}
        kinds = ["complete", "input_required"]
        if part == "asking":
            kv.prefix = "toolwire:state:"
            with pytest.raises(ProtocolError, match="The questions of this call cannot be kept now; try again later"):
                await client.request("tools/call", call, result_types=kinds)
            kv.prefix = "nothing"
        asked = await client.request("tools/call", call, result_types=kinds)
        answers = {key: {"action": "accept", "content": {"value": "Anna"}} for key in asked["inputRequests"]}
        again = {**call, "requestState": asked["requestState"], "inputResponses": answers}
        kv.prefix = "toolwire:state:" if part == "answering" else "nothing"
        if part == "answering":
            with pytest.raises(ProtocolError, match="The answers cannot be taken now; try again later"):
                await client.request("tools/call", again, result_types=kinds)
            assert ran == []
            kv.prefix = "nothing"
        done = await client.request("tools/call", again, result_types=kinds)
        assert done["content"][0]["text"] == "40000 Anna"
