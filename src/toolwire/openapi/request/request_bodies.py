"""Request bodies: JSON, forms, multipart with encodings, bytes and text.

A body is compiled once into a function from arguments to bytes. XML is taken as text: a description does not say how an
object is written as XML.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from toolwire.openapi.model import EncodingObject, MediaTypeObject, ParameterObject, ToolArgument, ToolDefinition
from toolwire.openapi.request.parameters import (
    as_text,
    form_encoded,
    header_value,
    is_json,
    json_text,
    pairs_writer,
    percent_encoded,
    reserved_in_query,
)
from toolwire.openapi.request.wire_names import OpenValue, Owner, WireNames, is_open
from toolwire.protocol.errors import ToolError
from toolwire.redaction import repr_without

#: How many bytes a request may have.
MAX_BODY: Final = 64 * 1024 * 1024
FORM: Final = "application/x-www-form-urlencoded"
_OCTETS: Final = "application/octet-stream"
_NO_ENCODING: Final = EncodingObject()


class BodyUpload:
    """Bytes that are sent as they are: the content of a file."""

    # Not a Struct, which JSON would write with all of its members.
    __slots__ = ("content", "filename", "media_type")

    def __init__(self, content: bytes, media_type: str | None = None, filename: str | None = None) -> None:
        self.content: bytes = content
        self.media_type: str | None = media_type
        self.filename: str | None = filename


class Body(NamedTuple):
    """The bytes of a request and their media type."""

    data: bytes
    content_type: str


#: A compiled body: arguments to bytes; None where no body is sent.
BodyWriter: TypeAlias = Callable[[Mapping[str, Any]], Body | None]
_Form: TypeAlias = Callable[[Mapping[str, Any]], str]


def _plain(value: Any) -> Any:
    """Return an upload inside JSON as text in base64, which is what `contentEncoding: base64` means."""
    if isinstance(value, BodyUpload):
        return value.content
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode_json = msgspec.json.Encoder(enc_hook=_plain).encode


def member_names(definition: ToolDefinition) -> list[str]:
    """Return the names of the members of a form or multipart body that are described."""
    if definition.media is None or not _has_fields(definition.media.media_type):
        return []
    given = (*definition.arguments, *(each for each, _ in definition.fixed_body))
    names = [each.member for each in given if each.parameter is None and each.member is not None]
    return [*names, *(name for place, name in definition.reserved if place == "body")]


def body_owner(name: str) -> Owner:
    """Return the source of the fields of a member of a body."""
    return f"body {name}"


def _has_fields(media_type: str) -> bool:
    name = media_type.partition(";")[0].strip().lower()
    return name == FORM or name.startswith("multipart/")


def body_writer(
    media: MediaTypeObject, arguments: tuple[ToolArgument, ...], required: bool, names: WireNames | None = None
) -> BodyWriter:
    """Compile the body of an operation.

    The arguments without a parameter are its members, or the whole of it. `names` are those that are taken in a form.
    """
    members = [(each.name, each.member) for each in arguments if each.parameter is None and each.member is not None]
    whole = next((each.name for each in arguments if each.parameter is None and each.member is None), None)
    write = _writer(media, names or WireNames(()))
    if whole is not None:
        name = whole
        return lambda given: _bounded(write(given[name])) if name in given else None

    def write_members(given: Mapping[str, Any]) -> Body | None:
        value = {member: given[name] for name, member in members if name in given}
        return _bounded(write(value)) if value or required else None

    return write_members


def _bounded(body: Body) -> Body:
    if len(body.data) > MAX_BODY:
        raise ToolError(f"The request has {len(body.data)} bytes, and {MAX_BODY} are the most")
    return body


def _writer(media: MediaTypeObject, names: WireNames) -> Callable[[Any], Body]:
    """Return the writer of a whole value in a media type."""
    name = media.media_type.partition(";")[0].strip().lower()
    if is_json(name):
        return lambda value: Body(_encode_json(value), media.media_type)
    if name == FORM:
        form = form_writer(media.encoding, names)
        return lambda value: Body((form(value) if isinstance(value, dict) else as_text(value)).encode(), FORM)
    if name.startswith("multipart/"):
        return lambda value: _multipart(
            value, media.media_type, media.encoding, media.prefix_encoding, media.item_encoding, names
        )
    return lambda value: _single(value, media.media_type)


def _single(value: Any, media_type: str) -> Body:
    """Write a body that is bytes or text."""
    if isinstance(value, (bytes, BodyUpload)):
        return Body(_bytes(value), _specific(media_type, value))
    name = media_type.partition(";")[0].strip().lower()
    if name.endswith(("/xml", "+xml")) and not isinstance(value, str):
        raise ToolError("The API takes XML here: give the body as a text of XML")
    if name.startswith("text/") and "charset" not in media_type.lower():
        media_type = f"{media_type}; charset=utf-8"
    return Body(as_text(value).encode(), _OCTETS if "*" in media_type else media_type)


def _bytes(value: bytes | BodyUpload) -> bytes:
    return value if isinstance(value, bytes) else value.content


def _specific(declared: str, value: Any) -> str:
    """Return the media type of bytes: declared, or the file's if several are listed."""
    first, *others = [each.strip() for each in declared.split(",")]
    own = value.media_type if isinstance(value, BodyUpload) else None
    for each in (first, *others):
        if own is not None and (each == own or (each.endswith("/*") and own.startswith(each[:-1])) or each == "*/*"):
            return header_value("the media type", own)
    return first if "*" not in first else _OCTETS


# -- Forms ------------------------------------------------------------------------------------------------------------


def form_writer(encoding: Mapping[str, EncodingObject], names: WireNames | None = None) -> _Form:
    """Compile `application/x-www-form-urlencoded`: a form as a body, or as the whole query (3.2).

    `names` are those that are taken.
    """
    writers = {name: _form_member(name, each) for name, each in encoding.items()}
    styles = _styles(encoding)
    taken = names or WireNames(())

    def write(value: Mapping[str, Any]) -> str:
        written: list[tuple[str, list[tuple[str, str]]]] = []
        for name, member in value.items():
            known = writers.get(name)
            written.append((name, _form_pairs(name, member, None) if known is None else known(member)))
        _check_fields(taken, styles, value, written)
        return "&".join([f"{name}={text}" for _, pairs in written for name, text in pairs])

    return write


def _styles(encoding: Mapping[str, EncodingObject]) -> dict[str, tuple[str, bool]]:
    return {name: style for name, each in encoding.items() if (style := _style_of(each)) is not None}


def _check_fields(
    taken: WireNames,
    styles: Mapping[str, tuple[str, bool]],
    value: Mapping[str, Any],
    written: list[tuple[str, list[tuple[str, str]]]],
) -> None:
    """Raise `ToolError` if two members of a form would have the same name.

    A member must not have a reserved name either.
    """
    open_ones: list[OpenValue] = []
    for name, pairs in written:
        style, explode = styles.get(name, ("", False))
        if is_open(value[name], style, explode):
            open_ones.append(OpenValue(body_owner(name), name, [key for key, _ in pairs], style == "deepObject"))
        elif not taken.has_owner(body_owner(name)):
            # Described members were judged. These may be called anything.
            open_ones.append(OpenValue("", name, [name], True))
    if open_ones:
        taken.check(open_ones)


def _form_member(name: str, encoding: EncodingObject) -> Callable[[Any], list[tuple[str, str]]]:
    style = _style_of(encoding)
    if style is not None:
        encode = reserved_in_query if encoding.allow_reserved else percent_encoded
        return pairs_writer(name, *style, percent_encoded, encode)
    return lambda value: _form_pairs(name, value, encoding.content_type)


def _style_of(encoding: EncodingObject) -> tuple[str, bool] | None:
    """Return style and explode if the description writes one of three fields out.

    They win over `contentType`.
    """
    if encoding.style is None and encoding.explode is None and encoding.allow_reserved is None:
        return None
    style = encoding.style or "form"
    return style, style == "form" if encoding.explode is None else encoding.explode


def _form_pairs(name: str, value: Any, content_type: str | None) -> list[tuple[str, str]]:
    """Write a member of a form by its content type.

    A list gives one pair for each item ("Encoding By Name").
    """
    key = form_encoded(name)
    values = value if isinstance(value, list) else [value]
    return [(key, form_encoded(_form_text(each, content_type))) for each in values if each is not None]


def _form_text(value: Any, content_type: str | None) -> str:
    if isinstance(value, (bytes, BodyUpload)):
        import base64

        return base64.b64encode(_bytes(value)).decode()
    return json_text(value) if content_type is not None and is_json(content_type) else as_text(value)


# -- Multipart --------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """One part: its headers in order, its bytes, and the name of its field."""

    headers: list[tuple[str, str]]
    data: bytes
    name: str = ""

    def __repr__(self) -> str:
        return repr_without(self, "headers", "data")


def _multipart(
    value: Any,
    media_type: str,
    encoding: Mapping[str, EncodingObject],
    prefix: tuple[EncodingObject, ...],
    item: EncodingObject | None,
    names: WireNames,
) -> Body:
    """Write parts by name for an object, or by position for a list (3.2).

    `names` are those that are taken.
    """
    if isinstance(value, dict):
        named = [(name, list(_named_parts(name, each, encoding.get(name)))) for name, each in value.items()]
        written = [(name, [(part.name, "") for part in found]) for name, found in named]
        _check_fields(names, _styles(encoding), value, written)
        parts = [part for _, found in named for part in found]
    elif isinstance(value, list):
        others = item or _NO_ENCODING
        parts = [_part(each, prefix[at] if at < len(prefix) else others, []) for at, each in enumerate(value)]
    else:
        parts = [_part(value, item or _NO_ENCODING, [])]
    boundary = os.urandom(16).hex()
    pieces: list[bytes] = []
    for part in parts:
        lines = "".join([f"{name}: {text}\r\n" for name, text in part.headers])
        pieces += (f"--{boundary}\r\n{lines}\r\n".encode(), part.data, b"\r\n")
    pieces.append(f"--{boundary}--\r\n".encode())
    kept = "; ".join(each.strip() for each in media_type.split(";") if not each.strip().lower().startswith("boundary="))
    return Body(b"".join(pieces), f"{kept}; boundary={boundary}")


def _named_parts(name: str, value: Any, encoding: EncodingObject | None) -> Iterator[_Part]:
    """Write one member: a part, or one for each item of a list.

    RFC 7578 section 4.3.
    """
    encoding = encoding or _NO_ENCODING
    style = _style_of(encoding)
    if style is not None and not isinstance(value, (bytes, BodyUpload)):
        # Nothing is percent-encoded in a part (Encoding Object, "Fixed Fields for RFC6570-style Serialization").
        for key, text in pairs_writer(name, *style, str, str)(value):
            yield _Part([_disposition(key, None)], text.encode(), key)
        return
    for each in value if isinstance(value, list) else [value]:
        if each is not None:
            filename = (each.filename or name) if isinstance(each, BodyUpload) else None
            yield _part(each, encoding, [_disposition(name, name if isinstance(each, bytes) else filename)])


def _part(value: Any, encoding: EncodingObject, headers: list[tuple[str, str]]) -> _Part:
    declared = encoding.content_type
    if isinstance(value, (bytes, BodyUpload)):
        own = value.media_type if isinstance(value, BodyUpload) else None
        content_type, data = _specific(declared or own or _OCTETS, value), _bytes(value)
    elif declared is not None and declared.startswith("multipart/"):
        data, content_type = _multipart(
            value, declared, encoding.encoding, encoding.prefix_encoding, encoding.item_encoding, WireNames(())
        )
    elif isinstance(value, (dict, list)) or (declared is not None and is_json(declared)):
        content_type, data = declared or "application/json", _encode_json(value)
    else:
        # RFC 7578 section 4.4: a part without a type is text/plain, which is how browsers send the fields of a form.
        content_type, data = declared or "", as_text(value).encode()
    if content_type:
        headers = [*headers, ("Content-Type", _specific(content_type, value))]
    return _Part([*headers, *_fixed_headers(encoding.headers)], data)


def _disposition(name: str, filename: str | None) -> tuple[str, str]:
    written = f'form-data; name="{_quoted(name)}"'
    return "Content-Disposition", written if filename is None else f'{written}; filename="{_quoted(filename)}"'


def _quoted(text: str) -> str:
    """Return a name for `Content-Disposition` as browsers write it (HTML, "multipart form data")."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").replace("\0", "%00")


def _fixed_headers(headers: Mapping[str, ParameterObject]) -> Iterator[tuple[str, str]]:
    """Yield the headers of a part whose value the description fixes.

    No caller could give the other ones.
    """
    for name, header in headers.items():
        schema = header.schema.value if header.schema is not None else None
        if not isinstance(schema, dict) or name.lower() == "content-type":
            continue
        known = schema.get("enum")
        only = known[0] if isinstance(known, list) and len(known) == 1 else schema.get("default")
        value = schema.get("const", only)
        if value is not None:
            yield header_value(name, name), header_value(name, as_text(value))
