"""The size of a text in tokens of a model, as an estimate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

# Tokenizers differ by model family. These pieces are what all of them agree on fairly well: short words, runs of
# punctuation, groups of digits.
_PIECES: Final = re.compile(r"[A-Za-z]{1,10}|\d{1,3}|[^\w\s]{1,3}|_|\n+|[^\x00-\x7f]")

#: How many characters of a text are counted. More are estimated by them.
MAX_COUNTED: Final = 200_000


def count_tokens(text: str) -> int:
    """Estimate how many tokens of a model's context a text takes.

    The estimate is good enough to compare texts and to notice a large one. Only the beginning of a long text is
    counted, so that a server cannot hold up a process by megabytes of text.
    """
    if len(text) > MAX_COUNTED:
        return count_tokens(text[:MAX_COUNTED]) * len(text) // MAX_COUNTED
    return sum(1 for _ in _PIECES.finditer(text))


def definition_tokens(name: str, description: str, input_schema: Mapping[str, Any]) -> int:
    """Estimate the tokens of a tool's definition: name, description and input schema."""
    shown = {"name": name, "description": description, "input_schema": input_schema}
    return count_tokens(msgspec.json.encode(shown).decode())
