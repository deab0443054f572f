"""`toolwire gateway pins list|approve FILE`: show tools that wait for approval; approve them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import msgspec

from toolwire import logs
from toolwire.cli import options, screen
from toolwire.cli.errors import DONE, UNREACHED, UsageError
from toolwire.protocol.errors import ServerError, counted
from toolwire.protocol.tool_changes import shown
from toolwire.stores import StoreFailed
from toolwire.stores.by_address import STORES_VARIABLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.gateway import Gateway
    from toolwire.server.shaping import Quarantined


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the tools that are new or changed, with both definitions")
    approve = actions.add_parser("approve", help="let tools through, as their server lists them now")
    for action in (listing, approve):
        action.add_argument("file", metavar="FILE", help="the file of the gateway")
        action.add_argument(
            "--stores", metavar="ADDRESS", help=f"the store, instead of that of the file or of {STORES_VARIABLE}"
        )
        options.add_log_level(action, default="error")
    listing.add_argument("--json", action="store_true", help="print JSON, with the whole definitions")
    approve.add_argument("server", metavar="SERVER", help="the name of the server in the file")
    approve.add_argument(
        "tools",
        metavar="TOOL",
        nargs="*",
        default=[],
        help="the tools; TOOL@DIGEST approves that definition and no other one",
    )
    approve.add_argument("--all", action="store_true", help="approve all tools of the server that wait")


def main(arguments: Namespace) -> int:
    if arguments.action == "approve" and bool(arguments.tools) == arguments.all:
        raise UsageError("name the tools to approve, or say --all")
    logs.install(arguments.log_level or "error")
    gateway = _gateway(arguments)
    try:
        return asyncio.run(_run(arguments, gateway))
    except StoreFailed as error:
        screen.note(f"toolwire: {error}")
        return UNREACHED
    except ServerError as error:
        raise UsageError(str(error)) from None


def _gateway(arguments: Namespace) -> Gateway:
    # Imported here because the options alone do not need it.
    from toolwire.gateway.config import make_gateway, read_gateway_file

    further: dict[str, Any] = {} if arguments.stores is None else {"stores": arguments.stores}
    try:
        file = read_gateway_file(arguments.file)
        gateway = make_gateway(file, audit=None, **further)
    except ServerError as error:
        raise UsageError(str(error)) from None
    if not gateway.pins:
        raise UsageError("no server of this file has pins")
    has_stores = bool(arguments.stores or file.gateway.stores or os.environ.get(STORES_VARIABLE))
    if not has_stores and not all(pins.has_stores for pins in gateway.pins.values()):
        raise UsageError("this gateway keeps its pins in memory: name its store in gateway.stores, or in pins.stores")
    if arguments.action == "approve" and arguments.server not in gateway.pins:
        raise UsageError(f"the server {arguments.server!r} has no pins in this file")
    return gateway


async def _run(arguments: Namespace, gateway: Gateway) -> int:
    try:
        if arguments.action == "approve":
            approved = await gateway.pins[arguments.server].approve(arguments.server, *arguments.tools)
            screen.note(f"toolwire: {counted(len(approved), 'tool')} approved")
            return DONE
        waiting: dict[str, list[Quarantined]] = {}
        for name, pins in gateway.pins.items():
            await pins.load(name)
            waiting[name] = pins.quarantined(name)
        _show(arguments, waiting)
        return DONE
    finally:
        gateway.stores.close()


def _show(arguments: Namespace, waiting: dict[str, list[Quarantined]]) -> None:
    out = screen.results("never")
    if arguments.json:
        out.json(msgspec.to_builtins(waiting))
        return
    for server, tools in waiting.items():
        for each in tools:
            out.line(f"{shown(server)[1:-1]} {shown(each.tool)[1:-1]}@{each.digest}")
            if each.before is None:
                out.line(f"  new: {shown(each.after.get('description'))}")
            for change in each.changes:
                out.line(f"  {shown(change.member)[1:-1]}")
                out.line(f"    - {shown(change.before)}")
                out.line(f"    + {shown(change.after)}")
    screen.note(f"toolwire: {counted(sum(map(len, waiting.values())), 'tool')} waiting for an approval")
