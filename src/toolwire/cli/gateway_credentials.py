"""`toolwire gateway credentials list|revoke FILE`: look after the accounts that a gateway keeps."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import msgspec

from toolwire import logs
from toolwire.cli import options, screen
from toolwire.cli.errors import DONE, FAILED, UNREACHED, UsageError
from toolwire.cli.tasks import is_missing_file
from toolwire.protocol.errors import ServerError, counted
from toolwire.protocol.tasks import rfc3339
from toolwire.stores import StoreFailed
from toolwire.stores.by_address import STORES_VARIABLE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.auth.vault.vault import Entry
    from toolwire.gateway import Gateway


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the accounts, without their secrets")
    revoke = actions.add_parser("revoke", help="forget accounts in all processes, and tell their providers")
    for action in (listing, revoke):
        action.add_argument("file", metavar="FILE", help="the file of the gateway")
        action.add_argument("--server", metavar="NAME", help="only accounts at the server of this name")
        action.add_argument(
            "--user", metavar="SUBJECT", help="only accounts of this user: a subject, or an owner as `list` prints it"
        )
        action.add_argument(
            "--stores", metavar="ADDRESS", help=f"the store, instead of that of the file or of {STORES_VARIABLE}"
        )
        options.add_log_level(action, default="error")
    listing.add_argument("--json", action="store_true", help="print JSON")
    screen.add_arguments(listing)
    revoke.add_argument("--all", action="store_true", help="revoke all accounts, or all at one server")


def main(arguments: Namespace) -> int:
    if arguments.action == "revoke" and arguments.user is None and not arguments.all:
        raise UsageError("name a user with --user SUBJECT, or say --all")
    logs.install(arguments.log_level or "error")
    gateway = _gateway(arguments)
    try:
        return asyncio.run(_run(arguments, gateway))
    except StoreFailed as error:
        screen.note(f"toolwire: {error}")
        return UNREACHED


def _gateway(arguments: Namespace) -> Gateway:
    # Imported here because the options alone do not need it.
    from toolwire.gateway.config import make_gateway, read_gateway_file

    further: dict[str, Any] = {} if arguments.stores is None else {"stores": arguments.stores}
    try:
        file = read_gateway_file(arguments.file)
        address = arguments.stores or file.gateway.stores or os.environ.get(STORES_VARIABLE)
        if not address:
            raise UsageError("this gateway keeps its accounts in memory: name its store in gateway.stores")
        if is_missing_file(address):
            raise UsageError(f"there is no file {address!r}, so that there are no accounts")
        gateway = make_gateway(file, audit=None, **further)
    except ServerError as error:
        raise UsageError(str(error)) from None
    if arguments.server is not None and arguments.server not in gateway.vault:
        raise UsageError(f"the server {arguments.server!r} has no credentials in this file")
    return gateway


async def _run(arguments: Namespace, gateway: Gateway) -> int:
    try:
        vault = gateway.vault
        entries = [
            each
            async for each in vault.entries(arguments.server)
            if arguments.user is None or arguments.user in (each.subject, each.owner)
        ]
        if arguments.action == "list":
            _show(arguments, entries)
            return DONE
        # Imported here because listing does not need it.
        from toolwire.auth.vault.records import Owner

        owners = {(each.name, each.owner): Owner(each.owner, each.subject, each.provider) for each in entries}
        revoked = sum([await vault.revoke(name, owner) for (name, _), owner in owners.items()])
        screen.note(f"toolwire: {counted(revoked, 'account')} revoked")
        return DONE if revoked else FAILED
    finally:
        gateway.stores.close()


def _show(arguments: Namespace, entries: list[Entry]) -> None:
    if arguments.json:
        screen.results("never").json([msgspec.to_builtins(each) for each in entries])
        return
    rows = [
        (
            each.name,
            each.subject or each.owner,
            each.provider,
            " ".join(each.scopes),
            "" if each.created is None else rfc3339(each.created),
            "" if each.expires_at is None else rfc3339(each.expires_at),
            "" if each.is_readable else "cannot be opened",
        )
        for each in entries
    ]
    headers = ("SERVER", "USER", "PROVIDER", "SCOPES", "CONNECTED", "TOKEN ENDS", "")
    screen.results(arguments.color).table(headers, rows)
    screen.note(f"toolwire: {counted(len(entries), 'account')}")
