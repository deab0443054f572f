"""Tokens for tests: the server's own verification runs, and a server that is careless with tokens is found."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire import Context, Server, testing
from toolwire.auth import JWT, ApiKeys, Chain, Principal, ResourceServer, auth0, entra
from toolwire.auth.jose import ALGORITHMS, claims_of, parse
from toolwire.protocol.errors import ToolwireError, Unauthorized

LOGIN = "https://login.example.org"
AUDIENCE = "https://api.example.org/mcp"


def server_with(auth: Any) -> Server:
    server = Server("s", auth=auth)

    @server.tool
    def whoami(ctx: Context) -> str:
        return f"{ctx.principal.subject} {' '.join(sorted(ctx.principal.scopes))}".strip()

    @server.tool(scopes=["admin"])
    def purge() -> str:
        return "gone"

    return server


async def said(server: Server, token: str) -> str:
    async with testing.connect(server, over="http", auth=token) as (client, _):
        return (await client.call_tool("whoami")).text


@pytest.mark.covers("R32")
@cases(
    "auth",
    [
        JWT(LOGIN, audience=AUDIENCE),
        JWT(LOGIN, audience=AUDIENCE, algorithms=["RS256"]),
        [ApiKeys({"a-key-of-mine": "ann"}), JWT(LOGIN, audience=AUDIENCE, algorithms=["Ed25519"])],
        ResourceServer(JWT(LOGIN, audience=AUDIENCE), authorization_servers=[LOGIN], scopes=["read"]),
        auth0("login.example.org", AUDIENCE),
        entra("9188040d-6c67-4c5b-b112-36a304b66dad", "client"),
    ],
    ids=["jwt", "rsa", "chain", "scopes", "auth0", "entra"],
)
async def test_the_verification_of_the_server_itself_runs(auth: Any) -> None:
    server = server_with(auth)
    with testing.issuer(server) as issuer:
        await issuer.check()
        assert await said(server, issuer.token("ann", scopes="read write")) == "ann read write"
        assert (await said(server, issuer.token("bob"))).split()[0] == "bob"
        for what, token in issuer.bad_tokens().items():
            with pytest.raises(ToolwireError):
                await said(server, token)
                pytest.fail(what)
        async with testing.connect(server, over="http", auth=issuer.token(scopes="read")) as (client, _):
            with pytest.raises(ToolwireError, match=r"admin|scope"):
                await client.call_tool("purge")


async def test_the_issuer_is_trusted_within_the_block_only() -> None:
    server = server_with(JWT(LOGIN, audience=AUDIENCE, keys=_other_keys()))
    with testing.issuer(server) as issuer:
        token = issuer.token("ann")
        assert await said(server, token) == "ann"
    with pytest.raises(Unauthorized):
        await said(server, token)


def _other_keys() -> dict[str, Any]:
    with testing.issuer(server_with(JWT(LOGIN, audience=AUDIENCE))) as other:
        return other.keys


def test_claims_are_the_tests_to_choose() -> None:
    with testing.issuer(server_with(Chain([JWT([LOGIN, "https://b.example"], audience=AUDIENCE)])), of=LOGIN) as issuer:
        claims = claims_of(parse(issuer.token("ann", scopes=["b", "a"], expires_in=10, tid="t", iss=None)))
    assert claims["exp"] - claims["iat"] == 10
    del claims["exp"], claims["iat"]
    assert claims == {"aud": AUDIENCE, "sub": "ann", "scope": "a b", "tid": "t"}


@cases("algorithm", ALGORITHMS)
async def test_every_algorithm_can_be_signed_with(algorithm: str) -> None:
    verifier = JWT(LOGIN, audience=AUDIENCE, algorithms=[algorithm])
    with testing.issuer(server_with(verifier)) as issuer:
        principal = await verifier.verify(issuer.token("ann"))
        assert principal is not None and principal.subject == "ann"


def test_a_server_that_verifies_no_signed_tokens_is_told_so() -> None:
    for auth in (None, ApiKeys({"a-key-of-mine": "ann"}), JWT("https://b.example", audience=AUDIENCE)):
        with pytest.raises(LookupError, match="verifies no tokens"), testing.issuer(server_with(auth), of=LOGIN):
            pass


class Careless(JWT):
    """Believes everything that can be read."""

    async def verify(self, token: str) -> Principal | None:
        return Principal(str(claims_of(parse(token)).get("sub", "")) or "nobody")


@pytest.mark.covers("R32")
async def test_a_careless_server_is_found() -> None:
    server = server_with(Careless(LOGIN, audience=AUDIENCE))
    with testing.issuer(server) as issuer, pytest.raises(AssertionError) as caught:
        await issuer.check()
    assert "lets callers in with a token expired; with a token not valid yet" in str(caught.value)
    for what in ("signed with another key", "not signed", "for another server", "changed after it was signed"):
        assert f"a token {what}" in str(caught.value)


async def test_a_check_that_would_prove_nothing_fails() -> None:
    server = server_with(ResourceServer(JWT(LOGIN, audience=AUDIENCE), allow=["ann"]))
    with (
        testing.issuer(server) as issuer,
        pytest.raises(AssertionError, match="a good token was turned away with status 403"),
    ):
        await issuer.check()


async def test_who_is_known_needs_no_token() -> None:
    server = server_with(JWT(LOGIN, audience=AUDIENCE))
    for over in ("http", "port"):
        async with testing.connect(server, over=over, principal=Principal("ann")) as (client, _):  # type: ignore[arg-type]
            assert (await client.call_tool("whoami")).text == "ann"
    for options in ({"over": "memory"}, {"over": "http", "principal": Principal("ann")}):
        with pytest.raises(ValueError, match="auth= is a token that is sent over HTTP"):
            async with testing.connect(server, auth="a-token", **options):  # type: ignore[arg-type]
                pass
