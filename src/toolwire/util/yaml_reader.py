"""YAML 1.2 as JSON values: the core schema, aliases counted, duplicate keys refused, depth and size bounded.

PyYAML's parser (libyaml, or the one in Python) gives events, and the values are built here. An alias is the same object
as its anchor, so a document of aliases takes no memory. Every reader that walks it would pay for the copies, so these
are counted.

The meaning of a plain scalar is that of YAML 1.2: `yes`, `12:30` and `2026-09-13` are strings, `0o7` is 7. PyYAML's own
table of meanings is that of YAML 1.1, so it is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from toolwire.extras import require

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
# OpenAPI 3.2, 4.3: tags are those of the JSON schema of YAML.
_CORE_TAGS: Final = frozenset(_TAG_PREFIX + name for name in ("int", "float", "bool", "null", "map", "seq"))
_TEXT_TAGS: Final = frozenset((_TAG_PREFIX + "str", "!"))
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class YamlError(Exception):
    """Text that is not YAML with one meaning in JSON. `line` and `column` count from 1."""

    def __init__(self, problem: str, remedy: str, line: int, column: int) -> None:
        super().__init__(problem, remedy, line, column)
        self.problem: str = problem
        self.remedy: str = remedy
        self.line: int = line
        self.column: int = column


def read_yaml(data: bytes, *, max_depth: int, max_values: int) -> Any:
    """Return the value of a document with one YAML document in it; raise `YamlError`."""
    return YamlReader(max_depth, max_values).read(data)


def _library(extra: str, what: str) -> Any:
    return require("yaml", extra=extra, what=what, package="pyyaml")


def _events(yaml: Any, text: bytes | str) -> Iterator[Any]:
    # libyaml reads some twenty times faster than Python does. PyYAML has it in all its wheels.
    return yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # type: ignore[no-any-return]


def yaml_positions(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Yield depth, key or index, and line (from 1) of each value below the root, in the order of the text."""
    yaml = _library(YamlReader.extra, YamlReader.what)
    # For each open collection the number of its next item, or None for a mapping. `key` waits for its value.
    counts: list[int | None] = []
    key: tuple[str, int] | None = None
    for event in _events(yaml, data):
        if isinstance(event, yaml.CollectionEndEvent):
            counts.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = event.start_mark.line + 1
        if counts and counts[-1] is None and key is None:
            key = (getattr(event, "value", ""), line)
            if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
                continue
        if counts and counts[-1] is not None:
            yield len(counts), str(counts[-1]), line
            counts[-1] += 1
        elif counts and key is not None:
            yield len(counts), *key
            key = None
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(None if isinstance(event, yaml.MappingStartEvent) else 0)


class YamlReader:
    """A reader of one document. One loop without recursion: there are a million events to read.

    A subclass may refuse more and word its errors: it overrides the methods below `read`.
    """

    extra: str = "openapi"
    what: str = "Reading an API description in YAML"
    one_document: str = "keep one document in a file"
    """The advice for a second document."""

    def __init__(self, max_depth: int, max_values: int) -> None:
        self._max_depth = max_depth
        self._max_values = max_values
        # The value of each anchor, and how many values are in it. None while its collection is open.
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        # The keys that a merge key brought, by the identity of the open mapping. Keys written out replace them.
        self._merged: dict[int, set[str]] = {}

    def read(self, text: bytes | str) -> Any:
        """Return the value of a text, None if it is empty; raise the errors of this reader."""
        yaml = _library(self.extra, self.what)
        try:
            return self._built(yaml, _events(yaml, text))
        except yaml.MarkedYAMLError as error:
            raise self.syntax_error(error) from None
        except (yaml.YAMLError, UnicodeError) as error:  # The characters of the text.
            reason = getattr(error, "reason", None) or "a character that cannot stand in YAML"
            position = getattr(error, "position", None) or 0
            line = (text.encode() if isinstance(text, str) else text).count(b"\n", 0, position) + 1
            raise YamlError(f"this is not text in YAML ({reason})", "save it as UTF-8", line, 1) from None

    def _built(self, yaml: Any, events: Iterator[Any]) -> Any:
        scalar, alias = yaml.ScalarEvent, yaml.AliasEvent
        start_of_mapping, start_of_sequence = yaml.MappingStartEvent, yaml.SequenceStartEvent
        ends = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
        start_of_document = yaml.DocumentStartEvent
        documents: list[Any] = []
        # The open collection, the function that puts a value into it, and the key that waits for its value.
        container: Any = documents
        put: Callable[[Any], None] | None = documents.append
        key: str | None = None
        outer: list[tuple[Any, Callable[[Any], None] | None, str | None, str | None, int]] = []
        values = 0
        for event in events:
            kind = type(event)
            if kind is scalar:
                if put is None and key is None:
                    key = self.read_key(event, container)
                    continue
                values += 1
                value = self.read_scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = (value, 1)
            elif kind is start_of_mapping or kind is start_of_sequence:
                if put is None and key is None:
                    raise self.error_at(event, "a key is not a string", "write a word, a colon and the value")
                self.check_collection(event, len(outer) + 1, kind is start_of_mapping)
                values += 1
                outer.append((container, put, key, event.anchor, values))
                container = {} if kind is start_of_mapping else []
                put, key = (None if kind is start_of_mapping else container.append), None
                continue
            elif kind in ends:
                value = container
                self._merged.pop(id(container), None)
                container, put, key, anchor, before = outer.pop()
                if anchor is not None:
                    self._anchors[anchor] = (value, values - before + 1)
            elif kind is alias:
                value, size = self.read_alias(event, put is None and key is None)
                if put is None and key is None:
                    if not isinstance(value, str):
                        raise self.error_at(event, "a key is not a string", "write a word, a colon and the value")
                    key = self.new_key(event, value, container)
                    continue
                values += size
            else:
                if kind is start_of_document and documents:
                    raise self.error_at(event, "a second document begins", self.one_document)
                continue
            if values > self._max_values:
                raise self.error_at(
                    event,
                    f"the document has more than {self._max_values:,} values, those that aliases repeat included",
                    "split it, or raise Limits.values",
                )
            if put is not None:
                put(value)
            elif key == "<<" and isinstance(value, dict | list):
                self.merge_into(event, container, value)
                key = None
            else:
                container[key] = value
                key = None
        return documents[0] if documents else None

    def read_key(self, event: Any, container: dict[str, Any]) -> str:
        """Return the key that a scalar writes, for the open mapping."""
        # OpenAPI 3.2, 4.3: keys are strings. A status such as 200 is one although it has no quotes.
        key: str = event.value
        if event.anchor is not None:
            self._anchors[event.anchor] = (key, 1)
        return key if key not in container else self.new_key(event, key, container)

    def new_key(self, event: Any, key: str, container: dict[str, Any]) -> str:
        """Return a key; refuse one that the open mapping has."""
        if key in container:
            merged = self._merged.get(id(container), set())
            if key not in merged:
                raise self.error_at(event, f"the key {key[:80]!r} stands here twice", "keep one of them")
            merged.remove(key)
        return key

    def read_scalar(self, event: Any) -> Any:
        """Return the value of a scalar by its tag, its quotes, or its text."""
        text: str = event.value
        tag: str | None = event.tag
        if tag is None:
            if not event.implicit[0]:  # Quoted, or a block.
                if not text.isascii() and _SURROGATE.search(text):
                    raise self.error_at(event, "half of a character stands alone", "write the character itself")
                return text
        elif tag in _TEXT_TAGS:
            return text
        elif tag not in _CORE_TAGS:
            raise self.error_at(
                event, f"{tag.removeprefix(_TAG_PREFIX)[:60]} is a tag that JSON lacks", "remove the tag"
            )
        try:
            return self.resolve(text)
        except ValueError as error:
            raise self.error_at(event, f"{text[:60]} {error}", f'put it in quotes: "{text[:60]}"') from None

    def check_collection(self, event: Any, depth: int, is_mapping: bool) -> None:
        """Refuse a mapping or sequence that is too deep or has a tag. The root has depth 1."""
        if depth > self._max_depth:
            raise self.error_at(
                event, f"the values are nested more than {self._max_depth} deep", "nest less, or raise Limits.depth"
            )
        if event.tag is not None and event.tag not in _CORE_TAGS and event.tag != "!":
            raise self.error_at(event, f"{event.tag[:60]} is a tag that JSON lacks", "remove the tag")
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def read_alias(self, event: Any, is_key: bool) -> tuple[Any, int]:
        """Return the value of an alias, and how many values are in it."""
        name: str = event.anchor
        if name not in self._anchors:
            raise self.error_at(event, f"*{name[:60]} has no anchor before it", f"write &{name[:60]} at the value")
        found = self._anchors[name]
        if found is None:
            raise self.error_at(event, f"*{name[:60]} stands inside its own value", "use $ref for a cycle")
        return found

    def merge_into(self, event: Any, container: dict[str, Any], value: Any) -> None:
        """Add the members of other mappings, as the merge key of YAML 1.1 does. Earlier mappings win."""
        merged = self._merged.setdefault(id(container), set())
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self.error_at(event, "a merge key takes mappings", "write << with an alias of a mapping")
            for name, member in source.items():
                if name not in container:
                    container[name] = member
                    merged.add(name)

    def resolve(self, text: str) -> Any:
        """Return the value of a plain scalar; raise ValueError for one that JSON does not have."""
        return core_value(text)

    def error_at(self, event: Any, problem: str, remedy: str) -> Exception:
        """Return the error for the place of an event."""
        return YamlError(problem, remedy, event.start_mark.line + 1, event.start_mark.column + 1)

    def syntax_error(self, error: Any) -> Exception:
        """Return the error for a text that PyYAML cannot parse."""
        mark = error.problem_mark or error.context_mark
        return YamlError(
            f"this is not YAML ({error.problem})",
            "check quotes, brackets and indentation up to here",
            mark.line + 1,
            mark.column + 1,
        )


# --- the meaning of a plain scalar ---

# YAML 1.2.2, 10.3.2: the tag resolution of the core schema.
NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o([0-7]+)")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Most values are words. One look at the first character tells that they are neither numbers nor constants.
_MAYBE_SPECIAL: Final = frozenset("0123456789+-.~ntfNTF")
# Python refuses to read a number of thousands of digits; a limit of its own gives the same answer earlier.
_MAX_DIGITS: Final = 64


def core_value(text: str) -> Any:
    """Return the value of a plain scalar; a ValueError says that JSON does not have it."""
    if text == "":
        return None
    if text[0] not in _MAYBE_SPECIAL:
        return text
    if text in NULL:
        return None
    if (boolean := _BOOLEAN.get(text)) is not None:
        return boolean
    if _INTEGER.fullmatch(text):
        return whole_number(text, 10)
    if octal := _OCTAL.fullmatch(text):
        return whole_number(octal[1], 8)
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return whole_number(hexadecimal[1], 16)
    if _FLOAT.fullmatch(text):
        return finite(float(text))
    if NO_NUMBER.fullmatch(text):
        raise ValueError("is not a number that JSON has")
    return text


def whole_number(digits: str, base: int) -> int:
    """Return the number that the digits write; raise ValueError for more digits than anybody needs."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError("is larger than the numbers that every reader keeps exactly")
    return int(digits, base)


def finite(value: float) -> float:
    """Return the number; raise ValueError for infinity."""
    if value in (float("inf"), float("-inf")):
        raise ValueError("is larger than the numbers that every reader keeps")
    return value
