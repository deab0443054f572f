"""The work that the engine does for a value, estimated before the engine is asked.

A short schema and a short value can keep the engine busy for long: references that are repeated multiply the work,
long regular expressions are tried at every character, and exact division is slow. The estimate is never below the
work, and what a value may cost grows with its size alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas.bounds import SchemaDocument, SchemaNode, is_extreme
from toolwire.schemas.walking import Json, Schema, parts_in

# A step is one subschema applied to one part of a value: the engine does about thirty million of them in a second.
MAX_EFFORT: Final = 20_000_000
_EFFORT_OF_ANY: Final = 500_000
_EFFORT_PER_PART: Final = 200
MAX_INSTANCE_DEPTH: Final = 256
_BEYOND: Final = MAX_EFFORT + 1
# One number with very many digits, divided exactly.
_EXTREME: Final = 4_000
# Shorter expressions become tables, and take a nanosecond for each character.
_FEW_ATOMS: Final = 32
# Counting exactly is slower than the engine itself, so that it is left for small values.
_COUNTED_PARTS: Final = 50_000


class Size(NamedTuple):
    """The size of a value: its parts, its depth, its text."""

    parts: int
    """How many values it is made of; long texts count for more."""
    text: int
    depth: int
    extremes: int
    floats: int


def measure(instance: Json, most: int | None = None) -> Size:
    """Count the parts of a value, stopping after `most`.

    Raises `RecursionError` when it is too deep.
    """
    parts = text = depth = extremes = floats = 0
    level = [instance]
    while level:
        parts += len(level)
        if most is not None and parts > most:
            break
        depth += 1
        if depth > MAX_INSTANCE_DEPTH:
            raise RecursionError
        below: list[Json] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
                text += sum(map(len, value))
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                text += len(value)
            elif isinstance(value, (int, float)):
                floats += isinstance(value, float)
                extremes += is_extreme(value)
        level = below
    return Size(parts + (text >> 6), text, depth, extremes, floats)


def allowed(parts: int) -> int:
    """Say how much work a value of so many parts may cause."""
    return min(MAX_EFFORT, _EFFORT_OF_ANY + _EFFORT_PER_PART * parts)


class Effort:
    """The work that a schema causes, as an estimate for each value."""

    def __init__(self, document: SchemaDocument) -> None:
        self._root = document.root
        nodes = list(document.nodes) or [document.root]
        self._again = _recursive(nodes)
        self._per_part = _most_per_part(document.root, nodes, self._again)
        self._whole = sum(node.whole for node in nodes)
        self._divides = any(node.extreme for node in nodes)
        self._atoms = sum(node.atoms for node in nodes if node.atoms > _FEW_ATOMS)
        self.short: int = self._short()
        """A JSON text of at most so many bytes is surely cheap enough, whatever it says; -1 where none is."""

    def _short(self) -> int:
        if self._whole or self._divides:
            return -1
        # As `fits_text` counts it, with a part in every byte of the text: 1 + n + n / 64 parts.
        left = _EFFORT_OF_ANY - self._per_part
        return max(-1, left * 64 // (self._per_part * 65 + self._atoms * 16))

    def fits_text(self, data: bytes) -> bool:
        """Return whether a value is cheap enough, by the size of its JSON alone."""
        if self._whole or self._divides:
            return False
        parts = parts_in(data)
        return parts * self._per_part + len(data) * self._atoms // 4 <= allowed(parts)

    def fits(self, instance: Json) -> bool:
        """Return whether a value may be handed to the engine."""
        size = measure(instance)
        most = size.parts * (self._per_part + self._whole * size.depth) + size.text * self._atoms // 4
        if self._divides:
            most += size.extremes * _EXTREME * self._per_part
        limit = allowed(size.parts)
        if most <= limit:
            return True
        if size.parts > _COUNTED_PARTS:
            return False
        try:
            return _Count(self._again, Steps(5_000 + 10 * size.parts)).count(self._root, instance) <= limit
        except TooManySteps:
            return False


class Attempts:
    """The number of alternatives that a reader such as pydantic tries for a value.

    Where a choice leads back to itself through two alternatives, the attempts double with every level of a value.
    """

    def __init__(self, schema: Schema, what: str) -> None:
        self._document = SchemaDocument(schema, what)
        nodes = list(self._document.nodes)
        cycle = _cycles(nodes)
        self.multiply: bool = any(
            sum(cycle[id(other)] == cycle[id(node)] for other in node.judges()) > 1 for node in nodes if not node.tagged
        )
        """Whether the attempts grow faster than a value does."""

    def count(self, instance: Json) -> int:
        """Count the attempts for a value.

        Raises `TooManySteps` where even counting is too much work.
        """
        count = _Count(set(), Steps(5_000 + 10 * measure(instance).parts))
        return count.count(self._document.root, instance)


class _Count:
    """Counts the work for one value, subschema by subschema."""

    def __init__(self, again: set[int], steps: Steps) -> None:
        self._again = again
        self._steps = steps
        self._known: dict[tuple[int, int], int] = {}

    def count(self, node: SchemaNode, instance: Json) -> int:
        self._steps.spend()
        key = (id(node), id(instance))
        known = self._known.get(key)
        if known is not None:
            # The engine remembers what a recursive reference said of a part.
            return 1 if id(node) in self._again else known
        effort = node.weight
        if node.whole and isinstance(instance, (dict, list)):
            parts = measure(instance).parts
            self._steps.spend(parts)
            effort += node.whole * parts
        efforts = [self.count(other, instance) for other in node.judges()]
        effort += max(efforts, default=0) if node.tagged and not self._again else sum(efforts)
        if isinstance(instance, dict):
            for name, value in instance.items():
                if name in node.member:
                    effort += self.count(node.member[name], value)
                for other in node.any_member:
                    effort += self.count(other, value)
        elif isinstance(instance, list):
            for position, value in enumerate(instance):
                if position < len(node.item):
                    effort += self.count(node.item[position], value)
                for other in node.any_item:
                    effort += self.count(other, value)
        elif isinstance(instance, str):
            effort += len(instance) * node.atoms // 4 if node.atoms > _FEW_ATOMS else len(instance) >> 6
        elif node.extreme and isinstance(instance, (int, float)) and is_extreme(instance):
            effort += _EXTREME
        self._known[key] = min(effort, _BEYOND)
        return self._known[key]


# ---------------------------------------------------------------------------------------------------------------------
# What one part of a value can meet
# ---------------------------------------------------------------------------------------------------------------------


def _most_per_part(root: SchemaNode, nodes: Iterable[SchemaNode], again: set[int]) -> int:
    """Return how often some subschema is applied to one part of a value, at most.

    What a recursive reference leads to is judged once for each part, and each time works its way down to the next
    recursive reference. `widest` is the most that a single part meets on the way, `total` the sum of all levels.
    """
    here: dict[int, int] = {}
    inside: dict[int, int] = {}
    widest: dict[int, int] = {}
    total: dict[int, int] = {}
    for node in _inner_first([root, *nodes], again):
        key = id(node)
        refs = [other for other in node.refs if id(other) not in again]
        own = node.weight + len(node.refs) - len(refs)
        same = [*node.same, *refs]
        here[key] = min(_BEYOND, own + sum(here[id(other)] for other in same))
        inside[key] = min(_BEYOND, _max_member_effort(node, widest) + sum(inside[id(other)] for other in same))
        widest[key] = max(here[key], inside[key])
        total[key] = min(_BEYOND, own + _max_member_effort(node, total) + sum(total[id(other)] for other in same))
    repeated = sum(total[id(node)] for node in nodes if id(node) in again)
    return min(_BEYOND, widest[id(root)] + repeated)


def _max_member_effort(node: SchemaNode, most: dict[int, int]) -> int:
    """Return the most effort that one member, or one item, of a value can need."""
    members = max((most[id(each)] for each in node.member.values()), default=0)
    items = max((most[id(each)] for each in node.item), default=0)
    return max(
        members + sum(most[id(each)] for each in node.any_member), items + sum(most[id(each)] for each in node.any_item)
    )


def _inner_first(nodes: Iterable[SchemaNode], again: set[int]) -> list[SchemaNode]:
    """Order nodes so that each comes after those that it leads to, recursive references aside."""
    order: list[SchemaNode] = []
    seen: set[int] = set()
    for start in nodes:
        waiting = [(start, False)]
        while waiting:
            node, done = waiting.pop()
            if done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                waiting.append((node, True))
                refs = [other for other in node.refs if id(other) not in again]
                waiting += [(other, False) for other in (*node.same, *refs, *node.below()) if id(other) not in seen]
    return order


def _recursive(nodes: Iterable[SchemaNode]) -> set[int]:
    """Find what references lead back to: the targets of references inside a cycle."""
    cycle = _cycles(nodes)
    return {id(other) for node in nodes for other in node.refs if cycle[id(other)] == cycle[id(node)]}


def _cycles(nodes: Iterable[SchemaNode]) -> dict[int, int]:
    """Find which nodes lead to one another, by one of them for each (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: dict[int, None] = {}
    cycle: dict[int, int] = {}
    for start in nodes:
        if id(start) in index:
            continue
        path = [(start, iter([*start.judges(), *start.below()]))]
        while path:
            node, following = path[-1]
            here = id(node)
            if here not in index:
                index[here] = lowest[here] = len(index)
                open_nodes[here] = None
            for other in following:
                if id(other) not in index:
                    path.append((other, iter([*other.judges(), *other.below()])))
                    break
                if id(other) in open_nodes:
                    lowest[here] = min(lowest[here], index[id(other)])
            else:
                path.pop()
                if path:
                    above = id(path[-1][0])
                    lowest[above] = min(lowest[above], lowest[here])
                if lowest[here] == index[here]:
                    while True:
                        member, _ = open_nodes.popitem()
                        cycle[member] = here
                        if member == here:
                            break
    return cycle
