"""Signed tokens: which are believed, and every kind that is not."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.auth.issuing import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    NOW,
    OTHER_RSA,
    RSA,
    Clock,
    Provider,
    claims,
    key_set,
    sign,
    token,
)
from tests.cases import cases

from toolwire.auth import JWT, InvalidToken, Principal, jose
from toolwire.auth.jose import parse
from toolwire.protocol.errors import ServerError
from toolwire.protocol.sealing import encode_base64url

KEYS = key_set(RSA, EC, ED)


def make(clock: Clock | None = None, **options: Any) -> JWT:
    return JWT(ISSUER, **{"audience": AUDIENCE, "keys": KEYS, "clock": clock or Clock(), **options})


async def refused(sent: str, **options: Any) -> str:
    """Why a token is refused."""
    with pytest.raises(InvalidToken) as caught:
        await make(**options).verify(sent)
    assert sent not in str(caught.value)
    return str(caught.value)


@pytest.mark.covers("J96", "J97", "J100", "6.1.3")
async def test_a_good_token_stands_for_its_subject() -> None:
    principal = await make().verify(token(email="alice@example.org", preferred_username="al"))
    assert principal == Principal(
        "alice",
        ISSUER,
        "al",
        frozenset({"read", "write"}),
        claims(email="alice@example.org", preferred_username="al"),
    )


@cases(
    ("key", "alg"),
    [
        *((RSA, alg) for alg in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (EC, "ES256"),
        (ED, "Ed25519"),
        (ED, "EdDSA"),
    ],
)
async def test_every_algorithm_with_public_keys(key: Any, alg: str) -> None:
    assert await make().verify(token(key, alg=alg)) is not None
    # One that the user did not name is refused, as good as it is.
    others = [each for each in ("RS256", "ES256") if each != alg]
    assert "algorithm" in await refused(token(key, alg=alg), algorithms=others)


async def test_a_key_that_calls_itself_eddsa_serves_both_names() -> None:
    keys = {"keys": [{**key_set(ED)["keys"][0], "alg": "EdDSA"}]}
    for alg in ("EdDSA", "Ed25519"):
        assert await make(keys=keys).verify(token(ED, alg=alg)) is not None


# --- tokens nobody should believe ---


def unsigned(alg: str) -> str:
    head = encode_base64url(json.dumps({"alg": alg, "typ": "at+jwt"}).encode())
    return f"{head}.{encode_base64url(json.dumps(claims()).encode())}."


@cases("alg", ["none", "None", "NONE", "nOnE"])
async def test_alg_none(alg: str) -> None:
    assert "algorithm" in await refused(unsigned(alg))
    assert "algorithm" in await refused(unsigned(alg) + encode_base64url(b"x"))


@cases("alg", ["HS256", "HS384", "HS512"])
async def test_the_public_key_as_a_shared_secret(alg: str) -> None:
    head = encode_base64url(json.dumps({"alg": alg, "kid": "rsa-1", "typ": "at+jwt"}).encode())
    signed = f"{head}.{encode_base64url(json.dumps(claims()).encode())}".encode()
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[alg]
    for secret in (RSA.as_pem(private=False), json.dumps(KEYS["keys"][0]).encode()):
        forged = f"{signed.decode()}.{encode_base64url(hmac.new(secret, signed, digest).digest())}"
        assert "algorithm" in await refused(forged)


@cases("alg", ["none", "HS256", "ES256K", "XX"])
def test_such_algorithms_cannot_be_switched_on(alg: str) -> None:
    with pytest.raises(ServerError, match=alg):
        make(algorithms=["RS256", alg])


@pytest.mark.covers("J100")
async def test_another_key_under_the_same_id() -> None:
    assert "signature" in await refused(sign(claims(), OTHER_RSA, kid="rsa-1"))


async def test_a_key_that_the_token_brings_along() -> None:
    own = OTHER_RSA.as_dict(private=False)
    for header in ({"jwk": own}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/cert"}):
        assert "signature" in await refused(sign(claims(), OTHER_RSA, **header))
        assert "signature" in await refused(sign(claims(), OTHER_RSA, kid=None, **header))


async def test_an_algorithm_that_the_key_is_not_for() -> None:
    only_pss = {"keys": [{**key_set(RSA)["keys"][0], "alg": "PS256"}]}
    assert await make(keys=only_pss).verify(token(alg="PS256")) is not None
    assert "signature" in await refused(token(alg="RS256"), keys=only_pss)


@cases("purpose", [{"use": "enc"}, {"use": 5}, {"key_ops": ["sign"]}, {"key_ops": []}, {"key_ops": "verify"}])
def test_keys_for_other_purposes_are_no_keys(purpose: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="none of these"):
        make(keys={"keys": [{**key_set(RSA)["keys"][0], **purpose}]})


async def test_key_for_verification_verifies() -> None:
    keys = {"keys": [{**key_set(RSA)["keys"][0], "use": "sig", "key_ops": ["verify"]}]}
    assert await make(keys=keys).verify(token()) is not None


def test_symmetric_and_broken_keys_are_no_keys() -> None:
    for key in ({"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}, "x", None):
        with pytest.raises(ServerError, match="none of these"):
            make(keys={"keys": [key]})


@pytest.mark.covers("J100", "6.1.4")
@cases(
    "audience",
    [
        "https://other.example.org/mcp",
        None,
        [],
        "",
        5,
        [5],
        [None],
        {"aud": AUDIENCE},
        AUDIENCE + "/",
        AUDIENCE.upper(),
    ],
)
async def test_a_wrong_or_missing_audience(audience: Any) -> None:
    await refused(token(aud=audience))


@pytest.mark.covers("6.1.4")
async def test_several_audiences() -> None:
    several = [AUDIENCE, "https://other.example.org"]
    # Whoever runs the other server could send it here.
    assert "other servers" in await refused(token(aud=several))
    assert await make(other_audiences=["https://other.example.org"]).verify(token(aud=several)) is not None
    assert await make().verify(token(aud=[AUDIENCE])) is not None
    assert "another server" in await refused(
        token(aud=["https://other.example.org"]), other_audiences=["https://other.example.org"]
    )


@cases("audience", ["", [], [""], None])
def test_there_is_no_server_without_an_audience(audience: Any) -> None:
    with pytest.raises(ServerError, match="audience"):
        make(audience=audience or ())


@pytest.mark.covers("J100")
@cases("issuer", ["https://login.example.org/", "https://evil.example", None, [ISSUER], 5])
async def test_another_issuer(issuer: Any) -> None:
    assert "issuer" in await refused(token(iss=issuer))


@pytest.mark.covers("J100")
@cases(
    ("changes", "why"),
    [
        ({"exp": NOW - 61}, "expired"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": None}, "expires"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 10**400}, "exp"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"nbf": "now"}, "nbf"),
        ({"sub": None}, "subject"),
        ({"sub": ""}, "subject"),
        ({"sub": 7}, "subject"),
    ],
)
async def test_claims_that_do_not_hold(changes: dict[str, Any], why: str) -> None:
    assert why in await refused(token(**changes))


@pytest.mark.covers("J100")
@cases("changes", [{"exp": NOW - 59}, {"nbf": NOW + 60}, {"iat": NOW + 60}, {"exp": NOW + 0.5}])
async def test_clocks_may_differ_by_a_minute(changes: dict[str, Any]) -> None:
    assert await make().verify(token(**changes)) is not None


async def test_a_very_long_token() -> None:
    assert "too long" in await refused(token(padding="x" * 20_000))


@cases("typ", ["dpop+jwt", "logout+jwt", "secevent+jwt", "id+jwt"])
async def test_another_kind_of_token(typ: str) -> None:
    assert "access token" in await refused(token(header={"typ": typ}))


@cases("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
async def test_the_types_of_access_tokens(typ: str | None) -> None:
    assert await make().verify(token(header={"typ": typ})) is not None


@cases("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False, "crit": ["b64"]}])
async def test_critical_extensions(header: dict[str, Any]) -> None:
    assert "extension" in await refused(token(header=header))


@cases("payload", [b"", b"[]", b'"text"', b"{", b"\xff", b'{"iss":1}{"iss":2}', b"[" * 5000])
async def test_a_payload_that_is_no_object(payload: bytes) -> None:
    await refused(sign(payload))


@given(st.text(alphabet="abcABC019-_.=+/ \n", max_size=60) | st.binary(max_size=60).map(lambda data: data.hex()))
async def test_noise_is_refused_and_nothing_else(noise: str) -> None:
    try:
        assert await make().verify(noise) is None
    except InvalidToken:
        pass


@cases("place", [0, 1, 2])
async def test_another_spelling_of_the_same_bytes(place: int) -> None:
    parts = token().split(".")
    for padded in (parts[place] + "=", parts[place] + "\n", " " + parts[place]):
        with pytest.raises(InvalidToken):
            parse(".".join([*parts[:place], padded, *parts[place + 1 :]]))


async def test_what_is_no_signed_token_is_left_to_others() -> None:
    assert await make().verify("an-opaque-token") is None


def test_without_joserfc_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    jose._joserfc.cache_clear()
    monkeypatch.setitem(sys.modules, "joserfc.jws", None)
    try:
        with pytest.raises(ServerError, match="pip install 'toolwire\\[auth\\]'"):
            make()
    finally:
        jose._joserfc.cache_clear()


# --- scopes and names ---


@cases(
    ("changes", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
        ({"scope": None}, set()),
        ({"scope": 5, "scp": [5, "a"]}, {"a"}),
    ],
)
async def test_where_scopes_are_found(changes: dict[str, Any], scopes: set[str]) -> None:
    principal = await make().verify(token(**changes))
    assert principal is not None and principal.scopes == scopes


@cases("changes", [{"client_id": "alice"}, {"azp": "alice"}, {"sub": "", "client_id": "alice"}])
async def test_name_of_a_client_is_not_taken_for_a_user(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken, match="names no subject"):
        await make().verify(token(**{"sub": None, **changes}))


async def test_client_is_the_subject_where_the_operator_says_so() -> None:
    verifier = make(subject_claims=["sub", "client_id"])
    principal = await verifier.verify(token(sub=None, client_id="robot"))
    assert principal is not None and principal.subject == "robot"
    with pytest.raises(InvalidToken, match="names no subject"):
        await verifier.verify(token(sub="", client_id="robot"))


# --- remembering ---


async def test_a_token_is_verified_once_and_not_beyond_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = 0
    clock = Clock()
    verifier = make(clock)
    inner = verifier._verified

    async def counted(sent: str) -> Principal:
        nonlocal verified
        verified += 1
        return await inner(sent)

    monkeypatch.setattr(verifier, "_verified", counted)
    long, short = token(), token(exp=NOW + 30)
    for _ in range(3):
        assert await verifier.verify(long) is not None
        assert await verifier.verify(short) is not None
    assert verified == 2
    clock.now += 31
    await verifier.verify(long)
    await verifier.verify(short)  # Within the minute that clocks may differ, but it is looked at again.
    assert verified == 3
    clock.now += 30
    await verifier.verify(long)
    assert verified == 4
    with pytest.raises(InvalidToken, match="expired"):
        clock.now += 60
        await verifier.verify(short)


async def test_what_is_remembered_is_bounded() -> None:
    from toolwire.auth.verify.token_cache import Remembered

    remembered = Remembered(60, capacity=10, clock=Clock())
    for number in range(100):
        remembered.put(remembered.get(f"token-{number}")[0], Principal("alice"))
    assert len(remembered) == 10
    assert remembered.get("token-99")[1]
    assert not remembered.get("token-0")[1]


async def test_keys_come_from_the_issuer_that_the_token_names() -> None:
    provider = Provider(
        {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"},
            f"{ISSUER}/keys": key_set(RSA),
            "https://two.example/.well-known/openid-configuration": {
                "issuer": "https://two.example",
                "jwks_uri": "https://two.example/keys",
            },
            "https://two.example/keys": key_set(OTHER_RSA),
        }
    )
    verifier = JWT([ISSUER, "https://two.example"], audience=AUDIENCE, fetch=provider, clock=Clock())
    assert await verifier.verify(token(RSA)) is not None
    assert await verifier.verify(token(OTHER_RSA, iss="https://two.example")) is not None
    # The key of one issuer does not vouch for the tokens of the other.
    with pytest.raises(InvalidToken, match="signature"):
        await verifier.verify(token(OTHER_RSA))
