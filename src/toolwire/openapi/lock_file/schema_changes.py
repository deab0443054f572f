"""The difference between two schemas of the same input: is more accepted now, or less?

The question has no exact answer for every pair of schemas. A difference that this module does not understand counts as
`narrowed`, so that a change which breaks callers is never called harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.protocol.tool_changes import is_same_json
from toolwire.schemas.walking import at_reference, required_names
from toolwire.util.json_pointer import escape_token
from toolwire.util.numbers import is_number

#: How many pairs of subschemas are compared. Beyond it, the rest counts as narrowed if it differs at all.
MAX_PAIRS: Final = 20_000
_MAX_DEPTH: Final = 64

# Keywords that decide nothing about a value. People and models read them.
_TEXTS: Final = ("title", "description", "examples", "default", "$comment")
_IGNORED: Final = frozenset(
    {*_TEXTS, "$schema", "$defs", "definitions", "$id", "$anchor", "deprecated", "readOnly", "writeOnly", "example"}
)
# Keywords with a number: a larger one accepts less, or a smaller one does.
_LOWER_BOUNDS: Final = frozenset(
    {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
)
_UPPER_BOUNDS: Final = frozenset(
    {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}
)
_CHOICES: Final = frozenset({"anyOf", "oneOf"})
_ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string"})
_HANDLED: Final = frozenset(
    {"type", "enum", "const", "required", "properties", "additionalProperties", "items", "$ref", "allOf"}
)


class SchemaChanges(Struct):
    """The JSON Pointers at which a schema accepts less, or more, than before."""

    narrowed: list[str]
    widened: list[str]


def compare_schemas(before: Any, after: Any) -> SchemaChanges:
    """Compare two schemas of one input."""
    comparison = _Comparison(before, after)
    comparison.compare(before, after, "", 0)
    return SchemaChanges(sorted(set(comparison.narrowed)), sorted(set(comparison.widened)))


def changed_texts(before: Any, after: Any) -> list[str]:
    """Return where a text that a model reads was added, removed or changed."""
    old, new = dict(_texts(before, "")), dict(_texts(after, ""))
    differing = {place for place in old.keys() & new.keys() if not is_same_json(old[place], new[place])}
    return sorted(differing | (old.keys() ^ new.keys()))


def changed_places(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Yield every place at which two JSON values differ, whatever the difference means."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            inner = f"{place}/{escape_token(key)}"
            if key in before and key in after:
                yield from changed_places(before[key], after[key], inner)
            else:
                yield inner
    elif not is_same_json(before, after):
        yield place


def _texts(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the texts of a schema.

    Every member counts: models read a text in an unusual place, too.
    """
    if isinstance(schema, dict):
        for key, value in schema.items():
            inner = f"{place}/{escape_token(key)}"
            if key in _TEXTS and not isinstance(value, dict):
                yield inner, value
            else:
                yield from _texts(value, inner)
    elif isinstance(schema, list):
        for at, value in enumerate(schema):
            yield from _texts(value, f"{place}/{at}")


class _Comparison:
    def __init__(self, before: Any, after: Any) -> None:
        self._roots = before, after
        self._same_definitions = is_same_json(_definitions(before), _definitions(after))
        self._known: set[tuple[str, str]] = set()
        self._left = MAX_PAIRS
        self.narrowed: list[str] = []
        self.widened: list[str] = []

    def compare(self, before: Any, after: Any, place: str, depth: int) -> None:
        if self._same_definitions and is_same_json(before, after):
            return
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            self._lost(place)
            return
        old, new = _as_object(before), _as_object(after)
        if "$ref" in old or "$ref" in new:
            pair = (str(old.get("$ref", "")), str(new.get("$ref", "")))
            if all(pair) and pair in self._known:
                return
            self._known.add(pair)
            was, now = self._resolved(old, 0), self._resolved(new, 1)
            if was is None or now is None:
                self._lost(place)
                return
            old, new = was, now
        self._keywords(old, new, place, depth)

    def _resolved(self, schema: dict[str, Any], side: int) -> dict[str, Any] | None:
        """Return the target of a reference. Keywords beside the reference demand more, so both hold."""
        seen = 0
        while isinstance(reference := schema.get("$ref"), str):
            target = at_reference(self._roots[side], reference) if reference.startswith("#") else None
            seen += 1
            if not isinstance(target, dict | bool) or seen > _MAX_DEPTH:
                return None
            beside = {key: value for key, value in schema.items() if key != "$ref" and key not in _IGNORED}
            schema = {**_as_object(target), "allOf": [beside]} if beside else _as_object(target)
        return schema

    def _keywords(self, old: dict[str, Any], new: dict[str, Any], place: str, depth: int) -> None:
        self._types(old, new, place)
        self._values(old, new, place)
        self._members(old, new, place, depth)
        self._parts(old.get("items", True), new.get("items", True), f"{place}/items", depth)
        self._conjunction(old.get("allOf", []), new.get("allOf", []), f"{place}/allOf", depth)
        for key in sorted((old.keys() | new.keys()) - _IGNORED - _HANDLED):
            where = f"{place}/{escape_token(key)}"
            if key in _LOWER_BOUNDS or key in _UPPER_BOUNDS:
                self._bound(old.get(key), new.get(key), where, is_lower=key in _LOWER_BOUNDS)
            elif key in _CHOICES:
                self._choice(old.get(key), new.get(key), where, depth)
            elif key.startswith("x-") or is_same_json(old.get(key), new.get(key)):
                continue
            elif key not in new:
                self.widened.append(where)
            else:
                self._lost(where)

    def _types(self, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _types_of(old), _types_of(new)
        if not before <= after:
            self.narrowed.append(f"{place}/type")
        if not after <= before:
            self.widened.append(f"{place}/type")

    def _values(self, old: dict[str, Any], new: dict[str, Any], place: str) -> None:
        before, after = _enum_of(old), _enum_of(new)
        if after is not None and (before is None or not before <= after):
            self.narrowed.append(f"{place}/enum")
        if before is not None and (after is None or not after <= before):
            self.widened.append(f"{place}/enum")

    def _members(self, old: dict[str, Any], new: dict[str, Any], place: str, depth: int) -> None:
        before, after = _mapping(old, "properties"), _mapping(new, "properties")
        needed, needs = set(required_names(old)), set(required_names(new))
        self.narrowed += (f"{place}/required/{escape_token(name)}" for name in needs - needed)
        self.widened += (f"{place}/required/{escape_token(name)}" for name in needed - needs)
        for name in sorted(before.keys() | after.keys()):
            where = f"{place}/properties/{escape_token(name)}"
            if name not in after:
                # Also where other members are accepted: a sender finds that it is not read any more.
                self.narrowed.append(where)
            elif name not in before:
                self.widened.append(where)
            else:
                self._parts(before[name], after[name], where, depth)
        self._parts(
            old.get("additionalProperties", True),
            new.get("additionalProperties", True),
            f"{place}/additionalProperties",
            depth,
        )

    def _parts(self, before: Any, after: Any, place: str, depth: int) -> None:
        if before is False and after is not False:
            self.widened.append(place)
        elif after is False and before is not False:
            self.narrowed.append(place)
        elif before is not True or after is not True:
            self.compare(before, after, place, depth + 1)

    def _bound(self, before: Any, after: Any, place: str, *, is_lower: bool) -> None:
        if is_same_json(before, after):
            return
        if before is None or after is None:
            (self.narrowed if before is None else self.widened).append(place)
        elif not is_number(before) or not is_number(after):
            self._lost(place)
        else:
            (self.narrowed if (after > before) is is_lower else self.widened).append(place)

    def _choice(self, before: Any, after: Any, place: str, depth: int) -> None:
        if not isinstance(before, list) or not isinstance(after, list):
            (self.widened if after is None else self.narrowed).append(place)
            return
        olds, news = {_text(each): each for each in before}, {_text(each): each for each in after}
        pairs = [(olds[text], news[text]) for text in news if text in olds]
        gone, come = (
            [olds[text] for text in olds if text not in news],
            [news[text] for text in news if text not in olds],
        )
        if len(gone) == len(come):
            pairs += zip(gone, come, strict=True)
        else:
            self.narrowed += [place] if gone else []
            self.widened += [place] if come else []
        for at, (old, new) in enumerate(pairs):
            self.compare(old, new, f"{place}/{at}", depth + 1)

    def _conjunction(self, before: Any, after: Any, place: str, depth: int) -> None:
        if not isinstance(before, list) or not isinstance(after, list):
            self._lost(place)
            return
        if len(before) == len(after):
            for at, (old, new) in enumerate(zip(before, after, strict=True)):
                self.compare(old, new, f"{place}/{at}", depth + 1)
            return
        olds, news = {_text(each) for each in before}, {_text(each) for each in after}
        self.narrowed += [place] if news - olds else []
        self.widened += [place] if olds - news else []

    def _lost(self, place: str) -> None:
        self.narrowed.append(place)


def _as_object(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    return {} if schema is True else {"not": {}}


def _types_of(schema: dict[str, Any]) -> frozenset[str]:
    given = schema.get("type")
    if given is None:
        return _ALL_TYPES | {"integer"}
    found = frozenset([given] if isinstance(given, str) else (each for each in given if isinstance(each, str)))
    return found | {"integer"} if "number" in found else found


def _enum_of(schema: dict[str, Any]) -> frozenset[bytes] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return None
    return frozenset(map(_text, values))


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _mapping(schema: dict[str, Any], key: str) -> dict[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, dict) else {}


def _definitions(schema: Any) -> Any:
    return schema.get("$defs") if isinstance(schema, dict) else None
