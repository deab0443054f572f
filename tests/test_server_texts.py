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
from toolwire.secret_index import LONG_PART
from toolwire.server_texts import MAX_CHARACTERS, MAX_KNOWN, MAX_SEARCHED, ServerTexts

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
        quote(quote(SECRET, safe=""), safe=""),
        quote(quote(quote(SECRET, safe=""), safe=""), safe=""),
        json.dumps(json.dumps(SECRET))[1:-1],
        SECRET.replace("/", "\\\\/"),
        quote(json.dumps(SECRET)[1:-1], safe=""),
        json.dumps(quote(SECRET, safe="").replace("%", "\\u0025"))[1:-1],
        "".join(f"\\u{ord(each):04x}" for each in quote(SECRET, safe="")),
        quote(quote(base64.b64encode(SECRET.encode()).decode(), safe=""), safe=""),
        SECRET.encode().hex(),
        f"a{SECRET.encode().hex().upper()}",
    ],
)
def test_credentials_are_hidden_in_every_form(form: str) -> None:
    # The text of an error, and one within its data.
    data = texts_of(SECRET).clean(ProtocolError(-32000, "failed", {form: [f"you sent {form}"]})).data
    assert form not in json.dumps(data) and form not in "".join([*data, *data.popitem()[1]])
    shown = texts_of(SECRET, "another").hide(f"you sent {form}, he said")
    assert MASK in shown and shown.startswith("you sent ") and shown.endswith(", he said")
    left = shown.removeprefix("you sent ").removesuffix(", he said").replace(MASK, "")
    assert len(left) <= 8


def test_other_words_stay_where_credentials_are_hidden() -> None:
    text = "100% of c:\\new \\u0041 c2VjcmV0 Zx9/+ 736563726574"
    assert texts_of("secret-1", SECRET).hide(text) == text
    assert texts_of().hide("text") == "text"
    assert texts_of("12345").hide("12345 is too short to be a credential") == "12345 is too short to be a credential"


KEY = "Zx9Kq7wLm2Pq8rT4vYb6Nc1Hd5Jf3G"


def test_parts_of_a_credential_are_hidden_wherever_they_begin() -> None:
    texts = texts_of("another-1", KEY)
    for start in range(len(KEY) - 5):
        for end in range(start + 6, len(KEY) + 1):
            assert texts.hide(f"saw …{KEY[start:end]}…") == f"saw …{MASK}…"
        short = KEY[start : start + 5]
        assert texts.hide(f"saw {short}, ok") == f"saw {short}, ok"
    for encode in (quote, lambda part: base64.b64encode(part.encode()).decode(), lambda part: part.encode().hex()):
        assert texts.hide(encode(KEY[7:20])) == MASK
    assert texts.hide(KEY[:8] + KEY[10:20]) == MASK
    assert texts.excerpt("." * 90 + KEY, 100) == "." * 90 + MASK


def test_long_parts_of_a_long_credential_are_hidden() -> None:
    rest = "".join(f"{number * 7919:x}-" for number in range(200))
    for length in (64, 65, 71, 72, 73, 1_000):
        value = rest[:length]
        texts, part = texts_of(value), 6 if length == 64 else LONG_PART
        for start in range(length - part + 1):
            # What is no part of it ends at other characters.
            assert texts.hide(f"saw z{value[start : start + part]}z") == f"saw z{MASK}z"
    assert texts_of(rest).hide(rest[:1_000] + "z" + rest[1_000:]) == f"{MASK}z{MASK}"


def test_words_and_marks_of_a_credential_stay() -> None:
    texts = texts_of("production-key-9f1c77", "-----BEGIN PRIVATE KEY-----", "Bearer Zx9Kq7wLm2", "weather")
    text = "the production-server: Bearer is the word for PRIVATE ------------"
    assert texts.hide(text) == text
    assert texts.hide("production-key-9f1c77 -----BEGIN PRIVATE KEY----- weather") == f"{MASK} {MASK} {MASK}"
    assert texts.hide("tion-key-9f and key-9f1c") == f"{MASK} and {MASK}"


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
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/keys/mine.json", True),
    ],
)
def test_credentials_are_found_among_the_variables_of_a_process(name: str, value: str, is_hidden: bool) -> None:
    texts = ServerTexts()
    texts.note_settings(environment={name: value})
    assert (texts.hide(f"saw {value}") != f"saw {value}") is is_hidden
    assert texts.hide("/home/ada/keys is a folder") == "/home/ada/keys is a folder"


def test_credentials_of_calls_take_bounded_room() -> None:
    texts = ServerTexts()
    texts.note_settings(headers={"x-key": KEY})
    long = [f"{number:04}" + "x0y1z2w3" * 2_000 for number in range(3 * MAX_CHARACTERS // 16_004)]
    texts.note([KEY, *long])
    shown = texts.hide(f"{KEY} {long[0][:16]} {long[-1][:16]}")
    assert shown.startswith(MASK) and shown.endswith(f" {MASK}") and long[0][:4] in shown
    for number in range(3 * MAX_KNOWN):
        texts.note([f"0number{number:05}"])
    assert texts.hide(f"{KEY} 0number{3 * MAX_KNOWN - 1:05}") == f"{MASK} {MASK}"
    assert texts.hide("x0y1z2w3x0y1z2w3") == "x0y1z2w3x0y1z2w3"


def test_headers_of_every_request_are_no_credentials() -> None:
    texts = ServerTexts()
    texts.note_settings(headers={"Accept": "application/json", "User-Agent": "my-app/1.0", "X-Tenant": "tenant-77"})
    assert (
        texts.hide("my-app/1.0 of tenant-77 wants application/json") == f"my-app/1.0 of {MASK} wants application/json"
    )


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
    numbers = {"short": 12345, "long": 7712345678, "none": None, "yes": True, "half": 0.5}
    texts.note(["7712345678"])
    assert texts.clean(ProtocolError(-1, "m", numbers)).data == {**numbers, "long": 0}
    names = {"secret-1": 1, "secret\\u002d1": 2, MASK: 3}
    assert texts.clean(ProtocolError(-1, "m", names)).data == {f"{MASK} 2": 1, f"{MASK} 3": 2, MASK: 3}
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
