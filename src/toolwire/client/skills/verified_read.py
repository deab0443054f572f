"""Bytes of skill files as a server sends them, checked before anybody uses them.

SEP-2640, verification on read: a host verifies size and digest of each file that it retrieves. What fails is never
used.
"""

from __future__ import annotations

import binascii
from typing import Final

from msgspec import UNSET, UnsetType

from toolwire.protocol import skills as rules
from toolwire.protocol import types as t
from toolwire.protocol.skills import SkillRejected, shown

_MAX_MIME_TYPE: Final = 200


class FileContents(t.Wire):
    """The contents of a file as they came: the blob is still base64, so that its size is known before it is decoded."""

    uri: str
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET


class FileResult(t.Result, kw_only=True):
    """The result of `resources/read` for a file of a skill."""

    contents: list[FileContents]


def contents_of(result: FileResult, uri: str) -> FileContents:
    """Return the contents of the one file that was asked for."""
    if len(result.contents) != 1:
        message = f"The server answered the read of {shown(uri)} with {len(result.contents)} contents instead of one"
        raise SkillRejected("contents", message, 1, len(result.contents))
    contents = result.contents[0]
    if contents.uri != uri:
        message = f"The server answered the read of {shown(uri)} with the contents of {shown(contents.uri)}"
        raise SkillRejected("contents", message, uri, contents.uri)
    if (contents.text is UNSET) == (contents.blob is UNSET):
        raise SkillRejected("contents", f"The contents of {shown(uri)} have to be either a text or a blob")
    return contents


def listed_bytes(contents: FileContents, file: t.SkillResource) -> bytes:
    """Return the bytes of a file that its entry describes. The size is checked before base64 is decoded."""
    if isinstance(contents.blob, str):
        rules.check_size(file, rules.base64_size(contents.blob))
    data = _decoded(contents)
    rules.check_bytes(file, data)
    return data


def dynamic_bytes(contents: FileContents, limit: int) -> bytes:
    """Return the bytes of a file of a dynamic skill, which nothing describes; at most `limit` of them."""
    size = rules.base64_size(contents.blob) if isinstance(contents.blob, str) else len(str(contents.text))
    data = _decoded(contents) if size <= limit else b""
    if max(size, len(data)) > limit:
        message = f"The files of the skill have more than {rules.MAX_BYTES} bytes"
        raise SkillRejected("limit", message, rules.MAX_BYTES, None)
    return data


def _decoded(contents: FileContents) -> bytes:
    try:
        if isinstance(contents.blob, str):
            return binascii.a2b_base64(contents.blob, strict_mode=True)
        return str(contents.text).encode()
    except (binascii.Error, ValueError):
        raise SkillRejected("contents", f"The contents of {shown(contents.uri)} are neither base64 nor UTF-8") from None


def mime_type_of(contents: FileContents) -> str | None:
    return contents.mime_type[:_MAX_MIME_TYPE] if isinstance(contents.mime_type, str) else None
