"""Python types of written code: JSON Schemas as type expressions, their objects as `TypedDict`.

A `TypedDict` keeps the names that JSON has. Types of arguments are exact. Types of answers are loose, as the published
schemas are: every member may be missing, and a text with known values is any text, because APIs answer what their
descriptions do not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from toolwire.openapi.code.code_names import PythonNames, class_name, is_member_name
from toolwire.openapi.code.code_texts import one_line, quoted
from toolwire.openapi.definition.json_schemas import JsonSchemas
from toolwire.openapi.definition.schema_definitions import target_of
from toolwire.schemas.walking import Schema

#: Names that the expressions use, which no class may have.
USED_NAMES: Final = (
    "Any", "Annotated", "Literal", "NotRequired", "TypeAlias", "TypedDict",
    "bool", "dict", "float", "int", "list", "str",
)  # fmt: skip
_ANY: Final = {"any": "Any"}
_OBJECT: Final = "dict[str, Any]"
_SIMPLE_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ORDER: Final = ("object", "list", "str", "float", "int", "bool", "None")
_MAX_DEPTH: Final = 24
_MAX_VALUES: Final = 200
_LONG_LITERAL: Final = 60
_MAX_TEXT: Final = 300

#: The texts of a type by kind: `{"str": "str", "None": "None"}`.
Kinds = dict[str, str]


class WrittenType(Struct, frozen=True):
    """A class or an alias of the written module."""

    name: str
    lines: tuple[str, ...]


class TypeWriter:
    """Writes the types of one module.

    `names` are those of its classes; several writers may share them.
    """

    def __init__(self, schemas: JsonSchemas, names: PythonNames, *, is_input: bool) -> None:
        self._schemas = schemas
        self._names = names
        self._is_input = is_input
        self._of_definition: dict[str, Kinds] = {}
        self._parts: dict[str, Schema] = {}
        self._reading: set[str] = set()
        self._written: dict[str, WrittenType | None] = {}

    @property
    def written(self) -> list[WrittenType]:
        """Return the classes and aliases so far, in the order in which they were needed."""
        return [each for each in self._written.values() if each is not None]

    def expression(self, schema: Any, hint: str) -> str:
        """Return the type of a value.

        `hint` is a name for an object that has none.
        """
        return text_of(self._kinds(schema, hint, 0))

    # -- Kinds of values -----------------------------------------------------------------------------------------------

    def _kinds(self, schema: Any, hint: str, depth: int) -> Kinds:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return _ANY
        if (name := target_of(schema)) is not None:
            return self._reference_kinds(name, depth)
        if "const" in schema or isinstance(schema.get("enum"), list):
            return self._values(schema, hint)
        for keyword in ("anyOf", "oneOf"):
            choices = schema.get(keyword)
            if isinstance(choices, list) and choices and "properties" not in schema:
                found = [self._kinds(each, f"{hint}{at}", depth + 1) for at, each in enumerate(choices, 1)]
                return united(found)
        if isinstance(schema.get("allOf"), list):
            schema = self._merged(schema, depth)
        kinds = schema.get("type")
        if kinds is None:
            kinds = "object" if "properties" in schema else "array" if "items" in schema else None
        if isinstance(kinds, list):
            return united([self._type_kinds(kind, schema, hint, depth) for kind in kinds])
        return self._type_kinds(kinds, schema, hint, depth)

    def _type_kinds(self, kind: Any, schema: Schema, hint: str, depth: int) -> Kinds:
        if kind == "object":
            return {"object": self._object(schema, hint, depth)}
        if kind == "array":
            items = self._kinds(schema.get("items"), f"{hint}Item", depth + 1)
            return {"list": f"list[{text_of(items)}]"}
        plain = _SIMPLE_TYPES.get(kind) if isinstance(kind, str) else None
        return _ANY if plain is None else {plain: plain}

    def _reference_kinds(self, name: str, depth: int) -> Kinds:
        found = self._of_definition.get(name)
        if found is not None:
            return found
        if name in self._reading:
            return _ANY  # A definition that is not an object contains itself.
        content = self._schemas.definition(name).schema
        hint = class_name(name, "Model")
        if self._is_object(content):
            found = self._of_definition[name] = {"object": self._reserved(hint)}
            self._write_object(found["object"], self._whole(content, depth), depth)
            return found
        self._reading.add(name)
        try:
            found = self._of_definition[name] = self._kinds(content, hint, depth + 1)
        finally:
            self._reading.discard(name)
        return found

    def _values(self, schema: Schema, hint: str) -> Kinds:
        values = [schema["const"]] if "const" in schema else _distinct(schema["enum"])
        found: list[Kinds] = []
        for value in values:
            kind = next(kind for types, kind in _PYTHON_KINDS if isinstance(value, types))
            is_literal = self._is_input and kind in ("str", "int") and len(values) <= _MAX_VALUES
            text = (quoted(value) if kind == "str" else str(value)) if is_literal else ""
            found.append({kind: f"Literal[{text}]" if is_literal else _PLAIN.get(kind, kind)})
        kinds = united(found)
        if len(kinds.get("str", "")) > _LONG_LITERAL:
            kinds = {**kinds, "str": self._alias(kinds["str"], hint)}
        return kinds

    # -- Objects -------------------------------------------------------------------------------------------------------

    def _is_object(self, schema: Schema) -> bool:
        """Return whether a schema describes an object with members of its own."""
        if any(keyword in schema for keyword in ("const", "enum", "anyOf", "oneOf")) and "properties" not in schema:
            return False
        if isinstance(schema.get("allOf"), list):
            return bool(_members(self._merged(schema, 0)))
        return schema.get("type", "object") == "object" and bool(_members(schema))

    def _whole(self, schema: Schema, depth: int) -> Schema:
        return self._merged(schema, depth) if isinstance(schema.get("allOf"), list) else schema

    def _object(self, schema: Schema, hint: str, depth: int) -> str:
        members, rest = _members(schema), schema.get("additionalProperties")
        if not members:
            if not isinstance(rest, dict):
                return _OBJECT
            return f"dict[str, {text_of(self._kinds(rest, f'{hint}Value', depth + 1))}]"
        if isinstance(rest, dict) and rest:
            return _OBJECT  # A TypedDict has only its own members.
        name = self._reserved(hint)
        self._write_object(name, schema, depth)
        return name

    def _reserved(self, hint: str) -> str:
        wanted = class_name(hint, "Model")
        name = self._names.reserve(f"{wanted}Input" if self._is_input and self._names.has(wanted) else wanted)
        self._written[name] = None
        return name

    def _write_object(self, name: str, schema: Schema, depth: int) -> None:
        required = schema.get("required")
        needed = {each for each in required if isinstance(each, str)} if isinstance(required, list) else set()
        needed = needed if self._is_input else set()
        is_total = bool(needed)
        members: dict[str, str] = {}
        for key, member in _members(schema).items():
            text = self.expression_below(member, f"{name}{class_name(key, 'Member')}", depth)
            said = _described(member) if self._is_input else ""
            text = f"Annotated[{text}, {quoted(said)}]" if said else text
            members[key] = text if key in needed or not is_total else f"NotRequired[{text}]"
        self._written[name] = WrittenType(name, tuple(_typed_dict(name, members, is_total)))

    def expression_below(self, schema: Any, hint: str, depth: int) -> str:
        return text_of(self._kinds(schema, hint, depth + 1))

    def _merged(self, schema: Schema, depth: int) -> Schema:
        """Return a schema whose members are those of all parts of `allOf`."""
        parts = [schema, *(self._part(each, depth) for each in schema["allOf"] if isinstance(each, dict))]
        members: dict[str, Any] = {}
        required: list[str] = []
        kinds: list[Any] = []
        for part in parts:
            members.update(_members(part))
            required += part["required"] if isinstance(part.get("required"), list) else []
            kinds += [part["type"]] if "type" in part else []
        merged = {key: value for key, value in schema.items() if key not in ("allOf", "properties", "required")}
        if members:
            return {**merged, "type": "object", "properties": members, "required": list(dict.fromkeys(required))}
        if len(parts) == 2:
            return {**parts[1], **merged}
        return {**merged, "type": kinds[0]} if kinds and all(kind == kinds[0] for kind in kinds) else merged

    def _part(self, schema: Schema, depth: int) -> Schema:
        """Return a part of `allOf` with the members of its parts, merged once per definition."""
        name = target_of(schema) if len(schema) == 1 else None
        known = None if name is None else self._parts.get(name)
        if known is None:
            known = self._schemas.content(schema) if depth < _MAX_DEPTH else {}
            if name is not None:
                self._parts[name] = known  # While its parts are merged: one of them may lead back to it.
            if depth < _MAX_DEPTH and _has_all(known):
                known = self._merged(known, depth + 1)
            if name is not None:
                self._parts[name] = known
        return known

    def _alias(self, literal: str, hint: str) -> str:
        """Give a long list of values a name."""
        for each in self.written:
            if each.lines[-1] == "]" and "".join(each.lines) == "".join(_literal_lines(each.name, literal)):
                return each.name
        name = self._reserved(hint)
        self._written[name] = WrittenType(name, tuple(_literal_lines(name, literal)))
        return name


_PYTHON_KINDS: Final[tuple[tuple[Any, str], ...]] = (
    (bool, "bool"), (str, "str"), (int, "int"), (float, "float"), (type(None), "None"), (dict, "object"), (list, "list")
)  # fmt: skip
_PLAIN: Final = {"object": _OBJECT, "list": "list[Any]"}
_LITERAL: Final = re.compile(r"Literal\[(.*)\]", re.DOTALL)


def text_of(kinds: Mapping[str, str]) -> str:
    """Return the expression of a type."""
    return " | ".join(kinds[kind] for kind in _ORDER if kind in kinds) or "Any"


def united(found: Iterable[Kinds]) -> Kinds:
    """Return the union of types.

    Only kinds that a reader can distinguish are kept apart.
    """
    result: Kinds = {}
    for kinds in found:
        if "any" in kinds:
            return _ANY
        for kind, text in kinds.items():
            before = result.get(kind)
            result[kind] = text if before is None or before == text else _either(kind, before, text)
    if "float" in result:
        result.pop("int", None)
    return result or _ANY


def _either(kind: str, first: str, second: str) -> str:
    one, other = _LITERAL.fullmatch(first), _LITERAL.fullmatch(second)
    if one is not None and other is not None:
        return f"Literal[{one[1]}, {other[1]}]"
    return {"object": _OBJECT, "list": "list[Any]"}.get(kind, kind)


def _typed_dict(name: str, members: Mapping[str, str], is_total: bool) -> list[str]:
    used = {word for text in members.values() for word in re.findall(r"\w+", text)}
    # In a class, a member hides a type of the same name.
    if all(is_member_name(key) and key not in used for key in members):
        head = f"class {name}(TypedDict):" if is_total else f"class {name}(TypedDict, total=False):"
        return [head, *(f"    {key}: {text}" for key, text in members.items())]
    rows = [f"        {quoted(key)}: {quoted(text)}," for key, text in members.items()]
    end = ["    },"] if is_total else ["    },", "    total=False,"]
    return [f"{name} = TypedDict(", f"    {quoted(name)},", "    {", *rows, *end, ")"]


def _literal_lines(name: str, literal: str) -> list[str]:
    values = re.findall(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?\d+)""", literal)
    return [f"{name}: TypeAlias = Literal[", *(f"    {value}," for value in values), "]"]


def _members(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _distinct(values: list[Any]) -> list[Any]:
    return [value for at, value in enumerate(values) if value not in values[:at] or isinstance(value, bool)]


def _has_all(schema: Schema) -> bool:
    return isinstance(schema.get("allOf"), list)


def _described(schema: Any) -> str:
    said = schema.get("description") if isinstance(schema, dict) else None
    text = one_line(said) if isinstance(said, str) else ""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
