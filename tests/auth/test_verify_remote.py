"""Opaque tokens, whose issuer is asked: introspection, GitHub, Google."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.auth.issuing import AUDIENCE, DOWN, ISSUER, NOW, Clock, Provider, claims
from tests.cases import cases

from toolwire.auth import GitHub, Google, Introspection, InvalidToken, Principal, Unavailable
from toolwire.auth.verify.fetch import ProviderAnswer as Answer
from toolwire.protocol.errors import ServerError

ENDPOINT = f"{ISSUER}/introspect"
TOKEN = "an-opaque-token"


def introspection(provider: Provider, clock: Clock | None = None, **options: Any) -> Introspection:
    return Introspection(ENDPOINT, audience=AUDIENCE, fetch=provider, clock=clock or Clock(), **options)


@pytest.mark.covers("J96", "J101", "6.1.3")
async def test_introspection_says_whose_token_it_is() -> None:
    provider = Provider({ENDPOINT: {"active": True, **claims(username="al")}})
    verifier = introspection(provider, client_id="the server", client_secret="s&cret", issuer=ISSUER)
    principal = await verifier.verify(TOKEN)
    assert principal is not None
    assert (principal.subject, principal.provider, principal.username) == ("alice", ISSUER, "al")
    assert principal.scopes == {"read", "write"}
    assert provider.forms == [{"token": TOKEN, "token_type_hint": "access_token"}]
    # RFC 6749 section 2.3.1
    assert base64.b64decode(provider.headers[0]["authorization"].removeprefix("Basic ")) == b"the+server:s%26cret"


async def test_introspection_without_credentials() -> None:
    provider = Provider({ENDPOINT: {"active": True, **claims()}})
    assert await introspection(provider).verify(TOKEN) is not None
    assert provider.headers == [{}]


@cases("answer", [{"active": False}, {}, {"active": "true"}, {"active": 1}, claims()])
async def test_a_token_that_is_not_active(answer: dict[str, Any]) -> None:
    provider = Provider({ENDPOINT: answer})
    verifier = introspection(provider)
    for _ in range(5):
        assert await verifier.verify(TOKEN) is None
    # A flood of one bad token is not passed on.
    assert len(provider.asked) == 1


@pytest.mark.covers("6.1.4")
@cases(
    "changes",
    [
        {"aud": None},
        {"aud": "https://other.example"},
        {"iss": "https://evil.example"},
        {"exp": NOW - 61},
        {"nbf": NOW + 99},
        {"token_type": "refresh_token"},
        {"token_use": "refresh_token"},
        {"typ": "Refresh"},
        {"token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
        {"token_type": "urn:ietf:params:oauth:token-type:id_token"},
        {"typ": "rt+jwt"},
        {"typ": "application/rt+JWT"},
        {"token_use": "refresh-token"},
        {"token_type": "DPoP"},
    ],
)
async def test_an_active_token_that_is_not_for_us(changes: dict[str, Any]) -> None:
    provider = Provider({ENDPOINT: {"active": True, **claims(**changes)}})
    verifier = introspection(provider, issuer=ISSUER)
    with pytest.raises(InvalidToken):
        await verifier.verify(TOKEN)
    assert await verifier.verify(TOKEN) is None
    assert len(provider.asked) == 1


@cases(
    "answer",
    [
        DOWN,
        Answer(401, {}, b""),
        Answer(500, {}, b""),
        Answer(200, {}, b"no"),
        Answer(302, {}, b""),
    ],
)
async def test_an_endpoint_that_cannot_tell(answer: Any) -> None:
    verifier = introspection(Provider({ENDPOINT: answer}))
    with pytest.raises(Unavailable):
        await verifier.verify(TOKEN)


async def test_an_answer_is_kept_for_a_minute_and_not_beyond_the_end() -> None:
    clock = Clock()
    provider = Provider({ENDPOINT: {"active": True, **claims(exp=NOW + 90)}})
    verifier = introspection(provider, clock)
    for moment in (0, 30, 59, 60, 80, 89, 90):
        clock.now = NOW + moment
        assert await verifier.verify(TOKEN) is not None
    assert len(provider.asked) == 3


async def test_an_answer_without_an_end() -> None:
    assert await introspection(Provider({ENDPOINT: {"active": True, **claims(exp=None)}})).verify(TOKEN) is not None


# --- GitHub ---

API = "https://api.github.com"
ALICE = {"login": "Alice", "id": 42, "name": "Alice A."}


def github(answers: dict[str, Any], clock: Clock | None = None, **options: Any) -> tuple[GitHub, Provider]:
    provider = Provider({f"{API}{path}": answer for path, answer in answers.items()})
    return GitHub(fetch=provider, clock=clock or Clock(), **options), provider


def user_answer(scopes: str = "read:user, gist") -> Answer:
    return Answer(200, {"x-oauth-scopes": scopes}, b'{"login": "Alice", "id": 42}')


@pytest.mark.covers("J102")
async def test_github_says_whose_token_it_is_and_is_asked_every_five_minutes() -> None:
    clock = Clock()
    verifier, provider = github({"/user": user_answer()}, clock, any_app=True)
    for moment in (0, 100, 299):
        clock.now = NOW + moment
        principal = await verifier.verify(TOKEN)
    assert principal == Principal(
        "42", "https://github.com", "Alice", frozenset({"read:user", "gist"}), {"login": "Alice", "id": 42}
    )
    assert provider.asked == [("GET", f"{API}/user")]
    assert provider.headers[0]["authorization"] == f"Bearer {TOKEN}"
    clock.now = NOW + 300
    await verifier.verify(TOKEN)
    assert len(provider.asked) == 2


@pytest.mark.covers("6.1.4")
async def test_a_github_token_was_made_for_our_application() -> None:
    path = "/applications/our-app/token"
    verifier, provider = github(
        {path: {"user": ALICE, "scopes": ["read:user"]}}, client_id="our-app", client_secret="secret"
    )
    principal = await verifier.verify(TOKEN)
    assert principal is not None and principal.username == "Alice"
    assert provider.forms == [{"access_token": TOKEN}]
    other, _ = github({"/user": ALICE}, client_id="our-app", client_secret="secret")
    assert await other.verify("a-token-of-another-app") is None


def test_github_without_an_audience_is_said_aloud() -> None:
    with pytest.raises(ServerError, match="any_app=True"):
        GitHub()


@pytest.mark.covers("J103")
@cases("users", [["alice"], {"ALICE", "bob"}, ("Alice",)])
async def test_allowed_users(users: Any) -> None:
    verifier, _ = github({"/user": user_answer()}, any_app=True, users=users)
    assert await verifier.verify(TOKEN) is not None
    refusing, _ = github({"/user": user_answer()}, any_app=True, users=["bob"])
    with pytest.raises(InvalidToken, match="not allowed"):
        await refusing.verify(TOKEN)


@pytest.mark.covers("J103")
@cases(
    ("membership", "is_member"),
    [({"state": "active"}, True), ({"state": "pending"}, False), (None, False), (Answer(403, {}, b""), False)],
)
async def test_a_required_organisation(membership: Any, is_member: bool) -> None:
    answers = {"/user": user_answer(), "/user/memberships/orgs/acme": membership}
    verifier, provider = github(answers, any_app=True, organization="acme", users=["alice"])
    if is_member:
        assert await verifier.verify(TOKEN) is not None
    else:
        with pytest.raises(InvalidToken, match="member"):
            await verifier.verify(TOKEN)
        assert await verifier.verify(TOKEN) is None
    assert len(provider.asked) == 2


@pytest.mark.parametrize("answer", [Answer(401, {}, b""), Answer(403, {}, b"")])
async def test_a_token_that_github_refuses(answer: Answer) -> None:
    verifier, provider = github({"/user": answer}, any_app=True)
    assert await verifier.verify(TOKEN) is None
    assert await verifier.verify(TOKEN) is None
    assert len(provider.asked) == 1


@cases(
    "answer",
    [
        DOWN,
        Answer(500, {}, b""),
        Answer(403, {"x-ratelimit-remaining": "0"}, b""),
        {"login": "alice"},
        {"id": 1},
    ],
)
async def test_github_is_unwell(answer: Any) -> None:
    verifier, _ = github({"/user": answer}, any_app=True)
    with pytest.raises(Unavailable):
        await verifier.verify(TOKEN)


# --- Google ---

TOKEN_INFO = "https://oauth2.googleapis.com/tokeninfo"


@pytest.mark.covers("6.1.4")
async def test_google_says_whose_token_it_is() -> None:
    answer = {"aud": "our-client", "sub": "123", "scope": "openid email", "exp": str(int(NOW) + 50), "email": "a@b.c"}
    provider = Provider({TOKEN_INFO: answer})
    clock = Clock()
    verifier = Google("our-client", fetch=provider, clock=clock)
    principal = await verifier.verify(TOKEN)
    assert principal is not None
    assert (principal.subject, principal.provider, principal.username) == (
        "123",
        "https://accounts.google.com",
        "a@b.c",
    )
    assert principal.scopes == {"openid", "email"}
    assert provider.forms == [{"access_token": TOKEN}]
    with pytest.raises(InvalidToken, match="another server"):
        await Google("another-client", fetch=provider, clock=clock).verify(TOKEN)


async def test_google_knows_no_such_token() -> None:
    provider = Provider({TOKEN_INFO: Answer(400, {}, b'{"error": "invalid_token"}')})
    verifier = Google("our-client", fetch=provider, clock=Clock())
    assert await verifier.verify(TOKEN) is None
    assert await verifier.verify(TOKEN) is None
    assert len(provider.asked) == 1
    provider.answers[TOKEN_INFO] = Answer(503, {}, b"")
    with pytest.raises(Unavailable):
        await verifier.verify("another-token")


async def test_very_long_tokens_are_not_passed_on() -> None:
    provider = Provider()
    verifiers = (
        Google("c", fetch=provider, clock=Clock()),
        GitHub(any_app=True, fetch=provider, clock=Clock()),
        introspection(provider),
    )
    for verifier in verifiers:
        with pytest.raises(InvalidToken, match="long"):
            await verifier.verify("x" * 50_000)
    assert provider.asked == []
