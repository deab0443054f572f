"""`testing.view(browser=True)`: views in a real browser, on every revision, transport and profile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.browser.conftest import ARTEFACTS
from tests.interop import peers

from toolwire import Server, testing
from toolwire.apps import Csp, Page
from toolwire.apps.bridge import ViewRequest
from toolwire.testing.browser_views import BrowserView

# Installed and pinned by tests/interop/peers.py.
AXE = peers.node_folder() / "node_modules" / "axe-core" / "axe.min.js"

ORDERS = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Orders</title></head><body><main>
<h1>Orders</h1><p id="shown">…</p><button>Cancel the first order</button></main><script>
const shown = document.querySelector("#shown");
toolwire.on("result", (result) => { shown.textContent = `${toolwire.data(result).orders} orders`; });
document.querySelector("button").onclick = async () => {
  const { content } = await toolwire.callTool("cancel", { order_id: 7 });
  shown.textContent = `cancelled ${content[0].text}`;
};
</script></body></html>"""


def shop(html: str = ORDERS, **options: Any) -> Server:
    server = Server("shop")
    orders = server.app(Page("orders.html", html), **options)

    @server.tool(app=orders, annotations={"readOnlyHint": True})
    async def show_orders(month: str) -> dict[str, int]:
        return {"orders": len(month)}

    @orders.tool(annotations={"destructiveHint": True})
    async def cancel(order_id: int) -> int:
        return order_id

    @server.tool(app=orders, visibility=["model"])
    async def forget() -> str:
        return "gone"

    return server


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, in a thread: the blocking Playwright of other tests holds the main one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


Test = Callable[[BrowserView], Coroutine[Any, Any, None]]


def look(test: Test, server: Server, *, revision: str | None = None, over: Any = "memory", **options: Any) -> None:
    """Show the view of a server in the browser and run a test with it."""

    async def work() -> None:
        async with (
            testing.connect(server, revision=revision, over=over) as (client, _),
            testing.view(client, "show_orders", {"month": "May"}, browser=True, **options) as view,
        ):
            view.page.set_default_timeout(20_000)
            await test(view)

    run(work())


@pytest.mark.parametrize(
    ("revision", "over", "profile", "theme", "width"),
    [
        ("2024-11-05", "stdio", None, "light", 720),
        ("2025-11-25", "http", "claude", "dark", 420),
        ("2026-07-28", "memory", "chatgpt", "light", 420),
        ("2026-07-28", "port", "claude", "dark", 1200),
    ],
)
def test_a_view_is_painted_sized_and_used(revision: str, over: str, profile: Any, theme: str, width: int) -> None:
    async def test(view: BrowserView) -> None:
        await view.check()
        assert "3 orders" in await view.text()
        await view.click("text=Cancel the first order")
        await view.frame.get_by_text("cancelled 7").wait_for()
        assert [(call.name, call.arguments) for call in view.calls] == [("cancel", {"order_id": 7})]
        assert await view.frame.evaluate("[innerWidth, document.documentElement.dataset.theme]") == [width, theme]
        while view.sizes[-1].height != await view.frame.evaluate("innerHeight"):
            await view.frame.evaluate("new Promise((done) => setTimeout(done, 20))")
        picture = await view.screenshot(ARTEFACTS / f"view-{profile}-{theme}-{width}.png")
        assert picture.startswith(b"\x89PNG")
        assert view.requests == []

    options: Any = {"revision": revision, "over": over, "profile": profile, "theme": theme, "width": width}
    look(test, shop(), **options)


def test_a_view_that_never_initializes_is_reported() -> None:
    async def test(view: BrowserView) -> None:
        raise RuntimeError("it was shown")

    with pytest.raises(AssertionError, match="its page has no text of the handshake: a view that does not speak"):
        look(test, shop("<!doctype html><p>static</p>", view=False), patience=0.5)


# --- what goes wrong in a page ---


def page(script: str, body: str = "<main><h1>Orders</h1></main>") -> str:
    return f"<!doctype html><html lang=en><title>Orders</title><body>{body}<script>{script}</script></body></html>"


def test_the_check_waits_for_the_size_that_a_view_reports_after_it_has_painted() -> None:
    script = """
    toolwire.options.autoSize = false;
    const size = { jsonrpc: "2.0", method: "ui/notifications/size-changed", params: { width: 720, height: 90 } };
    toolwire.on("ready", () => setTimeout(() => parent.postMessage(size, "*"), 1000));
    """

    async def test(view: BrowserView) -> None:
        await view.check()
        assert [size.height for size in view.sizes] == [90]

    look(test, shop(page(script)))


def test_errors_and_what_the_policy_blocks_fail_the_check() -> None:
    script = """
    fetch("https://evil.example/x").catch(() => {});
    const image = new Image(); image.src = "https://evil.example/x.png";
    document.body.append(Object.assign(document.createElement("iframe"), { src: "https://evil.example/" }));
    console.error("it went wrong");
    setTimeout(() => { throw new Error("an exception"); });
    Promise.reject(new Error("a rejection"));
    toolwire.on("result", () => eval("1"));
    """

    async def test(view: BrowserView) -> None:
        await view.painted()
        while len(view.violations) < 4:
            await view.frame.evaluate("new Promise((done) => setTimeout(done, 20))")
        assert {each.directive for each in view.violations} == {"connect-src", "img-src", "frame-src", "script-src"}
        assert "https://evil.example/x" in {each.blocked for each in view.violations}
        found = "\n".join(view.errors)
        assert all(each in found for each in ("it went wrong", "an exception", "a rejection"))
        with pytest.raises(AssertionError, match="connect-src blocked https://evil"):
            await view.check()

    look(test, shop(page(script)))


def test_a_declared_origin_is_in_the_policy_and_no_other() -> None:
    script = "for (const name of ['a', 'b']) fetch(`https://${name}.example/x`).catch(() => {});"

    async def test(view: BrowserView) -> None:
        await view.painted()
        while not view.violations or not view.requests:
            await view.frame.evaluate("new Promise((done) => setTimeout(done, 20))")
        assert [each.blocked for each in view.violations] == ["https://b.example/x"]
        assert "https://a.example/x" in view.requests

    look(test, shop(page(script), csp=Csp(connect=["https://a.example"])))


def test_a_view_that_paints_nothing_is_noticed() -> None:
    async def test(view: BrowserView) -> None:
        with pytest.raises(AssertionError, match="painted nothing within 1 seconds"):
            await view.painted(1)

    look(test, shop(page("", body="")))


def test_a_view_that_grows_with_its_frame_is_held() -> None:
    style = "<style>html, body { margin: 0 } main { height: calc(100vh + 10px) }</style><main>x</main>"

    async def test(view: BrowserView) -> None:
        with pytest.raises(AssertionError, match="UI010"):
            view.check_page()
        seen = -1
        while len(view.sizes) != seen:  # It reports until the view library, or the host, ends that.
            seen = len(view.sizes)
            await view.frame.evaluate("new Promise((done) => setTimeout(done, 500))")
        assert seen < 200
        assert await view.frame.evaluate("innerHeight") <= 900

    look(test, shop(page("", body=style)), max_height=900)


# --- hostile views ---


def test_a_view_reaches_nothing_around_its_frame() -> None:
    async def test(view: BrowserView) -> None:
        tried = await view.frame.evaluate("""async () => {
          const tries = {
            document: () => parent.document.title,
            host: () => parent.toolwireHost.remove(),
            top: () => { top.location = "https://evil.example"; },
            popup: () => { if (window.open("https://evil.example")) return "opened"; throw new Error("no window"); },
            dialog: () => { if (window.confirm("yes?")) return "said"; throw new Error("no dialog"); },
          };
          const done = {};
          for (const [name, attempt] of Object.entries(tries)) {
            try { attempt(); done[name] = "worked"; } catch { done[name] = "refused"; }
          }
          return done;
        }""")
        assert tried == {
            "document": "refused",
            "host": "refused",
            "top": "refused",
            "popup": "refused",
            "dialog": "refused",
        }
        # The function by which the host page speaks with the test is no way around the checks.
        await view.frame.evaluate("""() => window.toolwireReceive?.(JSON.stringify(
          { jsonrpc: "2.0", id: 99, method: "tools/call", params: { name: "cancel", arguments: { order_id: 1 } } }))""")
        assert view.calls == []
        refused = await view.frame.evaluate("toolwire.callTool('forget').catch((error) => error.message)")
        assert "not open to views" in refused
        assert view.stopped is None

    look(test, shop())


def test_a_view_without_an_origin_keeps_values_in_memory() -> None:
    async def test(view: BrowserView) -> None:
        found = await view.frame.evaluate("""() => {
          localStorage.setItem("a", 1);
          localStorage.theme = "dark";
          sessionStorage.setItem("b", 2);
          delete localStorage.c;
          document.cookie = "d=3";
          return [origin, localStorage.getItem("a"), localStorage.theme, localStorage.getItem("b"), localStorage.length,
            localStorage.key(1), "theme" in localStorage, "light" in localStorage, Object.keys(localStorage).join(),
            JSON.stringify(sessionStorage), document.cookie, typeof localStorage.clear];
        }""")
        kept = ["null", "1", "dark", None, 2, "theme", True, False, "a,theme", '{"b":"2"}', "", "function"]
        assert found == kept
        await view.check()

    look(test, shop())


def test_a_view_that_may_use_the_camera_has_an_origin() -> None:
    async def test(view: BrowserView) -> None:
        assert (await view.frame.evaluate("origin")).startswith("http://127.0.0.1:")
        await view.check()

    look(test, shop(permissions=["camera"]))


@pytest.mark.parametrize(("csp", "runs"), [(None, False), (Csp(frame=["https://frames.example"]), True)])
def test_a_page_that_a_view_writes_runs_scripts_only_beside_declared_frames(csp: Csp | None, runs: bool) -> None:
    async def test(view: BrowserView) -> None:
        await view.frame.evaluate("""() => {
          document.body.append(Object.assign(document.createElement("iframe"), {
            srcdoc: "<p>written</p><script>document.querySelector('p').textContent += ', and run'<\\/script>" }));
        }""")
        inner = view.frame.frame_locator("iframe").locator("p")
        await inner.wait_for()
        assert await inner.inner_text() == ("written, and run" if runs else "written")

    look(test, shop(csp=csp))


def test_a_test_says_that_the_process_of_a_view_ended() -> None:
    async def test(view: BrowserView) -> None:
        session = await view.page.context.new_cdp_session(view.frame)
        crash = asyncio.ensure_future(session.send("Page.crash"))
        await view.host.ended()
        crash.cancel()
        await view.click("text=Cancel")

    with pytest.raises(AssertionError, match="the host stopped the view: the browser ended its process"):
        look(test, shop())


def test_a_view_that_leaves_its_page_is_stopped() -> None:
    async def test(view: BrowserView) -> None:
        await view.painted()
        await view.frame.evaluate("() => { location.hash = 'top'; }")
        assert view.stopped is None
        await view.frame.evaluate("() => { setTimeout(() => { location.href = 'https://evil.example/'; }); }")
        await view.host.ended()
        assert view.stopped is not None
        assert "left its page" in view.stopped
        await view.page.locator("iframe").wait_for(state="detached")

    look(test, shop())


FLOODING = """
    toolwire.on("result", () => {
      for (let at = 0; at < 10_000; at += 1) parent.postMessage({ jsonrpc: "2.0", method: "notifications/message",
        params: { level: "info", data: at } }, "*");
    });"""


@pytest.mark.parametrize("when", ["while it works", "afterwards"])
def test_a_test_of_a_view_that_floods_says_that_it_was_stopped(when: str) -> None:
    async def test(view: BrowserView) -> None:
        if when == "afterwards":
            await view.page.locator("iframe").wait_for(state="detached")
            await view.click("text=Nothing")
        else:
            await view.frame.evaluate("() => new Promise(() => {})")

    with pytest.raises(AssertionError, match="the host stopped the view: it sent more than 100 messages a second"):
        look(test, shop(page(FLOODING)))


def test_a_flood_stops_the_view_and_the_host_stays() -> None:

    async def test(view: BrowserView) -> None:
        await view.host.ended()
        assert view.stopped == "it sent more than 100 messages a second, or as much in longer ones"
        assert len(view.logs) < 5_000
        await view.page.locator("iframe").wait_for(state="detached")

    look(test, shop(page(FLOODING)))


@pytest.mark.parametrize(
    "data",
    [
        "'x'.repeat(5_000_000)",
        "'€'.repeat(2_000_000)",
        "[...Array(40)].reduce((all) => [all, all], 'x')",  # Short as an object, and endless as JSON.
        "Object.assign([], { length: 1e8 })",
        "new Uint8Array(1e8)",
    ],
)
def test_a_message_that_is_too_long_stops_the_view(data: str) -> None:
    async def test(view: BrowserView) -> None:
        await view.frame.evaluate(f"() => {{ toolwire.log('info', {data}); }}")
        await view.host.ended()
        assert view.stopped == "it sent a message of more than 4194304 bytes"

    look(test, shop())


def test_a_page_may_send_what_is_no_json() -> None:
    async def test(view: BrowserView) -> None:
        await view.frame.evaluate("""() => {
          const circle = {}; circle.circle = circle;
          for (const each of [circle, 1n, undefined, null, new Map(), "text"]) parent.postMessage(each, "*");
        }""")
        assert (
            await view.frame.evaluate("toolwire.callTool('cancel', { order_id: 7 }).then((r) => r.content[0].text)")
            == "7"
        )
        assert view.stopped is None
        assert len(view.refusals) == 6

    look(test, shop())


def test_half_a_character_is_replaced() -> None:
    async def test(view: BrowserView) -> None:
        await view.frame.evaluate("toolwire.updateModelContext('tea \\ud83c')")
        assert view.model_context is not None
        assert view.model_context["content"] == [{"type": "text", "text": "tea \ufffd"}]

    look(test, shop())


# --- the surroundings ---


def test_the_context_changes_and_the_view_follows() -> None:
    script = (
        "toolwire.on('teardown', () => { parent.postMessage({ jsonrpc: '2.0', method: 'x/bye', params: {} }, '*'); });"
    )
    seen: list[BrowserView] = []

    async def test(view: BrowserView) -> None:
        seen.append(view)
        assert await view.frame.evaluate("[navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone]") == [
            "de-DE",
            "Asia/Tokyo",
        ]
        view.change_context(theme="dark")
        await view.frame.locator("html[data-theme=dark]").wait_for()
        mode = await view.frame.evaluate("toolwire.requestDisplayMode('inline')")
        assert mode == {"mode": "inline"}

    look(test, shop(page(script)), locale="de-DE", time_zone="Asia/Tokyo")
    # The view answered when it was closed.
    assert seen[0].wire[-1] == ("←", {"jsonrpc": "2.0", "id": "teardown", "result": {}})
    assert any(message.get("method") == "x/bye" for _, message in seen[0].wire)


def test_consent_is_asked_in_the_browser_too() -> None:
    async def test(view: BrowserView) -> None:
        said = await view.frame.evaluate("toolwire.openLink('https://shop.example').catch((error) => error.message)")
        assert said == "the user did not allow ui/open-link"
        assert view.links == []

    look(test, shop(), consent=lambda request: False)


@pytest.mark.parametrize("allowed", [True, False])
def test_consent_is_asked_for_a_destructive_tool_in_the_browser_too(allowed: bool) -> None:
    asked: list[str] = []

    def decide(request: ViewRequest) -> bool:
        asked.append(request.method)
        return allowed

    async def test(view: BrowserView) -> None:
        call = "toolwire.callTool('cancel', {order_id: 7}).then(() => 'called', (error) => error.message)"
        assert await view.frame.evaluate(call) == ("called" if allowed else "the user did not allow tools/call")
        assert [(each.name, each.refused is None) for each in view.calls] == [("cancel", allowed)]

    look(test, shop(), consent=decide)
    assert asked == ["tools/call"]


def test_claude_shows_no_view_with_another_domain() -> None:
    async def test(view: BrowserView) -> None:
        raise RuntimeError("it was shown")

    with pytest.raises(AssertionError, match="claude shows no view"):
        look(test, shop(domain="shop.example"), profile="claude")


def test_chatgpt_gives_a_view_its_object() -> None:
    script = """
    const { toolInput, toolOutput, theme } = window.openai;
    const show = (text) => { document.querySelector("h1").textContent = text; };
    show(`${toolInput.month} ${toolOutput.orders} ${theme}`);
    window.openai.callTool("cancel", { order_id: 7 }).then(({ result }) => show(`cancelled ${result}`));
    """

    async def test(view: BrowserView) -> None:
        await view.frame.get_by_text("cancelled 7").wait_for()
        assert [call.name for call in view.calls] == ["cancel"]
        await view.frame.evaluate("openai.openExternal({ href: 'https://shop.example/' })")
        assert view.links == ["https://shop.example/"]
        assert view.errors == []

    async def without(view: BrowserView) -> None:
        raise RuntimeError("it was shown")

    server = shop(page(script), view=False)
    look(test, server, profile="chatgpt")
    with pytest.raises(AssertionError, match="never shown"):
        look(without, server, patience=0.5)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_what_is_wrong_and_nothing_else(theme: str) -> None:
    async def good(view: BrowserView) -> None:
        assert await view.accessibility(AXE) == []

    async def bad(view: BrowserView) -> None:
        found = await view.accessibility(AXE)
        assert [each.partition(":")[0] for each in found] == ["button-name", "image-alt"]

    look(good, shop(), theme=theme)
    body = "<main><h1>Orders</h1><button></button><img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='></main>"
    look(bad, shop(page("", body)), theme=theme)
