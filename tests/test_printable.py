"""Texts that are made safe to show."""

from __future__ import annotations

from tests.browser.servers.views import UNSEEN
from tests.cases import cases

from toolwire.printable import printable


@cases("character", UNSEEN, ids=ascii)
def test_unseen_character_is_escaped(character: str) -> None:
    assert printable(f"ad{character}min") == f"ad{ascii(character)[1:-1]}min"


def test_seen_characters_are_kept() -> None:
    text = "Zoë 日本語 🚀 \ud55c\uae00"
    assert printable(text) == text
