"""Text of unknown origin, made safe to show: no character of it controls a terminal or hides other text."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text on one line, with control characters written as escapes: `\\x1b`, `\\n`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(character if _harmless(character) else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Return the text with control characters written as escapes, and its lines kept."""
    if "\n" not in text:
        return printable(text)
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def _harmless(character: str) -> bool:
    return character.isprintable() or character == "\t"
