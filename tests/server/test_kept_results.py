"""Bytes and texts that are kept for their caller."""

from __future__ import annotations

from typing import Any

from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Client, Server
from toolwire.auth import ApiKeys, Principal
from toolwire.server.call import CURRENT
from toolwire.server.kept_results import KeptResult, KeptResults
from toolwire.server.policy import Policy
from toolwire.shape import Shape
from toolwire.stores import Stores
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
