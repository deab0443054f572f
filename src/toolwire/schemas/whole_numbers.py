"""Write `3.0` as `3` where a schema asks for an integer.

To JSON Schema they are the same.
"""

from __future__ import annotations

from typing import Final

from toolwire.protocol.steps import Steps
from toolwire.schemas.faults import has_type, may_match
from toolwire.schemas.walking import Json, Schema, listed

_STEPS_OF_ANY: Final = 2_000
_STEPS_PER_PART: Final = 20


def whole_numbers(instance: Json, schema: Schema, targets: dict[int, list[Json]], parts: int) -> Json:
    """Write `3.0` as `3` where a schema asks for an integer, in a copy.

    Each part of the value is looked at once, with all subschemas that may judge it. `parts` is the size of the value,
    `targets` what the references of the schema lead to; `TooManySteps` for a value that would take more work than that.
    """
    return _Whole(targets, Steps(_STEPS_OF_ANY + _STEPS_PER_PART * parts)).convert(instance, [schema])


class _Whole:
    def __init__(self, targets: dict[int, list[Json]], steps: Steps) -> None:
        self._targets = targets
        self._steps = steps

    def convert(self, value: Json, rules: list[Json]) -> Json:
        if isinstance(value, float):
            return int(value) if value.is_integer() and _wants_integer(self._judges(value, rules)) else value
        if not rules or not isinstance(value, (dict, list)):
            return value
        judges = self._judges(value, rules)
        if isinstance(value, dict):
            return {name: self.convert(part, self._for_member(judges, name)) for name, part in value.items()}
        return self._items(value, judges)

    def _judges(self, value: Json, rules: list[Json]) -> list[Schema]:
        """Find all subschemas that apply to a value.

        Of a choice, only the branches that may match.
        """
        judges: dict[int, Schema] = {}
        waiting = list(rules)
        while waiting:
            self._steps.spend()
            rule = waiting.pop()
            if not isinstance(rule, dict) or id(rule) in judges:
                continue
            judges[id(rule)] = rule
            waiting += self._targets.get(id(rule), ())
            waiting += listed(rule, ("allOf",))
            for part in listed(rule, ("anyOf", "oneOf")):
                self._steps.spend()
                if may_match(part, value, self._targets):
                    waiting.append(part)
        return list(judges.values())

    def _for_member(self, judges: list[Schema], name: str) -> list[Json]:
        self._steps.spend(1 + len(judges))
        rules: list[Json] = []
        for judge in judges:
            members = judge.get("properties")
            if isinstance(members, dict) and name in members:
                rules.append(members[name])
            elif isinstance(rest := judge.get("additionalProperties"), dict):
                rules.append(rest)
        return rules

    def _items(self, value: list[Json], judges: list[Schema]) -> list[Json]:
        every = [judge["items"] for judge in judges if isinstance(judge.get("items"), dict)]
        placed = [(judge, first) for judge in judges if isinstance(first := judge.get("prefixItems"), list)]
        items: list[Json] = []
        for position, part in enumerate(value):
            self._steps.spend(1 + len(placed))
            rules = every
            if placed:
                covered = {id(judge): first[position] for judge, first in placed if position < len(first)}
                rest = [judge["items"] for judge in judges if id(judge) not in covered and "items" in judge]
                rules = [*covered.values(), *rest]
            items.append(self.convert(part, rules))
        return items


def _wants_integer(judges: list[Schema]) -> bool:
    kinds = [judge["type"] for judge in judges if "type" in judge]
    return any(has_type(0, kind) and not has_type(0.5, kind) for kind in kinds) and not any(
        has_type(0.5, kind) for kind in kinds
    )
