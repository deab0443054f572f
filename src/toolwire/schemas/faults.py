"""Find the places where a value breaks its schema, by walking both side by side.

The engine says whether a value fits, and forgets nothing of a recursive schema while it does. It cannot say cheaply
why: its list of errors holds every branch of every choice, which doubles with each level of a recursive one. So the
walk is our own. Each pair of subschema and part is looked at once, and every look is a counted step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from toolwire.protocol.steps import Steps
from toolwire.schemas.walking import Json, Path, Schema, listed, mapped

# Keywords that judge a value without any other subschema. The engine does it, one small schema for each place.
_PLAIN: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format",
)  # fmt: skip
_SIZES: Final = (("minItems", "maxItems", list), ("minProperties", "maxProperties", dict))
_ABOUT_SIZE: Final = ("minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems")
_DEPENDENT: Final = ("dependentRequired", "dependentSchemas", "dependencies")
_OTHERS: Final = ("allOf", "anyOf", "oneOf", "not", "if")


class Fault(NamedTuple):
    """One keyword that a part of a value breaks.

    `path` leads to the part, and `names` has the keys at fault.
    """

    path: Path
    keyword: str
    schema: Json
    value: Json
    names: tuple[str, ...] = ()


Faults = tuple[Fault, ...]
#: Makes a small engine of keywords that refer to nothing.
Build = Callable[[Schema], Any]
_NONE: Final[Faults] = ()


class Search:
    """A search for the faults of one value, with at most `most` for each part."""

    def __init__(self, targets: dict[int, list[Json]], leaves: Leaves, steps: Steps, most: int) -> None:
        self._targets = targets
        self._leaves = leaves
        self._steps = steps
        self._most = most
        self._known: dict[tuple[int, int], Faults] = {}

    def faults(self, schema: Json, value: Json) -> Faults:
        """Find what is wrong with a value, the clearly meant branch of every choice followed."""
        self._steps.spend()
        if not isinstance(schema, dict):
            return _NONE if schema is not False else (Fault((), "false", schema, value),)
        key = (id(schema), id(value))
        known = self._known.get(key)
        if known is None:
            # A schema that applies itself to the same value was refused, so that this never asks for itself.
            known = self._known[key] = self._find_faults(schema, value)
        return known

    def _find_faults(self, schema: Schema, value: Json) -> Faults:
        if "type" in schema and not has_type(value, schema["type"]):
            return (Fault((), "type", schema, value),)
        found: list[Fault] = []
        for target in self._targets.get(id(schema), ()):
            found += self.faults(target, value)
        found += self._alone(schema, value)
        if isinstance(value, dict):
            self._members(schema, value, found)
        elif isinstance(value, list):
            self._items(schema, value, found)
        if not schema.keys().isdisjoint(_OTHERS):
            self._others(schema, value, found)
        if not found:
            return _NONE
        self._steps.spend(len(found))
        return tuple(found[: self._most])

    def _others(self, schema: Schema, value: Json, found: list[Fault]) -> None:
        """Ask the subschemas that judge the same value."""
        for part in listed(schema, ("allOf",)):
            found += self.faults(part, value)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(keyword), list):
                found += self._choice(schema, keyword, choices, value)
        if "not" in schema and not self.faults(schema["not"], value):
            found.append(Fault((), "not", schema, value))
        if "if" in schema:
            branch = schema.get("else", True) if self.faults(schema["if"], value) else schema.get("then", True)
            found += self.faults(branch, value)

    def _alone(self, schema: Schema, value: Json) -> Iterable[Fault]:
        """Return the faults by the keywords that need no other subschema."""
        for keyword in ("const", "enum"):
            if keyword in schema and not self._leaves.fits(schema, (keyword,), value):
                return (Fault((), keyword, schema, value),)
        if isinstance(value, (dict, list)):
            return _NONE if schema.keys().isdisjoint(_ABOUT_SIZE) else self._sizes(schema, value)
        if not schema.keys().isdisjoint(_PLAIN) and not self._leaves.fits(schema, _PLAIN, value):
            return (Fault((), "plain", schema, value),)
        return _NONE

    def _sizes(self, schema: Schema, value: dict[str, Json] | list[Json]) -> Iterable[Fault]:
        for least, most, kind in _SIZES:
            if isinstance(value, kind):
                low, high = schema.get(least, 0), schema.get(most, len(value))
                if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not low <= len(value) <= high:
                    yield Fault((), "plain", schema, value)
        if schema.get("uniqueItems") is True and not self._leaves.fits(schema, ("uniqueItems",), value):
            yield Fault((), "uniqueItems", schema, value)

    def _members(self, schema: Schema, value: dict[str, Json], found: list[Fault]) -> None:
        required = schema.get("required")
        if isinstance(required, list) and not value.keys() >= set(required):
            found += [Fault((), "required", schema, value, (name,)) for name in required if name not in value]
        members = schema.get("properties")
        members = members if isinstance(members, dict) else {}
        patterns = [name for name, _ in mapped(schema, ("patternProperties",))] if "patternProperties" in schema else []
        rest = schema.get("additionalProperties", True)
        unknown: list[str] = []
        for name, part in value.items():
            if name in members:
                self._below(members[name], part, name, found)
            if patterns and self._by_pattern(schema, patterns, name, part, found):
                continue
            if name not in members and rest is not True:
                if rest is False:
                    unknown.append(name)
                else:
                    self._below(rest, part, name, found)
        if unknown:
            found.append(Fault((), "additionalProperties", schema, value, tuple(unknown[: self._most])))
        if "propertyNames" in schema:
            found += (
                Fault((), "propertyNames", schema, value, (name,))
                for name in value
                if self.faults(schema["propertyNames"], name)
            )
        if not schema.keys().isdisjoint(_DEPENDENT):
            self._dependent(schema, value, found)

    def _by_pattern(self, schema: Schema, patterns: list[str], name: str, part: Json, found: list[Fault]) -> bool:
        """Ask the subschemas whose pattern a name matches; whether there is one."""
        self._steps.spend(len(patterns))
        matched = [pattern for pattern in patterns if self._leaves.matches(pattern, name)]
        for pattern in matched:
            self._below(schema["patternProperties"][pattern], part, name, found)
        return bool(matched)

    def _dependent(self, schema: Schema, value: dict[str, Json], found: list[Fault]) -> None:
        for keyword in _DEPENDENT:
            rules = schema.get(keyword)
            for name, rule in rules.items() if isinstance(rules, dict) else ():
                self._steps.spend()
                if name not in value:
                    continue
                if isinstance(rule, list):
                    found += (Fault((), "required", schema, value, (each,)) for each in rule if each not in value)
                else:
                    found += self.faults(rule, value)

    def _items(self, schema: Schema, value: list[Json], found: list[Fault]) -> None:
        items = schema.get("items", True)
        first = schema.get("prefixItems", ())
        if isinstance(items, list):  # before 2020-12
            first, items = items, schema.get("additionalItems", True)
        for position, part in enumerate(value):
            rule = first[position] if position < len(first) else items
            if rule is not True:
                self._below(rule, part, position, found)
        if "contains" in schema and schema.get("minContains") != 0:
            wanted = schema["contains"]
            if all(self.faults(wanted, part) for part in value):
                found.append(Fault((), "contains", schema, value))

    def _below(self, schema: Json, part: Json, step: str | int, found: list[Fault]) -> None:
        for fault in self.faults(schema, part):
            self._steps.spend()
            found.append(fault._replace(path=(step, *fault.path)))

    def _choice(self, schema: Schema, keyword: str, choices: list[Json], value: Json) -> Faults:
        self._steps.spend(len(choices))
        likely = [choice for choice in choices if may_match(choice, value, self._targets)]
        if len(likely) == 1 and isinstance(value, (dict, list)):
            return self.faults(likely[0], value)
        branches = [self.faults(choice, value) for choice in likely or choices]
        fitting = sum(not branch for branch in branches)
        if fitting == 1 or (fitting and keyword == "anyOf"):
            return _NONE
        if fitting:
            return (Fault((), "several", schema, value),)
        meant = _meant(branches) if isinstance(value, (dict, list)) else None
        return (Fault((), keyword, schema, value),) if meant is None else meant


_FEW_TAGS: Final = 16


def may_match(rule: Json, value: Json, targets: dict[int, list[Json]]) -> bool:
    """Return whether a value could match a branch, by its type, tag and keys."""
    if not isinstance(rule, dict):
        return rule is not False
    for target in targets.get(id(rule), ()):
        rule = target if isinstance(target, dict) else rule
    if "type" in rule and not has_type(value, rule["type"]):
        return False
    if not isinstance(value, dict):
        return True
    required = rule.get("required")
    if isinstance(required, list) and not value.keys() >= set(required):
        return False
    members = rule.get("properties")
    for name in required if isinstance(required, list) and isinstance(members, dict) else ():
        member = members.get(name)
        # A tag is a member that has to be there, with one of few values.
        if isinstance(member, dict):
            if "const" in member and member["const"] != value[name]:
                return False
            tags = member.get("enum")
            if isinstance(tags, list) and len(tags) <= _FEW_TAGS and value[name] not in tags:
                return False
    return True


# Keywords that tell branches apart, and how far below the choice they do.
_TELLING: Final = ((("type", "enum", "const"), 0), (("enum", "const"), 1), (("required", "additionalProperties"), 0))


def _meant(branches: list[Faults]) -> Faults | None:
    """Find the one branch that the value was meant for, by type, tag or keys."""
    for telling, below in _TELLING:
        branches = [
            branch
            for branch in branches
            if not any(fault.keyword in telling and len(fault.path) == below for fault in branch)
        ]
        if len(branches) == 1:
            return branches[0]
    return None


class Leaves:
    """Small engines for keywords without subschemas, each built when it is first needed."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._engines: dict[tuple[int, str], Any] = {}
        self._patterns: dict[str, Any] = {}

    def fits(self, schema: Schema, keywords: tuple[str, ...], value: Json) -> bool:
        """Return whether a value fits these keywords of a schema."""
        key = (id(schema), keywords[0])
        engine = self._engines.get(key)
        if engine is None:
            plain = {keyword: schema[keyword] for keyword in keywords if keyword in schema}
            engine = self._engines[key] = self._build(plain)
        return bool(engine.is_valid(value))

    def matches(self, pattern: str, name: str) -> bool:
        """Return whether a name matches a pattern of `patternProperties`."""
        engine = self._patterns.get(pattern)
        if engine is None:
            engine = self._patterns[pattern] = self._build({"pattern": pattern})
        return bool(engine.is_valid(name))


_TYPES: Final[dict[type, str]] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array",
}  # fmt: skip


def type_of(value: Json) -> str:
    """Name the JSON type of a value; `3.0` is an integer."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _TYPES.get(type(value), "array")


def has_type(value: Json, kinds: Json) -> bool:
    """Return whether a value is of one of the types that `type` names."""
    kind = type_of(value)
    if isinstance(kinds, str):
        return kind == kinds or (kind == "integer" and kinds == "number")
    return not isinstance(kinds, list) or kind in kinds or (kind == "integer" and "number" in kinds)
