"""About how many tokens of a model's context a text takes.

Every model family has its own tokenizer; this counts the pieces that all of them agree on fairly well: short words,
runs of punctuation, groups of digits. It is for comparing tools and for noticing that a catalogue is large.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from toolwire.protocol import types as t

_PIECES: Final = re.compile(r"[A-Za-z]{1,10}|\d{1,3}|[^\w\s]{1,3}|_|\n+|[^\x00-\x7f]")


def count(text: str) -> int:
    return sum(1 for _ in _PIECES.finditer(text))


def of_tool(tool: t.Tool) -> int:
    """What a client hands to the model: name, description and input schema."""
    shown = {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema}
    return count(msgspec.json.encode(shown).decode())
