"""Add the needed definitions to a schema, inline them, or cut them at a depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from toolwire.openapi.definition.schema_merging import merged
from toolwire.schemas.walking import Json, Schema, direct, listed, mapped, subschemas, with_subschemas

PREFIX: Final = "#/$defs/"
CUT: Final = "Any value: the schema of this part is left out."
_ENDLESS: Final = "Any value: the schema of this part refers to itself without end."

#: Bounds of a schema, below those of the engine (`schemas.bounds`), which refuses what is larger.
MAX_SUBSCHEMAS: Final = 4_000
MAX_BYTES: Final = 512 * 1024
MAX_NESTING: Final = 48
# Subschemas that a definition has at most to be written out wherever it is used.
_SMALL: Final = 1

_SAME_VALUE: Final = ("not", "if", "then", "else")

Lookup = Callable[[str], "SchemaDefinition"]


class SchemaDefinition(Struct, frozen=True):
    """A schema under `$defs`, measured once."""

    schema: Schema
    references: tuple[str, ...]
    """The definitions that it refers to, each as often as it does."""
    same_value: tuple[str, ...]
    """Those of them that judge the same value, and not a part of it."""
    subschemas: int
    nesting: int
    bytes: int
    patterns: frozenset[str] = frozenset()
    """The regular expressions in it."""
    warnings: tuple[str, ...] = ()


class InliningBudget(Struct, frozen=True):
    """Bounds of a schema with its definitions."""

    subschemas: int = MAX_SUBSCHEMAS
    bytes: int = MAX_BYTES


def measured(schema: Schema, size: int, warnings: tuple[str, ...] = ()) -> SchemaDefinition:
    """Measure a schema of so many bytes."""
    found: list[str] = []
    patterns: set[str] = set()
    count = deepest = 0
    waiting: list[tuple[Json, int]] = [(schema, 1)]
    while waiting:
        part, nesting = waiting.pop()
        count += 1
        deepest = max(deepest, nesting)
        if isinstance(part, dict):
            if (name := target_of(part)) is not None:
                found.append(name)
            if "pattern" in part:
                patterns.add(part["pattern"])
            if "patternProperties" in part:
                patterns.update(part["patternProperties"])
            waiting += [(below, nesting + 1) for below in subschemas(part)]
    return SchemaDefinition(
        schema, tuple(found), tuple(_same_value(schema)), count, deepest, size, frozenset(patterns), warnings
    )


def target_of(schema: Schema) -> str | None:
    """Return the name of the definition that a schema refers to."""
    reference = schema.get("$ref")
    return reference[len(PREFIX) :] if isinstance(reference, str) and reference.startswith(PREFIX) else None


def in_place(reference: Schema, content: Schema) -> Schema:
    """Return the content of a definition together with the members beside the reference to it."""
    around = {key: value for key, value in reference.items() if key != "$ref"}
    if not around:
        return content
    both = merged(around, content)
    return {"allOf": [content, around]} if both is None else both


def _same_value(schema: Json) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if (name := target_of(schema)) is not None:
        yield name
    for part in (*direct(schema, _SAME_VALUE), *listed(schema, ("allOf", "anyOf", "oneOf"))):
        yield from _same_value(part)
    for _, part in mapped(schema, ("dependentSchemas",)):
        yield from _same_value(part)


def without_patterns(definition: SchemaDefinition, patterns: Collection[str]) -> SchemaDefinition:
    """Return a definition without some of its regular expressions."""
    left = definition.patterns.difference(patterns)
    if len(left) == len(definition.patterns):
        return definition
    return msgspec.structs.replace(definition, schema=_without(definition.schema, patterns), patterns=left)


def _without(schema: Json, patterns: Collection[str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") in patterns:
        schema = {key: value for key, value in schema.items() if key != "pattern"}
    if any(name in patterns for name in schema.get("patternProperties", ())):
        kept = {name: part for name, part in schema["patternProperties"].items() if name not in patterns}
        schema = {**schema, "patternProperties": kept}
    return with_subschemas(schema, lambda part: _without(part, patterns))


# -- Closing -----------------------------------------------------------------------------------------------------------


def needed(root: SchemaDefinition, lookup: Lookup, budget: InliningBudget) -> dict[str, SchemaDefinition]:
    """Collect the definitions that a schema needs, those near the root first.

    Those that do not fit into the budget, and those that judge a value by themselves again without end, are replaced
    by one that takes any value. Every reference leads somewhere, and definitions that several tools share stay shared.
    """
    found: dict[str, SchemaDefinition] = {}
    if not root.references:
        return found
    endless = _endless(root, lookup)
    count, size = root.subschemas, root.bytes
    waiting = list(dict.fromkeys(root.references))
    for name in waiting:
        if name in found:
            continue
        definition = lookup(name) if name not in endless else any_value(_ENDLESS)
        if count + definition.subschemas > budget.subschemas or size + definition.bytes > budget.bytes:
            definition = any_value(CUT)
        count += definition.subschemas
        size += definition.bytes
        found[name] = definition
        waiting.extend(definition.references)
    return found


def any_value(note: str) -> SchemaDefinition:
    """Return a definition that takes any value, and says why."""
    return SchemaDefinition({"description": note}, (), (), 1, 1, len(note) + 20)


def _endless(root: SchemaDefinition, lookup: Lookup) -> set[str]:
    """Find definitions that apply themselves to the same value: judging it would never end."""
    endless: set[str] = set()
    done: set[str] = set()
    seen = set(root.references)
    starts = list(seen)
    for start in starts:
        path: dict[str, Iterator[str]] = {}
        if start not in done:
            path[start] = iter(lookup(start).same_value)
        while path:
            here = next(reversed(path))
            following = next(path[here], None)
            if following is None:
                del path[here]
                done.add(here)
            elif following in path:
                endless.add(following)
            elif following not in done:
                path[following] = iter(lookup(following).same_value)
        new = [name for name in lookup(start).references if name not in seen]
        seen.update(new)
        starts.extend(new)
    return endless


def closed(root: SchemaDefinition, definitions: dict[str, SchemaDefinition]) -> Schema:
    """Return a schema with all its definitions."""
    if not definitions:
        return root.schema
    kept = _reached(root.references, definitions)
    return {**root.schema, "$defs": {name: definitions[name].schema for name in sorted(kept)}}


def _reached(names: tuple[str, ...], definitions: dict[str, SchemaDefinition]) -> set[str]:
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += definitions[name].references
    return reached


# -- Writing definitions where they are used ---------------------------------------------------------------------------


def folded(root: SchemaDefinition, definitions: dict[str, SchemaDefinition]) -> Schema:
    """Inline definitions that are small or used once.

    Those that are shared or recursive stay.
    """
    uses = Counter(root.references)
    for definition in definitions.values():
        uses.update(definition.references)
    recursive = _recursive(definitions)
    kept = {
        name
        for name, definition in definitions.items()
        if name in recursive or (uses[name] > 1 and definition.subschemas > _SMALL)
    }

    def written(part: Json, nesting: int) -> Json:
        if not isinstance(part, dict):
            return part
        name = target_of(part)
        if name is not None and name not in kept:
            return written(in_place(part, definitions[name].schema), nesting)
        if nesting >= MAX_NESTING:
            return {"description": CUT}
        return with_subschemas(part, lambda below: written(below, nesting + 1))

    bodies = {name: measured(written(definitions[name].schema, 2), 0) for name in kept}
    return closed(measured(written(root.schema, 1), 0), bodies)


def _recursive(definitions: dict[str, SchemaDefinition]) -> set[str]:
    """Find the definitions that lead back to themselves: the strongly connected components (Tarjan's algorithm)."""
    recursive: set[str] = set()
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    component: dict[str, None] = {}
    for start in definitions:
        path: list[tuple[str, Iterator[str]]] = []
        following: str | None = None if start in order else start
        while path or following is not None:
            if following is not None:
                order[following] = lowest[following] = len(order)
                component[following] = None
                path.append((following, iter(definitions[following].references)))
            here, references = path[-1]
            following = None
            for name in references:
                if name not in order:
                    following = name
                    break
                if name in component:
                    lowest[here] = min(lowest[here], order[name])
                    if name == here:
                        recursive.add(here)
            if following is not None:
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[here])
            if lowest[here] == order[here]:
                members: list[str] = []
                while not members or members[-1] != here:
                    members.append(component.popitem()[0])
                if len(members) > 1:
                    recursive.update(members)
    return recursive


# -- Cutting at a depth ------------------------------------------------------------------------------------------------


def unfolded(root: SchemaDefinition, definitions: dict[str, SchemaDefinition], depth: int) -> Schema:
    """Inline every definition, down to a depth, for clients that reject `$ref`.

    The parts below the depth take any value of their type, and say so.
    """
    for levels in range(depth, 0, -1):
        left = [MAX_SUBSCHEMAS]
        schema: Schema = _written_out(root.schema, definitions, levels, left)
        if left[0] >= 0:
            return schema
    return {"type": "object", "description": CUT} if root.schema.get("type") == "object" else {"description": CUT}


# Keywords whose subschemas judge the same value: they are no level.
_NO_LEVEL: Final = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"))


def _written_out(part: Json, definitions: dict[str, SchemaDefinition], levels: int, left: list[int]) -> Json:
    left[0] -= 1
    if not isinstance(part, dict) or left[0] < 0:
        return part
    part = _content(part, definitions)
    if levels < 1 and any(keyword not in _NO_LEVEL for keyword in part if _has_parts(part, keyword)):
        return _cut(part, definitions)
    result: Schema = {}
    for keyword, value in part.items():
        below = levels if keyword in _NO_LEVEL else levels - 1

        def change(each: Json, below: int = below) -> Json:
            return _written_out(each, definitions, below, left)

        result |= with_subschemas({keyword: value}, change)
    return result


def _content(part: Schema, definitions: dict[str, SchemaDefinition]) -> Schema:
    """Return a schema without a reference at its root."""
    for _ in range(len(definitions) + 1):
        name = target_of(part)
        if name is None:
            break
        part = in_place(part, definitions[name].schema)
    return part


def _cut(part: Schema, definitions: dict[str, SchemaDefinition]) -> Schema:
    """Return what is left of a schema below the depth: its type and a note.

    Of an array, the type of its items, too.
    """
    result: Schema = {"description": " ".join(text for text in (part.get("description"), CUT) if text)}
    if isinstance(kind := part.get("type"), str):
        result = {"type": kind, **result}
    if kind == "array" and isinstance(items := part.get("items"), dict):
        item_kind = _content(items, definitions).get("type")
        # OpenAI and Gemini refuse an array that does not say what its items are.
        result["items"] = {"type": item_kind} if isinstance(item_kind, str) and item_kind != "array" else {}
    return result


def _has_parts(schema: Schema, keyword: str) -> bool:
    return next(subschemas({keyword: schema[keyword]}), None) is not None
