"""Secrets are taken out by name and by pattern."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.audit import AuditLog
from toolwire.errors import ServerError
from toolwire.redaction import MASK, Redaction
from toolwire.server.policy import Policy


@cases(
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


@cases(
    "name", ["city", "key", "keys", "keyboard", "tokenizer", "author", "pass", "compass", "bypass", "auth_type", "pin"]
)
def test_other_names_are_shown(name: str) -> None:
    assert Redaction().arguments({name: "Oslo"}) == {name: "Oslo"}


@cases("name", ["max_tokens", "maxTokens", "tokens", "maxtokens"])
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


@cases(
    "text, masked",
    [
        ("u://ann%40b.org/a%20b", f"u://{MASK}/a%20b"),
        ("u://%61nn%40b%2Eorg?q=%C3%BC", f"u://{MASK}?q=%C3%BC"),
        ("%C3%BC%ff%20ann%40b.org%C3%BC", f"%C3%BC%ff%20{MASK}%C3%BC"),
        ("100% of c%40d.e and a@b.c", f"100% of {MASK} and {MASK}"),
        ("100%25 of it", "100%25 of it"),
        ("100% of it", "100% of it"),
    ],
)
def test_percent_encoding_hides_nothing(text: str, masked: str) -> None:
    redaction = Redaction(patterns=[r"[a-z]+@[a-z.]+"])
    assert redaction.text(text) == masked
    assert redaction.content({"deep": [text]}) == {"deep": [masked]}


def test_match_of_half_a_decoded_character_run_leaves_the_rest_as_it_was() -> None:
    assert Redaction(patterns=["ü+"]).text("a%c3%bc%C3%BCb%C3%A9%ff") == f"a{MASK}b%C3%A9%ff"


def test_neighbours_of_a_member_do_not_exempt_it() -> None:
    redaction = Redaction(patterns=["AAAA"])
    for value in (
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"uri": "x://y", "blob": "AAAA"},
        {"status": "working", "createdAt": "now", "taskId": "AAAA"},
        {"resultType": "complete", "requestState": "AAAA"},
    ):
        assert "AAAA" not in repr(redaction.content(value))


@cases("number", [4111111111111111, 4111111111111111.0, -4111111111111111, 4111111111111111.5, 4.111111111111111e17])
@cases("pattern", [r"[0-9]{16}", r"^-?4[0-9]{15}"])
def test_numbers_are_matched_by_their_text_and_stay_numbers(number: float, pattern: str) -> None:
    redaction = Redaction(patterns=[pattern])
    assert redaction.content([number, 7, True, None]) == [0, 7, True, None]
    assert redaction.arguments([number, 7]) == [MASK, 7]


def test_a_number_with_thousands_of_digits_is_searched() -> None:
    assert Redaction(patterns=["[0-9]{16}"]).content([10**6000]) == [0]


def test_masked_names_do_not_replace_one_another() -> None:
    redaction = Redaction(patterns=[r"sk-\d"])
    masked = redaction.content({"sk-1": 1, "sk-2": 2, MASK: 3, "sk-3": 4, f"{MASK} 3": 5})
    assert sorted(masked.values()) == [1, 2, 3, 4, 5]
    assert "sk-" not in repr(masked)


@cases(
    ("text", "masked"),
    [
        ('{"card": 4111111111111111, "n": 1}', '{"card": 0, "n": 1}'),
        ('{"card":4111111111111111,"n":1}', '{"card":0,"n":1}'),
        ("[ 4111111111111111 ]", "[0]"),
        ('{"card": "4111111111111\\u0031\\u0031\\u0031"}', '{"card": "[redacted]"}'),
        ('{ "n" : 1 }', '{ "n" : 1 }'),
        ("[see 4111111111111111]", "[see [redacted]]"),
    ],
)
def test_json_in_a_text_is_masked_and_stays_json(text: str, masked: str) -> None:
    assert Redaction(patterns=["[0-9]{16}"]).content(text) == masked


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


@cases(
    "text",
    [
        '\n {"a": "\\u0073k-live"}',
        '\ufeff{"a": "\\u0073k-live"}',
        '"\\u0073k-live"',
        json.dumps({"body": '{"a": "\\u0073k-live"}'}),
        json.dumps([json.dumps({"body": '["\\u0073k-live"]'})]),
    ],
)
def test_escapes_hide_nothing_in_text_that_is_json(text: str) -> None:
    masked = Redaction(patterns=["sk-live"]).content(text)
    assert "[redacted]" in masked
    assert "u0073" not in masked


UNUSUAL = {
    "half of a surrogate pair": '"a\\udcff"',
    "number out of range": "1e400",
    "number with 5,000 digits": "9" * 5000,
    "NaN": "NaN",
    "control character": '"a\tb"',
    "member twice": '{"a": 1, "a": 2}',
}


@cases("value", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_value_does_not_turn_off_masks_in_a_json_text(value: str) -> None:
    line = json.dumps('password="hunter2" ключ тайна')
    masked = Redaction(patterns=[r'password="[^"]*"', r"ключ \w+"]).content(f'{{"file": {value}, "line": {line}}}')
    written = value.replace("\t", r"\t")
    assert masked == f'{{"file": {written}, "line": "{MASK} {MASK}"}}'


@cases(
    "text",
    [
        '{"line": "password=\\"hunter2\\" "}\n{"line": "password=\\"hunter2\\" "}',
        '["password=\\u0022hunter2\\u0022", ',
        '{"a": undefined, "line": "\\u0070assword=\\"hunter2\\" "}',
    ],
)
def test_escapes_hide_nothing_in_text_that_only_begins_like_json(text: str) -> None:
    masked = Redaction(patterns=[r'password="[^"]*"']).content(text)
    assert masked.count(MASK) == text.count("hunter2")
    assert "hunter2" not in masked


def test_text_that_is_nested_too_deeply_is_masked_as_a_whole() -> None:
    redaction = Redaction(["iban"], ["sk-live"])
    text = "[" * 100_000 + '"\\u0073k-live"' + "]" * 100_000
    assert redaction.content(text) == redaction.arguments(text) == MASK


def test_secrets_in_json_text_are_redacted_in_a_record() -> None:
    account = {"password": "canary", "iban": "canary", "note": 'code="canary"', "max_tokens": 7, "n": [1.5]}
    redacted = {"password": MASK, "iban": MASK, "note": MASK, "max_tokens": 7, "n": [1.5]}
    redaction = Redaction(["iban"], [r'code="[^"]*"'])
    record = redaction.arguments({"account": json.dumps(account), "nested": json.dumps([json.dumps(account)])})
    assert json.loads(record["account"]) == redacted
    assert json.loads(json.loads(record["nested"])[0]) == redacted
    # Also without a pattern.
    assert "canary" not in Redaction().arguments(['{"password": "canary"}'])[0]


def test_masked_name_does_not_replace_a_name_that_was_masked_before() -> None:
    value = {"sk-a": "one", "sk-b": "two", "sk-c 2": "three"}
    redaction = Redaction(patterns=[r"sk-\w"])
    assert sorted(redaction.content(value).values()) == ["one", "three", "two"]
    assert sorted(json.loads(redaction.content(json.dumps(value))).values()) == ["one", "three", "two"]


def test_names_are_redacted_in_a_record_as_values_are() -> None:
    text = '{"password": "hunter2", "year": 1}'
    record = Redaction().arguments({text: {text: text}, "year": 1})
    assert "hunter2" not in json.dumps(record)
    assert Redaction().content({text: 1}) == {text: 1}, "what is sent on keeps its names"


def test_member_that_is_there_twice_in_a_json_text_stays() -> None:
    masked = Redaction(patterns=["sk-a"]).content('{"total": 1, "total": 2, "key": "sk-a"}')
    assert masked == f'{{"total": 1, "total": 2, "key": "{MASK}"}}'


def test_pattern_of_a_name_with_its_value_matches_after_another_value_was_masked() -> None:
    redaction = Redaction(patterns=[r"sk-\w+", r'"pin": "\d+"'])
    assert "1234" not in redaction.content('{"key": "sk-a", "pin": "1234"}')


@cases("pattern", ["", r"\d*", "(?:sk-)?", r"\b", "a|"])
def test_pattern_that_matches_an_empty_text_is_refused(pattern: str) -> None:
    with pytest.raises(ServerError, match="matches the empty text"):
        Policy(mask=[pattern])
    with pytest.raises(ServerError, match="matches the empty text"):
        AuditLog("unused.jsonl", key="k" * 32, mask=[pattern])
