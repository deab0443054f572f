"""Which schemas are taken, and how much work a value may cause: dialects, limits, references, effort.

Nothing outside the document is ever fetched: a reference that leaves it is refused here, before the engine sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from toolwire.protocol.errors import ToolwireError
from toolwire.schemas.walking import SAME_VALUE_LIST, Json, Schema, at_pointer, direct, listed, mapped
from toolwire.schemas.wording import show

# 2026-07-28 server/tools (JSON Schema usage): bound depth, subschema count and validation time.
MAX_DEPTH: Final = 64
MAX_SUBSCHEMAS: Final = 5_000
MAX_BYTES: Final = 1 << 20
# How many subschemas in a row may hand the same value on: the engine follows them on its stack.
MAX_CHAIN: Final = 200
MAX_INSTANCE_DEPTH: Final = 256
# How many times a subschema may be applied while one value is checked; the engine does roughly ten million a second.
MAX_EFFORT: Final = 10_000_000
# Every reported error costs the engine microseconds and memory; beyond this effort only the bad members are named.
MAX_EFFORT_WITH_DETAIL: Final = 20_000
_MAX_COUNTED: Final = 500_000

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: Final = {
    DIALECT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}


class SchemaError(ToolwireError, ValueError):
    """A schema that cannot be used: malformed, too large, of an unknown dialect, or pointing outside itself."""


def dialect_of(schema: Schema, what: str) -> str:
    """The dialect that a schema is written in, by the name of its validator class."""
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


class _Node:
    """One subschema: which others judge the same value, and which judge its members."""

    __slots__ = ("any_item", "any_member", "item", "member", "same", "weight")

    def __init__(self, weight: int) -> None:
        self.weight: int = weight
        self.same: list[_Node] = []
        self.member: dict[str, _Node] = {}
        self.any_member: list[_Node] = []
        self.item: list[_Node] = []
        self.any_item: list[_Node] = []


class Document:
    """A schema document turned into nodes; refuses what is too deep, too large, endless, or outside itself."""

    def __init__(self, schema: Schema, what: str) -> None:
        self._what = what
        self._root = schema
        self._nodes: dict[int, _Node] = {}
        self._resources: dict[str, Json] = {"": schema}
        self._anchors: dict[tuple[str, str], Json] = {}
        self._dynamic: dict[str, list[Json]] = {}
        self._references: list[tuple[_Node, str, str, str]] = []
        self.root: _Node = self._read(schema, "", 1)
        while self._references:
            self._link(*self._references.pop())
        self._refuse_endless()

    @property
    def nodes(self) -> Iterable[_Node]:
        return self._nodes.values()

    def _read(self, schema: Json, base: str, depth: int) -> _Node:
        known = self._nodes.get(id(schema))
        if known is not None and isinstance(schema, dict):
            return known
        if depth > MAX_DEPTH:
            raise SchemaError(f"{self._what} is nested more than {MAX_DEPTH} levels deep")
        if not isinstance(schema, dict):
            return _Node(1)
        values = schema.get("enum")
        node = self._nodes[id(schema)] = _Node(1 + (len(values) // 16 if isinstance(values, list) else 0))
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
                self._references.append((node, keyword, reference, base))
        return node

    def _register(self, schema: Schema, base: str) -> str:
        identifier = schema.get("$id")
        if isinstance(identifier, str):
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

    def _link(self, node: _Node, keyword: str, reference: str, base: str) -> None:
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
        node.same += [self._read(each, location, 2) for each in targets]

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
        """A schema that applies itself to the same value never ends."""
        longest: dict[int, int] = {}
        for start in list(self._nodes.values()):
            chain: dict[int, Iterator[_Node]] = {} if id(start) in longest else {id(start): iter(start.same)}
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
                    chain[id(following)] = iter(following.same)
                    lengths.append(1)
        if max(longest.values(), default=0) > MAX_CHAIN:
            raise SchemaError(f"{self._what} has a chain of more than {MAX_CHAIN} references")


# ---------------------------------------------------------------------------------------------------------------------
# The effort of checking
# ---------------------------------------------------------------------------------------------------------------------


class Effort:
    """How much work a value may cause: how often some subschema is applied to some part of the value.

    Repeating a reference multiplies work at every level, so that a short schema and a short value can keep the engine
    busy for years. Counting is cheap because each pair of subschema and part is counted once and remembered.
    """

    def __init__(self, document: Document) -> None:
        self._root = document.root
        self._most_per_part = _most_per_part(document)

    def of(self, instance: Json) -> int:
        parts = _parts(instance)
        if self._most_per_part is not None and parts * self._most_per_part <= MAX_EFFORT:
            return parts * self._most_per_part
        return self._exactly(self._root, instance, {})

    def _exactly(self, node: _Node, instance: Json, seen: dict[tuple[int, int], int]) -> int:
        key = (id(node), id(instance))
        if key in seen:
            return seen[key]
        if len(seen) > _MAX_COUNTED:
            return MAX_EFFORT + 1
        effort = node.weight
        for other in node.same:
            effort += self._exactly(other, instance, seen)
        if isinstance(instance, dict):
            for name, value in instance.items():
                if name in node.member:
                    effort += self._exactly(node.member[name], value, seen)
                for other in node.any_member:
                    effort += self._exactly(other, value, seen)
        elif isinstance(instance, list):
            for position, value in enumerate(instance):
                if position < len(node.item):
                    effort += self._exactly(node.item[position], value, seen)
                for other in node.any_item:
                    effort += self._exactly(other, value, seen)
        seen[key] = effort
        return effort


def _most_per_part(document: Document) -> int | None:
    """The most subschemas that one part of a value can meet, or None when that grows with the depth of the value."""
    nodes = list(document.nodes)
    most = 0
    here: dict[int, int] = {}
    for depth in range(min(MAX_DEPTH * 2, 2 + 50_000 // len(nodes))):
        above, here = here, {}
        for node in nodes:
            _meets(node, above, here, first=depth == 0)
        now = here[id(document.root)]
        if now > MAX_EFFORT:
            return None
        most = max(most, now)
        if not any(here.values()) or here == above:
            return most
    return None if here[id(document.root)] > 64 else most


def _meets(node: _Node, above: dict[int, int], here: dict[int, int], *, first: bool) -> int:
    if id(node) in here:
        return here[id(node)]
    if first:
        total = node.weight
    else:
        members = max((above.get(id(each), 1) for each in node.member.values()), default=0)
        members += sum(above.get(id(each), 1) for each in node.any_member)
        items = max((above.get(id(each), 1) for each in node.item), default=0)
        items += sum(above.get(id(each), 1) for each in node.any_item)
        total = max(members, items)
    total += sum(_meets(other, above, here, first=first) for other in node.same)
    here[id(node)] = min(total, MAX_EFFORT + 1)
    return here[id(node)]


def _parts(instance: Json) -> int:
    """How many values a value is made of; long strings count for more."""
    count = depth = 0
    level = [instance]
    while level:
        count += len(level)
        depth += 1
        if depth > MAX_INSTANCE_DEPTH:
            raise RecursionError
        below: list[Json] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                count += len(value) >> 6
        level = below
    return count
