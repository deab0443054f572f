"""Schemas in the strict modes of OpenAI and Anthropic, which check arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolwire.agents.schema_conversion import sort_keys, steps_for
from toolwire.agents.schema_words import escape, say_rule, text_of
from toolwire.agents.vendors import STRICT_LIMITS, STRING_FORMATS
from toolwire.protocol.steps import Steps, TooManySteps
from toolwire.schemas import MAX_DEPTH
from toolwire.schemas.nulls import NULL, takes_null
from toolwire.schemas.vendor_schemas import add_notes
from toolwire.schemas.walking import Json, Schema, at_reference, required_names


class NotStrict(ValueError):
    """The schema cannot be written for strict mode. The text says why."""


def make_strict(schema: Schema, *, is_nullable: bool) -> Schema:
    """Write a converted schema for strict mode; raise `NotStrict` where that cannot be done.

    With `is_nullable` every member is required, and null stands for one that is left out.
    """
    try:
        strict = _Strict(schema, is_nullable, Steps(steps_for(schema)))
        written: Schema = strict.write(schema, "", 1)
        strict.check_limits()
        in_order: Schema = sort_keys(written)
    except (TooManySteps, RecursionError):
        raise NotStrict("it is too large, or too much work to read") from None
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
    def __init__(self, root: Schema, is_nullable: bool, steps: Steps) -> None:
        self._root = root
        self._steps = steps
        # Whether what references lead to leads back to itself, by its identity; None while that is looked for.
        self._is_circular: dict[int, bool | None] = {}
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
        self._steps.spend(1 + (len(path) >> 4))
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
            if not self._is_nullable and self._leads_back(reference):
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
                    notes.append(say_rule(keyword, value))
                case _:
                    result[keyword] = value
        if is_object:
            self._write_object(schema, result, path, depth)
        if kinds == "array" and "items" not in result:
            raise NotStrict(f"{where} has items of any kind")
        if notes:
            result["description"] = add_notes(text_of(result), notes)
        return result

    def _leads_back(self, reference: str) -> bool:
        """Return whether a reference leads to one that leads back to itself."""
        target = at_reference(self._root, reference)
        known = self._is_circular.get(id(target), False)
        if id(target) in self._is_circular:
            return known is None or known
        self._is_circular[id(target)] = None
        found = any(self._leads_back(each) for each in self._references(target, 0) if each.startswith("#"))
        self._is_circular[id(target)] = found
        return found

    def _references(self, schema: Json, depth: int) -> Iterable[str]:
        """Yield the references anywhere in a schema."""
        self._steps.spend()
        if depth > MAX_DEPTH:
            return
        if isinstance(schema, list):
            for part in schema:
                yield from self._references(part, depth + 1)
        elif isinstance(schema, dict):
            if isinstance(reference := schema.get("$ref"), str):
                self._steps.spend(len(reference) >> 6)
                yield reference
            for part in schema.values():
                yield from self._references(part, depth + 1)

    def _write_object(self, schema: Schema, result: Schema, path: str, depth: int) -> None:
        properties = schema.get("properties")
        more = schema.get("additionalProperties")
        where = path or "the arguments"
        if isinstance(more, dict):
            raise NotStrict(f"{where} has members of any name")
        if (more is True or (more is None and path)) and not properties:
            raise NotStrict(f"{where} is an object of any members")
        required = required_names(schema)
        is_required = frozenset(required)
        members: Schema = {}
        for name, member in (properties or {}).items():
            self._properties += 1
            self._characters += len(name)
            written = self.write(member, f"{path}/{escape(name)}", depth + 1)
            is_optional = name not in is_required and self._is_nullable
            members[name] = self._or_null(member, written) if is_optional else written
        result["properties"] = members
        result["additionalProperties"] = False
        result["required"] = list(members) if self._is_nullable else required
        if not result["required"]:
            del result["required"]
        if self._is_nullable:
            result["required"] = list(members)

    def _or_null(self, member: Json, written: Schema) -> Schema:
        if takes_null(member, self._root, self._steps):
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
