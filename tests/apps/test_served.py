"""Apps on a server: `_meta` on every revision and way, registration, answers, reloads, `ping`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import behind
from tests.httpwire import connect_http
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Client, Context, Server, Tool
from toolwire.apps import App, Csp, Page, claude_domain
from toolwire.auth import ResourceServer
from toolwire.auth.principal import Principal
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ServerError
from toolwire.protocol.upstreams import UPSTREAM_KEY
from toolwire.server.hot_reload import Stage
from toolwire.types import CallToolResult, TextContent

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
HOST = {"extensions": {UI: {"mimeTypes": [MIME]}}}
URI = "ui://shop/orders.html"
PAGE = Page("orders.html", "<!doctype html><title>Orders</title><p>ä \u2028 </p>")
#: What hosts find, in the order and form in which every server, mount and gateway has to send it.
TOOL_META = {
    "ui": {"resourceUri": URI, "visibility": ["model", "app"]},
    "ui/resourceUri": URI,
    "io.toolwire/name": "show_orders",
}
VIEW_UI = {
    "csp": {"connectDomains": ["https://api.shop.example"]},
    "permissions": {"clipboardWrite": {}},
    "prefersBorder": False,
}

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def shop(**options: Any) -> Server:
    server = Server("shop", **options)
    orders = server.app(
        PAGE, csp=Csp(connect=["https://api.shop.example"]), permissions=["clipboardWrite"], prefers_border=False
    )

    @server.tool(app=orders)
    async def show_orders(month: str, ctx: Context) -> dict[str, int]:
        return {"orders": len(month)}

    @orders.tool
    async def cancel(order_id: int, ctx: Context) -> bool:
        return ctx.client_renders_apps

    return server


# --- five revisions, two transports, four ways ---


@asynccontextmanager
async def asking(server: Server, over: str, revision: str) -> AsyncIterator[Ask]:
    if over == "stdio":
        async with connect(server, revision, HOST) as client:
            yield client.result
    else:
        app = server.http_app()
        async with connect_http(app, revision, HOST) as client:
            yield client.result
        await app.stop()


@asynccontextmanager
async def reached(way: str, over: str, revision: str) -> AsyncIterator[Ask]:
    if way == "direct":
        async with asking(shop(), over, revision) as ask:
            yield ask
    elif way == "mounted":
        async with asking(Server("front").mount(shop(), "b"), over, revision) as ask:
            yield ask
    elif way == "gateway":
        async with behind(shop(), "memory" if over == "stdio" else "http") as target:
            gateway = Gateway("front")
            gateway.add("b", target, revision=revision)
            async with asking(gateway, over, revision) as ask:
                yield ask
    else:
        async with AsyncExitStack() as stack:
            back = "memory" if over == "stdio" else "http"
            targets = {
                "b": await stack.enter_async_context(behind(shop(), back)),
                "c": await stack.enter_async_context(behind(Server("other"), back)),
            }
            client = await stack.enter_async_context(Client(targets, revision=revision, extensions=HOST["extensions"]))
            yield client.request


@pytest.mark.pairwise
@pytest.mark.covers("APP-9.2", "APP-3.1", "APP-3.3")
@pytest.mark.parametrize("way", ["direct", "mounted", "several", "gateway"])
@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_view_is_the_same_everywhere(revision: str, over: str, way: str) -> None:
    async with reached(way, over, revision) as ask:
        tools = {tool["name"].removeprefix("b_"): tool for tool in (await ask("tools/list", {}))["tools"]}
        # As texts, because the order of members counts, too.
        upstream = {UPSTREAM_KEY: {"servers": ["b"], "name": "show_orders"}} if way == "gateway" else {}
        assert json.dumps(tools["show_orders"]["_meta"]) == json.dumps({**TOOL_META, **upstream})
        assert tools["cancel"]["_meta"]["ui"] == {"resourceUri": URI, "visibility": ["app"]}
        assert tools["cancel"]["_meta"]["ui/resourceUri"] == URI
        (listed,) = (await ask("resources/list", {}))["resources"]
        (read,) = (await ask("resources/read", {"uri": URI}))["contents"]
        for entry in (listed, read):
            assert (entry["uri"], entry["mimeType"]) == (URI, MIME)
            assert json.dumps(entry["_meta"]["ui"]) == json.dumps(VIEW_UI)
        upstream = {UPSTREAM_KEY: {"servers": ["b"]}} if way == "gateway" else {}
        assert listed["_meta"] == {**read["_meta"], **upstream}
        assert read["text"].endswith(PAGE.html[15:])
        assert listed["size"] == len(read["text"].encode())


@cases("revision", REVISIONS)
async def test_members_of_meta_that_are_not_of_views_wait_for_their_revision(revision: str) -> None:
    server = Server("s")
    server.tool(name="plain", meta={"com.example/a": 1})(lambda: "x")
    server.tool(name="both", meta={"com.example/a": 1, "ui": {"visibility": ["app"]}})(lambda: "x")
    async with connect(server, revision) as client:
        metas = [tool.get("_meta") for tool in (await client.result("tools/list"))["tools"]]
    others = {} if revision < "2025-06-18" else {"com.example/a": 1}
    assert metas == [{**others, "ui": {"visibility": ["app"]}}, others or None]


# --- answers ---


@pytest.mark.covers("APP-9.7")
@cases("revision", REVISIONS)
async def test_a_client_without_the_extension_gets_the_same_text(revision: str) -> None:
    texts = []
    for capabilities in ({}, HOST):
        async with connect(shop(), revision, capabilities) as client:
            await client.call("show_orders", {"month": "May"})
            texts.append(client.lines[-1])
    assert texts[0] == texts[1]
    assert b'"text":"{\\"orders\\":3}"' in texts[0]


@pytest.mark.covers("APP-2.2", "APP-8A.13")
@cases(
    ("capabilities", "renders"),
    [
        (HOST, True),
        ({"extensions": {UI: {"mimeTypes": ['Text/HTML ; charset=utf-8; Profile="MCP-App"']}}}, True),
        ({"extensions": {UI: {"mimeTypes": ["text/html+mcp", "text/html"]}}}, False),
        ({"extensions": {UI: {"mimeTypes": MIME}}}, False),
        ({"extensions": {UI: {}}}, False),
        ({"extensions": {UI: 7}}, False),
        ({"extensions": {}}, False),
        ({}, False),
    ],
)
async def test_handlers_know_whether_the_client_shows_views(capabilities: dict[str, Any], renders: bool) -> None:
    for revision in ("2025-11-25", MODERN):
        async with connect(shop(), revision, capabilities) as client:
            result = await client.call("cancel", {"order_id": 1})
            assert result["content"][0]["text"] == str(renders).lower()


@pytest.mark.covers("APP-2.3")
async def test_a_server_declares_the_extension_once_it_has_a_view() -> None:
    assert "extensions" not in Server("s").capabilities()
    server = shop()
    for revision in ("2025-11-25", MODERN):
        assert server.capabilities(revision)["extensions"] == {UI: {}}
        assert "resources" in server.capabilities(revision)
    both = Server("front").mount(server, "a").mount(shop(), "b")
    assert both.capabilities()["extensions"] == {UI: {}}


async def test_an_extension_that_the_program_declared_stays() -> None:
    server = Server("s")
    server.extension(UI, {"com.example/x": 1}, needs_client=False)
    server.app(PAGE)
    assert server.capabilities()["extensions"] == {UI: {"com.example/x": 1}}


@pytest.mark.covers("APP-8A.3", "APP-3.3")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_page_is_encoded_once_and_middleware_sees_objects(revision: str) -> None:
    seen = []

    async def look(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "resources/read":
            seen.append(result.contents[0].text)
        return result

    answers = []
    for options in ({}, {"middleware": look}):
        async with connect(shop(**options), revision) as client:
            answers.append(await client.result("resources/read", {"uri": URI}))
            answers.append(await client.result("resources/read", {"uri": URI}))
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert seen == [answers[0]["contents"][0]["text"]] * 2
    assert (await shop().read_resource(URI))[0].text == seen[0]
    if revision == MODERN:
        assert answers[0]["ttlMs"] >= 3_600_000
        assert answers[0]["cacheScope"] == "public"


@pytest.mark.covers("APP-8A.3")
async def test_a_view_for_some_callers_is_private() -> None:
    server = Server("s")
    server.app(PAGE, uri="ui://s/a", scopes="orders")
    async with connect(server, MODERN, principal=Principal("u", scopes={"orders"})) as client:
        assert (await client.result("resources/read", {"uri": "ui://s/a"}))["cacheScope"] == "private"
    async with connect(server, MODERN, principal=Principal("v")) as client:
        assert "error" in await client.request("resources/read", {"uri": "ui://s/a"})


@pytest.mark.covers("APP-3.6")
async def test_a_view_may_be_in_no_list() -> None:
    server = Server("s")
    server.app(PAGE, listed=False)
    async with connect(server, MODERN) as client:
        assert (await client.result("resources/list"))["resources"] == []
        assert (await client.result("resources/read", {"uri": "ui://s/orders.html"}))["contents"]


# --- registration ---


@pytest.mark.covers("APP-3.4")
def test_options_become_meta() -> None:
    server = Server("Shop & Co.")
    app = server.app(
        PAGE, domain="a.example", openai=True, meta={"com.example/x": 1, "ui": {"later": True}}, title="T", name="n"
    )
    assert app.uri == "ui://shop-co/orders.html"
    view = server.catalog.resources[app.uri]
    assert isinstance(view.meta, dict)
    assert view.meta["ui"] == {"later": True, "domain": "a.example"}
    assert view.meta["com.example/x"] == 1
    assert view.meta["io.toolwire/digest"] == view.digest
    assert (view.name, view.title) == ("n", "T")

    @server.tool(app=app, visibility=["app", "model"], meta={"com.example/y": 2, "ui": {"more": 1}})
    def show() -> str:
        return "x"

    assert server.catalog.tools["show"].meta == {
        "com.example/y": 2,
        "ui": {"more": 1, "resourceUri": app.uri, "visibility": ["model", "app"]},
        "ui/resourceUri": app.uri,
        "io.toolwire/name": "show",
        "openai/outputTemplate": app.uri,
    }


@pytest.mark.covers("APP-8A.1")
@cases(
    ("options", "said"),
    [
        ({"uri": "https://shop.example/orders.html"}, "starts with ui://"),
        ({"uri": "ui://"}, "starts with ui://"),
        ({"uri": "ui://shop/a/"}, "no slash at its end"),
        ({"uri": "ui://Shop/a"}, "small letters"),
        ({"csp": {"scriptDomains": []}}, "csp= has no member"),
        ({"csp": {"connectDomains": ["*"]}}, "it has no scheme"),
        ({"permissions": ["usb"]}, "permissions= has no 'usb'"),
        ({"domain": "a b"}, "domain= is a host name"),
        ({"domain": "claude"}, "needs the public address"),
        ({"view": "no"}, "view= is 'auto'"),
        ({"meta": {"ui": {"csp": {"connectDomains": ["*"]}}}}, "give csp= to server.app"),
        ({"meta": {"ui": {"permissions": {"usb": {}}}}}, "give permissions= to server.app"),
        ({"meta": {"ui": {"domain": "claude"}}}, "give domain= to server.app"),
        ({"meta": {"ui": {"prefersBorder": 1}}}, "give prefers_border= to server.app"),
        ({"meta": {"ui": []}}, "not an object"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], said: str) -> None:
    server = Server("s")
    with pytest.raises(ServerError, match=said):
        server.app(PAGE, **options)
    assert server.catalog.resources == {}
    assert "extensions" not in server.capabilities()


@pytest.mark.covers("APP-8A.1")
def test_a_page_has_to_be_there() -> None:
    with pytest.raises(ServerError, match=r"There is no page 'gone\.html'"):
        Server("s").app("gone.html")
    server = Server("s")
    server.app(PAGE)
    with pytest.raises(ServerError, match=r"has the view ui://s/orders\.html already"):
        server.app(PAGE)


@pytest.mark.covers("APP-3.2", "APP-8A.1")
@cases(
    ("options", "said"),
    [
        ({"meta": {"ui": {"csp": {}}}}, "give it to server.app"),
        ({"meta": {"ui": {"permissions": {}}}}, "give it to server.app"),
        ({"meta": {"ui": 7}}, "that is no object"),
        ({"meta": {"ui": {"visibility": []}}}, "'model', 'app', or both"),
        ({"visibility": ()}, "'model', 'app', or both"),
        ({"visibility": ("user",)}, "'model', 'app', or both"),
        ({"app": True, "visibility": []}, "'model', 'app', or both"),
        ({"app": True, "meta": {"ui": {"resourceUri": "ui://s/x"}}}, "take one of the two"),
        ({"app": True, "meta": {"ui/resourceUri": "ui://s/x"}}, "take one of the two"),
    ],
)
def test_a_wrong_tool_is_refused(options: dict[str, Any], said: str) -> None:
    server = Server("s")
    app = server.app(PAGE)
    if "app" in options:
        options = {**options, "app": app}
    with pytest.raises(ServerError, match=said):
        server.tool(name="x", **options)(lambda: "x")


def test_a_tool_needs_a_view_of_its_own_server() -> None:
    app = Server("a").app(PAGE)
    with pytest.raises(ServerError, match="that of another server"):
        Server("b").tool(name="x", app=app)(lambda: "x")
    with pytest.raises(ServerError, match="that of another server"):
        Server("b").add(Tool(lambda: "x", name="x", app=app))
    inner = Server("inner")
    shown = inner.app(PAGE)
    Server("outer").mount(inner, "i").tool(name="x", app=shown)(lambda: "x")


@pytest.mark.covers("APP-8A.1")
def test_a_view_that_reads_structured_content_needs_an_output_schema() -> None:
    server = Server("s")
    app = server.app(Page("a.html", "<script>on(result => show(result.structuredContent))</script>"))

    def untyped(a: int):  # type: ignore[no-untyped-def]
        return {"a": a}

    with pytest.raises(ServerError, match=r"does not declare: annotate"):
        server.tool(app=app)(untyped)
    server.tool(app=app, output_schema={"type": "object"})(untyped)
    server.tool(name="b", app=app, structured=False)(untyped)
    app.tool(name="c")(untyped)
    # The library of a page that speaks with its host itself has the word, too.
    other = server.app(Page("b.html", "<script>send('ui/initialize'); let s = {structuredContent: 1};</script>"))
    server.tool(name="d", app=other)(untyped)


@pytest.mark.covers("APP-3.5")
def test_the_domain_of_claude() -> None:
    domain = claude_domain("https://shop.example/mcp")
    assert domain.endswith(".claudemcpcontent.com")
    assert len(domain.partition(".")[0]) == 32
    server = Server("s", auth=ResourceServer(lambda token: None, resource="https://shop.example/mcp"))
    app = server.app(PAGE, domain="claude")
    meta = server.catalog.resources[app.uri].meta
    assert isinstance(meta, dict)
    assert meta["ui"]["domain"] == domain
    with pytest.raises(ServerError, match="not the public address"):
        claude_domain("shop.example")


async def test_a_result_can_be_for_the_view_alone_in_part() -> None:
    server = Server("s")
    app = server.app(PAGE)

    @server.tool(app=app, structured=False)
    async def show() -> CallToolResult:
        return CallToolResult(content=[TextContent("3 orders")], structured_content={"n": 3}, meta={"secret": 1})

    async with connect(server, MODERN, HOST) as client:
        result = await client.call("show")
        assert result["content"] == [{"type": "text", "text": "3 orders"}]
        assert result["structuredContent"] == {"n": 3}
        assert result["_meta"]["secret"] == 1


@cases("revision", REVISIONS[2:])
async def test_structured_content_is_an_object_on_every_revision(revision: str) -> None:
    # The libraries of views know the results of 2025-11-25. There a value that is no object is wrapped.
    server = Server("s")
    app = server.app(PAGE)
    server.tool(name="count", app=app)(_count)
    server.tool(name="plain")(_count)
    async with connect(server, revision, HOST) as client:
        tools = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert tools["count"]["outputSchema"]["properties"] == {"result": {"type": "integer"}}
        assert (await client.call("count"))["structuredContent"] == {"result": 3}
        assert (await client.call("plain"))["structuredContent"] == (3 if revision == MODERN else {"result": 3})
    async with Client(server, revision=revision) as typed:
        assert await typed.call_tool("count", returns=int) == 3


def _count() -> int:
    return 3


# --- changes ---


@pytest.mark.covers("APP-8A.4")
async def test_a_page_is_loaded_again(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>one")
    server = Server("s")
    app = server.app(page)
    assert isinstance(app, App)
    async with connect(server, "2025-11-25") as client:
        await client.result("resources/subscribe", {"uri": app.uri})
        app.reload()
        page.write_text("<p>two")
        app.reload()
        (told,) = await client.notified("notifications/resources/updated")
        assert told["uri"] == app.uri
        (read,) = (await client.result("resources/read", {"uri": app.uri}))["contents"]
        assert read["text"].endswith("<p>two")
        page.write_text("<img src=gone.png>")
        with pytest.raises(ServerError, match="there is no file"):
            app.reload()
        (again,) = (await client.result("resources/read", {"uri": app.uri}))["contents"]
        assert again == read


@pytest.mark.covers("APP-8A.4")
async def test_a_successor_tells_that_a_page_changed() -> None:
    def made(html: str) -> Server:
        server = Server("s")
        server.app(Page("a.html", html))
        server.app(Page("b.html", "<p>"))
        return server

    stage = Stage(made("<p>one"))
    async with connect(stage, "2025-11-25") as client:  # type: ignore[arg-type]
        for name in ("a", "b"):
            await client.result("resources/subscribe", {"uri": f"ui://s/{name}.html"})
        await stage.replace(made("<p>two"))
        (told,) = await client.notified("notifications/resources/updated")
        assert told["uri"] == "ui://s/a.html"


# --- ping ---


@pytest.mark.covers("APP-9.8")
@cases("over", ["stdio", "http"])
@cases(
    ("options", "capabilities", "answered"),
    [
        ({}, HOST, True),
        ({}, {"extensions": {UI: {}}}, True),
        ({}, {}, False),
        ({}, {"extensions": {"com.example/x": {}}}, False),
        ({"ping": False}, HOST, False),
        ({"ping": True}, HOST, True),
        (None, HOST, False),
    ],
)
async def test_ping_is_answered_for_hosts_of_views(
    over: str, options: dict[str, Any] | None, capabilities: dict[str, Any], answered: bool
) -> None:
    server = Server("s", tools=[Tool(lambda: "x", name="x")])
    if options is not None:
        server.app(PAGE, **options)
    if over == "stdio":
        async with connect(server, MODERN, capabilities) as client:
            answer = await client.request("ping")
    else:
        app = server.http_app()
        async with connect_http(app, MODERN, capabilities) as client:
            answer = await client.request("ping")
        await app.stop()
    if answered:
        assert answer["result"] == {}
    else:
        assert answer["error"]["code"] == -32601


@pytest.mark.covers("APP-9.8")
async def test_a_ping_without_an_answer_is_404() -> None:
    app = shop().http_app()
    async with connect_http(app, MODERN, HOST) as client:
        line: Any = client.channel
        for capabilities in (HOST, {}):
            client.capabilities = dict(capabilities)
            await client.request("ping")
        assert [answer.status for answer in line.answers] == [200, 404]
    await app.stop()


async def test_ping_can_be_switched_off_later() -> None:
    server = shop()
    async with connect(server, MODERN, HOST) as client:
        assert (await client.request("ping"))["result"] == {}
        server.app(Page("b.html", "<p>"), ping=False)
        assert (await client.request("ping"))["error"]["code"] == -32601


@cases("revision", REVISIONS[:-1])
async def test_ping_before_2026_07_28_is_answered_for_everybody(revision: str) -> None:
    async with connect(shop(), revision) as client:
        assert (await client.request("ping"))["result"] == {}
