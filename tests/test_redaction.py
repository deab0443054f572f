"""Secrets are taken out by name and by pattern."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.redaction import MASK, Redaction


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PASSWORD", "api_key", "apiKey", "API-Key", "client_secret", "Authorization", "accessToken"),
        *("new_password", "newPassword", "password2", "passwordConfirmation", "userpassword", "db.password", "db-pwd"),
        *("apiToken", "api_token", "authtoken", "token_value", "githubToken", "X-Auth-Token", "id_token", "csrf token"),
        *(
            "secret_key",
            "SecretAccessKey",
            "client-secret-value",
            "aws_access_key_id",
            "x-api-key",
            "X-API-Key",
            "apikey",
        ),
        *("privateKeyPem", "ssh_key", "encryptionKey", "set-cookie", "cookies", "proxy-authorization", "credentials"),
        *("privkey", "authCode", "access_code", "backup_codes", "recovery-code", "recoveryPhrase", "wallet_mnemonic"),
        *("connectionString", "AZURE_STORAGE_CONNECTION_STRING"),
        *("userCredentials", "jwt", "idJWT", "JWTValue", "otp", "otpCode", "passphrase", "bearer", "x" * 201),
    ],
)
def test_the_usual_names_are_secret_however_they_are_written(name: str) -> None:
    assert Redaction().arguments({name: "hunter2", "city": "Oslo"}) == {name: MASK, "city": "Oslo"}


@pytest.mark.parametrize(
    "name", ["city", "key", "keys", "keyboard", "tokenizer", "author", "pass", "compass", "bypass", "auth_type", "pin"]
)
def test_other_names_are_shown(name: str) -> None:
    assert Redaction().arguments({name: "Oslo"}) == {name: "Oslo"}


@pytest.mark.parametrize("name", ["max_tokens", "maxTokens", "tokens", "maxtokens"])
def test_a_number_of_tokens_is_no_token(name: str) -> None:
    assert Redaction().arguments({name: 100}) == {name: 100}
    for value in ("a", ["a"], {"a": "b"}, "100"):
        assert Redaction().arguments({name: value}) == {name: MASK}


def test_names_that_are_given_are_compared_as_a_whole() -> None:
    redaction = Redaction(["user-id"])
    assert redaction.arguments({"userId": 1, "user_id": 2, "user_ids": 3}) == {
        "userId": MASK,
        "user_id": MASK,
        "user_ids": 3,
    }


def test_names_are_secret_at_any_depth_whatever_they_hold() -> None:
    value = {"users": [{"login": "a", "credentials": {"pin": 1}}], "iban": ["x", "y"]}
    assert Redaction(["IBAN"]).arguments(value) == {"users": [{"login": "a", "credentials": MASK}], "iban": MASK}


def test_patterns_are_secret_in_values_and_in_keys() -> None:
    redaction = Redaction(patterns=[r"sk-\w+"])
    assert redaction.content({"sk-abc": ["use sk-def now"]}) == {MASK: [f"use {MASK} now"]}
    assert redaction.text("sk-1 and sk-2") == f"{MASK} and {MASK}"


def test_encoded_bytes_are_not_searched_but_texts_under_the_same_name_are() -> None:
    redaction = Redaction(patterns=["AAAA"])
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    blob = {"uri": "x://y", "blob": "AAAA"}
    assert redaction.content([image, blob]) == [image, blob]
    assert redaction.content({"level": "info", "data": "AAAA"}) == {"level": "info", "data": MASK}
    assert redaction.content({"blob": "AAAA"}) == {"blob": MASK}


def test_two_redactions_together_take_out_what_either_does() -> None:
    both = Redaction(["iban"], ["a1"]) | Redaction(["pin"], ["b2"])
    assert both.arguments({"iban": 1, "pin": 2, "note": "a1 b2"}) == {
        "iban": MASK,
        "pin": MASK,
        "note": f"{MASK} {MASK}",
    }


def test_nesting_without_end_is_cut_off() -> None:
    deep: Any = "sk-x"
    for _ in range(1000):
        deep = [deep]
    assert "sk-x" not in repr(Redaction(patterns=["sk-x"]).arguments(deep))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_a_pattern_that_matches_nothing_changes_nothing(value: Any) -> None:
    assert Redaction(patterns=["never\x00there"]).content(value) == value
