"""Pages of ready views: small, alone, and without a place where data becomes markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.browser.servers.views import HOSTILE
from tests.cases import cases
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Server
from toolwire.apps import view_library, views
from toolwire.protocol.errors import ServerError
from toolwire.types import CallToolResult, TextContent

UI = "io.modelcontextprotocol/ui"
HOST = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
FORM = {"type": "object", "properties": {"a": {"type": "string"}}}


def all_views(**options: Any) -> list[views.ReadyView]:
    return [
        views.table(**options),
        views.chart(**options),
        views.form(FORM, **options),
        views.diff(approve="yes", reject="no", **options),
        views.image("A picture", **options),
        views.markdown(**options),
    ]


class Tags(HTMLParser):
    """The tags of a page, the texts in its scripts, and what stands in its body."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)


def served(view: views.ReadyView) -> str:
    server = Server("s")
    app = server.app(view)
    resource: Any = server.catalog.resources[app.uri]
    html: str = resource.page.html
    return html


@pytest.mark.covers("APP-8A.6")
@cases("view", all_views(), ids=lambda view: view.kind)
def test_a_page_is_small_and_loads_nothing(view: views.ReadyView) -> None:
    page = served(view)
    assert len(page.encode()) < 30_000
    assert page.count(view_library()) == 1
    assert page.index("<meta charset") < 1024
    found = Tags(page)
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        assert "style" not in attributes
        assert not attributes.keys() & {"src", "href", "srcset", "action"}
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in page
    assert "@import" not in page
    assert "100vh" not in page


@pytest.mark.covers("APP-8A.7")
@cases("view", all_views(), ids=lambda view: view.kind)
def test_no_script_makes_markup_of_data(view: views.ReadyView) -> None:
    own = view.html
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert word not in own
    # One view reads XML, and makes new elements of what it knows in it.
    assert own.count("DOMParser") == (view.kind == "chart")


@pytest.mark.covers("APP-8A.7")
@cases("text", HOSTILE)
def test_texts_of_the_author_stay_texts(text: str) -> None:
    for view in all_views(title=text, description=text):
        page = Tags(view.html)
        kinds = [tag for tag, _ in page.tags]
        expected = ["html", "head", "meta", "meta", "title", "style", "script", "body", "main", "script", "script"]
        assert kinds == expected
        (found,) = (each for each in page.scripts if each.startswith("{"))
        config = json.loads(found)
        assert (config["title"], config["description"]) == (text, text)


def test_the_title_names_the_page() -> None:
    assert views.table(title="Orders of May, 2026").name == "orders-of-may-2026.html"
    assert views.table(title="Заказы").name == "table.html"
    assert [view.name for view in all_views()] == [f"{view.kind}.html" for view in all_views()]
    server = Server("shop")
    assert server.app(views.table(title="Orders")).uri == "ui://shop/orders.html"
    with pytest.raises(ServerError, match=r"has the view ui://shop/orders\.html already"):
        server.app(views.table(title="Orders"))


@pytest.mark.covers("APP-8A.1")
@cases("view", [views.table(), views.chart(), views.diff()], ids=lambda view: view.kind)
def test_a_view_of_data_needs_a_declared_result(view: views.ReadyView) -> None:
    server = Server("s")
    app = server.app(view)
    with pytest.raises(ServerError, match="reads structuredContent"):
        server.tool(name="a", app=app)(lambda: {"rows": []})
    server.tool(name="b", app=app, structured=False)(lambda: "text")


# --- results ---


def shown(revision: str, capabilities: dict[str, Any]) -> Any:
    server = Server("s")
    table, chart, diff = server.app(views.table()), server.app(views.chart()), server.app(views.diff())
    image, markdown = server.app(views.image("A dot")), server.app(views.markdown())

    @server.tool(app=table)
    def rows() -> list[dict[str, int]]:
        return [{"a": 1, "b": 2}, {"a": 3}]

    @server.tool(app=chart)
    def numbers() -> views.Chart:
        return views.Chart(["x", "y"], {"n": [1, None]}, unit="kg")

    @server.tool(app=diff)
    def change() -> views.Diff:
        return views.Diff.of("a\nb", "a\nc", name="n")

    @server.tool(app=image)
    def picture() -> Any:
        from toolwire import Image

        return Image(data=b"\x89PNG\r\n\x1a\n")

    @server.tool(app=markdown)
    def text() -> str:
        return "# Hello"

    @server.tool(app=table, structured=False)
    def whole() -> CallToolResult:
        return CallToolResult(content=[TextContent("two rows")], structured_content={"rows": [{"a": 1}]})

    return connect(server, revision, capabilities)


TEXTS = {
    "rows": "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 |  |",
    "numbers": "| label | n (kg) |\n| --- | --- |\n| x | 1.0 |\n| y |  |",
    "change": "--- n\n+++ n\n@@ -1,2 +1,2 @@\n a\n-b\n+c",
    "picture": "A dot",
    "text": "# Hello",
    "whole": "two rows",
}


@pytest.mark.covers("APP-8A.9", "APP-8A.10")
@cases("revision", REVISIONS)
async def test_the_text_is_complete_and_the_same_for_every_client(revision: str) -> None:
    answers: list[list[bytes]] = []
    for capabilities in ({}, HOST):
        async with shown(revision, capabilities) as client:
            found = []
            for name, text in TEXTS.items():
                result = await client.call(name)
                assert result["content"][-1] == {"type": "text", "text": text}
                found.append(client.lines[-1])
            answers.append(found)
    assert answers[0] == answers[1]


async def test_the_data_of_a_view_is_beside_its_text() -> None:
    async with shown(MODERN, HOST) as client:
        assert (await client.call("rows"))["structuredContent"] == {"result": [{"a": 1, "b": 2}, {"a": 3}]}
        numbers = await client.call("numbers")
        assert numbers["structuredContent"] == {"labels": ["x", "y"], "series": {"n": [1.0, None]}, "unit": "kg"}
        assert set(numbers["_meta"]["io.toolwire/chart"]) == {"wide", "narrow"}
        change = (await client.call("change"))["structuredContent"]
        assert change["hunks"] == [{"before": 1, "after": 1, "lines": [" a", "-b", "+c"]}]
        assert (change["added"], change["removed"], change["name"]) == (1, 1, "n")


async def test_a_failure_is_told_as_it_is() -> None:
    server = Server("s")

    @server.tool(app=server.app(views.table()))
    def rows(count: int) -> list[int]:
        return [1] * count

    async with connect(server, MODERN) as client:
        assert (await client.call("rows", {"count": "many"}))["isError"] is True
        assert (await client.call("rows", {"count": 0}))["content"][0]["text"] == "There are no rows."
        assert (await client.call("rows", {"count": 1}))["content"][0]["text"] == "| value |\n| --- |\n| 1 |"


async def test_tools_of_the_view_keep_their_results() -> None:
    server = Server("s")
    app = server.app(views.table())

    @app.tool
    def more() -> list[dict[str, int]]:
        return [{"a": 1}]

    async with connect(server, MODERN) as client:
        assert (await client.call("more"))["content"][0]["text"] == '[{"a":1}]'
