"""The texts of a server in logs and errors: no credential that it got, in any form, whole or cut."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from msgspec import UNSET
from tests.cases import cases

from toolwire.protocol.errors import InvalidResponse, OutcomeUnknown, ProtocolError, Unreachable
from toolwire.redaction import MASK
from toolwire.server_texts import MAX_KNOWN, MAX_SEARCHED, ServerTexts

SECRET = 'Zx9/+q==q1~?>s3"cr3t'


def texts_of(*credentials: str, **options: Any) -> ServerTexts:
    texts = ServerTexts("b", **options)
    texts.note(credentials)
    return texts


@cases(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        SECRET.replace("/", "\\/"),
        "".join(f"\\u{ord(each):04x}" for each in SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
        quote(base64.b64encode(f"up:{SECRET}".encode()).decode(), safe=""),
        *(
            base64.b64encode(f"{'x' * before}{SECRET}{'y' * after}".encode()).decode()
            for before in range(3)
            for after in range(3)
        ),
        base64.b64encode(json.dumps({"token": SECRET}).encode()).decode(),
        base64.b64encode(quote(SECRET).encode()).decode(),
        base64.b64encode(base64.b64encode(SECRET.encode())).decode(),
    ],
)
def test_credentials_are_hidden_in_every_form(form: str) -> None:
    shown = texts_of(SECRET, "another").hide(f"you sent {form}, he said")
    assert MASK in shown and shown.startswith("you sent ") and shown.endswith(", he said")
    left = shown.removeprefix("you sent ").removesuffix(", he said").replace(MASK, "")
    assert len(left) <= 8


def test_other_words_stay_where_credentials_are_hidden() -> None:
    text = "100% of c:\\new \\u0041 c2VjcmV0 Zx9/+q=="
    assert texts_of("secret-1", SECRET).hide(text) == text
    assert texts_of().hide("text") == "text"
    assert texts_of("12345").hide("12345 is too short to be a credential") == "12345 is too short to be a credential"


def test_credential_that_was_cut_is_hidden() -> None:
    secret = "0123456789abcdefghijklmnopqrstuv"
    texts = texts_of(secret)
    assert texts.hide(f"saw {secret[:20]}…") == f"saw {MASK}…"
    assert texts.hide(f"saw {secret[:15]}") == f"saw {secret[:15]}", "half of it says nothing"
    assert texts.excerpt("." * 90 + secret, 100) == "." * 90 + MASK


def test_lines_of_a_private_key_are_hidden() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"
    shown = texts_of(key).hide("bad line: 'MIIEvQIBADANBgkqhkiG9w0'")
    assert shown == f"bad line: '{MASK}'"


def test_long_texts_are_searched_for_credentials_as_they_are() -> None:
    shown = texts_of(SECRET).hide("x" * (2 * MAX_SEARCHED) + SECRET)
    assert shown.endswith(f"x{MASK}")


def test_credentials_of_calls_do_not_push_out_those_of_the_settings() -> None:
    texts = ServerTexts()
    texts.note_settings(
        headers={"x-key": "key-of-the-gateway"}, url="https://a.example/s/0a1b2c3d4e5f6071/mcp?api_key=of-the-query"
    )
    texts.note_signature({"Authorization": "Bearer oldest-of-all"})
    texts.note(f"token-number-{number}" for number in range(MAX_KNOWN))
    shown = texts.hide("key-of-the-gateway 0a1b2c3d4e5f6071 of-the-query token-number-999 oldest-of-all")
    assert shown == f"{MASK} {MASK} {MASK} {MASK} oldest-of-all"


@cases(
    "name, value, is_hidden",
    [
        ("API_KEY", "short-one", True),
        ("GITHUB_PAT", "anything", True),
        ("DATABASE", "postgres://user:pass-word-1@db.example/x", True),
        ("SERVICE", "ghp_0123456789abcdefXYZ", True),
        ("HOME", "/home/someone-with-0123456789", False),
        ("LOG_LEVEL", "warning", False),
        ("NODE_ENV", "production", False),
        ("MODULES", "./modules/version-2-of-this", False),
    ],
)
def test_credentials_are_found_among_the_variables_of_a_process(name: str, value: str, is_hidden: bool) -> None:
    texts = ServerTexts()
    texts.note_settings(environment={name: value})
    assert (texts.hide(f"saw {value}") != f"saw {value}") is is_hidden


def test_headers_are_known_by_their_token_and_password() -> None:
    texts = ServerTexts()
    basic = base64.b64encode("user:pass-word-€".encode()).decode()
    texts.note_signature({"Authorization": f"Basic {basic}", "DPoP": "a-proof-for-one-request"})
    texts.note_request({"x-user-token": "token-of-the-caller", "x-request-id": "plain"})
    assert texts.hide(f"{basic} pass-word-€ token-of-the-caller") == f"{MASK} {MASK} {MASK}"
    assert texts.hide("a-proof-for-one-request plain") == "a-proof-for-one-request plain"


def test_errors_of_a_server_are_cleaned() -> None:
    texts = texts_of("secret-1")
    data = {"said": ["secret-1", 5], "json": '{"a": "secret-1"}'}
    error = texts.clean(ProtocolError(-32000, "saw secret-1", data))
    assert (error.message, str(error)) == (f"saw {MASK}", f"saw {MASK} (code -32000)")
    assert error.data == {"said": [MASK, 5], "json": f'{{"a": "{MASK}"}}'} and error.args == (f"saw {MASK}",)
    assert str(texts.clean(OutcomeUnknown("saw secret-1"))) == f"saw {MASK}"
    assert texts.clean(ProtocolError(-1, "m", {"x": "secret-1" + "y" * MAX_SEARCHED})).data is UNSET
    page = {"elicitations": [{"url": "https://a.example/secret-1"}]}
    assert texts.clean(ProtocolError(-32042, "m", page)).data is page, "a person opens it as it is"
    whole = {"x": "y" * MAX_SEARCHED}
    assert texts.clean(ProtocolError(-1, "m", whole)).data is whole


@pytest.mark.parametrize("is_quotable", [True, False])
def test_errors_are_described_without_words_of_a_server_that_may_not_be_quoted(is_quotable: bool) -> None:
    texts = texts_of("secret-1", is_quotable=is_quotable)
    errors = [ProtocolError(-32000, "words secret-1"), InvalidResponse("words 'x'"), ValueError("words 'x'")]
    assert any("words" in texts.describe(each) for each in errors) is is_quotable
    assert "secret-1" not in "".join(map(texts.describe, errors))
    assert texts.describe(errors[0]) == (
        f"words {MASK} (code -32000)" if is_quotable else "an error with the code -32000"
    )
    assert texts.describe(Unreachable("refused secret-1")) == f"refused {MASK}", "that text is ours"
    assert ("words" in str(texts.clean(OutcomeUnknown("words")))) is is_quotable


@cases(
    "value",
    [
        "sid=first-cookie; theme=dark-blue; session=second-cookie",
        'Token token="first-cookie", nonce=second-cookie',
        "a=first%2Dcookie;b=second-cookie",
    ],
)
def test_cookies_and_parameters_of_headers_are_known_alone(value: str) -> None:
    for note in (ServerTexts.note_signature, ServerTexts.note_request):
        texts = ServerTexts()
        note(texts, {"Cookie": value})
        assert texts.hide("saw first-cookie and second-cookie") == f"saw {MASK} and {MASK}"
    texts = ServerTexts()
    texts.note_settings(headers={"Cookie": value})
    assert texts.hide("saw first-cookie and second-cookie") == f"saw {MASK} and {MASK}"
