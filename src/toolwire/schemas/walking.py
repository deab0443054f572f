"""Finding one's way in a schema: the subschemas under its keywords, and what a pointer or a path leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

Json = Any
Schema = dict[str, Any]
Path = tuple[str | int, ...]

# 2026-07-28 server/tools (JSON Schema usage): how many levels a schema may have.
MAX_DEPTH: Final = 64

# Keywords with a list of subschemas that judge the same value.
SAME_VALUE_LIST: Final = ("allOf", "anyOf", "oneOf")


def direct(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (schema[key] for key in keywords if isinstance(schema.get(key), (dict, bool)))


def listed(schema: Schema, keywords: Iterable[str]) -> Iterator[Json]:
    return (part for key in keywords if isinstance(schema.get(key), list) for part in schema[key])


def mapped(schema: Schema, keywords: Iterable[str]) -> Iterator[tuple[str, Json]]:
    return (
        (name, part)
        for key in keywords
        if isinstance(schema.get(key), dict)
        for name, part in schema[key].items()
        if isinstance(part, (dict, bool))
    )


def at_pointer(document: Json, pointer: str) -> Json | None:
    """Follow a JSON pointer (`/$defs/Row`); None where it leads to nothing."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def at_reference(root: Json, reference: str) -> Json | None:
    """Follow a `$ref` within the document (`#/$defs/Row`); None where it leads to nothing."""
    # Imported here: most schemas of a server have no reference, and the module costs 0.3 MiB.
    from urllib.parse import unquote

    return at_pointer(root, unquote(reference[1:]))


def description_of(schema: Json) -> str:
    """Read the text of a schema, which stands in its first choice where nothing may stand beside the choices."""
    if not isinstance(schema, dict):
        return ""
    candidates = (schema, *listed(schema, ("anyOf", "oneOf")))
    texts = (each.get("description") for each in candidates if isinstance(each, dict))
    return next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")


def parts_in(data: bytes) -> int:
    """Count, at the speed of C, how many values a JSON text has at most."""
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{") + (len(data) >> 6)
