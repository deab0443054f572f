"""Checks of `toolwire doctor --for VENDOR`: can the vendor's client use a server?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET

from toolwire.agents.hosted_servers import unreachable_reason
from toolwire.agents.vendors import ANTHROPIC, OPENAI, PLAIN_NAME
from toolwire.cli import lint_vendors, targets
from toolwire.cli.diagnosis import Diagnosis, bad, good, skipped, warning
from toolwire.cli.lint_rules import tool_tokens
from toolwire.http1 import public_addresses
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted

#: The vendors whose clients are checked for, by the name on the command line.
VENDORS: Final = {"openai": OPENAI, "anthropic": ANTHROPIC}
_MANY_TOKENS: Final = 10_000
_SHOWN: Final = 3


async def check_address(vendor: str, target: Any) -> Diagnosis:
    """Check that the vendor can reach a server from outside."""
    name = f"address for {VENDORS[vendor]}"
    if not targets.is_url(target):
        return bad(
            name,
            "it is a program of this machine",
            "A vendor's client reaches servers by URL alone: serve it over HTTP, or use toolwire.agents.Toolset here.",
        )
    if reason := unreachable_reason(target):
        return bad(name, reason, "Give the address under which the whole Internet reaches it, with TLS.")
    host = urlsplit(target).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except OSError:
        return skipped(name, f"{host} cannot be resolved from here")
    addresses = {public_addresses.parse(str(each[4][0])) for each in found}
    private = sorted(str(each) for each in addresses if each is not None and not public_addresses.is_public(each))
    if private:
        return bad(name, f"{host} leads to {private[0]}", "A vendor reaches addresses of the public Internet alone.")
    return good(name, "nothing speaks against it; a firewall cannot be seen from here")


async def check_tools(vendor: str, tools: Sequence[t.Tool]) -> AsyncIterator[Diagnosis]:
    """Check what the vendor reads of the tools: names, schemas, hints, size."""
    label = VENDORS[vendor]
    yield _judge_names(label, tools)
    yield _judge_schemas(label, tools)
    yield _judge_hints(label, tools)
    yield _judge_size(label, tools)


def _judge_names(label: str, tools: Sequence[t.Tool]) -> Diagnosis:
    refused = [tool.name for tool in tools if not PLAIN_NAME.fullmatch(tool.name)]
    if not refused:
        return good(f"names for {label}", f"{counted(len(tools), 'name')}, all of 1 to 64 letters, digits, _ and -")
    text = f"{counted(len(refused), 'name')} that {label} refuses: {_some(refused)}"
    return bad(f"names for {label}", text, "A vendor's client changes no names: rename them, or add a shape.")


def _judge_schemas(label: str, tools: Sequence[t.Tool]) -> Diagnosis:
    found = [
        finding
        for tool in tools
        for finding in lint_vendors.check(tool)
        if label in finding.vendors and finding.rule != "vendor-name" and finding.level != "hint"
    ]
    if not found:
        return good(f"schemas for {label}", "nothing in them is refused")
    first = f"{found[0].tool}{'.' + found[0].where if found[0].where else ''}: {found[0].message}"
    judge = bad if any(finding.level == "error" for finding in found) else warning
    text = f"{counted(len(found), 'place')}, the first in {first}"
    return judge(f"schemas for {label}", text, "One refused schema fails the whole request. `toolwire lint` names all.")


def _judge_hints(label: str, tools: Sequence[t.Tool]) -> Diagnosis:
    silent = [
        tool.name
        for tool in tools
        if tool.annotations is UNSET
        or (tool.annotations.read_only_hint is UNSET and tool.annotations.destructive_hint is UNSET)
    ]
    if not silent:
        return good(f"hints for {label}", "every tool says whether it only reads")
    text = f"{counted(len(silent), 'tool')} without readOnlyHint: {_some(silent)}"
    return warning(f"hints for {label}", text, "Hosts ask a person before calls that may change something.")


def _judge_size(label: str, tools: Sequence[t.Tool]) -> Diagnosis:
    tokens = sum(tool_tokens(tool) for tool in tools)
    text = f"the definitions take about {counted(tokens, 'token')}"
    if tokens <= _MANY_TOKENS:
        return good(f"size for {label}", text)
    advice = "Name the tools that are needed (`allow=` of toolwire.agents.hosted), or defer them (`defer=True`)."
    return warning(f"size for {label}", text, advice)


def _some(names: Iterable[str]) -> str:
    listed = [ascii(name[:80])[1:-1] for name in names]
    return ", ".join(listed[:_SHOWN]) + (" and more" if len(listed) > _SHOWN else "")
