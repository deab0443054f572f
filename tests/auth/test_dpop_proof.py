"""Tokens that are bound to a key (RFC 9449), at the gate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from joserfc.jwk import ECKey
from msgspec.structs import replace
from tests.auth.issuing import AUDIENCE, EC, ED, ISSUER, RSA, key_set, sign
from tests.cases import cases
from tests.http.httpclient import Answer
from tests.http.modernclient import ModernClient, text_of

from toolwire import Context, Server
from toolwire.auth import JWT
from toolwire.auth.browser import digest
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

HOLDER = ECKey.generate_key("P-256", private=True)
URL = "http://127.0.0.1:8000/mcp"


def bound_token(key: Any = HOLDER, **changes: Any) -> str:
    now = time.time()
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 300, "cnf": {"jkt": key.thumbprint()}}
    return sign({name: value for name, value in {**claims, **changes}.items() if value is not None})


def proof(
    token: str, key: Any = HOLDER, *, alg: str = "ES256", header: dict[str, Any] | None = None, **changes: Any
) -> str:
    claims = {"htm": "POST", "htu": URL, "iat": time.time(), "jti": str(time.perf_counter_ns()), "ath": digest(token)}
    head = {"typ": "dpop+jwt", "jwk": key.as_dict(private=False), "kid": None, **(header or {})}
    given = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    return sign(given, key, alg=alg, **head)


@asynccontextmanager
async def application(**options: Any) -> AsyncIterator[Any]:
    server = Server("s", auth=JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA)), **options)

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert "dpop" not in ctx.headers
        return str(ctx.principal.subject)

    app = server.http_app()
    try:
        yield app
    finally:
        await app.stop()


async def call(app: Any, token: str, *proofs: str, scheme: str = "DPoP", **options: Any) -> Answer:
    client = ModernClient(app, headers={"authorization": f"{scheme} {token}"})
    return await client.call("whoami", raw_headers=[(b"dpop", each.encode()) for each in proofs], **options)


@cases(("key", "alg"), [(HOLDER, "ES256"), (EC, "ES256"), (ED, "Ed25519"), (ED, "EdDSA"), (RSA, "PS256")])
async def test_a_bound_token_with_its_proof(key: Any, alg: str) -> None:
    token = bound_token(key)
    async with application() as app:
        assert text_of((await call(app, token, proof(token, key, alg=alg))).json()) == "alice"
        assert text_of((await call(app, token, proof(token, key, alg=alg), scheme="dpop")).json()) == "alice"


async def test_a_store_that_is_full_lets_nobody_in_for_now() -> None:
    token = bound_token()
    async with application(stores=Stores(MemoryKV(max_items=0), MemoryLog(), MemoryBus())) as app:
        answer = await call(app, token, proof(token))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_proofs_of_one_caller_fill_a_share_of_the_store_alone() -> None:
    async with application(stores=Stores(MemoryKV(max_items=40), MemoryLog(), MemoryBus())) as app:
        token, other = bound_token(sub="mallory"), bound_token()
        answers = [await call(app, token, proof(token)) for _ in range(13)]
        assert [each.status for each in answers] == [200] * 10 + [429] * 3
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await call(app, other, proof(other))).status == 200
        # Four callers with their shares leave room for everything else.
        for name in ("oscar", "trudy", "walter"):
            token = bound_token(sub=name)
            answers = [await call(app, token, proof(token)) for _ in range(11)]
        assert answers[-1].status == 503
        assert (await app.runtime().host.stores.kv.put("another", b"", ttl=60)) is True


async def test_a_bound_token_is_nothing_without_its_proof() -> None:
    token = bound_token()
    async with application() as app:
        for scheme in ("Bearer", "DPoP"):
            answer = await call(app, token, scheme=scheme)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith(scheme)
        assert (await call(app, token, proof(token), scheme="Bearer")).status == 401
        # One that is bound to a certificate cannot be proven here at all.
        certificate = bound_token(cnf={"x5t#S256": "x"})
        assert (await call(app, certificate, scheme="Bearer")).status == 401


async def test_a_token_that_is_not_bound_is_a_bearer_token() -> None:
    token = bound_token(cnf=None)
    async with application() as app:
        assert (await call(app, token, scheme="Bearer")).status == 200
        assert (await call(app, token, proof(token))).status == 401


@cases(
    "changes",
    [
        {"htm": "GET"},
        {"htm": None},
        {"htu": "http://127.0.0.1:8000/other"},
        {"htu": "https://127.0.0.1:8000/mcp"},
        {"htu": "http://[bad/mcp"},
        {"htu": "http://user@127.0.0.1:8000/mcp"},
        {"htu": "http://user:word@127.0.0.1:8000/mcp"},
        {"htu": "http://@127.0.0.1:8000/mcp"},
        {"htu": None},
        {"iat": 1_000_000_000},
        {"iat": 9_000_000_000},
        {"iat": None},
        {"iat": True},
        {"iat": 10**400},
        {"iat": -(10**400)},
        {"jti": None},
        {"jti": 5},
        {"jti": ""},
        {"ath": None},
        {"ath": "another"},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": None}},
        {"header": {"jwk": None}},
        {"header": {"jwk": HOLDER.as_dict(private=True)}},
        {"header": {"jwk": EC.as_dict(private=False)}},
        {"header": {"jwk": {"kty": "oct", "k": "AAAA"}}},
    ],
)
async def test_proofs_that_prove_nothing(changes: dict[str, Any]) -> None:
    token = bound_token()
    async with application() as app:
        answer = await call(app, token, proof(token, **changes))
        assert answer.status == 401
        assert answer.json()["error"] == "invalid_token"


async def test_a_proof_with_another_key() -> None:
    token = bound_token()
    async with application() as app:
        assert (await call(app, token, proof(token, EC))).status == 401


async def test_a_proof_is_good_once() -> None:
    token = bound_token()
    used = proof(token)
    async with application() as app:
        assert (await call(app, token, used)).status == 200
        assert (await call(app, token, used)).status == 401
        assert (await call(app, token, proof(token), proof(token))).status == 401


async def test_proofs_of_two_keys_may_have_the_same_identifier() -> None:
    """A client may count its proofs from 1."""
    one, other = bound_token(), bound_token(EC, sub="bob")
    async with application() as app:
        assert (await call(app, one, proof(one, jti="1"))).status == 200
        assert (await call(app, other, proof(other, EC, jti="1"))).status == 200
        assert (await call(app, one, proof(one, jti="1"))).status == 401


@cases("noise", ["", "x", "a.b.c", "é", "x" * 9000])
async def test_noise_instead_of_a_proof(noise: str) -> None:
    token = bound_token()
    async with application() as app:
        client = ModernClient(app, headers={"authorization": f"DPoP {token}"})
        answer = await client.call("whoami", raw_headers=[(b"dpop", noise.encode("latin-1"))])
        assert answer.status == 401


class SlowJWT(JWT):
    """Verifies tokens when `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__(ISSUER, audience=AUDIENCE, keys=key_set(RSA))
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def verify(self, token: str) -> Any:
        self.asked.set()
        await self.goes_on.wait()
        return await super().verify(token)


async def test_proof_of_a_request_that_two_gates_check_counts_once() -> None:
    slow = SlowJWT()
    server = Server("s", auth=slow)
    server.tool(lambda: "done", name="whoami")
    app = server.http_app()
    token = bound_token()
    sent = proof(token)
    calling = asyncio.ensure_future(call(app, token, sent))
    await slow.asked.wait()
    auth = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA))
    server.apply_settings(replace(server.settings, auth=auth))
    slow.goes_on.set()
    answer = await calling
    assert (answer.status, text_of(answer.json())) == (200, "done")
    # Another request with the same proof is refused.
    assert (await call(app, token, sent)).status == 401
    await app.stop()
