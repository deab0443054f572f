"""Read values of the wrong type, as models send them, as what was meant."""

from __future__ import annotations

from typing import Final

import msgspec

from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas.effort import measure
from toolwire.schemas.engine import MAX_EXPLAINED, Validator
from toolwire.schemas.faults import Fault, has_type
from toolwire.schemas.walking import Json, Path, Schema, at_reference, listed
from toolwire.schemas.wording import Problem

_NO_READING: Final = object()
# JSON in a string may hold a number in a string.
_ROUNDS: Final = 4
_WRONG_TYPE: Final = ("type", "enum", "const", "anyOf", "oneOf")
# How many subschemas are looked at to find out what one text may stand for.
_LOOKS: Final = 50


def understood(instance: Json, validator: Validator) -> Json:
    """Read `"3"`, `3.0` and JSON in a string as what the schema asks for.

    Only parts that fail as sent are touched, and never where a string is among the things expected. A value that is too
    large to be explained is left as it is.
    """
    return reread(instance, validator)[0]


def reread(
    instance: Json, validator: Validator, text: bytes | None = None, *, is_refused: bool = False
) -> tuple[Json, list[Problem]]:
    """Convert a value to what the schema asks for, and return the remaining problems.

    `text` is the JSON of the value, where that is at hand. `is_refused` says that the value is known not to fit.
    """
    try:
        if measure(instance, MAX_EXPLAINED).parts > MAX_EXPLAINED:
            return instance, validator.check(instance, text, is_refused=is_refused)
        for _ in range(_ROUNDS):
            if validator.fits(instance):
                return validator.whole(instance), []
            faults = validator.faults(instance)
            if faults is None:
                break
            root = validator.schema
            readings = {fault.path: found for fault in faults if (found := _reading(fault, root)) is not _NO_READING}
            if not readings:
                return validator.whole(instance), validator.explained(faults)
            instance = _with(instance, readings)
    except (TooManySteps, RecursionError, ValueError, TypeError):
        pass
    return instance, validator.check(instance)


def _reading(fault: Fault, root: Schema) -> Json:
    value = fault.value
    if fault.keyword not in _WRONG_TYPE or not isinstance(value, str):
        return _NO_READING
    look = _Look(root)
    if look.takes_string(fault.schema):
        return _NO_READING
    text = value.strip()
    try:
        reading = msgspec.json.decode(text.lower() if text[:6].casefold() in ("true", "false") else text)
    except (msgspec.DecodeError, RecursionError):
        return _NO_READING
    return reading if _Look(root).takes(fault.schema, reading) else _NO_READING


class _Look:
    """A look at what a schema takes, through its references and choices, of bounded length."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._steps = Steps(_LOOKS)

    def takes_string(self, schema: Json) -> bool:
        """Return whether some string could fit."""
        self._steps.spend()
        if not isinstance(schema, dict):
            return True
        if (target := _target(schema, self._root)) is not None:
            return self.takes_string(target)
        if "const" in schema:
            return isinstance(schema["const"], str)
        if isinstance(values := schema.get("enum"), list):
            return any(isinstance(value, str) for value in values)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(keyword), list):
                return any(self.takes_string(choice) for choice in choices)
        return has_type("", schema.get("type"))

    def takes(self, schema: Json, value: Json) -> bool:
        """Return whether a value has the type, or an allowed value, of a schema."""
        self._steps.spend()
        if not isinstance(schema, dict):
            return False
        if (target := _target(schema, self._root)) is not None:
            return self.takes(target, value)
        if "const" in schema:
            return bool(schema["const"] == value)
        if isinstance(values := schema.get("enum"), list):
            return value in values
        if choices := list(listed(schema, ("anyOf", "oneOf"))):
            return any(self.takes(choice, value) for choice in choices)
        return "type" in schema and has_type(value, schema["type"])


def _target(schema: Schema, root: Schema) -> Json | None:
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        return at_reference(root, reference)
    return None


def _with(instance: Json, readings: dict[Path, Json]) -> Json:
    """Copy a value with replacements at some paths.

    Each object and array on the way is copied once.
    """
    if () in readings:
        return readings[()]
    copies: dict[Path, Json] = {(): _copied(instance)}
    for path, reading in readings.items():
        here = copies[()]
        for length, step in enumerate(path[:-1], 1):
            place = path[:length]
            if place not in copies:
                copies[place] = here[step] = _copied(here[step])
            here = copies[place]
        here[path[-1]] = reading
    return copies[()]


def _copied(value: Json) -> Json:
    return dict(value) if isinstance(value, dict) else list(value)
