"""`hosted`: what the MCP clients of vendors are given, judged by the vendors' own types."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire import Server
from toolwire.agents import hosted

URL = "https://mcp.example.com/mcp"


def judge(kind: Any, value: Any) -> None:
    from pydantic import TypeAdapter

    TypeAdapter(kind).validate_python(value)


@cases("approve", [None, "always", "never", ["b"]])
def test_the_responses_of_openai(approve: Any) -> None:
    from openai.types.responses import tool_param

    made = hosted(
        URL, "openai-responses", allow=["b", "a"], approve=approve, token="t", headers={"x": "y"}, description="d"
    )
    (tool,) = made["tools"]
    judge(tool_param.Mcp, tool)
    judge(tool_param.ToolParam, tool)
    assert (tool["server_label"], tool["server_url"]) == ("example", URL)
    assert (tool["allowed_tools"], tool["authorization"]) == (["a", "b"], "t")
    if approve == ["b"]:
        assert tool["require_approval"] == {"always": {"tool_names": ["b"]}, "never": {"tool_names": ["a"]}}
    search, deferred = hosted(URL, "openai-responses", defer=True)["tools"]
    judge(tool_param.Mcp, deferred)
    assert (search, deferred["defer_loading"]) == ({"type": "tool_search"}, True)


def test_the_agents_of_openai() -> None:
    from openai.types.beta.agent_tool_param import AgentToolConfigParamMcp

    (tool,) = hosted(URL, "openai-agents", allow=["a"], token="t", headers={"x": "y"})["tools"]
    judge(AgentToolConfigParamMcp, tool)
    assert tool["transport"] == {"type": "http", "server_url": URL, "authorization": "t", "headers": {"x": "y"}}


def test_the_connector_of_anthropic() -> None:
    from anthropic.types.beta import BetaMCPToolsetParam, BetaRequestMCPServerURLDefinitionParam

    made = hosted(URL, "anthropic-connector", allow=["a"], token="t", defer=True)
    (server,) = made["mcp_servers"]
    judge(BetaRequestMCPServerURLDefinitionParam, server)
    search, toolset = made["tools"]
    judge(BetaMCPToolsetParam, toolset)
    assert search["type"] == "tool_search_tool_bm25_20251119"
    assert toolset["default_config"] == {"defer_loading": True, "enabled": False}
    assert toolset["configs"] == {"a": {"enabled": True}}
    assert made["betas"] == ["mcp-client-2025-11-20"]


def test_the_managed_agents_of_anthropic() -> None:
    from anthropic.types.beta import BetaManagedAgentsMCPToolsetParams, BetaManagedAgentsURLMCPServerParams
    from anthropic.types.beta.beta_managed_agents_mcp_tool_config_params import BetaManagedAgentsMCPToolConfigParams

    made = hosted(URL, "anthropic-managed", name="shop", allow=["a", "b"], approve=["b"])
    (server,), (toolset,) = made["mcp_servers"], made["tools"]
    judge(BetaManagedAgentsURLMCPServerParams, server)
    judge(BetaManagedAgentsMCPToolsetParams, toolset)
    for config in toolset["configs"]:
        judge(BetaManagedAgentsMCPToolConfigParams, config)
    assert toolset["default_config"] == {"enabled": False, "permission_policy": {"type": "always_allow"}}
    assert toolset["configs"][1] == {"name": "b", "enabled": True, "permission_policy": {"type": "always_ask"}}


@cases(
    ("url", "reason"),
    [
        ("http://mcp.example.com/mcp", "it has to begin with https://"),
        ("https://localhost/mcp", "private network"),
        ("https://files.internal/mcp", "private network"),
        ("https://10.0.0.1/mcp", "not on the public Internet"),
        ("https://[::1]/mcp", "not on the public Internet"),
        ("https://intranet/mcp", "not a public name"),
        ("https://me:secret@example.com/mcp", "a password in it"),
        ("server.py", "it has to begin with https://"),
    ],
)
def test_a_url_that_no_vendor_reaches_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        hosted(url, "openai-responses")


@cases(
    ("target", "options", "error"),
    [
        ("anthropic-managed", {"token": "t"}, "token= is not for anthropic-managed: its credentials come from a vault"),
        ("anthropic-connector", {"headers": {"a": "b"}}, "headers= is not for anthropic-connector"),
        ("anthropic-connector", {"approve": "always"}, "makes the calls without asking"),
        ("openai-agents", {"approve": "always"}, "no approval for each server"),
        ("openai-responses", {"name": "my server"}, "name= is 1 to 64 letters"),
        ("openai-responses", {"allow": "add"}, "allow= is a list of names"),
        ("gemini", {}, "there is no target 'gemini'"),
    ],
)
def test_options_that_a_target_does_not_have_are_refused(target: Any, options: dict[str, Any], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        hosted(URL, target, **options)


async def test_a_server_with_a_search_gives_a_toolset_the_whole_list() -> None:
    from tests.agents.test_deferring import big

    from toolwire import Gateway
    from toolwire.agents import Toolset
    from toolwire.client import ToolCall

    seen: list[ToolCall] = []

    def approve(call: ToolCall) -> bool:
        seen.append(call)
        return True

    inner = big(60, name="inner")
    gateway = Gateway("front", search=True)
    gateway.add("shop", inner)
    async with Toolset(gateway, approve=approve) as tools:
        definitions = await tools.definitions("openai-chat")
        assert len(definitions) == 70
        await tools.answer({"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "shop_refund_order", "arguments": "{}"}}
        ]})  # fmt: skip
    assert [call.name for call in seen] == ["shop_refund_order"]
    assert isinstance(inner, Server)
