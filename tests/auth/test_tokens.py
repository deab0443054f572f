"""Token requests and refreshing, and token endpoints that misbehave."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.auth.playing import ISSUER, SERVER, Site, answer, discovered, form, metadata
from tests.auth.test_authorization import CALLBACK, attempt
from tests.cases import cases

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.auth.flow.clients import Registration
from toolwire.auth.flow.flows import (
    client_credentials,
    exchange_code,
    exchange_for_id_jag,
    exchange_token,
    jwt_bearer,
    refresh,
)
from toolwire.auth.flow.messages import Fetch, Fetched
from toolwire.auth.flow.tokens import LEEWAY_SECONDS, Token, TokenResponse, make_token, request_token

TOKEN = f"{ISSUER}/token"
GOOD = {"access_token": "t1", "token_type": "Bearer"}
ME = Registration("me")


class Prover:
    def __init__(self) -> None:
        self.nonces: list[str] = []

    def proof(self, method: str, url: str, access_token: str | None = None) -> str:
        return f"{method} {url} {self.nonces[-1:]}"

    def learn(self, url: str, nonce: str) -> None:
        self.nonces.append(nonce)


@pytest.mark.covers("6.2.14", "6.2.17", "4.2.C4")
def test_the_code_goes_to_the_issuer_of_the_attempt() -> None:
    site = Site({TOKEN: GOOD})
    made = attempt()
    assert site.play(exchange_code(made, made.client, "c1")).access_token == "t1"
    assert form(site.asked[0]) == {
        "grant_type": "authorization_code",
        "code": "c1",
        "redirect_uri": CALLBACK,
        "code_verifier": made.verifier,
        "resource": SERVER,
        "client_id": "me",
    }
    # A redirect would carry the code and the verifier elsewhere.
    assert site.asked[0].redirects is False


@pytest.mark.covers("T-45")
def test_refreshing() -> None:
    site = Site({TOKEN: GOOD})
    old = Token("t0", ("a",), "r0")
    new = make_token(site.play(refresh(discovered(), ME, old)), 1000.0, old.scopes, old)
    assert form(site.asked[0]) == {
        "grant_type": "refresh_token",
        "refresh_token": "r0",
        "resource": SERVER,
        "client_id": "me",
    }
    # What the answer leaves out did not change.
    assert new == Token("t1", ("a",), "r0")


def test_a_rotated_refresh_token_replaces_the_old_one() -> None:
    site = Site({TOKEN: {**GOOD, "refresh_token": "r1", "expires_in": 60}})
    new = make_token(site.play(refresh(discovered(), ME, Token("t0", refresh_token="r0"))), 1000.0, ("b",))
    assert new == Token("t1", ("b",), "r1", 1054.0)


def test_nothing_to_refresh_with() -> None:
    with pytest.raises(SignInFailed, match="no refresh token"):
        Site({}).play(refresh(discovered(), ME, Token("t0")))


@cases(
    ("expires_in", "renew_at"),
    [
        (600, 1570.0),
        ("60", 1054.0),
        (None, None),
        ("soon", None),
        (0, None),
        (-5, None),
        ("nan", None),
        (1e300, 1000 + 315360000.0 - LEEWAY_SECONDS),
    ],
)
def test_when_a_token_is_renewed(expires_in: Any, renew_at: float | None) -> None:
    token = make_token(TokenResponse("t", "Bearer", expires_in), 1000.0, ())
    assert token.renew_at == renew_at
    assert token.fresh(1000.0)
    assert token.fresh(1e12) is (renew_at is None)


def test_tokens_are_not_shown() -> None:
    assert "t1secret" not in repr(Token("t1secret", refresh_token="t1secret"))


@cases(
    "page",
    [
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": "a b", "token_type": "Bearer"},
        {"access_token": "a\r\nx: y", "token_type": "Bearer"},
        {"access_token": "é", "token_type": "Bearer"},
        {"access_token": "a" * 40_000, "token_type": "Bearer"},
        {"access_token": "t1"},
        {"access_token": "t1", "token_type": "mac"},
        {"access_token": "t1", "token_type": "DPoP"},
        Fetched(200, {}, b"access_token=t1"),
        Fetched(302, {"location": "https://evil.example"}, b""),
        Fetched(500, {}, b"oops"),
    ],
)
def test_token_responses_that_are_not_used(page: Any) -> None:
    site = Site({TOKEN: page})
    with pytest.raises(SignInFailed):
        site.play(request_token(metadata(), ME, {}))
    assert len(site.asked) == 1


def test_a_refusal_says_why() -> None:
    site = Site({TOKEN: answer({"error": "invalid_grant", "error_description": "\x1b[31mexpired"}, 400)})
    with pytest.raises(Refused, match=r"refresh was refused: invalid_grant \(\?\[31mexpired\)") as caught:
        site.play(refresh(discovered(), ME, Token("t0", refresh_token="r0")))
    assert caught.value.error == "invalid_grant"
    assert "r0" not in str(caught.value)


def test_a_refusal_quotes_no_secret_of_the_request() -> None:
    def quoting(request: Fetch) -> Fetched:
        said = f"{request.headers.get('authorization', '')} {request.body.decode()}"
        return answer({"error": said[:200], "error_description": said}, 400)

    mine = structs.replace(ME, client_secret="secret-of-the-client")
    token, made = Token("access-0", refresh_token="refresh-token-0"), attempt()
    for flow in (
        refresh(discovered(), mine, token),
        exchange_code(made, mine, "code-of-the-browser"),
        jwt_bearer(discovered(), mine, "assertion-0", ()),
        exchange_token(discovered(), mine, "token-of-the-caller", ()),
    ):
        with pytest.raises(Refused) as caught:
            Site({TOKEN: quoting}).play(flow)
        said = f"{caught.value} {caught.value.error} {caught.value.description}"
        secrets = ("refresh-token-0", "code-of-the-browser", made.verifier, "assertion-0", "token-of-the-caller")
        assert not [each for each in (*secrets, "secret-of-the-client") if each in said]
        assert "grant_type" in said


# --- DPoP ---

BOUND = {"access_token": "t1", "token_type": "DPoP"}


def test_a_nonce_is_learned_and_used() -> None:
    def endpoint(request: Fetch) -> Fetched:
        if "'n1'" in request.headers["dpop"]:
            return answer(BOUND, dpop_nonce="n2")
        return answer({"error": "use_dpop_nonce"}, 400, dpop_nonce="n1")

    prover = Prover()
    site = Site({TOKEN: endpoint})
    assert site.play(request_token(metadata(), ME, {}, prover=prover)).access_token == "t1"
    assert prover.nonces == ["n1", "n2"]


def test_a_server_that_never_takes_the_nonce() -> None:
    site = Site({TOKEN: answer({"error": "use_dpop_nonce"}, 400, dpop_nonce="n1")})
    with pytest.raises(Refused, match="use_dpop_nonce"):
        site.play(request_token(metadata(), ME, {}, prover=Prover()))
    assert len(site.asked) == 2


def test_a_bearer_token_instead_of_a_bound_one_is_a_downgrade() -> None:
    with pytest.raises(SignInFailed, match="instead of dpop"):
        Site({TOKEN: GOOD}).play(request_token(metadata(), ME, {}, prover=Prover()))


# --- machine grants ---


def test_client_credentials() -> None:
    site = Site({TOKEN: GOOD})
    site.play(client_credentials(discovered(), Registration("me", "s"), ("a", "b")))
    assert form(site.asked[0]) == {
        "grant_type": "client_credentials",
        "resource": SERVER,
        "scope": "a b",
        "client_id": "me",
    }
    assert site.asked[0].headers["authorization"].startswith("Basic ")


def test_a_jwt_as_a_grant() -> None:
    site = Site({TOKEN: GOOD})
    site.play(jwt_bearer(discovered(), ME, "a.b.c", ()))
    assert form(site.asked[0]) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "a.b.c",
        "resource": SERVER,
        "client_id": "me",
    }


def test_an_id_token_for_an_identity_assertion_grant() -> None:
    idp = metadata(issuer="https://idp.example")
    jag = {"access_token": "jag", "token_type": "N_A", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}
    site = Site({"https://idp.example/token": jag})
    assert site.play(exchange_for_id_jag(idp, ME, "id.token", discovered(), ("a",))) == "jag"
    sent = form(site.asked[0])
    assert sent["audience"] == ISSUER
    assert sent["resource"] == SERVER
    assert sent["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"
    assert sent["subject_token"] == "id.token"
    with pytest.raises(SignInFailed, match="instead"):
        Site({"https://idp.example/token": {**jag, "issued_token_type": "x"}}).play(
            exchange_for_id_jag(idp, ME, "id.token", discovered(), ())
        )
