"""One request to a server, for `call`, `read`, `prompt` and `request`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolwire import schemas
from toolwire.cli import answers, key_values, keyboard, questions, screen, targets
from toolwire.cli.errors import UsageError
from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    MISSING_CLIENT_CAPABILITY,
    NotSupported,
    ProtocolError,
    ToolwireError,
    find_data_member,
)
from toolwire.schemas.wording import nearest

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client

T = TypeVar("T")

_NAMES: Final = 20


def add_arguments(parser: ArgumentParser) -> None:
    # A person may need a while to answer the questions of the server.
    targets.add_arguments(parser, timeout=600.0)
    targets.add_caller(parser)
    screen.add_arguments(parser)
    answers.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--no-input", action="store_true", help="never ask at the terminal")


class OpenRequest:
    """A connected client.

    `--answer`, or the user at the terminal, answers the questions of its server.
    """

    def __init__(self, arguments: Namespace) -> None:
        self.progress: screen.ProgressLine = screen.ProgressLine()
        self.person: questions.Person | None = (
            keyboard.Keyboard() if keyboard.is_there() and not arguments.no_input else None
        )
        self.scripted: answers.ScriptedAnswers = answers.ScriptedAnswers(arguments)
        elicit = self.scripted.elicitation
        if elicit is None and self.person is not None:
            elicit = questions.elicitation(self.person, self.progress.clear)
        self.client: Client = targets.client(
            arguments,
            self._show_output if sys.stderr.isatty() and not arguments.verbose else None,
            elicit=elicit,
            sample=self.scripted.sampling,
            extensions=getattr(arguments, "extensions", None),
            on_log=self._show_log(arguments.log_level),
        )

    async def send(self, request: Awaitable[T]) -> T:
        """Wait for the result of the request.

        Raises `UsageError` if a question of the server had no answer.
        """
        try:
            result = await request
        except ToolwireError as error:
            self.scripted.check()
            raise _explained(error) from None
        finally:
            self.progress.clear()
        self.scripted.check()
        self.scripted.note_unused()
        return result

    async def complete(
        self, given: dict[str, Any], schema: dict[str, Any], *, unchecked: bool = False
    ) -> dict[str, Any]:
        """Convert arguments, ask the user for missing ones, and check them all."""
        validator = key_values.checker(schema)
        given = key_values.understood(given, validator)
        if not unchecked:
            key_values.check_spelling(given, schema)
        if self.person is not None:
            given = await questions.missing_arguments(self.person, schema, given)
        if validator is not None and not unchecked:
            problems = validator.check(given)
            if problems:
                raise UsageError("; ".join(schemas.sentence(problem) for problem in problems))
        return given

    def _show_output(self, line: str) -> None:
        """Show a person what the server prints and logs, apart from the result."""
        self.progress.clear()
        screen.server_note(line)

    def _show_log(self, level: t.LoggingLevel | None) -> Callable[[t.LoggingMessageNotificationParams], None]:
        least = t.severity(level) if level is not None else None

        def show(params: t.LoggingMessageNotificationParams) -> None:
            if least is not None and t.severity(params.level) < least:
                return
            self.progress.clear()
            data = params.data if isinstance(params.data, str) else screen.as_json(params.data)
            screen.server_note(f"[{params.level}] {data[: screen.SHOWN_ON_TERMINAL]}")

        return show


@asynccontextmanager
async def opened(arguments: Namespace) -> AsyncIterator[OpenRequest]:
    """Connect to the target; `--log-level` also says which log messages the server sends."""
    request = OpenRequest(arguments)
    async with request.client as client:
        if arguments.log_level is not None:
            try:
                await client.set_level(arguments.log_level)
            except (NotSupported, ProtocolError):
                pass  # The server does not let its clients choose. What it sends is filtered here.
        yield request


def unknown(noun: str, name: str | None, known: list[str], missing: Sequence[str] = ()) -> UsageError:
    """Return the error for a component that is unknown or was not named.

    `missing` are the servers behind a gateway that it cannot reach: they may have the component.
    """
    has = f"{', '.join(known[:_NAMES]) or 'none'}{', …' if len(known) > _NAMES else ''}"
    if missing:
        has += f", and cannot reach {', '.join(missing)}"
    if name is None:
        return UsageError(f"name a {noun}; the server has {has}")
    close = nearest(name, known)
    if close is not None and not missing:
        return UsageError(f"the server has no {noun} {name!r}; did you mean {close!r}?")
    return UsageError(f"the server has no {noun} {name!r}; it has {has}")


def _explained(error: ToolwireError) -> ToolwireError:
    """Add advice to the error of a server that needs an extension or an answer."""
    if not isinstance(error, ProtocolError) or error.code != MISSING_CLIENT_CAPABILITY:
        return error
    needed = _extensions_in(error)
    if needed:
        return ToolwireError(f"{error.message}: declare it with --extension {' --extension '.join(needed)}")
    return ToolwireError(
        f"the server asks a question ({error.message}): answer it with --answer or --sample, run the command on a "
        "terminal, or use `toolwire inspect`, which can answer everything"
    )


def _extensions_in(error: ProtocolError) -> list[str]:
    """List the extensions that an error of a server says the client has to declare."""
    extensions = (find_data_member(error, "requiredCapabilities", dict) or {}).get("extensions")
    return list(extensions)[:_NAMES] if isinstance(extensions, dict) else []
