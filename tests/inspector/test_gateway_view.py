"""A gateway in the inspector: the servers behind it, and each hop of a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Away, everything, one, until

from toolwire import Gateway, Server
from toolwire.gateway import Back
from toolwire.gateway.config import gateway_of
from toolwire.inspector import Inspector
from toolwire.inspector.gateway_view import FURTHER
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import MODERN

ERAS = (MODERN, "2025-11-25")


def hops(inspector: Inspector) -> list[Any]:
    return [entry for entry in inspector.log if entry.back is not None]


@cases(("front", "back"), [(front, back) for front in ERAS for back in ERAS])
async def test_the_servers_and_the_hops_of_a_call_are_shown(front: str, back: str) -> None:
    gateway = Gateway("front").add("b", everything(), revision=back).add("gone", Away())
    inspector = Inspector(gateway, label="front", revision=front, gateway=lambda: gateway)
    assert inspector.backs() is not None
    await inspector.connect(front)
    try:
        shown = {each["name"]: each for each in inspector.backs() or []}
        assert shown["b"] | {"lastChange": None} == {
            "name": "b",
            "state": "ready",
            "error": None,
            "revision": back,
            "transport": "memory",
            "lastChange": None,
            "tools": 6,
            "prompts": 1,
            "resources": 2,
            "hidden": [],
            "requests": 0,
            "failures": 0,
            "inFlight": 0,
            "took": None,
            "further": [["Breaker", "closed"], ["Connections", shown["b"]["further"][1][1]]],
        }
        assert shown["b"]["lastChange"] is not None
        assert (shown["gone"]["state"], shown["gone"]["revision"]) == ("away", None)
        assert "nobody is at home" in shown["gone"]["error"]

        await inspector.client.call_tool("b_add", {"a": 1, "b": 2})
        request, answer = hops(inspector)
        around = [entry for entry in inspector.log if entry.method == "tools/call"]
        # The request of the client, that to the server, its answer, and the answer to the client.
        assert [(entry.direction, entry.back, entry.subject) for entry in around] == [
            ("→", None, "b_add"),
            ("→", "b", "add"),
            ("←", "b", "add"),
            ("←", None, "b_add"),
        ]
        assert request.id == answer.id == around[0].id
        assert answer.answers == request.number and answer.took is not None and answer.kind == "result"
        assert b'"a":1' in request.text and b"3" in answer.text
        (told,) = [each for each in inspector.backs() or [] if each["name"] == "b"]
        assert (told["requests"], told["failures"], told["inFlight"]) == (1, 0, 0) and told["took"] > 0
    finally:
        await inspector.close()


async def test_a_hop_that_fails_is_an_error() -> None:
    target = Away(one("b", "run"), is_there=True)
    gateway = Gateway("front").add("fragile", target)
    inspector = Inspector(gateway, label="front", gateway=lambda: gateway)
    inspector.snapshot()
    await inspector.connect()
    try:
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        await inspector.client.call_tool("fragile_run")
        _, answer = hops(inspector)
        assert answer.kind == "error" and b"nobody is at home" in answer.text
        assert [each["failures"] for each in inspector.backs() or []] == [1]
    finally:
        await inspector.close()


async def test_another_gateway_takes_over_and_other_servers_have_none() -> None:
    first, second, plain = Gateway("a").add("x", one("x")), Gateway("b").add("y", one("y")), Server("plain")
    current: list[Any] = [first]
    inspector = Inspector(first, label="front", gateway=lambda: current[0])
    assert [each["name"] for each in inspector.backs() or []] == ["x"]
    current[0] = second
    assert [each["name"] for each in inspector.snapshot()["backs"]] == ["y"]
    assert first.watchers == [] and first.kernel.hop_observers == []
    current[0] = plain
    assert inspector.backs() is None
    assert Inspector(plain, label="plain").snapshot()["backs"] is None


async def test_the_configuration_and_every_member_of_a_server_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    entry = {"url": "http://127.0.0.1:9/mcp", "credentials": {"kind": "static_secret", "secret": "s"}}
    file.write_text(json.dumps({"mcpServers": {"x": entry}}))
    gateway = gateway_of(file)
    inspector = Inspector(gateway, label="front", gateway=lambda: gateway)
    (shown,) = inspector.backs() or []
    assert ["Credentials", "StaticSecret"] in shown["further"]
    # A member that is new is shown without a change of the page.
    assert set(FURTHER) | {"name", "state", "error", "revision", "transport", "last_change", "hidden"} | {
        "tools",
        "prompts",
        "resources",
    } == set(Back.__struct_fields__)
    told = inspector.snapshot()["configuration"]
    assert (told["file"], told["error"], told["restart"], told["reloads"]) == (str(file), None, [], 0)
    file.write_text(json.dumps({"mcpServers": {"x": entry}, "gateway": {"title": "T"}, "http": {"port": 1}}))
    await gateway.reload()
    told = inspector.configuration() or {}
    assert (told["error"], told["restart"], told["reloads"]) == (None, ["http.port"], 1)
    file.write_text('{"mcpServers": {"x": {"urll": 1}}}')
    with pytest.raises(ServerError):
        await gateway.reload()
    assert "line 1, mcpServers.x.urll" in (inspector.configuration() or {})["error"]
