"""`KEY=VALUE` pairs of the command line, converted by a JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolwire import schemas
from toolwire.cli.errors import UsageError
from toolwire.schemas.walking import at_pointer, required_names
from toolwire.schemas.wording import nearest

Schema = dict[str, Any]


def arguments(words: Sequence[str], schema: Schema | None = None) -> dict[str, Any]:
    """Read `KEY=VALUE` (text, typed later by the schema) and `KEY:=JSON` into arguments.

    A key that is given several times becomes an array. `address.city=Oslo` becomes a member of an object. `{...}` is
    several arguments as JSON, in the form that logs and other programs show. Without a schema, a dot is part of the
    key.
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
    """Compile the schema that checks arguments before sending; None if unusable."""
    try:
        return schemas.compile(schema, what="the input schema")
    except schemas.SchemaError:
        return None


def understood(found: dict[str, Any], validator: schemas.Validator | None) -> dict[str, Any]:
    """Convert texts to the types that the schema asks for."""
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


def _put(found: dict[str, Any], key: str, value: Any, schema: Schema | None) -> None:
    """Set a member.

    A key with dots is a path, unless the schema has a property of that very name.
    """
    properties = {} if schema is None else schema.get("properties")
    whole = schema is None or (isinstance(properties, dict) and key in properties)
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
    """Wrap a single text in a list where the schema wants an array.

    A text that is an array in JSON stays as it is.
    """
    if isinstance(value, str) and isinstance(schema, dict) and schema.get("type") == "array":
        return value if value.lstrip().startswith("[") else [value]
    return value


def check_spelling(given: dict[str, Any], schema: Schema) -> None:
    """Raise `UsageError` for an argument that is almost a missing one.

    That is checked before the user is asked for the missing one.
    """
    members = schema.get("properties")
    strange = [name for name in given if name not in members] if isinstance(members, dict) else []
    for name in required_names(schema):
        close = None if name in given else nearest(name, strange)
        if close is not None:
            raise UsageError(f"there is no argument {close!r}; did you mean {name!r}?")


def resolved(schema: Any, root: Schema, depth: int = 0) -> Schema:
    """Follow a local `$ref` of a member's schema, to show the member."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str) and reference.startswith("#/") and depth < 8:
        return resolved(at_pointer(root, reference[1:]), root, depth + 1)
    return schema if isinstance(schema, dict) else {}
