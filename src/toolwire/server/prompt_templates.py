"""Placeholders in the texts of prompts.

- `{name}` is replaced by the argument of that name, or by nothing when it is not given.
- `{?name}…{/name}` appears only when the argument is given. Blocks may be nested.
- `{{` and the `}}` that closes it are plain braces. Every other brace stays as it is, so JSON needs no escaping.

Arguments come from the model or the user: they are inserted as they are, and never searched for placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolwire.lazy_patterns import lazy_pattern

_MARK = lazy_pattern(r"\{\{|\}\}|\{(?P<kind>[?/]?)(?P<name>[^\W\d]\w*)\}")


class _Literal(Struct, frozen=True):
    text: str


class _Placeholder(Struct, frozen=True):
    name: str


class _Block(Struct, frozen=True):
    """Skip to the step `end` unless the argument is given."""

    name: str
    end: int


class PromptText:
    """A text, parsed once. ValueError, naming the position, when its blocks are not properly nested."""

    __slots__ = ("_steps", "placeholders")

    def __init__(self, text: str) -> None:
        self._steps = _parse(text)
        #: The names of the arguments, in order of first appearance.
        self.placeholders: list[str] = list(
            dict.fromkeys(step.name for step in self._steps if not isinstance(step, _Literal))
        )

    def fill(self, values: Mapping[str, object]) -> str:
        """Return the text with these arguments; None counts as not given."""
        pieces: list[str] = []
        index = 0
        while index < len(self._steps):
            step = self._steps[index]
            index += 1
            if isinstance(step, _Literal):
                pieces.append(step.text)
            elif isinstance(step, _Block):
                if values.get(step.name) is None:
                    index = step.end
            elif (value := values.get(step.name)) is not None:
                pieces.append(str(value))
        return "".join(pieces)


def fill(text: str, values: Mapping[str, object]) -> str:
    return PromptText(text).fill(values)


def placeholders(text: str) -> list[str]:
    return PromptText(text).placeholders


def _parse(text: str) -> list[_Literal | _Placeholder | _Block]:
    steps: list[_Literal | _Placeholder | _Block] = []
    blocks: list[tuple[str, int, int]] = []
    escapes = 0
    position = 0
    for mark in _MARK.finditer(text):
        literal = text[position : mark.start()]
        position = mark.end()
        name = mark["name"]
        if mark[0] == "{{":
            escapes += 1
            literal += "{"
        elif mark[0] == "}}":
            # Nested JSON ends with "}}" too: only one that closes a "{{" is an escape.
            literal += "}" if escapes else "}}"
            escapes = max(0, escapes - 1)
        if literal:
            steps.append(_Literal(literal))
        if mark["kind"] == "":
            steps.append(_Placeholder(name))
        elif mark["kind"] == "?":
            blocks.append((name, len(steps), mark.start()))
            steps.append(_Block(name, 0))
        elif mark["kind"] == "/":
            opened, start, _ = blocks.pop() if blocks else (None, 0, 0)
            if opened != name:
                raise ValueError(
                    f"Prompt text: {mark[0]} at position {mark.start()} closes no block; write {{{mark[0]}}} to show it"
                )
            steps[start] = _Block(name, len(steps))
    if blocks:
        name, _, start = blocks[-1]
        raise ValueError(f"Prompt text: the block {{?{name}}} at position {start} is never closed by {{/{name}}}")
    if position < len(text):
        steps.append(_Literal(text[position:]))
    return steps
