"""Arguments that travel in headers too: which ones a schema names, and what their headers say.

2026-07-28 basic/transports/streamable-http, custom headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from toolwire.lazy_patterns import lazy_pattern

Paths: TypeAlias = Mapping[str, tuple[str, ...]]

_TOKEN: Final = lazy_pattern(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DATA: Final = ("default", "const", "enum", "examples")
_MAPS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas")
# Deeper than any message may be, so that only a schema that was not read from one can come this far.
_MAX_DEPTH: Final = 256
#: Servers of HTTP take about a hundred headers of a request, and a few thousand bytes for each.
MAX_HEADERS: Final = 64
_LONGEST: Final = 256
# XMH-3, header constraints: integers stay within what a double can hold.
_LARGEST: Final = 2**53 - 1


class BadHeader(ValueError):
    """An `x-mcp-header` that makes its tool invalid."""


def header_paths(schema: Any) -> dict[str, tuple[str, ...]]:
    """The arguments that travel in headers too: header token to the path of names that leads to the argument.

    A token, unique without regard to case, on a string, integer or boolean that is reached from the root through
    `properties` alone. Anything else is a `BadHeader`.
    """
    found = _Found()
    _find(schema, (), found, 0)
    return found.paths


class _Found:
    """The headers found so far, and their names without regard to case."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[str, ...]] = {}
        self.names: set[str] = set()


def _find(schema: Any, path: tuple[str, ...] | None, found: _Found, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise BadHeader("the schema is nested too deeply to be searched for headers")
    if isinstance(schema, list):
        for part in schema:
            _find(part, None, found, depth + 1)
        return
    if not isinstance(schema, dict):
        return
    if "x-mcp-header" in schema:
        token = schema["x-mcp-header"]
        _check(token, schema, path, found.names)
        found.names.add(token.casefold())
        found.paths[token] = cast("tuple[str, ...]", path)
        if len(found.paths) > MAX_HEADERS:
            raise BadHeader(f"the schema names more than {MAX_HEADERS} headers")
    for key, part in schema.items():
        if key == "properties" and isinstance(part, dict):
            for name, member in part.items():
                _find(member, None if path is None else (*path, name), found, depth + 1)
        elif key in _MAPS and isinstance(part, dict):
            for member in part.values():
                _find(member, None, found, depth + 1)
        elif key not in _DATA and key != "x-mcp-header":
            _find(part, None, found, depth + 1)


def _check(token: Any, schema: Mapping[str, Any], path: tuple[str, ...] | None, names: set[str]) -> None:
    if not isinstance(token, str) or len(token) > _LONGEST or not _TOKEN.fullmatch(token):
        raise BadHeader(f"{token!r:.100} is not a header name: use letters, digits and - only")
    if not path:
        raise BadHeader(f"the header {token!r} must be on an argument that is always at the same place")
    if schema.get("type") not in ("string", "integer", "boolean"):
        raise BadHeader(f"the header {token!r} must be on a string, an integer or a boolean")
    if token.casefold() in names:
        raise BadHeader(f"the header {token!r} is used twice")


def parameter_headers(paths: Paths, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat the arguments of a call (XMH-2); what is absent or null has none."""
    # Imported here because a server over stdio has no use for it.
    from toolwire.protocol.http import argument_at, encode_value, render_argument

    headers: dict[str, str] = {}
    for token, path in paths.items():
        value = argument_at(arguments, path)
        if isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= _LARGEST):
            headers[f"Mcp-Param-{token}"] = encode_value(render_argument(value))
    return headers
