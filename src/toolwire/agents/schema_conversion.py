"""Input schemas in the keywords of an interface, with a list of what is lost.

A rule that an interface does not take is written into the description beside it. The original schema still judges the
arguments of each call, so a loss costs a model knowledge and never the check.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from toolwire.agents.argument_names import legal_names
from toolwire.agents.schema_objects import TAKEN_KEYWORDS, write_schema_object
from toolwire.agents.schema_words import brief, escape, say_choice, say_rule, text_of
from toolwire.agents.vendors import SchemaRules
from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas import MAX_DEPTH
from toolwire.schemas.bounds import MAX_SUBSCHEMAS
from toolwire.schemas.effort import measure
from toolwire.schemas.vendor_schemas import (
    SAID_IN_WORDS,
    add_notes,
    leave_choice_alone,
    show_json,
    split_types,
    write_enum,
    write_items,
)
from toolwire.schemas.walking import Json, Schema, at_reference, listed, mapped, required_names
from toolwire.util.numbers import is_number

# Keywords of the document, which say nothing about a value.
_NO_RULE: Final = frozenset(
    ("$schema", "$id", "id", "$comment", "$vocabulary", "discriminator", "readOnly", "writeOnly", "xml", "externalDocs")
)
# Keywords at the top of a schema that interfaces refuse there, and that are written as the members of one object.
_TOP_CHOICES: Final = ("allOf", "anyOf", "oneOf")
_TOP: Final = frozenset(("type", "properties", "required", *_TOP_CHOICES, "not", "if", "then", "else", "enum", "const"))
# How many times a definition that refers to itself is written out where there are no references.
_UNROLLED: Final = 2
# The work for a schema grows with its size: a step is about a microsecond, and a part one value of the schema.
MAX_PARTS: Final = 100_000
_MAX_STEPS: Final = 200_000
_STEPS_OF_ANY: Final = 1_000
_STEPS_PER_PART: Final = 10
# How many references within each other are written out; fewer, where that is too much work.
_INLINED: Final = (MAX_DEPTH, 2)
# How often `write_enum` looks at each value.
_ENUM_WALKS: Final = 4
# What is left of a schema that is too much work: so many arguments, with so many characters of their texts.
_MAX_OUTLINED: Final = 200
_MAX_TEXT: Final = 300
_NUMBER_FORMATS: Final = ("float", "double", "int32", "int64")


class SchemaLoss(Struct, frozen=True):
    """A rule of a schema that an interface cannot say."""

    path: str
    """The argument, as a JSON pointer into the arguments; "" for all arguments."""
    keyword: str
    text: str
    """The words about it in the description; "" where the model learns nothing of it."""


class ConvertedSchema(Struct, frozen=True):
    """An input schema for one interface."""

    schema: Schema
    losses: tuple[SchemaLoss, ...]
    has_renamed_arguments: bool = False


def convert_schema(schema: Schema, rules: SchemaRules) -> ConvertedSchema:
    """Write an input schema in the keywords that an interface takes. Never raises.

    A schema that is too much work keeps the names, types and descriptions of its arguments.
    """
    try:
        steps = steps_for(schema)
        plain = sort_keys(schema)
        for levels in _INLINED if rules.refuses("$ref") else _INLINED[:1]:
            try:
                return _Writer(rules, plain, Steps(steps), levels).convert()
            except TooManySteps:
                continue
    except _BROKEN:
        pass
    return _outline(schema, rules)


# What a broken schema may raise.
_BROKEN: Final = (TooManySteps, RecursionError, TypeError, ValueError, AttributeError, KeyError, IndexError)


def steps_for(schema: Schema) -> int:
    """Return how many steps a conversion may take; `TooManySteps` for a large schema."""
    parts = measure(schema, MAX_PARTS).parts
    if parts > MAX_PARTS:
        raise TooManySteps
    return min(_MAX_STEPS, _STEPS_OF_ANY + _STEPS_PER_PART * parts)


def _outline(schema: Schema, rules: SchemaRules) -> ConvertedSchema:
    """Write what the arguments are called, and not much more."""
    members: Schema = {}
    loss = SchemaLoss("", "schema", "")
    try:
        for name, member in islice(mapped(schema, ("properties",)), _MAX_OUTLINED):
            kept = member if isinstance(member, dict) else {}
            members[name[:_MAX_TEXT]] = {
                key: kept[key][:_MAX_TEXT] for key in ("type", "description") if isinstance(kept.get(key), str)
            }
        required = [name for name in required_names(schema) if name in members]
        plain = sort_keys({"type": "object", "properties": members, "required": required})
        written = _Writer(rules, plain, Steps(_MAX_STEPS), 0).convert()
        return ConvertedSchema(written.schema, (loss, *written.losses), written.has_renamed_arguments)
    except _BROKEN:
        return ConvertedSchema({"properties": {}, "type": "object"}, (loss,))


def sort_keys(schema: Json) -> Json:
    """Sort the keys and required names of a schema; choices stay as they are."""
    return _sorted(schema, is_schema=True)


def _sorted(value: Json, *, is_schema: bool) -> Json:
    if isinstance(value, list):
        return [_sorted(each, is_schema=is_schema) for each in value]
    if not isinstance(value, dict):
        return value
    result: Schema = {}
    for key in sorted(value):
        part = value[key]
        if is_schema and key == "required" and isinstance(part, list):
            result[key] = sorted(part, key=str)
        elif is_schema and key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
            members = part if isinstance(part, dict) else {}
            result[key] = {name: _sorted(members[name], is_schema=True) for name in sorted(members)}
        else:
            is_data = key in ("default", "enum", "const", "examples", "example")
            result[key] = _sorted(part, is_schema=is_schema and not is_data)
    return result


class _Writer:
    """A walk through one schema."""

    def __init__(self, rules: SchemaRules, root: Schema, steps: Steps, inlined: int) -> None:
        self.losses: list[SchemaLoss] = []
        self.has_renamed = False
        self._rules = rules
        self._root = root
        self._steps = steps
        self._inlined = inlined
        self._count = 0

    def convert(self) -> ConvertedSchema:
        """Write the schema; raise `TooManySteps` where that is too much work."""
        written = self.write_root(self._root)
        if self._rules.is_openapi:
            written = write_schema_object(written)
        return ConvertedSchema(sort_keys(written), tuple(self.losses), self.has_renamed)

    def _spend_on(self, value: Json) -> None:
        """Take as many steps as a value has parts."""
        if isinstance(value, str):
            self._steps.spend(len(value) >> 6)
        elif isinstance(value, (dict, list)):
            self._steps.spend(measure(value, self._steps.left).parts)

    def _spend_on_names(self, names: Json) -> None:
        """Spend a step for each entry of a mapping or a list."""
        if isinstance(names, dict):
            self._steps.spend(len(names) + (sum(map(len, names)) >> 6))
        elif isinstance(names, list):
            self._steps.spend(len(names))

    def write_root(self, schema: Schema) -> Schema:
        body = {key: value for key, value in schema.items() if key not in _TOP}
        properties: dict[str, Any] = {}
        required: list[str] = []
        notes: list[str] = []
        if isinstance(reference := schema.get("$ref"), str) and isinstance(
            target := at_reference(self._root, reference), dict
        ):
            body.pop("$ref")
            self._spend_on_names(target.get("properties"))
            self._spend_on_names(target.get("required"))
            properties |= dict(mapped(target, ("properties",)))
            required += required_names(target)
        for keyword in _TOP_CHOICES:
            parts = [part for part in listed(schema, (keyword,)) if isinstance(part, dict)]
            has_choice = keyword != "allOf" and sum(1 for _ in listed(schema, (keyword,))) > 1
            for part in parts:
                part = self._target(part)
                self._spend_on_names(part.get("properties"))
                self._spend_on_names(part.get("required"))
                properties |= dict(mapped(part, ("properties",)))
                if not has_choice:
                    required += required_names(part)
            if has_choice:
                notes.append(self._lose("", keyword, say_choice(keyword, [self._target(part) for part in parts])))
        properties |= dict(mapped(schema, ("properties",)))
        required += required_names(schema)
        for keyword in ("not", "if", "enum", "const"):
            notes += [self._lose("", keyword, say_rule(keyword, schema[keyword]))] if keyword in schema else []
        top: Schema = {"type": "object", "properties": properties, **body}
        if kept := [name for name in dict.fromkeys(required) if name in properties]:
            top["required"] = kept
        if notes:
            top["description"] = add_notes(text_of(top), notes)
        written: Schema = self.write(top, "", 0)
        written["type"] = "object"
        written.setdefault("properties", {})
        return written

    def _target(self, part: Schema) -> Schema:
        reference = part.get("$ref")
        found = at_reference(self._root, reference) if isinstance(reference, str) and reference[:1] == "#" else part
        return found if isinstance(found, dict) else part

    def _lose(self, path: str, keyword: str, text: str = "") -> str:
        self._steps.spend(1 + (len(text) >> 4))
        self.losses.append(SchemaLoss(path, keyword, text))
        return text

    def write(self, schema: Json, path: str, depth: int, unrolled: tuple[str, ...] = ()) -> Json:
        """Write one subschema."""
        rules = self._rules
        self._count += 1
        self._steps.spend(1 + (len(path) >> 4))
        if not isinstance(schema, dict):
            return self._write_boolean(schema, path)
        if depth > MAX_DEPTH or self._count > MAX_SUBSCHEMAS:
            self._lose(path, "depth")
            return {}
        self._steps.spend(len(schema))
        if rules.refuses("$ref") and isinstance(schema.get("$ref"), str):
            return self._write_inline(schema, path, depth, unrolled)
        if (
            not rules.has_type_lists
            and isinstance(schema.get("type"), list)
            and _is_well_formed("type", schema["type"])
        ):
            self._steps.spend(len(_TYPES) * len(schema["type"]))
            schema = split_types(schema, schema["type"])
        if rules.refuses("allOf") and isinstance(schema.get("allOf"), list):
            schema = self._merge(schema, path)

        def below(part: Json, inner: str = path) -> Json:
            return self.write(part, inner, depth + 1, unrolled)

        names = self._legal_properties(schema)
        result: Schema = {}
        notes: list[str] = []
        if rules.is_choice_alone:
            schema, words = self._spread(schema, path)
            notes += words
        for keyword, value in schema.items():
            if keyword in _NO_RULE or keyword.startswith("x-"):
                continue
            if not _is_well_formed(keyword, value):
                self._lose(path, keyword)
                continue
            self._spend_on_names(value)
            match keyword:
                case "properties" if isinstance(value, dict):
                    result[keyword] = {
                        names.get(name, name): self._write_member(
                            member, f"{path}/{escape(name)}", below, name if names.get(name, name) != name else ""
                        )
                        for name, member in value.items()
                    }
                case "required":
                    result[keyword] = [names.get(name, name) for name in required_names(schema)]
                    if not result[keyword]:
                        del result[keyword]
                case "$defs" | "definitions" if isinstance(value, dict):
                    if not rules.refuses("$ref"):
                        result[keyword] = {name: below(body, f"/{keyword}/{name}") for name, body in value.items()}
                case "anyOf" if isinstance(value, list):
                    result[keyword] = [below(choice) for choice in value]
                case "oneOf" if isinstance(value, list):
                    if not rules.refuses(keyword):
                        result[keyword] = [below(choice) for choice in value]
                    elif "anyOf" in schema:
                        notes.append(self._say_rule(keyword, value, path))
                    else:
                        result["anyOf"] = [below(choice) for choice in value]
                        self._lose(path, keyword, "")
                case "items" | "prefixItems" | "additionalItems" if self._rewrites_items(schema):
                    pass
                case "items":
                    result[keyword] = [below(each) for each in value] if isinstance(value, list) else below(value)
                case "additionalProperties":
                    if rules.is_openapi:
                        if value is not True:
                            text = "takes no other members" if value is False else "other members: " + brief(value)
                            notes.append(self._lose(path, keyword, text))
                    else:
                        result[keyword] = value if isinstance(value, bool) else below(value)
                case "allOf" | "prefixItems" if isinstance(value, list) and not rules.refuses(keyword):
                    result[keyword] = [below(part) for part in value]
                case "not" | "if" | "then" | "else" | "contains" | "propertyNames" | "unevaluatedProperties" if (
                    isinstance(value, (dict, bool)) and not rules.refuses(keyword)
                ):
                    result[keyword] = value if isinstance(value, bool) else below(value)
                case "patternProperties" | "dependentSchemas" if isinstance(value, dict) and not rules.refuses(keyword):
                    result[keyword] = {name: below(part) for name, part in value.items()}
                case "enum" | "const" if not rules.has_any_enum:
                    pass
                case "format" if rules.formats is not None:
                    notes += self._write_format(schema, value, path, result)
                case _ if rules.refuses(keyword):
                    notes += self._say(schema, keyword, value, path, result)
                case _ if rules.is_openapi and keyword not in TAKEN_KEYWORDS:
                    notes.append(self._say_rule(keyword, value, path))
                case _:
                    self._spend_on(value)
                    result.setdefault(keyword, value)
        if self._rewrites_items(schema):
            words = write_items(schema, result, below)
            notes += [self._lose(path, "prefixItems", word) for word in words]
        if not rules.has_any_enum and ("const" in schema or isinstance(schema.get("enum"), list)):
            for _ in range(_ENUM_WALKS):
                self._spend_on(schema.get("const", schema.get("enum")))
            result, words = write_enum([schema["const"]] if "const" in schema else schema["enum"], result)
            if any(not isinstance(each, str) for each in result.get("enum", ())):
                words = [*words, "one of " + ", ".join(map(show_json, result.pop("enum")))]
            notes += [self._lose(path, "enum", word) for word in words]
        if notes := [note for note in notes if note]:
            result["description"] = add_notes(text_of(result), notes)
        if not rules.is_choice_alone:
            return result
        # A choice within a choice is written into it.
        self._spend_on(result.get("anyOf"))
        return leave_choice_alone(result, inside_definition=False)

    def _spread(self, schema: Schema, path: str) -> tuple[Schema, list[str]]:
        """Write what stands beside a choice into its parts, or the choice in words."""
        keyword = next((each for each in ("anyOf", "oneOf") if _is_well_formed(each, schema.get(each))), None)
        beside = {key: value for key, value in schema.items() if key not in _MAY_STAND_BESIDE}
        if keyword is None or not beside:
            return schema, []
        choices = schema[keyword]
        around = {key: value for key, value in schema.items() if key not in beside and key != keyword}
        if not any(isinstance(each, dict) and each.keys() & _SAYS_A_KIND for each in choices):
            parts = [each for each in choices if isinstance(each, dict)]
            words = self._lose(path, keyword, say_choice(keyword, parts))
            rest, more = self._spread({**around, **beside}, path)
            return rest, [words, *more]
        self._steps.spend(len(choices) * (1 + len(beside)))
        spread = [{**beside, **each} if isinstance(each, dict) and "$ref" not in each else each for each in choices]
        return {**around, keyword: spread}, []

    def _legal_properties(self, schema: Schema) -> dict[str, str]:
        """Return the names that the members of an object get; empty where all are legal."""
        rule, properties = self._rules.properties, schema.get("properties")
        if rule is None or not isinstance(properties, dict) or all(map(rule.legal.fullmatch, properties)):
            return {}
        return legal_names(properties, rule)

    def _write_member(self, member: Json, path: str, below: Callable[..., Json], original: str) -> Json:
        written = below(member, path)
        if not original:
            return written
        self.has_renamed = True
        if isinstance(written, dict) and "$ref" not in written:
            return {**written, "description": add_notes(text_of(written), [f"called {original[:200]!r} by the tool"])}
        return written

    def _write_boolean(self, schema: Json, path: str) -> Json:
        if schema is not False:
            return {}
        if self._rules.refuses("not"):
            return {"description": self._lose(path, "false", "takes no value")}
        return {"not": {}}

    def _write_inline(self, schema: Schema, path: str, depth: int, unrolled: tuple[str, ...]) -> Json:
        """Write the target of a reference in its place.

        One that leads back to itself ends after some levels.
        """
        reference = schema["$ref"]
        self._steps.spend(len(reference) >> 6)
        around = {key: value for key, value in schema.items() if key != "$ref"}
        target = at_reference(self._root, reference) if reference.startswith("#") else None
        if not isinstance(target, dict) or unrolled.count(reference) >= _UNROLLED or len(unrolled) >= self._inlined:
            text = self._lose(path, "$ref", f"as {reference.rpartition('/')[2] or 'the whole'} above")
            kind = target.get("type") if isinstance(target, dict) else None
            plain = {"type": kind} if kind in ("object", "string", "integer", "number", "boolean") else {}
            return {**plain, "description": add_notes(text_of(around), [text])}
        return self.write({**target, **around}, path, depth + 1, (*unrolled, reference))

    def _merge(self, schema: Schema, path: str) -> Schema:
        """Write the parts of `allOf` as one schema. Where two parts disagree, the first counts."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if not isinstance(part, dict):
                continue
            part = self._target(part)
            self._spend_on(part)
            nested = self._merge(part, path) if isinstance(part.get("allOf"), list) and part is not schema else part
            for key, value in nested.items():
                if key == "properties" and isinstance(value, dict) and isinstance(merged.get(key), dict):
                    merged[key] = {**value, **merged[key]}
                elif key == "required" and isinstance(value, list) and isinstance(merged.get(key), list):
                    merged[key] = list(dict.fromkeys([*required_names(merged), *required_names(nested)]))
                elif key not in merged:
                    merged[key] = value
                elif merged[key] != value and key not in ("title", "description", "$defs", "definitions"):
                    self._lose(path, "allOf", "")
        return merged

    def _rewrites_items(self, schema: Schema) -> bool:
        """Return whether the items of an array need one schema for all of them."""
        if not self._rules.refuses("prefixItems"):
            return False
        kinds = schema.get("type")
        is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
        return is_array or "prefixItems" in schema or isinstance(schema.get("items"), list)

    def _write_format(self, schema: Schema, value: Json, path: str, result: Schema) -> list[str]:
        is_number = schema.get("type") in ("integer", "number")
        formats = _NUMBER_FORMATS if is_number and self._rules.is_openapi else self._rules.formats or ()
        if value in formats:
            result["format"] = value
            return []
        if is_number:
            return []  # `int64`, `double`: the widths of OpenAPI, which say nothing to a model
        return [self._lose(path, "format", f"format {str(value)[:60]}")]

    def _say(self, schema: Schema, keyword: str, value: Json, path: str, result: Schema) -> list[str]:
        """Say a keyword in words, or in another keyword that says the same."""
        said = SAID_IN_WORDS.get(keyword)
        if said is None:
            return [self._say_rule(keyword, value, path)]
        self._spend_on(value)
        return [self._lose(path, keyword, word) for word in said(value, schema, result)]

    def _say_rule(self, keyword: str, value: Json, path: str) -> str:
        self._spend_on(value)
        return self._lose(path, keyword, say_rule(keyword, value))


# Keywords that stay beside a choice, and those that say what a part of a choice is.
_MAY_STAND_BESIDE: Final = frozenset(
    ("anyOf", "oneOf", "title", "description", "default", "nullable", "$defs", "definitions", *_NO_RULE)
)
_SAYS_A_KIND: Final = frozenset(("type", "$ref", "enum", "const", "properties", "items", "anyOf", "oneOf", "allOf"))
_TYPES: Final = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))
_TEXTS: Final = frozenset(("description", "title", "pattern", "format", "$ref"))
_COUNTS: Final = frozenset(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"))
_BOUNDS: Final = frozenset(("minimum", "maximum"))
_CHOICES: Final = frozenset(("anyOf", "oneOf", "allOf"))


def _is_well_formed(keyword: str, value: Json) -> bool:
    """Return whether the value of a keyword has the kind that interfaces expect."""
    if keyword == "type":
        kinds = value if isinstance(value, list) else [value]
        return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)
    if keyword in _TEXTS:
        return isinstance(value, str)
    if keyword in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if keyword in _BOUNDS:
        return is_number(value)
    if keyword in _CHOICES:
        return isinstance(value, list) and bool(value) and all(isinstance(each, (dict, bool)) for each in value)
    if keyword in ("properties", "$defs", "definitions"):
        return isinstance(value, dict)
    if keyword == "enum":
        return isinstance(value, list) and bool(value)
    if keyword in ("items", "additionalProperties"):
        return isinstance(value, (dict, bool, list) if keyword == "items" else (dict, bool))
    return keyword != "required" or isinstance(value, list)
