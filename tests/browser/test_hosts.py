"""Our views in hosts of others, and a view of others in ours.

The hosts are a page on the official `AppBridge`, and one on the React component of `@mcp-ui/client`. They speak with a
server of ours over HTTP, through the clients of their own libraries, and show its view in a frame on another origin,
under the policy that the view asks for. The view of others is a page on the official `App`. esbuild makes one script of
each page.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from tests.browser.conftest import ARTEFACTS
from tests.browser.test_views import look as show_in_our_host
from tests.browser.test_views import run, shop
from tests.interop import peers

from toolwire import Client as AsyncClient
from toolwire import testing
from toolwire.apps import RENDERS_APPS, host_policy
from toolwire.apps.page import load_page
from toolwire.client.sync import Client
from toolwire.protocol.errors import ProtocolError
from toolwire.testing.browser_views import BrowserView

HERE = Path(__file__).parent
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/mcp")
#: The messages of a view that uses everything the view library has.
EVERYTHING = {
    "ui/initialize",
    "ui/notifications/initialized",
    "ui/notifications/size-changed",
    "ui/notifications/request-teardown",
    "ui/open-link",
    "ui/download-file",
    "ui/message",
    "ui/request-display-mode",
    "ui/update-model-context",
    "tools/call",
    "resources/read",
    "notifications/message",
    "answer",
}


class Files:
    """A server of pages on an origin of its own."""

    def __init__(self, pages: dict[str, tuple[str, bytes]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                kind, body = pages.get(parts.path, ("text/plain", b""))
                self.send_response(200 if body else 404)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                csp = parse_qs(parts.query).get("csp")
                if csp:
                    self.send_header("content-security-policy", host_policy(json.loads(csp[0])).header)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts of all pages, each with the packages that it imports inside."""
    packages, node = peers.needed_view_hosts(), peers.needed_node()
    folder = tmp_path_factory.mktemp("hosts")
    esbuild = packages / "node_modules" / "esbuild" / "bin" / "esbuild"
    sources = [str(each) for each in (HERE / "hosts").glob("*.js")]
    options = ["--bundle", "--format=esm", "--log-level=error", '--define:process.env.NODE_ENV="production"']
    subprocess.run(
        # What the package installs may be the program itself, or a script that starts it.
        [*([] if _is_program(esbuild) else [str(node)]), str(esbuild), *sources, *options, f"--outdir={folder}"],
        env={**os.environ, "NODE_PATH": str(packages / "node_modules")},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def hosts(scripts: Path) -> Iterator[tuple[Files, Files]]:
    """The pages of the hosts, and the page in between on another origin."""
    pages: dict[str, tuple[str, bytes]] = {}
    for script in scripts.glob("*.js"):
        pages[f"/{script.name}"] = ("text/javascript", script.read_bytes())
        page = f'<!doctype html><meta charset="utf-8"><body><script type="module" src="/{script.name}"></script>'
        pages[f"/{script.stem}"] = ("text/html", page.encode())
    sandbox = {"/sandbox": ("text/html", (HERE / "hosts" / "sandbox.html").read_bytes())}
    both = Files(pages), Files(sandbox)
    yield both
    for each in both:
        each.close()


def _is_program(file: Path) -> bool:
    return file.read_bytes()[:2] != b"#!"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server with a view: that of `shop.py`, unless a test names another file."""
    file = HERE / "servers" / getattr(request, "param", "shop.py")
    command = [sys.executable, "-m", "toolwire", "run", str(file), "--transport", "http"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--cors", "*"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    while (found := ADDRESS.search("".join(said))) is None:
        line = process.stderr.readline()
        assert line, f"it ended: {''.join(said)}"
        said.append(line)
    reading = threading.Thread(target=process.stderr.read, daemon=True)
    reading.start()
    yield found[0]
    process.terminate()
    process.wait(timeout=20)
    reading.join(timeout=5)
    process.stderr.close()


@pytest.fixture
def shown(browser: Any, hosts: tuple[Files, Files], server: str) -> Iterator[Callable[..., Any]]:
    """Opens a page of a host, with the view inside."""
    opened: list[Any] = []

    def show(page: str, **asked: str) -> Any:
        query = {
            "server": server,
            "sandbox": f"{hosts[1].origin}/sandbox",
            "tool": "show_orders",
            "arguments": '{"month": "May"}',
            **asked,
        }
        opened.append(browser.new_context().new_page())
        opened[-1].goto(f"{hosts[0].origin}/{page}?{urlencode(query)}")
        return opened[-1]

    yield show
    for each in opened:
        each.context.close()


def look(page: Any, name: str) -> None:
    """Wait until the view shows the input and the result, and see that its call reaches the server."""
    from playwright.sync_api import expect

    view = page.frame_locator("iframe").frame_locator("iframe")
    try:
        expect(view.locator("#result")).to_have_text("3 orders")
    except AssertionError:
        raise AssertionError(page.evaluate("JSON.stringify({...window.host, bridge: null})")) from None
    expect(view.locator("#input")).to_have_text('{"month":"May"}')
    view.locator("#cancel").click()
    expect(view.locator("#called")).to_have_text("order 7 is cancelled")
    page.screenshot(path=ARTEFACTS / f"host-{name}.png")


def reported(page: Any) -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.evaluate("window.host.sizes")
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_page_on_app_bridge_shows_our_view(shown: Callable[..., Any], server: str, mode: str) -> None:
    from playwright.sync_api import expect

    page = shown("app_bridge", mode=mode)
    look(page, f"app-bridge-{mode}")
    view = page.frame_locator("iframe").frame_locator("iframe")
    assert page.evaluate("window.host.revision") == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
    assert page.evaluate("window.host.app") == {"name": "Orders", "version": "1"}
    # What the host says of itself reaches the page.
    expect(view.locator("html")).to_have_attribute("data-theme", "dark")
    assert view.locator("html").evaluate("e => e.style.getPropertyValue('--color-text-primary')") == "rgb(1, 2, 3)"
    view.locator("#grow").click()
    expect(page.locator("iframe")).to_have_css("height", re.compile(r"^3\d\d(\.\d+)?px$"))
    assert 333 <= reported(page)[-1]["height"] <= 600
    view.locator("#use").click()
    expect(view.locator("#said")).to_have_text("all was said, fullscreen")
    expect(view.locator("#read")).to_have_text("order number 7")
    page.wait_for_function("window.host.steps.includes('ended')")
    assert page.evaluate("window.host.steps") == ["sandbox", "initialized", "result", "asked to end", "ended"]
    assert set(page.evaluate("window.host.messages")) == EVERYTHING
    assert page.evaluate("window.host.faults") == []
    assert [name for name, _ in page.evaluate("window.host.asked")] == [
        "open-link",
        "download-file",
        "message",
        "update-model-context",
        "update-model-context",
        "request-display-mode",
    ]
    assert page.evaluate("window.host.logs")[0]["data"] == {"mode": "fullscreen"}
    with Client(server) as client:
        assert client.call_tool("cancelled_orders", returns=list[int]) == [7]


@pytest.mark.parametrize("server", ["shop_behind.py"], indirect=True)
def test_a_page_on_app_bridge_shows_a_view_through_our_gateway(shown: Callable[..., Any], server: str) -> None:
    # The page calls `cancel`, which the gateway has under another name.
    page = shown("app_bridge", mode="auto", tool="b_show_orders")
    look(page, "app-bridge-gateway")
    assert page.evaluate("window.host.faults") == []
    with Client(server) as client:
        assert client.call_tool("b_cancelled_orders", returns=list[int]) == [7]


def published(view: Any, tool: str) -> None:
    """See that a published view shows what a call of its own has brought."""
    from playwright.sync_api import expect

    if tool == "mon_get-system-info":
        expect(view.locator("#status-text")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
        expect(view.locator("#memory-detail")).to_have_text(re.compile(r"GB"))
    elif tool == "time_get-time":
        shown = view.locator("#server-time")
        expect(shown).to_have_text(re.compile(r"^20\d\d-"))
        before = shown.inner_text()
        view.locator("#get-time-btn").click()
        expect(shown).not_to_have_text(before)
        expect(shown).to_have_text(re.compile(r"^20\d\d-"))
    elif tool == "cohort_get-cohort-data":
        expect(view.locator("body")).to_contain_text("M11")
    elif tool == "budget_get-budget-data":
        expect(view.locator("body")).to_contain_text("Marketing")
    else:
        # It names another server as its own, and gets its own tool and no other one.
        expect(view.locator("#said")).to_have_text(re.compile("^stolen, "))


@pytest.mark.parametrize("server", ["published_behind.py"], indirect=True)
@pytest.mark.parametrize("tool_info", ["yes", "no"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_published_views_call_their_tools_behind_our_gateway(
    shown: Callable[..., Any], server: str, mode: str, tool_info: str
) -> None:
    tools = ("mon_get-system-info", "time_get-time", "cohort_get-cohort-data", "budget_get-budget-data", "forger_show")
    for tool in tools:
        page = shown("app_bridge", mode=mode, tool=tool, arguments="{}", toolInfo=tool_info)
        published(page.frame_locator("iframe").frame_locator("iframe"), tool)
        assert page.evaluate("window.host.faults") == []


@pytest.mark.parametrize("server", ["twins_behind.py"], indirect=True)
def test_views_with_tools_of_the_same_name_call_no_tool_of_another_server(
    shown: Callable[..., Any], server: str
) -> None:
    from playwright.sync_api import expect

    # Nothing in the request of this host says which view it is from.
    page = shown("app_bridge", mode="auto", tool="mon_get-system-info", arguments="{}")
    view = page.frame_locator("iframe").frame_locator("iframe")
    expect(view.locator("#status-text")).to_have_text("Error")
    with Client(server) as client:
        text = "may be 'mon_poll-system-stats' or 'twin_poll-system-stats': call it by one of these names"
        with pytest.raises(ProtocolError, match=text):
            client.call_tool("poll-system-stats")


@pytest.mark.parametrize("tool", ["mon_get-system-info", "twin_get-system-info"])
def test_our_host_tells_views_with_tools_of_the_same_name_apart(tool: str) -> None:
    from tests.browser.servers.twins_behind import server

    async def test() -> None:
        async with (
            AsyncClient(server, extensions=RENDERS_APPS) as client,
            testing.view(client, tool, browser=True) as view,
        ):
            await view.frame.get_by_text(re.compile(r"\d\d:\d\d:\d\d")).wait_for()
            assert {(call.name, call.refused) for call in view.calls} == {("poll-system-stats", None)}

    run(test())


def test_a_page_on_mcp_ui_shows_our_view(shown: Callable[..., Any], server: str) -> None:
    page = shown("mcp_ui", policy='{"connectDomains": ["https://api.shop.example"]}')
    look(page, "mcp-ui")
    page.frame_locator("iframe").frame_locator("iframe").locator("#grow").click()
    page.wait_for_function("window.host.sizes.some(({height}) => height >= 333)")
    assert page.evaluate("window.host.faults") == []
    with Client(server) as client:
        assert client.call_tool("cancelled_orders", returns=list[int]) == [7]


# --- a view of others in our host ---

OFFICIAL = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Official</title></head><body>
<p id="input"></p><p id="result"></p><p id="called"></p><p id="read"></p><p id="said"></p><button>Use</button>
<script type="module" src="official_view.js"></script></body></html>"""


@pytest.mark.parametrize(("revision", "profile"), [("2025-06-18", None), ("2026-07-28", "claude")])
def test_a_view_on_the_official_app_runs_in_our_host(scripts: Path, revision: str, profile: Any) -> None:
    page = scripts / "page.html"
    page.write_text(OFFICIAL, encoding="utf-8")
    # The bundle has the script of a megabyte inside.
    server = shop(load_page(page, bundle=True, library=False).html, view=False)
    server.resource("order://7")(lambda: "order number 7")

    async def test(view: BrowserView) -> None:
        await view.frame.get_by_text("3 orders").wait_for()
        assert await view.text("#input") == '{"month":"May"}'
        await view.click("button")
        await view.frame.get_by_text("not open to views").wait_for()
        assert (await view.text("#called"), await view.text("#read")) == ("7", "order number 7")
        got = await view.frame.evaluate("window.got")
        assert got["faults"] == []
        assert got["resources"] == ["order://7", "ui://shop/orders.html"]
        changed = ["ui/notifications/host-context-changed"] if "fullscreen" in await view.text("#said") else []
        assert got["methods"] == ["ui/notifications/tool-input", "ui/notifications/tool-result", *changed]
        assert (view.links, len(view.downloads), len(view.messages)) == (["https://shop.example/"], 1, 1)
        assert view.sizes

    show_in_our_host(test, server, revision=revision, profile=profile)
