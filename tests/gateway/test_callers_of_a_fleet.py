"""What one caller of a fleet holds is nothing to another one: tasks, states, sessions; also while the file changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest
from tests.gateway.test_held_calls import accept, call
from tests.gateway.test_replicas_of_a_file import ERAS, Fleet, config, fleet

from toolwire import Client, Context, Limits, Server
from toolwire.client.http_target import HttpTarget
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import ProtocolError, ToolwireError
from toolwire.protocol.revisions import MODERN

KEYS = {name: name * 12 for name in ("ann", "bob")}


class Noting(Pool):
    """The way to a fleet that notes the sessions in requests."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.sessions: set[str] = set()

    @property
    def at_once(self) -> int | None:
        return None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.sessions.update(value for name, value in headers.items() if name.lower() == "mcp-session-id")
        return await self._fleet.balancer.send(method, url, headers, body)

    async def close(self) -> None:
        return


def back_server(release: asyncio.Event) -> Server:
    server = Server("back", limits=Limits(task_window=0.0, task_poll=0.02))

    @server.tool(task="optional")
    async def slow() -> str:
        await release.wait()
        return "done"

    @server.tool
    async def book(ctx: Context) -> str:
        return str((await ctx.elicit("Whose name?", str)).data)

    return server


@pytest.mark.covers("GW-6.7")
@pytest.mark.parametrize(("front", "back"), [(front, back) for front in ERAS for back in ERAS])
async def test_another_caller_gets_nothing_at_any_replica_before_and_after_a_reload(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()
    before, after = config(back=back, a="one"), config(back=back, a="one")
    after["mcpServers"]["a"]["timeout"] = 30.0
    for file in (before, after):
        file["gateway"]["auth"] = {"api_keys": {"keys": {name: {"key": key} for name, key in KEYS.items()}}}
    async with fleet(before, {"one": back_server(release)}, monkeypatch) as running:
        ways = {name: Noting(running) for name in KEYS}

        def client_of(name: str) -> Client:
            headers = {"Authorization": f"Bearer {KEYS[name]}"}
            target = HttpTarget("http://localhost/mcp", headers=headers, pool=ways[name])
            return Client(target, revision=front, elicit=lambda message, params: {"value": name})

        async with client_of("ann") as ann, client_of("bob") as bob:
            task = (await ann.call_tool_as_task("a_slow")).id
            asked = await call(ann, "a_book", {}) if front == MODERN else None
            for number in (0, 1, 2, None):
                for _ in range(3):
                    with pytest.raises(ToolwireError):
                        await bob.task(task).wait()
                    if asked is not None:
                        with pytest.raises(ProtocolError):
                            await call(bob, "a_book", {}, asked, **accept(asked, "bob"))
                    for session in ways["ann"].sessions:
                        assert await status_of_theft(running, session, KEYS["bob"]) in (403, 404)
                if number is not None:
                    await running.reload(number, after)
            release.set()
            assert await ann.task(task).wait(returns=str) == "done"
            if asked is not None:
                done = await call(ann, "a_book", {}, asked, **accept(asked, "ann"))
                assert done["content"][0]["text"] == "ann"
            else:
                assert ways["ann"].sessions


async def status_of_theft(running: Fleet, session: str, key: str) -> int:
    """Return the status of a request that has the session of one caller and the key of another one."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {key}",
        "Mcp-Session-Id": session,
        "MCP-Protocol-Version": "2025-11-25",
    }
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    response = await running.balancer.send("POST", "http://localhost/mcp", headers, body)
    await response.read(1 << 20)
    return response.status
