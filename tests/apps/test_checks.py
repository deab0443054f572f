"""Static checks of views: each rule where it holds and where it does not, and hostile pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.cases import cases

from toolwire import ToolResult
from toolwire.apps import Page, claude_domain
from toolwire.apps.checks import FoundView, check_app_tool, check_shown_result, check_view
from toolwire.apps.page import load_page
from toolwire.types import Resource, ResourceContents, Tool, ToolAnnotations

URI = "ui://shop/orders.html"
MIME = "text/html;profile=mcp-app"
HANDSHAKE = '<script>send("ui/initialize")</script>'
ENDPOINT = "https://shop.example/mcp"


def found(
    body: str = "<p>orders</p>",
    ui: Any = None,
    *,
    listed: Any = UNSET,
    uri: str = URI,
    mime: Any = MIME,
    handshake: str = HANDSHAKE,
    **contents: Any,
) -> FoundView:
    """A view with this body and `_meta.ui`, which the list has as well unless it is given another one."""
    meta = {} if ui is None else {"ui": ui}
    in_list = meta if listed is UNSET else None if listed is None else {"ui": listed}
    contents.setdefault("text", f"<!doctype html>{body}{handshake}")
    page = ResourceContents(uri=contents.pop("named", uri), mime_type=mime, meta=meta, **contents)
    return FoundView(uri, [page], None if in_list is None else Resource(uri=uri, name="orders", meta=in_list))


def rules(view: FoundView, **options: Any) -> dict[str, str]:
    return {each.rule: each.level for each in check_view(view, **options)}


RESOURCES = {"csp": {"resourceDomains": ["https://cdn.example"]}}
CONNECT = {"csp": {"connectDomains": ["https://api.shop.example"]}}
WILD = {"csp": {"connectDomains": ["https://*.shop.example"]}}
API = '<script>fetch("https://api.shop.example/orders")</script>'
BOTH = '<script>fetch("https://api.shop.example/o"); fetch("https://eu.shop.example/o")</script>'
RIGHT = {"domain": claude_domain(ENDPOINT)}
WRONG = {"domain": claude_domain("https://other.example/mcp")}


@pytest.mark.covers("APP-6.1", "APP-6.2", "APP-6.3", "APP-8C.6")
@cases(
    ("view", "expected"),
    [
        # A view without fault, and all that it may have.
        (found(), {}),
        (found(ui={"prefersBorder": True, "later": [1]}), {}),
        (found(listed=None, ui=CONNECT, body=API), {}),
        (found(text=UNSET, blob=f"<!doctype html>ä{HANDSHAKE}".encode()), {}),
        (found(mime="Text/HTML; profile=mcp-app"), {}),
        (found(text=load_page(Page("p.html", "<p>x"), bundle=True, library="auto").html), {}),
        # UI001: `_meta.ui` in one place.
        (found(ui=CONNECT, listed={}, body=API), {"UI001": "error"}),
        (found(ui=None, listed={"prefersBorder": True}), {"UI001": "error"}),
        (found(ui=CONNECT, listed=RESOURCES, body=API), {"UI001": "error"}),
        # UI002: something that is not in the page.
        (found("<script src=https://cdn.example/x.js></script>", handshake=""), {"UI002": "error"}),
        (found("<script src=https://cdn.example/x.js></script>", RESOURCES, handshake=""), {"UI002": "warning"}),
        (found("<script src=//cdn.example/x.js></script>", RESOURCES), {"UI002": "warning"}),
        (found("<script src=app.js></script>"), {"UI002": "error"}),
        (found("<link rel=stylesheet href=https://cdn.example/x.css>"), {"UI002": "error"}),
        (found("<link rel=canonical href=https://shop.example>"), {}),
        (found("<a href=https://shop.example>shop</a>"), {}),
        (found("<img src=https://cdn.example/x.png>"), {"UI002": "error"}),
        (found("<img srcset='https://cdn.example/x.png 2x, y.png'>"), {"UI002": "error"}),
        (found("<img src=data:image/png;base64,AAAA><a href=#top></a>"), {}),
        (found("<style>p { background: url(https://cdn.example/x.png) }</style>"), {"UI002": "error"}),
        (found("<style>@import 'x.css';</style>"), {"UI002": "error"}),
        (found("<style>p { background: url(data:image/png;base64,AA) }</style>"), {}),
        (found("<p style='background: url(x.png)'>"), {"UI002": "error"}),
        (found("<style>@font-face { font-family: F; src: url('data:font/woff2;base64,AA') }</style>"),
         {"UI002": "warning"}),
        (found("<script type=module>import x from 'https://cdn.example/x.js'</script>"), {"UI002": "error"}),
        (found("<iframe src=https://video.example></iframe>"), {"UI002": "error"}),
        (found("<iframe src=https://video.example></iframe>", {"csp": {"frameDomains": ["https://video.example"]}}),
         {"UI002": "warning"}),
        # UI003: origins that nothing uses.
        (found(API, CONNECT), {}),
        (found(ui=CONNECT), {"UI003": "hint"}),
        (found(API, WILD), {"UI003": "hint"}),
        (found(BOTH, WILD), {}),
        # UI006: a large page.
        (found("x" * (1024 * 1024)), {"UI006": "warning"}),
        (found("x" * (1000 * 1000)), {}),
        # UI009: origins that hosts refuse.
        (found(ui={"csp": {"connectDomains": ["*"]}}), {"UI009": "error"}),
        (found(ui={"csp": []}), {"UI009": "error"}),
        # UI010: as high as the frame.
        (found("<style>body { min-height: 100vh }</style>"), {"UI010": "warning"}),
        (found("<style>body { max-height: 100vh }</style>"), {}),
        (found("<p style='height: calc(100dvh - 2px)'>"), {"UI010": "warning"}),
        (found("<script>document.body.style.height = '100vh'</script>"), {"UI010": "warning"}),
        (found("<script>// a page of 100vh grows</script>"), {}),
        # UI011: no handshake.
        (found(handshake=""), {"UI011": "error"}),
        (found("<script>window.openai</script>", handshake=""), {"UI011": "error"}),
        # UI012: no page.
        (found(mime="text/html"), {"UI012": "error"}),
        (found(mime=UNSET), {"UI012": "error"}),
        (found(text=""), {"UI011": "error", "UI012": "error"}),
        (found(named="ui://shop/Orders.html"), {"UI012": "error"}),
        (FoundView(URI, []), {"UI011": "error", "UI012": "error"}),
        (FoundView(URI, found().contents * 2), {"UI012": "error"}),
        # UI013: addresses that look alike.
        (found(uri="ui://Shop/orders.html"), {"UI013": "warning"}),
        (found(uri="ui://shop/orders/"), {"UI013": "warning"}),
    ],
)  # fmt: skip
def test_rules_of_a_view(view: FoundView, expected: dict[str, str]) -> None:
    assert rules(view) == expected


@pytest.mark.covers("APP-8C.6")
@cases(
    ("ui", "endpoint", "wrong"),
    [
        (RIGHT, ENDPOINT, False),
        (WRONG, ENDPOINT, True),
        (WRONG, None, False),
        ({"domain": "shop.claudemcpcontent.com"}, None, True),
        ({"domain": "www-shop-example.oaiusercontent.com"}, ENDPOINT, False),
        ({"domain": 7}, None, True),
        ({}, ENDPOINT, False),
    ],
)
def test_the_domain_of_claude(ui: dict[str, Any], endpoint: str | None, wrong: bool) -> None:
    assert ("UI007" in rules(found(ui=ui), endpoint=endpoint)) is wrong


def tool(meta: Any, **hints: bool) -> Tool:
    return Tool("orders", {"type": "object"}, meta=meta, annotations=ToolAnnotations(**hints) if hints else UNSET)


def ui(*visibility: str, flat: Any = URI, **members: Any) -> dict[str, Any]:
    given = {"visibility": list(visibility)} if visibility else {}
    meta: dict[str, Any] = {"ui": {"resourceUri": URI, **given, **members}}
    return meta if flat is None else {**meta, "ui/resourceUri": flat}


READS = {"read_only_hint": True}


@pytest.mark.covers("APP-8C.6")
@cases(
    ("one", "expected"),
    [
        (tool(UNSET), {}),
        (tool({"other": 1}), {}),
        (tool({"ui": {}, "ui/resourceUri": 7}, **READS), {}),
        (tool(ui(), **READS), {}),
        # UI005: views can call it.
        (tool(ui("app")), {"UI005": "warning"}),
        (tool(ui("model", "app")), {"UI005": "hint"}),
        (tool(ui()), {"UI005": "hint"}),
        (tool(ui("model")), {}),
        (tool(ui("app"), destructive_hint=True), {}),
        (tool(ui("app"), destructive_hint=False), {}),
        (tool(ui("app"), idempotent_hint=True), {"UI005": "warning"}),
        (tool(ui("app"), read_only_hint=False), {"UI005": "warning"}),
        # UI008: both keys.
        (tool(ui(flat=None), **READS), {"UI008": "warning"}),
        (tool(ui("model", flat=None)), {"UI008": "warning"}),
        (tool(ui("app", flat=None), **READS), {}),
        (tool(ui(flat="ui://shop/other.html"), **READS), {"UI008": "warning"}),
        (tool({"ui/resourceUri": URI}, **READS), {"UI008": "warning"}),
        # UI012: no address of a view.
        (tool({"ui": {"resourceUri": "https://shop.example/a"}, "ui/resourceUri": "https://shop.example/a"}, **READS),
         {"UI012": "error"}),
        # UI015: a visibility that is not a list of audiences.
        (tool({**ui(), "ui": {"resourceUri": URI, "visibility": "app"}}, **READS), {"UI015": "error"}),
        (tool({**ui(), "ui": {"resourceUri": URI, "visibility": {}}}, **READS), {"UI015": "error"}),
        # UI014: members that belong on the resource.
        (tool(ui(csp={}), **READS), {"UI014": "error"}),
        (tool(ui(permissions={}), **READS), {"UI014": "error"}),
    ],
)  # fmt: skip
def test_rules_of_a_tool(one: Tool, expected: dict[str, str]) -> None:
    assert {each.rule: each.level for each in check_app_tool(one)} == expected


@pytest.mark.covers("APP-8C.6")
@cases(
    ("result", "expected"),
    [
        (ToolResult("3 orders"), []),
        (ToolResult(structured={"orders": 3}), []),
        (ToolResult([], structured={"orders": 3}), ["UI004"]),
        (ToolResult("  \n"), ["UI004"]),
    ],
)
def test_a_result_says_the_same_without_the_view(result: ToolResult, expected: list[str]) -> None:
    assert [each.rule for each in check_shown_result(result)] == expected


@given(st.text(alphabet="<>!-=\"'/ abcscriptylelinkrefhu:(){};@mport.,&#0", max_size=400))
def test_any_page_can_be_checked(html: str) -> None:
    for each in check_view(found(text=html)):
        assert each.rule.startswith("UI")
        assert len(each.message) < 2_000


@cases(
    "text",
    ["<!--", "<script", "<p ", "<style>", "<style>url( ", "<style>@import 'x", "<style>url('", "<![",
     "<script>import '", "&", "<a href='", "<a b=", "<a b=\"' ", "<", "<script>", "<p style='url(",
     "</script", "<a b= =", "<img srcset=,"],
)  # fmt: skip
def test_hostile_pages_take_no_time(text: str) -> None:
    assert rules(found(text=text * (500_000 // len(text))))


def test_messages_name_a_few_and_count_the_rest() -> None:
    many = "".join(f"<img src=https://cdn.example/{n}.png>" for n in range(100))
    (message,) = [each.message for each in check_view(found(many)) if each.rule == "UI002"]
    assert "0.png" in message
    assert "and 95 more" in message
    assert len(message) < 500
