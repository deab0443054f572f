"""Regular expressions in schemas: estimate their size and limit the memory for them.

A schema may come from a foreign server. Nothing of an expression is compiled here: its text is read once, and what it
would become is estimated.
"""

from __future__ import annotations

import re
from typing import Final

#: What one expression, and all expressions of a document together, may take when they are compiled.
PATTERN_BYTES: Final = 1 << 20
DOCUMENT_BYTES: Final = 4 << 20
#: The least that an expression is given; a document with more expressions than fit is refused.
_LEAST_BYTES: Final = 1 << 12
MAX_PATTERNS: Final = DOCUMENT_BYTES // _LEAST_BYTES
_MOST: Final = 1 << 30

_PIECE: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\((?:\?[:=!]|\?<[=!]|\?P?<\w*>)?|\)|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", re.DOTALL
)


def share(count: int) -> int:
    """Return how many bytes each of `count` expressions may use; 0 for too many."""
    return 0 if count > MAX_PATTERNS else min(PATTERN_BYTES, DOCUMENT_BYTES // max(count, 1))


def repetitions(pattern: str) -> int:
    """Count the characters of an expression, each as often as it is repeated.

    The engine is linear in the text, and for each character of the text it may look at every one of these.
    """
    totals = [0]
    last = 0
    for found in _PIECE.finditer(pattern):
        piece = found[0]
        if piece[0] == "(":
            totals.append(0)
            last = 0
        elif piece == ")":
            last = totals.pop() if len(totals) > 1 else 0
            totals[-1] += last
        elif found[1] is not None:
            times = max(int(found[1]), int(found[2] or 0), 1)
            totals[-1] = min(totals[-1] + last * (times - 1), _MOST)
            last = min(last * times, _MOST)
        elif piece not in "*+?^$|":
            last = 1
            totals[-1] += 1
    return min(sum(totals), _MOST)
