"""`toolwire inspect TARGET`: show any server in a page of the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolwire.auth import FileStorage
from toolwire.cli import client_files, options, targets
from toolwire.cli.errors import FAILED, UsageError
from toolwire.cli.running import end_children_first
from toolwire.cli.screen import note, server_note
from toolwire.cli.server_errors import show_tracebacks
from toolwire.cli.tasks import is_missing_file, open_store
from toolwire.inspector import Inspector, InspectorApp, serving
from toolwire.inspector.app import CALLBACK
from toolwire.inspector.saved_requests import SavedRequests
from toolwire.loops import run
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import REVISIONS
from toolwire.stores import Stores
from toolwire.stores.by_address import STORES_VARIABLE
from toolwire.wire import stdio

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.gateway import Gateway


def add_arguments(parser: ArgumentParser) -> None:
    targets.add_arguments(parser, log_level="warning")
    options.add_stores(parser, "the store of the server, to show the tasks of its fleet")
    options.add_page(parser, "--port")


def main(arguments: Namespace) -> int:
    if arguments.revision is not None and arguments.revision not in REVISIONS:
        raise UsageError(f"{arguments.revision!r} is not a revision: use one of {', '.join(REVISIONS)}")
    targets.install_logs(arguments, default="warning")
    try:
        gateway = _gateway(arguments.target)
        place = targets.Place(gateway) if gateway is not None else targets.chosen(arguments)
        stores = _stores(arguments.stores)
        listeners = serving.listen(arguments.port, arguments.view_port)
    except ServerError as error:
        note(f"toolwire: {error}")
        return FAILED
    app = InspectorApp(_inspector(arguments, place, listeners.url(CALLBACK), stores, gateway))
    address = serving.address(app, listeners)
    try:
        with end_children_first("SIGHUP", "SIGQUIT"):
            shown = partial(announce_page, address, open_it=not arguments.no_open)
            run(serving.serve(app, listeners, stdio.signals, shown))
    finally:
        if stores is not None:
            stores.close()
    return 0


def _stores(address: str | None) -> Stores | None:
    """Return the store of the server; None if none is named."""
    if address is not None:
        return open_store(address)
    address = os.environ.get(STORES_VARIABLE)
    # The variable is for every command: it may name a file that another server makes later.
    return open_store(address) if address and not is_missing_file(address) else None


def _gateway(target: str) -> Gateway | None:
    """Return the gateway that a file describes; None for any other target.

    It is inspected from inside.
    """
    # Imported here because few targets are files of a gateway.
    from toolwire.gateway.config import gateway_of, is_gateway_file

    return gateway_of(target) if is_gateway_file(target) else None


def _inspector(
    arguments: Namespace, place: targets.Place, callback: str, stores: Stores | None, gateway: Gateway | None
) -> Inspector:
    about: dict[str, Any] = {}
    if gateway is not None:
        about = {"gateway": lambda: gateway, "options": {"timeout": arguments.timeout}}
    elif targets.is_url(place.target):
        about = _at_url(arguments, place, callback)
    else:
        about = _started(arguments, place)
    saved = saved_requests(arguments.target)
    try:
        return Inspector(
            place.target,
            label=arguments.target,
            revision=arguments.revision,
            saved=saved,
            stores=None if stores is None else lambda: stores,
            on_stderr=_stderr_lines(arguments, gateway),
            **about,
        )
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None


def _stderr_lines(arguments: Namespace, gateway: Gateway | None) -> Callable[[str], None] | None:
    """Return the function that shows in the terminal what started servers write to standard error."""
    if arguments.verbose:
        return server_note
    # A gateway logs the tracebacks of its servers by itself.
    return show_tracebacks() if gateway is None else None


def _at_url(arguments: Namespace, place: targets.Place, callback: str) -> dict[str, Any]:
    headers, token = targets.headers(arguments, place), targets.token(arguments, arguments.target)
    settings: dict[str, Any] = {"headers": headers, "timeout": arguments.timeout}
    if token is not None or any(name.lower() == "authorization" for name in headers):
        return {"url": place.target, "options": {**settings, "auth": token}}
    return {"url": place.target, "callback": callback, "options": settings}


def _started(arguments: Namespace, place: targets.Place) -> dict[str, Any]:
    settings: dict[str, Any] = {"timeout": arguments.timeout}
    if place.env is not None or place.cwd is not None or arguments.env:
        settings |= {"env": {**(place.env or {}), **targets.pairs(arguments.env)}, "cwd": place.cwd}
    if arguments.inherit_env:
        settings["inherit_env"] = True
    return {"command": targets.command(place), "options": settings}


def saved_requests(target: str) -> SavedRequests:
    """Return the saved requests of a target.

    The folder counts, because a path names another file in another folder.
    """
    server = target if targets.is_url(target) else f"{target} in {Path.cwd()}"
    return SavedRequests(server, FileStorage(client_files.own_folder() / "inspector"))


def announce_page(address: str, *, open_it: bool) -> None:
    """Print the address of the page, and open it at an interactive terminal."""
    note(f"toolwire: the inspector is at {address} (Ctrl+C ends it)")
    if open_it and sys.stderr.isatty():
        webbrowser.open(address)
