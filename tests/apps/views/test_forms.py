"""Forms: their fields, the tool that takes the answers, and the same questions without a view."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from tests.cases import cases
from tests.wireclient import MODERN, connect

from toolwire import Client, Context, Server
from toolwire.apps import views
from toolwire.client import Accept, Decline
from toolwire.content import ToolResult
from toolwire.protocol.errors import ProtocolError, ServerError

UI = "io.modelcontextprotocol/ui"
HOST = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}


@dataclass
class Ticket:
    subject: str
    urgency: Literal["low", "high"] = "low"


def desk(fields: Any = Ticket) -> Server:
    server = Server("desk")
    form = views.form(fields, title="New ticket")
    app = server.app(form)

    @app.tool
    async def save(ticket: Ticket) -> str:
        return f"saved {ticket.subject}, {ticket.urgency}"

    @server.tool(app=app)
    async def ask(ctx: Context, subject: str = "") -> ToolResult:
        return await form.fill(ctx, save, {"subject": subject})

    return server


def config(server: Server) -> Any:
    (resource,) = server.catalog.resources.values()
    page: Any = resource
    return json.loads(re.findall(r'<script type="application/json" id="config">(.*?)</script>', page.page.html)[0])


@pytest.mark.covers("APP-8A.11")
def test_the_page_knows_the_fields_and_the_tool() -> None:
    found = config(desk())
    assert (found["submit"], found["under"]) == ("save", "ticket")
    assert set(found["schema"]["properties"]) == {"subject", "urgency"}
    assert found["schema"]["required"] == ["subject"]


def test_members_can_be_the_arguments() -> None:
    server = Server("s")
    app = server.app(views.form(Ticket, submit="second"))
    app.tool(name="first")(lambda: "x")

    @app.tool
    def second(subject: str, urgency: str = "low", more: str = "") -> str:
        return subject

    assert (config(server)["submit"], config(server)["under"]) == ("second", None)
    other = Server("s")
    other.app(views.form(Ticket)).tool(input_schema=Ticket, name="third")(lambda ticket: "x")
    assert (config(other)["submit"], config(other)["under"]) == ("third", None)


@pytest.mark.covers("APP-8A.1")
def test_a_tool_that_cannot_take_the_answers_is_refused() -> None:
    app = Server("s").app(views.form(Ticket))
    with pytest.raises(ServerError, match="has no field 'number', which the tool 'a' needs"):

        @app.tool
        def a(subject: str, urgency: str, number: int) -> str:
            return ""

    app = Server("s").app(views.form(Ticket))
    with pytest.raises(ServerError, match="has the field 'urgency', which no argument of the tool 'b' takes"):

        @app.tool
        def b(subject: str) -> str:
            return ""


@cases("fields", [int, {"type": "object"}, {"type": "string"}])
def test_a_form_needs_fields(fields: Any) -> None:
    with pytest.raises(ServerError, match=r"views\.form\(\) takes a record type"):
        views.form(fields)


@pytest.mark.covers("APP-8A.11")
async def test_a_client_that_shows_views_gets_the_form() -> None:
    async with connect(desk(), MODERN, {"extensions": HOST}) as client:
        result = await client.call("ask", {"subject": "tea"})
    assert result["structuredContent"] == {"values": {"subject": "tea"}}
    assert "The user sees New ticket now" in result["content"][0]["text"]


@pytest.mark.covers("APP-8A.11")
@cases("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_another_client_is_asked_the_same(revision: str) -> None:
    asked: list[Any] = []

    def answer(message: str, form: Any) -> Any:
        asked.append((message, sorted(form.requested_schema["properties"])))
        return Accept({"subject": "tea", "urgency": "high"})

    async with Client(desk(), revision=revision, elicit=answer) as client:
        assert (await client.call_tool("ask")).text == "saved tea, high"
    assert asked == [("New ticket", ["subject", "urgency"])]
    async with Client(desk(), revision=revision, elicit=lambda message, form: Decline()) as client:
        assert (await client.call_tool("ask")).text == "The user did not fill in New ticket."


async def test_a_form_from_a_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server = Server("s")
    form = views.form(schema)
    app = server.app(form)

    @app.tool
    def double(n: int) -> int:
        return 2 * n

    @server.tool(app=app)
    async def ask(ctx: Context) -> ToolResult:
        return await form.fill(ctx, lambda values: ToolResult(structured=double(**values)))

    async with Client(server, elicit=lambda message, form: Accept({"n": 21})) as client:
        result = await client.call_tool("ask")
        assert (result.text, result.structured) == ("42", {"result": 42})


async def test_a_client_that_can_neither_show_nor_ask_is_told() -> None:
    async with Client(desk()) as client:
        with pytest.raises(ProtocolError, match="does not support forms"):
            await client.call_tool("ask")
