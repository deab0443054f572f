"""`toolwire lint` and `toolwire doctor` on views: what they find on our servers and on those of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.cli.command import Command

from toolwire import Server, ToolResult
from toolwire.apps import Csp, Page, claude_domain
from toolwire.cli.lint_views import public_endpoint

MIME = "text/html;profile=mcp-app"
URI = "ui://shop/orders.html"
META = {"ui": {"resourceUri": URI}, "ui/resourceUri": URI}


def good(**options: Any) -> Server:
    """A server whose view has no fault."""
    server = Server("shop")
    orders = server.app(Page("orders.html", "<!doctype html><title>Orders</title>"), **options)

    @server.tool(app=orders, annotations={"readOnlyHint": True})
    async def show_orders() -> dict[str, int]:
        """Show the orders of this month. Returns how many there are."""
        return {"orders": 3}

    @orders.tool(annotations={"destructiveHint": True})
    async def go() -> int:
        return 1

    return server


READS = {"readOnlyHint": True}


def foreign(html: str, meta: dict[str, Any], calls: list[str], hints: Any = READS) -> Server:
    """A server that was written without `server.app()`."""
    server = Server("shop")

    @server.resource(URI, mime_type=MIME)
    async def page() -> str:
        return html

    @server.tool(meta=meta, annotations=hints, structured=False)
    async def show_orders() -> ToolResult:
        """Show the orders of this month. Returns how many there are."""
        calls.append("show_orders")
        return ToolResult([], structured={"orders": 3})

    return server


def findings(toolwire: Command, *options: str) -> dict[str, str]:
    found = json.loads(toolwire("lint", "server", "--json", *options).out)["findings"]
    return {each["rule"]: each["tool"] for each in found if each["rule"].startswith("UI")}


def test_a_view_without_fault(toolwire: Command) -> None:
    toolwire.serves(good())
    done = toolwire("lint", "server", "--strict")
    assert (done.status, "0 errors, 0 warnings" in done.out) == (0, True), done.out


def test_tools_for_views_alone_take_nothing_of_a_model(toolwire: Command) -> None:
    toolwire.serves(good())
    assert json.loads(toolwire("lint", "server", "--json").out)["tokens"].keys() == {"show_orders"}


@pytest.mark.covers("APP-8C.7")
def test_a_server_of_somebody_else(toolwire: Command) -> None:
    calls: list[str] = []
    toolwire.serves(foreign("<!doctype html><p>static</p>", {"ui": {"resourceUri": URI}}, calls))
    assert findings(toolwire) == {"UI004": "show_orders", "UI008": "show_orders", "UI011": URI}
    assert calls == ["show_orders"]
    assert findings(toolwire, "--no-calls") == {"UI008": "show_orders", "UI011": URI}
    assert calls == ["show_orders"]
    shown = toolwire("lint", "server")
    assert shown.status == 1
    assert "ui://shop/orders.html  the page does not speak the handshake (ui/initialize)" in shown.out


@pytest.mark.covers("APP-8C.7")
@pytest.mark.parametrize("hints", [None, {"destructiveHint": False}, {"idempotentHint": True}, {"readOnlyHint": False}])
def test_tools_that_may_change_something_are_not_called(toolwire: Command, hints: Any) -> None:
    calls: list[str] = []
    toolwire.serves(foreign("<!doctype html><p>static</p>", META, calls, hints))
    assert "UI004" not in findings(toolwire)
    assert calls == []


def test_a_view_that_is_not_there(toolwire: Command) -> None:
    server = Server("shop")

    @server.tool(meta=META, annotations={"readOnlyHint": True})
    async def show_orders(month: str) -> str:
        """Show the orders of a month, such as `May`. Returns how many there are."""
        raise RuntimeError("it needs arguments, so it is not called")

    toolwire.serves(server)
    assert findings(toolwire) == {"UI012": URI}


@pytest.mark.covers("APP-8C.7")
@pytest.mark.parametrize(
    ("domain", "endpoint", "wrong"),
    [
        (claude_domain("https://shop.example/mcp"), "https://shop.example/mcp", False),
        (claude_domain("https://shop.example/mcp"), "https://shop.example/mcp/", True),
        (claude_domain("https://shop.example/mcp"), None, False),
    ],
)
def test_the_domain_is_that_of_the_endpoint(toolwire: Command, domain: str, endpoint: str | None, wrong: bool) -> None:
    toolwire.serves(good(domain=domain))
    options = () if endpoint is None else ("--endpoint", endpoint)
    assert ("UI007" in findings(toolwire, *options)) is wrong


@cases(
    ("target", "is_public"),
    [
        ("https://shop.example/mcp", True),
        ("https://93.184.215.14/mcp", True),
        ("http://localhost:8000/mcp", False),
        ("http://127.0.0.1:8000/mcp", False),
        ("http://[::1]:8000/mcp", False),
        ("https://10.0.0.7/mcp", False),
        ("server.py", False),
        (["python", "server.py"], False),
    ],
)
def test_which_targets_are_public_endpoints(target: Any, is_public: bool) -> None:
    assert public_endpoint(target) == (target if is_public else None)


def test_origins_that_nothing_uses_are_a_hint(toolwire: Command) -> None:
    toolwire.serves(good(csp=Csp(connect=["https://api.shop.example"])))
    assert findings(toolwire) == {"UI003": URI}
    assert findings(toolwire, "--quiet") == {}


SILENT = '''
from toolwire import Server

server = Server("shop")

@server.resource("ui://shop/orders.html", mime_type="text/html;profile=mcp-app")
async def page() -> str:
    return "<!doctype html><p>static</p>"

@server.tool(meta={"ui": {"resourceUri": "ui://shop/orders.html"}}, annotations={"destructiveHint": False})
async def show_orders() -> str:
    """Show the orders of this month. Returns a line for each."""
    return "none"

if __name__ == "__main__":
    server.run()
'''


@pytest.mark.covers("APP-6.4")
def test_the_doctor_says_that_a_view_does_not_speak_the_handshake(toolwire: Command, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SILENT, encoding="utf-8")
    found = {each["check"]: each for each in json.loads(toolwire("doctor", str(tmp_path / "server.py"), "--json").out)}
    assert found["views"]["verdict"] == "bad"
    assert found["views"]["found"] == "ui://shop/orders.html does not speak the handshake (ui/initialize)"
    assert "never shown" in found["views"]["advice"]


@pytest.mark.covers("APP-6.4")
def test_the_doctor_has_a_good_word_for_a_good_view(toolwire: Command, tmp_path: Path) -> None:
    good_view = SILENT.replace('@server.resource("ui://shop/orders.html", mime_type="text/html;profile=mcp-app")\n', "")
    good_view = good_view.replace('meta={"ui": {"resourceUri": "ui://shop/orders.html"}}', "app=orders")
    page = 'orders = server.app(Page("orders.html", "<!doctype html><p>static</p>"))\n'
    good_view = good_view.replace('server = Server("shop")\n', f'server = Server("shop")\n{page}')
    good_view = good_view.replace("import Server\n", "import Server\nfrom toolwire.apps import Page\n")
    (tmp_path / "server.py").write_text(good_view, encoding="utf-8")
    found = {each["check"]: each for each in json.loads(toolwire("doctor", str(tmp_path / "server.py"), "--json").out)}
    assert found["views"] == {
        "check": "views",
        "verdict": "good",
        "found": "1, and the linter has no complaint",
        "advice": "",
    }
