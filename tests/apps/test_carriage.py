"""Views on their way to a host: mounts, clients of several servers and gateways change nothing, or all together."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.apps.test_served import HOST, MIME, PAGE, TOOL_META, VIEW_UI, asking, reached, shop
from tests.cases import cases
from tests.gateway.backs import behind, until
from tests.httpwire import connect_http
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Client, Context, Server, ToolResult
from toolwire.apps import Page
from toolwire.gateway import Gateway
from toolwire.gateway.upstream_options import UpstreamRules
from toolwire.protocol.errors import ServerError
from toolwire.shape import Shape, ToolShape
from toolwire.types import EmbeddedResource, ResourceContents, ResourceLink

URI = "ui://shop/orders.html"
KEYS = ("ui/resourceUri", "openai/outputTemplate")
OVER = ("memory", "http")


def store(says: str, *, listed: bool = True) -> Server:
    """Make a server that names the address of its view wherever the protocol has addresses."""
    server = Server("shop")
    orders = server.app(Page("orders.html", f"<p>{says}</p>"), openai=True, listed=listed)

    @server.tool(app=orders)
    async def show() -> ToolResult:
        link = ResourceLink(uri=URI, name="view")
        inside = EmbeddedResource(resource=ResourceContents(uri=URI, text=says))
        meta = {"ui": {"resourceUri": URI}, **dict.fromkeys(KEYS, URI)}
        return ToolResult(content=[link, inside, f"see {URI}"], structured={"view": URI}, meta=meta)

    @server.resource("ui://shop/pages/{name}", mime_type=MIME)
    def pages(name: str) -> str:
        return f"<p>{says} {name}</p>"

    return server


@asynccontextmanager
async def both(way: str, over: str, revision: str, *servers: Server) -> AsyncIterator[Client]:
    """Yield a client of two servers, `a` and `b`, through its own gateway or another one."""
    async with AsyncExitStack() as stack:
        targets = {
            name: await stack.enter_async_context(behind(server, over))
            for name, server in zip(("a", "b"), servers, strict=True)
        }
        if way == "several":
            yield await stack.enter_async_context(Client(targets, revision=revision))
            return
        gateway = Gateway("front")
        for name, target in targets.items():
            gateway.add(name, target, revision=revision)
        front = await stack.enter_async_context(behind(gateway, over))
        yield await stack.enter_async_context(Client(front, revision=revision))


@pytest.mark.covers("APP-9.2")
@cases(("way", "over", "revision"), list(itertools.product(("several", "gateway"), OVER, REVISIONS)))
async def test_an_address_that_two_views_have_is_rewritten_everywhere(way: str, over: str, revision: str) -> None:
    servers = store("first"), store("second")
    async with both(way, over, revision, *servers) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        listed = {each.uri: each for each in await client.list_resources()}
        templates = [each.uri_template for each in await client.list_resource_templates()]
        for name, inside, says in (("a", "", "first"), ("b", "b/", "second")):
            uri, page = f"ui://{inside}shop/orders.html", f"ui://{inside}shop/pages/1"
            assert listed[uri].mime_type == MIME
            assert f"ui://{inside}shop/pages/{{name}}" in templates
            for address, text in ((uri, f"<p>{says}</p>"), (page, f"<p>{says} 1</p>")):
                (contents,) = await client.read_resource(address)
                assert (contents.uri, contents.mime_type) == (address, MIME)
                assert str(contents.text).endswith(text)
            meta = tools[f"{name}_show"].meta
            assert meta["ui"]["resourceUri"] == uri
            assert [meta[key] for key in KEYS] == [uri, uri]
            result = await client.call_tool(f"{name}_show")
            shown = [each.to_dict() for each in result.content]
            assert revision < "2025-06-18" or shown[0]["uri"] == uri
            assert shown[1]["resource"]["uri"] == uri
            # Texts and values are the server's, and are left alone.
            assert shown[-1]["text"] == f"see {URI}"
            assert revision < "2025-06-18" or result.structured == {"view": URI}
            if revision >= "2025-06-18":
                assert result.meta["ui"]["resourceUri"] == uri
                assert [result.meta[key] for key in KEYS] == [uri, uri]
            view = await client.apps.open(f"{name}_show")
            assert (view.uri, f"<p>{says}</p>" in view.html) == (uri, True)


@cases("way", ["mounted", "gateway"])
@cases("name", ["present", "new_show"])
async def test_a_view_finds_its_tools_when_its_own_is_renamed(way: str, name: str) -> None:
    shape = Shape(tools={"show": ToolShape(rename=name)})
    front: Server = Server("front") if way == "mounted" else Gateway("front")
    if isinstance(front, Gateway):
        front.add("shop", store("first"), shape=shape)
    else:
        front.mount(store("first"), prefix="shop", shape=shape)
    async with Client(front) as client:
        (tool,) = await client.list_tools()
        # What is left of the name is the prefix of all tools of that server.
        assert tool.name.removesuffix(tool.meta["io.toolwire/name"]) == "shop_"


@pytest.mark.covers("APP-9.2")
@cases(("way", "revision"), list(itertools.product(("several", "gateway"), ("2025-06-18", MODERN))))
async def test_updates_of_views_are_told_under_their_addresses(way: str, revision: str) -> None:
    servers = store("first"), store("second")
    uris = [URI, "ui://b/shop/orders.html"]
    async with both(way, "memory", revision, *servers) as client, client.listen(resources=uris) as changes:
        told = aiter(changes)
        for server, uri in zip(reversed(servers), reversed(uris), strict=True):
            server.notify_updated(URI)
            assert (await anext(told)).uri == uri


@pytest.mark.covers("APP-9.2")
@cases(("way", "over", "revision"), list(itertools.product(("several", "gateway"), OVER, REVISIONS)))
async def test_views_in_no_list_do_not_stand_in_for_each_other(way: str, over: str, revision: str) -> None:
    async with both(way, over, revision, store("first", listed=False), store("second", listed=False)) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        for name, uri, says in (("a", URI, "first"), ("b", "ui://b/shop/orders.html", "second")):
            assert tools[f"{name}_show"].meta["ui"]["resourceUri"] == uri
            (contents,) = await client.read_resource(uri)
            assert (contents.uri, contents.text[-len(says) - 4 :]) == (uri, f"{says}</p>")


async def test_a_view_in_no_list_is_read_at_its_server_among_many() -> None:
    gateway = Gateway("front")
    asked: list[str] = []
    for number in range(12):
        back = Server("back")
        back.resource("ui://other/{name}")(lambda name: name)

        @back.use
        async def watch(ctx: Context, call_next: Any) -> Any:
            if ctx.method == "resources/read":
                asked.append("another one")
            return await call_next(ctx)

        gateway.add(f"x{number}", back)
    gateway.add("b", store("it", listed=False))
    async with Client(gateway) as client:
        (contents,) = await client.read_resource(URI)
        assert str(contents.text).endswith("<p>it</p>")
    assert asked == []


# --- a process of its own ---

FILE = """
from toolwire import Server
from toolwire.apps import Csp, Page

server = Server("shop")
orders = server.app(
    Page("orders.html", "<!doctype html><title>Orders</title><p>\u00e4 \u2028 </p>"),
    csp=Csp(connect=["https://api.shop.example"]),
    permissions=["clipboardWrite"],
    prefers_border=False,
)
server.tool(name="show_orders", app=orders, structured=False)(lambda: "3 orders")
orders.tool("cancel")(lambda: "cancelled")
"""


@pytest.mark.covers("APP-9.2")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_view_of_a_process_is_the_same(revision: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(FILE, encoding="utf-8")
    gateway = Gateway("front").add("b", file, revision=revision)
    for target, prefix in ((file, ""), (gateway, "b_")):
        async with Client(target, revision=revision, extensions=HOST["extensions"]) as client:
            tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
            meta = tools[f"{prefix}show_orders"]["_meta"]
            assert json.dumps({key: meta[key] for key in TOOL_META}) == json.dumps(TOOL_META)
            assert tools[f"{prefix}cancel"]["_meta"]["ui"] == {"resourceUri": URI, "visibility": ["app"]}
            (listed,) = (await client.request("resources/list"))["resources"]
            (read,) = (await client.request("resources/read", {"uri": URI}))["contents"]
            for entry in (listed, read):
                assert (entry["uri"], entry["mimeType"]) == (URI, MIME)
                assert json.dumps(entry["_meta"]["ui"]) == json.dumps(VIEW_UI)
            assert read["text"].endswith(PAGE.html[15:])


# --- in one process ---


@pytest.mark.covers("APP-9.2")
def test_two_pages_with_one_address_are_not_mounted_together() -> None:
    front = Server("front").mount(store("first"), "a")
    with pytest.raises(ServerError, match=r"Two servers in 'front' have the view ui://shop/orders\.html"):
        front.mount(store("second"), "b")
    # The same page is no conflict.
    front.mount(store("first"), "c")
    later = Server("shop")
    Server("outermost").mount(front, "d")
    front.mount(later, "e")
    with pytest.raises(ServerError, match="with different pages"):
        later.app(Page("orders.html", "<p>third</p>"))
    later.app(Page("orders.html", "<p>third</p>"), uri="ui://shop/third.html")


# --- point 9.7: the text for a model does not depend on the host ---


@pytest.mark.covers("APP-9.7")
@cases(("way", "revision"), list(itertools.product(("mounted", "gateway"), REVISIONS)))
async def test_the_answer_is_the_same_for_a_client_without_the_extension(way: str, revision: str) -> None:
    answers = []
    async with behind(shop(), "memory") as target:
        for capabilities in ({}, HOST):
            front = Gateway("front").add("b", target, revision=revision) if way == "gateway" else Server("front")
            if way == "mounted":
                front.mount(shop(), "b")
            async with connect(front, revision, capabilities) as client:
                await client.call("b_show_orders", {"month": "May"})
                answers.append(client.lines[-1])
    assert answers[0] == answers[1]
    assert b'"text":"{\\"orders\\":3}"' in answers[0]


@pytest.mark.covers("APP-9.7")
@cases("revision", REVISIONS)
async def test_the_answer_of_one_of_several_servers_is_the_same_without_the_extension(revision: str) -> None:
    results = []
    for extensions in (None, HOST["extensions"]):
        async with Client({"a": Server("a"), "b": shop()}, revision=revision, extensions=extensions) as client:
            results.append(await client.request("tools/call", {"name": "b_show_orders", "arguments": {"month": "May"}}))
    assert results[0] == results[1]


@pytest.mark.covers("APP-2.1")
@cases(("way", "over"), list(itertools.product(("direct", "mounted", "several", "gateway"), OVER)))
@cases("revision", ["2025-11-25", MODERN])
async def test_a_server_is_told_that_the_client_shows_views(way: str, over: str, revision: str) -> None:
    async with reached(way, "stdio" if over == "memory" else over, revision) as ask:
        prefix = "" if way == "direct" else "b_"
        result = await ask("tools/call", {"name": f"{prefix}cancel", "arguments": {"order_id": 1}})
        assert result["content"][0]["text"] == "true"


# --- point 9.8: ping ---


@pytest.mark.covers("APP-9.8")
@cases("over", ["stdio", "http"])
@cases("back", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_gateway_answers_pings_of_hosts_on_2026_07_28(back: str, over: str) -> None:
    # A server before 2025-11-25 cannot say that it has views, so that nobody expects them.
    answered = back >= "2025-11-25"
    async with behind(shop(), "memory") as target:
        gateway = Gateway("front").add("b", target, revision=back)
        async with asking(gateway, over, MODERN) as ask:
            if answered:
                assert await ask("ping", {}) == {}
            else:
                with pytest.raises(AssertionError, match="-32601"):
                    await ask("ping", {})
        for capabilities in ({}, {"extensions": {"com.example/x": {}}}):
            async with connect(gateway, MODERN, capabilities) as client:
                assert (await client.error("ping"))["code"] == -32601


@pytest.mark.covers("APP-9.8")
async def test_a_gateway_answers_404_to_all_other_pings() -> None:
    gateway = Gateway("front").add("b", shop())
    app = gateway.http_app()
    async with connect_http(app, MODERN, HOST) as client:
        line: Any = client.channel
        for capabilities in (HOST, {}):
            client.capabilities = dict(capabilities)
            await client.request("ping")
        answered = gateway.fronts.front.settings
        gateway.apply_settings(replace(answered, rules=UpstreamRules(answers_pings=False)))
        client.capabilities = HOST
        assert (await client.error("ping"))["code"] == -32601
        gateway.apply_settings(answered)
        assert await client.result("ping") == {}
        assert [answer.status for answer in line.answers] == [200, 404, 404, 200]
    await app.stop()


@pytest.mark.covers("APP-9.8")
@pytest.mark.parametrize("way", ["mounted", "gateway"])
async def test_pings_can_be_refused_through_others(way: str) -> None:
    if way == "mounted":
        inner = Server("inner")
        inner.app(PAGE, ping=False)
        front = Server("front").mount(inner, "b")
    else:
        front = Gateway("front", ping=False).add("b", shop())
    async with connect(front, MODERN, HOST) as client:
        assert (await client.error("ping"))["code"] == -32601


async def test_a_gateway_without_views_refuses_pings() -> None:
    gateway = Gateway("front").add("b", Server("plain"))
    async with connect(gateway, MODERN, HOST) as client:
        assert (await client.error("ping"))["code"] == -32601
        gateway.add("c", shop())
        await until(lambda: "extensions" in gateway.capabilities())
        assert await client.result("ping") == {}
