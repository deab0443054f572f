"""Policies of the gateway, of a server behind it and of a tool, as the file says them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import everything

from toolwire import Client, Gateway, Policy, Server
from toolwire.auth import Principal
from toolwire.gateway.config import gateway_options, read_gateway_file
from toolwire.gateway.config.making import back_options
from toolwire.protocol.errors import ProtocolError, ServerError

POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "rate": ({"rate": "1/hour"}, "Too many calls"),
    "rates": ({"rate": ["5/second", {"calls": "1/hour", "per": "everyone"}]}, "Too many calls"),
    "quota": ({"quota": "1/day"}, "Too many calls|quota|used up"),
    "rule": ({"rules": {"a": {"between": [0, 1]}}}, "does not allow this 'a'"),
    "rules": ({"rules": {"a": [{"one_of": [1]}, {"between": [0, 9]}]}}, "not one of the allowed values"),
}


def gateway_with(where: str, policy: dict[str, Any]) -> Gateway:
    """Return a gateway with the policy of a file, in front of a server in this process."""
    entry: dict[str, Any] = {"url": "http://localhost:1/mcp"}
    if where == "server":
        entry["policy"] = policy
    elif where == "tool":
        entry["tools"] = {"add": {"policy": policy}}
    table = {"policy": policy} if where == "gateway" else {}
    file = read_gateway_file({"mcpServers": {"back": entry}, "gateway": table})
    options = {**back_options(file, "back"), "target": everything()}
    return Gateway(**gateway_options(file)).add("back", **options)


@cases("where", ["gateway", "server", "tool"])
@cases("name", POLICIES)
async def test_a_policy_holds(where: str, name: str) -> None:
    policy, text = POLICIES[name]
    async with Client(gateway_with(where, policy)) as client:
        assert await client.call_tool("back_add", {"a": 1, "b": 2}, returns=int) == 3
        refused = await client.call_tool("back_add", {"a": 5, "b": 2})
        assert refused.is_error
        assert re.search(text, str(refused.content))


@cases("where", ["gateway", "server", "tool"])
async def test_masks(where: str) -> None:
    async with Client(gateway_with(where, {"mask": ["3"]})) as client:
        result = await client.call_tool("back_add", {"a": 1, "b": 2})
        assert "3" not in str(result.content)


async def test_the_policy_of_a_tool_is_not_that_of_its_server() -> None:
    async with Client(gateway_with("tool", {"rate": "1/hour"})) as client:
        assert [(await client.call_tool("back_add", {"a": 1, "b": 2})).is_error for _ in range(3)] == [
            False,
            True,
            True,
        ]
        assert not any([(await client.call_tool("back_words", {"count": 1})).is_error for _ in range(3)])


def test_further_limits_for_callers_with_a_scope() -> None:
    table = {
        "mask": ["x"],
        "implies": {"admin": ["paid"]},
        "by_scope": {"paid": {"rate": "600/minute"}, "free": {"rate": "10/minute"}},
    }
    file = read_gateway_file({"mcpServers": {"a": {"url": "http://a/mcp"}}, "gateway": {"policy": table}})
    policy = gateway_options(file)["policy"]
    rates = {
        scope: policy.for_caller(Principal("a", scopes=frozenset({scope}))) for scope in ("paid", "free", "admin", "x")
    }
    assert {scope: None if found is None else found.rate for scope, found in rates.items()} == {
        "paid": "600/minute",
        "free": "10/minute",
        "admin": "600/minute",
        "x": None,
    }


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"at_most": 2}, "ab", "abc"),
        ({"between": [1, 2]}, 1.5, 3),
        ({"one_of": ["a", 1]}, 1, 2),
        ({"matches": "[a-z]+"}, "abc", "abc1"),
        ({"plain_text": True}, "abc", "\x1b[0m"),
        ({"inside": "data", "relative_to": "data"}, "x", "../x"),
        ({"inside": "data"}, None, "x"),
        ({"to_hosts": ["*.example.com"]}, "https://a.example.com/", "http://a.example.com/"),
        ({"to_hosts": ["a.example"], "schemes": ["http"]}, "http://a.example/", "https://a.example/"),
    ],
)
def test_rules(rule: dict[str, Any], good: Any, bad: Any, tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    policy = {"rules": {"x": rule}}
    file.write_text(json.dumps({"mcpServers": {"a": {"url": "http://a/mcp"}}, "gateway": {"policy": policy}}))
    (check,) = gateway_options(read_gateway_file(file))["policy"].rules["x"]
    assert check(str(tmp_path / "data" / "x") if good is None else good) is None
    assert check(bad) is not None


@cases(
    ("policy", "text"),
    [
        ({"rate": "often"}, "gateway.policy: 'often' is not a rate"),
        ({"rules": {"x": {}}}, "the rule for 'x' says nothing"),
        ({"rules": {"x": {"at_mots": 1}}}, r"gateway.policy.rules.x.at_mots: .*'at_most'"),
        ({"mask": ["("]}, "gateway.policy: mask= has regular expressions"),
        ({"timeout": 0}, "gateway.policy: Policy: timeout must be above 0"),
        ({"approve": "x"}, r"gateway.policy.approve: there is no such key"),
        ({"by_scope": {"a": {"by_scope": {}}}}, "by_scope.a.by_scope: there is no such key"),
        ({"concurrency": {"running": 0}}, "gateway.policy.concurrency: Slots: running must be at least 1"),
    ],
)
def test_mistakes(policy: dict[str, Any], text: str) -> None:
    file = {"mcpServers": {"a": {"url": "http://a/mcp"}}, "gateway": {"policy": policy}}
    with pytest.raises(ServerError, match=text):
        gateway_options(read_gateway_file(file))


@cases("order", [("open", "guarded"), ("guarded", "open")])
@cases("revision", ["2026-07-28", "2025-11-25"])
async def test_the_policy_of_a_server_holds_for_addresses_that_it_does_not_list(
    order: tuple[str, str], revision: str
) -> None:
    """One of them lists addresses of its scheme."""
    gateway = Gateway("front")
    for name in order:
        server = Server(name)
        server.resource({"guarded": "note://guarded", "open": "open://open"}[name])(lambda: "listed")
        if name == "guarded":
            server.use(_late)
        gateway.add(name, server, policy=Policy(mask=["hidden"], quota="1/day") if name == "guarded" else None)
    async with Client(gateway, revision=revision) as client:
        (found,) = await client.read_resource("note://late")
        assert found.text == "a [redacted] word"
        with pytest.raises(ProtocolError, match="Too many calls"):
            await client.read_resource("note://late")
        (found,) = await client.read_resource("open://open")
        assert found.text == "listed"


async def _late(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "resources/read" and ctx.params.uri == "note://late":
        return {"contents": [{"uri": "note://late", "text": "a hidden word"}]}
    return await call_next(ctx)
