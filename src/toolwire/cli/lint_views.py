"""Rules of `toolwire lint` on views (UI001 to UI015), which some hosts show blank.

The rules stand in `apps/checks.py`. They look at what a host sees, so they work on every server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET

from toolwire.apps.checks import FoundView, ViewFinding, check_app_tool, check_shown_result, check_view
from toolwire.cli import catalogue
from toolwire.cli.lint_rules import LintFinding
from toolwire.protocol import types as t
from toolwire.protocol.apps import view_address
from toolwire.protocol.errors import ToolwireError
from toolwire.schemas.walking import required_names

if TYPE_CHECKING:
    from toolwire.client import Client

#: How many views are read, and how many tools are called.
MAX_VIEWS: Final = 100
MAX_CALLS: Final = 20


async def check(
    client: Client, tools: list[t.Tool], *, endpoint: str | None = None, calls: bool = True
) -> list[LintFinding]:
    """Check the views of a server, and the tools that show them.

    `endpoint` is the public address of the server. `calls`: call the tools that show a view, only read, and need no
    arguments, to see their results.
    """
    found = [_finding(tool.name, each) for tool in tools for each in check_app_tool(tool)]
    addresses = dict.fromkeys(uri for tool in tools if (uri := view_address(tool.meta)) is not None)
    if not addresses:
        return found
    entries = {each.uri: each for each in (await catalogue.fetch(client, ("resources",))).resources}
    for uri in [*addresses][:MAX_VIEWS]:
        found += [_finding(uri, each) for each in await _view(client, uri, entries, endpoint)]
    shown = [tool for tool in tools if view_address(tool.meta) is not None and is_harmless(tool)]
    for tool in shown[:MAX_CALLS] if calls else ():
        found += [_finding(tool.name, each) for each in await _result(client, tool)]
    return found


def _finding(subject: str, found: ViewFinding) -> LintFinding:
    return LintFinding(found.level, found.rule, subject, "", found.message)


async def _view(
    client: Client, uri: str, entries: Mapping[str, t.Resource], endpoint: str | None
) -> Iterable[ViewFinding]:
    try:
        contents = await client.read_resource(uri)
    except ToolwireError as error:
        return [ViewFinding("error", "UI012", f"it cannot be read: {error}")]
    return check_view(FoundView(uri, contents, entries.get(uri)), endpoint=endpoint)


async def _result(client: Client, tool: t.Tool) -> Iterable[ViewFinding]:
    try:
        result = await client.call_tool(tool.name, {})
    except ToolwireError:
        return []
    return [] if result.is_error else check_shown_result(result)


def is_harmless(tool: t.Tool) -> bool:
    """Return whether a tool says that it only reads, and needs no arguments."""
    hints = tool.annotations
    return hints is not UNSET and hints.read_only_hint is True and not required_names(tool.input_schema)


def public_endpoint(target: Any) -> str | None:
    """Return the address of a target, if remote hosts can reach it."""
    if not isinstance(target, str) or not target.startswith(("https://", "http://")):
        return None
    try:
        host = urlsplit(target).hostname or ""
        return None if host == "localhost" or not ip_address(host).is_global else target
    except ValueError:
        return target  # It has a name and no number.
