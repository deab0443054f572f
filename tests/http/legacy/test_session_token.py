"""Session ids: what they carry, how long they get, and what does not open them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.http.legacy.session_token import SessionToken, SessionTokens, principal_digest
from toolwire.protocol.capability_bits import from_bits, to_bits
from toolwire.protocol.sealing import HmacSealer, Sealer, encode_base64url
from toolwire.sealing_aes import make_sealer

SECRET = "s" * 32
ALICE = principal_digest("alice")


def sealers() -> list[Sealer]:
    return [HmacSealer([SECRET]), make_sealer([SECRET], random=os.urandom)]


def a_token(**changes: Any) -> SessionToken:
    members: dict[str, Any] = {
        "id": encode_base64url(bytes(range(16))),
        "revision": "2025-06-18",
        "capabilities": 5,
        "principal": ALICE,
        "issued": 1000,
        "expires": 2000,
        "home": b"12345678",
    }
    return SessionToken(**members | changes)


@pytest.mark.covers("3.4.5.1", "J92")
@cases("sealer", sealers(), ids=["hmac", "aes"])
@cases("bits", [0, 2**32 - 1])
def test_an_id_is_short_visible_ascii_and_says_what_was_put_in(sealer: Sealer, bits: int) -> None:
    tokens = SessionTokens(sealer, "test")
    token = a_token(capabilities=bits)
    text = tokens.write(token)
    assert len(text) <= 512
    assert all(0x21 <= ord(char) <= 0x7E for char in text)
    assert tokens.read(text, principal=ALICE, now=1999) == token


@pytest.mark.parametrize("sealer", sealers(), ids=["hmac", "aes"])
def test_an_id_opens_for_its_principal_its_time_its_purpose_and_its_key_only(sealer: Sealer) -> None:
    tokens = SessionTokens(sealer, "test")
    text = tokens.write(a_token())
    assert tokens.read(text, principal=principal_digest("bob"), now=1500) is None
    assert tokens.read(text, principal=principal_digest(""), now=1500) is None
    assert tokens.read(text, principal=ALICE, now=2000) is None
    assert tokens.read(text, principal=ALICE, now=1500) == a_token()
    assert SessionTokens(sealer, "other").read(text, principal=ALICE, now=1500) is None
    other = make_sealer(["t" * 32], random=os.urandom)
    assert SessionTokens(other, "test").read(text, principal=ALICE, now=1500) is None


@pytest.mark.covers("J92")
@given(st.one_of(st.text(max_size=600), st.binary(max_size=300).map(encode_base64url)))
def test_no_text_of_others_opens(text: str) -> None:
    tokens = SessionTokens(HmacSealer([SECRET]), "test")
    assert tokens.read(text, principal=ALICE, now=0) is None
    assert tokens.read(f"v1.x.{text}", principal=ALICE, now=0) is None


@given(st.integers(min_value=0, max_value=200))
def test_an_id_with_one_character_changed_does_not_open(place: int) -> None:
    tokens = SessionTokens(HmacSealer([SECRET]), "test")
    text = tokens.write(a_token())
    place %= len(text)
    changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
    assert tokens.read(changed, principal=ALICE, now=1500) is None


@cases(
    "declared",
    [
        {},
        {"elicitation": {}},
        {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {"tools": {}, "context": {}},
            "roots": {"listChanged": True},
        },
        {"tasks": {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}}}},
    ],
)
def test_known_capabilities_survive_as_bits(declared: dict[str, Any]) -> None:
    assert from_bits(to_bits(declared)) == declared


@given(st.integers(min_value=0, max_value=2**16 - 1))
def test_whatever_bits_there_are_they_mean_the_same_both_ways(bits: int) -> None:
    declared = from_bits(bits)
    assert from_bits(to_bits(declared)) == declared


@cases("declared", [{"roots": {"listChanged": False}}, {"experimental": {}}, {"sampling": {"x": 1}}])
def test_what_bits_cannot_say_is_noticed(declared: dict[str, Any]) -> None:
    assert from_bits(to_bits(declared)) != declared
