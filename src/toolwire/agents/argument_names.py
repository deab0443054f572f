"""Legal names for tools and arguments, and the way back to the original names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from toolwire.agents.vendors import NameRule, SchemaRules
from toolwire.protocol.steps import Steps
from toolwire.schemas.nulls import without_needless_nulls
from toolwire.schemas.walking import MAX_DEPTH, Json, Schema, alternatives, listed, mapped

_HASH: Final = 8
# A step takes less than a microsecond.
_MAX_STEPS: Final = 500_000


def legal_names(names: Iterable[str], rule: NameRule) -> dict[str, str]:
    """Return the name that each name has at an interface, each only once."""
    given = list(dict.fromkeys(names))
    taken = {name for name in given if rule.legal.fullmatch(name)}
    return {name: name if name in taken else changed_name(name, rule) for name in given}


def changed_name(name: str, rule: NameRule, seed: str | None = None) -> str:
    """Return a legal name with eight digits of a hash, which no other name gets."""
    digest = hashlib.sha256((name if seed is None else seed).encode(errors="surrogatepass")).hexdigest()[:_HASH]
    plain = rule.illegal.sub("_", name)[: rule.longest - _HASH - 1]
    return f"{plain or '_'}_{digest}"


def restore_arguments(arguments: Json, schema: Schema, rules: SchemaRules, *, renamed: bool, is_strict: bool) -> Json:
    """Return the arguments of a converted schema as the tool takes them.

    Raise `TooManySteps` for arguments whose names cannot be found without great work.
    """
    if renamed and rules.properties is not None:
        arguments = _OwnNames(schema, rules.properties).restore(arguments, [schema], 0)
    restored: Json = without_needless_nulls(arguments, schema) if is_strict else arguments
    return restored


class _Members(NamedTuple):
    """The members and items of a value, by the subschemas that may apply to it."""

    originals: dict[str, str]
    """The names at the tool, by those that models use."""
    members: dict[str, list[Json]]
    rest: list[Json]
    items: list[Json]


class _OwnNames:
    """A walk through arguments that gives their members the names of the tool."""

    def __init__(self, root: Schema, rule: NameRule) -> None:
        self._root = root
        self._rule = rule
        self._steps = Steps(_MAX_STEPS)
        # The subschemas live as long as this walk, so that they are distinguished by identity.
        self._known: dict[tuple[int, ...], _Members] = {}

    def restore(self, value: Json, candidates: list[Json], depth: int) -> Json:
        if depth > MAX_DEPTH or not isinstance(value, (dict, list)):
            return value
        self._steps.spend(1 + len(value) + len(candidates))
        key = tuple(map(id, candidates))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._read(candidates)
        if isinstance(value, list):
            return [self.restore(item, found.items, depth + 1) for item in value]
        restored: dict[str, Json] = {}
        for name, member in dict[str, Json](value).items():
            original = found.originals.get(name, name)
            restored[original] = self.restore(member, found.members.get(original, found.rest), depth + 1)
        return restored

    def _read(self, candidates: list[Json]) -> _Members:
        found = _Members({}, {}, [], [])
        for each in alternatives(candidates, self._root, self._steps):
            properties = dict(mapped(each, ("properties",)))
            self._steps.spend(len(properties))
            for name, legal in legal_names(properties, self._rule).items():
                found.originals.setdefault(legal, name)
                found.members.setdefault(name, []).append(properties[name])
            if isinstance(each.get("additionalProperties"), dict):
                found.rest.append(each["additionalProperties"])
            found.items.extend(listed(each, ("prefixItems", "items")))
            if isinstance(each.get("items"), dict):
                found.items.append(each["items"])
        return found
