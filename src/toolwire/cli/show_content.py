"""Results of tools, resources and prompts on the screen: text, tables, JSON, pictures, links."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from toolwire.cli.screen import Screen, note
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted

_ROWS: Final = 1_000
_COLUMNS: Final = 12
_CELL: Final = 200
_INLINE: Final = 4 * 1024 * 1024
_SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "application/pdf": ".pdf",
}


def show_result(out: Screen, result: ToolResult) -> None:
    """Show the result of a tool.

    Structured content comes as a table or JSON, then everything but its text form.
    """
    if result.has_structured:
        rows = table_of(_inside(result.structured))
        if rows is not None:
            out.table(*rows)
        elif isinstance(result.structured, dict | list):
            out.json(result.structured)
        else:
            out.text(result.text)
    for block in result.content:
        # The text beside a structured value repeats it for clients that cannot read structured content.
        if not (result.has_structured and isinstance(block, t.TextContent)):
            _block(out, block)
    if not (result.content or result.has_structured):
        note("(nothing)")


def show_resource(out: Screen, contents: Sequence[t.ResourceContents]) -> None:
    """Show the contents of a resource.

    Each one has its URI above it if there are several.
    """
    for one in contents:
        if len(contents) > 1:
            out.heading(f"{one.uri}:")
        _contents(out, one)
    if not contents:
        note("(nothing)")


def show_messages(out: Screen, messages: Sequence[t.PromptMessage]) -> None:
    """Show the messages of a prompt.

    Each one has its role above it, unless a single message is the user's.
    """
    for message in messages:
        if len(messages) > 1 or message.role != "user":
            out.heading(f"{message.role}:")
        _block(out, message.content)
    if not messages:
        note("(nothing)")


def _inside(value: Any) -> Any:
    """Unwrap a value that older revisions made an object, because they need one."""
    return value["result"] if isinstance(value, dict) and list(value) == ["result"] else value


def _block(out: Screen, block: Any) -> None:
    match block:
        case t.TextContent():
            _text(out, block.text)
        case t.ImageContent():
            _image(out, block.data, block.mime_type)
        case t.AudioContent():
            _file(out, "a sound", block.data, block.mime_type)
        case t.ResourceLink():
            out.line(f"→ {block.uri}  {block.name}")
        case t.EmbeddedResource():
            out.line(f"{block.resource.uri}:")
            _contents(out, block.resource)
        case _:
            out.json(block.to_dict())


def _text(out: Screen, text: str) -> None:
    """Show text as it is; a list of records in JSON becomes a table.

    Older revisions send records only this way.
    """
    if text[:1] == "[" and out.is_terminal:
        try:
            rows = table_of(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            rows = None
        if rows is not None:
            out.table(*rows)
            return
    out.text(text)


def _contents(out: Screen, contents: t.ResourceContents) -> None:
    mime_type = "" if contents.mime_type is UNSET else contents.mime_type
    if contents.blob is UNSET:
        _text(out, "" if contents.text is UNSET else contents.text)
    elif mime_type.startswith("image/"):
        _image(out, contents.blob, mime_type)
    else:
        _file(out, "data", contents.blob, mime_type)


# --- tables ----------------------------------------------------------------------------------------------------------


def table_of(value: Any) -> tuple[list[str], list[list[str]]] | None:
    """Return columns and rows of a list of flat records; None for other values."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) and row for row in value[:_ROWS]):
        return None
    columns = list(dict.fromkeys(key for row in value[:_ROWS] for key in row))
    cells = [[row.get(column) for column in columns] for row in value[:_ROWS]]
    if len(columns) > _COLUMNS or any(isinstance(cell, dict | list) for row in cells for cell in row):
        return None
    rows = [[_cell(cell) for cell in row] for row in cells]
    if len(value) > _ROWS:
        rows.append([f"… and {len(value) - _ROWS:,} more", *[""] * (len(columns) - 1)])
    return columns, rows


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


# --- pictures and other files ----------------------------------------------------------------------------------------


def _image(out: Screen, data: bytes, mime_type: str) -> None:
    """Draw a picture in a terminal that can; otherwise save it to a file."""
    sequence = drawn(data, mime_type, os.environ) if out.is_terminal else None
    if sequence is None:
        _file(out, "a picture", data, mime_type)
    else:
        out.raw(sequence + "\n")


def drawn(data: bytes, mime_type: str, environment: Any) -> str | None:
    """Return the sequence that draws a picture in the terminal, or None.

    Only base64 goes into it.
    """
    if len(data) > _INLINE:
        return None
    encoded = base64.b64encode(data).decode()
    if environment.get("TERM") == "xterm-kitty" or environment.get("TERM_PROGRAM") == "ghostty":
        return _kitty(encoded) if mime_type == "image/png" else None
    if environment.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "vscode") and mime_type != "image/svg+xml":
        return f"\x1b]1337;File=inline=1;size={len(data)}:{encoded}\a"
    return None


def _kitty(encoded: str) -> str:
    """Write a picture for Kitty's graphics protocol, which takes pieces of at most 4096 characters."""
    pieces = [encoded[at : at + 4096] for at in range(0, len(encoded), 4096)] or [""]
    last = len(pieces) - 1
    return "".join(
        f"\x1b_G{'a=T,f=100,' if at == 0 else ''}m={int(at < last)};{piece}\x1b\\" for at, piece in enumerate(pieces)
    )


def _file(out: Screen, what: str, data: bytes, mime_type: str) -> None:
    """Save data to a temporary file with a name of our own.

    No word of the server becomes part of a path.
    """
    descriptor, name = tempfile.mkstemp(prefix="toolwire-", suffix=_SUFFIXES.get(mime_type, ".bin"))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    out.line(f"{what}, {mime_type or 'of unknown type'}, {counted(len(data), 'byte')}: {Path(name)}")
