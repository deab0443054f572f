"""The expressions of a URI template (RFC 6570): parsing them, and expansion, complete (level 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

MAX_URI_LENGTH = 8 * 1024
MAX_VARIABLES = 64

Scalar: TypeAlias = "str | int | float | bool"
Value: TypeAlias = "Scalar | Sequence[Scalar | None] | Mapping[str, Scalar | None] | None"


class Variable(NamedTuple):
    """`name`, `name:3` or `name*`."""

    name: str
    prefix: int | None
    explode: bool


class Expression(NamedTuple):
    """The text between two braces, and its place."""

    operator: str
    variables: tuple[Variable, ...]
    position: int


class _Style(NamedTuple):
    """One column of the table in RFC 6570 appendix A."""

    first: str
    separator: str
    named: bool
    if_empty: str
    reserved: bool


STYLES = {
    "": _Style("", ",", False, "", False),
    "+": _Style("", ",", False, "", True),
    "#": _Style("#", ",", False, "", True),
    ".": _Style(".", ".", False, "", False),
    "/": _Style("/", "/", False, "", False),
    ";": _Style(";", ";", True, "", False),
    "?": _Style("?", "&", True, "=", False),
    "&": _Style("&", "&", True, "=", False),
}

_RESERVED = ":/?#[]@!$&'()*+,;="
TRIPLET = re.compile(r"(%[0-9A-Fa-f]{2})")
# RFC 6570 section 2.1, and beyond it the apostrophe, which a URI may contain.
_BAD_LITERAL = re.compile(r"[\x00-\x20\x7f\"<>\\^`|}]|%(?![0-9A-Fa-f]{2})")
_VARIABLE = re.compile(
    r"(?P<name>(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*)"
    r"(?::(?P<prefix>[1-9][0-9]{0,3})|(?P<explode>\*))?"
)


# --- parsing --------------------------------------------------------------------------------------


def parse(text: str) -> list[str | Expression]:
    if len(text) > MAX_URI_LENGTH:
        raise ValueError(f"URI template is longer than {MAX_URI_LENGTH} characters")
    parts: list[str | Expression] = []
    position = count = 0
    while position < len(text):
        if text[position] == "{":
            end = text.find("}", position)
            if end < 0:
                raise ValueError(f"URI template: the brace at position {position} is never closed")
            expression = _parse_expression(text[position + 1 : end], position)
            count += len(expression.variables)
            if count > MAX_VARIABLES:
                raise ValueError(f"URI template: more than {MAX_VARIABLES} variables at position {position}")
            parts.append(expression)
            position = end + 1
        else:
            end = text.find("{", position)
            end = len(text) if end < 0 else end
            if bad := _BAD_LITERAL.search(text, position, end):
                raise ValueError(f"URI template: {bad[0]!r} at position {bad.start()} is not allowed outside braces")
            parts.append(text[position:end])
            position = end
    return parts


def _parse_expression(body: str, position: int) -> Expression:
    operator = body[:1] if body[:1] in STYLES else ""
    variables = []
    at = position + 1 + len(operator)
    for item in body[len(operator) :].split(","):
        parsed = _VARIABLE.fullmatch(item)
        if parsed is None:
            raise ValueError(f"URI template: {item!r} at position {at} is not a variable")
        prefix = parsed["prefix"]
        variables.append(Variable(parsed["name"], int(prefix) if prefix else None, parsed["explode"] is not None))
        at += len(item) + 1
    return Expression(operator, tuple(variables), position)


# --- expansion, RFC 6570 section 3 ----------------------------------------------------------------


def expand(expression: Expression, values: Mapping[str, Value]) -> str:
    style = STYLES[expression.operator]
    pieces: list[str] = []
    for variable in expression.variables:
        value = values.get(variable.name)
        if value is None:
            continue
        if isinstance(value, str | int | float):
            pieces.append(_named(variable.name, encode(_text(value)[: variable.prefix], style.reserved), style))
        elif variable.prefix is not None:
            raise ValueError(f"URI template: {variable.name!r} has a prefix length and cannot take several values")
        elif isinstance(value, Mapping):
            defined = [(key, item) for key, item in value.items() if item is not None]
            pairs = [(encode(key, style.reserved), encode(_text(item), style.reserved)) for key, item in defined]
            if variable.explode:
                pieces += [_named(k, v, style) if style.named else f"{k}={v}" for k, v in pairs]
            elif pairs:
                pieces.append(_named(variable.name, ",".join(f"{k},{v}" for k, v in pairs), style))
        else:
            items = [encode(_text(item), style.reserved) for item in value if item is not None]
            if variable.explode:
                pieces += [_named(variable.name, item, style) for item in items]
            elif items:
                pieces.append(_named(variable.name, ",".join(items), style))
    return style.first + style.separator.join(pieces) if pieces else ""


def _named(name: str, encoded: str, style: _Style) -> str:
    if not style.named:
        return encoded
    return f"{name}={encoded}" if encoded else name + style.if_empty


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode(text: str, reserved: bool) -> str:
    from urllib.parse import quote

    if not reserved:
        return quote(text, safe="")
    # RFC 6570 section 3.2.1: with reserved characters allowed, what is already percent-encoded stays as it is.
    pieces = TRIPLET.split(text)
    pieces[::2] = [quote(piece, safe=_RESERVED) for piece in pieces[::2]]
    return "".join(pieces)
