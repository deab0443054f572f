"""`KEY=VALUE` pairs, read as what a tool's schema asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolwire import schemas
from toolwire.cli.errors import UsageError
from toolwire.schemas.walking import at_pointer

Schema = dict[str, Any]


def arguments(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """The arguments that `KEY=VALUE` (text, typed by the schema) and `KEY:=JSON` mean.

    A key that is given several times is an array, and `address.city=Oslo` a member of an object. `{...}` is arguments
    as JSON, as logs and other programs show them.
    """
    found: dict[str, Any] = {}
    for word in words:
        if word.lstrip().startswith("{"):
            found |= _object(word)
            continue
        key, separator, text = word.partition("=")
        if not separator or not key.strip(":"):
            raise UsageError(f"{word!r} is neither KEY=VALUE nor KEY:=JSON")
        if key.endswith(":"):
            _put(found, key[:-1], _json(word, text), schema)
        else:
            _put(found, key, text, schema)
    return found


def checker(schema: Schema) -> schemas.Validator | None:
    """What checks arguments here, before they are sent; None for a schema that cannot be used."""
    try:
        return schemas.compile(schema, what="the input schema")
    except schemas.SchemaError:
        return None


def understood(found: dict[str, Any], validator: schemas.Validator | None) -> dict[str, Any]:
    """The arguments with text read as the type that the schema asks for, never where it asks for text."""
    if validator is None:
        return found
    wrapped = {name: _in_array(value, _member(validator.schema, (name,))) for name, value in found.items()}
    meant: dict[str, Any] = schemas.understood(wrapped, validator)
    return meant


def _json(word: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"what follows := in {word!r} is not JSON: {error}") from None


def _object(word: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(word, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{word!r} is not JSON: {error}") from None


def _put(found: dict[str, Any], key: str, value: Any, schema: Schema) -> None:
    """Set a member, below others where the key has dots and the tool has no argument of that very name."""
    properties = schema.get("properties")
    whole = isinstance(properties, dict) and key in properties
    *path, last = [key] if whole else key.split(".")
    for step in path:
        found = found.setdefault(step, {})
        if not isinstance(found, dict):
            raise UsageError(f"{key!r} gives a member to {step!r}, which was given a value before")
    if last not in found:
        found[last] = value
    elif isinstance(found[last], list):
        found[last].append(value)
    else:
        found[last] = [found[last], value]


def _member(schema: Any, path: Sequence[str]) -> Any:
    for step in path:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(step) if isinstance(properties, dict) else None
    return schema


def _in_array(value: Any, schema: Any) -> Any:
    """A single text where an array is wanted is its only item, unless it is the array written as JSON."""
    if isinstance(value, str) and isinstance(schema, dict) and schema.get("type") == "array":
        return value if value.lstrip().startswith("[") else [value]
    return value


def required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def resolved(schema: Any, root: Schema, depth: int = 0) -> Schema:
    """A member's schema with a local `$ref` followed, for showing it."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str) and reference.startswith("#/") and depth < 8:
        return resolved(at_pointer(root, reference[1:]), root, depth + 1)
    return schema if isinstance(schema, dict) else {}
