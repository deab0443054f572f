"""`toolwire bridge URL`: a server at a URL, for a client that starts commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolwire import logs
from toolwire.cli import options, targets
from toolwire.cli.errors import UsageError
from toolwire.cli.screen import note
from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.wire.stdio import claim

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="the address of the server, such as https://notes.example/mcp")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="an HTTP header for every request; ${NAME} stands for an environment variable; may be repeated",
    )
    parser.add_argument(
        "--token",
        help=f"a bearer token instead of signing in (better in the environment, as {targets.TOKEN_VARIABLE})",
    )
    parser.add_argument("--no-sign-in", action="store_true", help="do not open a browser when the server asks for it")
    parser.add_argument(
        "--revision", help="the revision to speak with the server (default: the newest that both sides know)"
    )
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long each request may take (default: %(default)g)",
    )
    options.add_log_level(parser, default="error")


def main(arguments: Namespace) -> int:
    if not targets.is_url(arguments.url):
        raise UsageError(f"{arguments.url!r} is not a URL: begin it with http:// or https://")
    headers = _headers(arguments)
    # First, so that nothing but messages of the protocol reaches standard output.
    claim()
    logs.install(arguments.log_level or "error")
    # Imported here because the options alone do not need it.
    from toolwire.gateway.bridge import Bridge

    try:
        bridge = Bridge(
            arguments.url,
            headers=headers,
            auth=_auth(arguments, headers),
            revision=arguments.revision,
            timeout=arguments.timeout,
            report=_tell,
        )
    except (ToolwireError, ValueError) as error:
        raise UsageError(str(error)) from None
    try:
        bridge.run("stdio")
    except ServerError as error:
        note(f"toolwire: {error}")
        return 1
    return 0


def _headers(arguments: Namespace) -> dict[str, str]:
    # Imported here because it loads the client.
    from toolwire.client.config import ServerEntry, expanded

    given = targets.headers(arguments, targets.Place(arguments.url))
    try:
        return expanded(arguments.url, ServerEntry(headers=given)).headers or {}
    except ValueError as error:
        raise UsageError(str(error)) from None


def _auth(arguments: Namespace, headers: dict[str, str]) -> Any:
    """Return the given token, or a sign-in in the browser, whose tokens are stored."""
    given = targets.token(arguments, arguments.url)
    if given is not None or arguments.no_sign_in or any(name.lower() == "authorization" for name in headers):
        return given
    return targets.browser_sign_in(lambda url: _tell(f"sign in at {url}"))


def _tell(line: str) -> None:
    """Report progress on standard error. The client shows it, or logs it."""
    note(f"toolwire: {line}")
