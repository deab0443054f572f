"""Answers too large for a model: limits, previews, and the whole as a resource.

A preview has the shape of the answer. Only lists, texts and deep members are shorter, so it still fits an output
schema that asks for nothing in particular. Behind it stands how large the whole is, which members it has, and where it
can be read. Results of mounted servers are cut in another way, for the reason in `server.shaping.large_results`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from toolwire.openapi.answer.answers import MAX_BYTES
from toolwire.openapi.answer.left_out import OmittedParts
from toolwire.openapi.answer.previews import closed_json, outline, smaller
from toolwire.openapi.model import OperationSettings
from toolwire.protocol import types as t
from toolwire.server.call import Call
from toolwire.server.kept_results import KeptResults
from toolwire.tokens import count_tokens

#: What holds for an operation whose settings say nothing.
MAX_TOKENS: Final = 10_000
INLINE_BYTES: Final = 1_000_000
# A text with more bytes for each token than this is too large without counting.
_BYTES_OF_TOKEN: Final = 12
# With so many bytes for each token a preview begins. It is made smaller until it fits.
_PREVIEW_BYTES: Final = 4
_ATTEMPTS: Final = 6
# The tokens that the note behind a preview may take.
_NOTE_TOKENS: Final = 400


class AnswerLimits(Struct, frozen=True):
    """Limits for the bytes that are read, and for what the model gets."""

    max_bytes: int = MAX_BYTES
    max_tokens: int = MAX_TOKENS
    inline_bytes: int = INLINE_BYTES

    @classmethod
    def from_settings(cls, settings: OperationSettings, max_bytes: int = MAX_BYTES) -> AnswerLimits:
        """Return the limits of an operation.

        `max_bytes` holds where its settings say nothing.
        """
        return cls(
            max_bytes if settings.max_bytes is None else settings.max_bytes,
            MAX_TOKENS if settings.max_tokens is None else settings.max_tokens,
            INLINE_BYTES if settings.inline_bytes is None else settings.inline_bytes,
        )


class Shown(NamedTuple):
    """The part of an answer that the model gets."""

    value: Any
    """The value, or a smaller one of the same shape."""
    notes: list[Any]
    """The content blocks that stand behind it."""
    left_out: OmittedParts
    """The parts of the answer that the value does not have."""


class LargeAnswers:
    """The previews of one operation, and the place where the wholes are kept."""

    def __init__(self, kept: KeptResults, limits: AnswerLimits, name: str, select: str | None = None) -> None:
        """`name` is that of the tool, and `select` the argument that selects a part."""
        self.kept = kept
        self.limits = limits
        self._name = name
        self._less = "Ask for less." if select is None else f"Ask for less, with `{select}` or with other arguments."

    def fits(self, text: bytes) -> bool:
        """Return whether a text is small enough for the model."""
        most = self.limits.max_tokens
        if len(text) <= most:
            return True  # A token has at least one byte.
        return len(text) <= most * _BYTES_OF_TOKEN and count_tokens(text.decode(errors="replace")) <= most

    async def fit_value(self, call: Call, value: Any, text: bytes) -> Shown:
        """Return a JSON value, or its preview where its text is too large."""
        if self.fits(text):
            return Shown(value, [], OmittedParts())
        preview, left_out = self._preview(value)
        said = f"The answer has {len(text):,} bytes, which is more than {self.limits.max_tokens:,} tokens. "
        said += outline(value, preview) + _missing(left_out)
        return Shown(preview, await self._notes(call, said, text.decode(errors="replace")), left_out)

    async def fit_text(self, call: Call, text: str) -> Shown:
        """Return a text, or its beginning where it is too large."""
        encoded = text.encode(errors="replace")
        if self.fits(encoded):
            return Shown(text, [], OmittedParts())
        said = f"The answer has {len(encoded):,} bytes in {text.count(chr(10)) + 1:,} lines. This is its beginning."
        return Shown(self._head(text), await self._notes(call, said, text, "text/plain"), _all_that_follows())

    async def cut(self, call: Call, data: bytes, is_json: bool, size: int | None) -> Shown:
        """Return the beginning of an answer of which only `max_bytes` were read.

        `size` is its length, where the API says it. The value is a text where no JSON can be made of it.
        """
        room = self.limits.max_tokens * _PREVIEW_BYTES
        began = closed_json(data[: 2 * room]) if is_json else None
        of = "" if size is None else f", of {size:,}"
        said = f"The answer has more than {self.limits.max_bytes:,} bytes{of}, so the rest was not read."
        text = data.decode(errors="replace")
        left_out = _all_that_follows()
        if began is None:
            return Shown(self._head(text), await self._notes(call, said, text, "text/plain", is_whole=False), left_out)
        preview, cut = self._preview(began)
        left_out.update(cut)
        said += " " + outline(began, preview, is_beginning=True) + _missing(left_out)
        return Shown(preview, await self._notes(call, said, text, "text/plain", is_whole=False), left_out)

    def _preview(self, value: Any) -> tuple[Any, OmittedParts]:
        """Return a smaller value of the same shape, and the parts that it lacks."""
        most = max(self.limits.max_tokens - _NOTE_TOKENS, self.limits.max_tokens // 2)
        room = most * _PREVIEW_BYTES
        preview: Any = value
        left_out = OmittedParts()
        for _ in range(_ATTEMPTS):
            left_out = OmittedParts()
            preview = smaller(value, room, left_out)
            tokens = count_tokens(msgspec.json.encode(preview).decode(errors="replace"))
            if tokens <= most:
                break
            room = min(room * most // tokens, room * 9 // 10)
        return preview, left_out

    def _head(self, text: str) -> str:
        most = max(self.limits.max_tokens - _NOTE_TOKENS, self.limits.max_tokens // 2)
        head = text[: most * _PREVIEW_BYTES]
        while (tokens := count_tokens(head)) > most:
            head = head[: min(len(head) * most // tokens, len(head) * 9 // 10)]
        return head

    async def _notes(
        self, call: Call, said: str, text: str, mime_type: str = "application/json", is_whole: bool = True
    ) -> list[Any]:
        if call.mask is not None:
            # What a policy masks in an answer stays masked in the resource.
            text = call.mask(t.TextContent(text)).text
        which = "All of it" if is_whole else "The part that was read"
        lost = f"The rest is left out. {self._less}"
        name = f"answer of {self._name}"
        return await self.kept.link(call, text, mime_type, name, said, which=which, advice=self._less, lost=lost)


def _all_that_follows() -> OmittedParts:
    """Return that the rest of the answer is left out, whatever it is."""
    left_out = OmittedParts()
    left_out.add(())
    return left_out


def _missing(left_out: OmittedParts) -> str:
    words = left_out.in_words()
    return f" Left out or cut: {words}." if words else ""
