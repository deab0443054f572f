from __future__ import annotations

import base64
import hmac
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.sealing import (
    MAX_TOKEN_LENGTH,
    BadSeal,
    HmacSealer,
    Sealer,
    decode_base64url,
    derive_key,
    encode_base64url,
)
from toolwire.sealing_aes import AesSealer, make_sealer

OLD = "an old secret of some length"
NEW = b"\x00\xff a new secret of some length"


class Counter:
    """Stands in for randomness: never the same bytes twice, and always the same in a test."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, length: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(length, "big")


def hmac_sealer(*secrets: str | bytes, purpose: str = "state") -> Sealer:
    return HmacSealer(secrets, purpose=purpose)


def aes_sealer(*secrets: str | bytes, purpose: str = "state") -> Sealer:
    return AesSealer(secrets, random=Counter(), purpose=purpose)


both = pytest.mark.parametrize("make", [hmac_sealer, aes_sealer])


@both
@given(payload=st.binary(), context=st.binary())
def test_what_was_sealed_opens(make: Callable[..., Sealer], payload: bytes, context: bytes) -> None:
    sealer = make(OLD)
    token = sealer.seal(payload, context)
    assert sealer.open(token, context) == payload
    version, key_id, body = token.split(".")
    assert version == "v1"
    assert key_id
    assert set(key_id + body) <= set(string.ascii_letters + string.digits + "-_")


@both
@pytest.mark.covers("MRTR-5")
def test_any_change_to_a_token_breaks_it(make: Callable[..., Sealer]) -> None:
    sealer = make(OLD)
    token = sealer.seal(b"state", b"context")
    for index, character in enumerate(token):
        for other in "A", "B", "-", ".", "=", " ", "é", "":
            if other != character:
                with pytest.raises(BadSeal):
                    sealer.open(token[:index] + other + token[index + 1 :], b"context")


@both
@pytest.mark.covers("MRTR-5")
@pytest.mark.parametrize("context", [b"", b"contex", b"context ", b"Context"])
def test_a_token_opens_in_its_own_context_only(make: Callable[..., Sealer], context: bytes) -> None:
    sealer = make(OLD)
    with pytest.raises(BadSeal):
        sealer.open(sealer.seal(b"state", b"context"), context)


def test_context_and_payload_cannot_trade_places() -> None:
    sealer = HmacSealer([OLD])
    version, key_id, body = sealer.seal(b"bc", b"a").split(".")
    tag = decode_base64url(body)[-32:]
    with pytest.raises(BadSeal):
        sealer.open(f"{version}.{key_id}.{encode_base64url(b'c' + tag)}", b"ab")


@both
@given(text=st.text())
def test_noise_is_a_bad_seal_and_nothing_else(make: Callable[..., Sealer], text: str) -> None:
    sealer = make(OLD)
    key_id = sealer.seal(b"", b"").split(".")[1]
    for token in (text, f"v1.{key_id}.{text}", f"v1.{text}.AAAA", "v1." + text):
        with pytest.raises(BadSeal):
            sealer.open(token, b"")


@both
def test_the_first_secret_seals_and_all_open(make: Callable[..., Sealer]) -> None:
    before, during, after = make(OLD), make(NEW, OLD), make(NEW)
    old_token, new_token = before.seal(b"1", b""), during.seal(b"2", b"")
    assert during.open(old_token, b"") == b"1"
    assert after.open(new_token, b"") == b"2"
    with pytest.raises(BadSeal):
        after.open(old_token, b"")
    with pytest.raises(BadSeal):
        before.open(new_token, b"")


@both
def test_the_key_id_is_authenticated(make: Callable[..., Sealer]) -> None:
    sealer = make(NEW, OLD)
    _, new_id, body = sealer.seal(b"state", b"").split(".")
    old_id = make(OLD).seal(b"", b"").split(".")[1]
    assert new_id != old_id
    with pytest.raises(BadSeal):
        sealer.open(f"v1.{old_id}.{body}", b"")


def test_purposes_and_algorithms_have_keys_of_their_own() -> None:
    sealers = [make(OLD, purpose=purpose) for make in (hmac_sealer, aes_sealer) for purpose in ("state", "session")]
    tokens = [sealer.seal(b"x", b"") for sealer in sealers]
    assert len({token.split(".")[1] for token in tokens}) == 4
    for number, sealer in enumerate(sealers):
        assert [_opens(sealer, token) for token in tokens] == [number == other for other in range(4)]


def _opens(sealer: Sealer, token: str) -> bool:
    try:
        sealer.open(token, b"")
    except BadSeal:
        return False
    return True


@both
def test_the_length_of_a_token_is_bounded(make: Callable[..., Sealer]) -> None:
    sealer = make(OLD)
    largest = sealer.seal(bytes(32 * 1024), b"")
    assert len(largest) <= MAX_TOKEN_LENGTH
    with pytest.raises(ValueError, match="too large"):
        sealer.seal(bytes(MAX_TOKEN_LENGTH), b"")
    with pytest.raises(BadSeal):
        sealer.open(largest + "A" * MAX_TOKEN_LENGTH, b"")


@both
def test_secrets_are_checked(make: Callable[..., Sealer]) -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        make(OLD, "fifteen bytes..")
    assert make("sixteen bytes...").seal(b"", b"")
    with pytest.raises(ValueError, match="At least one"):
        make()
    with pytest.raises(TypeError):
        HmacSealer(OLD)


def test_a_bad_seal_says_nothing() -> None:
    assert issubclass(BadSeal, ToolwireError)
    texts = set()
    for token in ("", "v1.x.AA", "v2.a.b", HmacSealer([NEW]).seal(b"secret", b"")):
        with pytest.raises(BadSeal) as caught:
            HmacSealer([OLD]).open(token, b"")
        texts.add(str(caught.value))
        assert caught.value.__cause__ is None
    assert texts == {"The sealed value is not valid."}


def test_an_hmac_token_can_be_read_and_an_aes_token_cannot() -> None:
    signed, hidden = HmacSealer([OLD]), AesSealer([OLD], random=Counter())
    assert not signed.confidential
    assert hidden.confidential
    assert b"plain state" in decode_base64url(signed.seal(b"plain state", b"").split(".")[2])
    assert b"plain state" not in decode_base64url(hidden.seal(b"plain state", b"").split(".")[2])
    assert hidden.seal(b"plain state", b"") != hidden.seal(b"plain state", b"")


def test_keys_are_derived_by_hkdf() -> None:
    # RFC 5869 section 2 written out for one block and no salt.
    extracted = hmac.digest(b"\0" * 32, OLD.encode(), "sha256")
    assert derive_key(OLD, "x") == hmac.digest(extracted, b"toolwire x\x01", "sha256")
    second = hmac.digest(extracted, derive_key(OLD, "x") + b"toolwire x\x02", "sha256")
    assert derive_key(OLD, "x", 48) == (derive_key(OLD, "x") + second)[:48]
    assert derive_key(OLD, "x") != derive_key(OLD, "y")
    assert derive_key(OLD, "x") == derive_key(OLD.encode(), "x")


@given(st.binary())
def test_base64url_round_trip(data: bytes) -> None:
    text = encode_base64url(data)
    assert "=" not in text
    assert decode_base64url(text) == data


@cases("text", ["A", "AB", "AA==", "AA=", " AA", "AA\n", "A A", "+A", "/A", "AAAAA", "é", "=", "AAA\x00"])
def test_only_canonical_base64url_is_read(text: str) -> None:
    with pytest.raises(ValueError):
        decode_base64url(text)


@given(st.text(string.ascii_letters + string.digits + "-_= \n", max_size=8))
def test_every_text_that_is_read_is_the_one_that_would_be_written(text: str) -> None:
    try:
        data = decode_base64url(text)
    except ValueError:
        return
    assert base64.urlsafe_b64encode(data).decode().rstrip("=") == text


def test_the_choice_of_a_sealer(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = make_sealer([OLD], random=Counter())
    assert hidden.confidential
    monkeypatch.setattr("toolwire.sealing_aes.find_spec", lambda name: None)
    signed = make_sealer([OLD], random=Counter())
    assert not signed.confidential
    assert signed.open(signed.seal(b"x", b""), b"") == b"x"


def test_without_secrets_every_sealer_is_a_stranger_to_the_next() -> None:
    counter = Counter()
    first, second = make_sealer(None, random=counter), make_sealer(None, random=counter)
    token = first.seal(b"x", b"")
    assert first.open(token, b"") == b"x"
    assert not _opens(second, token)
