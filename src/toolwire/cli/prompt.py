"""`toolwire prompt TARGET NAME [KEY=VALUE …]`: get a prompt and show its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from toolwire.cli import catalogue, key_values, request, screen, show_content, targets
from toolwire.cli.errors import DONE
from toolwire.protocol import types as t

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPTIONS_ANYWHERE: Final = True


def add_arguments(parser: ArgumentParser) -> None:
    request.add_arguments(parser)
    parser.add_argument("name", nargs="?", metavar="NAME", help="the name of the prompt")
    parser.add_argument(
        "arguments",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="an argument; KEY:=JSON and '{...}' are sent as JSON text, because arguments of prompts are text",
    )


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _get(arguments))


async def _get(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    async with request.opened(arguments) as asked:
        prompts = (await catalogue.fetch(asked.client, ("prompts",))).prompts
        prompt = next((one for one in prompts if one.name == arguments.name), None)
        if prompt is None:
            raise request.unknown("prompt", arguments.name, [one.name for one in prompts])
        schema = _schema(prompt)
        given = {name: _as_text(value) for name, value in key_values.arguments(arguments.arguments, schema).items()}
        values = await asked.complete(given, schema)
        result = await asked.send(asked.client.get_prompt(prompt.name, values, on_progress=asked.progress))
    if arguments.json:
        out.json(result.to_dict())
    else:
        show_content.show_messages(out, result.messages)
    return DONE


def _schema(prompt: t.Prompt) -> dict[str, Any]:
    """Describe the arguments of a prompt as a JSON Schema.

    So they are read and checked like those of a tool.
    """
    declared = [] if prompt.arguments is UNSET else prompt.arguments
    return {
        "type": "object",
        "properties": {one.name: {"type": "string", "description": one.description or ""} for one in declared},
        "required": [one.name for one in declared if one.required is True],
        "additionalProperties": False,
    }


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
