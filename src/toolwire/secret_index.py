"""`SecretIndex`: finds secrets in texts, whole and in parts, however many secrets there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: Parts of a secret with so many characters are found, wherever they begin.
SHORTEST: Final = 6
#: Of a secret with more characters than this, parts of `LONG_PART` characters are found.
MAX_SHORT: Final = 64
LONG_PART: Final = 16
# A piece of a long secret that is looked up begins at every eighth character, so that each long part has one.
_LONG_PIECE: Final = 8
# Texts have ordinary words for other reasons, too.
_WORD: Final = re.compile(r"(?<![^\W_])(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,15})(?![^\W_])")
_MARKS: Final = re.compile(r"[\W_]+")


class SecretIndex:
    """Secrets by their pieces.

    What a search costs depends on the length of the text alone. A part that is one word of a secret is not found:
    `production` of `production-9f1c`. Nor is a part without letters and digits.
    """

    __slots__ = ("_long", "_short", "_whole")

    def __init__(self) -> None:
        # A secret for each piece: of those that have the piece, the one that was added last.
        self._short: dict[str, str] = {}
        self._long: dict[str, str] = {}
        # Secrets without pieces: they are found as a whole.
        self._whole: dict[str, None] = {}

    def add(self, secret: str, *, in_parts: bool = True) -> None:
        """Add a secret. One of less than `SHORTEST` characters is found as a whole alone."""
        pieces = list(_pieces_of(secret)) if in_parts else []
        if not pieces:
            self._whole[secret] = None
        self._index_for(secret).update(dict.fromkeys(pieces, secret))

    def remove(self, secret: str) -> None:
        """Remove a secret that was added."""
        self._whole.pop(secret, None)
        index = self._index_for(secret)
        for piece in _pieces_of(secret):
            if index.get(piece) == secret:
                del index[piece]

    def _index_for(self, secret: str) -> dict[str, str]:
        return self._short if len(secret) <= MAX_SHORT else self._long

    def find(self, text: str) -> list[tuple[int, int]]:
        """Return the starts and ends of secrets, and of parts of them, in a text."""
        found = [match.span() for each in self._whole if each in text for match in re.finditer(re.escape(each), text)]
        for index, size in ((self._short, SHORTEST), (self._long, _LONG_PIECE)):
            if index:
                found += _parts_in(text, index, size)
        return found


def _parts_in(text: str, index: dict[str, str], size: int) -> Iterator[tuple[int, int]]:
    done = 0
    for at in [at for at in range(len(text) - size + 1) if text[at : at + size] in index]:
        if at + size <= done:
            continue
        secret = index[text[at : at + size]]
        first = secret.index(text[at : at + size])
        start, end, last = at, at + size, first + size
        while start > done and first > 0 and text[start - 1] == secret[first - 1]:
            start, first = start - 1, first - 1
        while end < len(text) and last < len(secret) and text[end] == secret[last]:
            end, last = end + 1, last + 1
        yield start, end
        done = end


def _pieces_of(secret: str) -> Iterator[str]:
    """Yield the pieces of a secret that are looked up."""
    size, step = (SHORTEST, 1) if len(secret) <= MAX_SHORT else (_LONG_PIECE, _LONG_PIECE)
    last = len(secret) - size
    plain = [each for each in _plain_parts(secret) if each[1] - each[0] >= size]
    at = 0
    while at <= last:
        if any(start <= at and at + size <= end for start, end in plain):
            at += 1  # The next piece stands for this one.
            continue
        yield secret[at : at + size]
        at = at + step if at + step <= last or at == last else last


def _plain_parts(secret: str) -> list[tuple[int, int]]:
    """Return the spans of words with the marks around them, and of marks alone."""
    marks = [match.span() for match in _MARKS.finditer(secret)]
    ends = {end: start for start, end in marks}
    starts = dict(marks)
    words = (match.span() for match in _WORD.finditer(secret))
    return [*marks, *((ends.get(start, start), starts.get(end, end)) for start, end in words)]
