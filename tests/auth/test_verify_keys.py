"""API keys, the verifier that lets everybody in, callables and chains."""

from __future__ import annotations

import hmac
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.auth.test_dpop_proof import application, bound_token, call, proof
from tests.auth.test_proxy import world
from tests.cases import cases

from toolwire.auth import Anonymous, ApiKeys, Chain, InvalidToken, Principal, Unavailable, hashed
from toolwire.auth.verify.token_cache import Remembered
from toolwire.auth.verify.verifier import as_verifier
from toolwire.protocol.errors import ServerError

KEY, OTHER = "alices-key-123", "bobs-key-4567"


@pytest.mark.covers("J99", "J105")
async def test_a_key_stands_for_its_owner() -> None:
    keys = ApiKeys({KEY: "alice", OTHER: Principal("bob", scopes=frozenset({"read"}))})
    alice, bob = await keys.verify(KEY), await keys.verify(OTHER)
    assert alice == Principal("alice", provider="api-key", username="alice")
    assert bob is not None and bob.scopes == {"read"}
    assert await keys.verify("a-key-of-nobody") is None


async def test_a_key_can_be_given_as_its_digest() -> None:
    keys = ApiKeys({hashed(KEY): "alice"})
    assert await keys.verify(KEY) is not None
    # Whoever reads the configuration has no key.
    assert await keys.verify(hashed(KEY)) is None


async def test_only_digests_are_kept() -> None:
    keys = ApiKeys({KEY: "alice"})
    assert KEY not in repr(vars(keys))
    assert KEY.encode() not in repr(vars(keys)).encode()


@pytest.mark.covers("J99")
async def test_every_key_is_compared_by_digest_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def watched(first: Any, second: Any) -> bool:
        compared.append((first, second))
        return real(first, second)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    keys = ApiKeys({KEY: "alice", OTHER: "bob", "carols-key-89": "carol"})
    for sent in (KEY, "carols-key-89", "nobodys-key-0"):
        compared.clear()
        await keys.verify(sent)
        # All of them, whichever matches, and never the key itself.
        assert len(compared) == 3
        assert all(len(each) == 32 for pair in compared for each in pair)


@cases("keys", [{}, {"short": "alice"}, {"has a space": "alice"}, {"": "alice"}, {"umlaut-ä-key": "a"}])
def test_keys_that_cannot_be_sent_are_refused(keys: dict[str, str]) -> None:
    with pytest.raises(ServerError):
        ApiKeys(keys)


async def test_every_secret_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing compares as equal, nobody gets in: no path compares in another way."""
    monkeypatch.setattr(hmac, "compare_digest", lambda first, second: False)
    assert await ApiKeys({KEY: "alice"}).verify(KEY) is None
    async with world() as proxied:
        client = await proxied.register()
        assert (await proxied.consent(client)).status == 400
    async with application() as app:
        token = bound_token()
        assert (await call(app, token, proof(token))).status == 401
    monkeypatch.undo()
    async with world() as proxied:
        client = await proxied.register()
        code = await proxied.code(client)
        monkeypatch.setattr(hmac, "compare_digest", lambda first, second: False)
        assert (await proxied.token(client, code)).status == 400


@pytest.mark.covers("J102")
def test_threads_may_share_what_is_remembered() -> None:
    remembered = Remembered(60, capacity=50)

    def use(thread: int) -> None:
        for number in range(300):
            digest, _, _ = remembered.get(f"{thread}-{number}")
            remembered.put(digest, Principal(str(number)))
            known, principal = remembered.get(f"{thread}-{number}")[1:]
            assert not known or principal == Principal(str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert len(remembered) <= 50


@pytest.mark.covers("J106")
async def test_everybody_is_the_same_anonymous() -> None:
    first, second = await Anonymous().verify("x"), await Anonymous().verify("y")
    assert first == second == Principal("anonymous", provider="anonymous", is_shared=True)


@pytest.mark.covers("J98")
@pytest.mark.parametrize("is_async", [True, False])
async def test_any_callable_is_a_verifier(is_async: bool) -> None:
    def plain(token: str) -> Principal | None:
        return Principal("alice") if token == "good" else None

    async def waiting(token: str) -> Principal | None:
        return plain(token)

    verifier = as_verifier(waiting if is_async else plain)
    assert await verifier.verify("good") == Principal("alice")
    assert await verifier.verify("bad") is None


async def test_a_callable_that_returns_something_else_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="Principal"):
        await as_verifier(lambda token: "alice").verify("x")  # type: ignore[arg-type,return-value]


@cases("what", [3, "a key", object(), []])
def test_what_cannot_verify_is_refused(what: Any) -> None:
    with pytest.raises(ServerError):
        as_verifier(what)


async def test_a_chain_asks_in_turn() -> None:
    chain = Chain([ApiKeys({KEY: "alice"}), ApiKeys({OTHER: "bob"})])
    assert (await chain.verify(KEY)) == Principal("alice", "api-key", "alice")
    assert (await chain.verify(OTHER)) == Principal("bob", "api-key", "bob")
    assert await chain.verify("nobodys-key-0") is None


async def test_a_chain_passes_on_why_a_token_is_refused() -> None:
    def expired(token: str) -> Principal | None:
        raise InvalidToken("The token has expired")

    with pytest.raises(InvalidToken, match="expired"):
        await Chain([expired, ApiKeys({KEY: "alice"})]).verify("other")
    assert await Chain([expired, ApiKeys({KEY: "alice"})]).verify(KEY) is not None


async def test_an_outage_is_not_a_refusal() -> None:
    def down(token: str) -> Principal | None:
        raise Unavailable("down")

    def refused(token: str) -> Principal | None:
        raise InvalidToken("no")

    with pytest.raises(Unavailable):
        await Chain([down, refused]).verify("x")
    assert await Chain([down, ApiKeys({KEY: "alice"})]).verify(KEY) is not None
