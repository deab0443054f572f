"""Text of unknown origin, made safe to show.

No character of it controls a terminal or hides other text.
"""

from __future__ import annotations

from typing import Final

from toolwire.lazy_patterns import lazy_pattern

# Unicode, DerivedCoreProperties: Default_Ignorable_Code_Point, and blanks. Python counts some of them as printable. The
# pages of the inspector and of the diff view name the same characters by their properties.
_INVISIBLE: Final = lazy_pattern(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2800\ufffc\U00013441\U00013442\U00016fe4\U0001d159]"
)


def is_printable(text: str) -> bool:
    """Return whether every character of a text is visible, or a blank."""
    return text.isprintable() and (text.isascii() or _INVISIBLE.search(text) is None)


def printable(text: str) -> str:
    """Return the text on one line, with control characters written as escapes: `\\x1b`, `\\n`, `\\u202e`."""
    if is_printable(text):
        return text
    return "".join(character if _harmless(character) else _escape(character) for character in text)


def printable_lines(text: str) -> str:
    """Return the text with control characters written as escapes, and its lines kept."""
    if "\n" not in text:
        return printable(text)
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def _harmless(character: str) -> bool:
    return is_printable(character) or character == "\t"


def _escape(character: str) -> str:
    if not character.isprintable():
        return repr(character)[1:-1]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
