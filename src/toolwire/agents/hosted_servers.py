"""`hosted`: what a vendor's own MCP client needs to reach a server.

The vendor then lists the tools and makes the calls. Nothing of this process is between: no approval, budget, pins or
search of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from toolwire.agents.sources import name_of_target
from toolwire.http1 import public_addresses

HostedTarget: TypeAlias = Literal["openai-responses", "openai-agents", "anthropic-connector", "anthropic-managed"]
#: When a person is asked before a call: always, never, or for the named tools.
HostedApproval: TypeAlias = Literal["always", "never"] | Collection[str]

#: The beta of Anthropic's connector (`betas=` of `client.beta.messages.create`), anthropic 2.10.0.
ANTHROPIC_BETA: Final = "mcp-client-2025-11-20"
_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PRIVATE_NAMES: Final = ("localhost", ".localhost", ".local", ".internal", ".lan", ".home.arpa")


def hosted(
    url: str,
    target: HostedTarget,
    *,
    name: str | None = None,
    allow: Collection[str] | None = None,
    approve: HostedApproval | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    description: str | None = None,
    defer: bool = False,
) -> dict[str, Any]:
    """Return the members of a request for a server that the vendor reaches itself.

    They are `tools`, `mcp_servers` and `betas`. `allow` names the tools that the model gets, all by default. `approve`
    says when a person is asked: "always", "never", or before calls of the named tools. `token` is a bearer token;
    agents that a vendor runs take theirs from a vault. Raise `ValueError` for an option that the target does not have,
    and for a URL that no vendor reaches.
    """
    check_reachable(url)
    for what, names in (("allow", allow), ("approve", approve)):
        if isinstance(names, str) and names not in ("always", "never"):
            raise TypeError(f"{what}= is a list of names")
    label = name or name_of_target(url)
    if not _LABEL.fullmatch(label):
        raise ValueError(f"name= is 1 to 64 letters, digits, _ and -, and begins with a letter, not {label[:80]!r}")
    make = _MAKERS.get(target)
    if make is None:
        raise ValueError(f"there is no target {str(target)[:60]!r}; the targets are {', '.join(_MAKERS)}")
    allowed = None if allow is None else sorted(allow)
    options = {"token": token, "headers": headers, "description": description, "defer": defer or None}
    return make(url, label, allowed, approve, {key: value for key, value in options.items() if value is not None})


def check_reachable(url: str) -> None:
    """Raise `ValueError` for a URL that no vendor reaches from outside."""
    reason = unreachable_reason(url)
    if reason:
        raise ValueError(f"{url[:200]!r} cannot be reached by a vendor: {reason}")


def unreachable_reason(url: str) -> str:
    """Return why no vendor reaches a URL; "" if nothing speaks against it."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    if parts.scheme != "https" or not host:
        return "it has to begin with https://"
    if parts.username or parts.password:
        return "it has a name or a password in it; give token= or headers="
    if host.endswith(_PRIVATE_NAMES):
        return f"{host} is a name of a private network"
    address = public_addresses.parse(host)
    if address is not None and not public_addresses.is_public(address):
        return f"{host} is not on the public Internet"
    if address is None and "." not in host:
        return f"{host} is not a public name"
    return ""


Options: TypeAlias = dict[str, Any]


def _refuse(options: Options, target: str, *names: str) -> None:
    for name in names:
        if name in options:
            raise ValueError(f"{name}= is not for {target}{_INSTEAD.get((target, name), '')}")


_INSTEAD: Final = {
    ("anthropic-managed", "token"): ": its credentials come from a vault",
    ("anthropic-managed", "headers"): ": its credentials come from a vault",
}


def _openai_responses(
    url: str, label: str, allow: list[str] | None, approve: HostedApproval | None, options: Options
) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "mcp", "server_label": label, "server_url": url}
    if allow is not None:
        tool["allowed_tools"] = allow
    if isinstance(approve, str):
        tool["require_approval"] = approve
    elif approve is not None:
        tool["require_approval"] = {"always": {"tool_names": sorted(approve)}}
        if allow is not None and (rest := sorted(set(allow) - set(approve))):
            tool["require_approval"]["never"] = {"tool_names": rest}
    if "token" in options:
        tool["authorization"] = options["token"]
    if "headers" in options:
        tool["headers"] = dict(options["headers"])
    if "description" in options:
        tool["server_description"] = options["description"]
    if "defer" in options:
        return {"tools": [{"type": "tool_search"}, {**tool, "defer_loading": True}]}
    return {"tools": [tool]}


def _openai_agents(
    url: str, label: str, allow: list[str] | None, approve: HostedApproval | None, options: Options
) -> dict[str, Any]:
    _refuse(options, "openai-agents", "description", "defer")
    if approve is not None:
        raise ValueError("approve= is not for openai-agents, which has no approval for each server")
    transport: dict[str, Any] = {"type": "http", "server_url": url}
    if "token" in options:
        transport["authorization"] = options["token"]
    if "headers" in options:
        transport["headers"] = dict(options["headers"])
    tool: dict[str, Any] = {"type": "mcp", "server_label": label, "transport": transport}
    if allow is not None:
        tool["allowed_tools"] = allow
    return {"tools": [tool]}


def _anthropic_connector(
    url: str, label: str, allow: list[str] | None, approve: HostedApproval | None, options: Options
) -> dict[str, Any]:
    _refuse(options, "anthropic-connector", "headers", "description")
    if approve is not None:
        raise ValueError("approve= is not for anthropic-connector, which makes the calls without asking")
    server: dict[str, Any] = {"type": "url", "name": label, "url": url}
    if "token" in options:
        server["authorization_token"] = options["token"]
    default: dict[str, Any] = {"defer_loading": True} if "defer" in options else {}
    toolset: dict[str, Any] = {"type": "mcp_toolset", "mcp_server_name": label}
    if allow is not None:
        default["enabled"] = False
        toolset["configs"] = {tool: {"enabled": True} for tool in allow}
    if default:
        toolset["default_config"] = default
    tools = [{"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}] if "defer" in options else []
    return {"mcp_servers": [server], "tools": [*tools, toolset], "betas": [ANTHROPIC_BETA]}


def _anthropic_managed(
    url: str, label: str, allow: list[str] | None, approve: HostedApproval | None, options: Options
) -> dict[str, Any]:
    _refuse(options, "anthropic-managed", "token", "headers", "description", "defer")
    toolset: dict[str, Any] = {"type": "mcp_toolset", "mcp_server_name": label}
    default: dict[str, Any] = {}
    if allow is not None:
        default["enabled"] = False
    if approve is not None:
        default["permission_policy"] = {"type": "always_ask" if approve == "always" else "always_allow"}
    asked = set() if approve is None or isinstance(approve, str) else set(approve)
    configs: list[dict[str, Any]] = []
    for tool in sorted({*(allow or ()), *asked}):
        if allow is not None and tool not in allow:
            continue
        config: dict[str, Any] = {"name": tool, "enabled": True}
        if tool in asked:
            config["permission_policy"] = {"type": "always_ask"}
        configs.append(config)
    if default:
        toolset["default_config"] = default
    if configs:
        toolset["configs"] = configs
    return {"mcp_servers": [{"type": "url", "name": label, "url": url}], "tools": [toolset]}


_Maker: TypeAlias = Callable[[str, str, list[str] | None, HostedApproval | None, Options], dict[str, Any]]
_MAKERS: Final[dict[str, _Maker]] = {
    "openai-responses": _openai_responses,
    "openai-agents": _openai_agents,
    "anthropic-connector": _anthropic_connector,
    "anthropic-managed": _anthropic_managed,
}
