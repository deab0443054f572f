"""`toolwire call TARGET TOOL [KEY=VALUE …]`: call a tool and show its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from toolwire import schemas
from toolwire.cli import catalogue, key_values, request, screen, show_content, targets
from toolwire.cli.errors import DONE, FAILED
from toolwire.cli.server_errors import errors_of
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import InvalidResponse

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPTIONS_ANYWHERE: Final = True


def add_arguments(parser: ArgumentParser) -> None:
    request.add_arguments(parser)
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the name of the tool")
    parser.add_argument(
        "arguments",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="an argument, read as the tool's schema asks; KEY:=JSON takes JSON as it stands, A.B=VALUE is a member, "
        "and '{...}' is several arguments as JSON",
    )
    parser.add_argument("--unchecked", action="store_true", help="send arguments even if they do not fit the schema")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _call(arguments))


async def _call(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    async with request.opened(arguments) as asked:
        tool, found = await catalogue.find_tool(asked.client, arguments.tool or "")
        if tool is None:
            raise request.unknown("tool", arguments.tool, [each.name for each in found.tools], found.missing)
        given = key_values.arguments(arguments.arguments, tool.input_schema)
        values = await asked.complete(given, tool.input_schema, unchecked=arguments.unchecked)
        try:
            result = await asked.send(asked.client.call_tool(tool.name, values, on_progress=asked.progress))
        except InvalidResponse as error:
            # A result that does not fit the output schema is shown, with a note that says what is wrong.
            if error.result is None:
                raise
            result = error.result
    if arguments.json:
        out.json(result.to_dict())
    else:
        show_content.show_result(out, result)
    _check(tool, result)
    if not result.is_error:
        return DONE
    errors_of(arguments).note_failure()
    return FAILED


def _check(tool: t.Tool, result: ToolResult) -> None:
    """Write a note if the result does not fit the tool's own output schema (OUT-2)."""
    if tool.output_schema is UNSET or result.is_error:
        return
    if not result.has_structured:
        screen.note(f"toolwire: {tool.name!r} has an output schema but returned no structured content")
        return
    try:
        problems = schemas.compile(tool.output_schema, what="the output schema").check(result.structured)
    except schemas.SchemaError as error:
        screen.note(f"toolwire: {error}")
        return
    if problems:
        told = "; ".join(schemas.sentence(problem, "value") for problem in problems)
        screen.note(f"toolwire: the result does not fit the tool's output schema: {told}")
