"""Input schemas of tools in the keywords that one interface takes, with a list of what could not be said.

A rule that an interface does not take is written into the description beside it. The original schema still judges the
arguments of each call, so a loss costs a model knowledge and never the check.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from toolwire.agents.vendors import STRICT_LIMITS, STRING_FORMATS, NameRule, SchemaRules
from toolwire.schemas import MAX_DEPTH
from toolwire.schemas.bounds import MAX_SUBSCHEMAS
from toolwire.schemas.nulls import NULL, takes_null, without_needless_nulls
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
_HASH: Final = 8
# The keywords of Gemini's Schema object, by those of JSON Schema.
_SCHEMA_OBJECT: Final = {
    "title": "title", "description": "description", "enum": "enum", "format": "format", "items": "items",
    "properties": "properties", "required": "required", "minItems": "min_items", "maxItems": "max_items",
    "minLength": "min_length", "maxLength": "max_length", "pattern": "pattern", "minimum": "minimum",
    "maximum": "maximum", "anyOf": "any_of", "minProperties": "min_properties", "maxProperties": "max_properties",
}  # fmt: skip
_NUMBER_FORMATS: Final = ("float", "double", "int32", "int64")


class SchemaLoss(Struct, frozen=True):
    """A rule of a schema that an interface cannot say."""

    path: str
    """The argument, as a JSON pointer into the arguments; "" for all arguments."""
    keyword: str
    text: str
    """The words about it in the description; "" where the model learns nothing of it."""


class NotStrict(ValueError):
    """The schema cannot be written for strict mode. The text says why."""


class ConvertedSchema(Struct, frozen=True):
    """An input schema for one interface."""

    schema: Schema
    losses: tuple[SchemaLoss, ...]
    has_renamed_arguments: bool = False


def convert_schema(schema: Schema, rules: SchemaRules) -> ConvertedSchema:
    """Write an input schema in the keywords that an interface takes. Never raises."""
    try:
        schema = sort_keys(schema)
        writer = _Writer(rules, schema)
        written = writer.write_root(schema)
    except (RecursionError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        loss = SchemaLoss("", "schema", "")
        return ConvertedSchema({"properties": {}, "type": "object"}, (loss,))
    if rules.is_openapi:
        written = _schema_object(written)
    return ConvertedSchema(sort_keys(written), tuple(writer.losses), writer.has_renamed)


def sort_keys(schema: Json) -> Json:
    """Write a schema in one order: its keys and required names sorted, choices as they are."""
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


class _Writer:
    """A walk through one schema."""

    def __init__(self, rules: SchemaRules, root: Schema) -> None:
        self.losses: list[SchemaLoss] = []
        self.has_renamed = False
        self._rules = rules
        self._root = root
        self._count = 0

    def write_root(self, schema: Schema) -> Schema:
        body = {key: value for key, value in schema.items() if key not in _TOP}
        properties: dict[str, Any] = {}
        required: list[str] = []
        notes: list[str] = []
        if isinstance(reference := schema.get("$ref"), str) and isinstance(
            target := at_reference(self._root, reference), dict
        ):
            body.pop("$ref")
            properties |= dict(mapped(target, ("properties",)))
            required += required_names(target)
        for keyword in _TOP_CHOICES:
            parts = [part for part in listed(schema, (keyword,)) if isinstance(part, dict)]
            has_choice = keyword != "allOf" and sum(1 for _ in listed(schema, (keyword,))) > 1
            for part in parts:
                properties |= dict(mapped(self._target(part), ("properties",)))
                if not has_choice:
                    required += required_names(self._target(part))
            if has_choice:
                notes.append(self._lose("", keyword, _say_choice(keyword, [self._target(part) for part in parts])))
        properties |= dict(mapped(schema, ("properties",)))
        required += required_names(schema)
        for keyword in ("not", "if", "enum", "const"):
            notes += [self._lose("", keyword, _say(keyword, schema[keyword]))] if keyword in schema else []
        top: Schema = {"type": "object", "properties": properties, **body}
        if kept := [name for name in dict.fromkeys(required) if name in properties]:
            top["required"] = kept
        if notes:
            top["description"] = add_notes(_text_of(top), notes)
        written: Schema = self.write(top, "", 0)
        written["type"] = "object"
        written.setdefault("properties", {})
        return written

    def _target(self, part: Schema) -> Schema:
        reference = part.get("$ref")
        found = at_reference(self._root, reference) if isinstance(reference, str) and reference[:1] == "#" else part
        return found if isinstance(found, dict) else part

    def _lose(self, path: str, keyword: str, text: str = "") -> str:
        self.losses.append(SchemaLoss(path, keyword, text))
        return text

    def write(self, schema: Json, path: str, depth: int, unrolled: tuple[str, ...] = ()) -> Json:
        """Write one subschema."""
        rules = self._rules
        self._count += 1
        if not isinstance(schema, dict):
            return self._write_boolean(schema, path)
        if depth > MAX_DEPTH or self._count > MAX_SUBSCHEMAS:
            self._lose(path, "depth")
            return {}
        if rules.refuses("$ref") and isinstance(schema.get("$ref"), str):
            return self._write_inline(schema, path, depth, unrolled)
        if (
            not rules.has_type_lists
            and isinstance(schema.get("type"), list)
            and _is_well_formed("type", schema["type"])
        ):
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
            match keyword:
                case "properties" if isinstance(value, dict):
                    result[keyword] = {
                        names.get(name, name): self._write_member(
                            member, f"{path}/{_escape(name)}", below, name if names.get(name, name) != name else ""
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
                        notes.append(self._lose(path, keyword, _say(keyword, value)))
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
                            text = "takes no other members" if value is False else "other members: " + _brief(value)
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
                case _ if rules.is_openapi and keyword not in _SCHEMA_OBJECT and keyword not in ("type", "nullable"):
                    notes.append(self._lose(path, keyword, _say(keyword, value)))
                case _:
                    result.setdefault(keyword, value)
        if self._rewrites_items(schema):
            words = write_items(schema, result, below)
            notes += [self._lose(path, "prefixItems", word) for word in words]
        if not rules.has_any_enum and ("const" in schema or isinstance(schema.get("enum"), list)):
            result, words = write_enum([schema["const"]] if "const" in schema else schema["enum"], result)
            if any(not isinstance(each, str) for each in result.get("enum", ())):
                words = [*words, "one of " + ", ".join(map(show_json, result.pop("enum")))]
            notes += [self._lose(path, "enum", word) for word in words]
        if notes := [note for note in notes if note]:
            result["description"] = add_notes(_text_of(result), notes)
        return leave_choice_alone(result, inside_definition=False) if rules.is_choice_alone else result

    def _spread(self, schema: Schema, path: str) -> tuple[Schema, list[str]]:
        """Write what stands beside a choice into its parts, or the choice in words where it only names members."""
        keyword = next((each for each in ("anyOf", "oneOf") if _is_well_formed(each, schema.get(each))), None)
        beside = {key: value for key, value in schema.items() if key not in _MAY_STAND_BESIDE}
        if keyword is None or not beside:
            return schema, []
        choices = schema[keyword]
        around = {key: value for key, value in schema.items() if key not in beside and key != keyword}
        if not any(isinstance(each, dict) and each.keys() & _SAYS_A_KIND for each in choices):
            parts = [each for each in choices if isinstance(each, dict)]
            return {**around, **beside}, [self._lose(path, keyword, _say_choice(keyword, parts))]
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
            return {**written, "description": add_notes(_text_of(written), [f"called {original[:200]!r} by the tool"])}
        return written

    def _write_boolean(self, schema: Json, path: str) -> Json:
        if schema is not False:
            return {}
        if self._rules.refuses("not"):
            return {"description": self._lose(path, "false", "takes no value")}
        return {"not": {}}

    def _write_inline(self, schema: Schema, path: str, depth: int, unrolled: tuple[str, ...]) -> Json:
        """Write what a reference leads to in its place; one that leads back to itself ends after some levels."""
        reference = schema["$ref"]
        around = {key: value for key, value in schema.items() if key != "$ref"}
        target = at_reference(self._root, reference) if reference.startswith("#") else None
        if not isinstance(target, dict) or unrolled.count(reference) >= _UNROLLED:
            text = self._lose(path, "$ref", f"as {reference.rpartition('/')[2] or 'the whole'} above")
            kind = target.get("type") if isinstance(target, dict) else None
            plain = {"type": kind} if kind in ("object", "string", "integer", "number", "boolean") else {}
            return {**plain, "description": add_notes(_text_of(around), [text])}
        return self.write({**target, **around}, path, depth + 1, (*unrolled, reference))

    def _merge(self, schema: Schema, path: str) -> Schema:
        """Write the parts of `allOf` as one schema. Where two parts disagree, the first counts."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if not isinstance(part, dict):
                continue
            part = self._target(part)
            nested = self._merge(part, path) if isinstance(part.get("allOf"), list) and part is not schema else part
            for key, value in nested.items():
                if key == "properties" and isinstance(value, dict) and isinstance(merged.get(key), dict):
                    merged[key] = {**value, **merged[key]}
                elif key == "required" and isinstance(value, list) and isinstance(merged.get(key), list):
                    merged[key] = [*merged[key], *(name for name in value if name not in merged[key])]
                elif key not in merged:
                    merged[key] = value
                elif merged[key] != value and key not in ("title", "description", "$defs", "definitions"):
                    self._lose(path, "allOf", "")
        return merged

    def _rewrites_items(self, schema: Schema) -> bool:
        """Return whether the items of an array have to be written with one schema for all of them."""
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
        words = [_say(keyword, value)] if said is None else said(value, schema, result)
        return [self._lose(path, keyword, word) for word in words]


# Keywords that stay beside a choice, and those by which a part of a choice says what it is.
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
    """Return whether the value of a keyword is of the kind that every interface expects there."""
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


def _say(keyword: str, value: Json) -> str:
    text = show_json(value)
    return f"{keyword}: {text if len(text) <= 300 else text[:300] + '…'}"


def _say_choice(keyword: str, parts: list[Schema]) -> str:
    """Say which arguments belong together, where each choice names some."""
    sets = [", ".join(required_names(part) or list(dict(mapped(part, ("properties",))))) for part in parts[:20]]
    how = "give exactly one of these sets of arguments" if keyword == "oneOf" else "give one of these sets of arguments"
    return f"{how}: " + "; ".join(f"({each})" for each in sets)


def _brief(schema: Json) -> str:
    return str(schema.get("type") or "any value") if isinstance(schema, dict) else "any value"


def _text_of(schema: Schema) -> str | None:
    text = schema.get("description")
    return text if isinstance(text, str) else None


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# --- Gemini's Schema object ---


def _schema_object(schema: Schema) -> Schema:
    """Write a schema in the members of Gemini's Schema object."""
    result: Schema = {}
    value: Any
    for keyword, name in _SCHEMA_OBJECT.items():
        if keyword not in schema:
            continue
        value = schema[keyword]
        match keyword:
            case "properties":
                value = {member: _schema_object(part) for member, part in value.items()}
            case "items":
                value = _schema_object(value)
            case "anyOf":
                choices = [each for each in value if each.get("type") != "null"]
                if len(choices) < len(value):
                    result["nullable"] = True
                value = [_schema_object(each) for each in choices]
        result[name] = value
    written = result.get("any_of")
    if isinstance(written, list) and len(written) < 2:
        del result["any_of"]
        result = {**(written[0] if written else {}), **result}
    kind = schema.get("type")
    if kind == "null":
        return {"type": "STRING", "nullable": True, "description": "null"}
    if isinstance(kind, str):
        result["type"] = kind.upper()
    elif "type" not in result and "any_of" not in result:
        # There is no schema for any value.
        result["any_of"] = [{"type": "STRING"}, {"type": "NUMBER"}, {"type": "BOOLEAN"}]
    if "any_of" in result and "description" in result:
        first, *rest = result["any_of"]
        result["any_of"] = [{"description": result.pop("description"), **first}, *rest]
    if result.get("properties") == {}:
        del result["properties"]
    return result


# --- Strict mode ---


def make_strict(schema: Schema, *, is_nullable: bool) -> Schema:
    """Write a converted schema for strict mode; raise `NotStrict` with the reason where that cannot be done.

    With `is_nullable` every member is required, and null stands for one that is left out.
    """
    strict = _Strict(schema, is_nullable)
    written: Schema = strict.write(schema, "", 1)
    strict.check_limits()
    in_order: Schema = sort_keys(written)
    return in_order


# Rules that strict modes do not take, and that a description can say as well.
_SAID_IN_STRICT: Final = (
    "default", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "examples",
    "contentEncoding", "contentMediaType", "deprecated",
)  # fmt: skip
# Further ones of Anthropic's.
_SAID_TO_ANTHROPIC: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "pattern",
)  # fmt: skip
_NOT_STRICT: Final = (
    "oneOf", "allOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "dependentRequired",
    "dependencies", "propertyNames", "prefixItems", "contains", "unevaluatedProperties", "unevaluatedItems",
    "$dynamicRef", "additionalItems",
)  # fmt: skip


class _Strict:
    def __init__(self, root: Schema, is_nullable: bool) -> None:
        self._root = root
        self._is_nullable = is_nullable
        self._properties = 0
        self._values = 0
        self._characters = 0
        self._depth = 0

    def check_limits(self) -> None:
        limits = STRICT_LIMITS
        for what, found, most in (
            ("levels", self._depth, limits.depth),
            ("properties", self._properties, limits.properties),
            ("choices", self._values, limits.enum_values),
            ("characters of names and choices", self._characters, limits.name_characters),
        ):
            if found > most:
                raise NotStrict(f"it has {found:,} {what}, and strict mode takes {most:,}")

    def write(self, schema: Json, path: str, depth: int) -> Json:
        where = path or "the arguments"
        if not isinstance(schema, dict):
            raise NotStrict(f"{where} may be any value")
        if depth > MAX_DEPTH:
            raise NotStrict("it is too deep")
        for keyword in _NOT_STRICT:
            if keyword in schema:
                raise NotStrict(f"{where} uses {keyword}")
        if isinstance(reference := schema.get("$ref"), str):
            if not reference.startswith("#") or at_reference(self._root, reference) is None:
                raise NotStrict(f"{where} refers to {reference[:100]}")
            if not self._is_nullable and self._leads_back(reference, frozenset()):
                raise NotStrict(f"{where} refers to itself")
            return {"$ref": reference}
        if not path and "anyOf" in schema:
            raise NotStrict("its top is a choice")
        if not schema.keys() & {"type", "anyOf", "enum", "const"}:
            raise NotStrict(f"{where} may be any value")
        kinds = schema.get("type")
        is_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
        self._depth = max(self._depth, depth if is_object or kinds == "array" else 0)
        result: Schema = {}
        notes: list[str] = []
        for keyword, value in schema.items():
            match keyword:
                case "properties" | "required" | "additionalProperties":
                    pass
                case "$defs" | "definitions":
                    result[keyword] = {
                        name: self.write(part, f"{keyword} {name}", depth) for name, part in value.items()
                    }
                    self._characters += sum(map(len, value))
                case "items":
                    result[keyword] = self.write(value, f"{path}/items", depth + 1)
                case "anyOf":
                    result[keyword] = [self.write(choice, path or "/", depth) for choice in value]
                case "enum":
                    self._values += len(value)
                    self._characters += sum(len(each) for each in value if isinstance(each, str))
                    result[keyword] = value
                case "format" if value not in STRING_FORMATS:
                    notes.append(f"format {value}")
                case _ if keyword in _SAID_IN_STRICT or (not self._is_nullable and keyword in _SAID_TO_ANTHROPIC):
                    notes.append(_say(keyword, value))
                case _:
                    result[keyword] = value
        if is_object:
            self._write_object(schema, result, path, depth)
        if kinds == "array" and "items" not in result:
            raise NotStrict(f"{where} has items of any kind")
        if notes:
            result["description"] = add_notes(_text_of(result), notes)
        return result

    def _leads_back(self, reference: str, above: frozenset[str]) -> bool:
        if reference in above:
            return True
        return any(
            self._leads_back(each, above | {reference})
            for each in _references(at_reference(self._root, reference), 0)
            if each.startswith("#")
        )

    def _write_object(self, schema: Schema, result: Schema, path: str, depth: int) -> None:
        properties = schema.get("properties")
        more = schema.get("additionalProperties")
        where = path or "the arguments"
        if isinstance(more, dict):
            raise NotStrict(f"{where} has members of any name")
        if (more is True or (more is None and path)) and not properties:
            raise NotStrict(f"{where} is an object of any members")
        required = required_names(schema)
        members: Schema = {}
        for name, member in (properties or {}).items():
            self._properties += 1
            self._characters += len(name)
            written = self.write(member, f"{path}/{_escape(name)}", depth + 1)
            is_optional = name not in required and self._is_nullable
            members[name] = self._or_null(member, written) if is_optional else written
        result["properties"] = members
        result["additionalProperties"] = False
        result["required"] = list(members) if self._is_nullable else required
        if not result["required"]:
            del result["required"]
        if self._is_nullable:
            result["required"] = list(members)

    def _or_null(self, member: Json, written: Schema) -> Schema:
        if takes_null(member, self._root):
            return written
        around: Schema = {key: written[key] for key in ("title", "description") if key in written}
        rest = {key: value for key, value in written.items() if key not in around}
        kinds = rest.get("type")
        if isinstance(rest.get("anyOf"), list):
            return {**around, **rest, "anyOf": [*rest["anyOf"], NULL]}
        if isinstance(rest.get("enum"), list):
            rest["enum"] = [*rest["enum"], None]
        if "const" in rest:
            rest["enum"] = [rest.pop("const"), None]
        if isinstance(kinds, str) and kinds not in ("object", "array"):
            return {**around, **rest, "type": [kinds, "null"]}
        if isinstance(kinds, list):
            return {**around, **rest, "type": [*kinds, "null"]}
        if "enum" in rest:
            return {**around, **rest}
        return {**around, "anyOf": [rest, NULL]}


def _references(schema: Json, depth: int) -> Iterable[str]:
    """Yield the references anywhere in a schema."""
    if depth > MAX_DEPTH:
        return
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part, depth + 1)
    elif isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference
        for part in schema.values():
            yield from _references(part, depth + 1)


# --- Arguments on their way back ---


def restore_arguments(arguments: Json, schema: Schema, rules: SchemaRules, *, renamed: bool, is_strict: bool) -> Json:
    """Return the arguments that a model wrote for a converted schema, as the tool takes them."""
    if renamed and rules.properties is not None:
        arguments = _restore_names(arguments, [schema], schema, rules.properties, 0)
    restored: Json = without_needless_nulls(arguments, schema) if is_strict else arguments
    return restored


def _restore_names(value: Json, candidates: list[Json], root: Schema, rule: NameRule, depth: int) -> Json:
    if depth > MAX_DEPTH or not isinstance(value, (dict, list)):
        return value
    found = _all_parts(candidates, root)
    if isinstance(value, list):
        items = [part for each in found for part in listed(each, ("prefixItems", "items"))]
        items += [each["items"] for each in found if isinstance(each.get("items"), dict)]
        return [_restore_names(item, items, root, rule, depth + 1) for item in value]
    originals: dict[str, str] = {}
    members: dict[str, list[Json]] = {}
    for each in found:
        properties = dict(mapped(each, ("properties",)))
        for name, legal in legal_names(properties, rule).items():
            originals.setdefault(legal, name)
            members.setdefault(name, []).append(properties[name])
    rest = [each["additionalProperties"] for each in found if isinstance(each.get("additionalProperties"), dict)]
    restored: dict[str, Json] = {}
    for key, member in dict[str, Json](value).items():
        original = originals.get(key, key)
        restored[original] = _restore_names(member, members.get(original, rest), root, rule, depth + 1)
    return restored


def _all_parts(candidates: list[Json], root: Schema) -> list[Schema]:
    """Return the subschemas that may judge a value, references followed."""
    found: dict[int, Schema] = {}
    waiting = list(candidates)
    while waiting and len(found) < 1_000:
        schema = waiting.pop(0)
        if not isinstance(schema, dict) or id(schema) in found:
            continue
        found[id(schema)] = schema
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
            waiting.append(at_reference(root, reference))
        waiting += listed(schema, _TOP_CHOICES)
    return list(found.values())
