"""The authorization request, and answers that are not what they seem."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.auth.playing import ISSUER, SERVER, discovered
from tests.cases import cases

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.auth.flow.authorization import (
    ATTEMPT_SECONDS,
    Attempt,
    answer_parameters,
    begin,
    check_redirect_uri,
    query_parameters,
    read_code,
)
from toolwire.auth.flow.clients import Registration
from toolwire.auth.flow.urls import Reach

CALLBACK = "http://127.0.0.1:7777/callback"


def attempt(
    scopes: tuple[str, ...] = (), *, server_url: str = SERVER, send_resource: bool = True, **changes: Any
) -> Attempt:
    pieces = iter(bytes([number]) * 32 for number in (1, 2))
    return begin(
        discovered(**changes),
        Registration("me"),
        CALLBACK,
        scopes,
        reach=Reach(server_url),
        random=lambda size: next(pieces)[:size],
        now=1000.0,
        server_url=server_url,
        send_resource=send_resource,
    )


def query(made: Attempt) -> dict[str, list[str]]:
    return parse_qs(urlsplit(made.url).query, strict_parsing=True)


@pytest.mark.covers("6.2.13", "6.2.14", "6.2.17", "4.2.C4", "4.1.C4")
def test_the_request() -> None:
    made = attempt(("a", "b"))
    assert made.url.startswith(f"{ISSUER}/authorize?")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(made.verifier.encode()).digest()).rstrip(b"=").decode()
    assert query(made) == {
        "response_type": ["code"],
        "client_id": ["me"],
        "redirect_uri": [CALLBACK],
        "code_challenge": [challenge],
        "code_challenge_method": ["S256"],
        "state": [made.state],
        "resource": [SERVER],
        "scope": ["a b"],
    }
    assert len(made.verifier) >= 43
    assert made.found.issuer == ISSUER
    assert made.state != made.verifier


def test_secrets_are_not_shown() -> None:
    made = attempt()
    assert made.verifier not in repr(made)
    assert made.state not in repr(made)


@pytest.mark.covers("6.2.15")
def test_no_scope_means_no_parameter() -> None:
    assert "scope" not in query(attempt())


def test_offline_access_asks_for_consent() -> None:
    assert query(attempt(("a", "offline_access")))["prompt"] == ["consent"]


def test_an_endpoint_with_a_query_of_its_own() -> None:
    made = attempt(authorization_endpoint=f"{ISSUER}/authorize?tenant=7#x")
    assert query(made)["tenant"] == ["7"]
    assert "#" not in made.url


def test_the_resource_can_be_left_out() -> None:
    assert "resource" not in query(attempt(send_resource=False))


@pytest.mark.covers("6.2.13", "4.3.C6")
@cases("methods", [None, [], ["plain"]])
def test_no_promise_of_pkce_no_sign_in(methods: list[str] | None) -> None:
    with pytest.raises(SignInFailed, match="PKCE"):
        attempt(code_challenge_methods_supported=methods)


@pytest.mark.covers("6.2.18")
@cases(
    "endpoint",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "http://login.example.org/authorize",
        "http://127.0.0.1/authorize",
        "https://user@login.example.org/",
        None,
    ],
)
def test_what_is_never_opened_in_a_browser(endpoint: str | None) -> None:
    with pytest.raises(SignInFailed):
        attempt(authorization_endpoint=endpoint)


def test_a_local_server_may_have_a_local_login() -> None:
    made = attempt(server_url="http://localhost:1/mcp", authorization_endpoint="http://localhost:2/authorize")
    assert made.url.startswith("http://localhost:2/authorize?")


@pytest.mark.covers("6.2.16", "4.2.C8")
@cases("uri", ["http://app.example/cb", "myapp://cb", "https:///cb", "https://app.example/cb#x", ""])
def test_redirect_uris_are_local_or_https(uri: str) -> None:
    with pytest.raises(ValueError, match="redirect URI"):
        check_redirect_uri(uri)
    assert check_redirect_uri("https://app.example/cb")
    assert check_redirect_uri("http://localhost:7/cb")


# --- the answer ---


@cases(
    "answer",
    [
        f"{CALLBACK}?code=c1==&state={{state}}",
        "https://app.example/cb?code=c1%3D%3D&state={state}",
        # Colons and slashes may stand in a query as they are.
        f"?code=c1==&state={{state}}&iss={ISSUER}",
        f"state={{state}}&iss={ISSUER}&code=c1==",
        " c1==\n",
    ],
)
def test_the_code_of_an_answer(answer: str) -> None:
    made = attempt()
    assert read_code(made, answer_parameters(answer.format(state=made.state), made), 1001.0) == "c1=="


@pytest.mark.covers("6.2.16", "4.2.C8")
@cases("state", ["", "other", None])
def test_an_answer_to_another_sign_in(state: str | None) -> None:
    parameters = {"code": "c1"} if state is None else {"code": "c1", "state": state}
    with pytest.raises(SignInFailed, match="another sign-in"):
        read_code(attempt(), parameters, 1001.0)


@pytest.mark.covers("6.2.19", "6.2.20")
@cases(
    ("promised", "iss", "accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example", False),
        (None, ISSUER, True),
        (False, None, True),
        (None, None, True),
        (None, "https://evil.example", False),
        (False, f"{ISSUER}/", False),
        (True, "https://LOGIN.example.org", False),
        (True, "https://login.example.org:443", False),
        (True, "https://login%2Eexample.org", False),
        (True, "", False),
    ],
)
def test_who_answers(promised: bool | None, iss: str | None, accepted: bool) -> None:
    made = attempt(authorization_response_iss_parameter_supported=promised)
    parameters = {"code": "c1", "state": made.state} | ({} if iss is None else {"iss": iss})
    if accepted:
        assert read_code(made, parameters, 1001.0) == "c1"
    else:
        with pytest.raises(SignInFailed):
            read_code(made, parameters, 1001.0)


@pytest.mark.covers("6.2.21")
def test_an_error_of_somebody_else_is_not_shown() -> None:
    made = attempt()
    lie = {
        "error": "access_denied",
        "error_description": "call 555",
        "state": made.state,
        "iss": "https://evil.example",
    }
    with pytest.raises(SignInFailed) as caught:
        read_code(made, lie, 1001.0)
    assert not isinstance(caught.value, Refused)
    assert "555" not in str(caught.value)
    with pytest.raises(Refused) as refused:
        read_code(made, {**lie, "iss": ISSUER}, 1001.0)
    assert refused.value.error == "access_denied"


def test_a_late_answer() -> None:
    made = attempt()
    with pytest.raises(SignInFailed, match="too long"):
        read_code(made, {"code": "c1", "state": made.state}, 1001.0 + ATTEMPT_SECONDS)


@cases(
    "answer", ["code=a&code=b", "code=" + "y" * 20_000, "?" + "&".join(f"a{i}=1" for i in range(99)), "http://[?code=a"]
)
def test_hostile_answers(answer: str) -> None:
    with pytest.raises(SignInFailed):
        answer_parameters(answer, attempt())


def test_form_encoding_is_decoded_once() -> None:
    assert query_parameters("?iss=https%3A%2F%2Fh%252F&x=a+b") == {"iss": "https://h%2F", "x": "a b"}
