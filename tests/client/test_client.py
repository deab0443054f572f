"""A client's requests: metadata, calls, lists, resources, prompts, logging, progress and deadlines."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from tests.cases import cases
from tests.client.fake import EVERYTHING, FakeServer, raw_arguments, text

from toolwire import Resource, Server, testing
from toolwire.client import Budget, Client, InvalidResponse, ResourceNotFound
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, ProtocolError, Timeout
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS

OBJECT = {"type": "object"}


def tool(name: str, **members: Any) -> t.Tool:
    return t.Tool(name, OBJECT, **members)


def listing(*tools: t.Tool) -> Any:
    return lambda request, outlet: t.ListToolsResult(tools=list(tools))


# --- metadata ---


@pytest.mark.covers("META-1", "META-4")
async def test_every_modern_request_says_who_sends_it() -> None:
    server = FakeServer(
        {
            "tools/call": lambda request, outlet: text("x"),
            "tools/list": listing(),
            "resources/read": lambda request, outlet: t.ReadResourceResult(contents=[]),
        }
    )
    async with testing.connect(server, roots=["/tmp"]) as (client, wire):
        await client.call_tool("x")
        await client.call_tool("x", meta={t.PROTOCOL_VERSION_KEY: "forged", "com.example/a": 1}, on_progress=print)
        await client.list_tools()
        await client.read_resource("a:b")
        await client.ping()
        await client.request("tools/list", {"_meta": {"com.example/b": 2}})
        assert len(wire.sent) == 7
        for message in wire.sent:
            meta = message["params"]["_meta"]
            assert meta[t.PROTOCOL_VERSION_KEY] == MODERN
            assert meta[t.CLIENT_CAPABILITIES_KEY] == {"roots": {}, "extensions": {t.TASKS_EXTENSION: {}}}
            assert meta[t.CLIENT_INFO_KEY]["name"] == "toolwire"
        assert wire.sent[2]["params"]["_meta"]["com.example/a"] == 1
        assert wire.sent[2]["params"]["_meta"]["progressToken"] == wire.sent[2]["id"]
        assert wire.sent[6]["params"]["_meta"]["com.example/b"] == 2


async def test_a_legacy_request_has_no_modern_metadata() -> None:
    async with testing.connect(FakeServer({"tools/call": lambda r, o: text("x")}), revision="2025-11-25") as (c, wire):
        await c.call_tool("x")
        await c.call_tool("x", meta={"com.example/a": 1})
        assert wire.sent[-2]["params"] == {"name": "x"}
        assert wire.sent[-1]["params"] == {"name": "x", "_meta": {"com.example/a": 1}}


@pytest.mark.covers("META-7")
async def test_a_malformed_trace_is_refused_before_anything_is_sent() -> None:
    server = FakeServer({"tools/call": lambda request, outlet: text("x")})
    good = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "rojo=00f067aa0ba902b7",
    }
    async with testing.connect(server) as (client, wire):
        await client.call_tool("x", meta=good)
        assert good.items() <= wire.sent[-1]["params"]["_meta"].items()
        for key in good:
            bad = {**good, key: "nonsense"}
            with pytest.raises(ValueError, match=key):
                await client.call_tool("x", meta=bad)
            with pytest.raises(ValueError, match=key):
                await client.read_resource("a:b", meta=bad)
            with pytest.raises(ValueError, match=key):
                await client.get_prompt("x", meta=bad)
        assert server.methods() == ["server/discover", "tools/call"]


# --- calls ---


@pytest.mark.covers("R2", "R3", "R6", "R10")
@cases("revision", REVISIONS)
async def test_a_tool_is_listed_and_called(revision: str) -> None:
    def call(request: Any, outlet: Any) -> t.CallToolResult:
        arguments = raw_arguments(request)
        if arguments["b"] == 0:
            return text("cannot divide by zero", is_error=True)
        return text(str(arguments["a"] / arguments["b"]))

    listed = listing(tool("divide", description="a by b"), tool("other"))
    server = FakeServer({"tools/list": listed, "tools/call": call})
    async with testing.connect(server, revision=revision) as (client, _):
        found, other = await client.list_tools()
        assert other.name == "other"
        assert (found.name, found.description, found.input_schema) == ("divide", "a by b", OBJECT)
        good = await client.call_tool("divide", {"a": 6, "b": 3})
        assert (good.text, good.is_error) == ("2.0", False)
        bad = await client.call_tool("divide", {"a": 6, "b": 0})
        assert (bad.text, bad.is_error) == ("cannot divide by zero", True)


@pytest.mark.covers("R9")
async def test_protocol_errors_are_raised_with_their_code_and_data() -> None:
    def call(request: Any, outlet: Any) -> Any:
        raise ProtocolError(-32602, f"Unknown tool: {request.params.name}", {"tool": request.params.name})

    async with Client(FakeServer({"tools/call": call})) as client:
        with pytest.raises(ProtocolError, match="Unknown tool: nope") as caught:
            await client.call_tool("nope")
        assert (caught.value.code, caught.value.data) == (-32602, {"tool": "nope"})


@pytest.mark.covers("R8")
async def test_a_result_may_hold_any_blocks_and_unknown_ones() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "memo://a", "mimeType": "text/plain", "text": "b"}},
    ]
    server = FakeServer({"tools/call": lambda r, o: {"resultType": "complete", "content": server_blocks}})
    server_blocks: list[Any] = blocks
    async with Client(server) as client:
        result = await client.call_tool("x")
        assert isinstance(result.content[1], t.ImageContent)
        assert result.content[1].data == b"\x00\x01\x02"
        assert isinstance(result.content[2], t.EmbeddedResource)
        assert result.content[2].resource.uri == "memo://a"
        server_blocks = [*blocks, {"type": "hologram", "beams": 3}]
        strange = (await client.call_tool("x")).content[3]
        assert isinstance(strange, t.UnknownContent)
        assert strange["beams"] == 3
        assert await client.call_tool("x", returns=str) == "a"


async def test_arguments_may_be_any_value_with_a_json_form() -> None:
    @dataclass
    class Point:
        x: int

    class Model(pydantic.BaseModel):
        y: int

    seen: list[Any] = []
    server = FakeServer({"tools/call": lambda r, o: seen.append(raw_arguments(r)) or text("")})
    async with testing.connect(server) as (client, wire):
        await client.call_tool("x", {"p": Point(1), "m": Model(y=2), "t": (1, 2)})
        assert seen == [{"p": {"x": 1}, "m": {"y": 2}, "t": [1, 2]}]
        before = len(wire.sent)
        with pytest.raises(TypeError):
            await client.call_tool("x", {"p": object()})
        assert len(wire.sent) == before


# --- pages ---


@pytest.mark.covers("PAG-1", "1.7.5", "R5", "T-13")
@cases("revision", REVISIONS)
async def test_listings_follow_every_page(revision: str) -> None:
    following = {"missing": "", "": "two", "two": None}

    def answer(build: Any) -> Any:
        def handle(request: Any, outlet: Any) -> Any:
            cursor = "missing" if request.params.cursor is msgspec.UNSET else request.params.cursor
            return build(f"n-{cursor}", following[cursor])

        return handle

    server = FakeServer(
        {
            "tools/list": answer(lambda n, c: t.ListToolsResult(tools=[tool(n)], next_cursor=c)),
            "prompts/list": answer(lambda n, c: t.ListPromptsResult(prompts=[t.Prompt(n)], next_cursor=c)),
            "resources/list": answer(
                lambda n, c: t.ListResourcesResult(resources=[t.Resource(uri="a:b", name=n)], next_cursor=c)
            ),
            "resources/templates/list": answer(
                lambda n, c: t.ListResourceTemplatesResult(
                    resource_templates=[t.ResourceTemplate(uri_template="a:{b}", name=n)], next_cursor=c
                )
            ),
        }
    )
    async with Client(server, revision=revision) as client:
        found = [
            await client.list_tools(),
            await client.list_prompts(),
            await client.list_resources(),
            await client.list_resource_templates(),
        ]
        assert [[item.name for item in items] for items in found] == [["n-missing", "n-", "n-two"]] * 4
        page = await client.list_tools_page("")
        assert ([item.name for item in page.tools], page.next_cursor) == (["n-"], "two")


@pytest.mark.covers("1.7.5")
async def test_a_repeated_cursor_ends_the_listing(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer({"tools/list": lambda r, o: t.ListToolsResult(tools=[tool("x")], next_cursor="again")})
    with caplog.at_level(logging.WARNING):
        async with Client(server) as client:
            assert len(await client.list_tools()) == 1
        assert len(server.requests) == 3
    assert "repeated a cursor" in caplog.text


async def test_a_listing_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.listing.MAX_PAGES", 20)
    count = iter(range(1000))
    server = FakeServer({"tools/list": lambda r, o: t.ListToolsResult(tools=[], next_cursor=str(next(count)))})
    async with Client(server) as client:
        with pytest.raises(InvalidResponse, match="more than 20 pages"):
            await client.list_tools()


# --- prompts, completion, resources ---


@pytest.mark.covers("T-15", "1.11.3")
@pytest.mark.parametrize("revision", ["2024-11-05", MODERN])
async def test_prompt_arguments_travel_as_strings(revision: str) -> None:
    def get(request: Any, outlet: Any) -> t.GetPromptResult:
        message = t.PromptMessage("user", t.TextContent(bytes(request.params.arguments).decode()))
        return t.GetPromptResult(messages=[message], description="d")

    async with Client(FakeServer({"prompts/get": get}), revision=revision) as client:
        result = await client.get_prompt("p", {"s": "a b", "n": 3, "yes": True, "list": [1, "x"], "none": None})
        assert isinstance(result.messages[0].content, t.TextContent)
        assert msgspec.json.decode(result.messages[0].content.text) == {
            "s": "a b",
            "n": "3",
            "yes": "true",
            "list": '[1,"x"]',
            "none": "null",
        }


@pytest.mark.covers("T-5", "1.9.3")
async def test_completion_needs_the_capability_only_where_there_is_one() -> None:
    answer = t.CompleteResult(completion=t.Completion(["Oslo"], total=1))
    without = {"prompts": {}}
    server = FakeServer({"completion/complete": lambda r, o: answer}, capabilities=without)
    async with Client(server, revision="2024-11-05") as client:
        assert (await client.complete(t.PromptReference("p"), ("city", "O"))).values == ["Oslo"]
    for revision in REVISIONS[1:]:
        async with Client(server, revision=revision) as client:
            with pytest.raises(NotSupported, match="completions"):
                await client.complete(t.PromptReference("p"), ("city", "O"))


@pytest.mark.covers("1.9.1", "2.2.2")
async def test_the_context_of_a_completion_is_for_those_who_know_it() -> None:
    answer = t.CompleteResult(completion=t.Completion([]))
    server = FakeServer({"completion/complete": lambda r, o: answer})
    for revision in REVISIONS:
        async with testing.connect(server, revision=revision) as (client, wire):
            await client.complete(t.ResourceTemplateReference("a:{b}"), ("b", ""), {"c": "d"})
            params = wire.sent[-1]["params"]
            assert params["ref"] == {"type": "ref/resource", "uri": "a:{b}"}
            assert params["argument"] == {"name": "b", "value": ""}
            early = revision in ("2024-11-05", "2025-03-26")
            assert params.get("context") == (None if early else {"arguments": {"c": "d"}})
            assert ("context" in params) is not early


async def test_a_resource_has_all_its_contents() -> None:
    contents = [{"uri": "a:1", "text": "x"}, {"uri": "a:2", "blob": "AAE="}]
    async with Client(FakeServer({"resources/read": lambda r, o: {"contents": contents}})) as client:
        first, second = await client.read_resource("a:")
        assert (first.text, second.blob) == ("x", b"\x00\x01")


@pytest.mark.covers("RES-3")
@cases("revision", REVISIONS)
async def test_a_missing_resource_has_an_error_of_its_own(revision: str) -> None:
    async with Client(Server("real", resources=Resource("note://a", content="x")), revision=revision) as client:
        with pytest.raises(ResourceNotFound) as missing:
            await client.read_resource("note://missing")
        assert missing.value.code == (-32602 if revision == MODERN else -32002)
        assert missing.value.data == {"uri": "note://missing"}


@pytest.mark.covers("RES-3")
@cases("revision", ["2025-06-18", MODERN])
@cases(
    ("code", "data", "missing"),
    [
        (-32002, msgspec.UNSET, True),
        (-32002, {"uri": "a:"}, True),
        (-32602, {"uri": "a:"}, True),
        (-32602, {"uri": None}, False),
        (-32602, msgspec.UNSET, False),
        (-32603, {"uri": "a:"}, False),
    ],
)
async def test_either_code_means_a_missing_resource(revision: str, code: int, data: Any, missing: bool) -> None:
    def read(request: Any, outlet: Any) -> Any:
        raise ProtocolError(code, "no", data)

    async with Client(FakeServer({"resources/read": read}), revision=revision) as client:
        with pytest.raises(ProtocolError, match="no") as caught:
            await client.read_resource("a:")
        assert isinstance(caught.value, ResourceNotFound) == missing
        assert (caught.value.code, caught.value.data) == (code, data)


# --- logging ---


@pytest.mark.covers("1.8.3")
@cases("revision", LEGACY)
async def test_the_level_is_set_by_request_before_2026(revision: str) -> None:
    logs: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        outlet.notify("notifications/message", t.LoggingMessageNotificationParams(level="error", data=[1], logger="l"))
        return text("")

    server = FakeServer({"logging/setLevel": lambda r, o: t.EmptyResult(), "tools/call": call})
    async with testing.connect(server, revision=revision, on_log=logs.append) as (client, wire):
        await client.set_level("warning")
        assert wire.sent[-1]["params"] == {"level": "warning"}
        await client.call_tool("x")
    assert [(entry.level, entry.data, entry.logger) for entry in logs] == [("error", [1], "l")]


async def test_the_level_travels_with_each_request_from_2026_on() -> None:
    server = FakeServer({"tools/call": lambda r, o: text("")})

    def level(wire: testing.Wire) -> Any:
        return wire.sent[-1]["params"]["_meta"].get(t.LOG_LEVEL_KEY)

    async with testing.connect(server) as (client, wire):
        await client.call_tool("x")
        assert level(wire) is None
        await client.set_level("warning")
        await client.call_tool("x")
        assert level(wire) == "warning"
        with pytest.raises(ValueError, match="unknown logging level"):
            await client.set_level("loud")  # type: ignore[arg-type]
    async with testing.connect(server, on_log=print) as (client, wire):
        await client.call_tool("x")
        assert level(wire) == "info"


async def test_a_callback_that_fails_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard = asyncio.Event()

    async def later(params: t.LoggingMessageNotificationParams) -> None:
        heard.set()
        raise RuntimeError("async boom")

    def at_once(params: t.ProgressNotificationParams) -> None:
        raise RuntimeError("sync boom")

    async def call(request: Any, outlet: Any) -> Any:
        outlet.notify("notifications/message", t.LoggingMessageNotificationParams(level="info", data=1))
        outlet.notify(
            "notifications/progress", t.ProgressNotificationParams(progress_token=request.progress_token, progress=1)
        )
        return text("fine")

    async with Client(FakeServer({"tools/call": call}), on_log=later) as client:
        assert (await client.call_tool("x", on_progress=at_once)).text == "fine"
        await heard.wait()
        await client.ping()
    assert "sync boom" in caplog.text
    assert "async boom" in caplog.text


def progressing(*values: float) -> Any:
    async def call(request: Any, outlet: Any) -> Any:
        for value in values:
            params = t.ProgressNotificationParams(progress_token=request.progress_token, progress=value, total=9)
            outlet.notify("notifications/progress", params)
        return text("done")

    return call


# --- progress, deadlines, cancellation ---


@pytest.mark.covers("1.6.1", "STD-8")
@pytest.mark.parametrize("revision", ["2024-11-05", MODERN])
async def test_progress_reaches_its_own_call(revision: str) -> None:
    one: list[Any] = []
    two: list[Any] = []
    everyone: list[Any] = []
    server = FakeServer({"tools/call": progressing(1, 2.5)})
    async with Client(server, revision=revision, on_progress=everyone.append) as client:
        await asyncio.gather(
            client.call_tool("x", on_progress=one.append),
            client.call_tool("x", on_progress=two.append),
            client.call_tool("x"),
        )
    assert [[params.progress for params in heard] for heard in (one, two, everyone)] == [[1, 2.5]] * 3
    assert len({params.progress_token for heard in (one, two, everyone) for params in heard}) == 3


async def test_no_token_is_sent_where_nobody_listens() -> None:
    async with testing.connect(FakeServer({"tools/call": lambda r, o: text("")})) as (client, wire):
        await client.call_tool("x")
        assert "progressToken" not in wire.sent[-1]["params"]["_meta"]


@pytest.mark.covers("CAN-4", "STD-9", "CAN-3", "1.5.5", "R25")
@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_call_that_takes_too_long_is_cancelled(revision: str) -> None:
    stopped = asyncio.Event()

    async def forever(request: Any, outlet: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    server = FakeServer({"tools/call": forever})
    async with testing.connect(server, revision=revision, timeout=30) as (client, wire):
        with pytest.raises(Timeout, match="tools/call"):
            await client.call_tool("x", timeout=0.01)
        await stopped.wait()
        call, cancelled = wire.sent[-2:]
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == call["id"]
        # A late answer is nobody's.
        server.session.channel.write(
            msgspec.json.encode({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}})
        )
        await client.ping()


@pytest.mark.covers("R25")
async def test_request_times_out_when_server_is_silent() -> None:
    async def forever(request: Any, outlet: Any) -> Any:
        await asyncio.Event().wait()

    server = FakeServer({"prompts/get": forever})
    async with testing.connect(server, revision=MODERN, timeout=30) as (client, _):
        with pytest.raises(Timeout, match="prompts/get"):
            await client.get_prompt("x", timeout=0.01)


@pytest.mark.covers("STD-9", "CAN-1", "1.5.1")
async def test_cancelling_the_waiting_task_cancels_the_request() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def forever(request: Any, outlet: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with testing.connect(FakeServer({"tools/call": forever})) as (client, wire):
        calling = asyncio.ensure_future(client.call_tool("x"))
        await started.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await stopped.wait()
        assert wire.sent[-1]["params"]["requestId"] == wire.sent[-2]["id"]


@pytest.mark.covers("CAN-4")
async def test_progress_extends_a_deadline_up_to_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[tuple[float, float]] = []

    def note(params: t.ProgressNotificationParams) -> None:
        connection = client._connector.connection
        assert connection is not None
        pending = connection.session.peer.outgoing[params.progress_token]
        deadlines.append((pending.expires, pending.ceiling))

    async with Client(FakeServer({"tools/call": progressing(1, 2, 3)}), timeout=50) as client:
        await client.call_tool("x", on_progress=note)
        first, second, third = (when for when, _ in deadlines)
        assert first < second < third
    monkeypatch.setattr("toolwire.client.connection.CEILING_SECONDS", 0.0)
    deadlines.clear()
    async with Client(FakeServer({"tools/call": progressing(1, 2, 3)}), timeout=50) as client:
        await client.call_tool("x", on_progress=note)
        assert [when for when, _ in deadlines] == [ceiling for _, ceiling in deadlines]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_overhears_messages_may_fail(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    def overhear(direction: str, message: bytes) -> None:
        raise RuntimeError("the disk is full")

    async with Client(Server("s"), revision=revision, on_message=overhear) as client:
        assert await client.list_tools() == []
    assert "on_message failed" in caplog.text


async def test_an_infinite_timeout_is_none() -> None:
    async with Client(FakeServer({"tools/call": lambda r, o: text("")}), timeout=None) as client:
        await client.call_tool("x", timeout=float("inf"))
        await client.call_tool("x")


@pytest.mark.parametrize("options", [{}, {"budget": Budget(calls=1)}])
def test_warning_about_a_missing_await_names_the_method_that_was_called(options: dict[str, Any]) -> None:
    client = Client(Server("s"), **options)
    for call in (client.call_tool("x"), client.list_tools()):
        # Python writes: coroutine 'Client.call_tool' was never awaited.
        assert call.__qualname__ in ("Client.call_tool", "Client.list_tools")
        call.close()


def test_errors_of_a_missing_await_are_explained_in_the_guide() -> None:
    call = Client(Server("s")).call_tool("x")
    with pytest.raises(AttributeError) as caught:
        _ = call.structured  # type: ignore[attr-defined]
    call.close()
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "errors.md").read_text(encoding="utf-8")
    assert f"`{caught.value}`" in guide
    assert f"`coroutine '{call.__qualname__}' was never awaited`" in guide


# --- escape hatches ---


async def test_any_request_and_notification_can_be_sent() -> None:
    server = FakeServer({"tools/list": lambda r, o: {"tools": [], "odd": 1}}, capabilities=EVERYTHING)
    async with testing.connect(server, revision="2025-11-25") as (client, wire):
        assert await client.request("tools/list", {"cursor": "c"}) == {"tools": [], "odd": 1}
        assert wire.sent[-1]["params"] == {"cursor": "c"}
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.request("no/such")
        await client.notify("notifications/roots/list_changed")
        await client.ping()
    assert [notice.method for notice in server.notices][-1] == "notifications/roots/list_changed"
