"""Find places in the text of a document when an error names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from toolwire.util.json_pointer import unescape_token
from toolwire.util.yaml_reader import yaml_positions

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\],:"]+', re.DOTALL)


def line_of(data: bytes, pointer: str) -> int:
    """Return the line of the value at a JSON Pointer, or of its innermost parent."""
    tokens = [unescape_token(token) for token in pointer.split("/")[1:]]
    positions = json_positions(data) if data.lstrip()[:1] in (b"{", b"[") else yaml_positions(data)
    matched, line = 0, 1
    for depth, key, at in positions:
        if depth <= matched or matched == len(tokens):
            break  # The value that matched so far is over, or there is nothing more to find.
        if depth == matched + 1 and key == tokens[matched]:
            matched, line = depth, at
    return line


def first_duplicate(data: bytes) -> tuple[str, int] | None:
    """Return the first duplicate key of a JSON text, and its second line."""
    seen: list[set[str]] = [set()]
    for depth, key, line in json_positions(data):
        # A value of this depth ends everything deeper; the next deeper one begins a new object.
        del seen[depth + 1 :]
        if len(seen) == depth:
            seen.append(set())
        if key in seen[depth]:
            return key, line
        seen[depth].add(key)
    return None


def json_positions(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Yield depth, key or index, and line of each value in a JSON text."""
    # For each open collection the number of its next item, or None for an object. `key` waits for its value.
    counts: list[int | None] = []
    key: tuple[str, int] | None = None
    line, counted = 1, 0
    for token in _TOKEN.finditer(data):
        sign = token[0][:1]
        if sign in b"}]":
            counts.pop()
            continue
        line, counted = line + data.count(b"\n", counted, token.start()), token.start()
        if counts:
            index = counts[-1]
            if index is not None:
                yield len(counts), str(index), line
                counts[-1] = index + 1
            elif key is None:
                key = (msgspec.json.decode(token[0], type=str), line)
                continue
            else:
                yield len(counts), *key
                key = None
        if sign in b"{[":
            counts.append(None if sign == b"{" else 0)
