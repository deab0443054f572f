"""Tools whose definition nobody approved do not come through."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import Away, behind

from toolwire import Client, Server, Tool, testing
from toolwire.errors import ProtocolError, ServerError
from toolwire.gateway import Gateway
from toolwire.server.shaping import pins as pins_module
from toolwire.shape import ArgumentShape, Shape, ToolPins, ToolShape
from toolwire.stores import Stores


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every list looks for approvals of other processes.
    monkeypatch.setattr(pins_module, "FRESH_SECONDS", 0.0)


def tool(description: str = "Reads.", name: str = "read") -> Tool:
    def read(path: str) -> str:
        return path

    return Tool(read, name=name, description=description)


def back(*tools: Tool) -> Server:
    return Server("back", tools=list(tools) or [tool()])


def front(server: Any, pins: ToolPins, **options: Any) -> Gateway:
    gateway = Gateway("front", **options)
    gateway.add("b", server, prefix="", shape=Shape(pins=pins))
    return gateway


async def waits(gateway: Gateway) -> None:
    """Wait until a tool waits for an approval."""
    while not gateway.backs["b"].quarantined:
        await asyncio.sleep(0)


async def names(client: Client) -> list[str]:
    return [each.name for each in await client.list_tools()] if "tools" in client.capabilities else []


@pytest.mark.covers("GW-8.10")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_tool_that_changed_is_withheld_until_somebody_approves_it(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, pins = back(tool(), tool(name="other")), ToolPins()
    gateway = front(server, pins)
    async with testing.connect(gateway, revision=revision) as (client, _):
        assert await names(client) == ["other", "read"]
        with caplog.at_level(logging.WARNING, "toolwire.server"):
            server.add(tool("Reads, and tells a friend."))
            await waits(gateway)
        assert "the tool 'read' of 'b' has changed and is withheld" in caplog.text
        assert await names(client) == ["other"]
        refused = await client.call_tool("read", {"path": "x"})
        assert refused.is_error
        assert "changed since it was approved" in str(refused.text)
        assert "friend" not in str(refused.text)
        assert (await client.call_tool("other", {"path": "x"})).text == "x"
        # An operator sees the old definition and the new one.
        (waiting,) = gateway.backs["b"].quarantined
        assert (waiting.tool, [str(each) for each in waiting.changes]) == (
            "read",
            ["'read': description was 'Reads.' and is 'Reads, and tells a friend.'"],
        )
        with pytest.raises(ServerError, match="another one now"):
            await pins.approve("b", "read@0000000000000000")
        with pytest.raises(ServerError, match="waits for no approval; waiting: 'read'"):
            await pins.approve("b", "other")
        assert await pins.approve("b", f"read@{waiting.digest}") == ["read"]
        assert await names(client) == ["other", "read"]
        assert (await client.call_tool("read", {"path": "x"})).text == "x"
        assert gateway.backs["b"].quarantined == ()


def viewing(uri: str, visibility: tuple[str, ...]) -> Tool:
    made = tool()
    made.meta = {"ui": {"resourceUri": uri, "visibility": list(visibility)}}
    return made


@pytest.mark.covers("GW-8.10")
@cases("revision", ["2025-11-25", "2026-07-28"])
@cases(("uri", "visibility"), [("ui://back/two.html", ("model",)), ("ui://back/one.html", ("app", "model"))])
async def test_a_tool_with_another_view_or_audience_is_withheld(
    revision: str, uri: str, visibility: tuple[str, ...]
) -> None:
    server, pins = back(viewing("ui://back/one.html", ("model",)), tool(name="other")), ToolPins()
    gateway = front(server, pins)
    async with testing.connect(gateway, revision=revision) as (client, _):
        assert "read" in await names(client)
        server.add(viewing(uri, visibility))
        await waits(gateway)
        assert await names(client) == ["other"]
        (waiting,) = gateway.backs["b"].quarantined
        assert [each.member for each in waiting.changes] == ["_meta"]


async def test_an_approval_of_an_earlier_version_lets_the_same_tool_through() -> None:
    stores = Stores.memory()
    schema = tool().wire("2026-07-28").to_dict()
    old = {"approved": {"read": {key: value for key, value in schema.items() if key != "_meta"}}, "waiting": {}}
    await stores.kv.put("tool-pins/front/b", msgspec.json.encode(old))
    server = back(tool())
    gateway = front(server, ToolPins(), stores=stores)
    async with testing.connect(gateway) as (client, _):
        assert await names(client) == ["read"]
        server.add(viewing("ui://back/one.html", ("app",)))
        await waits(gateway)
        assert await names(client) == []


@pytest.mark.covers("GW-8.10")
async def test_a_new_tool_is_withheld() -> None:
    server, pins = back(), ToolPins()
    gateway = front(server, pins)
    async with Client(gateway) as client:
        assert await names(client) == ["read"]
        server.add(tool(name="write"))
        await waits(gateway)
        result = await client.call_tool("write", {"path": "x"})
        assert "was not approved yet" in str(result.text)
        assert await names(client) == ["read"]
        assert await pins.approve("b") == ["write"]
        assert await names(client) == ["read", "write"]


@pytest.mark.covers("GW-8.10")
async def test_nothing_is_approved_by_itself_where_that_is_wished() -> None:
    pins = ToolPins(approve_first=False)
    async with Client(front(back(), pins)) as client:
        assert await names(client) == []
        assert await pins.approve("b") == ["read"]
        assert [each.tool for each in pins.quarantined("b")] == []
    async with Client(front(back(), ToolPins())) as client:
        assert await names(client) == ["read"]


@pytest.mark.covers("GW-8.10")
@pytest.mark.parametrize("own", [False, True])
async def test_approvals_outlive_the_process_and_are_shared(own: bool, tmp_path: Path) -> None:
    address = str(tmp_path / "pins.sqlite")
    stores = Stores.memory()
    options: dict[str, Any] = {} if own else {"stores": stores}

    def pins() -> ToolPins:
        return ToolPins(address if own else None)

    async with Client(front(back(), pins(), **options)) as client:
        assert await names(client) == ["read"]
    # The definition changed while nobody looked.
    first, second = pins(), pins()
    changed = tool("Reads, and tells a friend.")
    async with (
        Client(front(back(changed, tool(name="o")), first, **options)) as client,
        Client(front(back(changed, tool(name="o")), second, **options)) as elsewhere,
    ):
        assert await names(client) == await names(elsewhere) == []
        assert [each.tool for each in first.quarantined("b")] == ["o", "read"]
        assert await first.approve("b", "read") == ["read"]
        # The other replica finds the approval when somebody lists the tools.
        assert await names(client) == await names(elsewhere) == ["read"]
        assert (await elsewhere.call_tool("read", {"path": "x"})).text == "x"


@pytest.mark.covers("GW-8.10")
async def test_a_broken_record_approves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stores = Stores.memory()
    await stores.kv.put("tool-pins/front/b", b"{")
    async with Client(front(back(), ToolPins(), stores=stores)) as client:
        assert await names(client) == []
        refused = await client.call_tool("read", {"path": "x"}) if "tools" in client.capabilities else None
        assert refused is None or refused.is_error
    assert "damaged" in caplog.text


@pytest.mark.covers("GW-8.10")
async def test_a_tool_of_a_mounted_server_is_pinned_as_it_is_there() -> None:
    inner, host, pins = back(), Server("host"), ToolPins()
    entry = ToolShape(rename="open", arguments={"path": ArgumentShape(rename="file")})
    host.mount(inner, shape=Shape(pins=pins, tools={"read": entry}))
    async with Client(host) as client:
        assert await names(client) == ["open"]
        inner.add(tool("Reads, and tells a friend."))
        assert "changed" in str((await client.call_tool("open", {"file": "x"})).text)
        assert [each.tool for each in pins.quarantined("back")] == ["read"]
        await pins.approve("back", "read")
        assert (await client.call_tool("open", {"file": "x"})).text == "x"


@pytest.mark.covers("GW-8.10")
async def test_a_server_that_changes_between_list_and_call() -> None:
    server, pins = back(), ToolPins()
    async with behind(server, "http") as target:
        gateway = front(target, pins)
        async with Client(gateway) as client:
            assert await names(client) == ["read"]
            # The gateway has not heard of the change yet: the call goes to the tool that was approved, by its name.
            server.remove("read")
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await client.call_tool("read", {"path": "x"})


@pytest.mark.covers("GW-8.10")
async def test_another_revision_of_the_same_server_is_no_change() -> None:
    def read(path: str) -> str:
        return path

    server = back(Tool(read, name="read", task="optional"))
    stores = Stores.memory()
    for revision in ("2025-06-18", "2026-07-28"):
        gateway = Gateway("front", stores=stores)
        gateway.add("b", server, prefix="", revision=revision, shape=Shape(pins=ToolPins()))
        async with Client(gateway) as client:
            assert await names(client) == ["read"]


async def test_a_tool_does_not_come_through_for_a_tag_that_nobody_approved() -> None:
    def wipe() -> str:
        return "wiped"

    server = back(tool(), Tool(wipe))
    gateway = Gateway("front")
    gateway.add("b", server, prefix="", shape=Shape(allow=["read", "tag:safe"], pins=ToolPins()))
    async with testing.connect(gateway) as (client, _):
        assert await names(client) == ["read"]
        server.add(Tool(wipe, meta={"io.toolwire/tags": ["safe"]}))
        await waits(gateway)
        assert await names(client) == ["read"]
        (waiting,) = gateway.backs["b"].quarantined
        assert [str(each) for each in waiting.changes] == ["'wipe': tags was not there and is ['safe']"]


@pytest.mark.covers("GW-8.10")
@pytest.mark.parametrize("restarted", [False, True])
async def test_tools_listed_after_an_empty_first_list_wait_for_approval(restarted: bool) -> None:
    server, stores, pins = Server("back"), Stores.memory(), ToolPins()
    gateway = front(server, pins, stores=stores)
    async with testing.connect(gateway) as (client, _):
        assert await names(client) == []
        while await stores.kv.get("tool-pins/front/b") is None:
            await asyncio.sleep(0)
        if not restarted:
            server.add(tool())
            await waits(gateway)
            assert await names(client) == []
    if restarted:
        server.add(tool())
        async with testing.connect(front(server, ToolPins(), stores=stores)) as (client, _):
            assert await names(client) == []


async def test_first_list_of_a_server_that_was_unreachable_is_approved() -> None:
    stores = Stores.memory()
    async with testing.connect(front(Away(), ToolPins(), stores=stores)) as (client, _):
        assert await names(client) == []
    assert await stores.kv.get("tool-pins/front/b") is None
    async with testing.connect(front(back(), ToolPins(), stores=stores)) as (client, _):
        assert await names(client) == ["read"]


@cases(("before", "after"), [(1, True), (0, False), ([0], [False]), ({"a": 1}, {"a": True})])
async def test_a_number_that_becomes_a_truth_value_is_a_change(before: Any, after: Any) -> None:
    def with_default(value: Any) -> Tool:
        made = tool()
        made.input_schema = {**made.input_schema, "default": value}
        return made

    server, pins = back(with_default(before)), ToolPins()
    gateway = front(server, pins)
    async with testing.connect(gateway) as (client, _):
        assert await names(client) == ["read"]
        server.add(with_default(after))
        await waits(gateway)
        assert await names(client) == []
        (waiting,) = pins.quarantined("b")
        assert [each.member for each in waiting.changes] == ["inputSchema"]


@pytest.mark.covers("GW-8.10")
async def test_approval_with_an_empty_digest_is_refused() -> None:
    pins = ToolPins(approve_first=False)
    async with Client(front(back(), pins)) as client:
        assert await names(client) == []
        with pytest.raises(ServerError, match="no digest behind the @"):
            await pins.approve("b", "read@")
        assert await names(client) == []


async def test_tool_named_like_an_approval_does_not_take_it() -> None:
    pins = ToolPins(approve_first=False)
    async with Client(front(back(), pins)):
        (waiting,) = pins.quarantined("b")
    approval = f"read@{waiting.digest}"
    pins = ToolPins(approve_first=False)
    async with Client(front(back(tool(), tool("Deceives.", name=approval)), pins)) as client:
        assert await names(client) == []
        assert await pins.approve("b", approval) == ["read"]
        assert await names(client) == ["read"]
        # No tool `read` waits any longer. The text still does not stand for the other tool.
        with pytest.raises(ServerError, match="may be the name of a tool, or a name with a digest"):
            await pins.approve("b", approval)
        (waiting,) = pins.quarantined("b")
        assert waiting.tool == approval
        assert await pins.approve("b", f"{approval}@{waiting.digest}") == [approval]
        assert await names(client) == ["read", approval]


@cases("ending", ["@", "@0123", "@0123456789ABCDEF", "@latest"])
async def test_approval_that_could_mean_two_tools_is_refused(ending: str) -> None:
    pins = ToolPins(approve_first=False)
    async with Client(front(back(tool(), tool("Deceives.", name=f"read{ending}")), pins)) as client:
        assert await names(client) == []
        with pytest.raises(ServerError, match=r"digest|another one now"):
            await pins.approve("b", f"read{ending}")
        assert await names(client) == []
        assert await pins.approve("b") == ["read", f"read{ending}"]


async def test_name_with_an_at_sign_is_approved_by_itself_where_it_means_one_tool() -> None:
    pins = ToolPins(approve_first=False)
    async with Client(front(back(tool(name="mail@home")), pins)) as client:
        assert await names(client) == []
        assert await pins.approve("b", "mail@home") == ["mail@home"]
        assert await names(client) == ["mail@home"]


async def test_next_list_has_the_tool_that_another_process_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "FRESH_SECONDS", 3600.0)
    stores = Stores.memory()
    first, second = ToolPins(approve_first=False), ToolPins(approve_first=False)
    async with (
        Client(front(back(), first, stores=stores)) as client,
        Client(front(back(), second, stores=stores)),
    ):
        assert await names(client) == []
        await second.approve("b", "read")
        assert await names(client) == ["read"]
