"""The helpers that users write their own tests with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import Context, Depends, Server, testing
from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.revisions import REVISIONS

OVER: list[Literal["memory", "stdio"]] = ["memory", "stdio"]


@cases("over", OVER)
@cases("revision", REVISIONS)
async def test_a_client_and_the_record_of_what_was_said(over: Literal["memory", "stdio"], revision: str) -> None:
    server = FakeServer({"tools/call": lambda request, outlet: text("é" * 10)})
    async with testing.connect(server, revision=revision, over=over) as (client, wire):
        assert client.revision == revision
        assert (await client.call_tool("x", {"a": 1})).text == "é" * 10
        direction, request = wire.messages[-2]
        assert (direction, request["method"], request["params"]["name"]) == ("→", "tools/call", "x")
        direction, response = wire.messages[-1]
        assert (direction, response["id"]) == ("←", request["id"])
        assert response["result"]["content"] == [{"type": "text", "text": "é" * 10}]
        assert wire.sent[-1] is request
        assert wire.received[-1] is response
        assert await wire.until(lambda way, message: way == "←" and message.get("id") == request["id"]) is response
    assert not client.connected


@pytest.mark.parametrize("over", OVER)
async def test_the_principal_reaches_the_server(over: Literal["memory", "stdio"]) -> None:
    server = FakeServer({"tools/call": lambda request, outlet: text(request.principal["name"])})
    async with testing.connect(server, over=over, principal={"name": "ada"}) as (client, _):
        assert (await client.call_tool("who")).text == "ada"


async def test_callbacks_are_those_of_a_client() -> None:
    logs: list[Any] = []
    progress: list[Any] = []

    async def call(request: Any, outlet: Any) -> Any:
        outlet.notify("notifications/message", t.LoggingMessageNotificationParams(level="error", data="d"))
        outlet.notify(
            "notifications/progress", t.ProgressNotificationParams(progress_token=request.progress_token, progress=1)
        )
        form = t.ElicitRequestParams(message="?", requested_schema={"type": "object", "properties": {}})
        for method, params in (("elicitation/create", form), ("roots/list", t.RequestParams())):
            await outlet.request(method, params, timeout=5)
        sampled = t.CreateMessageRequestParams(messages=[t.SamplingMessage("user", t.TextContent("hi"))], max_tokens=1)
        return text(bytes(await outlet.request("sampling/createMessage", sampled, timeout=5)).decode())

    async with testing.connect(
        FakeServer({"tools/call": call}),
        revision="2025-11-25",
        elicit=lambda message, params: {},
        sample=lambda params: "sampled",
        roots=["file:///x"],
        on_log=logs.append,
        on_progress=progress.append,
    ) as (client, _):
        assert "sampled" in (await client.call_tool("x")).text
    assert len(logs) == len(progress) == 1


async def test_a_server_file_runs_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "p", "version": "1"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\\n")
        sys.stdout.flush()
""",
        encoding="utf-8",
    )
    async with testing.connect(script, revision="2025-06-18", over="stdio") as (client, wire):
        assert client.server is not None
        assert client.server.name == "p"
        assert wire.sent[0]["method"] == "initialize"
    with pytest.raises(ValueError, match="process of its own"):
        async with testing.connect(str(script)):
            pass


async def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="over="):
        async with testing.connect(FakeServer(), over="pigeon"):  # type: ignore[arg-type]
            pass


async def test_what_the_server_raises_is_the_tests_to_know() -> None:
    class Broken(FakeServer):
        async def serve(self, channel: Any, *, principal: Any = None) -> None:
            raise RuntimeError("wires crossed")

    with pytest.raises((RuntimeError, Unreachable), match="wires crossed"):
        async with testing.connect(Broken()):
            pass


async def test_an_error_of_the_test_itself_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with testing.connect(FakeServer()):
            raise KeyError("mine")


async def test_a_batch_is_recorded_as_its_messages() -> None:
    wire = testing.Wire()
    waiting = asyncio.ensure_future(wire.until(lambda way, message: message == {"b": 2}))
    await asyncio.sleep(0)
    wire.record("←", b'[{"a":1},{"b":2}]')
    wire.record("←", b"no json")
    assert [message for _, message in wire.messages] == [{"a": 1}, {"b": 2}, {"unreadable": "no json"}]
    assert await waiting == {"b": 2}


class Store:
    def __init__(self, name: str) -> None:
        self.name = name


def address() -> str:
    raise AssertionError("the real address is not looked up")


def connect(address: str = Depends(address)) -> Store:
    return Store(f"real store at {address}")


def keeper() -> Server:
    server = Server("keeper")

    @server.tool
    async def where(store: Store = Depends(connect)) -> str:
        return store.name

    @server.resource("store://name")
    def name(store: Store = Depends(connect)) -> str:
        return store.name

    return server


@pytest.mark.covers("R32")
async def test_dependencies_are_replaced_for_a_while() -> None:
    server = keeper()
    cleaned: list[str] = []

    async def fake(ctx: Context) -> AsyncIterator[Store]:
        yield Store(f"fake for {ctx.method}")
        cleaned.append("up")

    with testing.replaced(server, {connect: fake}):
        async with testing.connect(server) as (client, _):
            assert (await client.call_tool("where")).text == "fake for tools/call"
            (contents,) = await client.read_resource("store://name")
            assert contents.text == "fake for resources/read"
    assert cleaned == ["up", "up"]
    with testing.replaced(server, {address: lambda: "nowhere"}):
        assert (await server.call_tool("where")).text == "real store at nowhere"
    assert (await server.call_tool("where")).is_error


def test_a_replacement_that_concerns_nobody_is_a_mistake() -> None:
    server = keeper()
    with pytest.raises(LookupError, match="depends on"), testing.replaced(server, {keeper: connect}):
        pass


async def test_traceback_of_a_server_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "from toolwire import Server\nserver = Server('s')\n"
        "@server.tool\ndef fail() -> str:\n    raise ValueError('the cause')\nserver.run()\n",
        encoding="utf-8",
    )
    async with testing.connect(script, over="stdio") as (client, _):
        result = await client.call_tool("fail")
    identifier = result.text.partition("error id ")[2].rstrip(")")
    assert f"error {identifier} in the tool fail" in caplog.text
    assert "ValueError: the cause" in caplog.text
