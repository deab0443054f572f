"""Arguments that travel in headers too: `x-mcp-header` in a schema, and the mark that writes it."""

from __future__ import annotations

import re
from typing import Final, cast

from toolwire.protocol.errors import ServerError
from toolwire.schemas import Json, Schema

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DATA: Final = ("default", "const", "enum", "examples")
_MAPS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas")


class Header:
    """`Annotated[str, Header("Region")]`: clients repeat this argument in the header `Mcp-Param-Region`."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token

    @property
    def __json_schema__(self) -> Schema:
        return {"x-mcp-header": self.token}

    def __repr__(self) -> str:
        return f"Header({self.token!r})"


def header_paths(schema: Schema, what: str) -> dict[str, tuple[str, ...]]:
    """The arguments that travel in headers too: header token to the path of names that leads to the argument.

    2026-07-28 basic/transports, custom headers: a token, unique without regard to case, on a string, integer or boolean
    that is reached from the root through `properties` alone. Anything else makes clients drop the tool.
    """
    found: dict[str, tuple[str, ...]] = {}
    _find_headers(schema, (), found, what)
    return found


def _find_headers(schema: Json, path: tuple[str, ...] | None, found: dict[str, tuple[str, ...]], what: str) -> None:
    if isinstance(schema, list):
        for part in schema:
            _find_headers(part, None, found, what)
        return
    if not isinstance(schema, dict):
        return
    if "x-mcp-header" in schema:
        token = schema["x-mcp-header"]
        _check_header(token, schema, path, found, what)
        found[token] = cast("tuple[str, ...]", path)
    for key, part in schema.items():
        if key == "properties" and isinstance(part, dict):
            for name, member in part.items():
                _find_headers(member, None if path is None else (*path, name), found, what)
        elif key in _MAPS and isinstance(part, dict):
            for member in part.values():
                _find_headers(member, None, found, what)
        elif key not in _DATA and key != "x-mcp-header":
            _find_headers(part, None, found, what)


def _check_header(
    token: Json, schema: Schema, path: tuple[str, ...] | None, found: dict[str, tuple[str, ...]], what: str
) -> None:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ServerError(f"{what}: {token!r} is not a header name: use letters, digits and - only")
    if not path:
        raise ServerError(f"{what}: the header {token!r} must be on an argument that is always at the same place")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise ServerError(f"{what}: the header {token!r} must be on a string, an integer or a boolean")
    if token.casefold() in (other.casefold() for other in found):
        raise ServerError(f"{what}: the header {token!r} is used twice")
