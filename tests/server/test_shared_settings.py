"""`Limits` and `Stores` are values: a change of one server makes a new object, and changes no other server."""

from __future__ import annotations

import gc
from types import CellType, FunctionType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.httpwire import connect_http
from tests.runtimes import manager_of
from tests.wireclient import MODERN, connect

from toolwire import Limits, Policy, Server
from toolwire.auth import ApiKeys
from toolwire.gateway import Gateway, gateway_of
from toolwire.protocol.errors import ServerError
from toolwire.server.binding.signature import Signature
from toolwire.server.hot_reload import Stage
from toolwire.server.policy import Rate
from toolwire.stores import Stores


def make_server(kind: type[Server], **options: Any) -> Server:
    """Make a server that has every part which reads limits or stores."""
    server = kind("s", metrics=True, policy=Policy(rate=Rate("100/minute", shared=True)), **options)

    @server.tool(task="optional")
    async def work() -> str:
        return "done"

    assert server.tasks is not None  # The tasks exist before the server runs.
    return server


def holders_of(value: object) -> list[str]:
    """Name the objects of Toolwire, and the variables of its closures, that hold a value."""
    gc.collect()
    names = []
    for holder in gc.get_referrers(value):
        owners = gc.get_referrers(holder) if isinstance(holder, dict) else [holder]
        found = [type(owner) for owner in owners if owner is not value]
        # A `Signature` has the local variables of the function that registers a tool, and so those of the test.
        names += [
            kind.__qualname__ for kind in found if kind.__module__.startswith("toolwire.") and kind is not Signature
        ]
        if isinstance(holder, CellType):
            names += [each.__qualname__ for each in _functions_with(holder) if each.__module__.startswith("toolwire.")]
    return names


def _functions_with(cell: CellType) -> list[FunctionType]:
    closures = [each for each in gc.get_referrers(cell) if isinstance(each, tuple)]
    referrers = [each for closure in closures for each in gc.get_referrers(closure)]
    return [each for each in referrers if isinstance(each, FunctionType)]


def change_limits(server: Server, limits: Limits) -> None:
    server.apply_settings(replace(server.settings, limits=limits))


@pytest.mark.parametrize("kind", [Server, Gateway])
async def test_changed_limits_of_one_server_leave_other_servers_alone(kind: type[Server]) -> None:
    shared = Limits()
    digest, changed = hash(shared), Limits(drain=99, result=1000, task_window=9)
    one, other = make_server(kind, limits=shared), make_server(kind, limits=shared)
    change_limits(one, changed)
    assert (one.limits.drain, one.limits.result, one.limits.task_window) == (99, 1000, 9)
    assert (hash(shared), shared, other.limits) == (digest, Limits(), Limits())
    assert other.limits is shared


async def test_a_gateway_that_reloads_leaves_the_limits_of_other_servers_alone() -> None:
    before: dict[str, Any] = {"mcpServers": {"x": {"url": "http://localhost/mcp", "connect": "lazy"}}}
    gateway = gateway_of(before)
    shared = gateway.limits
    digest = hash(shared)
    other = Server("other", limits=shared)
    done = await gateway.reload({**before, "gateway": {"limits": {"drain": 99}}})
    assert done.settings == ("gateway.limits.drain",)
    assert gateway.limits.drain == 99
    assert (hash(shared), shared, other.limits) == (digest, Limits(), Limits())


@pytest.mark.parametrize("kind", [Server, Gateway])
async def test_all_parts_of_a_server_use_its_changed_limits(kind: type[Server]) -> None:
    first = Limits(state=77)
    server = make_server(kind, limits=first)
    app = server.http_app(sse=True)
    async with connect_http(app, "2025-11-25") as session, connect(server, MODERN) as client:
        await session.call("work")
        await client.call("work")
        http_limits = app.settings.limits
        change_limits(server, Limits(state=5))
        assert server.limits is server.kernel.limits is manager_of(server).ends.limits
        assert server.limits.state == 5
        # No part still has the old ones.
        assert holders_of(first) == []
        assert holders_of(http_limits) == []
    await app.stop()


async def test_a_changed_limit_counts_for_open_sessions_over_http() -> None:
    server = make_server(Server)
    server.tool(lambda: "x" * 1000, name="long")
    app = server.http_app()
    async with connect_http(app, "2025-11-25") as client:
        assert len((await client.call("long"))["content"][0]["text"]) == 1000
        change_limits(server, Limits(result=500))
        assert "500 bytes" in (await client.error("tools/call", {"name": "long"}))["message"]
    await app.stop()


async def test_a_staged_server_with_authorization_has_an_application() -> None:
    assert Stage(Server("s", auth=lambda token: None)).http_app().authenticates


@pytest.mark.parametrize("staged", [False, True])
async def test_other_stores_reach_all_parts_and_leave_the_first_ones_as_they_are(staged: bool) -> None:
    first, second = Stores.memory(), Stores.memory()
    before = (first.kv, first.log, first.bus, first.queue)
    server, other = make_server(Server, stores=first), Server("other", stores=first)
    serving: Any = Stage(server) if staged else server
    hosted, app = server.tasks, serving.http_app()
    serving._use_stores(second)
    assert server.stores is serving.stores is server.kernel.stores is second
    assert other.stores is first
    assert (first.kv, first.log, first.bus, first.queue) == before
    created = await hosted.create()
    assert await first.kv.keys("", limit=10) == []
    assert any(created.id in key for key in await second.kv.keys("", limit=10))
    async with connect_http(app, MODERN) as client:
        await client.call("work")
    await app.stop()
    assert await first.kv.keys("", limit=10) == []
    del other
    assert holders_of(first) == []
    assert set(holders_of(first.kv)) == {"Stores", "MemoryQueue"}


@pytest.mark.parametrize("kind", [Server, Gateway])
async def test_options_that_are_assigned_are_in_force(kind: type[Server]) -> None:
    server = kind("s")
    server.tool(lambda: "ruby", name="tell")
    app = server.http_app()
    server.policy, server.limits = Policy(mask=["ruby"]), Limits(rounds=3)
    async with connect(server, MODERN) as client:
        assert (await client.call("tell"))["content"][0]["text"] == "[redacted]"
    assert server.limits.rounds == 3
    assert app.settings.gate is None
    server.auth = ApiKeys({"k" * 32: "ann"})
    assert app.settings.gate is not None
    with pytest.raises(ServerError):
        server.policy = "none"  # type: ignore[assignment]
