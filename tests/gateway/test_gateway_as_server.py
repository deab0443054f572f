"""A gateway is a server: what holds for the tools of a server holds for those behind a gateway."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.gateway.backs import OVER, REVISIONS, Recorded, behind, everything, gateway_before

from toolwire import Client, Context, Policy, Server, testing
from toolwire.audit import AuditLog
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN

FRONT_AND_BACK = pytest.mark.parametrize(
    ("front", "back"), [(front, back) for front in REVISIONS for back in REVISIONS]
)


def yes(message: str, params: Any) -> dict[str, Any]:
    return {"value": True}


@pytest.mark.covers("GW-1.1")
@FRONT_AND_BACK
async def test_policies_judge_and_mask(front: str, back: str) -> None:
    server = Server("back")

    @server.tool
    async def show(ctx: Context, path: str) -> str:
        await ctx.progress(1, message="sk-live-1")
        return f"{path} has sk-live-2"

    def allowed(value: Any) -> str | None:
        return None if str(value).startswith("/work") else "only below /work"

    policy = Policy(rules={"path": allowed}, mask=[r"sk-live-\d"])
    told: list[Any] = []
    async with (
        gateway_before(server, "memory", back, policy=policy) as gateway,
        testing.connect(gateway, revision=front) as (client, wire),
    ):
        refused = await client.call_tool("b_show", {"path": "/etc"})
        assert refused.is_error
        shown = await client.call_tool(
            "b_show", {"path": "/work"}, on_progress=lambda progress: told.append(progress.message)
        )
        assert shown.text == "/work has [redacted]"
        assert told == ["[redacted]"]
        assert "sk-live" not in str(wire.received)


@cases("front", [MODERN, "2025-11-25"])
async def test_log_level_reaches_a_server_that_does_not_declare_logging(front: str) -> None:
    """Servers on python mcp 2.x send log messages and declare nothing."""
    tools = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}

    async def run(request: Any, outlet: Any) -> Any:
        if request.log_level == "debug":
            outlet.notify("notifications/message", t.LoggingMessageNotificationParams(level="info", data="running"))
        return text("ran")

    server = FakeServer(
        {"tools/list": lambda request, outlet: Raw(msgspec.json.encode(tools)), "tools/call": run},
        capabilities={"tools": {}},
    )
    gateway = Gateway("front").add("b", server)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with testing.connect(gateway, revision=front, on_log=heard.put_nowait) as (client, _):
        await client.set_level("debug")
        assert (await client.call_tool("b_run")).text == "ran"
        assert (await heard.get()).data == "running"


class Logging(FakeServer):
    """A legacy server with a tool, and a log level for each session."""

    def __init__(self, declared: dict[str, Any]) -> None:
        listed = t.ListToolsResult(tools=[t.Tool(name="run", input_schema={"type": "object"})])
        handlers: dict[str, Any] = {
            "tools/list": lambda request, outlet: listed,
            "tools/call": self.run,
            "logging/setLevel": lambda request, outlet: t.Result(),
        }
        super().__init__(handlers, capabilities={"tools": {}, **declared}, revisions=("2025-11-25",))
        self.called: Any = None
        """The session of the newest call."""

    def run(self, request: Any, outlet: Any) -> t.CallToolResult:
        self.called = outlet.connection
        return text("ran")


@cases("declared", [{"logging": {}}, {}])
@cases("over", ["memory", "http"])
async def test_log_level_that_is_set_between_two_calls_reaches_the_session(over: Any, declared: dict[str, Any]) -> None:
    server, recorded = Logging(declared), Recorded()
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with behind(cast("Server", server), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with testing.connect(gateway, revision="2025-11-25", over=over, on_log=heard.put_nowait) as (client, _):
            await client.call_tool("b_run")
            await client.set_level("debug")
            assert recorded.sent("logging/setLevel")[-1]["params"] == {"level": "debug"}
            message = t.LoggingMessageNotificationParams(level="debug", data="between calls")
            server.called.notify("notifications/message", message)
            assert (await heard.get()).data == "between calls"


async def test_log_level_precedes_the_call_that_follows() -> None:
    recorded = Recorded()
    async with behind(cast("Server", Logging({})), "memory", recorded) as target:
        gateway = Gateway("front").add("b", target)
        async with testing.connect(gateway, revision="2025-11-25") as (client, _):
            await client.call_tool("b_run")
            assert not recorded.sent("logging/setLevel")  # The client set none, and the server declares none.
        async with testing.connect(gateway, revision="2025-11-25") as (client, _):
            await client.set_level("error")
            await client.call_tool("b_run")
    assert [each["method"] for each in recorded.sent()][-2:] == ["logging/setLevel", "tools/call"]


async def test_policies_mask_what_comes_between_two_calls() -> None:
    tools = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
    server = FakeServer(
        {"tools/list": lambda request, outlet: Raw(msgspec.json.encode(tools)), "tools/call": lambda *_: text("ran")},
        capabilities={"tools": {}, "logging": {}, "extensions": {"com.example/vendor": {}}},
    )
    gateway = Gateway("front", policy=Policy(mask=[r"sk-live-\d"]))
    gateway.add("b", server, revision="2025-11-25")
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with testing.connect(gateway, revision="2025-11-25", on_log=heard.put_nowait) as (client, wire):
        assert (await client.call_tool("b_run")).text == "ran"  # It does not know logging/setLevel.
        server.session.notify("notifications/vendor/told", Raw(b'{"key":"sk-live-1"}'))
        server.session.notify(
            "notifications/message", t.LoggingMessageNotificationParams(level="error", data="sk-live-2")
        )
        assert (await heard.get()).data == "[redacted]"
        assert "notifications/vendor/told" in str(wire.received)
        assert "sk-live" not in str(wire.received)


@FRONT_AND_BACK
async def test_rates_and_questions_go_together(front: str, back: str) -> None:
    async with (
        gateway_before(everything(), "memory", back, policy=Policy(rate="100/minute")) as gateway,
        testing.connect(gateway, revision=front, elicit=yes) as (client, _),
    ):
        assert await client.call_tool("b_book", returns=str) == "True True"


@pytest.mark.covers("GW-1.1")
@FRONT_AND_BACK
async def test_calls_are_recorded_with_their_outcome(front: str, back: str) -> None:
    lines: list[bytes] = []
    audit = AuditLog(lines.append, key="k" * 32)
    async with (
        gateway_before(everything(), "memory", back, audit=audit) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
    ):
        await client.call_tool("b_add", {"a": 1, "b": 2})
        await client.call_tool("b_fail")
    recorded = b"".join(bytes(line) if not isinstance(line, str) else line.encode() for line in lines)
    assert recorded.count(b"b_add") == 1 and recorded.count(b"b_fail") == 1
    assert b'"error"' in recorded and b'"ok"' in recorded


@FRONT_AND_BACK
async def test_a_middleware_may_ask_before_the_server_does(front: str, back: str) -> None:
    if front == MODERN != back:
        return  # The answers to the middleware and those for a call that is held cannot be told apart.
    asked: list[str] = []

    async def answer(message: str, params: Any) -> dict[str, Any]:
        asked.append(message)
        return {"value": True}

    async with gateway_before(everything(), "memory", back) as gateway:

        @gateway.use
        async def confirm(ctx: Any, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                assert (await ctx.elicit("Shall it run?", bool)).data is True
            return await call_next(ctx)

        async with testing.connect(gateway, revision=front, elicit=answer) as (client, _):
            assert await client.call_tool("b_book", returns=str) == "True True"
    assert asked == ["Shall it run?", "Really?"]


@pytest.mark.covers("GW-1.1")
@pytest.mark.parametrize("over", OVER)
@FRONT_AND_BACK
async def test_a_gateway_behind_a_gateway(front: str, back: str, over: str) -> None:
    middle = back
    async with (
        gateway_before(everything(), over, back) as inner,
        gateway_before(inner, over, middle) as outer,
        testing.connect(outer, revision=front, elicit=yes) as (client, _),
    ):
        assert await client.call_tool("b_b_add", {"a": 2, "b": 2}, returns=int) == 4
        assert (await client.read_resource("note://monday/9"))[0].text == "monday 9"
        assert await client.call_tool("b_b_book", returns=str) == "True True"


@cases("back", REVISIONS)
async def test_handlers_of_the_gateway_use_what_is_behind_it(back: str) -> None:
    async with gateway_before(everything(), "memory", back) as gateway:

        @gateway.tool
        async def look(ctx: Context) -> str:
            return (await ctx.read_resource("note://today"))[0].text or ""

        async with testing.connect(gateway) as (client, _):
            assert await client.call_tool("look", returns=str) == "sunny"
            assert (await gateway.call_tool("b_add", {"a": 1, "b": 2})).text == "3"
            assert (await gateway.read_resource("note://today"))[0].text == "sunny"


@pytest.mark.covers("GW-3.9")
@FRONT_AND_BACK
async def test_changes_reach_clients_over_http(front: str, back: str) -> None:
    server = everything()
    async with (
        gateway_before(server, "http", back) as gateway,
        testing.connect(gateway, revision=front, over="http") as (client, _),
        client.listen(tools=True, resources=["note://today"]) as changes,
    ):
        following = aiter(changes)
        server.notify_updated("note://today")
        change = await anext(following)
        assert (change.kind, change.uri) == ("resource", "note://today")
        server.remove("add")
        assert (await anext(following)).kind == "tools"


@pytest.mark.covers("GW-1.1")
async def test_a_gateway_can_be_mounted() -> None:
    gateway = Gateway("front")
    gateway.add("b", everything())
    host = Server("host")
    host.mount(gateway, prefix="g")
    async with Client(host) as client, Client(gateway) as direct:
        assert await client.call_tool("g_b_add", {"a": 1, "b": 1}, returns=int) == 2
        assert await direct.call_tool("b_add", {"a": 1, "b": 1}, returns=int) == 2
        with pytest.raises(ProtocolError):
            await client.call_tool("b_add", {"a": 1, "b": 1})
    async with Client(gateway) as direct:
        assert await direct.call_tool("b_add", {"a": 1, "b": 1}, returns=int) == 2
