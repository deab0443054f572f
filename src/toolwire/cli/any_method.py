"""`toolwire request TARGET METHOD [KEY=VALUE …]`: send a request of any method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolwire.cli import key_values, request, screen, targets
from toolwire.cli.errors import DONE, UsageError
from toolwire.cli.server_errors import errors_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPTIONS_ANYWHERE: Final = True


def add_arguments(parser: ArgumentParser) -> None:
    request.add_arguments(parser)
    parser.add_argument("method", metavar="METHOD", help="a method, or a notification, which has no result")
    parser.add_argument(
        "params",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="a member of the params, as text; KEY:=JSON takes JSON as it stands, '{...}' is several members as JSON",
    )
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="ID[=JSON]",
        help="declare an extension, with its settings; may be repeated",
    )


def main(arguments: Namespace) -> int:
    arguments.extensions = _extensions(arguments.extension)
    return targets.run(arguments, lambda: _send(arguments))


async def _send(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    params = key_values.arguments(arguments.params)
    async with request.opened(arguments) as asked:
        try:
            if arguments.method.startswith("notifications/"):
                await asked.send(asked.client.notify(arguments.method, params))
                return DONE
            sent = asked.client.request(arguments.method, params, on_progress=asked.progress)
            result: Any = await asked.send(sent)
        except ValueError as error:  # A name that cannot be sent, or that has a function of its own.
            raise UsageError(str(error)) from None
    out.json(result)
    if isinstance(result, dict) and result.get("isError") is True:
        errors_of(arguments).note_failure()
    return DONE


def _extensions(words: list[str]) -> dict[str, Mapping[str, Any]]:
    declared: dict[str, Mapping[str, Any]] = {}
    for word in words:
        name, separator, text = word.partition("=")
        try:
            settings = msgspec.json.decode(text, type=dict[str, Any]) if separator else {}
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"the settings of the extension {name} are not a JSON object: {error}") from None
        declared[name] = settings
    return declared
