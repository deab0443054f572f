"""One document of an API description: its value, version, and places for errors.

JSON is read by msgspec, everything else as YAML. Both refuse duplicate keys, and bytes, depth and the number of values
are bounded, so that readers behind this may walk a document without fear.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from toolwire.openapi.description.places import first_duplicate, line_of
from toolwire.openapi.description.swagger2 import old_pointer
from toolwire.openapi.model import DescriptionError, Version, digest_of
from toolwire.util.numbers import BYTES, COUNT, SECONDS, Allowed, check_fields
from toolwire.util.yaml_reader import YamlError, read_yaml


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest description that is read."""

    bytes: int = 64 * 1024 * 1024
    """How many bytes one document may have."""
    total_bytes: int = 128 * 1024 * 1024
    """How many bytes all documents may have together."""
    documents: int = 500
    depth: int = 100
    """How many objects and arrays are inside each other."""
    values: int = 2_000_000
    """How many strings, numbers, objects and arrays one document has, those that aliases repeat included."""
    seconds: float = 30.0
    """For fetching one document from a URL."""

    def __post_init__(self) -> None:
        check_fields("Limits", _ALLOWED, self)


_ALLOWED: Final[dict[str, Allowed]] = {
    **dict.fromkeys(("bytes", "total_bytes"), BYTES),
    **dict.fromkeys(("documents", "depth", "values"), COUNT),
    "seconds": SECONDS,
}

# How many bytes of a document are searched for the lines of error texts. This takes about a second.
_SEARCHABLE: Final = 8 * 1024 * 1024


class Document:
    """A document that was read. Do not change its content."""

    def __init__(
        self,
        root: dict[str, Any],
        version: Version,
        *,
        uri: str,
        retrieved_from: str,
        name: str,
        digest: str,
        file: Path | None = None,
        has_ids: bool = False,
        is_converted: bool = False,
        above: Document | None = None,
        pointer: str = "",
    ) -> None:
        self.root: dict[str, Any] = root
        self.version: Version = version
        self.uri: str = uri
        """The canonical address, against which references are read: `$self` or `$id`, else `retrieved_from`."""
        self.retrieved_from: str = retrieved_from
        """The address that it was read from, against which the URLs of servers are read."""
        self.name: str = name
        """The file as a person named it, or the URL."""
        self.digest: str = digest
        self.has_ids: bool = has_ids
        """Whether a schema in it has an `$id`."""
        self.above: Document | None = above
        """The document around a schema with an `$id` of its own."""
        self.pointer: str = pointer
        """The JSON Pointer of this schema in the document around it."""
        self._file = file
        self._is_converted = is_converted
        self._searchable = _SEARCHABLE

    def label(self, pointer: str) -> str:
        """Return a place in words without reading the file again, such as `petstore.yaml#/paths/~1pets/get`."""
        return f"{self.name}#{self.pointer}{pointer}"

    def place(self, pointer: str) -> str:
        """Return a place for an error text, such as `petstore.yaml:12`.

        This reads the file again. In a large document with many mistakes, the first places are lines and the rest
        are labels, because a thousand searches would take minutes.
        """
        whole = self.pointer + pointer
        line = self._line(old_pointer(whole) if self._is_converted else whole)
        # A text of one line is what a program wrote: its line would tell nothing.
        return self.label(pointer) if line is None or (line == 1 and whole) else f"{self.name}:{line}"

    def place_of_text(self, text: str) -> str:
        """Return the place where a text stands first, for an error text."""
        data = self._text()
        at = -1 if data is None else data.find(text.encode("utf-8", "replace"))
        return self.name if data is None or at < 0 else f"{self.name}:{_line_at(data, at)}"

    def part(self, root: dict[str, Any], uri: str, pointer: str) -> Document:
        """Return a schema with an `$id` in this document as a document of its own."""
        return Document(
            root,
            self.version,
            uri=uri,
            retrieved_from=self.retrieved_from,
            name=self.name,
            digest=self.digest,
            file=self._file,
            above=self,
            pointer=self.pointer + pointer,
        )

    def error(self, pointer: str, problem: str, remedy: str) -> DescriptionError:
        """Return an error that names file, place, problem and remedy."""
        return DescriptionError(f"{self.place(pointer)}: {problem}: {remedy}")

    def _line(self, pointer: str) -> int | None:
        data = self._text()
        try:
            return None if data is None else line_of(data, pointer)
        except Exception:  # The text is hostile, and the error that wants a line is more important.
            return None

    def _text(self) -> bytes | None:
        """Return the text of an unchanged file again.

        Keeping it would double the memory.
        """
        if self._file is None or self._searchable <= 0:
            return None
        try:
            data = self._file.read_bytes()
        except OSError:
            return None
        self._searchable -= len(data)
        return data if data is not None and digest_of(data) == self.digest else None

    def __repr__(self) -> str:
        return f"<Document {self.name} {self.version}>"


# --- bytes as a value ---


# Each value but the last has a comma behind it. Texts have commas, too.
_COMMAS_PER_VALUE: Final = 4
_BYTE: Final = re.compile(r" \(byte (\d+)\)")


def parse(data: bytes, name: str, limits: Limits) -> Any:
    """Return the JSON value of a document in JSON or YAML; raise `DescriptionError`."""
    if len(data) > limits.bytes:
        raise too_large(name, limits)
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] not in (b"{", b"["):
        return _parse_yaml(data, name, limits)
    if data.count(b",") > _COMMAS_PER_VALUE * limits.values:
        raise _too_many_values(name, limits)  # Before they take memory.
    try:
        value = msgspec.json.decode(data)
        if _may_have_duplicates(data, value) and (duplicate := first_duplicate(data)) is not None:
            key, line = duplicate
            raise DescriptionError(f"{name}:{line}: the key {key[:80]!r} stands here twice: keep one of them")
        _share_texts(value)
        return value
    except RecursionError:
        raise _too_deep(name, limits) from None
    except (msgspec.MsgspecError, ValueError) as problem:
        try:
            # YAML has brackets too, and comments and trailing commas between them.
            return _parse_yaml(data, name, limits)
        except DescriptionError as error:
            # msgspec names the place as `(byte 31)`. Without one, it misreads the text: YAML knows what is wrong.
            reason, place = str(problem).removeprefix("JSON is malformed: "), _BYTE.search(str(problem))
            if place is None or "stands here twice" in str(error):
                raise
            where = f"{name}:{_line_at(data, int(place[1]))}"
            raise DescriptionError(
                f"{where}: this is not JSON ({_BYTE.sub('', reason)}): check quotes, commas and brackets up to here"
            ) from None


def _share_texts(root: Any) -> None:
    """Let equal texts of a document share one object, to save memory.

    `string` alone stands in a large document ten thousand times.
    """
    known: dict[str, str] = {}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        for key, part in value.items() if type(value) is dict else enumerate(value):
            if type(part) is str:
                value[key] = known.setdefault(part, part)
            elif type(part) is dict or type(part) is list:
                waiting.append(part)


def _line_at(data: bytes, index: int) -> int:
    return data.count(b"\n", 0, index) + 1


def too_large(name: str, limits: Limits) -> DescriptionError:
    """Return the error for a document with too many bytes."""
    return DescriptionError(
        f"{name}: the document has more than {limits.bytes:,} bytes: take the parts that you need, "
        "or raise Limits.bytes"
    )


def _too_many_values(name: str, limits: Limits) -> DescriptionError:
    return DescriptionError(
        f"{name}: the document has more than {limits.values:,} values: take the parts that you need, "
        "or raise Limits.values"
    )


def _too_deep(name: str, limits: Limits) -> DescriptionError:
    return DescriptionError(
        f"{name}: the values are nested more than {limits.depth} deep: nest less, or raise Limits.depth"
    )


def _parse_yaml(data: bytes, name: str, limits: Limits) -> Any:
    try:
        return read_yaml(data, max_depth=limits.depth, max_values=limits.values)
    except YamlError as error:
        raise DescriptionError(f"{name}:{error.line}:{error.column}: {error.problem}: {error.remedy}") from None


def _may_have_duplicates(data: bytes, value: Any) -> bool:
    """Return whether a decoder may have dropped members of objects.

    Each member has one colon outside of strings, and the strings that were kept have the same colons as before. So the
    text and the value written again have the same number of colons, unless a member was dropped or an escape hides a
    colon. This takes a tenth of the time of a decoder that looks at every member.
    """
    if b"\\u003" in data and re.search(rb"\\u003[aA]", data):
        return True
    return data.count(b":") != msgspec.json.encode(value).count(b":")


# --- the size of a value ---


class Survey(NamedTuple):
    """The findings of one walk over a document."""

    external: set[str]
    """The references to other documents, as they are written."""
    has_ids: bool
    """Whether a schema has an `$id`, which changes the meaning of the references below it."""


def survey(root: Any, name: str, limits: Limits) -> Survey:
    """Visit each value once, level by level.

    Refuses a document that is too deep or too large to be walked.
    """
    external: set[str] = set()
    has_ids = False
    values, depth = 0, 0
    level = [root] if isinstance(root, dict | list) else []
    while level:
        depth += 1
        values += sum(map(len, level))
        if depth > limits.depth:
            raise _too_deep(name, limits)
        if values > limits.values:
            raise _too_many_values(name, limits)
        objects = [each for each in level if type(each) is dict]
        external.update(
            reference
            for each in objects
            if type(reference := each.get("$ref")) is str and reference and reference[0] != "#"
        )
        has_ids = has_ids or any(type(each.get("$id")) is str for each in objects)
        below = [value for each in objects for value in each.values() if type(value) is dict or type(value) is list]
        if len(objects) < len(level):
            arrays = (each for each in level if type(each) is list)
            below += [value for each in arrays for value in each if type(value) is dict or type(value) is list]
        level = below
    return Survey(external, has_ids)


# --- the version ---

_VERSION: Final = re.compile(r"3\.([0-9]+)(?:\.[0-9]+(?:-.*)?)?")
_READ: Final = "OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0 are read"
# Other formats that people take for API descriptions: a member of the root, and what to do.
_OTHER_FORMATS: Final = {
    "asyncapi": ("this is an AsyncAPI document", "describe the HTTP API in OpenAPI"),
    "arazzo": ("this is an Arazzo document, which describes workflows", "name the OpenAPI description that it uses"),
    "overlay": ("this is an overlay", "name the description here and this file in overlays="),
    "swaggerVersion": ("this is a Swagger 1 document", "convert it to OpenAPI 3 first"),
    "__schema": ("this is a GraphQL schema", "describe the HTTP API in OpenAPI"),
    "item": ("this looks like a Postman collection", "export it as OpenAPI"),
    "$schema": ("this is a JSON Schema", "name the OpenAPI description that uses it"),
    "resources": ("this looks like a Google discovery document", "convert it to OpenAPI first"),
}


def version_of(root: Any, name: str) -> Version | None:
    """Return the OpenAPI version of a description; None for Swagger 2.0.

    Raises `DescriptionError` for all other documents.
    """
    if not isinstance(root, dict):
        kind = "empty" if root is None else "a list" if isinstance(root, list) else "text"
        raise _no_description(name, f"this is not an API description but {kind}", "name a file in JSON or YAML")
    if "openapi" in root:
        written = str(root["openapi"])
        match = _VERSION.fullmatch(written)
        if match is None or match[1] not in ("0", "1", "2"):
            raise _no_description(name, f"openapi: {written[:40]!r} is a version that is not known here", _READ)
        return cast("Version", f"3.{match[1]}")
    if "swagger" in root:
        if str(root["swagger"]) not in ("2.0", "2"):
            written = str(root["swagger"])[:40]
            raise _no_description(name, f"swagger: {written!r} is a version that is not known here", _READ)
        return None
    for member, (problem, remedy) in _OTHER_FORMATS.items():
        if member in root or (member == "__schema" and "__schema" in (root.get("data") or ())):
            raise _no_description(name, problem, remedy)
    raise _no_description(name, "this is not an API description: the member openapi is missing", _READ)


def _no_description(name: str, problem: str, remedy: str) -> DescriptionError:
    return DescriptionError(f"{name}: {problem}: {remedy}")
