"""Text of unknown origin made safe to look at: nothing in it steers a terminal or hides among other text."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, every character that a terminal might obey written out: `\\x1b`, `\\n`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(character if _harmless(character) else repr(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """The same, with the lines left as they are."""
    if "\n" not in text:
        return printable(text)
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def _harmless(character: str) -> bool:
    return character.isprintable() or character == "\t"
