"""Views on the client: what models are given, pages, and the calls and reads of views."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import behind
from tests.wireclient import MODERN, REVISIONS

from toolwire import Client, Context, Resource, Server
from toolwire.apps import Csp, Page
from toolwire.audit import AuditLog
from toolwire.client import Budget, BudgetExceeded, Denied, InvalidResponse, Pins, ToolCall, ToolChanged
from toolwire.client.apps import MAX_ADDRESS, View
from toolwire.client.formats import for_anthropic
from toolwire.client.sync import Client as BlockingClient
from toolwire.gateway import Gateway
from toolwire.protocol.errors import NotSupported, ResourceNotFound

UI = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
HOST = {UI: {"mimeTypes": [MIME]}}
URI = "ui://shop/orders.html"


def shop(says: str = "shop", **options: Any) -> Server:
    """Make a server with a view, and tools for models, for views, and for both."""
    server = Server("shop")
    orders = server.app(
        Page("orders.html", f"<!doctype html><p>{says}</p>"),
        csp=Csp(connect=["https://api.shop.example"]),
        permissions=["camera"],
        domain="a.example",
        prefers_border=False,
        **options,
    )

    @server.tool(app=orders)
    async def show(month: str = "May") -> str:
        return f"{says} {month}"

    @orders.tool
    async def cancel(order: int = 1, ctx: Context = None) -> str:  # type: ignore[assignment]
        return f"{says} cancelled {order} {ctx.client_renders_apps}"

    @server.tool(visibility=["model"])
    async def pay() -> str:
        return f"{says} paid"

    @server.resource("order://1")
    def first() -> str:
        return f"{says} 1"

    @server.resource("order://{number}")
    def any_order(number: int) -> str:
        return f"{says} {number}"

    return server


# --- what a model is given ---


@asynccontextmanager
async def clients(way: str, revision: str, **options: Any) -> AsyncIterator[tuple[Client, str]]:
    """Yield a client that reaches a shop, and what stands before the names of its tools."""
    if way == "direct":
        async with Client(shop(), revision=revision, extensions=HOST, **options) as client:
            yield client, ""
    elif way == "mounted":
        async with Client(Server("f").mount(shop(), "b"), revision=revision, extensions=HOST, **options) as client:
            yield client, "b_"
    elif way == "gateway":
        async with behind(shop(), "memory") as target:
            gateway = Gateway("front").add("b", target, revision=revision)
            async with Client(gateway, revision=revision, extensions=HOST, **options) as client:
                yield client, "b_"
    else:
        targets = {"a": Server("other"), "b": shop()}
        async with Client(targets, revision=revision, extensions=HOST, **options) as client:
            yield client, "b_"


WAYS = ("direct", "mounted", "several", "gateway")


@pytest.mark.covers("APP-2.5")
@cases(("way", "revision"), list(itertools.product(WAYS, REVISIONS)))
async def test_models_are_given_no_tools_for_views_alone(way: str, revision: str) -> None:
    async with clients(way, revision) as (client, prefix):

        def named(*names: str) -> list[str]:
            return [prefix + name for name in names]

        everything = await client.list_tools(audience=None)
        assert [tool.name for tool in everything] == named("cancel", "pay", "show")
        assert [tool.name for tool in (await client.list_tools_page()).tools] == named("cancel", "pay", "show")
        assert [tool.name for tool in await client.list_tools()] == named("pay", "show")
        assert [tool.name for tool in await client.list_tools(audience="app")] == named("cancel", "show")
        assert [tool["name"] for tool in for_anthropic(everything)] == named("pay", "show")
        # The checks of results know all of them.
        rendered = revision >= "2025-11-25"
        called = await client.call_tool(f"{prefix}cancel", {"order": 2}, returns=str)
        assert called == f"shop cancelled 2 {rendered}"


async def test_an_audience_that_there_is_not_is_refused() -> None:
    async with Client(shop()) as client:
        with pytest.raises(ValueError, match="'model', 'app' or None, not 'user'"):
            await client.list_tools(audience="user")  # type: ignore[arg-type]


@pytest.mark.parametrize("several", [False, True])
async def test_destructive_tools_are_known_by_every_name_that_a_view_can_use(several: bool) -> None:
    made = shop()
    made.tool(visibility=["app"], annotations={"destructiveHint": True})(wipe)
    made.tool(visibility=["model"], annotations={"destructiveHint": True}, name="hidden")(wipe)
    target: Any = {"a": Server("other"), "b": made} if several else made
    async with Client(target, extensions=HOST) as client:
        view = await client.apps.open("b_show" if several else "show")
        names = ["wipe", "b_wipe"] if several else ["wipe"]
        assert [await client.apps.is_destructive(view, name) for name in names] == [True] * len(names)
        assert [(await client.apps.call_from_view(view, name)).text for name in names] == ["wiped"] * len(names)
        for name in ("show", "cancel", "hidden", "nothing"):
            assert not await client.apps.is_destructive(view, name), name


def wipe() -> str:
    return "wiped"


# --- views ---


@pytest.mark.covers("APP-2.1")
@cases(("way", "revision"), list(itertools.product(WAYS, REVISIONS)))
async def test_a_view_is_opened(way: str, revision: str) -> None:
    async with clients(way, revision) as (client, prefix):
        (listed,) = await client.apps.list()
        assert (listed.tool.name, listed.uri) == (f"{prefix}show", URI)
        for view in (await client.apps.open(listed), await client.apps.open(f"{prefix}show")):
            assert (view.uri, view.tool.name, view.server) == (URI, f"{prefix}show", listed.server)
            assert view.html.endswith("<p>shop</p>")
            assert view.csp == {"connectDomains": ["https://api.shop.example"]}
            assert view.permissions == {"camera": {}}
            assert (view.domain, view.prefers_border) == ("a.example", False)
            assert URI in repr(view)
        # The page was written for its own server, and names its tools as that does.
        own = "b_" if way == "mounted" else ""
        assert [each.name for each in await client.apps.tools_for_view(view)] == [f"{own}cancel", f"{own}show"]
        result = await client.apps.call_from_view(view, f"{own}cancel", {"order": 3})
        assert result.text == f"shop cancelled 3 {revision >= '2025-11-25'}"
        assert (await client.apps.call_from_view(view, f"{prefix}show")).text == "shop May"
        (contents,) = await client.apps.read_from_view(view, "order://7")
        assert contents.text == "shop 7"


@pytest.mark.covers("APP-9.4")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_view_reaches_no_other_server(revision: str) -> None:
    targets = {"a": shop("a"), "b": shop("b"), "a_c": shop("c")}
    async with Client(targets, revision=revision) as client:
        views = {each.server: await client.apps.open(each) for each in await client.apps.list()}
        assert [views[name].uri for name in targets] == [URI, "ui://b/shop/orders.html", "ui://a_c/shop/orders.html"]
        for name, view in views.items():
            says = {"a_c": "c"}.get(name, name)
            assert f"<p>{says}</p>" in view.html
            called = await client.apps.call_from_view(view, "cancel")
            assert called.text == f"{says} cancelled 1 False"
            for uri in ("order://1", "order://5", URI, view.uri):
                (contents,) = await client.apps.read_from_view(view, uri)
                assert says in str(contents.text)
            resources = {each.uri for each in await client.apps.resources_for_view(view)}
            templates = [each.uri_template for each in await client.apps.templates_for_view(view)]
            assert (resources, templates) == ({"order://1", URI}, ["order://{number}"])
            for other in targets:
                if other == name:
                    continue
                for tool in (f"{other}_cancel", f"{other}_show", f"{other}_pay"):
                    with pytest.raises(Denied, match="its server does not list"):
                        await client.apps.call_from_view(view, tool)
            if name == "a":
                # `c_cancel` of `a` would be `a_c_cancel`, which is a tool of `a_c`.
                with pytest.raises(Denied, match="its server does not list"):
                    await client.apps.call_from_view(view, "c_cancel")
                # The address of a view of `b` as programs here know it; `a` has it not, and is the one that is asked.
                with pytest.raises(ResourceNotFound):
                    await client.apps.read_from_view(view, "ui://b/shop/orders.html")


@pytest.mark.covers("APP-9.4")
async def test_a_view_calls_nothing_that_is_not_open_to_views() -> None:
    async with Client(shop()) as client:
        view = await client.apps.open("show")
        with pytest.raises(Denied, match=r"orders\.html called 'pay', which is not open to views"):
            await client.apps.call_from_view(view, "pay")
        with pytest.raises(Denied, match="called 'nothing', which its server does not list"):
            await client.apps.call_from_view(view, "nothing")
        with pytest.raises(Denied, match="its server does not list"):
            await client.apps.call_from_view(view, "x" * 1_000_000)
        with pytest.raises(Denied, match=f"more than {MAX_ADDRESS} characters"):
            await client.apps.read_from_view(view, "order://" + "1" * MAX_ADDRESS)
        async with Client(shop()) as other:
            for act in (other.apps.call_from_view(view, "cancel"), other.apps.read_from_view(view, URI)):
                with pytest.raises(ValueError, match="opened by another client"):
                    await act


@pytest.mark.covers("APP-9.4")
async def test_a_tool_that_is_closed_to_views_later_is_refused() -> None:
    server = shop()
    async with Client(server) as client:
        view = await client.apps.open("show")
        await client.apps.call_from_view(view, "cancel")
        server.remove("cancel")
        server.tool(name="cancel", visibility=["model"])(lambda: "x")
        await client.list_tools()
        with pytest.raises(Denied, match="not open to views"):
            await client.apps.call_from_view(view, "cancel")


@pytest.mark.covers("APP-2.6")
@pytest.mark.parametrize("several", [False, True])
async def test_calls_of_views_are_approved_budgeted_pinned_and_recorded(several: bool, tmp_path: Path) -> None:
    server, asked = shop(), list[ToolCall]()

    def approve(call: ToolCall) -> Any:
        asked.append(call)
        return {"order": 9} if call.arguments.get("order") == 8 else call.arguments.get("order") != 7

    log = tmp_path / "audit.jsonl"
    budget = Budget(tools={"b_cancel" if several else "cancel": 3})
    target: Any = {"a": Server("other"), "b": server} if several else server
    prefix = "b_" if several else ""
    options: Any = {"approve": approve, "budget": budget, "pins": Pins(tmp_path / "pins.json")}
    async with Client(target, audit=AuditLog(log, key="k" * 32), **options) as client:
        view = await client.apps.open(f"{prefix}show")
        assert (await client.apps.call_from_view(view, "cancel", {"order": 1})).text.startswith("shop cancelled 1")
        assert (await client.apps.call_from_view(view, "cancel", {"order": 8})).text.startswith("shop cancelled 9")
        with pytest.raises(Denied, match="was denied"):
            await client.apps.call_from_view(view, "cancel", {"order": 7})
        with pytest.raises(Denied, match="not open to views"):
            await client.apps.call_from_view(view, "pay")
        await client.call_tool(f"{prefix}cancel")
        with pytest.raises(BudgetExceeded):
            await client.apps.call_from_view(view, "cancel")
        server.remove("cancel")
        server.tool(name="cancel", visibility=["app"], description="Other")(lambda: "x")
        budget.reset()
        await client.list_tools()
        with pytest.raises(ToolChanged):
            await client.apps.call_from_view(view, "cancel")
    assert [call.via for call in asked] == ["app", "app", "app", None]
    assert asked[0].tool is not None
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    outcomes = [(line["name"], line.get("via"), line["outcome"]) for line in lines if "outcome" in line]
    name = f"{prefix}cancel"
    assert outcomes == [
        (name, "app", "ok"),
        (name, "app", "ok"),
        (name, "app", "denied"),
        (f"{prefix}pay", "app", "denied"),
        (name, None, "ok"),
        (name, "app", "denied"),
        (name, "app", "denied"),
    ]
    assert [line["arguments"] for line in lines if "outcome" in line][1] == {"order": 9}


@pytest.mark.covers("APP-2.6")
@pytest.mark.parametrize("several", [False, True])
async def test_reads_of_views_are_recorded(several: bool, tmp_path: Path) -> None:
    server, log = shop(), tmp_path / "audit.jsonl"
    target: Any = {"a": Server("other"), "b": server} if several else server
    async with Client(target, audit=AuditLog(log, key="k" * 32)) as client:
        view = await client.apps.open("b_show" if several else "show")
        await client.apps.read_from_view(view, view.uri)
        with pytest.raises(ResourceNotFound):
            await client.apps.read_from_view(view, "shop://gone")
        with pytest.raises(Denied, match="more than"):
            await client.apps.read_from_view(view, "shop://" + "x" * 10_000)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    reads = [line for line in lines if line.get("method") == "resources/read"]
    assert [(line["name"][:11], line["via"], line["outcome"]) for line in reads] == [
        (view.uri[:11], "app", "ok"),
        ("shop://gone", "app", "failed"),
        ("shop://xxxx", "app", "denied"),
    ]
    assert {line["server"] for line in reads} == {view.server}
    assert reads[0]["arguments"] == {"uri": view.uri}
    assert len(str(reads[2])) < 5_000


async def test_a_view_reads_nothing_while_nothing_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Client(shop(), audit=AuditLog(lambda line: None, key="k" * 32)) as client:
        view = await client.apps.open("show")
        monkeypatch.setattr(AuditLog, "ready", False)
        with pytest.raises(Denied, match="cannot be recorded"):
            await client.apps.read_from_view(view, view.uri)


# --- pages that are none ---


def serving(**page: Any) -> Server:
    """Make a server whose view is what a test says."""
    server = Server("s")
    server.add(Resource("ui://s/a", **{"content": "<p>", "mime_type": MIME, **page}))
    server.tool(name="show", meta={"ui/resourceUri": "ui://s/a"})(lambda: "x")
    server.tool(name="gone", meta={"ui": {"resourceUri": "ui://s/gone"}})(lambda: "x")
    server.tool(name="plain")(lambda: "x")
    server.tool(name="web", meta={"ui": {"resourceUri": "https://evil.example"}})(lambda: "x")
    return server


@pytest.mark.covers("APP-2.4")
@cases("mime_type", ["text/html", "text/html+skybridge", "application/json", "text/plain"])
async def test_a_page_of_another_type_is_no_view(mime_type: str) -> None:
    async with Client(serving(mime_type=mime_type)) as client:
        with pytest.raises(InvalidResponse, match="has the type"):
            await client.apps.open("show")


@pytest.mark.covers("APP-2.4")
@pytest.mark.parametrize("mime_type", [MIME, 'TEXT/html ; charset=utf-8;profile="mcp-app"'])
async def test_a_view_has_any_spelling_of_its_type(mime_type: str) -> None:
    async with Client(serving(mime_type=mime_type)) as client:
        view = await client.apps.open("show")
        assert (view.html, view.csp, view.permissions, view.domain) == ("<p>", {}, {}, None)


@pytest.mark.covers("APP-7.1")
async def test_bytes_become_a_page_if_they_are_text() -> None:
    async with Client(serving(content="<p>ä".encode())) as client:
        assert (await client.apps.open("show")).html == "<p>ä"
    async with Client(serving(content=b"\xff\xfe")) as client:
        with pytest.raises(InvalidResponse, match="neither text nor UTF-8"):
            await client.apps.open("show")


@pytest.mark.covers("APP-7.1")
async def test_tools_without_a_view() -> None:
    async with Client(serving()) as client:
        assert [each.tool.name for each in await client.apps.list()] == ["gone", "show"]
        with pytest.raises(ResourceNotFound):
            await client.apps.open("gone")
        for name in ("plain", "web"):
            with pytest.raises(NotSupported, match="has no view"):
                await client.apps.open(name)
        with pytest.raises(NotSupported, match="No tool 'nothing' is listed"):
            await client.apps.open("nothing")


@pytest.mark.covers("APP-7.1")
@pytest.mark.parametrize("in_list", [True, False])
async def test_what_a_view_may_do_is_found_in_the_list_or_in_the_contents(in_list: bool) -> None:
    ui = {"ui": {"csp": {"connectDomains": ["https://a.example"]}, "permissions": 7, "domain": 7, "prefersBorder": 1}}
    other = {"ui": {"csp": {"connectDomains": ["https://other.example"]}}}
    server = serving(meta=other)

    @server.use
    async def answer(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "resources/read":
            # A server of another library, which has it in one place.
            meta = {} if in_list else ui
            return {"contents": [{"uri": "ui://s/a", "blob": base64.b64encode(b"<p>").decode(), "_meta": meta}]}
        return result

    async with Client(server) as client:
        view = await client.apps.open("show")
        expected = other if in_list else ui
        assert view.meta == expected["ui"]
        assert view.csp == expected["ui"]["csp"]
        assert (view.permissions, view.domain, view.prefers_border) == ({}, None, None)


@pytest.mark.parametrize("count", [0, 2])
async def test_a_view_has_one_content(count: int) -> None:
    server = serving()

    @server.use
    async def answer(ctx: Context, call_next: Any) -> Any:
        if ctx.method == "resources/read":
            return {"contents": [{"uri": "ui://s/a", "mimeType": MIME, "text": "<p>"}] * count}
        return await call_next(ctx)

    async with Client(server) as client:
        with pytest.raises(InvalidResponse, match=f"has {count} contents"):
            await client.apps.open("show")


# --- without an event loop ---


@pytest.mark.covers("APP-2.5")
@pytest.mark.parametrize("several", [False, True])
def test_the_blocking_client_shows_views(several: bool) -> None:
    target: Any = {"a": Server("other"), "b": shop()} if several else shop()
    prefix = "b_" if several else ""
    with BlockingClient(target, extensions=HOST) as client:
        assert [tool.name for tool in client.list_tools()] == [f"{prefix}pay", f"{prefix}show"]
        (listed,) = client.apps.list()
        view = client.apps.open(listed)
        assert isinstance(view, View)
        assert [tool.name for tool in client.apps.tools_for_view(view)] == ["cancel", "show"]
        assert client.apps.call_from_view(view, "cancel").text == "shop cancelled 1 True"
        assert client.apps.read_from_view(view, "order://4")[0].text == "shop 4"
        with pytest.raises(Denied):
            client.apps.call_from_view(view, "pay")
