"""A call of a scoped tool is refused with HTTP 403 before anything runs, by whichever name the tool is meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.cases import cases
from tests.gateway.test_upstream_views import monitor
from tests.http.httpclient import SessionClient

from toolwire import Server
from toolwire.audit import AuditLog
from toolwire.auth import ApiKeys, Principal, ResourceServer
from toolwire.gateway import Gateway
from toolwire.protocol.upstreams import UPSTREAM_KEY
from toolwire.shape import Shape, ToolShape

PLAIN, WRITER = "a-plain-callers-key", "the-writers-key-12"
KEYS = ApiKeys({PLAIN: Principal("pat"), WRITER: Principal("will", scopes=frozenset({"write"}))})
AUTH = ResourceServer(KEYS, authorization_servers=["https://login.example.org"])
SCOPED = Shape(tools={"poll": ToolShape(scopes=["write"])})


@asynccontextmanager
async def session(server: Server, key: str) -> AsyncIterator[SessionClient]:
    app = server.http_app()
    client = SessionClient(app, headers={"authorization": f"Bearer {key}"})
    try:
        await client.initialize()
        yield client
    finally:
        await client.close()
        await app.stop()


def two_servers(ran: list[str], *, mon: Shape | None = None, other: Shape | None = None, **options: Any) -> Gateway:
    """Put two servers behind a gateway: one whose view calls `poll`, and one that lists `mon_poll` and `poll`."""
    watched, further = monitor(), Server("other")
    poll = watched.catalog.tools["poll"]
    watched.remove(poll)

    @watched.tool(name="poll", meta={"ui": {"visibility": ["app"]}})
    def poll_here() -> str:
        ran.append("mon")
        return "mon"

    @further.tool(name="poll")
    def poll_there() -> str:
        ran.append("other")
        return "other"

    gateway = Gateway("front", auth=AUTH, **options)
    gateway.add("mon", watched, shape=mon)
    return gateway.add("other", further, prefix="", shape=other)


@cases("key", [PLAIN, WRITER])
@cases("name", ["mon_poll", "poll"])
async def test_scoped_tool_of_a_view_is_refused_before_the_stream_begins(name: str, key: str) -> None:
    gateway = Gateway("front", auth=AUTH).add("mon", monitor(), shape=SCOPED)
    async with session(gateway, key) as client:
        await client.result("tools/list")
        answer = await client.start_call(name).finished()
        if key == WRITER:
            assert answer.status == 200 and "polled 1" in str(answer.answer())
            return
        assert answer.status == 403
        assert 'scope="write"' in answer.headers["www-authenticate"]
        assert answer.json()["error"]["data"] == {"requiredScopes": ["write"]}


@cases("key", [PLAIN, WRITER])
async def test_scoped_tool_that_was_found_is_refused_before_the_stream_begins(key: str) -> None:
    server = Server("almanac", auth=AUTH, search=True)
    ran: list[str] = []

    @server.tool(scopes=["write"])
    async def change() -> str:
        ran.append("changed")
        return "changed"

    async with session(server, key) as client:
        answer = await client.start_call("call_tool", {"name": "change", "arguments": {}}).finished()
        assert (answer.status, ran) == ((200, ["changed"]) if key == WRITER else (403, []))
        if key == PLAIN:
            assert 'scope="write"' in answer.headers["www-authenticate"]


@cases("scoped", ["mon", "other"])
async def test_view_is_judged_by_the_tool_of_its_own_server(scoped: str) -> None:
    """Both servers have a tool `poll`, and the request says whose view calls it."""
    ran: list[str] = []
    gateway = two_servers(ran, **{scoped: SCOPED})
    async with session(gateway, PLAIN) as client:
        await client.result("tools/list")
        for server in ("mon", "other"):
            ran.clear()
            meta = {UPSTREAM_KEY: {"servers": [server]}}
            answer = await client.start_call("poll", _meta=meta).finished()
            assert (answer.status, ran) == ((403, []) if server == scoped else (200, [server]))


async def test_refused_call_is_counted_once_and_runs_nothing() -> None:
    ran: list[str] = []
    audit: list[Any] = []
    gateway = two_servers(ran, mon=SCOPED, audit=AuditLog(audit.append, key="a key of sixteen bytes"))
    async with session(gateway, PLAIN) as client:
        await client.result("tools/list")
        answer = await client.start_call("poll", _meta={UPSTREAM_KEY: {"servers": ["mon"]}}).finished()
        assert (answer.status, ran) == (403, [])
    lines = [each for each in audit if "tools/call" in str(each)]
    assert len(lines) == 1 and "mon_poll" in str(lines) and "refused" in str(lines)


async def test_batch_is_refused_for_the_names_that_views_use() -> None:
    gateway = Gateway("front", auth=AUTH).add("mon", monitor(), shape=SCOPED)
    async with session(gateway, PLAIN) as client:
        await client.initialize("2025-03-26")
        await client.result("tools/list")
        calls = [client.request("tools/call", {"name": name, "arguments": {}}) for name in ("mon_show", "poll")]
        answer = await client.post(calls)
        assert answer.status == 403
        assert 'scope="write"' in answer.headers["www-authenticate"]
