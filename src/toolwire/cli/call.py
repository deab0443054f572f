"""`toolwire call TARGET TOOL [KEY=VALUE …]`: call a tool and show its result."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from toolwire import schemas
from toolwire.cli import catalogue, key_values, keyboard, questions, screen, show_content, targets
from toolwire.cli.errors import DONE, FAILED, UsageError
from toolwire.cli.screen import ProgressLine
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import MISSING_CLIENT_CAPABILITY, InvalidResponse, ProtocolError, ToolwireError
from toolwire.schemas.wording import nearest

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

OPTIONS_ANYWHERE: Final = True
_LINES_OF_A_FAILURE: Final = 50


def add_arguments(parser: ArgumentParser) -> None:
    # A person may need a while to answer what the server asks.
    targets.add_arguments(parser, timeout=600.0)
    targets.add_caller(parser)
    screen.add_arguments(parser)
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the name of the tool")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="an argument, read as the tool's schema asks; KEY:=JSON takes JSON as it stands, A.B=VALUE is a member, "
        "and '{...}' is several arguments as JSON",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--no-input", action="store_true", help="never ask at the terminal")
    parser.add_argument("--unchecked", action="store_true", help="send arguments that do not fit the tool's schema too")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _call(arguments))


async def _call(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    progress = ProgressLine()
    person = keyboard.Keyboard() if keyboard.is_there() and not arguments.no_input else None
    answers = None if person is None else questions.elicitation(person, progress.clear)
    said: deque[str] = deque(maxlen=_LINES_OF_A_FAILURE)
    async with targets.client(arguments, said.append, elicit=answers, on_log=_log(progress)) as client:
        tool, known = await catalogue.find_tool(client, arguments.tool or "")
        if tool is None:
            raise UsageError(_unknown(arguments.tool, known))
        values = await _arguments(tool, arguments, person)
        said.clear()
        try:
            result = await client.call_tool(tool.name, values, on_progress=progress)
        except ProtocolError as error:
            raise _unanswered(error) from None
        except InvalidResponse as error:
            # A result that breaks the promise of its tool is shown, and what is wrong with it is said below.
            if error.result is None:
                raise
            result = error.result
        finally:
            progress.clear()
    if arguments.json:
        out.json(result.to_dict())
    else:
        show_content.show_result(out, result)
    _check(tool, result)
    if not result.is_error:
        return DONE
    for line in said:  # What a caller is not told, whoever writes the server wants to know.
        screen.note(line)
    return FAILED


def _unknown(name: str | None, known: list[str]) -> str:
    has = f"{', '.join(known[:20]) or 'none'}{', …' if len(known) > 20 else ''}"
    if name is None:
        return f"name a tool; the server has {has}"
    close = nearest(name, known)
    if close is not None:
        return f"the server has no tool {name!r}; did you mean {close!r}?"
    return f"the server has no tool {name!r}; it has {has}"


def _unanswered(error: ProtocolError) -> ToolwireError:
    """A tool that asks what nobody is there to answer gets more words than others that fail."""
    if error.code != MISSING_CLIENT_CAPABILITY:
        return error
    return ToolwireError(
        f"the tool asks for something ({error.message}): call it on a terminal to answer forms yourself, "
        "or with `toolwire inspect`, which can answer everything"
    )


async def _arguments(tool: t.Tool, arguments: Namespace, person: questions.Person | None) -> dict[str, Any]:
    validator = key_values.checker(tool.input_schema)
    given = key_values.understood(key_values.arguments(arguments.arguments, tool.input_schema), validator)
    if person is not None:
        given = await questions.missing_arguments(person, tool.input_schema, given)
    if validator is not None and not arguments.unchecked:
        problems = validator.check(given)
        if problems:
            raise UsageError("; ".join(schemas.sentence(problem) for problem in problems))
    return given


def _log(progress: ProgressLine) -> Any:
    def told(params: t.LoggingMessageNotificationParams) -> None:
        progress.clear()
        data = params.data if isinstance(params.data, str) else screen.as_json(params.data)
        screen.note(f"[{params.level}] {data[: screen.SHOWN_ON_TERMINAL]}")

    return told


def _check(tool: t.Tool, result: ToolResult) -> None:
    """OUT-2: say so when the server breaks the promise of its own output schema. The result is shown all the same."""
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
