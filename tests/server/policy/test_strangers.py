"""Policies count callers whom no principal tells apart by their address."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.http.modernclient import ModernClient

from toolwire import Policy, Server
from toolwire.auth import Anonymous, ApiKeys

KEY = "the-key-of-ann-1234"
KEYS = ApiKeys({KEY: "ann"})


@cases("auth", [None, Anonymous(), [KEYS, Anonymous()]], ids=["none", "anonymous", "keys"])
@cases("way", ["rate", "by_principal"])
async def test_rate_of_strangers_holds_for_each_address(auth: Any, way: str) -> None:
    if auth is None and way == "by_principal":
        pytest.skip("by_principal is asked for principals only")
    few = Policy(rate="2/minute")
    server = Server("almanac", auth=auth, policy=few if way == "rate" else Policy(by_principal=lambda principal: few))
    server.tool(name="greet")(lambda: "hello")
    app = server.http_app(trusted_proxies=["127.0.0.1"])

    async def greets(address: str, **headers: str) -> bool:
        client = ModernClient(app, headers={"x-forwarded-for": address, **headers})
        return b"hello" in (await client.start_call("greet").finished()).body

    assert [await greets("203.0.113.1") for _ in range(3)] == [True, True, False]
    assert [await greets("203.0.113.2") for _ in range(3)] == [True, True, False]
    await app.stop()


async def test_rate_of_a_principal_holds_at_all_its_addresses() -> None:
    server = Server("almanac", auth=[KEYS, Anonymous()], policy=Policy(rate="2/minute"))
    server.tool(name="greet")(lambda: "hello")
    app = server.http_app(trusted_proxies=["127.0.0.1"])

    async def greets(address: str) -> bool:
        sent = {"x-forwarded-for": address, "authorization": f"Bearer {KEY}"}
        return b"hello" in (await ModernClient(app, headers=sent).start_call("greet").finished()).body

    assert [await greets(f"203.0.113.{number}") for number in range(3)] == [True, True, False]
    await app.stop()
