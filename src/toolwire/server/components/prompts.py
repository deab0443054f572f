"""Prompts: messages for the model, filled with arguments, that a user picks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, Unpack, cast

import msgspec
from msgspec import UNSET

from toolwire.content import InvalidMessage, Message, check_role
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.server.binding import InvalidArguments, bind
from toolwire.server.binding.results import close_coroutine
from toolwire.server.call import Call
from toolwire.server.completion import Completion, choices_in, completions_for
from toolwire.server.components.base import Component, checked_name, given, wire_value, without_empty
from toolwire.server.components.options import Options
from toolwire.server.context import is_context
from toolwire.server.prompt_templates import PromptText

T = TypeVar("T")


class Prompt(Component):
    """Messages for the model, filled with arguments, that a user picks."""

    kind = "prompts"
    noun = "prompt"

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        arguments: Sequence[t.PromptArgument | Mapping[str, Any] | str] | None = None,
        messages: Sequence[Any] | None = None,
        completions: Mapping[str, Callable[..., Any] | Sequence[str]] | None = None,
        **options: Unpack[Options],
    ) -> None:
        if (function is None) == (messages is None):
            raise ServerError("A prompt needs a function or messages=, one of the two")
        binding = None if function is None else bind(function, name=name, is_context=is_context, structured=False)
        if binding is None and not name:
            raise ServerError("A prompt without a function needs a name")
        self.function = function
        self.binding = binding
        self.name: str = checked_name(name or (binding.name if binding else ""), "prompt")
        self.key: str = self.name
        self._turns = [] if messages is None else [_turn(each) for each in messages]
        self.arguments: list[t.PromptArgument] = self._arguments(arguments)
        self.choices: dict[str, tuple[str, ...]] = choices_in(binding, self.argument_names)
        """The possible values of arguments, where their types list them."""
        self.completions: Mapping[str, Completion] = completions_for(self.name, completions, self.argument_names)
        super().__init__(binding, **options)

    @classmethod
    def text(cls, text: str, *, name: str, **options: Any) -> Prompt:
        """Make a prompt of one user message; `{placeholders}` are its arguments."""
        return cls(name=name, messages=[text], **options)

    def _arguments(self, described: Sequence[Any] | None) -> list[t.PromptArgument]:
        placeholders: dict[str, None] = {}
        for turn in self._turns:
            if turn.text is not None:
                placeholders.update(dict.fromkeys(turn.text.placeholders))
        if described is not None:
            arguments = [_prompt_argument(each) for each in described]
            unknown = placeholders.keys() - {each.name for each in arguments}
            if unknown:
                names = ", ".join(sorted(unknown))
                raise ServerError(f"The prompt {self.name} has placeholders that are no arguments of it: {names}")
            return arguments
        if self.binding is not None:
            return [
                t.PromptArgument(name=each.name, description=given(each.description), required=each.required or UNSET)
                for each in self.binding.parameters
            ]
        return [t.PromptArgument(name=name) for name in placeholders]

    @property
    def argument_names(self) -> Collection[str]:
        return [each.name for each in self.arguments]

    @property
    def completable(self) -> Collection[str]:
        """The names of the arguments for which clients can ask for suggestions."""
        return self.argument_names

    def definition(self, revision: str) -> t.Prompt:
        return t.Prompt(
            name=self.name,
            title=given(self.title),
            description=given(self.description),
            arguments=self.arguments or UNSET,
            icons=self.icons,
            meta=self.meta,
        )

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            return sent if self.binding is None else self.binding.meant(self._own(sent))
        except InvalidArguments as error:
            raise self._misfit(error) from None

    def _own(self, sent: dict[str, T]) -> dict[str, T]:
        """Drop arguments that the prompt does not have. A prompt without a function ignores those, too."""
        names = self.argument_names
        return {name: value for name, value in sent.items() if name in names}

    def _misfit(self, error: InvalidArguments) -> ProtocolError:
        return ProtocolError(INVALID_PARAMS, f"Invalid arguments for the prompt {self.name}: {error}")

    async def get(self, call: Call, values: dict[str, str]) -> t.GetPromptResult:
        missing = [each.name for each in self.arguments if each.required is True and each.name not in values]
        if missing:
            # PRM-1
            raise ProtocolError(INVALID_PARAMS, f"Missing arguments for the prompt {self.name}: {', '.join(missing)}")
        if self.binding is None:
            return self._result([turn.filled(values) for turn in self._turns])
        try:
            arguments = self.binding.arguments_from_strings(self._own(values))
        except InvalidArguments as error:
            raise self._misfit(error) from None
        return cast("t.GetPromptResult", await self.run(call, arguments, self._result))

    def _result(self, value: Any) -> t.GetPromptResult:
        if isinstance(value, t.GetPromptResult):
            for message in value.messages:
                check_role(message.role)
            return value
        description: Any = self.description
        if isinstance(value, dict) and "messages" in value:
            description, value = value.get("description", description), value["messages"]
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], list):
            description, value = value
        items = value if isinstance(value, list | tuple) else [value]
        return t.GetPromptResult(messages=[prompt_message(item) for item in items], description=given(description))


def prompt_message(item: Any) -> t.PromptMessage:
    if isinstance(item, t.PromptMessage):
        check_role(item.role)
        return item
    if isinstance(item, Message):
        check_role(item.role)
        return item.to_wire()
    if isinstance(item, dict) and "role" in item:
        message = Message(item.get("content"), item["role"]).to_wire()
        unknown = {name: value for name, value in item.items() if name not in ("content", "role")}
        if unknown:
            message.extra.update(unknown)
        return message
    try:
        return Message(item).to_wire()
    except InvalidMessage as error:
        reason = close_coroutine(item) or error
        raise InvalidMessage(f"A prompt message cannot be made of {type(item).__name__}: {reason}") from None


class _Turn(msgspec.Struct, frozen=True):
    """A message of a prompt without a function; `text` is its text as a template, None for other content."""

    message: t.PromptMessage
    text: PromptText | None

    def filled(self, values: Mapping[str, str]) -> t.PromptMessage:
        content = self.message.content
        if self.text is None or not isinstance(content, t.TextContent):
            return self.message
        filled = msgspec.structs.replace(content, text=self.text.fill(values))
        return t.PromptMessage(role=self.message.role, content=filled)


def _turn(item: Any) -> _Turn:
    try:
        message = prompt_message(item)
        text = PromptText(message.content.text) if isinstance(message.content, t.TextContent) else None
    except (TypeError, ValueError) as error:
        raise ServerError(str(error)) from None
    return _Turn(message, text)


def _prompt_argument(argument: Any) -> t.PromptArgument:
    if isinstance(argument, str):
        return t.PromptArgument(name=argument)
    return cast("t.PromptArgument", without_empty(wire_value(argument, t.PromptArgument, "an argument of a prompt")))
