"""Schemas that are taken: their dialects, their limits, and their references.

Nothing outside the document is ever fetched: a reference that leaves it is refused here, before the engine sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.schemas.patterns import MAX_PATTERNS, repetitions, share
from toolwire.schemas.walking import (
    MAX_CHAIN,
    MAX_DEPTH,
    SAME_VALUE_LIST,
    Json,
    Schema,
    at_pointer,
    direct,
    listed,
    mapped,
)
from toolwire.schemas.wording import show

# 2026-07-28 server/tools (JSON Schema usage): bound depth, subschema count and validation time.
MAX_SUBSCHEMAS: Final = 5_000
MAX_BYTES: Final = 1 << 20
# Every reference is joined with the `$id` around it, and a `$dynamicRef` leads to every anchor of its name.
MAX_ID: Final = 2_048
MAX_LINKS: Final = 4 * MAX_SUBSCHEMAS

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: Final = {
    DIALECT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}


class SchemaError(ToolwireError, ValueError):
    """A schema that cannot be used.

    It is malformed, too large, of an unknown dialect, or refers to something outside itself.
    """


def dialect_of(schema: Schema, what: str) -> str:
    """Return the name of the validator class for the dialect of a schema."""
    # 2025-11-25 basic, 2026-07-28 server/tools: no `$schema` means 2020-12; an unsupported one is named in the error.
    declared = schema.get("$schema", DIALECT)
    name = _DIALECTS.get(declared.rstrip("#")) if isinstance(declared, str) else None
    if name is None:
        raise SchemaError(
            f"{what} uses the JSON Schema dialect {show(declared)}, which is not supported: "
            f"use {DIALECT!r} or leave $schema out"
        )
    return name


# ---------------------------------------------------------------------------------------------------------------------
# The document: its subschemas, and what refers to what
# ---------------------------------------------------------------------------------------------------------------------

_SAME_VALUE_ONE: Final = ("not", "if", "then", "else")
_SAME_VALUE_MAP: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_UNUSED_MAP: Final = ("$defs", "definitions")


class SchemaNode:
    """One subschema, with those that judge the same value and those that judge its members."""

    __slots__ = (
        "any_item",
        "any_member",
        "atoms",
        "extreme",
        "item",
        "member",
        "refs",
        "same",
        "tagged",
        "weight",
        "whole",
    )

    def __init__(self, schema: Schema) -> None:
        self.same: list[SchemaNode] = []
        self.refs: list[SchemaNode] = []
        """What the references of this subschema lead to. These judge the same value too."""
        self.member: dict[str, SchemaNode] = {}
        self.any_member: list[SchemaNode] = []
        self.item: list[SchemaNode] = []
        self.any_item: list[SchemaNode] = []
        self.tagged: bool = "discriminator" in schema
        """Whether one member of a value says which alternative is meant, to a reader that knows this keyword."""
        self.weight: int = 1
        """How many steps it takes by itself to judge a value; a step is about 30 ns of the engine."""
        self.whole: int = 1 if schema.get("uniqueItems") is True else 0
        """How often it looks at a value as a whole, with all that is in it."""
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if isinstance(values, list):
                self.weight += len(values) // 16
                self.whole += sum(isinstance(value, (dict, list)) for value in values)
        # The engine divides exactly, as fractions: 3 to 5 µs for a number, and 100 µs for very large or small ones.
        divisor = schema.get("multipleOf")
        self.extreme: bool = isinstance(divisor, (int, float))
        if isinstance(divisor, (int, float)):
            self.weight += 4_000 if is_extreme(divisor) else 150
        patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
        patterns += [name for name, _ in mapped(schema, ("patternProperties",))]
        self.atoms: int = sum(repetitions(pattern) for pattern in patterns)
        """How many characters, with their repetitions, its regular expressions are made of."""

    def judges(self) -> list[SchemaNode]:
        """All that judge the same value."""
        return [*self.same, *self.refs]

    def below(self) -> Iterator[SchemaNode]:
        """All that judge what is inside the value."""
        yield from self.member.values()
        yield from self.any_member
        yield from self.item
        yield from self.any_item


def _kinds(schema: Schema) -> list[Json]:
    kinds = schema.get("type")
    return kinds if isinstance(kinds, list) else [kinds]


def is_extreme(number: float) -> bool:
    """Return whether a number has so many digits that exact arithmetic with it is slow."""
    return number != 0 and not 1e-15 < abs(number) < 1e18


class SchemaDocument:
    """A schema document as nodes.

    Refuses a schema that is too deep, too large, endless, or refers to something outside itself.
    """

    def __init__(self, schema: Schema, what: str) -> None:
        self._what = what
        self._root = schema
        self._nodes: dict[int, SchemaNode] = {}
        self._schemas: list[Schema] = []
        self._links = 0
        self._resources: dict[str, Json] = {"": schema}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._dynamic: dict[str, list[Json]] = {}
        self._references: list[tuple[Schema, SchemaNode, str, str, str]] = []
        self.targets: dict[int, list[Json]] = {}
        """What the references of a subschema lead to, by the identity of the subschema."""
        self.root: SchemaNode = self._read(schema, "", 1)
        while self._references:
            self._link(*self._references.pop())
        self._refuse_endless()
        count = len(set(self._patterns()))
        self.pattern_bytes: int = share(count)
        """How much memory each regular expression of the document may take."""
        self.weight: int = 1_000 * len(self._nodes) + 2 * count * self.pattern_bytes
        """How much memory all of it may take when it is compiled, about."""
        self.wants_integers: bool = any("integer" in _kinds(schema) for schema in self._schemas)
        """Whether it asks for an integer anywhere."""
        if not self.pattern_bytes:
            raise SchemaError(f"{what} has more than {MAX_PATTERNS} regular expressions")

    @property
    def nodes(self) -> Iterable[SchemaNode]:
        return self._nodes.values()

    def _patterns(self) -> Iterator[str]:
        for schema in self._schemas:
            if isinstance(schema.get("pattern"), str):
                yield schema["pattern"]
            yield from (name for name, _ in mapped(schema, ("patternProperties",)))

    def _read(self, schema: Json, base: str, depth: int) -> SchemaNode:
        known = self._nodes.get(id(schema))
        if known is not None and isinstance(schema, dict):
            return known
        if depth > MAX_DEPTH:
            raise SchemaError(f"{self._what} is nested more than {MAX_DEPTH} levels deep")
        if not isinstance(schema, dict):
            return SchemaNode({})
        node = self._nodes[id(schema)] = SchemaNode(schema)
        self._schemas.append(schema)
        if len(self._nodes) > MAX_SUBSCHEMAS:
            raise SchemaError(f"{self._what} has more than {MAX_SUBSCHEMAS} subschemas")
        base = self._register(schema, base)
        below = depth + 1
        node.same += [self._read(part, base, below) for part in direct(schema, _SAME_VALUE_ONE)]
        node.same += [self._read(part, base, below) for part in listed(schema, SAME_VALUE_LIST)]
        node.same += [self._read(part, base, below) for _, part in mapped(schema, _SAME_VALUE_MAP)]
        node.any_member += [self._read(part, base, below) for part in direct(schema, _ANY_MEMBER)]
        node.any_member += [self._read(part, base, below) for _, part in mapped(schema, ("patternProperties",))]
        node.member = {name: self._read(part, base, below) for name, part in mapped(schema, ("properties",))}
        node.any_item += [self._read(part, base, below) for part in direct(schema, _ANY_ITEM)]
        node.item += [self._read(part, base, below) for part in listed(schema, ("prefixItems", "items"))]
        for _, part in mapped(schema, _UNUSED_MAP):
            self._read(part, base, below)
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                self._references.append((schema, node, keyword, reference, base))
        return node

    def _register(self, schema: Schema, base: str) -> str:
        identifier = schema.get("$id")
        if isinstance(identifier, str):
            if len(identifier) > MAX_ID or len(base) > MAX_ID:
                raise SchemaError(f"{self._what} has an $id of more than {MAX_ID} characters")
            from urllib.parse import urldefrag, urljoin

            base = urldefrag(urljoin(base, identifier)).url
            self._resources[base] = schema
        if "$schema" in schema:
            dialect_of(schema, self._what)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                self._anchors[base, anchor] = schema
        if isinstance(anchor := schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(anchor, []).append(schema)
        return base

    def _link(self, schema: Schema, node: SchemaNode, keyword: str, reference: str, base: str) -> None:
        from urllib.parse import unquote, urldefrag, urljoin

        location, fragment = urldefrag(urljoin(base, reference)) if reference else (base, "")
        targets = list(self._dynamic.get(fragment, ())) if keyword == "$dynamicRef" else []
        target = self._target(location, unquote(fragment))
        if target is None and not targets:
            raise SchemaError(
                f"{self._what} refers to {show(reference)}, which is not in the schema; "
                "nothing outside the document is fetched: put it under $defs"
            )
        if target is not None and not any(target is other for other in targets):
            targets.append(target)
        self._links += len(targets)
        if self._links > MAX_LINKS:
            raise SchemaError(f"{self._what} has more than {MAX_LINKS} references")
        self.targets.setdefault(id(schema), []).extend(targets)
        node.refs += [self._read(each, location, 2) for each in targets]

    def _target(self, location: str, fragment: str) -> Json | None:
        if location not in self._resources:
            return None
        target = self._resources[location]
        if not fragment:
            return target
        if not fragment.startswith("/"):
            return self._anchors.get((location, fragment))
        return at_pointer(target, fragment)

    def _refuse_endless(self) -> None:
        """Refuse a schema that applies itself to the same value: judging it never ends."""
        longest: dict[int, int] = {}
        for start in list(self._nodes.values()):
            chain: dict[int, Iterator[SchemaNode]] = {} if id(start) in longest else {id(start): iter(start.judges())}
            lengths = [1]
            while chain:
                here = next(reversed(chain))
                following = next(chain[here], None)
                if following is None:
                    del chain[here]
                    longest[here] = lengths.pop()
                    if lengths:
                        lengths[-1] = max(lengths[-1], 1 + longest[here])
                elif id(following) in chain:
                    raise SchemaError(f"{self._what} refers to itself without end")
                elif id(following) in longest:
                    lengths[-1] = max(lengths[-1], 1 + longest[id(following)])
                else:
                    chain[id(following)] = iter(following.judges())
                    lengths.append(1)
        if max(longest.values(), default=0) > MAX_CHAIN:
            raise SchemaError(f"{self._what} has a chain of more than {MAX_CHAIN} references")
