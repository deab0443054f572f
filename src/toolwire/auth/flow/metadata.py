"""Metadata documents of protected resources and of authorization servers."""

from __future__ import annotations

from msgspec import Struct

from toolwire.auth.errors import SignInFailed, quoted


class ProtectedResource(Struct, frozen=True):
    """Protected Resource Metadata (RFC 9728), as far as a client needs it."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None


class AuthorizationServer(Struct, frozen=True, omit_defaults=True):
    """Authorization server metadata (RFC 8414, OpenID Connect Discovery), as far as a client needs it."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None


class Discovered(Struct, frozen=True):
    """The result of discovery for one server: who issues its tokens, and for which resource.

    `resource` is sent exactly as the metadata published it.
    """

    server: AuthorizationServer
    resource: str
    scopes_supported: list[str] | None = None

    @property
    def issuer(self) -> str:
        return self.server.issuer


def default_server(origin: str) -> AuthorizationServer:
    """Return the fixed endpoints of a server without metadata (2025-03-26 basic/authorization, fallbacks)."""
    return AuthorizationServer(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
        # No document promises PKCE here. It is used anyway, because that revision requires it of every client.
        code_challenge_methods_supported=["S256"],
    )


def require_pkce(server: AuthorizationServer) -> None:
    # 2025-11-25 and 2026-07-28 basic/authorization: without this promise a client must not go on.
    if "S256" not in (server.code_challenge_methods_supported or ()):
        raise SignInFailed(
            f"The authorization server {quoted(server.issuer)} does not say that it supports PKCE with S256, "
            "so signing in there would not be safe"
        )
