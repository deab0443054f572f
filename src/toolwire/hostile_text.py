"""Signs that a text of a server was written to deceive: a person who reads it, or a model that it is shown to.

A skill is shown to the model before anybody has looked at it, so its description is where an attack begins. The rules
find what honest texts do not have. They cannot find every attack: a text without findings is not safe by that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

# Honest descriptions have at most 1,024 characters. What lies behind is not shown to a model unread, either.
_LONGEST_SCAN: Final = 16 * 1024
_SHOWN: Final = 60

# Characters that are not seen and change what is read: the direction of writing, and the tags that spell ASCII.
_DIRECTION: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_TAGS: Final = re.compile("[\U000e0000-\U000e007f]")
# Selectors beyond those of emoji. Each can stand for a byte of a hidden text.
_SELECTORS: Final = re.compile("[\U000e0100-\U000e01ef]|[\ufe00-\ufe0d]{2,}")
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0]"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# The words with which models are told who speaks. In a description they only pretend.
_ROLES: Final = re.compile(
    r"<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant|user|human|function_calls|tool_result|instructions?)\b[^>]{0,80}>"
    r"|^[ \t]{0,9}(?:system|assistant|human)[ \t]{0,9}:",
    re.IGNORECASE | re.MULTILINE,
)
_ORDERS: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|other|system)\b.{0,40}"
    r"\b(?:instruction|prompt|rule|message|polic|guideline)"
    r"|\b(?:do\s{1,9}not|don't|never)\s{1,9}(?:tell|inform|mention|show|reveal|ask|alert)\b.{0,40}\b(?:user|human|anyone|them)\b"
    r"|\bwithout\s{1,9}(?:telling|asking|informing|notifying|the\s{1,9}knowledge\s{1,9}of)\b.{0,30}\b(?:user|human|anyone)\b"
    r"|\byou\s{1,9}must\s{1,9}(?:always\s{1,9})?(?:load|use|call|read|run)\b.{0,60}\b(?:first|before\s{1,9}any|instead\s{1,9}of)\b",
    re.IGNORECASE | re.DOTALL,
)
_SENT_AWAY: Final = re.compile(
    r"\b(?:curl|wget)\b.{0,80}\|\s{0,9}(?:ba|z|da)?sh\b"
    r"|\b(?:send|post|upload|exfiltrate)\b.{0,60}"
    r"\b(?:credential|password|secret|token|api[ _-]?key|ssh|\.env\b|id_rsa)",
    re.IGNORECASE | re.DOTALL,
)
# Each rule names words. An ASCII text without any of them cannot match, and a search for words is much faster.
_RULES: Final[tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...]] = (
    (_DIRECTION, (), "changes the direction of writing, so that it reads differently from what it says"),
    (_TAGS, (), "has invisible characters that spell a hidden text"),
    (_SELECTORS, (), "has invisible characters that can carry a hidden text"),
    (_UNSEEN, (), "has invisible characters"),
    (_CONTROL, ("",), "has control characters"),
    (_ROLES, ("<", "[", ":"), "pretends that somebody else speaks"),
    (
        _ORDERS,
        ("ignore", "disregard", "forget", "override", "not", "don't", "never", "without", "must"),
        "gives the model orders about other instructions or about the user",
    ),
    (
        _SENT_AWAY,
        ("curl", "wget", "send", "post", "upload", "exfiltrate"),
        "asks to run a download or to send secrets away",
    ),
)


def hostile_text(text: str) -> list[str]:
    """Return one sentence for each sign of deceit in a text; none for an honest one."""
    return list(_findings(text))


def _findings(text: str) -> Iterator[str]:
    head = text[:_LONGEST_SCAN]
    lowered = head.lower() if head.isascii() else None
    for pattern, words, what in _RULES:
        if lowered is not None and not any(word in lowered for word in words):
            continue
        found = pattern.search(head)
        if found is not None:
            yield f"The text {what}: {found[0][:_SHOWN]!a}"
    if (word := _mixed_script(head)) is not None:
        yield f"The text mixes letters of several alphabets in one word: {word[:_SHOWN]!a}"


def _mixed_script(text: str) -> str | None:
    """Return a word with Latin letters beside Cyrillic or Greek ones that look the same."""
    if text.isascii():
        return None
    for word in re.findall(r"[^\W\d_]{2,}", text):
        if not word.isascii():
            scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
            if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK"}:
                return str(word)
    return None
