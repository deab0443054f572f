"""The blocking client: the same, for programs without an event loop."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
from tests.cases import cases

from toolwire import Context, Limits, Server
from toolwire.client import Client as AsyncClient
from toolwire.client.sync import Client
from toolwire.protocol.errors import ProtocolError, ToolFailed, Unreachable
from toolwire.protocol.revisions import REVISIONS


def make() -> Server:
    server = Server("blocking")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def fail() -> None:
        raise ValueError

    @server.resource("memo://a")
    def memo() -> str:
        return "text"

    return server


@cases("revision", REVISIONS)
def test_the_same_without_a_loop(revision: str) -> None:
    with Client(make(), revision=revision) as client:
        assert client.connected
        assert client.revision == revision
        assert [tool.name for tool in client.list_tools()] == ["add", "fail"]
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        assert client.read_resource("memo://a")[0].uri == "memo://a"
        with pytest.raises(ToolFailed):
            client.call_tool("fail", returns=str)
        with pytest.raises(ProtocolError):
            client.call_tool("missing")
    assert not client.connected


def test_an_editor_knows_the_options() -> None:
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with Client(make()) as client:
            client.ping()
    client.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"toolwire-worker"}


def test_a_failed_connection_leaves_no_thread(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise SystemExit(3)")
    client = Client(str(file))
    with pytest.raises(Unreachable, match="exited with code 3"):
        client.connect()
    assert "toolwire-client" not in {thread.name for thread in threading.enumerate()}


def test_many_threads() -> None:
    with Client(make()) as client, ThreadPoolExecutor(8) as threads:
        sums = threads.map(lambda n: client.call_tool("add", {"a": n, "b": n}, returns=int), range(50))
        assert list(sums) == [2 * n for n in range(50)]


class Calculator(Protocol):
    def add(self, a: int, b: int) -> int: ...


class Waiting(Protocol):
    async def add(self, a: int, b: int) -> int: ...


def test_a_stub_blocks_too() -> None:
    with Client(make()) as client:
        assert client.stub(Calculator).add(1, b=2) == 3
        with pytest.raises(TypeError, match="add has to be a plain method"):
            client.stub(Waiting)


def test_changes() -> None:
    server = make()
    with Client(server) as client, client.listen(tools=True) as changes:
        server.remove("fail")
        assert next(changes).kind == "tools"


def test_not_connected() -> None:
    with pytest.raises(Unreachable, match="not connected"):
        Client(make()).list_tools()


def test_a_callback_that_would_wait_for_itself() -> None:
    refused: list[BaseException] = []

    def report(params: object) -> None:
        try:
            client.list_tools()
        except RuntimeError as error:
            refused.append(error)

    server = Server("progress")

    @server.tool
    async def work() -> object:
        for step in range(2):
            yield step

    with Client(server) as client:
        client.call_tool("work", on_progress=report)
    assert "wait for itself" in str(refused[0])


def test_every_method_is_there() -> None:
    own = {name for name in dir(Client) if not name.startswith("_")}
    wanted = {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert wanted <= own
    for name in ("list_tools", "read_resource", "get_prompt"):
        assert inspect.signature(getattr(Client, name)) == inspect.signature(getattr(AsyncClient, name))


def test_a_task_without_an_event_loop() -> None:
    server = Server("tasks", limits=Limits(task_window=0.0, task_poll=0.01))

    @server.tool(task="optional")
    async def slow(label: str) -> str:
        return f"slow {label}"

    @server.tool(task="optional")
    async def asking(ctx: Context) -> str:
        return f"Hello, {(await ctx.elicit('Name?', str, key='name')).data}!"

    with Client(server, elicit=lambda message, params: {"value": "nobody"}) as client:
        handle = client.call_tool_as_task("slow", {"label": "a"})
        assert (handle.tool, handle.wait(returns=str)) == ("slow", "slow a")
        assert client.task(handle.id).status().status == "completed"
        handle.cancel()
        by_hand = client.call_tool_as_task("asking")
        for state in by_hand.updates():
            if state.questions:
                by_hand.provide_input({"name": {"value": "Ada"}})
        assert by_hand.wait().text == "Hello, Ada!"
