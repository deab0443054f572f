"""Generated input schemas in the keywords that every vendor of models takes.

Vendors take different parts of JSON Schema, and refuse a tool, or a request with all tools in it, for one keyword too
many. A published schema uses the part that all of them take. It says the rest in words, in the description. The server
checks arguments against the full document, so that nothing is lost but a machine's reading of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from toolwire.schemas.compact import without_optional_null
from toolwire.schemas.nulls import NULL, with_optional_null
from toolwire.schemas.profiles import Profile
from toolwire.schemas.walking import Json, Schema
from toolwire.util.numbers import is_number

# The formats that both OpenAI's strict mode and Anthropic's take; clients of Gemini keep or drop them without loss.
FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_FORMAT_WORDS: Final = {"decimal": "a decimal number", "path": "a path", "uri": "a URI"}
_LOOK_AROUND: Final = re.compile(r"\(\?<?[=!]")


def portable(schema: Schema, profile: Profile = "portable") -> Schema:
    """Rewrite an input schema for publication.

    Keywords that it does not know stay as they are.
    """
    plain: Schema = without_optional_null(schema) if profile == "portable" else with_optional_null(schema)
    published: Schema = _rewritten(plain, inside_definition=False)
    if published.get("type") == "object":
        # OpenAI refuses a tool without `properties`; some agent libraries fail on it.
        published.setdefault("properties", {})
    return published


# -- One subschema ----------------------------------------------------------------------------------------------------


def _rewritten(schema: Json, *, inside_definition: bool) -> Json:
    if not isinstance(schema, dict):
        return {} if schema is True else schema
    if "$ref" in schema and inside_definition:
        # OpenAI's libraries unfold a reference that has neighbours; inside its own definition that never ends.
        return {"$ref": schema["$ref"]}

    def below(part: Json) -> Json:
        return _rewritten(part, inside_definition=inside_definition)

    if isinstance(kinds := schema.get("type"), list):
        return below(split_types(schema, kinds))
    result: Schema = {}
    notes: list[str] = []
    is_array = kinds == "array"
    for keyword, value in schema.items():
        match keyword:
            case "properties" if isinstance(value, dict):
                result[keyword] = {name: below(member) for name, member in value.items()}
            case "$defs" | "definitions" if isinstance(value, dict):
                result[keyword] = {name: _rewritten(body, inside_definition=True) for name, body in value.items()}
            case "anyOf" | "oneOf" if isinstance(value, list) and "anyOf" not in result:
                result["anyOf"] = [below(choice) for choice in value]
            case "additionalProperties":
                # google-genai fails on a boolean here. An open object needs no keyword, and the server refuses unknown
                # members of a closed one by name.
                if isinstance(value, dict) and value:
                    result[keyword] = below(value)
            case "allOf" if isinstance(value, list):
                result[keyword] = [below(part) for part in value]
            case "items" | "prefixItems" | "additionalItems" if is_array:
                pass
            case "items" if isinstance(value, dict):
                result[keyword] = below(value)
            case "enum" | "const":
                pass
            case _ if (said := SAID_IN_WORDS.get(keyword)) is not None:
                notes += said(value, schema, result)
            case _:
                result.setdefault(keyword, value)
    if is_array:
        notes += write_items(schema, result, below)
    if "const" in schema or isinstance(schema.get("enum"), list):
        result, words = write_enum([schema["const"]] if "const" in schema else schema["enum"], result)
        notes += words
    if notes:
        result["description"] = add_notes(result.get("description"), notes)
    return leave_choice_alone(result, inside_definition)


_OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
    "object": (
        "properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties",
    ),
}  # fmt: skip
_OF_SOME_KIND: Final = frozenset(keyword for keywords in _OF_KIND.values() for keyword in keywords)


def split_types(schema: Schema, kinds: list[Any]) -> Schema:
    """Write a list of types as a choice, which Gemini takes."""
    around = {key: value for key, value in schema.items() if key != "type" and key not in _OF_SOME_KIND}
    if "enum" in schema or "const" in schema:
        return around
    choices = [
        {"type": kind, **{key: schema[key] for key in _OF_KIND.get(kind, ()) if key in schema}}
        for kind in kinds
        if isinstance(kind, str)
    ]
    if not choices or "anyOf" in around:
        return around
    return {**choices[0], **around} if len(choices) == 1 else {"anyOf": choices, **around}


def add_notes(text: str | None, notes: list[str]) -> str:
    words = "; ".join(dict.fromkeys(notes))
    return f"{text} ({words})" if text else words


def write_items(schema: Schema, result: Schema, below: Callable[[Json], Json]) -> list[str]:
    """Write one schema for all items of an array, since vendors accept only that."""
    written, rest = schema.get("prefixItems"), schema.get("items", {})
    if isinstance(rest, list):  # a tuple in the words of draft 7
        written, rest = rest, schema.get("additionalItems", {})
    places = [below(place) for place in written] if isinstance(written, list) else []
    if not places:
        # OpenAI, Gemini and VS Code refuse an array without `items`.
        result["items"] = below(rest) if isinstance(rest, dict) else dict(NULL if rest is False else {})
        return []
    all_of_them = [*places, below(rest)] if isinstance(rest, dict) and rest else places
    different = _each_once(all_of_them)
    result["items"] = different[0] if len(different) == 1 else {"anyOf": _flat(different)}
    return [] if len(different) == 1 else ["in this order: " + ", ".join(_brief(place) for place in places)]


def _brief(schema: Json) -> str:
    """Name the kind of a value in a few words."""
    if not isinstance(schema, dict):
        return "any value"
    if isinstance(choices := schema.get("anyOf"), list):
        return " or ".join(dict.fromkeys(_brief(choice) for choice in choices))
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    return str(reference or schema.get("format") or schema.get("type") or "any value")


def write_enum(values: list[Any], result: Schema) -> tuple[Schema, list[str]]:
    """Write a choice of values as vendors accept it.

    Strings become `enum`, other values their type and words, since Gemini's enums are strings.
    """
    if any(isinstance(value, (dict, list)) for value in values):
        return {**result, "enum": values}, []
    strings = [value for value in values if isinstance(value, str)]
    integers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    written: list[Schema] = []
    if strings:
        written.append({"type": "string", "enum": strings})
    if integers:
        written.append({"type": "integer", "minimum": min(integers), "maximum": max(integers)})
    if any(isinstance(value, float) for value in values):
        written.append({"type": "number"})
    if any(isinstance(value, bool) for value in values):
        written.append({"type": "boolean"})
    if None in values:
        written.append(NULL)
    around = {key: value for key, value in result.items() if key != "type"}
    is_range = integers and max(integers) - min(integers) + 1 == len(set(integers))
    both = {value for value in values if isinstance(value, bool)} == {True, False}
    untold = [
        value
        for value in values
        if not (value is None or isinstance(value, str) or ((value is True or value is False) and both))
        and not (is_range and isinstance(value, int) and not isinstance(value, bool))
    ]
    notes = [("one of " if values[1:] else "only ") + ", ".join(show_json(value) for value in values)] if untold else []
    if not written or (len(written) > 1 and "anyOf" in around):
        return {**result, "enum": values}, []
    return ({**written[0], **around} if len(written) == 1 else {"anyOf": written, **around}), notes


def leave_choice_alone(schema: Schema, inside_definition: bool) -> Schema:
    """Leave nothing beside `anyOf`: Vertex AI refuses a tool where anything stands there."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, dict) for each in choices):
        return schema
    choices = _flat(choices)
    default = schema.get("default", msgspec.UNSET)
    if default is not msgspec.UNSET:
        place = next((index for index, choice in enumerate(choices) if _could_be(default, choice)), 0)
        choices[place] = {**choices[place], "default": default}
    free = [index for index, choice in enumerate(choices) if not (inside_definition and "$ref" in choice)]
    if free and (text := schema.get("description")):
        own = choices[free[0]].get("description")
        choices[free[0]] = {**choices[free[0]], "description": f"{text} ({own})" if own else text}
    around = {key: value for key, value in schema.items() if key not in ("anyOf", "default", "description", "title")}
    if len(choices) == 1:
        return {**choices[0], **around}
    return {"anyOf": choices, **around}


def _flat(choices: list[Schema]) -> list[Schema]:
    """Write a choice within a choice as one, each alternative once."""
    flat: list[Schema] = []
    for choice in choices:
        inner = choice.get("anyOf") if isinstance(choice, dict) and set(choice) == {"anyOf"} else None
        flat += inner if isinstance(inner, list) else [choice]
    return _each_once(flat)


def _each_once(parts: list[Schema]) -> list[Schema]:
    """Leave out repeated parts, also of thousands: they are compared as JSON."""
    found: dict[bytes, Schema] = {}
    for part in parts:
        found.setdefault(msgspec.json.encode(part, enc_hook=repr, order="sorted"), part)
    return list(found.values())


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _could_be(value: Json, schema: Schema) -> bool:
    kind = str(schema.get("type"))
    return isinstance(value, _KINDS.get(kind, ())) and (isinstance(value, bool) == (kind == "boolean"))


# -- Keywords that become words ---------------------------------------------------------------------------------------


def _format(value: Any, schema: Schema, result: Schema) -> list[str]:
    if value in FORMATS:
        result["format"] = value
        return []
    if schema.get("type") in ("integer", "number"):
        return []  # `int64`, `double`: the widths of OpenAPI, which tell a model nothing
    # pydantic says `binary` of bytes that it reads from plain text.
    return [] if value == "binary" or not isinstance(value, str) else [_FORMAT_WORDS.get(value, value)]


def _pattern(value: Any, schema: Schema, result: Schema) -> list[str]:
    if _LOOK_AROUND.search(str(value)) is None:
        result["pattern"] = value
        return []
    return [f"matches {value}"]  # OpenAI's strict mode refuses look-around.


def _more_than(value: Any, schema: Schema, result: Schema) -> list[str]:
    return _open_bound(value, schema, result, "minimum", 1, max, "more than")


def _less_than(value: Any, schema: Schema, result: Schema) -> list[str]:
    return _open_bound(value, schema, result, "maximum", -1, min, "less than")


def _open_bound(
    value: Any, schema: Schema, result: Schema, keyword: str, step: int, tighter: Callable[..., Any], words: str
) -> list[str]:
    """Write an exclusive bound as an inclusive one: the next integer, or words beside it."""
    if not is_number(value):
        return []  # a boolean in the words of draft 4
    is_integer = schema.get("type") == "integer" and isinstance(value, int)
    closed = value + step if is_integer else value
    other = schema.get(keyword)
    result[keyword] = tighter(closed, other) if is_number(other) else closed
    return [] if is_integer else [f"{words} {show_json(value)}"]


def _keys(value: Any, schema: Schema, result: Schema) -> list[str]:
    if not isinstance(value, dict) or not value:
        return []
    if isinstance(values := value.get("enum"), list):
        return ["keys: " + ", ".join(map(str, values))]
    return [f"keys: {value['format'] if set(value) == {'format'} else show_json(value)}"]


def show_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


SAID_IN_WORDS: Final[dict[str, Callable[[Any, Schema, Schema], list[str]]]] = {
    "format": _format,
    "pattern": _pattern,
    "exclusiveMinimum": _more_than,
    "exclusiveMaximum": _less_than,
    "propertyNames": _keys,
    "multipleOf": lambda value, schema, result: [f"a multiple of {show_json(value)}"],
    "uniqueItems": lambda value, schema, result: ["no item twice"] if value is True else [],
    "deprecated": lambda value, schema, result: ["deprecated"] if value is True else [],
    "discriminator": lambda value, schema, result: [],
    "readOnly": lambda value, schema, result: [],
    "writeOnly": lambda value, schema, result: [],
    "contentEncoding": lambda value, schema, result: [str(value)],
    "contentMediaType": lambda value, schema, result: [str(value)],
    "examples": lambda value, schema, result: (
        ["for example " + ", ".join(show_json(each) for each in value)] if isinstance(value, list) and value else []
    ),
}
