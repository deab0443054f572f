"""A real FastAPI application as an API, read and called in this process."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from toolwire import Client, Server, testing
from toolwire.errors import ServerError, Unreachable
from toolwire.openapi import ALL, DescriptionError, openapi
from toolwire.types import REVISIONS


class Item(BaseModel):
    name: str
    price: float
    tags: list[str] = []


class Shop:
    """An application, and what happened to it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.app = FastAPI(title="Shop", version="2.0", lifespan=self._lifespan)
        items: dict[int, Item] = {}

        @self.app.post("/items", status_code=201, operation_id="addItem", tags=["items"])
        async def add_item(item: Item) -> dict[str, int]:
            """Add an item."""
            items[len(items) + 1] = item
            return {"id": len(items)}

        @self.app.get("/items/{item_id}", operation_id="getItem", tags=["items"])
        async def get_item(item_id: int) -> Item:
            if item_id not in items:
                raise HTTPException(404, "no such item")
            return items[item_id]

        @self.app.get("/state", operation_id="state")
        async def state(request: Request) -> dict[str, Any]:
            return {"counter": request.state.counter, "caller": dict(request.headers).get("authorization", "nobody")}

        @self.app.get("/picture", operation_id="picture", response_class=Response)
        async def picture() -> Response:
            return Response(b"\x89PNG", media_type="image/png")

        @self.app.get("/broken", operation_id="broken")
        async def broken() -> None:
            raise RuntimeError("a secret of the application")

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        self.events.append("started")
        yield {"counter": 7}
        self.events.append("stopped")


@pytest.mark.covers("OA-2.9")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_fastapi_application_is_a_server(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*arguments: Any) -> None:
        raise AssertionError("a socket was opened")

    shop = Shop()
    server = Server.from_asgi(shop.app, keep=ALL)
    assert (server.name, server.version) == ("Shop", "2.0")
    assert shop.events == []
    monkeypatch.setattr(socket.socket, "connect", no_socket)
    async with testing.connect(server, revision=revision) as (client, _):
        assert shop.events == ["started"]
        assert [each.name for each in await client.list_tools()] == ["addItem", "broken", "getItem", "picture", "state"]
        added = await client.call_tool("addItem", {"name": "tea", "price": 2.5})
        assert '"id":1' in added.text
        found = await client.call_tool("getItem", {"item_id": 1})
        assert not found.is_error
        assert '"tea"' in found.text
        missing = await client.call_tool("getItem", {"item_id": 2})
        assert missing.is_error and "getItem answered 404 Not Found" in missing.text and "no such item" in missing.text
        wrong = await client.call_tool("addItem", {"name": "tea"})
        assert wrong.is_error and "price" in wrong.text
        assert '{"counter":7,"caller":"nobody"}' in (await client.call_tool("state", {})).text
        (image,) = (await client.call_tool("picture", {})).content
        assert image.type == "image"
        broken = await client.call_tool("broken", {})
        assert broken.is_error and "secret" not in broken.text
    assert shop.events == ["started", "stopped"]


async def test_an_application_that_runs_elsewhere_keeps_its_lifespan() -> None:
    shop = Shop()
    server = Server("front").include(openapi(shop.app, keep="getItem", lifespan=False), prefix="shop")
    async with Client(server) as client:
        assert (await client.call_tool("shop_getItem", {"item_id": 9})).is_error
    assert shop.events == []


async def test_the_server_starts_and_stops_as_often_as_it_is_used() -> None:
    shop = Shop()
    server = Server.from_asgi(shop.app, keep="getItem")
    for _ in range(2):
        async with Client(server) as client:
            await client.call_tool("getItem", {"item_id": 9})
    assert shop.events == ["started", "stopped"] * 2


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """Serve a description, and know no lifespan."""
    assert scope["type"] == "http"
    body = b'{"openapi":"3.0.0","info":{"title":"","version":""},"paths":{"/x":{"get":{"responses":{}}}}}'
    is_description = scope["path"] == "/docs/api.json"
    await send({"type": "http.response.start", "status": 200 if is_description else 404, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def failing(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        return
    await plain(scope, receive, send)


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("no")


async def test_applications_without_a_lifespan_and_with_other_paths() -> None:
    server = Server.from_asgi(plain, keep=ALL, description_path="/docs/api.json")
    assert server.name == "api"
    async with Client(server) as client:
        assert "answered 404" in (await client.call_tool("get_x", {})).text
    with pytest.raises(Unreachable, match="the application did not start: no database"):
        async with Client(Server.from_asgi(failing, keep=ALL, description_path="/docs/api.json")):
            pass
    with pytest.raises(DescriptionError, match=r"the application answers 404 at /openapi\.json"):
        Server.from_asgi(plain)
    with pytest.raises(DescriptionError, match=r"the description of the application at /openapi\.json cannot be read"):
        Server.from_asgi(raising)
    with pytest.raises(ServerError, match=r"from_asgi\(\) takes an ASGI application, not str"):
        Server.from_asgi("api.yaml")  # type: ignore[arg-type]
