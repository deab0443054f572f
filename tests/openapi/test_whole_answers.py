"""Answers of a stub API on a real port, through `openapi()` and a server: what contradicts, and what is too large."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.answering import link_in, said
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Reply, json_reply, stub_api

from toolwire import Client, Server, testing
from toolwire.openapi import openapi
from toolwire.types import REVISIONS

CAT = {"id": 7, "name": "Tom", "tag": "cat"}
CONTRADICTIONS: dict[str, tuple[Reply, str]] = {
    "missing required": (json_reply({"name": "Tom"}), '{"name": "Tom"}'),
    "null": (json_reply({**CAT, "name": None}), '"name": null'),
    "extra": (json_reply({**CAT, "age": 3}), '"age": 3'),
    "wrong type": (json_reply({**CAT, "id": "seven"}), '"seven"'),
    "another value of an enum": (json_reply({**CAT, "tag": "emu"}), '"emu"'),
    "a list": (json_reply([CAT]), '[{"id": 7'),
    "a number": (json_reply(7), "7"),
    "null alone": (json_reply(None), "null"),
    "HTML with 200": (Reply(200, b"<html>Sign in</html>", "text/html"), "<html>Sign in</html>"),
    "no JSON": (Reply(200, b"{broken", "application/json"), "{broken"),
    "text": (Reply(200, b"a cat", "text/plain"), "a cat"),
    "nothing": (Reply(200, b"", "application/json"), "showPet succeeded (200)"),
    "204": (Reply(204, b"", None), "showPet succeeded (204)"),
}


@pytest.mark.covers("OA-5.9")
@cases("revision", REVISIONS)
async def test_answers_that_contradict_the_document_are_usable(revision: str) -> None:
    """The client checks structured content against the published schema, and would raise."""
    async with stub_api() as stub:
        server = Server("shop").include(openapi(petstore(), keep="showPet", base_url=stub.url))
        async with testing.connect(server, revision=revision) as (client, _):
            await client.list_tools()
            for label, (reply, text) in CONTRADICTIONS.items():
                stub.answers(reply)
                result = await client.call_tool("showPet", {"petId": "7"})
                assert not result.is_error, label
                assert text in result.text, label


@cases("revision", REVISIONS)
async def test_answer_nested_too_deep_is_not_lost(revision: str) -> None:
    async with stub_api() as stub:
        description = petstore()
        server = Server("shop").include(openapi(description, keep="showPet", base_url=stub.url))
        async with testing.connect(server, revision=revision) as (client, _):
            await client.list_tools()
            for depth in (126, 127, 500, 900):
                body = '{"id": 7, "name": "Tom", "more": ' + "[" * depth + "]" * depth + "}"
                stub.answers(Reply(200, body.encode(), "application/json"))
                result = await client.call_tool("showPet", {"petId": "7"})
                assert not result.is_error
                assert '"name": "Tom"' in result.text
                assert "nested more than" in said(result)
                assert (result.meta or {})["io.toolwire/left-out"] == [""]


class Endless:
    """An API whose answer is as large as a test wants, and which notices how much of it was taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {self.size}\r\n\r\n"
        writer.write(head.encode() + b'{"items":[')
        row = json.dumps(CAT).encode() + b","
        piece = row * (64 * 1024 // len(row))
        try:
            while self.taken < self.size:
                writer.write(piece)
                await writer.drain()
                self.taken += len(piece)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def endless(size: int) -> AsyncIterator[Endless]:
    api = Endless(size)
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield api


@pytest.mark.parametrize("is_bridge", [False, True])
async def test_the_next_page_is_told_with_the_name_that_the_model_knows(is_bridge: bool) -> None:
    described = petstore()
    described["paths"]["/pets"]["get"]["parameters"].append({"name": "page", "in": "query", "schema": {}})
    async with stub_api() as stub:
        stub.answers(json_reply([CAT] * 2, link='</pets?page=2>; rel="next"'))
        shape: Any = "bridge" if is_bridge else "tools"
        made = openapi(described, keep="listPets", base_url=stub.url, shape=shape)
        async with Client(Server("shop").include(made, prefix="pets")) as client:
            if is_bridge:
                result = await client.call_tool("pets_call_operation", {"operation": "listPets"})
                assert "call listPets with the same arguments" in said(result)
            else:
                result = await client.call_tool("pets_listPets", {})
                assert "call pets_listPets with the same arguments" in said(result)


@pytest.mark.covers("OA-5.16")
async def test_50_megabytes_under_a_cap_of_2_leave_the_memory_flat() -> None:
    described: dict[str, Any] = petstore()
    described["paths"]["/pets/{petId}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"] = {}
    async with endless(50_000_000) as api:
        made = openapi(described, keep="showPet", base_url=api.url, max_bytes=2_000_000, max_tokens=1_000)
        async with Client(Server("shop").include(made)) as client:
            await client.list_tools()
            tracemalloc.start()
            try:
                result = await client.call_tool("showPet", {"petId": "7"})
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert not result.is_error
            assert json.loads(result.content[0].text)["items"][0] == CAT
            assert "more than 2,000,000 bytes, of 50,000,000" in said(result)
            link = link_in(result)
            (kept,) = await client.read_resource(link.uri)
            assert len(str(kept.text)) == 2_000_000
    # The part that is kept, as bytes and as text, and nothing near the whole.
    assert peak < 25_000_000
    assert api.taken < 20_000_000
