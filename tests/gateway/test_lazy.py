"""Upstreams that start with their first call, and are listed before from the stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.backs import Recorded, behind, everything, until
from tests.gateway.test_ways_around import GUEST, STAFF

from toolwire import Client, Server, testing
from toolwire.gateway import Gateway
from toolwire.gateway.config import gateway_of
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.server.shaping import Shape, ToolPins
from toolwire.stores import StoreFailed
from toolwire.stores.sqlite import SqliteStores

ERAS = ("2025-11-25", MODERN)
FRONTS = pytest.mark.parametrize("front", ERAS)
BACKS = pytest.mark.parametrize("back", ERAS)


class Front:
    """Gateways with one lazy upstream `b`, one after the other, on the same stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def gateway(self, target: Any, *, search: bool = False, **options: Any) -> Gateway:
        stores = SqliteStores(self.folder / "store.db")
        gateway = Gateway("front", stores=stores, secret="s" * 32, search=search)
        return gateway.add("b", target, lazy=True, **options)

    async def learn(self, server: Server, **options: Any) -> None:
        """Have the stores keep the lists of an upstream."""
        async with behind(server, "memory") as target:
            gateway = self.gateway(target, **options)
            async with Client(gateway) as client:
                await client.list_tools()
                await until(lambda: lists_of(gateway).store.has_lists)


def lists_of(gateway: Gateway) -> Any:
    return gateway.fronts.front.upstreams["b"].lists


@pytest.fixture
def front_of(tmp_path: Path) -> Front:
    return Front(tmp_path)


async def call_tool(client: Client) -> None:
    assert (await client.call_tool("b_add", {"a": 1, "b": 2})).structured in (3, {"result": 3})


async def get_prompt(client: Client) -> None:
    prompt = (await client.list_prompts())[0]
    await client.get_prompt(prompt.name, {each.name: "x" for each in prompt.arguments or ()})


async def read_resource(client: Client) -> None:
    assert await client.read_resource("note://today")


async def read_by_template(client: Client) -> None:
    assert await client.list_resource_templates()
    assert await client.read_resource("note://friday/9")


async def subscribe(client: Client) -> None:
    async with client.listen(resources=["note://today"]):
        pass


@BACKS
@FRONTS
@pytest.mark.parametrize("use", [call_tool, get_prompt, read_resource, read_by_template, subscribe])
async def test_upstream_starts_when_it_is_used_and_not_when_it_is_listed(
    front: str, back: str, use: Callable[[Client], Any], front_of: Front
) -> None:
    await front_of.learn(everything(), revision=back)
    sent = Recorded()
    async with behind(everything(), "memory", sent) as target:
        gateway = front_of.gateway(target, revision=back)
        async with Client(gateway, revision=front) as client:
            assert "b_add" in [each.name for each in await client.list_tools()]
            assert await client.list_resources() and await client.list_prompts()
            assert not sent.messages and lists_of(gateway).is_asleep
            await use(client)
            assert sent.messages and not lists_of(gateway).is_asleep


async def test_first_run_starts_the_upstream_at_once(front_of: Front) -> None:
    sent = Recorded()
    async with behind(everything(), "memory", sent) as target, Client(front_of.gateway(target)) as client:
        assert "b_add" in [each.name for each in await client.list_tools()]
        assert sent.messages


@FRONTS
async def test_found_tool_starts_its_upstream(front: str, front_of: Front) -> None:
    await front_of.learn(everything(), search=True)
    sent = Recorded()
    async with (
        behind(everything(), "memory", sent) as target,
        Client(front_of.gateway(target, search=True), revision=front) as client,
    ):
        assert "b_add" in (await client.call_tool("search_tools", {"query": "add"})).text
        assert not sent.messages
        result = await client.call_tool("call_tool", {"name": "b_add", "arguments": {"a": 1, "b": 2}})
        assert result.structured in (3, {"result": 3})


def changed(description: str = "Adds", *, has_tool: bool = True) -> Server:
    server = Server("back")
    if has_tool:

        @server.tool(description=description)
        async def add(a: int, b: int) -> int:
            return a + b

    @server.tool
    async def other() -> str:
        return "other"

    return server


@FRONTS
async def test_call_of_a_tool_that_is_gone_is_refused(front: str, front_of: Front) -> None:
    await front_of.learn(changed())
    async with (
        behind(changed(has_tool=False), "memory") as target,
        Client(front_of.gateway(target), revision=front) as client,
    ):
        assert "b_add" in [each.name for each in await client.list_tools()]
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("b_add", {"a": 1, "b": 2})
        assert [each.name for each in await client.list_tools()] == ["b_other"]


@FRONTS
async def test_tool_that_changed_while_asleep_is_withheld_from_its_first_call(front: str, front_of: Front) -> None:
    def shape() -> Shape:
        return Shape(pins=ToolPins())

    await front_of.learn(changed(), shape=shape())
    sent = Recorded()
    async with (
        behind(changed("Adds, and deletes"), "memory", sent) as target,
        Client(front_of.gateway(target, shape=shape()), revision=front) as client,
    ):
        refused = await client.call_tool("b_add", {"a": 1, "b": 2})
        assert refused.is_error and "changed since it was approved" in refused.text
    assert sent.sent("tools/list") and not sent.sent("tools/call")


async def test_caller_who_may_not_use_a_tool_does_not_start_its_upstream(front_of: Front) -> None:
    shape = Shape(visible_to=lambda principal: principal.subject == STAFF.subject)
    await front_of.learn(everything(), shape=shape)
    sent = Recorded()
    async with behind(everything(), "memory", sent) as target:
        gateway = front_of.gateway(target, shape=shape)
        async with (
            testing.connect(gateway, principal=GUEST) as (guest, _),
            testing.connect(gateway, principal=STAFF) as (staff, _),
        ):
            assert await guest.list_tools() == []
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await guest.call_tool("b_add", {"a": 1, "b": 2})
            assert not sent.messages
            await call_tool(staff)


async def test_idle_upstream_stops_and_starts_again(front_of: Front, tmp_path: Path) -> None:
    program = tmp_path / "back.py"
    program.write_text(
        "import os\nfrom toolwire import Server\nserver = Server('back')\n"
        "@server.tool\nasync def pid() -> int:\n    return os.getpid()\nserver.run()\n"
    )
    gateway = front_of.gateway([sys.executable, str(program)], idle_seconds=0.4)
    async with Client(gateway) as client:
        seen = set()
        for _ in range(2):
            seen.add((await client.call_tool("b_pid")).text)
            await until(lambda: lists_of(gateway).is_asleep)
            await until(lambda: not gateway.fronts.front.upstreams["b"].back_connections.count)
            assert [each.name for each in await client.list_tools()] == ["b_pid"]
        assert len(seen) == 2 and lists_of(gateway).is_asleep


async def test_subscribed_upstream_stays_awake(front_of: Front) -> None:
    async with behind(everything(), "memory") as target:
        gateway = front_of.gateway(target, idle_seconds=0.1)
        async with Client(gateway) as client:
            async with client.listen(resources=["note://today"]):
                await until(lambda: lists_of(gateway).store.has_lists)
                lists = lists_of(gateway)
                lists._woken_at = float("-inf")
                assert not lists._may_sleep()
            await until(lambda: lists.is_asleep)


@pytest.mark.parametrize("data", [b"", b"junk", b"\x91\x02", b"\x80", b"[]"])
async def test_broken_record_starts_the_upstream(data: bytes, front_of: Front) -> None:
    await front_of.learn(everything())
    sent = Recorded()
    async with behind(everything(), "memory", sent) as target:
        gateway = front_of.gateway(target)
        await gateway.kernel.stores.kv.put(lists_of(gateway).store.key, data)
        async with Client(gateway) as client:
            await call_tool(client)


async def test_failing_store_starts_the_upstream(front_of: Front) -> None:
    async with behind(everything(), "memory") as target:
        gateway = front_of.gateway(target)

        async def fail(*_: Any, **__: Any) -> Any:
            raise StoreFailed("gone")

        gateway.kernel.stores.kv.get = gateway.kernel.stores.kv.put = fail  # type: ignore[method-assign]
        async with Client(gateway) as client:
            await call_tool(client)


async def test_another_address_has_other_lists(front_of: Front, tmp_path: Path) -> None:
    gateways = [front_of.gateway([sys.executable, str(tmp_path / name)]) for name in ("one.py", "two.py")]
    assert len({lists_of(each).store.key for each in gateways}) == 2


def test_lazy_with_credentials_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[servers.b]\nurl = "https://b.example/mcp"\nlazy = true\n[servers.b.credentials]\nkind = "pass"\n')
    with pytest.raises(ServerError):
        gateway_of(file)
