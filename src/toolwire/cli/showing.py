"""The result of a tool, drawn as what it is: text, tables, JSON, pictures, links."""

from __future__ import annotations

import base64
import os
import tempfile
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


def show(out: Screen, result: ToolResult) -> None:
    if result.has_structured:
        rows = table_of(_inside(result.structured))
        if rows is not None:
            out.table(*rows)
        elif isinstance(result.structured, dict | list):
            out.json(result.structured)
        else:
            out.text(result.text)
    for block in result.content:
        # The text beside a structured value is the same once more, for those who cannot read it.
        if not (result.has_structured and isinstance(block, t.TextContent)):
            _block(out, block)
    if not (result.content or result.has_structured):
        note("(nothing)")


def _inside(value: Any) -> Any:
    """What is wrapped, where a value that is no object was made one for the older revisions."""
    return value["result"] if isinstance(value, dict) and list(value) == ["result"] else value


def _block(out: Screen, block: Any) -> None:
    match block:
        case t.TextContent():
            _text(out, block.text)
        case t.ImageContent():
            _image(out, block)
        case t.AudioContent():
            _file(out, "a sound", block.data, block.mime_type)
        case t.ResourceLink():
            out.line(f"→ {block.uri}  {block.name}")
        case t.EmbeddedResource():
            _resource(out, block.resource)
        case _:
            out.json(block.to_dict())


def _text(out: Screen, text: str) -> None:
    """Text as it is; a list of records written as JSON is a table, as the older revisions know no other way."""
    if text[:1] == "[" and out.is_terminal:
        try:
            rows = table_of(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            rows = None
        if rows is not None:
            out.table(*rows)
            return
    out.text(text)


def _resource(out: Screen, contents: t.ResourceContents) -> None:
    out.line(f"{contents.uri}:")
    if contents.blob is UNSET:
        out.text("" if contents.text is UNSET else contents.text)
    else:
        _file(out, "data", contents.blob, "" if contents.mime_type is UNSET else contents.mime_type)


# --- tables ----------------------------------------------------------------------------------------------------------


def table_of(value: Any) -> tuple[list[str], list[list[str]]] | None:
    """Columns and rows of a list of flat records; None for anything else."""
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


def _image(out: Screen, block: t.ImageContent) -> None:
    """In the terminal, where it is one that draws pictures; in a file otherwise."""
    sequence = drawn(block.data, block.mime_type, os.environ) if out.is_terminal else None
    if sequence is None:
        _file(out, "a picture", block.data, block.mime_type)
    else:
        out.raw(sequence + "\n")


def drawn(data: bytes, mime_type: str, environment: Any) -> str | None:
    """The sequence that makes the terminal draw a picture, None where it knows none. Only base64 goes into it."""
    if len(data) > _INLINE:
        return None
    encoded = base64.b64encode(data).decode()
    if environment.get("TERM") == "xterm-kitty" or environment.get("TERM_PROGRAM") == "ghostty":
        return _kitty(encoded) if mime_type == "image/png" else None
    if environment.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "vscode") and mime_type != "image/svg+xml":
        return f"\x1b]1337;File=inline=1;size={len(data)}:{encoded}\a"
    return None


def _kitty(encoded: str) -> str:
    """Kitty's graphics protocol takes pieces of at most 4096 characters."""
    pieces = [encoded[at : at + 4096] for at in range(0, len(encoded), 4096)] or [""]
    last = len(pieces) - 1
    return "".join(
        f"\x1b_G{'a=T,f=100,' if at == 0 else ''}m={int(at < last)};{piece}\x1b\\" for at, piece in enumerate(pieces)
    )


def _file(out: Screen, what: str, data: bytes, mime_type: str) -> None:
    """Keep it in a file of our own naming: nothing that the server said becomes part of a path."""
    descriptor, name = tempfile.mkstemp(prefix="toolwire-", suffix=_SUFFIXES.get(mime_type, ".bin"))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    out.line(f"{what}, {mime_type or 'of unknown type'}, {counted(len(data), 'byte')}: {Path(name)}")
