"""Taking a URI apart by a template, and screening what was found for traversal.

RFC 6570 defines no matching; ours is:

- `{name}` is exactly one path segment: not empty, no "/", "?" or "#". `{.name}`, `{/name}` and `{;name}` likewise,
  after their mark.
- `{+name}`, `{name*}` and `{/name*}` may span "/". `{+name}` also takes "?" and "#" where nothing after it could.
- `{?a,b}` and `{&a}` are optional, in any order, and name every parameter that the URI may carry. `{#name}` is
  optional.
- Where a URI could be cut in several ways, each variable takes as little as it can, from left to right.

The cost of a match grows with the length of the URI and with that of the template, never faster: either a pattern that
cannot backtrack does the work, or one pass over the text per part of the template.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from toolwire.protocol.uri_expressions import MAX_URI_LENGTH, STYLES, TRIPLET, Expression, Variable, encode

_BROKEN_TRIPLET = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_DRIVE = re.compile(r"[A-Za-z]:")
# `C:x` is a file on another drive there, and joined to a folder it leaves the folder. Elsewhere `a:1` is any name.
_HAS_DRIVES = sys.platform == "win32"
# Not only "/": several values travel as one text with commas, and a semicolon ends the name of a segment.
_SEGMENT_END = re.compile(r"[/,;]")


class Unmatchable(Exception):
    """The template is legal, and no URI can be taken apart by it."""


class _Slot(NamedTuple):
    """The place of one variable; it takes one character or more, none of `excluded`."""

    name: str
    prefix: int | None
    spans: bool
    excluded: str


_Token: TypeAlias = "str | _Slot"
#: What was found for each slot, still encoded; more than one text where a query parameter was given several times.
_Raw: TypeAlias = "list[tuple[_Slot, list[str]]]"


class Matching:
    """A template made ready for matching: a head in a fixed order, then the free query, then the fragment."""

    __slots__ = ("_ampersands", "_fragment", "_head", "_opening", "_query", "_question")

    def __init__(self, parts: list[str | Expression]) -> None:
        free = next((index for index, part in enumerate(parts) if _is_one_of(part, "?", "&", "#")), len(parts))
        query = [part for part in parts[free:] if isinstance(part, Expression) and part.operator != "#"]
        fragment = parts[free + len(query) :]
        ordered = all(_is_one_of(part, "?", "&") for part in parts[free : free + len(query)])
        if not ordered or len(fragment) > 1 or not all(_is_one_of(part, "#") for part in fragment):
            raise Unmatchable(
                "a template to match ends with its query expressions and then one fragment, if it has any"
            )
        head = "".join(p for p in parts[:free] if isinstance(p, str))
        self._question = "?" in head
        self._opening = query[0].operator if query else ""
        if self._opening == "?" and self._question:
            raise Unmatchable(f"the query expression at position {query[0].position} has to continue a query: {{&…}}")
        self._ampersands = head.partition("?")[2].count("&") if self._question else head.count("&")
        self._query = {variable.name: variable for expression in query for variable in expression.variables}
        self._fragment = _Sequence(_tokens(fragment, free_end=True)) if fragment else None
        self._head = _Sequence(_tokens(parts[:free], free_end=free == len(parts)))

    def match(self, uri: str, screen: bool) -> dict[str, str] | None:
        raw: _Raw = []
        if self._fragment is not None:
            uri, mark, fragment = uri.partition("#")
            if mark and not self._fragment.match(fragment, raw):
                return None
        if self._opening:
            uri, query = self._cut_query(uri)
            if query and not self._match_query(query, raw):
                return None
        return _decoded(raw, screen) if self._head.match(uri, raw) else None

    def _cut_query(self, uri: str) -> tuple[str, str]:
        if self._opening == "?":
            head, _, query = uri.partition("?")
            return head, query
        # The head has a query of its own, with a known number of ampersands; the free part begins at the next one.
        position = uri.find("?") if self._question else -1
        for _ in range(self._ampersands + 1):
            position = uri.find("&", position + 1)
            if position < 0:
                return uri, ""
        return uri[:position], uri[position + 1 :]

    def _match_query(self, query: str, raw: _Raw) -> bool:
        values: dict[str, list[str]] = {}
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            variable = self._query.get(name)
            if variable is None or "#" in value:
                return False
            if name in values and not variable.explode:
                # A parameter given twice means one thing here and another behind us: refuse it.
                return False
            values.setdefault(name, []).append(value)
        raw.extend((_Slot(name, self._query[name].prefix, True, ""), texts) for name, texts in values.items())
        return True


class _Sequence:
    """Literals and slots in a fixed order."""

    __slots__ = ("_middle", "_pattern", "_prefix", "_slots", "_suffix")

    def __init__(self, tokens: list[_Token]) -> None:
        self._slots = [token for token in tokens if isinstance(token, _Slot)]
        self._prefix = self._suffix = ""
        match tokens:
            case [str(prefix), *tokens]:
                self._prefix = prefix
        match tokens:
            case [*tokens, str(suffix)]:
                self._suffix = suffix
        self._middle = tokens
        self._pattern = _possessive_pattern(tokens)

    def match(self, text: str, raw: _Raw) -> bool:
        end = len(text) - len(self._suffix)
        if end < len(self._prefix) or not text.startswith(self._prefix) or not text.endswith(self._suffix):
            return False
        text = text[len(self._prefix) : end]
        if self._pattern is not None:
            found = self._pattern.fullmatch(text)
            values: Sequence[str] | None = found and found.groups()
        else:
            values = sweep(text, self._middle)
        if values is None:
            return False
        raw.extend((slot, [value]) for slot, value in zip(self._slots, values, strict=True))
        return True


def _is_one_of(part: str | Expression, *operators: str) -> bool:
    return isinstance(part, Expression) and part.operator in operators


def spans_segments(operator: str, variable: Variable) -> bool:
    """Return whether a variable may hold a "/" as it is."""
    return operator in ("+", "#") or (variable.explode and operator in ("", "/"))


def _tokens(parts: list[str | Expression], *, free_end: bool) -> list[_Token]:
    """Flatten expressions into literals and slots. `free_end`: nothing follows that could want a "?" or a "#"."""
    tokens: list[_Token] = []
    in_query = False
    for index, part in enumerate(parts):
        if isinstance(part, str):
            _append_literal(tokens, TRIPLET.sub(_upper, encode(part, reserved=True)))
            in_query = in_query or "?" in part
            continue
        style = STYLES[part.operator]
        # The "#" of a fragment was cut off before.
        first = "" if part.operator == "#" else style.first
        later = "".join(text for text in parts[index + 1 :] if isinstance(text, str))
        claimed = not free_end or not {"?", "#", "&"}.isdisjoint(later)
        for number, variable in enumerate(part.variables):
            _append_literal(tokens, style.separator if number else first)
            if style.named:
                _append_literal(tokens, f"{variable.name}=")
            spans = spans_segments(part.operator, variable)
            excluded = "?#" if spans and claimed else "" if spans else "/?#"
            excluded += "&" if in_query and excluded else ""
            excluded += ";" if part.operator == ";" else ""
            tokens.append(_Slot(variable.name, variable.prefix, spans, excluded))
    return tokens


def _append_literal(tokens: list[_Token], text: str) -> None:
    if tokens and isinstance(tokens[-1], str):
        tokens[-1] += text
    elif text:
        tokens.append(text)


def _possessive_pattern(tokens: list[_Token]) -> re.Pattern[str] | None:
    """A pattern without any backtracking, where each slot ends at a character that it cannot hold."""
    source = ""
    for token, following in zip_longest(tokens, tokens[1:]):
        if isinstance(token, str):
            source += re.escape(token)
        elif following is None or (isinstance(following, str) and following[0] in token.excluded):
            source += f"([^{re.escape(token.excluded)}]++)" if token.excluded else "(.++)"
        else:
            return None
    return re.compile(source, re.DOTALL)


def sweep(text: str, tokens: Sequence[_Token]) -> list[str] | None:
    """Match by one backward pass per token, which marks where the rest can match from, and then one forward walk."""
    size = len(text)
    # Two spare places: a percent triplet that is cut off at the end leads past it, to nowhere.
    after = bytearray(size + 3)
    after[size] = 1
    tables = [after]
    for token in reversed(tokens):
        table = bytearray(size + 3)
        if isinstance(token, str):
            for position in range(size - len(token) + 1):
                if after[position + len(token)] and text.startswith(token, position):
                    table[position] = 1
        else:
            for position in range(size - 1, -1, -1):
                character = text[position]
                if character not in token.excluded:
                    step = position + (3 if character == "%" else 1)
                    table[position] = after[step] or table[step]
        tables.append(table)
        after = table
    if not after[0]:
        return None
    tables.reverse()
    values = []
    position = 0
    for token, after in zip(tokens, tables[1:], strict=True):
        if isinstance(token, str):
            position += len(token)
            continue
        end = position + (3 if text[position] == "%" else 1)
        while not after[end]:
            end += 3 if text[end] == "%" else 1
        values.append(text[position:end])
        position = end
    return values


# --- values ---------------------------------------------------------------------------------------


def normalize(uri: str) -> str | None:
    """One spelling for equal URIs: ASCII only, percent triplets in upper case. None when it is not a URI for us."""
    if len(uri) > MAX_URI_LENGTH:
        return None
    if not uri.isascii():
        from urllib.parse import quote

        try:
            uri = _NOT_ASCII.sub(lambda found: quote(found[0]), uri)
        except UnicodeEncodeError:
            return None
    if "%" in uri:
        if len(uri) > MAX_URI_LENGTH or _BROKEN_TRIPLET.search(uri):
            return None
        uri = TRIPLET.sub(_upper, uri)
    return uri


def _upper(found: re.Match[str]) -> str:
    return found[0].upper()


def _decoded(raw: _Raw, screen: bool) -> dict[str, str] | None:
    values: dict[str, str] = {}
    prefixes: list[tuple[int, str, str]] = []
    for slot, pieces in raw:
        decoded = [_decode(piece) for piece in pieces]
        safe = [text for text in decoded if text is not None and not (screen and _is_unsafe(text, slot.spans))]
        if len(safe) < len(pieces):
            return None
        text = ",".join(safe)
        if slot.prefix is not None:
            if len(text) > slot.prefix:
                return None
            prefixes.append((slot.prefix, slot.name, text))
        elif values.setdefault(slot.name, text) != text:
            return None
    for length, name, text in sorted(prefixes, reverse=True):
        if values.setdefault(name, text)[:length] != text:
            return None
    return values


def _decode(text: str) -> str | None:
    if "%" not in text:
        return text
    if _BROKEN_TRIPLET.search(text):
        return None
    from urllib.parse import unquote

    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _is_unsafe(value: str, spans: bool) -> bool:
    """Return whether a value could lead out of the place it is meant for.

    2026-07-28 server/resources: URIs must be validated and file paths sanitized. What is still encoded after the first
    decoding is looked at again, because the handler may decode the value once more; three layers are never honest.
    """
    for _ in range(3):
        if "\0" in value or "\\" in value or ".." in _SEGMENT_END.split(value):
            return True
        if spans:
            if value.startswith("/") or _DRIVE.match(value):
                return True
        elif "/" in value or (_HAS_DRIVES and _DRIVE.match(value)):
            return True
        if "%" not in value:
            return False
        from urllib.parse import unquote

        decoded = unquote(value)
        if decoded == value:
            return False
        value = decoded
    return True
