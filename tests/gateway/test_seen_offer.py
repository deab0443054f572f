"""What a gateway says of itself leaves out the servers that the caller may not know of."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.gateway.backs import until
from tests.http.httpclient import SessionClient
from tests.http.modernclient import ModernClient

from toolwire import Limits, Server, testing
from toolwire.auth import ApiKeys, Principal
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.server.components import Cache
from toolwire.shape import Shape

JOBS, VIEWS = "org.example/jobs", "io.modelcontextprotocol/ui"
STAFF, PLAIN = "the-staffs-key-1234", "a-plain-callers-key"
KEYS = ApiKeys({STAFF: Principal("sam", scopes=frozenset({"staff"})), PLAIN: Principal("pat")})
SECRET = "internal-7"
PUBLIC = Cache(60_000, "public")


def hidden() -> Server:
    server = Server("back", instructions=f"Ask {SECRET}.")
    server.extension(JOBS, {"queue": SECRET}, needs_client=False)
    server.extension(VIEWS, {"mimeTypes": ["text/html;profile=mcp-app", f"text/{SECRET}"]}, needs_client=False)

    @server.tool
    async def work() -> str:
        return "done"

    return server


def shown() -> Server:
    server = Server("shown", instructions="Ask anything.")
    server.extension(VIEWS, {"mimeTypes": ["text/html;profile=mcp-app"]}, needs_client=False)
    return server


def unusual() -> Server:
    """Make a server with a capability that no type here knows."""
    listed = t.ListToolsResult(tools=[], ttl_ms=1000, cache_scope="private")
    capabilities = {"tools": {}, "org.example.capability": {"host": SECRET}}
    return cast("Server", FakeServer({"tools/list": lambda *_: listed}, capabilities=capabilities))


def front(**options: Any) -> Gateway:
    gateway = Gateway("front", auth=KEYS, instructions="Welcome.", **options)
    for name, server in (("secret", hidden()), ("odd", unusual())):
        gateway.add(name, server, shape=Shape(visible_to=["staff"]))
    return gateway.add("open", shown())


async def settled(gateway: Gateway) -> None:
    await until(lambda: all(each.state == "ready" for each in gateway.backs.values()))


def check(offer: dict[str, Any], key: str) -> None:
    """Check what one caller is told."""
    assert "Welcome." in offer["instructions"] and "open: Ask anything." in offer["instructions"]
    if key == PLAIN:
        assert SECRET not in str(offer) and JOBS not in str(offer) and "org.example.capability" not in str(offer)
        assert "secret" not in offer["instructions"]
    else:
        assert f"secret: Ask {SECRET}." in offer["instructions"]
        assert offer["capabilities"]["org.example.capability"] == {"host": SECRET}
    extensions = offer["capabilities"].get("extensions", {})
    if extensions:
        assert VIEWS in extensions and (JOBS in extensions) is (key == STAFF)
    assert "tools" in offer["capabilities"]


@pytest.mark.covers("GW-3.24")
@cases("key", [STAFF, PLAIN])
@cases("revision", [MODERN, "2025-11-25", "2025-06-18"])
@cases("stateless", [False, True])
async def test_caller_over_http_is_told_of_servers_that_it_sees(stateless: bool, revision: str, key: str) -> None:
    gateway = front(cache=PUBLIC)
    app = gateway.http_app(stateless=stateless)
    headers = {"authorization": f"Bearer {key}"}
    modern, legacy = ModernClient(app, headers=headers), SessionClient(app, headers=headers)
    try:
        await modern.request("tools/list")
        await settled(gateway)
        if revision == MODERN:
            offer = (await modern.request("server/discover")).json()["result"]
            assert offer["cacheScope"] == "private"
            assert JOBS in str(offer) or key == PLAIN
        else:
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            offer = (await legacy.post(legacy.request("initialize", params))).json()["result"]
        check(offer, key)
    finally:
        await modern.close()
        await legacy.close()
        await app.stop()


@cases("principal", [None, Principal("pat"), Principal("sam", scopes=frozenset({"staff"}))])
@cases("revision", [MODERN, "2025-11-25"])
async def test_caller_on_a_connection_is_told_of_servers_that_it_sees(revision: str, principal: Any) -> None:
    gateway = front()
    key = PLAIN if principal is not None and principal.subject == "pat" else STAFF
    async with testing.connect(gateway, principal=principal):
        await settled(gateway)
        async with testing.connect(gateway, revision=revision, principal=principal) as (client, _):
            check({"capabilities": client.capabilities, "instructions": client.instructions}, key)


async def test_settings_of_a_shared_extension_are_those_of_servers_that_the_caller_sees() -> None:
    gateway = front()
    async with testing.connect(gateway):
        await settled(gateway)
        for principal, types in ((Principal("sam", scopes=frozenset({"staff"})), 2), (Principal("pat"), 1)):
            async with testing.connect(gateway, principal=principal) as (client, _):
                assert len(client.capabilities["extensions"][VIEWS]["mimeTypes"]) == types


async def test_operator_names_capabilities_whoever_has_them() -> None:
    """`capabilities=` of the gateway is said to all callers."""
    own = {"extensions": {JOBS: {"own": True}}, "org.example.capability": {"own": True}}
    gateway = front(capabilities=own, limits=Limits())
    async with testing.connect(gateway):
        await settled(gateway)
        async with testing.connect(gateway, principal=Principal("pat")) as (client, _):
            assert SECRET not in str(client.capabilities["org.example.capability"])
            assert client.capabilities["org.example.capability"] == {"own": True}


async def test_server_that_restricts_nothing_may_be_remembered_for_all() -> None:
    gateway = Gateway("front", cache=PUBLIC).add("open", shown())
    app = gateway.http_app()
    client = ModernClient(app)
    try:
        await client.request("tools/list")
        await settled(gateway)
        offer = (await client.request("server/discover")).json()["result"]
        assert "open: Ask anything." in offer["instructions"]
        assert offer["cacheScope"] == "public"
    finally:
        await client.close()
        await app.stop()
