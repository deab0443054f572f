"""Parameters as text: every `style` and `explode`, and `content`, for each location (Parameter Object).

A parameter is compiled once into a function from a JSON value to text. The function looks at the value, not at the
schema: the arguments were validated before. The specification leaves some cases open. They are decided here: a value
inside a list or an object that is itself a list or an object is written as JSON, and null inside them is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote, quote_plus

import msgspec

from toolwire.openapi.model import ParameterObject
from toolwire.protocol.errors import ToolError

#: A compiled parameter: a JSON value as the text that stands in the request.
Serializer: TypeAlias = Callable[[Any], str]
_Encode: TypeAlias = Callable[[str], str]
_Pairs: TypeAlias = list[tuple[str, str]]

#: Parameters that the specification ignores, and headers that say where a message ends or which way it takes.
IGNORED_HEADERS: Final = frozenset(
    {
        "accept",
        "content-type",
        "authorization",
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "proxy-connection",
        "proxy-authorization",
        "expect",
        "cookie",
    }
)

# RFC 6570 section 3.2.3 keeps reserved characters and triplets as they are. Of the reserved characters, those that may
# end a value are encoded all the same (OpenAPI 3.2, appendix C): in a query `# [ ] & = +`, in a path `/ ? # [ ] ;`.
_RESERVED_IN_QUERY: Final = ":/?@!$'()*,;"
_RESERVED_IN_PATH: Final = ":@!$&'()*+,="
# RFC 3986 section 3.4: what a query may contain as it is.
_WHOLE_QUERY: Final = ":/?@!$&'()*+,;="
_TRIPLET: Final = re.compile("(%[0-9A-Fa-f]{2})")
# RFC 9110 section 5.5: a field has no control characters. Bytes above ASCII mean something different to each reader.
_NOT_IN_HEADER: Final = re.compile(r"[^\t\x20-\x7e]")
_NOT_IN_COOKIE: Final = re.compile(r"[^\x20-\x7e]|;")

_encode_json = msgspec.json.Encoder().encode


def is_json(media_type: str) -> bool:
    """Return whether a media type is written as JSON."""
    name = media_type.partition(";")[0].strip().lower()
    return name == "application/json" or name.endswith(("+json", "/json"))


def as_text(value: Any) -> str:
    """Return a value as the text of one item.

    The specification leaves this to the implementation (appendix B).
    """
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def json_text(value: Any) -> str:
    return _encode_json(value).decode()


def percent_encoded(text: str) -> str:
    """Return text with all but the unreserved characters of RFC 3986 encoded."""
    return quote(text, safe="")


def form_encoded(text: str) -> str:
    """Return text as `application/x-www-form-urlencoded` has it (WHATWG URL, section 5)."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _reserved(safe: str) -> _Encode:
    """Make the encoding of `allowReserved`: these reserved characters, and triplets, stay as they are."""

    def encode(text: str) -> str:
        if "%" not in text:
            return quote(text, safe=safe)
        pieces = _TRIPLET.split(text)
        pieces[::2] = [quote(piece, safe=safe) for piece in pieces[::2]]
        return "".join(pieces)

    return encode


reserved_in_query: _Encode = _reserved(_RESERVED_IN_QUERY)
_reserved_in_path = _reserved(_RESERVED_IN_PATH)
_whole_query = _reserved(_WHOLE_QUERY)


def _as_it_is(text: str) -> str:
    return text


# -- Values -----------------------------------------------------------------------------------------------------------


def _items(value: Iterable[Any], encode: _Encode) -> list[str]:
    return [encode(as_text(each)) for each in value if each is not None]


def _members(value: Mapping[str, Any], encode: _Encode) -> _Pairs:
    return [(encode(name), encode(as_text(each))) for name, each in value.items() if each is not None]


def _flat(pairs: _Pairs) -> list[str]:
    return [part for pair in pairs for part in pair]


def _joined(value: Any, encode: _Encode, separator: str, explode_separator: str | None) -> str:
    """Write a value in the styles `simple` and `label`.

    `explode_separator` is None where nothing is exploded.
    """
    if isinstance(value, dict):
        pairs = _members(value, encode)
        if explode_separator is None:
            return separator.join(_flat(pairs))
        return explode_separator.join(f"{name}={each}" for name, each in pairs)
    if isinstance(value, (list, tuple)):
        return (separator if explode_separator is None else explode_separator).join(_items(value, encode))
    return encode(as_text(value))


# `tabDelimited`, and these styles outside of the query, come from the `collectionFormat` of Swagger 2.0 alone.
_DELIMITERS: Final = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}


def _separator(style: str, encode: _Encode) -> str:
    return encode(_DELIMITERS[style]) if style in _DELIMITERS else ","


# -- Path -------------------------------------------------------------------------------------------------------------


def path_serializer(parameter: ParameterObject) -> Serializer:
    """Compile a path parameter."""
    encode = _reserved_in_path if parameter.allow_reserved else percent_encoded
    if parameter.content is not None:
        write = content_text(parameter.content)
        return lambda value: encode(write(value))
    explode = parameter.explode
    if parameter.style == "label":
        return lambda value: "." + _joined(value, encode, ",", "." if explode else None)
    if parameter.style == "matrix":
        return _matrix(percent_encoded(parameter.name), encode, explode)
    separator = _separator(parameter.style, encode)
    return lambda value: _joined(value, encode, separator, separator if explode else None)


def _matrix(name: str, encode: _Encode, explode: bool) -> Serializer:
    def write(value: Any) -> str:
        if explode and isinstance(value, dict):
            return "".join(f";{key}={each}" for key, each in _members(value, encode))
        if explode and isinstance(value, (list, tuple)):
            return "".join(f";{name}={each}" for each in _items(value, encode))
        text = _joined(value, encode, ",", None)
        # RFC 6570 section 3.2.7: an empty value has no equals sign.
        return f";{name}={text}" if text else f";{name}"

    return write


# -- Query ------------------------------------------------------------------------------------------------------------


def query_serializer(parameter: ParameterObject) -> Serializer:
    """Compile a query parameter.

    The text has its name and no leading `?`; it is empty where nothing is to be sent.
    """
    encode = reserved_in_query if parameter.allow_reserved else percent_encoded
    name = percent_encoded(parameter.name)
    if parameter.content is not None:
        write = content_text(parameter.content)
        return lambda value: f"{name}={encode(write(value))}"
    pairs = pairs_writer(parameter.name, parameter.style, parameter.explode, percent_encoded, encode)
    if parameter.allow_empty_value:
        return lambda value: _query(pairs(value)) or f"{name}="
    return lambda value: _query(pairs(value))


def _query(pairs: _Pairs) -> str:
    return "&".join([f"{name}={value}" for name, value in pairs])


def pairs_writer(
    name: str, style: str, explode: bool, encode_name: _Encode, encode: _Encode
) -> Callable[[Any], list[tuple[str, str]]]:
    """Compile a query style into names and values, for query strings and forms."""
    if style == "deepObject":
        return lambda value: _deep(name, value, encode_name, encode)
    # The specification says nothing of the delimited styles with explode: the items are repeated, as with `form`.
    separator = _separator(style, encode)
    encoded_name = encode_name(name)

    def write(value: Any) -> _Pairs:
        if isinstance(value, dict):
            pairs = [(encode_name(key), encode(as_text(each))) for key, each in value.items() if each is not None]
            return pairs if explode or not pairs else [(encoded_name, separator.join(_flat(pairs)))]
        if isinstance(value, (list, tuple)):
            items = _items(value, encode)
            if explode:
                return [(encoded_name, item) for item in items]
            # RFC 6570 section 2.3: a list without items is undefined, and an undefined variable is left out.
            return [(encoded_name, separator.join(items))] if items else []
        return [(encoded_name, encode(as_text(value)))]

    return write


def _deep(name: str, value: Any, encode_name: _Encode, encode: _Encode) -> _Pairs:
    """Write `deepObject`: `color[R]=100`.

    The specification has no rule for what is deeper. Names are nested as most servers read them: `a[b][c]=1` for
    objects, `a[]=1` for items, `a[0][b]=1` for items that have members.
    """
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in _deep(f"{name}[{key}]", each, encode_name, encode)]
    if isinstance(value, (list, tuple)):
        return [
            pair
            for index, each in enumerate(value)
            for pair in _deep(
                f"{name}[{index}]" if isinstance(each, (dict, list)) else f"{name}[]", each, encode_name, encode
            )
        ]
    return [] if value is None else [(encode_name(name), encode(as_text(value)))]


def content_text(media_type: str) -> Callable[[Any], str]:
    """Return the writer of a value in a media type, for a parameter with `content`."""
    return json_text if is_json(media_type) else as_text


def query_string_serializer(parameter: ParameterObject, write_form: Serializer) -> Serializer:
    """Compile a parameter that is the whole query (3.2, `in: querystring`).

    `write_form` writes an object as a form.
    """
    media_type = (parameter.content or "").partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":
        return lambda value: write_form(value) if isinstance(value, dict) else _whole_query(as_text(value))
    if is_json(media_type):
        return lambda value: percent_encoded(json_text(value))
    # A format of the API's own, given as text: its delimiters stay.
    return lambda value: _whole_query(as_text(value))


# -- Headers and cookies ----------------------------------------------------------------------------------------------


def header_serializer(parameter: ParameterObject) -> Serializer:
    """Compile a header. Nothing is percent-encoded (3.2, "Fixed Fields for use with schema")."""
    name = parameter.name
    if parameter.content is not None:
        if is_json(parameter.content):
            return lambda value: header_value(name, _ascii_json(value))
        return lambda value: header_value(name, as_text(value))
    separator = _separator(parameter.style, _as_it_is)
    explode = separator if parameter.explode else None
    return lambda value: header_value(name, _joined(value, _as_it_is, separator, explode))


def _ascii_json(value: Any) -> str:
    """Return JSON in ASCII, because a header takes nothing else."""
    import json

    return json.dumps(value, separators=(",", ":"))


def header_value(name: str, text: str) -> str:
    """Return the value of a header; refuse characters that are not in a header."""
    if _NOT_IN_HEADER.search(text) is not None:
        raise ToolError(
            f"{name!r} is sent in a header, which takes ASCII without line breaks and other control characters"
        )
    return text


def cookie_serializer(parameter: ParameterObject) -> Serializer:
    """Compile a cookie parameter into `name=value` pairs.

    Several are separated as RFC 6265 section 4.2.1 says.
    """
    name = parameter.name
    raw = parameter.style == "cookie"
    encode = _as_it_is if raw else (reserved_in_query if parameter.allow_reserved else percent_encoded)
    encode_name = _as_it_is if raw else percent_encoded
    if parameter.content is not None:
        content = content_text(parameter.content)
        return lambda value: _cookie(name, [(encode_name(name), encode(content(value)))])
    pairs = pairs_writer(name, "form", parameter.explode, encode_name, encode)
    return lambda value: _cookie(name, pairs(value))


def _cookie(name: str, pairs: _Pairs) -> str:
    for key, value in pairs:
        if _NOT_IN_COOKIE.search(value) is not None or _NOT_IN_COOKIE.search(key) is not None or "=" in key:
            raise ToolError(
                f"{name!r} is sent in a cookie, which takes ASCII without semicolons: escape all other characters"
            )
    return "; ".join([f"{key}={value}" for key, value in pairs])
