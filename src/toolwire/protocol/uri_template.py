"""URI templates (RFC 6570): expansion for clients, matching and traversal screening for servers."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.protocol.uri_expressions import MAX_URI_LENGTH, MAX_VARIABLES, Expression, Value, encode, expand, parse
from toolwire.protocol.uri_matching import Matching, Unmatchable, normalize, spans_segments

__all__ = ["MAX_URI_LENGTH", "MAX_VARIABLES", "UriTemplate", "Value"]


class UriTemplate:
    """A template, parsed once. `screen=False` turns the traversal screening of matched values off."""

    __slots__ = ("_matching", "_parts", "literal", "screen", "specificity", "text", "unmatchable", "variables")

    def __init__(self, text: str, *, screen: bool = True) -> None:
        self.text: str = text
        self.screen: bool = screen
        self._parts = parse(text)
        expressions = [part for part in self._parts if isinstance(part, Expression)]
        #: The names, in order of first appearance.
        self.variables: tuple[str, ...] = tuple(
            dict.fromkeys(v.name for expression in expressions for v in expression.variables)
        )
        #: True when there is nothing to fill in: the template is a plain URI.
        self.literal: bool = not expressions
        #: Why `match` cannot be used; None where it can. Such a template is good for expansion only.
        self.unmatchable: str | None = None
        self._matching: Matching | None = None
        try:
            self._matching = Matching(self._parts)
        except Unmatchable as reason:
            self.unmatchable = str(reason)
        #: Sort by this to try the most specific template first.
        self.specificity: tuple[int, int, int, int, str] = _specificity(self._parts, text)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded values of the variables that `uri` carries, or None when it is not one of this template's."""
        if self._matching is None:
            raise ValueError(self.unmatchable)
        normal = normalize(uri)
        return None if normal is None else self._matching.match(normal, self.screen)

    def expand(self, values: Mapping[str, Value]) -> str:
        """The URI for these values; None, an empty list and an empty mapping count as undefined (RFC 6570 2.3)."""
        return "".join(
            encode(part, reserved=True) if isinstance(part, str) else expand(part, values) for part in self._parts
        )


def _specificity(parts: list[str | Expression], text: str) -> tuple[int, int, int, int, str]:
    """Few spanning variables first, then few required ones, much literal text, few optional ones; then by text."""
    spanning = required = optional = literal = 0
    for part in parts:
        if isinstance(part, str):
            literal += len(part)
        elif part.operator in ("?", "&", "#"):
            optional += len(part.variables)
        else:
            required += len(part.variables)
            spanning += sum(spans_segments(part.operator, variable) for variable in part.variables)
    return spanning, required, -literal, optional, text
