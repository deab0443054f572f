"""Smaller forms of JSON values: previews, outlines, and the values of cut texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.printable import printable

_MAX_DEPTH: Final = 64
_SHOWN_KEYS: Final = 20
_SHOWN_KEY: Final = 60


def smaller(value: Any, room: int, left_out: OmittedParts | None = None) -> Any:
    """Shrink a JSON value to about `room` bytes, and keep its shape.

    `left_out` gets the parts that are missing or cut.
    """
    return _smaller(value, max(room, 2), (), OmittedParts() if left_out is None else left_out)[0]


def _smaller(value: Any, room: int, path: tuple[str | int, ...], left_out: OmittedParts) -> tuple[Any, int]:
    """Return the smaller value, and about how many bytes its JSON has."""
    if isinstance(value, str):
        if len(value) <= room:
            return value, len(value) + 2
        left_out.add(path)
        return value[: max(room - 1, 0)] + "…", room + 2
    if isinstance(value, list):
        return _shorter_list(value, room, path, left_out)
    if isinstance(value, dict):
        return _smaller_object(value, room, path, left_out)
    return value, len(str(value))


def _shorter_list(
    value: list[Any], room: int, path: tuple[str | int, ...], left_out: OmittedParts
) -> tuple[list[Any], int]:
    kept: list[Any] = []
    used = 2
    for index, item in enumerate(value if len(path) < _MAX_DEPTH else ()):
        # One item may take half of the room, so that a list of large items still shows its first one.
        cut = OmittedParts()
        made, size = _smaller(item, max(room - used, 0) if kept else room // 2, (*path, index), cut)
        if kept and used + size > room:
            break
        left_out.update(cut)
        kept.append(made)
        used += size + 1
        if used >= room:
            break
    if len(kept) < len(value):
        left_out.add((*path, "-"))
    return kept, used


def _smaller_object(
    value: dict[str, Any], room: int, path: tuple[str | int, ...], left_out: OmittedParts
) -> tuple[dict[str, Any], int]:
    used = 2
    if len(path) >= _MAX_DEPTH:
        for name in value:
            left_out.add((*path, name))
        return {}, used
    left = len(value)
    made: dict[str, Any] = {}
    # Plain members come first, because they say most in the least room.
    for is_nested in (False, True):
        for name, member in value.items():
            if isinstance(member, list | dict) is not is_nested:
                continue
            share = (room - used) // left
            left -= 1
            if used + len(name) + 6 <= room:
                made[name], size = _smaller(member, max(share - len(name) - 4, 8), (*path, name), left_out)
                used += len(name) + 4 + size
            else:
                left_out.add((*path, name))
    return {name: made[name] for name in value if name in made}, used


def outline(value: Any, preview: Any, *, is_beginning: bool = False) -> str:
    """Describe how many items and members a value has, and how many are shown."""
    return " ".join(_outlined(value, preview, "more than " if is_beginning else ""))


def _outlined(value: Any, preview: Any, least: str) -> Iterator[str]:
    if isinstance(value, list):
        yield f"It is a list of {least}{len(value):,} items; {len(preview):,} are shown."
        yield from _first_item(value)
    elif isinstance(value, dict):
        yield f"It is an object with the members {_names(value)}."
        lists = [(name, member) for name, member in value.items() if isinstance(member, list)]
        for name, member in sorted(lists, key=lambda each: -len(each[1]))[:3]:
            shown = preview.get(name, [])
            if len(shown) < len(member):
                yield f"`{printable(name[:_SHOWN_KEY])}` has {least}{len(member):,} items; {len(shown):,} are shown."
                yield from _first_item(member)
    else:
        yield "This is its beginning."


def members_in_words(value: Any) -> str:
    """Say which members a value has."""
    if isinstance(value, list):
        return " ".join((f"It is a list of {len(value):,} items.", *_first_item(value)))
    if isinstance(value, dict):
        return f"It is an object with the members {_names(value)}."
    return "It is neither an object nor a list."


def _first_item(items: list[Any]) -> Iterator[str]:
    first = next((item for item in items if isinstance(item, dict)), None)
    if first:
        yield f"The first item has the members {_names(first)}."


def _names(value: dict[str, Any]) -> str:
    names = [printable(name[:_SHOWN_KEY]) for name in list(value)[:_SHOWN_KEYS]]
    more = len(value) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


# --- JSON that breaks off ---------------------------------------------------------------------------------------------

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],"]', re.DOTALL)
_CLOSERS: Final = {b"{": b"}", b"[": b"]"}


def closed_json(data: bytes) -> Any:
    """Return the value of a cut JSON text, up to its last whole member."""
    still_open: list[bytes] = []
    end, closers = 0, b""
    for found in _TOKENS.finditer(data):
        token = found[0]
        if len(still_open) > _MAX_DEPTH:
            break
        if token in _CLOSERS:
            still_open.append(_CLOSERS[token])
            end = found.end()
        elif token == b",":
            end = found.start()  # The member before it is whole.
        elif token in (b"}", b"]"):
            if not still_open or still_open.pop() != token:
                return None
            end = found.end()
        elif token == b'"':
            break  # The text breaks off within a string.
        else:
            continue
        closers = b"".join(reversed(still_open))
    if not end:
        return None
    try:
        return msgspec.json.decode(data[:end] + closers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
