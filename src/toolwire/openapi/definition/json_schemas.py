"""Convert Schema Objects of OpenAPI 3.0 to 3.2 to JSON Schema 2020-12.

A Schema Object is read by position: a property that is called `$ref`, `required` or `enum` is a property. References,
also cycles of them, become `$defs` and local references. Each definition is converted once for all tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from toolwire import schemas
from toolwire.openapi.definition.descriptions import plain_text
from toolwire.openapi.definition.schema_definitions import (
    CUT,
    MAX_NESTING,
    PREFIX,
    InliningBudget,
    SchemaDefinition,
    closed,
    folded,
    in_place,
    measured,
    needed,
    target_of,
    unfolded,
    without_patterns,
)
from toolwire.openapi.definition.schema_merging import ANNOTATIONS, merged
from toolwire.openapi.model import ApiDescription, DescriptionError, Node
from toolwire.schemas.walking import Schema
from toolwire.util.json_pointer import unescape_token

#: `input`: arguments. `output`: answers, as the description has them. `loose`: answers, as they are published.
Use: TypeAlias = Literal["input", "output", "loose"]

_TYPES: Final = frozenset(("null", "boolean", "object", "array", "number", "string", "integer"))
_MAX_CHAIN: Final = 40
#: Schemas that a schema may be composed of by `allOf` and references, and subschemas that a copy may have.
_MAX_PARTS: Final = 1_000
# A cycle of schemas has as many parts as schemas, for each of them.
_MAX_HIDDEN_PARTS: Final = 1_000_000
_MAX_COPIED: Final = 500
_MAX_ENUM: Final = 2_000
_MAX_NAME: Final = 60
# Texts in an answer's schema are read by few clients, and take space in every list.
_MAX_OUTPUT_TEXT: Final = 80


class ConvertedSchema(NamedTuple):
    """A schema with its definitions, and warnings about parts that could not be kept."""

    schema: Schema
    warnings: tuple[str, ...]


class JsonSchemas:
    """The schemas of one description, converted for one use."""

    def __init__(self, description: ApiDescription, use: Use, *, max_description: int = 500) -> None:
        self._description = description
        self._use = use
        self._readers = _SHAPE if use == "loose" else _ALL
        self._hides = "readOnly" if use == "input" else "writeOnly"
        self._max_text = min(max_description, _MAX_OUTPUT_TEXT) if use == "loose" else max_description
        self._names: dict[str, str] = {}
        self._targets: dict[str, tuple[str, Node]] = {}
        self._definitions: dict[str, SchemaDefinition] = {}
        self._converting: set[str] = set()
        self._warnings: dict[str, None] = {}
        self._patterns: dict[tuple[str, int], bool] = {}
        self._hidden: dict[tuple[str, int], bool] = {}
        # How many parts of schemas may still be read to find hidden members.
        self._parts_left = _MAX_HIDDEN_PARTS

    # -- Public methods ------------------------------------------------------------------------------------------------

    def convert(self, node: Node) -> ConvertedSchema:
        """Convert a schema without its definitions. References in it are names of definitions."""
        outer, self._warnings = self._warnings, {}
        try:
            return ConvertedSchema(self._schema(node, 0), tuple(self._warnings))
        finally:
            self._warnings = outer

    def definition(self, name: str) -> SchemaDefinition:
        """Return a definition by its name."""
        found = self._definitions.get(name)
        if found is None:
            self._converting.add(name)
            try:
                schema, warnings = self.convert(self._targets[name][1])
                found = measured(schema, len(msgspec.json.encode(schema)), warnings)
            finally:
                self._converting.discard(name)
            self._definitions[name] = found
        return found

    def content(self, schema: Schema, warnings: list[str] | None = None) -> Schema:
        """Return the content of the definition that a schema refers to at its root.

        A schema without such a reference stays as it is.

        `warnings` gets those of the definition.
        """
        for _ in range(_MAX_CHAIN):
            name = target_of(schema)
            if name is None:
                break
            definition = self.definition(name)
            schema = in_place(schema, definition.schema)
            if warnings is not None:
                warnings += definition.warnings
        return schema

    def closed(
        self, schema: Schema, *, budget: InliningBudget | None = None, depth: int | None = None
    ) -> ConvertedSchema:
        """Add the definitions that a converted schema needs.

        The schema is not a reference itself.

        Definitions of an input schema are written where they are used, as far as possible, because some vendors take
        no reference. With `depth` no reference is left.
        """
        root = measured(schema, len(msgspec.json.encode(schema)))
        found = needed(root, self.definition, budget or InliningBudget())
        warnings = tuple(dict.fromkeys(text for each in found.values() for text in each.warnings))
        if heavy := self._heavy_patterns((root, *found.values())):
            root = without_patterns(root, heavy)
            found = {name: without_patterns(each, heavy) for name, each in found.items()}
            warnings = (*warnings, *(_too_heavy(each) for each in sorted(heavy)))
        if depth is not None:
            return ConvertedSchema(unfolded(root, found, depth), warnings)
        return ConvertedSchema(folded(root, found) if self._use == "input" else closed(root, found), warnings)

    def _heavy_patterns(self, definitions: Iterable[SchemaDefinition]) -> set[str]:
        """Find the regular expressions that exceed the common budget of a schema."""
        patterns = set[str]().union(*(each.patterns for each in definitions))
        # Rounded up, so that an expression is tried for few numbers.
        count = 1 << (len(patterns) - 1).bit_length() if patterns else 0
        return {each for each in patterns if not self._is_usable(each, count)} if count > 1 else set()

    # -- One schema ----------------------------------------------------------------------------------------------------

    def _schema(self, node: Node, nesting: int) -> Schema:
        value = node.value
        if isinstance(value, bool):
            return {} if value or self._use == "loose" else {"not": {}}
        if not isinstance(value, dict):
            self._warn(node, "is not a schema and takes any value")
            return {}
        if nesting > MAX_NESTING:
            return {"description": CUT}
        if "$id" in value and node.document.version != "3.0" and isinstance(value["$id"], str):
            node = Node(value, self._description.scope(node), node.pointer)
        reference = value.get("$ref")
        if reference is None and node.document.version != "3.0":
            reference = value.get("$dynamicRef")
        if not isinstance(reference, str):
            return self._keywords(node, nesting)
        target = {"$ref": PREFIX + self._name_of(reference, node)}
        # OpenAPI 3.0, Reference Object: members beside `$ref` are ignored. 3.1 takes those of JSON Schema.
        beside = {} if node.document.version == "3.0" else self._keywords(node, nesting)
        return {**target, **beside}

    def _keywords(self, node: Node, nesting: int) -> Schema:
        result: Schema = {}
        for keyword, value in node.value.items():
            read = self._readers.get(keyword)
            if read is not None and (value is not None or keyword in ("const", "default")):
                read(self, node, keyword, result, nesting)
        _exclusive_bounds(node.value, result)
        result = self._all_of(node, result, nesting)
        _fit_choices(result)
        if node.value.get("nullable") is True:
            result = _or_null(result)
        return result

    def _below(self, node: Node, key: str, nesting: int) -> Schema:
        return self._schema(node.at(key), nesting + 1)

    def _warn(self, node: Node, text: str) -> None:
        self._warnings[f"{node.label}: {text}"] = None

    # -- Keywords ------------------------------------------------------------------------------------------------------

    def _type(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        written = node.value["type"]
        if written == "file":  # Swagger 2.0
            result.update(type="string", contentEncoding="base64")
            return
        named = written if isinstance(written, list) else [written]
        kinds = [kind for kind in named if isinstance(kind, str) and kind in _TYPES]
        if len(kinds) == 1:
            result["type"] = kinds[0]
        elif kinds:
            result["type"] = list(dict.fromkeys(kinds))
        else:
            self._warn(node, f"the type {str(written)[:40]!r} is unknown, and is left out")

    def _properties(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        properties = node.at("properties")
        if not isinstance(properties.value, dict):
            self._warn(properties, "properties is not an object, and is left out")
            return
        result["properties"] = {
            str(name): self._below(properties, name, nesting)
            for name in properties.value
            if not self._is_hidden(properties.at(name))
        }

    def _required(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        written = node.value["required"]
        if not isinstance(written, list):
            # In drafts before 4 a property said `required: true` of itself.
            if not isinstance(written, bool):
                self._warn(node, "required is not a list, and is left out")
            return
        properties = node.value.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        names = [
            name
            for name in dict.fromkeys(name for name in written if isinstance(name, str))
            if name not in properties or not self._is_hidden(node.at("properties").at(name))
        ]
        if names:
            result["required"] = names

    def _one(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        result[keyword] = self._below(node, keyword, nesting)

    def _items(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        items = node.at("items")
        if isinstance(items.value, list):  # a tuple, as drafts before 2020-12 have it
            if items.value:
                result["prefixItems"] = [
                    self._schema(items.at(index), nesting + 1) for index in range(len(items.value))
                ]
            if isinstance(node.value.get("additionalItems"), (dict, bool)):
                result["items"] = self._below(node, "additionalItems", nesting)
        else:
            result["items"] = self._schema(items, nesting + 1)

    def _list(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        parts = node.at(keyword)
        if not isinstance(parts.value, list) or not parts.value:
            self._warn(parts, f"{keyword} is not a list of schemas, and is left out")
            return
        result[keyword] = [self._schema(parts.at(index), nesting + 1) for index in range(len(parts.value))]

    def _choice(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        self._list(node, keyword, result, nesting)
        choices = result.pop(keyword, None)
        if choices is None:
            return
        discriminator = node.value.get("discriminator")
        is_exact = self._use == "input"
        if isinstance(discriminator, dict) and self._use != "loose":
            choices, is_exact = self._discriminated(node, keyword, choices, discriminator, is_exact)
        # `oneOf` whose schemas overlap refuses answers that are right.
        written = "oneOf" if keyword == "oneOf" and is_exact else "anyOf"
        if written in result:
            result.setdefault("allOf", []).append({written: choices})
        else:
            result[written] = choices

    def _map(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        parts = node.at(keyword)
        if not isinstance(parts.value, dict):
            self._warn(parts, f"{keyword} is not an object, and is left out")
            return
        names = list(parts.value)
        if keyword == "patternProperties":
            names = [name for name in names if self._is_pattern(name, parts)]
        result[keyword] = {str(name): self._below(parts, name, nesting) for name in names}

    def _additional(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        value = node.value["additionalProperties"]
        if isinstance(value, bool):
            if not value and self._use != "loose":
                result["additionalProperties"] = False
            elif value and self._use == "input":
                result["additionalProperties"] = True
        elif isinstance(value, dict):
            result["additionalProperties"] = self._below(node, keyword, nesting)

    def _dependencies(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        parts = node.at("dependencies")  # draft 7
        for name, value in parts.value.items() if isinstance(parts.value, dict) else ():
            if isinstance(value, list):
                result.setdefault("dependentRequired", {})[name] = [each for each in value if isinstance(each, str)]
            else:
                result.setdefault("dependentSchemas", {})[name] = self._below(parts, name, nesting)

    def _dependent_required(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        value = node.value["dependentRequired"]
        if isinstance(value, dict):
            result["dependentRequired"] = {
                name: list(dict.fromkeys(each for each in names if isinstance(each, str)))
                for name, names in value.items()
                if isinstance(names, list)
            }

    def _enum(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        value = node.value["enum"]
        if not isinstance(value, list) or not value:
            self._warn(node, "enum has no values, and is left out")
        elif len(value) > _MAX_ENUM:
            self._warn(node, f"enum has {len(value):,} values, and is left out")
        else:
            result["enum"] = list(value)

    def _const(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        result["const"] = node.value["const"]

    def _number(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        value = node.value[keyword]
        if not _is_number(value) or (keyword == "multipleOf" and value <= 0):
            self._warn(node, f"{keyword} is not a number, and is left out")
        else:
            result[keyword] = value

    def _exclusive(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if not isinstance(node.value[keyword], bool):
            self._number(node, keyword, result, nesting)

    def _count(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        value = node.value[keyword]
        if not _is_number(value) or value < 0 or value != int(value):
            self._warn(node, f"{keyword} is not a whole number, and is left out")
        elif value < 1 << 53:
            result[keyword] = int(value)

    def _pattern(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if self._is_pattern(node.value["pattern"], node):
            result["pattern"] = node.value["pattern"]

    def _is_pattern(self, pattern: Any, node: Node) -> bool:
        if not isinstance(pattern, str):
            self._warn(node, "the pattern is not a text, and is left out")
            return False
        is_usable = self._is_usable(pattern, 1)
        if not is_usable:
            self._warn(node, f"the pattern {pattern[:60]!r} is not a usable regular expression, and is left out")
        return is_usable

    def _is_usable(self, pattern: str, count: int) -> bool:
        known = self._patterns.get((pattern, count))
        if known is None:
            known = self._patterns[pattern, count] = schemas.is_usable_pattern(pattern, count)
        return known

    def _switch(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if node.value[keyword] is True:
            result[keyword] = True

    def _format(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        written = node.value["format"]
        if not isinstance(written, str):
            return
        if written in ("binary", "byte") and node.value.get("type", "string") in ("string", ["string", "null"]):
            # Bytes in JSON are text, and the schema says how they are written.
            result["contentEncoding"] = "base64"
        else:
            result["format"] = written

    def _text(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if isinstance(node.value[keyword], str) and node.value[keyword]:
            result[keyword] = node.value[keyword]

    def _describe(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if self._use != "output" and isinstance(node.value["description"], str):
            text = plain_text(node.value["description"], self._max_text)
            if text:
                result["description"] = text

    def _default(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if self._use == "input":
            result["default"] = node.value["default"]

    def _write_only(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        # Such a value is a secret, which no record shows. What is published does not have the keyword.
        if self._use == "input" and node.value["writeOnly"] is True:
            result["writeOnly"] = True

    def _deprecated(self, node: Node, keyword: str, result: Schema, nesting: int) -> None:
        if self._use == "input" and node.value["deprecated"] is True:
            result["deprecated"] = True

    # -- References ----------------------------------------------------------------------------------------------------

    def _name_of(self, reference: str, node: Node) -> str:
        """Return the name of the definition that a reference leads to."""
        canonical, target = self._description.referenced(reference, node.document)
        name = self._names.get(canonical)
        if name is None:
            name = _free_name(canonical, self._targets)
            self._names[canonical] = name
            self._targets[name] = (canonical, target)
        return name

    # -- allOf ---------------------------------------------------------------------------------------------------------

    def _all_of(self, node: Node, own: Schema, nesting: int) -> Schema:
        """Merge the schemas of `allOf` where that is exact; keep the remaining ones."""
        if "allOf" not in node.value:
            return own
        parts = own.pop("allOf", [])
        self._list(node, "allOf", own, nesting)
        parts = [*parts, *own.pop("allOf", [])]
        if len(parts) == 1 and set(parts[0]) == {"$ref"} and own.keys() <= ANNOTATIONS:
            return {**parts[0], **own}
        hidden = self._hidden_names(node)
        result, kept = own, []
        for part in parts:
            content = self._content_to_merge(part)
            both = None if content is None else merged(result, content)
            if both is not None:
                result = both
            elif content is not None and hidden.intersection(content.get("required", ())):
                kept.append(_without_required(content, hidden))
            else:
                kept.append(part)
        result = _without_required(result, hidden)
        if kept:
            result = {**result, "allOf": [*result.get("allOf", []), *kept]}
        return result

    def _content_to_merge(self, part: Schema) -> Schema | None:
        """Return the content of a schema.

        None for a definition that is being made, for a long chain of definitions, and for a large definition: a schema
        that copies the one before it twice would double with each level.
        """
        name = target_of(part)
        if name is None:
            return part
        if len(part) > 1 or name in self._converting or len(self._converting) > _MAX_CHAIN:
            return None
        definition = self.definition(name)
        if "$ref" in definition.schema or definition.subschemas > _MAX_COPIED:
            return None
        self._warnings.update(dict.fromkeys(definition.warnings))
        return definition.schema

    # -- readOnly and writeOnly ----------------------------------------------------------------------------------------

    def _is_hidden(self, node: Node) -> bool:
        """Return whether a property is hidden: `readOnly` for input, `writeOnly` for output."""
        # A reference is as hidden as its target, which many members name.
        reference = node.value.get("$ref") if isinstance(node.value, dict) else None
        if isinstance(reference, str) and (node.document.version == "3.0" or self._hides not in node.value):
            node = self._description.referenced(reference, node.document)[1]
        known = node.document.uri, id(node.value)
        found = self._hidden.get(known)
        if found is None:
            found = self._hidden[known] = any(
                # OpenAPI 3.0, Reference Object: members beside `$ref` are ignored.
                part.value.get(self._hides) is True
                and not (part.document.version == "3.0" and isinstance(part.value.get("$ref"), str))
                for part in self._composed(node)
            )
        return found

    def _composed(self, node: Node) -> Iterator[Node]:
        """Yield the parts of a schema, and count them for the bound of the description."""
        for part in composed(self._description, node):
            self._parts_left -= 1
            if self._parts_left < 0:
                raise DescriptionError(
                    f"{node.pointer}: the schemas are composed of each other so often that they cannot be read: "
                    "choose fewer operations, or remove cycles of allOf"
                )
            yield part

    def _hidden_names(self, node: Node) -> set[str]:
        """Collect the hidden properties of a schema and of its parts."""
        return {
            name
            for part in self._composed(node)
            if not isinstance(part.value.get("$ref"), str) and isinstance(part.value.get("properties"), dict)
            for name in part.value["properties"]
            if self._is_hidden(part.at("properties").at(name))
        }

    # -- Discriminators ------------------------------------------------------------------------------------------------

    def _discriminated(
        self, node: Node, keyword: str, choices: list[Schema], discriminator: dict[str, Any], is_exact: bool
    ) -> tuple[list[Schema], bool]:
        """Add the discriminator's value to each choice.

        Returns the choices, and whether they exclude each other.
        """
        member = discriminator.get("propertyName")
        if not isinstance(member, str):
            return choices, is_exact
        mapping = discriminator.get("mapping")
        named: dict[str, list[str]] = {}
        for value, target in mapping.items() if isinstance(mapping, dict) else ():
            canonical = self._mapped(target, node)
            if canonical is None:
                self._warn(node, f"the discriminator maps {str(value)[:40]!r} to a schema that does not exist")
            else:
                named.setdefault(canonical, []).append(str(value))
        default = self._mapped(discriminator.get("defaultMapping"), node)  # 3.2
        narrowed: list[Schema] = []
        for choice in choices:
            name = target_of(choice)
            canonical = self._targets[name][0] if name is not None else None
            if name is None or canonical is None or canonical == default:
                narrowed.append(choice)
                continue
            values = named.get(canonical) or [_last_segment(canonical)]
            narrowed.append(self._with_value(choice, member, values, node))
        return narrowed, is_exact and default is None

    def _mapped(self, target: Any, node: Node) -> str | None:
        """Return the canonical name of a schema that a discriminator names or refers to."""
        if not isinstance(target, str):
            return None
        # OpenAPI 3.x, Discriminator Object: a value that is the name of a component is read as one.
        references = [target]
        if re.fullmatch(r"[A-Za-z0-9._-]+", target):
            references.insert(0, f"#/components/schemas/{target}")
        for reference in references:
            try:
                return self._description.referenced(reference, node.document)[0]
            except DescriptionError:
                continue
        return None

    def _with_value(self, choice: Schema, member: str, values: list[str], node: Node) -> Schema:
        content = self._content_to_merge({"$ref": choice["$ref"]})
        own = _member(content, member)
        allowed = own.get("enum", [own["const"]] if "const" in own else None)
        if allowed is not None:
            common = [value for value in values if value in allowed]
            if not common:
                self._warn(node, f"the discriminator {member!r} has a value that the schema itself does not take")
                return choice
            if len(allowed) == len(common):
                return choice
            values = common
        one: Schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
        narrow: Schema = {"type": "object", "properties": {member: one}, "required": [member]}
        if content is not None and "enum" in own:
            content = {**content, "properties": {**content["properties"], member: {**own, **one}}}
            content["properties"][member].pop("enum" if "const" in one else "const", None)
        both = None if content is None else merged(content, narrow)
        return {**choice, **{key: value for key, value in narrow.items() if key != "type"}} if both is None else both


# -- Keywords and their readers ----------------------------------------------------------------------------------------

_Reader: TypeAlias = Callable[[JsonSchemas, Node, str, Schema, int], None]

# What an answer is made of, and no more: see `loose` in `Use`.
_SHAPE: Final[dict[str, _Reader]] = {
    "type": JsonSchemas._type,
    "properties": JsonSchemas._properties,
    "patternProperties": JsonSchemas._map,
    "additionalProperties": JsonSchemas._additional,
    "items": JsonSchemas._items,
    "prefixItems": JsonSchemas._list,
    "anyOf": JsonSchemas._choice,
    "oneOf": JsonSchemas._choice,
    "description": JsonSchemas._describe,
}
_ALL: Final[dict[str, _Reader]] = {
    **_SHAPE,
    "required": JsonSchemas._required,
    "enum": JsonSchemas._enum,
    "const": JsonSchemas._const,
    "format": JsonSchemas._format,
    "pattern": JsonSchemas._pattern,
    "multipleOf": JsonSchemas._number,
    "minimum": JsonSchemas._number,
    "maximum": JsonSchemas._number,
    "exclusiveMinimum": JsonSchemas._exclusive,
    "exclusiveMaximum": JsonSchemas._exclusive,
    "minLength": JsonSchemas._count,
    "maxLength": JsonSchemas._count,
    "minItems": JsonSchemas._count,
    "maxItems": JsonSchemas._count,
    "minProperties": JsonSchemas._count,
    "maxProperties": JsonSchemas._count,
    "minContains": JsonSchemas._count,
    "maxContains": JsonSchemas._count,
    "uniqueItems": JsonSchemas._switch,
    "not": JsonSchemas._one,
    "if": JsonSchemas._one,
    "then": JsonSchemas._one,
    "else": JsonSchemas._one,
    "contains": JsonSchemas._one,
    "propertyNames": JsonSchemas._one,
    "unevaluatedItems": JsonSchemas._one,
    "unevaluatedProperties": JsonSchemas._one,
    "dependentSchemas": JsonSchemas._map,
    "dependentRequired": JsonSchemas._dependent_required,
    "dependencies": JsonSchemas._dependencies,
    "contentEncoding": JsonSchemas._text,
    "contentMediaType": JsonSchemas._text,
    "default": JsonSchemas._default,
    "deprecated": JsonSchemas._deprecated,
    "writeOnly": JsonSchemas._write_only,
}


def _too_heavy(pattern: str) -> str:
    return f"the pattern {pattern[:60]!r} is too large beside the rest of its schema, and is left out"


# -- Small pieces ------------------------------------------------------------------------------------------------------


def composed(description: ApiDescription, node: Node) -> Iterator[Node]:
    """Yield a schema and its parts by `$ref` and `allOf`, each once.

    Two schemas that name the one before them twice would otherwise double the work with each level.
    """
    seen: set[tuple[str, int]] = set()
    waiting = [node]
    while waiting and len(seen) < _MAX_PARTS:
        part = waiting.pop()
        known = part.document.uri, id(part.value)
        if not isinstance(part.value, dict) or known in seen:
            continue
        seen.add(known)
        yield part
        reference = part.value.get("$ref")
        if isinstance(reference, str):
            waiting.append(description.referenced(reference, part.document)[1])
        else:
            waiting += reversed(list(_listed(part, "allOf")))


def _listed(node: Node, keyword: str) -> Iterator[Node]:
    parts = node.value.get(keyword)
    if isinstance(parts, list):
        below = node.at(keyword)
        yield from (below.at(index) for index in range(len(parts)))


def _free_name(canonical: str, taken: dict[str, Any]) -> str:
    """Name a definition by the end of its address.

    If the name is used already, it gets a digest of the address.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", _last_segment(canonical)).strip("_")[:_MAX_NAME] or "schema"
    return name if name not in taken else f"{name}_{sha256(canonical.encode()).hexdigest()[:8]}"


def _last_segment(canonical: str) -> str:
    from urllib.parse import unquote

    address, _, fragment = canonical.partition("#")
    return unescape_token(unquote((fragment or address).rpartition("/")[2]))


def _member(schema: Schema | None, name: str) -> Schema:
    member = (schema or {}).get("properties", {}).get(name)
    return member if isinstance(member, dict) else {}


def _without_required(schema: Schema, names: set[str]) -> Schema:
    required = schema.get("required")
    if not names or not required or not names.intersection(required):
        return schema
    left = [name for name in required if name not in names]
    result = {key: value for key, value in schema.items() if key != "required"}
    return {**result, "required": left} if left else result


def _exclusive_bounds(written: dict[str, Any], result: Schema) -> None:
    """Write `exclusiveMinimum: true` of OpenAPI 3.0 as a bound of its own."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if written.get(exclusive) is True and bound in result:
            result[exclusive] = result.pop(bound)


def _fit_choices(result: Schema) -> None:
    """Convert the values of `enum` to the type of the schema: `1` to `"1"`."""
    kinds, values = result.get("type"), result.get("enum")
    if kinds is None or values is None:
        return
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "string" in kinds:
        fitting = [_as_text(value) if not _is_of(value, kinds) else value for value in values]
    elif "integer" in kinds or "number" in kinds:
        fitting = [_as_number(value) if not _is_of(value, kinds) else value for value in values]
    else:
        return
    result["enum"] = list({msgspec.json.encode(value): value for value in fitting}.values())


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def _as_number(value: Any) -> Any:
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _is_of(value: Any, kinds: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    if value is None:
        return "null" in kinds
    if isinstance(value, str):
        return "string" in kinds
    if isinstance(value, int):
        return "integer" in kinds or "number" in kinds
    if isinstance(value, float):
        return "number" in kinds
    return ("array" if isinstance(value, list) else "object") in kinds


def _or_null(schema: Schema) -> Schema:
    """Let a schema take null as well (OpenAPI 3.0, Schema Object, nullable)."""
    kinds = schema.get("type")
    if kinds is None and not schema.keys() & _JUDGING:
        return schema
    if kinds is None or schema.keys() & _JUDGING:
        inner = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        around = {key: value for key, value in schema.items() if key in ANNOTATIONS}
        return {"anyOf": [inner, {"type": "null"}], **around}
    kinds = kinds if isinstance(kinds, list) else [kinds]
    result = {**schema, "type": kinds if "null" in kinds else [*kinds, "null"]}
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "enum" in result and None not in result["enum"]:
        result["enum"] = [*result["enum"], None]
    return result


# Keywords that judge a value of any type, so that a null would have to please them, too.
_JUDGING: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "if"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
