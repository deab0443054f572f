"""The front of a gateway is never changed: a change makes another one."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire import Server, testing
from toolwire.gateway import Gateway
from toolwire.gateway.front import Front
from toolwire.openapi import openapi
from toolwire.protocol.errors import ServerError

PETS = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.example"}],
    "paths": {"/pets": {"get": {"operationId": "list", "responses": {"200": {"description": "all"}}}}},
}


def server(name: str) -> Server:
    made = Server(name)

    @made.tool
    def who() -> str:
        return name

    return made


def gateway(*names: str) -> Gateway:
    made = Gateway("gateway")
    for name in names:
        made.add(name, server(name))
    return made


def test_front_cannot_be_changed() -> None:
    front: Any = gateway("a").fronts.front
    with pytest.raises(TypeError):
        front.entries["b"] = front.entries["a"]
    with pytest.raises(AttributeError):
        front.entries = {}


def test_change_makes_another_front_and_keeps_the_other_upstreams() -> None:
    made = gateway("a", "b")
    before = made.fronts.front
    upstreams = before.upstreams
    made.remove("a").add("c", server("c"))
    assert list(before.entries) == ["a", "b"]
    assert list(made.fronts.front.entries) == ["b", "c"]
    assert made.fronts.front.entries["b"] is upstreams["b"]


def test_order_puts_entries_without_a_place_last() -> None:
    front = gateway("a", "b", "c").fronts.front
    assert list(front.in_order(["c", "unknown", "b"]).entries) == ["c", "b", "a"]
    assert list(Front(front.settings).in_order(["a"]).entries) == []


async def test_server_that_comes_between_two_others_is_listed_between_them() -> None:
    made = gateway("a", "b")
    async with testing.connect(made) as (client, _):
        made.add("c", server("c"))
        made.arrange(["a", "c", "b"])
        assert list(made.backs) == ["a", "c", "b"]
        assert [mount.prefix for mount in made.catalog.mounts] == ["a_", "c_", "b_"]
        await made.replace("c", server("d"))
        assert [mount.prefix for mount in made.catalog.mounts][:3] == ["a_", "c_", "b_"]
        assert (await client.call_tool("c_who")).content[0].text == "d"  # type: ignore[union-attr]


def test_api_that_cannot_be_offered_is_not_in_the_front() -> None:
    made, api = gateway("a"), openapi(PETS)
    made.add("pets", api)
    with pytest.raises(ServerError, match="includes the API 'Pets' already"):
        made.add("more", api)
    assert list(made.fronts.front.entries) == list(made.backs) == ["a", "pets"]
