"""Security requirements of operations, and the credentials that requests get: every type of scheme, every source."""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cases import cases

from toolwire.auth import (
    ClientCredentials,
    NoCredential,
    Passthrough,
    Principal,
    ServerOAuth,
    StaticSecret,
    TokenExchange,
    UserOAuth,
    credential,
)
from toolwire.auth.vault.kinds import Provider
from toolwire.auth.vault.providers import ProviderClient
from toolwire.openapi.access.credentials import CredentialLike, FileSecret, VaultAccount, source_of
from toolwire.openapi.access.forwarded_headers import allowed
from toolwire.openapi.access.security import ApiSecurity, read_security_scheme, read_security_schemes
from toolwire.openapi.access.signing import OutgoingRequest
from toolwire.openapi.model import (
    DescriptionError,
    Node,
    OAuthFlow,
    OperationObject,
    SecurityRequirement,
    SecuritySchemeObject,
)
from toolwire.protocol.errors import ServerError, ToolError

KEY = SecuritySchemeObject(name="key", type="apiKey", location="header", parameter_name="X-Key")
QUERY = SecuritySchemeObject(name="query", type="apiKey", location="query", parameter_name="api key")
COOKIE = SecuritySchemeObject(name="cookie", type="apiKey", location="cookie", parameter_name="sid")
RAW = SecuritySchemeObject(name="raw", type="apiKey", location="header", parameter_name="Authorization")
BASIC = SecuritySchemeObject(name="basic", type="http", scheme="basic")
BEARER = SecuritySchemeObject(name="bearer", type="http", scheme="bearer")
OTHER = SecuritySchemeObject(name="other", type="http", scheme="splunk")
DIGEST = SecuritySchemeObject(name="digest", type="http", scheme="digest")
MTLS = SecuritySchemeObject(name="mtls", type="mutualTLS")
OIDC = SecuritySchemeObject(
    name="oidc",
    type="openIdConnect",
    open_id_connect_url="https://login.example/realm/.well-known/openid-configuration",
)
OAUTH = SecuritySchemeObject(
    name="oauth",
    type="oauth2",
    flows={
        "authorizationCode": OAuthFlow(
            authorization_url="https://login.example/authorize", token_url="/token", scopes={"read": "Read"}
        ),
        "clientCredentials": OAuthFlow(token_url="https://login.example/token"),
    },
)
DEVICE = SecuritySchemeObject(
    name="device",
    type="oauth2",
    flows={
        "deviceAuthorization": OAuthFlow(
            device_authorization_url="https://login.example/device", token_url="https://login.example/token"
        )
    },
)
SCHEMES = {
    each.name: each for each in (KEY, QUERY, COOKIE, RAW, BASIC, BEARER, OTHER, DIGEST, MTLS, OIDC, OAUTH, DEVICE)
}
BASE = "https://api.example/openapi.json"


def operation(*alternatives: dict[str, tuple[str, ...]] | tuple[str, ...]) -> OperationObject:
    security = tuple(
        SecurityRequirement(each if isinstance(each, dict) else dict.fromkeys(each, ())) for each in alternatives
    )
    return OperationObject(method="GET", path="/pets", operation_id="listPets", security=security, place="api.yaml:7")


def request() -> OutgoingRequest:
    return OutgoingRequest(method="GET", url="https://api.example/pets?a=1", headers={"accept": "*/*"})


def call(principal: Principal | None = None, headers: dict[str, str] | None = None) -> Any:
    return SimpleNamespace(principal=principal, request=SimpleNamespace(headers=headers))


async def signed(credentials: dict[str, CredentialLike], *schemes: str, by: Any = None, **options: Any) -> Any:
    security = ApiSecurity(SCHEMES, credentials, base=BASE, **options)
    signer = security.signer(operation(schemes))
    assert signer is not None
    plain = request()
    found = (await signer.sign(by or call(), plain)).request
    assert plain == request(), "the request that texts may name has no credential"
    return found


# --- which requirement ---


@pytest.mark.covers("OA-6.1")
@cases(
    ("alternatives", "given", "chosen"),
    [
        ((), (), ()),
        (((),), ("key",), ()),
        ((("key",),), ("key",), ("key",)),
        ((("key",), ("basic",)), ("basic",), ("basic",)),
        ((("basic",), ("key",)), ("key", "basic"), ("basic",)),
        ((("key", "query"),), ("key", "query", "basic"), ("key", "query")),
        ((("key", "query"), ("basic",)), ("key", "basic"), ("basic",)),
        (((), ("key",)), ("key",), ("key",)),
        (((), ("key",)), (), ()),
        ((("key",), ()), ("basic",), ()),
    ],
)
def test_the_first_alternative_with_all_credentials_is_met(
    alternatives: tuple[tuple[str, ...], ...], given: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    security = ApiSecurity(SCHEMES, dict.fromkeys(given, "a:b"))
    assert tuple(security.chosen(operation(*alternatives)).schemes) == chosen
    assert (security.signer(operation(*alternatives)) is None) == (chosen == ())


@pytest.mark.covers("OA-6.1")
@cases(
    ("alternatives", "remedy"),
    [
        ((("key",),), "'key': give credentials={'key': '$NAME_OF_A_VARIABLE'}"),
        ((("basic",),), "'basic': give credentials={'basic': ('user', '$PASSWORD')}"),
        ((("oauth",),), "'oauth': give credentials={'oauth': UserOAuth(client_id=...)}"),
        ((("mtls",),), "'mtls': give credentials={'mtls': an ssl.SSLContext with a certificate}"),
        ((("key", "query"), ("oidc",)), "'key' and 'query' or 'oidc': give credentials={'key': "),
    ],
)
def test_a_missing_credential_is_an_error_that_names_the_scheme_and_the_remedy(
    alternatives: tuple[tuple[str, ...], ...], remedy: str
) -> None:
    with pytest.raises(DescriptionError) as caught:
        ApiSecurity(SCHEMES).signer(operation(*alternatives))
    assert str(caught.value).startswith(f"api.yaml:7: listPets needs a credential for {remedy}")


def test_mistakes_in_credentials_are_found_when_the_description_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "empty").write_text("\n")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kee": "$X"}, "'kee', which is not a security scheme of the API; it has: 'key', 'query'"),
        ({"key": "$NOT_SET"}, "environment variable NOT_SET, which is not set"),
        ({"key": ""}, "is empty"),
        ({"key": tmp_path / "missing"}, "cannot be read"),
        ({"key": tmp_path / "empty"}, "is empty or too long"),
        ({"key": 7}, "not int"),
        ({"key": ("user", "password")}, "are for the scheme basic"),
        ({"basic": ("us:er", "password")}, "without a colon"),
        ({"basic": UserOAuth("https://login.example")}, "not a place for the tokens of UserOAuth"),
        ({"key": UserOAuth("https://login.example", dpop=True)}, "not a place for the tokens of UserOAuth"),
        ({"mtls": "$X"}, "an ssl.SSLContext with a certificate"),
        ({"key": ssl.create_default_context()}, "no ssl.SSLContext"),
        ({"digest": "secret"}, "each request answers a challenge"),
        ({"device": UserOAuth(client_id="us")}, "has no flow that UserOAuth can use (it has: deviceAuthorization)"),
    ]
    for given, text in wrong:
        with pytest.raises(ServerError) as caught:
            ApiSecurity(SCHEMES, given)
        assert text in str(caught.value)
    with pytest.raises(DescriptionError, match="needs the security scheme 'gone', which the description does not have"):
        ApiSecurity(SCHEMES).signer(operation(("gone",)))
    with pytest.raises(DescriptionError, match="both are sent in the header authorization"):
        ApiSecurity(SCHEMES, {"basic": "a:b", "bearer": "c"}).signer(operation(("basic", "bearer")))


# --- where credentials stand ---


@pytest.mark.covers("OA-6.2")
@cases(
    ("schemes", "url", "headers"),
    [
        (("key",), "", {"x-key": "s3=&"}),
        (("query",), "&api%20key=s3%3D%26", {}),
        (("cookie",), "", {"cookie": "sid=s3=&"}),
        (("raw",), "", {"authorization": "s3=&"}),
        (("bearer",), "", {"authorization": "Bearer s3=&"}),
        (("oauth",), "", {"authorization": "Bearer s3=&"}),
        (("oidc",), "", {"authorization": "Bearer s3=&"}),
        (("other",), "", {"authorization": "splunk s3=&"}),
        (
            ("key", "query", "cookie", "bearer"),
            "&api%20key=s3%3D%26",
            {
                "x-key": "s3=&",
                "cookie": "sid=s3=&",
                "authorization": "Bearer s3=&",
            },
        ),
    ],
)
async def test_every_scheme_has_its_place(schemes: tuple[str, ...], url: str, headers: dict[str, str]) -> None:
    found = await signed(dict.fromkeys(schemes, "s3=&"), *schemes)
    assert found.url == f"https://api.example/pets?a=1{url}"
    assert found.headers == {"accept": "*/*", **headers}


@pytest.mark.covers("OA-6.2")
async def test_sources_of_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETS_KEY", "from the environment")
    (tmp_path / "key").write_text("from a file\n")
    asked: list[Principal | None] = []

    async def of(principal: Principal | None) -> str | None:
        asked.append(principal)
        return principal and f"of {principal.subject}"

    given: dict[str, CredentialLike] = {
        "from the environment": "$PETS_KEY",
        "from a file": tmp_path / "key",
        "static": StaticSecret("static"),
        "supplied": StaticSecret(lambda: "supplied"),
        "of anna": of,
        "of a lambda": lambda principal: "of a lambda",
    }
    for expected, source in given.items():
        found = await signed({"key": source}, "key", by=call(Principal("anna")))
        assert found.headers["x-key"] == expected
    assert [each and each.subject for each in asked] == ["anna"]
    with pytest.raises(ToolError, match="no credential of yours"):
        await signed({"key": of}, "key")
    found = await signed({"basic": ("Aladdin", "$PETS_KEY")}, "basic")
    assert base64.b64decode(found.headers["authorization"].removeprefix("Basic ")) == b"Aladdin:from the environment"


async def test_a_file_that_the_platform_replaces_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    signer = ApiSecurity(SCHEMES, {"key": path}).signer(operation(("key",)))
    assert signer is not None
    first = await signer.sign(call(), request())
    path.write_text("newer")
    again = await first.again(401, {})
    assert again is not None and again.request.headers["x-key"] == "newer"
    with pytest.raises(ToolError, match="The API refuses the credential of this server for 'key'"):
        await again.again(401, {})
    path.unlink()
    with pytest.raises(ToolError, match="cannot read its credential for 'key'"):
        await signer.sign(call(), request())


@pytest.mark.covers("OA-6.2")
@cases("secret", ["line\r\nx: y", "tab\tbed", "ü", " spaces "])
@cases("scheme", ["key", "cookie", "bearer"])
async def test_a_secret_never_begins_another_header(scheme: str, secret: str) -> None:
    with pytest.raises(ToolError, match=r"has characters that a (header|cookie) cannot carry") as caught:
        await signed({scheme: lambda principal: secret}, scheme)
    assert secret not in str(caught.value)


def test_a_certificate_is_for_connections() -> None:
    context = ssl.create_default_context()
    security = ApiSecurity(SCHEMES, {"mtls": context})
    assert security.tls is context and security.signer(operation(("mtls",))) is None
    both = {"mtls": MTLS, "other": SecuritySchemeObject(name="other", type="mutualTLS")}
    with pytest.raises(ServerError, match="one certificate"):
        ApiSecurity(both, {"mtls": context, "other": ssl.create_default_context()})


def test_nothing_is_sent_where_somebody_else_takes_care() -> None:
    security = ApiSecurity(SCHEMES, {"digest": NoCredential(), "mtls": NoCredential()})
    assert security.signer(operation(("digest", "mtls"))) is None


def test_a_secret_is_in_no_representation() -> None:
    found = OutgoingRequest(
        method="GET", url="https://api.example/?key=secret", headers={"x": "secret"}, body=b"secret"
    )
    assert "secret" not in repr(found)
    assert "hidden" not in repr(ApiSecurity(SCHEMES, {"key": "hidden"}).signer(operation(("key",))))


# --- providers of tokens ---


def provider(scheme: SecuritySchemeObject, kind: Any, *, is_named: bool = True) -> Provider:
    source = source_of(scheme, kind, BASE, is_named=is_named)
    assert isinstance(source, VaultAccount) and isinstance(source.kind, Provider)
    return source.kind


@pytest.mark.covers("OA-6.3")
def test_the_endpoints_of_an_account_come_from_the_description() -> None:
    found = provider(OAUTH, UserOAuth(client_id="us"))
    assert found.token_endpoint == "https://api.example/token"
    assert found.authorization_endpoint == "https://login.example/authorize"
    machine = provider(OAUTH, ServerOAuth(grant=ClientCredentials("us", "secret")))
    assert machine.token_endpoint == "https://login.example/token"
    assert provider(OIDC, UserOAuth(client_id="us")).issuer == "https://login.example/realm"
    # OpenAPI 3.2: the address of the metadata of RFC 8414, which stands between host and path.
    metadata = SecuritySchemeObject(
        name="m", type="oauth2", metadata_url="https://login.example/.well-known/oauth-authorization-server/realm"
    )
    assert provider(metadata, UserOAuth(client_id="us")).issuer == "https://login.example/realm"
    assert provider(DEVICE, UserOAuth("https://other.example", client_id="us")).issuer == "https://other.example"
    with pytest.raises(ServerError, match="names no issuer"):
        provider(SecuritySchemeObject(name="m", type="openIdConnect", open_id_connect_url="/x"), UserOAuth())


@pytest.mark.covers("OA-6.8")
def test_a_provider_that_a_description_from_elsewhere_names_is_public() -> None:
    typed = UserOAuth("https://login.example", client_id="us")
    assert provider(OAUTH, typed, is_named=False) is typed and typed.hosts == ("login.example",)
    found = provider(OAUTH, UserOAuth(client_id="us"), is_named=False)
    assert found.hosts == ()
    reach = ProviderClient(found, naming=cast("Any", None))._reach
    assert reach.zone("https://login.example/token", "x").name == "PUBLIC"
    mine = ProviderClient(provider(OAUTH, UserOAuth(client_id="us")), naming=cast("Any", None))._reach
    assert mine.zone("https://login.example/token", "x").name == "NAMED"


def test_scopes_of_callers_are_those_of_credentials_made_of_their_tokens() -> None:
    needs = operation({"oauth": ("read", "write")})
    exchange = TokenExchange("https://login.example", client_id="us", client_secret="secret")
    for kind, expected in (
        (exchange, ("read", "write")),
        (Passthrough("both"), ("read", "write")),
        (UserOAuth(client_id="us"), ()),
        ("$PATH", ()),
    ):
        given: Any = kind
        assert ApiSecurity(SCHEMES, {"oauth": given}, base=BASE).caller_scopes(needs) == expected
    # Other types of schemes have roles there.
    assert ApiSecurity(SCHEMES, {"bearer": exchange}).caller_scopes(operation({"bearer": ("admin",)})) == ()


# --- reading ---


class Document:
    uri, version, digest = "file:///api.yaml", "3.2", "sha256:"

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def place(self, pointer: str) -> str:
        return f"api.yaml#{pointer}"


def description(schemes: Any) -> Any:
    document = Document({"components": {"securitySchemes": schemes}})

    def resolve(node: Node) -> Node:
        return Node({"type": "http", "scheme": "Bearer"}, node.document) if "$ref" in node.value else node

    return SimpleNamespace(root=document, resolve=resolve)


@pytest.mark.covers("OA-6.2")
def test_security_schemes_are_read() -> None:
    flow = {"authorizationUrl": "/a", "tokenUrl": "/t", "refreshUrl": "/r", "scopes": {"read": "Read"}}
    device = {"deviceAuthorizationUrl": "/d", "tokenUrl": "/t", "scopes": {}}
    found = read_security_schemes(
        description(
            {
                "key": {"type": "apiKey", "in": "query", "name": "api key", "description": "Ask us"},
                "ref": {"$ref": "elsewhere"},
                "oauth": {
                    "type": "oauth2",
                    "flows": {"authorizationCode": flow, "deviceAuthorization": device, "x-own": {}},
                    "oauth2MetadataUrl": "https://m.example",
                },
                "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://o.example"},
                "mtls": {"type": "mutualTLS"},
            }
        )
    )
    assert found["key"] == SecuritySchemeObject(
        name="key", type="apiKey", location="query", parameter_name="api key", description="Ask us"
    )
    assert found["ref"] == SecuritySchemeObject(name="ref", type="http", scheme="bearer")
    assert [*found["oauth"].flows] == ["authorizationCode", "deviceAuthorization"]
    assert found["oauth"].flows["deviceAuthorization"].device_authorization_url == "/d"
    assert found["oauth"].flows["authorizationCode"].refresh_url == "/r"
    assert found["oauth"].metadata_url == "https://m.example"
    assert found["oidc"].open_id_connect_url == "https://o.example"
    assert found["mtls"].type == "mutualTLS"
    empty: Any = SimpleNamespace(root=Document({}))
    assert read_security_schemes(empty) == {}


@cases(
    ("value", "text"),
    [
        ([], "is one of apiKey, http"),
        ({"type": "magic"}, "is one of apiKey, http"),
        ({"type": "apiKey", "in": "body", "name": "x"}, "`in` query, header or cookie"),
        ({"type": "apiKey", "in": "header"}, "needs a name"),
        ({"type": "apiKey", "in": "header", "name": 7}, "is a text"),
        ({"type": "apiKey", "in": "header", "name": "a b"}, "is not a place for the credential"),
        ({"type": "apiKey", "in": "header", "name": "Host"}, "is not a place for the credential"),
        ({"type": "apiKey", "in": "header", "name": "a\r\nb"}, "is not a place for the credential"),
        ({"type": "http"}, "is not a place for the credential"),
        ({"type": "oauth2"}, "has `flows`"),
    ],
)
def test_a_wrong_scheme_is_named_with_its_place(value: Any, text: str) -> None:
    document: Any = Document({})
    with pytest.raises(DescriptionError, match=r"^api\.yaml#/x: ") as caught:
        read_security_scheme("s", Node(value, document, "/x"))
    assert text in str(caught.value)


# --- headers of callers ---


@pytest.mark.covers("OA-6.5")
async def test_headers_of_callers_go_on_if_they_are_named(caplog: pytest.LogCaptureFixture) -> None:
    sent = {"x-tenant": "t", "authorization": "Bearer mine", "cookie": "c=1", "x-other": "o", "accept": "text/event"}
    by = call(headers=sent)
    assert (await signed({"key": "s"}, "key", by=by)).headers == {"accept": "*/*", "x-key": "s"}
    names = allowed(["X-Tenant", "X-Key", "x-absent"])
    by = call(headers={**sent, "x-key": "of the caller"})
    found = await signed({"key": "s"}, "key", by=by, forward_headers=names)
    assert found.headers == {"x-tenant": "t", "accept": "*/*", "x-key": "s"}, "credentials win"
    security = ApiSecurity({}, forward_headers=names)
    signer = security.signer(operation())
    assert signer is not None
    assert (await signer.sign(call(), request())).request.headers == {"accept": "*/*"}, "none over standard input"
    assert caplog.records == []


@pytest.mark.covers("OA-6.5")
async def test_one_header_in_two_spellings_is_sent_once() -> None:
    by = call(headers={"x-tenant": "of the caller", "x-key": "of the caller"})
    names = allowed(["x-tenant", "x-key"])
    security = ApiSecurity(SCHEMES, {"key": "s"}, forward_headers=names)
    signer = security.signer(operation(("key",)))
    assert signer is not None
    plain = OutgoingRequest(
        method="GET", url="https://api.example/pets", headers={"x_tenant": "fixed", "x_key": "of the model"}
    )
    assert (await signer.sign(by, plain)).request.headers == {"x_tenant": "fixed", "x-key": "s"}


@pytest.mark.covers("OA-6.5")
def test_what_callers_prove_themselves_with_needs_a_word(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("Authorization", "cookie", "X-API-Key", "x_api_key"):
        with pytest.raises(ServerError, match="passthrough=True"):
            allowed([name])
        assert allowed([name], passthrough=True) == (name.lower(),)
        assert "which MCP forbids" in caplog.text and name.lower() in caplog.text
        caplog.clear()
    for name in ("Host", "mcp-session-id", "Content-Length", "content_length", "MCP_Session_Id", "a b", "x\r\ny", ""):
        with pytest.raises(ServerError):
            allowed([name], passthrough=True)


def test_a_named_account_belongs_to_the_server() -> None:
    security = ApiSecurity(SCHEMES, {"oauth": credential("github")})
    server: Any = SimpleNamespace(vault_with=lambda name: None)
    with pytest.raises(ServerError, match=r"credential\('github'\), which the server does not have"):
        security.add_to(server)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_credential_file_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    with pytest.raises(ServerError, match=r"cannot be read from .*not a regular file"):
        FileSecret("k", tmp_path / "key")()
    (tmp_path / "plain").write_text("secret\r\n")
    assert FileSecret("k", tmp_path / "plain")() == "secret"
