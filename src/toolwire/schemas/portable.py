"""Generated input schemas in the keywords that every vendor of models takes.

Vendors take different parts of JSON Schema, and refuse a tool, or a request with all tools in it, for one keyword too
many. A published schema uses the part that all of them take. It says the rest in words, in the description. The server
checks arguments against the full document, so that nothing is lost but a machine's reading of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from toolwire.schemas.compact import without_optional_null
from toolwire.schemas.nulls import NULL, with_optional_null
from toolwire.schemas.walking import Json, Schema

#: `portable`: a member that may be left out is `T`. `nullable`: it is `T or null`, for libraries that make every member
#: required and then need a value that says "left out".
Profile: TypeAlias = Literal["portable", "nullable"]
PROFILES: Final[tuple[Profile, ...]] = ("portable", "nullable")

# The formats that both OpenAI's strict mode and Anthropic's take; clients of Gemini keep or drop them without loss.
_FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_FORMAT_WORDS: Final = {"decimal": "a decimal number", "path": "a path", "uri": "a URI"}
_LOOK_AROUND: Final = re.compile(r"\(\?<?[=!]")


def portable(schema: Schema, profile: Profile = "portable") -> Schema:
    """Rewrite a generated input schema for publication."""
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

    result: Schema = {}
    notes: list[str] = []
    for keyword, value in schema.items():
        match keyword:
            case "properties":
                result[keyword] = {name: below(member) for name, member in value.items()}
            case "$defs":
                result[keyword] = {name: _rewritten(body, inside_definition=True) for name, body in value.items()}
            case "anyOf" | "oneOf":
                result["anyOf"] = [below(choice) for choice in value]
            case "additionalProperties":
                # google-genai fails on a boolean here. An open object needs no keyword, and the server refuses unknown
                # members of a closed one by name.
                if isinstance(value, dict) and value:
                    result[keyword] = below(value)
            case "items" | "prefixItems" | "enum" | "const":
                pass
            case _ if (said := _SAID_IN_WORDS.get(keyword)) is not None:
                notes += said(value, schema, result)
            case _:
                result.setdefault(keyword, value)
    if schema.get("type") == "array":
        notes += _items(schema, result, below)
    if "enum" in schema or "const" in schema:
        result, words = _choices(list(schema.get("enum", (schema.get("const"),))), result)
        notes += words
    if notes:
        result["description"] = _described(result.get("description"), notes)
    return _lone_choice(result, inside_definition)


def _described(text: str | None, notes: list[str]) -> str:
    words = "; ".join(dict.fromkeys(notes))
    return f"{text} ({words})" if text else words


def _items(schema: Schema, result: Schema, below: Callable[[Json], Json]) -> list[str]:
    """Say what the items of an array are: with one schema for all of them, since vendors know no other."""
    places = [below(place) for place in schema.get("prefixItems", ())]
    rest = schema.get("items", {})
    if not places:
        # OpenAI, Gemini and VS Code refuse an array without `items`.
        result["items"] = below(rest) if isinstance(rest, dict) else dict(NULL if rest is False else {})
        return []
    different = [place for index, place in enumerate(places) if place not in places[:index]]
    if isinstance(rest, dict) and rest and below(rest) not in different:
        different.append(below(rest))
    result["items"] = different[0] if len(different) == 1 else {"anyOf": _flat(different)}
    return [] if len(different) == 1 else ["in this order: " + ", ".join(_brief(place) for place in places)]


def _brief(schema: Schema) -> str:
    """Name the kind of a value in a few words."""
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_brief(choice) for choice in choices))
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    return str(reference or schema.get("format") or schema.get("type") or "any value")


def _choices(values: list[Any], result: Schema) -> tuple[Schema, list[str]]:
    """Write a choice of values: strings as `enum`, others as their type and in words, since Gemini's are strings."""
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
    is_range = integers and sorted(integers) == list(range(min(integers), max(integers) + 1))
    both = {value for value in values if isinstance(value, bool)} == {True, False}
    untold = [
        value
        for value in values
        if not (value is None or isinstance(value, str) or ((value is True or value is False) and both))
        and not (is_range and isinstance(value, int) and not isinstance(value, bool))
    ]
    notes = [("one of " if values[1:] else "only ") + ", ".join(_shown(value) for value in values)] if untold else []
    if not written or (len(written) > 1 and "anyOf" in around):
        return {**result, "enum": values}, []
    return ({**written[0], **around} if len(written) == 1 else {"anyOf": written, **around}), notes


def _lone_choice(schema: Schema, inside_definition: bool) -> Schema:
    """Leave nothing beside `anyOf`: Vertex AI refuses a tool where anything stands there."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list) or not choices:
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
        inner = choice.get("anyOf") if set(choice) == {"anyOf"} else None
        flat += [each for each in (inner or [choice]) if each not in flat]
    return flat


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _could_be(value: Json, schema: Schema) -> bool:
    kind = schema.get("type", "")
    return isinstance(value, _KINDS.get(kind, ())) and (isinstance(value, bool) == (kind == "boolean"))


# -- Keywords that become words ---------------------------------------------------------------------------------------


def _format(value: Any, schema: Schema, result: Schema) -> list[str]:
    if value in _FORMATS:
        result["format"] = value
        return []
    # pydantic says `binary` of bytes that it reads from plain text.
    return [] if value == "binary" else [_FORMAT_WORDS.get(value, str(value))]


def _pattern(value: Any, schema: Schema, result: Schema) -> list[str]:
    if _LOOK_AROUND.search(str(value)) is None:
        result["pattern"] = value
        return []
    return [f"matches {value}"]  # OpenAI's strict mode refuses look-around.


def _more_than(value: Any, schema: Schema, result: Schema) -> list[str]:
    if schema.get("type") == "integer" and isinstance(value, int):
        result["minimum"] = max(value + 1, schema.get("minimum", value + 1))
        return []
    result["minimum"] = max(value, schema.get("minimum", value))
    return [f"more than {_shown(value)}"]


def _less_than(value: Any, schema: Schema, result: Schema) -> list[str]:
    if schema.get("type") == "integer" and isinstance(value, int):
        result["maximum"] = min(value - 1, schema.get("maximum", value - 1))
        return []
    result["maximum"] = min(value, schema.get("maximum", value))
    return [f"less than {_shown(value)}"]


def _keys(value: Any, schema: Schema, result: Schema) -> list[str]:
    if not isinstance(value, dict) or not value:
        return []
    if isinstance(values := value.get("enum"), list):
        return ["keys: " + ", ".join(map(str, values))]
    return [f"keys: {value['format'] if set(value) == {'format'} else _shown(value)}"]


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SAID_IN_WORDS: Final[dict[str, Callable[[Any, Schema, Schema], list[str]]]] = {
    "format": _format,
    "pattern": _pattern,
    "exclusiveMinimum": _more_than,
    "exclusiveMaximum": _less_than,
    "propertyNames": _keys,
    "multipleOf": lambda value, schema, result: [f"a multiple of {_shown(value)}"],
    "uniqueItems": lambda value, schema, result: ["no item twice"] if value is True else [],
    "deprecated": lambda value, schema, result: ["deprecated"] if value is True else [],
    "discriminator": lambda value, schema, result: [],
    "readOnly": lambda value, schema, result: [],
    "writeOnly": lambda value, schema, result: [],
    "contentEncoding": lambda value, schema, result: [str(value)],
    "contentMediaType": lambda value, schema, result: [str(value)],
    "examples": lambda value, schema, result: ["for example " + ", ".join(_shown(each) for each in value)],
}
