"""What the page can see and do, on both eras, through the application's own HTTP operations."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.inspector.page_client import inspected

from toolwire import Context, Server, ToolError
from toolwire.protocol import types as t

pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated since protocol revision:DeprecationWarning")

both_eras = cases("revision", ["2025-11-25", "2026-07-28"])


@dataclass
class Person:
    name: str


def make_server() -> Server:
    server = Server("sample", version="3.0", instructions="Be kind.")

    @server.tool(title="Adding", annotations={"destructiveHint": True})
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Person)
        return f"Hello, {answer.data.name}" if answer.data else answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("Think!", max_tokens=10)
        return str(getattr(answer.content, "text", answer.content))

    @server.tool
    async def roots(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1, total=4, message="waiting")
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def fail() -> str:
        raise ToolError("it broke")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.info("a word")
        return "said"

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    @server.resource("note://{day}")
    def day(day: str) -> str:
        return day

    @server.prompt
    def brief(city: str) -> str:
        return f"About {city}"

    @server.completion(prompt="brief", argument="city")
    async def cities(partial: str) -> list[str]:
        return [city for city in ("Oslo", "Bergen") if city.startswith(partial)]

    return server


@both_eras
async def test_a_page_is_told_what_the_server_is_and_offers(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        state = await page.ask("state")
        assert state["connection"]["state"] == "connected"
        assert state["connection"]["revision"] == revision
        assert state["connection"]["server"]["name"] == "sample"
        assert state["connection"]["instructions"] == "Be kind."
        tools = {each["key"]: each for each in state["catalogue"]["tools"]["items"]}
        assert tools["add"]["title"] == "Adding"
        assert tools["add"]["hints"] == ["destructiveHint"]
        others = {kind: state["catalogue"][kind]["items"] for kind in ("resources", "templates", "prompts")}
        keys = {kind: [each["key"] for each in items] for kind, items in others.items()}
        assert keys == {"resources": ["note://today"], "templates": ["note://{day}"], "prompts": ["brief"]}
        found = await page.ask("definition", kind="tools", key="add")
        assert found["definition"]["inputSchema"]["required"] == ["a"]
        assert (await page.answer("definition", kind="tools", key="nothing")).status == 422


@both_eras
async def test_a_tool_is_called_and_its_result_kept(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        call = await page.call("tools/call", name="add", arguments={"a": 1})
        assert call["state"] == "done" and call["took"] >= 0 and call["size"] > 0 and not call["failed"]
        assert (await page.result(call))["content"][0]["text"] == "3"
        assert (await page.call("tools/call", name="fail"))["failed"]
        unknown = await page.call("tools/call", name="nothing")
        assert unknown["state"] == "failed" and unknown["error"]["code"] == -32602
        assert (await page.answer("call", method="initialize", params={})).status == 422


@both_eras
async def test_a_call_is_made_again_with_what_was_sent(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        sent = {"name": "add", "arguments": {"a": 5}}
        call = await page.call("tools/call", **sent)
        assert (await page.ask("arguments", call=call["id"]))["params"] == sent
        again = (await page.ask("again", call=call["id"]))["call"]
        assert again["id"] != call["id"]
        assert await page.text(again["id"]) == (await page.result(call))["content"][0]["text"]
        large = await page.call("tools/call", name="add", arguments={"a": "x" * 2_000_000})
        assert (await page.ask("arguments", call=large["id"]))["params"] is None
        for operation in ("again", "arguments"):
            assert (await page.answer(operation, call="99")).json() == {"error": "The call is no longer kept"}


@both_eras
async def test_messages_say_what_they_are_about(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        await page.call("tools/call", name="add", arguments={"a": 1})
        await page.call("resources/read", uri="note://today")
        await page.call("prompts/get", name="brief", arguments={"city": "Oslo"})
        await page.ask("complete", prompt="brief", argument="city", value="B")
        messages = (await page.ask("state"))["messages"]
    about = {(each["method"], each["kind"]): each["subject"] for each in messages}
    for method, subject in (
        ("tools/call", "add"),
        ("resources/read", "note://today"),
        ("prompts/get", "brief"),
        ("completion/complete", "brief"),
        ("tools/list", None),
    ):
        assert [about[method, kind] for kind in ("request", "result")] == [subject, subject]


async def test_resources_and_prompts_are_read() -> None:
    async with inspected(make_server()) as page:
        read = await page.result(await page.call("resources/read", uri="note://today"))
        assert read["contents"][0]["text"] == "sunny"
        prompt = await page.result(await page.call("prompts/get", name="brief", arguments={"city": "Oslo"}))
        assert prompt["messages"][0]["content"]["text"] == "About Oslo"
        assert (await page.ask("complete", prompt="brief", argument="city", value="B"))["values"] == ["Bergen"]


@both_eras
async def test_progress_is_told_and_a_call_can_be_cancelled(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="wait")
        reported = {"progress": 1, "total": 4, "message": "waiting"}
        await page.event("call", call=lambda call: call["progress"] == reported)
        assert (await page.ask("cancel", call=identifier))["cancelled"]
        assert (await page.ended(identifier))["state"] == "cancelled"
        assert not (await page.ask("cancel", call=identifier))["cancelled"]
        told = await page.event("message", message=lambda each: each["method"] == "notifications/cancelled")
        assert told["message"]["direction"] == "→"


@both_eras
async def test_a_question_waits_for_the_page(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="greet")
        question = await page.question()
        assert question["kind"] == "form" and question["params"]["message"] == "Who are you?"
        wrong = await page.respond(question, action="accept", content={"name": 7})
        assert wrong.status == 422 and "name" in wrong.json()["error"]
        assert (await page.respond(question, action="accept", content={"name": "Ada"})).json()["taken"]
        ended = await page.ended(identifier)
        assert (await page.result(ended))["content"][0]["text"] == "Hello, Ada"
        assert ended["rounds"] == (2 if revision == "2026-07-28" else 1), "the page says that the tool ran again"
        assert not (await page.respond(question, action="cancel")).json()["taken"]


async def test_a_question_can_be_declined_and_goes_away_with_its_call() -> None:
    async with inspected(make_server()) as page:
        identifier = await page.start("tools/call", name="greet")
        first = await page.question()
        await page.respond(first, action="decline")
        assert await page.text(identifier) == "decline"
        again = await page.start("tools/call", name="greet")
        asked = await page.event("question", question=lambda each: each["id"] != first["id"])
        await page.ask("cancel", call=again)
        await page.event("answered", id=asked["question"]["id"])
        assert (await page.ask("state"))["questions"] == []


@both_eras
async def test_sampling_is_answered_by_a_person(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        identifier = await page.start("tools/call", name="think")
        question = await page.question()
        assert question["kind"] == "sampling"
        await page.respond(question, action="accept", text="Hm.")
        assert await page.text(identifier) == "Hm."


@both_eras
async def test_roots_are_what_the_page_says(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        await page.ask("roots", roots=["file:///work"])
        assert await page.text(await page.start("tools/call", name="roots")) == "file:///work"


@both_eras
async def test_changes_of_lists_and_resources_are_told(revision: str) -> None:
    server = make_server()
    async with inspected(server, revision=revision) as page:
        await page.ask("subscribe", uri="note://today", on=True)
        assert (await page.ask("state"))["connection"]["subscriptions"] == ["note://today"]
        server.notify_updated("note://today")
        await page.event("note", note=lambda note: note["kind"] == "updated" and note["uri"] == "note://today")
        server.remove("add")
        await page.event(
            "catalogue", catalogue=lambda each: "add" not in [tool["key"] for tool in each["tools"]["items"]]
        )
        await page.ask("subscribe", uri="note://today", on=False)
        assert (await page.ask("state"))["connection"]["subscriptions"] == []


@both_eras
async def test_log_messages_are_shown(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        await page.ask("level", level="debug")
        await page.call("tools/call", name="talk")
        note = (await page.event("note", note=lambda note: note["kind"] == "log"))["note"]
        assert note["data"] == "a word" and note["level"] == "info"


async def test_the_page_chooses_the_revision() -> None:
    async with inspected(make_server()) as page:
        assert (await page.ask("state"))["connection"]["revision"] == "2026-07-28"
        assert (await page.ask("connect", revision="2024-11-05"))["connection"]["revision"] == "2024-11-05"
        assert (await page.answer("connect", revision="1999")).status == 422
        assert (await page.ask("state"))["connection"]["wanted"] == "2024-11-05"


async def test_every_message_is_recorded_with_its_time() -> None:
    async with inspected(make_server(), url="http://127.0.0.1:8000/mcp") as page:
        await page.call("tools/call", name="add", arguments={"a": 1})
        messages = (await page.ask("state"))["messages"]
        request = next(each for each in messages if each["method"] == "tools/call" and each["kind"] == "request")
        answer = next(each for each in messages if each["answers"] == request["number"])
        assert answer["kind"] == "result" and answer["took"] >= 0 and answer["size"] > 0
        whole = await page.ask("message", number=request["number"])
        assert json.loads(whole["text"])["params"]["name"] == "add"
        part = await page.http.start("GET", path="/api/part", query=f"message={request['number']}").finished()
        assert part.body.decode() == whole["text"]
        command = (await page.ask("command", number=request["number"]))["text"]
        assert command.startswith("curl -sS http://127.0.0.1:8000/mcp") and "mcp-name: add" in command
        await page.ask("forget")
        assert (await page.answer("message", number=request["number"])).status == 422


async def test_a_result_that_does_not_fit_its_schema_is_shown_and_marked() -> None:
    tool = t.Tool(name="odd", input_schema={"type": "object"}, output_schema={"type": "object", "required": ["x"]})
    server = FakeServer(
        {
            "tools/list": lambda request, outlet: t.ListToolsResult(tools=[tool], ttl_ms=0, cache_scope="private"),
            "tools/call": lambda request, outlet: t.CallToolResult(content=[], structured_content={"y": 1}),
        },
        capabilities={"tools": {}},
    )
    async with inspected(server) as page:
        call = await page.call("tools/call", name="odd")
        assert call["state"] == "done" and "x" in call["problems"][0]
        assert (await page.result(call))["structuredContent"] == {"y": 1}


async def test_one_broken_definition_does_not_hide_the_others() -> None:
    good: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}}
    broken: dict[str, Any] = {"name": "broken", "inputSchema": "not a schema"}

    def listed(request: Any, outlet: Any) -> dict[str, Any]:
        return {"tools": [good, broken, "nonsense"], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

    async with inspected(FakeServer({"tools/list": listed}, capabilities={"tools": {}})) as page:
        listing = (await page.ask("state"))["catalogue"]["tools"]
        assert [each["key"] for each in listing["items"]] == ["good", "broken"]
        assert listing["error"]


async def test_a_server_that_cannot_be_reached_is_said_to_be() -> None:
    async with inspected(["/no/such/program"]) as page:
        connection = (await page.ask("state"))["connection"]
        assert connection["state"] == "failed" and connection["problem"]
        assert (await page.answer("call", method="tools/call", params={"name": "x"})).status == 422
