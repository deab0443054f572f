"""Binary answers: small images and sounds in the result, the rest as links."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from toolwire.openapi.answer.large_answers import AnswerLimits
from toolwire.printable import printable
from toolwire.protocol import types as t
from toolwire.server.call import Call
from toolwire.server.kept_results import KeptResults

#: The key of `_meta` under which a link has the digest of its bytes.
DIGEST_KEY: Final = "io.toolwire/digest"
# RFC 6266 section 4.1. The form with a star is the better one where both are there.
_STARRED: Final = re.compile(r"filename\*\s*=\s*(?:utf-8|iso-8859-1)'[^']*'([^;\s]+)", re.IGNORECASE)
_QUOTED: Final = re.compile(r'filename\s*=\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BARE: Final = re.compile(r"filename\s*=\s*([^;\s\"]+)", re.IGNORECASE)
# Types outside of text/* that are text.
_TEXTS: Final = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/jwt",
        "application/sql",
        "application/toml",
        "application/x-javascript",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
_TEXT_SUFFIXES: Final = ("+json", "+xml", "+yaml", "/json")


def is_binary(media_type: str) -> bool:
    """Return whether a body of this type is bytes, and not text."""
    return not (media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(_TEXT_SUFFIXES))


def file_name(disposition: str | None) -> str | None:
    """Return the file name in a `Content-Disposition`, without folders; None if missing."""
    if disposition is None:
        return None
    starred = _STARRED.search(disposition)
    plain = _QUOTED.search(disposition) or _BARE.search(disposition)
    if starred is not None:
        name = unquote(starred[1])
    elif plain is not None:
        name = re.sub(r"\\(.)", r"\1", plain[1])
    else:
        return None
    # RFC 6266 section 4.3: only the last part of a path is taken.
    return printable(re.split(r"[/\\]", name)[-1])[:100].strip(". ") or None


class BinaryAnswers:
    """Makes results of the bytes that one operation answers with."""

    def __init__(self, kept: KeptResults, limits: AnswerLimits, name: str) -> None:
        """`name` is that of the tool."""
        self._kept = kept
        self._limits = limits
        self._name = name

    async def blocks(self, call: Call, data: bytes, media_type: str, headers: Mapping[str, str]) -> list[Any]:
        """Return content blocks with all of the bytes, or with a link to them."""
        media_type = media_type or "application/octet-stream"
        if len(data) <= self._limits.inline_bytes:
            if media_type.startswith("image/"):
                return [t.ImageContent(data=data, mime_type=media_type)]
            if media_type.startswith("audio/"):
                return [t.AudioContent(data=data, mime_type=media_type)]
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        named = file_name(headers.get("content-disposition"))
        name = named or f"answer of {self._name}"
        said = f"The answer is {printable(media_type[:100])}, {len(data):,} bytes, {digest}."
        lost, meta = "There is no room to keep it.", {DIGEST_KEY: digest}
        return await self._kept.link(call, data, media_type, name, said, which="It", lost=lost, meta=meta)

    def cut(self, media_type: str, size: int | None) -> list[Any]:
        """Return the content for bytes that were not read completely.

        A part of them is of no use.
        """
        of = "" if size is None else f", and has {size:,}"
        most = f"more than the {self._limits.max_bytes:,} bytes that are read{of}"
        return [t.TextContent(f"[The answer is {printable(media_type[:100])} of {most}. It was not kept.]")]
