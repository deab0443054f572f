"""`testing.view` without a browser: the test plays the view, and the host plays by the rules."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import behind
from tests.wireclient import REVISIONS

from toolwire import Client, Resource, Server, ToolResult, testing
from toolwire.apps import Csp, Page
from toolwire.apps.bridge import MAX_BURST, MAX_MESSAGE_BYTES, ViewRequest
from toolwire.errors import NotSupported, ProtocolError
from toolwire.gateway import Gateway
from toolwire.testing import ScriptedView
from toolwire.testing.browser_views import find_axe, find_browser

PAGE = Page("orders.html", "<!doctype html><html lang=en><title>Orders</title><h1>Orders</h1>")
READS = {"readOnlyHint": True}


def shop(page: Page = PAGE, **options: Any) -> Server:
    server = Server("shop")
    orders = server.app(page, **options)

    @server.tool(app=orders, annotations=READS)
    async def show_orders(month: str) -> dict[str, int]:
        return {"orders": len(month)}

    @orders.tool(annotations={"destructiveHint": True})
    async def cancel(order_id: int) -> int:
        return order_id

    @server.tool(visibility=["model"], app=orders)
    async def forget() -> str:
        return "gone"

    @server.resource("notes://today")
    async def today() -> str:
        return "Buy milk."

    return server


@pytest.fixture
async def client() -> Any:
    async with Client(shop()) as client:
        yield client


MAY = {"month": "May"}


# --- the bridge, everywhere ---


@pytest.mark.pairwise
@pytest.mark.covers("APP-8C.1")
@pytest.mark.parametrize("profile", [None, "claude", "chatgpt"])
@pytest.mark.parametrize("over", ["memory", "stdio", "http"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_view_from_the_call_to_its_end(revision: str, over: Any, profile: Any) -> None:
    options: Any = {"profile": profile, "theme": "dark", "locale": "de-DE"}
    async with (
        testing.connect(shop(), revision=revision, over=over) as (client, _),
        testing.view(client, "show_orders", MAY, **options) as view,
    ):
        view.check_page()
        assert view.received == []
        answer = await view.initialize()
        assert answer["protocolVersion"] == "2026-01-26"
        assert (answer["hostContext"]["theme"], answer["hostContext"]["locale"]) == ("dark", "de-DE")
        assert answer["hostContext"]["toolInfo"]["tool"]["name"] == "show_orders"
        assert [each["method"] for each in view.received] == [
            "ui/notifications/tool-input",
            "ui/notifications/tool-result",
        ]
        assert view.told("ui/notifications/tool-input") == [{"arguments": MAY}]
        result = view.told("ui/notifications/tool-result")[0]
        assert json.loads(result["content"][0]["text"]) == {"orders": 3}
        assert (await view.call_tool("cancel", {"order_id": 7})).text == "7"
        assert [(call.name, call.arguments, call.refused) for call in view.calls] == [("cancel", {"order_id": 7}, None)]
    assert view.received[-1]["method"] == "ui/resource-teardown"


async def test_a_view_gets_objects_from_servers_that_send_others() -> None:
    server = Server("foreign")
    server.add(Resource("ui://foreign/a", content=PAGE.html, mime_type="text/html;profile=mcp-app"))
    server.tool(name="count", meta={"ui": {"resourceUri": "ui://foreign/a"}})(lambda: ToolResult("3", structured=3))
    async with Client(server) as client, testing.view(client, "count") as view:
        assert view.result is not None and view.result.structured == 3
        await view.initialize()
        called = await view.call_tool("count")
        assert called.structured == {"result": 3}
        (shown,) = view.told("ui/notifications/tool-result")
        assert shown["structuredContent"] == {"result": 3}


async def test_a_call_that_was_cancelled(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, cancelled="the user stopped it") as view:
        await view.initialize()
        assert view.result is None
        assert view.told("ui/notifications/tool-cancelled") == [{"reason": "the user stopped it"}]
        assert view.told("ui/notifications/tool-result") == []


async def test_arguments_that_a_model_still_writes(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, partial=[{}, {"month": "M"}]) as view:
        await view.initialize()
        assert [each["method"].rpartition("/")[2] for each in view.received] == [
            "tool-input-partial",
            "tool-input-partial",
            "tool-input",
            "tool-result",
        ]
        assert view.told("ui/notifications/tool-input-partial")[1] == {"arguments": {"month": "M"}}


async def test_a_view_may_ask_to_be_closed(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        assert not view.wants_teardown
        view.notify("ui/notifications/request-teardown")
        assert view.wants_teardown


@cases("way", ["mounted", "gateway"])
@cases("revision", ["2025-11-25", "2026-07-28"])
async def test_a_view_behind_another_server(revision: str, way: str) -> None:
    async with AsyncExitStack() as stack:
        if way == "mounted":
            front: Server = Server("front").mount(shop(), "b")
        else:
            front = Gateway("front")
            front.add("b", await stack.enter_async_context(behind(shop(), "memory")))
        client, _ = await stack.enter_async_context(testing.connect(front, revision=revision))
        view = await stack.enter_async_context(testing.view(client, "b_show_orders", MAY))
        view.check_page()
        await view.initialize()
        assert view.told("ui/notifications/tool-input") == [{"arguments": MAY}]
        assert (await view.call_tool("b_cancel", {"order_id": 7})).text == "7"
        with pytest.raises(ProtocolError):
            await view.call_tool("b_forget")


async def test_what_a_view_tells_is_kept(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        await view.request("ui/message", {"role": "user", "content": [{"type": "text", "text": "hello"}]})
        await view.request("ui/open-link", {"url": "https://shop.example/7"})
        await view.request("ui/download-file", {"contents": [{"type": "resource_link", "uri": "notes://today"}]})
        await view.request("ui/update-model-context", {"content": [{"type": "text", "text": "first"}]})
        await view.request("ui/update-model-context", {"structuredContent": {"chosen": 7}})
        view.notify("ui/notifications/size-changed", {"width": 300, "height": 200})
        view.notify("notifications/message", {"level": "info", "data": "drawn"})
        assert await view.request("ping") == {}
    assert view.messages == [[{"type": "text", "text": "hello"}]]
    assert view.links == ["https://shop.example/7"]
    assert view.downloads == [[{"type": "resource_link", "uri": "notes://today"}]]
    assert view.model_context == {"content": None, "structuredContent": {"chosen": 7}}
    assert [(each.width, each.height) for each in view.sizes] == [(300, 200)]
    assert [each.data for each in view.logs] == ["drawn"]
    assert view.refusals == []


async def test_resources_and_tools_of_its_server(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        read = await view.request("resources/read", {"uri": "notes://today"})
        assert read["contents"][0]["text"] == "Buy milk."
        listed = await view.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["cancel", "show_orders"]
        found = await view.request("resources/list")
        assert {each["uri"] for each in found["resources"]} == {"notes://today", "ui://shop/orders.html"}
        with pytest.raises(ProtocolError):
            await view.request("resources/read", {"uri": "notes://tomorrow"})


async def test_display_modes_are_those_of_both_sides(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, profile="claude") as view:
        await view.initialize(display_modes=("inline", "fullscreen", "pip"))
        assert await view.request("ui/request-display-mode", {"mode": "pip"}) == {"mode": "inline"}
        assert await view.request("ui/request-display-mode", {"mode": "fullscreen"}) == {"mode": "fullscreen"}
        assert view.told("ui/notifications/host-context-changed") == [{"displayMode": "fullscreen"}]
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize(display_modes=("inline",))
        assert await view.request("ui/request-display-mode", {"mode": "fullscreen"}) == {"mode": "inline"}


async def test_the_context_can_change(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, width=420, context={"platform": "mobile"}) as view:
        answer = await view.initialize()
        assert answer["hostContext"]["containerDimensions"] == {"width": 420, "maxHeight": 6000}
        assert answer["hostContext"]["platform"] == "mobile"
        view.change_context(theme="dark")
        assert view.told("ui/notifications/host-context-changed") == [{"theme": "dark"}]
        assert view.context["theme"] == "dark"


# --- consent ---


@pytest.mark.parametrize("is_async", [False, True])
async def test_consent_is_asked_for_links_files_and_messages(client: Client, is_async: bool) -> None:
    asked = []

    def decide(request: ViewRequest) -> bool:
        asked.append(request.method)
        return False

    async def decide_later(request: ViewRequest) -> bool:
        return decide(request)

    async with testing.view(client, "show_orders", MAY, consent=decide_later if is_async else decide) as view:
        await view.initialize()
        for method, params in (
            ("ui/message", {"role": "user", "content": []}),
            ("ui/open-link", {"url": "https://shop.example"}),
            ("ui/download-file", {"contents": []}),
        ):
            with pytest.raises(ProtocolError, match=f"the user did not allow {method}"):
                await view.request(method, params)
        assert (view.messages, view.links, view.downloads) == ([], [], [])
    assert asked == ["ui/message", "ui/open-link", "ui/download-file"]


@pytest.mark.parametrize("allowed", [True, False])
async def test_consent_is_asked_for_calls_of_destructive_tools(client: Client, allowed: bool) -> None:
    asked: list[tuple[str, Any]] = []

    def decide(request: ViewRequest) -> bool:
        asked.append((request.method, (request.params.name, request.params.arguments)))
        return allowed

    async with testing.view(client, "show_orders", MAY, consent=decide) as view:
        await view.initialize()
        await view.call_tool("show_orders", MAY)
        with pytest.raises(ProtocolError, match="is not open to views"):
            await view.call_tool("forget")
        assert asked == [], "a tool that only reads, and one that is refused anyway"
        if allowed:
            assert (await view.call_tool("cancel", {"order_id": 7})).text == "7"
        else:
            with pytest.raises(ProtocolError, match="the user did not allow tools/call"):
                await view.call_tool("cancel", {"order_id": 7})
        made = view.calls[-1]
        assert (made.name, made.result is not None, made.refused is not None) == ("cancel", allowed, not allowed)
    assert asked == [("tools/call", ("cancel", {"order_id": 7}))]


async def test_a_view_has_one_open_question_at_a_time(client: Client) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def decide(request: ViewRequest) -> bool:
        asked.set()
        await answered.wait()
        return True

    async with testing.view(client, "show_orders", MAY, consent=decide) as view:
        await view.initialize()
        first = asyncio.ensure_future(view.call_tool("cancel", {"order_id": 7}))
        await asyncio.wait_for(asked.wait(), 10)
        with pytest.raises(ProtocolError, match="waits for an answer already"):
            await view.request("ui/open-link", {"url": "https://shop.example"})
        answered.set()
        assert (await first).text == "7"
        await view.request("ui/open-link", {"url": "https://shop.example"})


async def test_an_exception_of_the_callback_is_raised_in_the_test(client: Client) -> None:
    def fail(request: ViewRequest) -> bool:
        raise KeyError("a mistake in the test")

    with pytest.raises(KeyError):
        async with testing.view(client, "show_orders", MAY, consent=fail) as view:
            await view.initialize()
            with pytest.raises(ProtocolError):
                await view.request("ui/open-link", {"url": "https://shop.example"})


# --- bad input ---


@pytest.mark.covers("APP-8C.2")
@pytest.mark.parametrize("tool", ["forget", "show_order", "", "x" * 10_000, "github_delete_repository"])
async def test_tools_that_are_not_for_the_view_are_refused(client: Client, tool: str) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        with pytest.raises(ProtocolError) as caught:
            await view.call_tool(tool)
        assert caught.value.code == -32000
        assert view.calls[0].result is None
        assert view.calls[0].refused is not None
        assert len(view.calls[0].refused) < 300


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://a@b.example", "data:text/html,x"]
)
async def test_links_that_are_no_links(client: Client, url: str) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        with pytest.raises(ProtocolError, match="http"):
            await view.request("ui/open-link", {"url": url})
        assert view.links == []


@pytest.mark.covers("APP-8C.4")
async def test_a_view_that_never_initializes_is_reported_with_the_reason() -> None:
    silent = Page("silent.html", "<!doctype html><p>static</p>")
    async with Client(shop(silent, view=False)) as client, testing.view(client, "show_orders", MAY) as view:
        await testing.elapse(5.1)
        assert view.stopped is not None
        assert "did not send ui/initialize within 5 seconds; its page has no text of the handshake" in view.stopped
        assert view.stopped.endswith("a view that does not speak the handshake is never shown")
        with pytest.raises(ProtocolError, match="never shown"):
            await view.initialize()
        assert view.received == []


async def test_a_view_has_its_time_to_initialize(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, patience=3600) as view:
        await testing.elapse(1800)
        assert view.stopped is None
        await view.initialize()
        assert len(view.received) == 2


async def test_a_handshake_that_stops_halfway(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY, patience=2) as view:
        params = {"protocolVersion": "2026-01-26", "appInfo": {"name": "x"}, "appCapabilities": {}}
        await view.request("ui/initialize", params)
        await testing.elapse(2.1)
        assert view.stopped is not None
        assert "did not send ui/notifications/initialized within 2 seconds" in view.stopped
        assert view.received == []


async def test_an_initialized_view_has_all_the_time(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        await testing.elapse(3600)
        assert view.stopped is None


@pytest.mark.covers("APP-8C.5")
async def test_a_flood_stops_the_view(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        monkeypatch.setitem(vars(loop), "time", lambda: now)  # However slow this machine is, it is one moment.
        sent = 0
        # A slow machine gives the view time for some more.
        while view.stopped is None and sent < 1000 * MAX_BURST:
            view.notify("ui/notifications/size-changed", {"height": 1})
            sent += 1
        assert view.stopped == "it sent more than 100 messages a second, or as much in longer ones"
        assert len(view.sizes) < sent
        with pytest.raises(ProtocolError, match="more than 100 messages"):
            await view.call_tool("cancel", {"order_id": 1})
        assert view.calls == []
        monkeypatch.undo()


async def test_messages_in_the_wrong_order(client: Client) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        with pytest.raises(ProtocolError, match="comes after"):
            await view.call_tool("cancel", {"order_id": 1})
        view.notify("ui/notifications/initialized")
        assert view.received == []
        await view.initialize()
        with pytest.raises(ProtocolError, match="initialized already"):
            await view.initialize()
        assert view.told("ui/notifications/tool-input") == [{"arguments": MAY}]
        assert [each.code for each in view.refusals] == [-32600, -32600, -32600]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", b"\xff\xfe", '{"jsonrpc":"2.0","id":"teardown","result":{}}', "x" * (MAX_MESSAGE_BYTES + 1)],
)
async def test_messages_that_are_none(client: Client, text: Any) -> None:
    async with testing.view(client, "show_orders", MAY) as view:
        await view.initialize()
        view.send(text)
        assert view.stopped is None
        assert (await view.call_tool("cancel", {"order_id": 1})).text == "1"


async def test_a_tool_without_a_view_and_one_that_is_not_there() -> None:
    server = Server("plain")

    @server.tool
    async def add(a: int) -> int:
        return a

    async with Client(server) as client:
        with pytest.raises(NotSupported, match="has no view"):
            async with testing.view(client, "add", {"a": 1}):
                pass
        with pytest.raises(NotSupported, match="No tool 'sub' is listed"):
            async with testing.view(client, "sub"):
                pass


async def test_a_view_of_one_of_several_servers_reaches_its_own_alone() -> None:
    other = Server("bank")

    @other.tool
    async def pay(amount: int) -> int:
        return amount

    @other.resource("bank://account")
    async def account() -> str:
        return "secret"

    async with (
        Client({"shop": shop(), "bank": other}) as client,
        testing.view(client, "shop_show_orders", MAY) as view,
    ):
        await view.initialize()
        assert (await view.call_tool("cancel", {"order_id": 7})).text == "7"
        for name in ("pay", "bank_pay"):
            with pytest.raises(ProtocolError, match="does not list"):
                await view.call_tool(name, {"amount": 1})
        with pytest.raises(ProtocolError):
            await view.request("resources/read", {"uri": "bank://account"})
        assert len((await view.request("tools/list"))["tools"]) == 2
        listed = (await view.request("resources/list"))["resources"]
        assert {each["uri"] for each in listed} == {"notes://today", "ui://shop/orders.html"}


async def test_approval_of_the_client_holds_for_calls_of_a_view() -> None:
    async with (
        Client(shop(), approve=lambda call: call.via != "app") as client,
        testing.view(client, "show_orders", MAY) as view,
    ):
        await view.initialize()
        with pytest.raises(ProtocolError) as caught:
            await view.call_tool("cancel", {"order_id": 7})
        assert caught.value.code == -32000
        assert view.calls[0].refused is not None


async def test_an_error_of_the_tool_is_shown_by_the_view() -> None:
    server = Server("shop")
    orders = server.app(PAGE)

    @server.tool(app=orders)
    async def show_orders() -> ToolResult:
        return ToolResult("no database", is_error=True)

    async with Client(server) as client, testing.view(client, "show_orders") as view:
        await view.initialize()
        assert view.told("ui/notifications/tool-result")[0]["isError"] is True


# --- profiles ---


@pytest.mark.covers("APP-8C.3")
@cases(
    ("domain", "endpoint", "shown"),
    [
        ("shop.example", None, False),
        ("0123456789abcdef0123456789abcdef.claudemcpcontent.com", None, True),
        ("0123456789abcdef0123456789abcdef.claudemcpcontent.com", "https://shop.example/mcp", False),
    ],
)
async def test_claude_shows_no_view_with_a_wrong_domain(domain: str, endpoint: Any, shown: bool) -> None:
    async with Client(shop(domain=domain)) as client:
        given = {} if endpoint is None else {"endpoint": endpoint}
        async with testing.view(client, "show_orders", MAY, profile="claude", **given) as view:
            assert (view.stopped is None) is shown
        async with testing.view(client, "show_orders", MAY) as view:
            assert view.stopped is None


async def test_claude_ignores_frames_and_the_specification_does_not() -> None:
    csp = Csp(frame=["https://video.example"], connect=["https://api.shop.example"])
    async with Client(shop(csp=csp)) as client:
        async with testing.view(client, "show_orders", MAY, profile="claude") as view:
            assert "frame-src 'none'" in view.policy
            assert "connect-src https://api.shop.example" in view.policy
            answer = await view.initialize()
            assert answer["hostCapabilities"]["sandbox"]["csp"] == {"connectDomains": ["https://api.shop.example"]}
        async with testing.view(client, "show_orders", MAY) as view:
            assert "frame-src https://video.example" in view.policy


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"profile": "netscape"}, "profile= is one of claude, chatgpt"),
        ({"theme": "sepia"}, "theme= is one of light, dark"),
        ({"display_mode": "tiny"}, "display_mode= is one of"),
        ({"width": 0}, "width= is 1 to 10,000"),
    ],
)
async def test_options_that_are_none(client: Client, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        async with testing.view(client, "show_orders", MAY, **options):
            pass


async def test_faults_of_the_page_fail_the_test() -> None:
    bad = Page("bad.html", "<!doctype html><script src=https://cdn.example/x.js></script>")
    async with Client(shop(bad, view=False)) as client, testing.view(client, "show_orders", MAY) as view:
        with pytest.raises(AssertionError, match="UI002"):
            view.check_page()
        assert isinstance(view, ScriptedView)


# --- what the browser needs ---


async def test_without_playwright_one_line_says_what_to_install(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    with pytest.raises(RuntimeError, match="pip install playwright"):
        async with testing.view(client, "show_orders", MAY, browser=True):
            pass


def test_the_browser_is_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWIRE_BROWSER", "/opt/chromium")
    assert find_browser() == "/opt/chromium"
    monkeypatch.delenv("TOOLWIRE_BROWSER")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_browser() is None
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_browser() == str(program)


def test_where_axe_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLWIRE_AXE", raising=False)
    below = tmp_path / "project" / "tests"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    with pytest.raises(FileNotFoundError, match="npm install axe-core"):
        find_axe()
    installed = tmp_path / "project" / "node_modules" / "axe-core" / "axe.min.js"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    assert find_axe() == installed
    named = tmp_path / "axe.min.js"
    named.write_text("")
    monkeypatch.setenv("TOOLWIRE_AXE", str(named))
    assert find_axe() == named
    assert find_axe(installed) == installed
    with pytest.raises(FileNotFoundError, match=r"nowhere\.js"):
        find_axe("nowhere.js")
