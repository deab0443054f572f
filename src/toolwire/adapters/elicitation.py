"""Types as forms: the flat schema for a question, and reading the answer."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from toolwire import schemas
from toolwire.adapters.annotations import NO_NAMES, Namespace, type_name
from toolwire.adapters.base import Adapter
from toolwire.adapters.choosing import adapter
from toolwire.adapters.nodes import ArrayNode, DescribedNode, LeafNode, RecordNode, UnionNode
from toolwire.schemas import Invalid, Json, Problem, Schema

_FORM_FORMATS: Final = ("email", "uri", "date", "date-time")
_FORM_KEYWORDS: Final = {
    "string": ("title", "description", "minLength", "maxLength", "format", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
}
_FORM_RULE: Final = (
    "a form asks for a bool, int, float, str, date, datetime, Enum or Literal of strings, a list of such an Enum or "
    "Literal, or a dataclass, TypedDict, Struct or pydantic model whose members are these"
)


def elicitation_schema(tp: Any, *, namespace: Namespace = NO_NAMES) -> tuple[Schema, Callable[[Json], Any]]:
    """Return the form that asks for a type, and the function that reads answers.

    2025-06-18 client/elicitation onwards: a flat object of primitive members; 2025-11-25 adds lists of choices. One
    value alone is asked for as the member `value`. The function raises `Invalid` for an answer that does not fit.
    """
    reader = adapter(tp, namespace=namespace)
    schema = reader.schema("input")
    if schema.get("type") == "object" and "properties" in schema:
        titles = _member_titles(reader)
        members = schema["properties"]
        required = [name for name in schema.get("required", ()) if not _is_nullable(members[name])]
        form = {
            "type": "object",
            "properties": {
                name: _form_member(member, titles.get(name, {}), name, tp) for name, member in members.items()
            },
        }
        return ({**form, "required": required} if required else form), _whole_answer(reader, members)
    member = _form_member(schema, _titles(getattr(reader, "root", None)), "value", tp)
    form = {"type": "object", "properties": {"value": member}}
    if "default" not in member and not _is_nullable(schema):
        form["required"] = ["value"]
    return form, _single_answer(reader)


def _whole_answer(reader: Adapter, members: Schema) -> Callable[[Json], Any]:
    def unpack(content: Json) -> Any:
        return reader.decode_lenient(_content(content, members))

    return unpack


def _single_answer(reader: Adapter) -> Callable[[Json], Any]:
    def unpack(content: Json) -> Any:
        answer = msgspec.json.decode(_content(content, {"value": {}}))
        try:
            return reader.decode_lenient(msgspec.json.encode(answer.get("value")))
        except Invalid as error:
            raise Invalid(
                [Problem(("value", *path), message, kind) for path, message, kind in error.problems]
            ) from None

    return unpack


def _content(content: Json, members: Schema) -> bytes:
    plain = msgspec.json.decode(content) if isinstance(content, (bytes, msgspec.Raw)) else content
    if not isinstance(plain, dict):
        raise Invalid([Problem((), "expected an object")])
    # A form that was left blank comes back as null from some clients; that is the same as leaving it out.
    return msgspec.json.encode({k: v for k, v in plain.items() if v is not None or _is_nullable(members.get(k))})


def _is_nullable(member: Json) -> bool:
    return isinstance(member, dict) and {"type": "null"} in member.get("anyOf", ())


def _form_member(member: Schema, titles: dict[Any, str], name: str, tp: Any) -> Schema:
    member = cast(
        Schema, schemas.without_optional_null({"type": "object", "properties": {"it": member}})["properties"]["it"]
    )
    kind = member.get("type")
    text: Schema = {key: member[key] for key in ("title", "description") if key in member}
    default = {"default": member["default"]} if "default" in member else {}
    if isinstance(values := member.get("enum"), list) and all(isinstance(value, str) for value in values):
        if titles:
            return {"type": "string", **text, "oneOf": _titled(values, titles), **default}
        return {"type": "string", **text, "enum": values, **default}
    if kind == "array" and isinstance(item := member.get("items"), dict):
        choices = item.get("enum")
        if isinstance(choices, list) and all(isinstance(value, str) for value in choices):
            counts: Schema = {key: member[key] for key in ("minItems", "maxItems") if key in member}
            items = {"anyOf": _titled(choices, titles)} if titles else {"type": "string", "enum": choices}
            return {"type": "array", **text, **counts, "items": items, **default}
    if "enum" in member or kind not in _FORM_KEYWORDS:
        raise TypeError(f"{type_name(tp)} cannot be asked for (member {name!r}): {_FORM_RULE}")
    form = {"type": kind, **{key: member[key] for key in _FORM_KEYWORDS[kind] if key in member}}
    if form.get("format") not in _FORM_FORMATS:
        form.pop("format", None)
    if kind == "integer":
        if "exclusiveMinimum" in member:
            form["minimum"] = member["exclusiveMinimum"] + 1
        if "exclusiveMaximum" in member:
            form["maximum"] = member["exclusiveMaximum"] - 1
    return form


def _titled(values: list[str], titles: dict[Any, str]) -> list[Schema]:
    return [{"const": value, "title": titles.get(value, value)} for value in values]


def _member_titles(reader: Adapter) -> dict[str, dict[Any, str]]:
    node: Any = getattr(reader, "root", None)
    while isinstance(node, DescribedNode):
        node = node.inner
    return {field.name: _titles(field.node) for field in node.fields} if isinstance(node, RecordNode) else {}


def _titles(node: Any) -> dict[Any, str]:
    """Names for the values of an Enum, where they say more than the values do."""
    if isinstance(node, ArrayNode):
        return _titles(node.item)
    if isinstance(node, UnionNode):
        return next((found for member in node.members if (found := _titles(member))), {})
    if not (isinstance(node, LeafNode) and isinstance(node.tp, type) and issubclass(node.tp, enum.Enum)):
        return {}
    titles = {member.value: member.name.replace("_", " ").strip().capitalize() for member in node.tp}
    telling = any(str(value).replace("_", " ").casefold() != title.casefold() for value, title in titles.items())
    return titles if telling else {}
